/*
 * Is a text well-formed UTF-8 (RFC 3629)? JSON files must be, names of files need not be.
 */
#ifndef CORE_UTF8_H
#define CORE_UTF8_H

#include <stdbool.h>
#include <stddef.h>

/* Bytes of the character that the text begins with; 0 when it begins with none, or is empty. */
size_t utf8_character(const char *text, size_t length);

/* Neither overlong forms nor surrogates nor anything above U+10FFFF pass. A zero byte does. */
bool utf8_is_valid(const char *text, size_t length);

#endif

/*
 * Is a text well-formed UTF-8 (RFC 3629)? JSON files must be, names of files need not be.
 */
#ifndef CORE_UTF8_H
#define CORE_UTF8_H

#include <stdbool.h>
#include <stddef.h>

/* Neither overlong forms nor surrogates nor anything above U+10FFFF pass. A zero byte does. */
bool utf8_is_valid(const char *text, size_t length);

#endif

/*
 * Decimal numbers in texts, with a point whatever the locale of the program has: the C library follows the locale,
 * which belongs to the program that embeds this one.
 */
#ifndef CORE_DECIMAL_H
#define CORE_DECIMAL_H

#include <stdbool.h>
#include <stddef.h>

enum { DECIMAL_TEXT_MAX = 48 };

/* Reads the number that a text begins with; *end is what follows it. False where there is none, it is not
 * finite, or it has DECIMAL_TEXT_MAX characters. No white space, no hexadecimal, no "inf". */
bool decimal_read(const char *text, double *value, const char **end);

/* Writes like printf's %.*g. */
void decimal_write(double value, int digits, char text[DECIMAL_TEXT_MAX]);

/* Turns what printf has made of a single number in this locale into what it is elsewhere. */
void decimal_point(char *text);

#endif

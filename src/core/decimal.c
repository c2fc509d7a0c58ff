/*
 * What the locale does is undone, or done, around the calls of the C library: reading digits and writing the
 * right ones is its business.
 */
#include "core/decimal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { POINT_MAX = 8 }; /* bytes; most have one, U+066B has two */

static const char PARTS[] = "0123456789+-eE";

void decimal_point(char *text)
{
    size_t before = strspn(text, PARTS);
    size_t length = strcspn(text + before, PARTS);
    if (before == 0 || length == 0 || text[before + length] == '\0')
        return; /* no digits before it, no point, no digits behind it: "inf", "12", "-inf" */
    text[before] = '.';
    memmove(text + before + 1, text + before + length, strlen(text + before + length) + 1);
}

/* The locale's point, as printf writes it: there is no other way to ask that threads may use. */
static size_t locale_point(char point[POINT_MAX])
{
    char half[POINT_MAX + 3];
    int n = snprintf(half, sizeof half, "%.1f", 0.5);
    size_t length = n > 2 && (size_t)n < sizeof half ? (size_t)n - 2 : 0;
    memcpy(point, half + 1, length);
    return length;
}

bool decimal_read(const char *text, double *value, const char **end)
{
    size_t length = strspn(text, "0123456789+-.eE");
    char word[DECIMAL_TEXT_MAX + POINT_MAX];
    if (length == 0 || length >= DECIMAL_TEXT_MAX)
        return false;
    char point[POINT_MAX];
    size_t point_length = locale_point(point);
    size_t before = strcspn(text, ".");
    bool has_point = before < length;
    if (!has_point)
        before = length;
    memcpy(word, text, before);
    if (has_point) {
        memcpy(word + before, point, point_length);
        memcpy(word + before + point_length, text + before + 1, length - before - 1);
        length += point_length - 1;
    }
    word[length] = '\0';

    char *stop;
    *value = strtod(word, &stop);
    size_t used = (size_t)(stop - word);
    if (has_point && used > before)
        used -= point_length - 1;
    *end = text + used;
    return used > 0 && isfinite(*value);
}

void decimal_write(double value, int digits, char text[DECIMAL_TEXT_MAX])
{
    (void)snprintf(text, DECIMAL_TEXT_MAX, "%.*g", digits, value);
    decimal_point(text);
}

#include "core/utf8.h"

#include <stdint.h>

/* A first byte between `low` and `high` is followed by `n_more` bytes, of which the first lies
 * between `second_low` and `second_high` and the others between 0x80 and 0xbf. */
struct form {
    uint8_t low, high;
    uint8_t n_more;
    uint8_t second_low, second_high;
};

static const struct form FORMS[] = {
    {0x00, 0x7f, 0, 0, 0},       {0xc2, 0xdf, 1, 0x80, 0xbf}, {0xe0, 0xe0, 2, 0xa0, 0xbf},
    {0xe1, 0xec, 2, 0x80, 0xbf}, {0xed, 0xed, 2, 0x80, 0x9f}, {0xee, 0xef, 2, 0x80, 0xbf},
    {0xf0, 0xf0, 3, 0x90, 0xbf}, {0xf1, 0xf3, 3, 0x80, 0xbf}, {0xf4, 0xf4, 3, 0x80, 0x8f},
};

static const struct form *form_of(uint8_t first)
{
    for (size_t i = 0; i < sizeof FORMS / sizeof FORMS[0]; i++)
        if (first >= FORMS[i].low && first <= FORMS[i].high)
            return &FORMS[i];
    return NULL;
}

static bool is_within(uint8_t byte, uint8_t low, uint8_t high)
{
    return byte >= low && byte <= high;
}

size_t utf8_character(const char *text, size_t length)
{
    const uint8_t *bytes = (const uint8_t *)text;
    const struct form *form = length > 0 ? form_of(bytes[0]) : NULL;
    if (!form || form->n_more >= length)
        return 0;
    for (size_t k = 1; k <= form->n_more; k++)
        if (!is_within(bytes[k], k == 1 ? form->second_low : 0x80,
                       k == 1 ? form->second_high : 0xbf))
            return 0;
    return (size_t)form->n_more + 1;
}

bool utf8_is_valid(const char *text, size_t length)
{
    for (size_t at = 0; at < length;) {
        size_t n = utf8_character(text + at, length - at);
        if (n == 0)
            return false;
        at += n;
    }
    return true;
}

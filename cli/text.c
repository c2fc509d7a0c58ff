#include "text.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* Bytes of the UTF-8 character at `text` that is neither overlong nor a surrogate nor too large; 0: there is none. */
static size_t character_at(const unsigned char *text)
{
    static const struct {
        unsigned char low, high;           /* first byte */
        unsigned char second, second_high; /* second byte */
        size_t length;
    } forms[] = {
        {0x00, 0x7f, 0, 0, 1},       {0xc2, 0xdf, 0x80, 0xbf, 2}, {0xe0, 0xe0, 0xa0, 0xbf, 3},
        {0xe1, 0xec, 0x80, 0xbf, 3}, {0xed, 0xed, 0x80, 0x9f, 3}, {0xee, 0xef, 0x80, 0xbf, 3},
        {0xf0, 0xf0, 0x90, 0xbf, 4}, {0xf1, 0xf3, 0x80, 0xbf, 4}, {0xf4, 0xf4, 0x80, 0x8f, 4}};
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        if (text[0] < forms[i].low || text[0] > forms[i].high)
            continue;
        if (forms[i].length > 1 && (text[1] < forms[i].second || text[1] > forms[i].second_high))
            return 0;
        for (size_t k = 2; k < forms[i].length; k++)
            if (text[k] < 0x80 || text[k] > 0xbf)
                return 0;
        return forms[i].length;
    }
    return 0;
}

/* C0, DEL, and C1 (U+0080 to U+009F), which some terminals obey too. */
static bool is_control(const unsigned char *text, size_t length)
{
    if (length == 1)
        return text[0] < 0x20 || text[0] == 0x7f;
    return length == 2 && text[0] == 0xc2 && text[1] < 0xa0;
}

static void print_escaped(FILE *file, unsigned char byte)
{
    static const char plain[] = "\n\t\r\\";
    static const char letters[] = "ntr\\";
    const char *at = byte ? strchr(plain, byte) : NULL;
    if (at)
        fprintf(file, "\\%c", letters[at - plain]);
    else
        fprintf(file, "\\x%02x", byte);
}

void text_print(FILE *file, const char *text)
{
    const unsigned char *at = (const unsigned char *)text;
    while (*at) {
        size_t length = character_at(at);
        bool is_plain = length > 0 && !is_control(at, length) && *at != '\\';
        size_t step = length > 0 ? length : 1;
        if (is_plain)
            (void)fwrite(at, 1, step, file);
        else
            for (size_t i = 0; i < step; i++)
                print_escaped(file, at[i]);
        at += step;
    }
}

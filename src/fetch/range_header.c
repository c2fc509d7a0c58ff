#include "fetch/range_header.h"

#include <string.h>
#include <strings.h>

static const char *skip_blanks(const char *at)
{
    while (*at == ' ' || *at == '\t')
        at++;
    return at;
}

/* Digits up to what an int64_t holds; NULL when there is none or there are too many. */
static const char *take_number(const char *at, int64_t *out)
{
    int64_t value = 0;
    const char *start = at;
    for (; *at >= '0' && *at <= '9'; at++) {
        int number = *at - '0';
        if (value > (INT64_MAX - number) / 10)
            return NULL;
        value = 10 * value + number;
    }
    *out = value;
    return at > start ? at : NULL;
}

bool content_range_parse(const char *text, struct content_range *out)
{
    const char *at = skip_blanks(text);
    if (strncasecmp(at, "bytes", 5) != 0 || (at[5] != ' ' && at[5] != '\t'))
        return false;
    at = take_number(skip_blanks(at + 5), &out->first);
    if (!at || *at != '-')
        return false;
    at = take_number(at + 1, &out->last);
    if (!at || *at != '/')
        return false;
    at++;
    out->size = -1;
    if (*at == '*')
        at++;
    else
        at = take_number(at, &out->size);
    if (!at || *skip_blanks(at) != '\0')
        return false;
    return out->first <= out->last && (out->size < 0 || out->last < out->size);
}

bool etag_copy(const char *text, char out[ETAG_MAX])
{
    const char *start = skip_blanks(text);
    if (*start != '"')
        return false;
    const char *at = start + 1;
    /* etagc: visible characters but the quote; bytes above ASCII are allowed. */
    while (*at != '"') {
        unsigned char c = (unsigned char)*at;
        if (c <= ' ' || c == 0x7F)
            return false;
        at++;
    }
    size_t length = (size_t)(at + 1 - start);
    if (length >= ETAG_MAX || *skip_blanks(at + 1) != '\0')
        return false;
    memcpy(out, start, length);
    out[length] = '\0';
    return true;
}

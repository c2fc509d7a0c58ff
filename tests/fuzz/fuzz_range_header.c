/*
 * Fuzz target: fields of HTTP responses. What is taken for a range holds together, and what is taken for a tag can
 * be sent back without breaking a line.
 */
#include "fetch/range_header.h"

#include "fuzz/fuzz_set.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    require(text != NULL);
    memcpy(text, data, size);
    text[size] = '\0';
    struct content_range range;
    if (content_range_parse(text, &range)) {
        require(range.first >= 0 && range.first <= range.last);
        require(range.size == -1 || range.last < range.size);
    }
    char tag[ETAG_MAX];
    if (etag_copy(text, tag)) {
        size_t length = strlen(tag);
        require(length >= 2 && length < ETAG_MAX && strstr(text, tag) != NULL);
        require(tag[0] == '"' && strchr(tag + 1, '"') == tag + length - 1);
        require(strpbrk(tag, " \t\r\n") == NULL);
    }
    free(text);
    return 0;
}

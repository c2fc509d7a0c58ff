/*
 * Fuzz target: lists of images and classes. Every part of a line lies within the input, and words
 * hold no separators.
 */
#include "data/image_list.h"

#include "fuzz/fuzz_set.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct der_ctx *ctx = fuzz_ctx();
    struct image_list list;
    const char *start = (const char *)data;
    image_list_init(&list, "input", data, size);
    for (;;) {
        struct image_list_entry entry;
        bool found = false;
        if (image_list_next(ctx, &list, &entry, &found) != DER_OK || !found)
            break;
        require(entry.file >= start && entry.file_length <= (size_t)(start + size - entry.file));
        require(!memchr(entry.file, '\n', entry.file_length));
        if (!entry.label)
            continue;
        int64_t number = 0;
        require(entry.label >= start && entry.label_length <= (size_t)(start + size - entry.label));
        require(!memchr(entry.label, ' ', entry.label_length));
        if (image_list_number(entry.label, entry.label_length, 999, &number))
            require(number >= 0 && number <= 999);
    }
    fuzz_ctx_free(ctx);
    return 0;
}

/*
 * Fuzz target: files of kept plans. Whatever is taken for one is, to the last byte, what would be stored under its key.
 */
#include "io/plan_cache.h"

#include "fuzz/fuzz_set.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char key[] = "a key";
    char head[PLAN_HEAD_SIZE + 1];
    size_t text_size = SIZE_MAX;
    const char *text = plan_file_text(key, data, size, &text_size);
    if (!text)
        return 0;
    const size_t before = PLAN_HEAD_SIZE + strlen(key) + 1;
    plan_file_head(head, key, text, text_size);
    require(text == (const char *)data + before && before + text_size == size);
    require(memcmp(data, head, PLAN_HEAD_SIZE) == 0);
    require(memcmp(data + PLAN_HEAD_SIZE, "a key\n", strlen(key) + 1) == 0);
    return 0;
}

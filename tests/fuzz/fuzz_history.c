/*
 * Fuzz target: a metrics.jsonl is refused with a sentence, or its epochs are columns of one length and its steps
 * objects.
 */
#include "report/history.h"

#include "fuzz_file.h"

enum { CLASSES = 6 };

static void check_history(const struct history *h)
{
    const cJSON *column;
    const cJSON *step;
    cJSON_ArrayForEach(column, h->epochs)
    {
        bool is_list = strcmp(column->string, "loss") != 0 && strcmp(column->string, "stages") != 0;
        require(!is_list || cJSON_GetArraySize(column) == h->n_epochs);
    }
    cJSON_ArrayForEach(column, cJSON_GetObjectItemCaseSensitive(h->epochs, "loss"))
    {
        require(cJSON_GetArraySize(column) == h->n_epochs);
    }
    cJSON_ArrayForEach(step, h->steps)
    {
        require(cJSON_IsObject(step));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct der_ctx *ctx = input_ctx();
    struct input input = {.data = data, .size = size};
    struct history h;
    enum der_status status = history_read(ctx, "fuzz", (const char *)data, size, CLASSES, &h);
    if (status == DER_OK)
        check_history(&h);
    else
        check_refusal(ctx, status);
    history_fini(&h);
    input_end(ctx, &input);
    return 0;
}

/*
 * Fuzz target: a JSON text is either refused with a sentence, or every member can be asked for as
 * every type, and what is printed reads back as the same.
 */
#include "json/json.h"

#include <der/der.h>

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds)
{
    if (!holds)
        abort();
}

/* A value was given, or a sentence says why not. */
static void check_answer(const struct der_ctx *ctx, enum der_status status)
{
    require(status == DER_OK || (status == DER_FORMAT && ctx->error[0] != 0));
}

static void ask(struct der_ctx *ctx, const cJSON *object, const char *key)
{
    const cJSON *item;
    const char *text = NULL;
    double number = 0.0;
    int64_t whole = 0;
    check_answer(ctx, json_get_object(ctx, "fuzz", object, key, &item));
    check_answer(ctx, json_get_array(ctx, "fuzz", object, key, &item));
    enum der_status status = json_get_text(ctx, "fuzz", object, key, &text);
    check_answer(ctx, status);
    require(status != DER_OK || strlen(text) < SIZE_MAX);
    check_answer(ctx, json_get_number(ctx, "fuzz", object, key, &number));
    require(number - number == 0.0);
    status = json_get_int(ctx, "fuzz", object, key, -1000, 1000, &whole);
    check_answer(ctx, status);
    require(whole >= -1000 && whole <= 1000);
}

static void check_printing(struct der_ctx *ctx, const cJSON *root, bool pretty)
{
    char *text;
    char *again;
    cJSON *copy;
    require(json_print(ctx, root, pretty, &text) == DER_OK);
    require(json_parse(ctx, "printed", text, strlen(text), &copy) == DER_OK);
    require(json_print(ctx, copy, pretty, &again) == DER_OK);
    require(strcmp(text, again) == 0);
    mem_free(&ctx->mem, text);
    mem_free(&ctx->mem, again);
    json_free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct der_ctx *ctx = NULL;
    const struct der_ctx_options options = {.threads = 1};
    cJSON *root;
    require(der_ctx_new(&options, &ctx) == DER_OK);
    enum der_status status = json_parse(ctx, "fuzz", (const char *)data, size, &root);
    require((status == DER_OK) == (root != NULL));
    check_answer(ctx, status);
    if (status == DER_OK) {
        const cJSON *item;
        cJSON_ArrayForEach(item, root)
        {
            if (item->string)
                ask(ctx, root, item->string);
        }
        ask(ctx, root, "absent");
        check_printing(ctx, root, false);
        check_printing(ctx, root, true);
    }
    json_free(root);
    require(der_ctx_memory(ctx).n_live == 0);
    der_ctx_free(ctx);
    return 0;
}

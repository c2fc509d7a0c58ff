/*
 * metrics.jsonl on its way to the page: numbers as they are, epochs as columns, and a sentence for every damage.
 */
#include "report/history.h"

#include "support/test_ctx.h"

#include <stdio.h>
#include <string.h>

enum { CLASSES = 4 };

static const char LINES[] =
    "{\"event\":\"epoch\",\"step\":1,\"stage\":\"representation\",\"epoch\":1,\"epochs\":2,\"lr\":"
    "0.1,"
    "\"loss\":{\"main\":1.23456789},\"sparsity\":0.25}\n"
    "{\"event\":\"epoch\",\"step\":1,\"stage\":\"representation\",\"epoch\":2,\"epochs\":2,\"lr\":"
    "0.01,"
    "\"loss\":{\"main\":1,\"auxiliary\":0.5}}\n"
    "{\"event\":\"step\",\"step\":1,\"classes\":2,\"top1\":87.11111111111111,\"per_class\":[80,"
    "null],"
    "\"groups\":[87.5],\"confusion\":[[20]],\"widths\":{\"stream\":[3,4],\"inner\":[5]},"
    "\"unknown\":7}\n"
    "{\"event\":\"epoch\",\"step\":2,\"stage\":\"classifier\",\"epoch\":1,\"epochs\":1,\"lr\":0.1,"
    "\"loss\":{}}\n"
    "{\"event\":\"step\",\"step\":2,\"classes\":4,\"top1\":50,\"per_class\":[80,1,2,3],"
    "\"confusion\":[[18,2],[3,17]],\"latency_ms\":{\"model\":{\"batch_1\":1.5}}}\n"
    "{\"event\":\"other\"}\n"
    "{\"event\":\"end\",\"steps\":2,\"avg_top1\":60,\"bwt\":-3.5}\n"
    "{\"event\":\"epoch\",\"ste";

static const cJSON *get(const cJSON *object, const char *key)
{
    return cJSON_GetObjectItemCaseSensitive(object, key);
}

static void assert_text(struct der_ctx *ctx, const cJSON *value, const char *wanted)
{
    char *text;
    assert_ok(ctx, json_print(ctx, value, false, &text));
    assert_string_equal(text, wanted);
    mem_free(&ctx->mem, text);
}

static void test_numbers_are_those_of_the_file(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    struct history h;
    assert_ok(ctx, history_read(ctx, "here", LINES, strlen(LINES), CLASSES, &h));
    assert_int_equal(cJSON_GetArraySize(h.steps), 2);
    const cJSON *first = h.steps->child;
    assert_true(get(first, "top1")->valuedouble == 87.11111111111111);
    assert_text(ctx, get(first, "widths"), "{\"stream\":[3,4],\"inner\":[5]}");
    assert_text(ctx, get(first, "groups"), "[87.5]");
    assert_null(get(first, "unknown"));
    assert_null(get(first, "per_class")); /* of the latest step alone */
    assert_text(ctx, get(first->next, "per_class"), "[80,1,2,3]");
    assert_text(ctx, get(first->next, "confusion"), "[[18,2],[3,17]]");
    assert_text(ctx, get(get(first->next, "latency_ms"), "model"), "{\"batch_1\":1.5}");
    assert_text(ctx, h.end, "{\"steps\":2,\"avg_top1\":60,\"bwt\":-3.5}");
    history_fini(&h);
    test_ctx_free(ctx);
}

static void test_epochs_become_columns_of_one_length(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    struct history h;
    assert_ok(ctx, history_read(ctx, "here", LINES, strlen(LINES), CLASSES, &h));
    assert_int_equal(h.n_epochs, 3);
    assert_text(ctx, get(h.epochs, "step"), "[1,1,2]");
    assert_text(ctx, get(h.epochs, "stages"), "[\"representation\",\"classifier\"]");
    assert_text(ctx, get(h.epochs, "stage"), "[0,0,1]");
    assert_text(ctx, get(h.epochs, "lr"), "[0.1,0.01,0.1]");
    assert_text(ctx, get(h.epochs, "sparsity"), "[0.25,null,null]");
    assert_text(ctx, get(h.epochs, "loss"),
                "{\"main\":[1.23457,1,null],\"auxiliary\":[null,0.5,null]}");
    history_fini(&h);
    test_ctx_free(ctx);
}

static void test_every_truncation_is_fine_or_told(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    for (size_t n = 0; n <= strlen(LINES); n++) {
        struct history h;
        assert_ok(ctx, history_read(ctx, "here", LINES, n, CLASSES, &h));
        history_fini(&h);
    }
    test_ctx_free(ctx);
}

static void test_damages_are_told(void **state)
{
    (void)state;
    static const struct {
        const char *line, *sentence;
    } damages[] = {
        {"[]", "here: line 1: 'event' is missing"},
        {"{\"event\":\"step\",\"top1\":101}", "here: line 1: 'top1' must lie between 0 and 100"},
        {"{\"event\":\"step\",\"top1\":\"9\"}", "'top1' must be a number"},
        {"{\"event\":\"step\",\"groups\":{}}", "'groups' must be an array of numbers"},
        {"{\"event\":\"step\",\"groups\":[\"a\"]}", "'groups' must have at most 128 numbers"},
        {"{\"event\":\"step\",\"per_class\":[1,2,3,4,5]}", "'per_class' must have at most 4"},
        {"{\"event\":\"step\",\"confusion\":[[1,2],[3]]}", "'confusion' must be square"},
        {"{\"event\":\"step\",\"confusion\":[[-1]]}", "'confusion' must lie between"},
        {"{\"event\":\"step\",\"confusion\":[]}", "'confusion' must be an array of rows"},
        {"{\"event\":\"step\",\"widths\":[]}", "'widths' must be an object"},
        {"{\"event\":\"step\",\"widths\":{\"stream\":[0]}}", "'stream' must lie between 1"},
        {"{\"event\":\"step\",\"latency_ms\":{\"model\":{\"batch_1\":-1}}}", "'batch_1' must lie"},
        {"{\"event\":\"end\",\"bwt\":-101}", "'bwt' must lie between -100 and 100"},
        {"{\"event\":\"epoch\",\"stage\":\"a\",\"loss\":{}}", "'step' is missing"},
        {"{\"event\":\"epoch\",\"step\":1,\"epoch\":1,\"epochs\":1,\"loss\":{}}",
         "'stage' is missing"},
        {"{\"event\":\"epoch\",\"step\":1,\"epoch\":1,\"epochs\":1,\"stage\":\"a\"}",
         "'loss' is missing"},
        {"{\"event\":\"epoch\",\"step\":1,\"epoch\":1,\"epochs\":1,\"stage\":\"a\",\"loss\":{\"a\":"
         "[]}}",
         "'a' must be a number"},
        {"{\"event\":\"epoch\",\"step\":1,\"epoch\":1,\"epochs\":1,\"stage\":\"a\",\"loss\":{\"a\":"
         "1,\"b\":"
         "1,\"c\":1,\"d\":1,\"e\":1,\"f\":1,\"g\":1,\"h\":1,\"i\":1}}",
         "more than 8 losses"},
        {"{\"event\":", "here: line 1 is not JSON"},
    };
    struct der_ctx *ctx = test_ctx_new(1);
    for (size_t i = 0; i < sizeof damages / sizeof damages[0]; i++) {
        char text[400];
        struct history h;
        (void)snprintf(text, sizeof text, "%s\n", damages[i].line);
        assert_int_equal(history_read(ctx, "here", text, strlen(text), CLASSES, &h), DER_FORMAT);
        if (!strstr(ctx->error, damages[i].sentence))
            fail_msg("'%s' does not say '%s'", ctx->error, damages[i].sentence);
        history_fini(&h);
    }
    test_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers_are_those_of_the_file),
        cmocka_unit_test(test_epochs_become_columns_of_one_length),
        cmocka_unit_test(test_every_truncation_is_fine_or_told),
        cmocka_unit_test(test_damages_are_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * Text that grows.
 */
#include "core/text.h"

#include "support/test_ctx.h"

#include <string.h>

static void test_pieces_follow_each_other(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    struct text text = {.mem = &ctx->mem};
    char *out;
    for (int i = 0; i < 1000; i++)
        text_put(&text, "%d,", i);
    text_add(&text, "end of it", 3);
    text_put_quoted(&text, "a \"b\", c");
    assert_ok(ctx, text_finish(ctx, &text, &out));
    assert_memory_equal(out, "0,1,2,3,", 8);
    assert_string_equal(out + strlen(out) - 23, ",998,999,end\"a \"\"b\"\", c\"" + 1);
    mem_free(&ctx->mem, out);
    test_ctx_free(ctx);
}

static void test_no_text_is_an_empty_one(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    struct text text = {.mem = &ctx->mem};
    char *out;
    assert_ok(ctx, text_finish(ctx, &text, &out));
    assert_string_equal(out, "");
    mem_free(&ctx->mem, out);
    test_ctx_free(ctx);
}

static void test_short_memory_is_told_in_the_end(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    struct text text = {.mem = &ctx->mem};
    char *out;
    text_put(&text, "some");
    ctx->mem.fail_at = ctx->mem.n_allocs + 1;
    text_put(&text, "%100s", "more");
    ctx->mem.fail_at = 0;
    text_add(&text, "even more", 9);
    assert_int_equal(text_finish(ctx, &text, &out), DER_NOMEM);
    assert_null(out);
    test_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pieces_follow_each_other),
        cmocka_unit_test(test_no_text_is_an_empty_one),
        cmocka_unit_test(test_short_memory_is_told_in_the_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

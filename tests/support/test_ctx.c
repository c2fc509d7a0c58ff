#include "support/test_ctx.h"

struct der_ctx *test_ctx_new(int threads)
{
    const struct der_ctx_options options = {.threads = threads};
    struct der_ctx *ctx = NULL;
    assert_int_equal(der_ctx_new(&options, &ctx), DER_OK);
    return ctx;
}

void test_ctx_free(struct der_ctx *ctx)
{
    assert_int_equal(der_ctx_memory(ctx).n_live, 0);
    der_ctx_free(ctx);
}

void test_assert_ok(struct der_ctx *ctx, enum der_status status, const char *expression,
                    const char *file, int line)
{
    if (status == DER_OK)
        return;
    print_error("%s: %s (%s)\n", expression, der_ctx_error(ctx), der_status_name(status));
    _fail(file, line);
}

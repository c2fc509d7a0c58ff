/*
 * What every test of the library starts from: cmocka, and a context that proves at the end that
 * nothing was leaked.
 */
#ifndef SUPPORT_TEST_CTX_H
#define SUPPORT_TEST_CTX_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/ctx.h"

struct der_ctx *test_ctx_new(int threads);

/* Fails the test when a block of the context is still alive. */
void test_ctx_free(struct der_ctx *ctx);

/* Fails the test with the context's sentence when a call did not succeed. */
#define assert_ok(ctx, expression)                                                                 \
    test_assert_ok((ctx), (expression), #expression, __FILE__, __LINE__)
void test_assert_ok(struct der_ctx *ctx, enum der_status status, const char *expression,
                    const char *file, int line);

#endif

/*
 * The Winograd kernels against a plain convolution in double, at sizes that leave tiles cut off.
 */
#include "backend/cpu/cpu_winograd.h"

#include "core/rng.h"
#include "support/tensor_check.h"
#include "support/test_ctx.h"

#include <string.h>

enum { BLOCK = 16 };

struct problem {
    int64_t n, c, k, h, w;
};

/* F(4x4, 3x3) in float: 3e-13 is the worst seen over these sizes. */
static const double TOLERANCE = 3e-12;

static float *random_floats(struct der_ctx *ctx, int64_t count, uint32_t stream)
{
    float *data = mem_alloc(&ctx->mem, (size_t)count, sizeof *data);
    assert_non_null(data);
    rng_normal(data, count, 1.0, 3, RNG_TEST, stream);
    return data;
}

/* Room that channels take in images. */
static int64_t rounded(int64_t channels)
{
    return (channels + BLOCK - 1) / BLOCK * BLOCK;
}

static int64_t blocked(const struct problem *q, int64_t channels, int64_t n, int64_t c, int64_t y,
                       int64_t x)
{
    int64_t blocks = rounded(channels) / BLOCK;
    return (((n * blocks + c / BLOCK) * q->h + y) * q->w + x) * BLOCK + c % BLOCK;
}

/* dst [n, k, h, w] = src [n, c, h, w] * weights [k, c, 3, 3], all of it nChw16c. */
static void plain_forward(const struct problem *q, const float *src, const float *weights,
                          double *dst)
{
    for (int64_t n = 0; n < q->n; n++)
        for (int64_t k = 0; k < q->k; k++)
            for (int64_t i = 0; i < q->h * q->w * q->c * 9; i++) {
                int64_t s = i % 3 - 1;
                int64_t r = i / 3 % 3 - 1;
                int64_t c = i / 9 % q->c;
                int64_t x = i / (9 * q->c) % q->w;
                int64_t y = i / (9 * q->c * q->w);
                if (y + r < 0 || y + r >= q->h || x + s < 0 || x + s >= q->w)
                    continue;
                dst[blocked(q, q->k, n, k, y, x)] +=
                    (double)src[blocked(q, q->c, n, c, y + r, x + s)] *
                    weights[(k * q->c + c) * 9 + (r + 1) * 3 + s + 1];
            }
}

/* d_src, by scattering what plain_forward gathers. */
static void plain_backward(const struct problem *q, const float *d_dst, const float *weights,
                           double *d_src)
{
    for (int64_t n = 0; n < q->n; n++)
        for (int64_t k = 0; k < q->k; k++)
            for (int64_t i = 0; i < q->h * q->w * q->c * 9; i++) {
                int64_t s = i % 3 - 1;
                int64_t r = i / 3 % 3 - 1;
                int64_t c = i / 9 % q->c;
                int64_t x = i / (9 * q->c) % q->w;
                int64_t y = i / (9 * q->c * q->w);
                if (y + r < 0 || y + r >= q->h || x + s < 0 || x + s >= q->w)
                    continue;
                d_src[blocked(q, q->c, n, c, y + r, x + s)] +=
                    (double)d_dst[blocked(q, q->k, n, k, y, x)] *
                    weights[(k * q->c + c) * 9 + (r + 1) * 3 + s + 1];
            }
}

static void check(const struct problem *q, bool backward, int threads)
{
    struct der_ctx *ctx = test_ctx_new(threads);
    int64_t c_in = backward ? q->k : q->c;
    int64_t c_out = backward ? q->c : q->k;
    int64_t pixels = q->n * q->h * q->w;
    float *src = random_floats(ctx, pixels * rounded(c_in), 0);
    float *weights = random_floats(ctx, q->k * q->c * 9, 1);
    float *bias = random_floats(ctx, c_out, 2);
    float *dst = random_floats(ctx, pixels * c_out, 3);
    float *expected = mem_alloc(&ctx->mem, (size_t)(pixels * c_out), sizeof *expected);
    double *sums = mem_zalloc(&ctx->mem, (size_t)(pixels * c_out), sizeof *sums);
    float *transformed = mem_alloc(&ctx->mem, cpu_winograd_weights_bytes(c_in, c_out), 1);
    float *scratch = mem_alloc(&ctx->mem, cpu_winograd_scratch_bytes(c_in, threads), 1);
    assert_true(expected && sums && transformed && scratch);
    if (backward)
        plain_backward(q, src, weights, sums);
    else
        plain_forward(q, src, weights, sums);
    for (int64_t i = 0; i < pixels * c_out; i++) {
        int64_t channel = i / (q->h * q->w * BLOCK) % (c_out / BLOCK) * BLOCK + i % BLOCK;
        double z = backward ? sums[i] : sums[i] + dst[i] + bias[channel];
        expected[i] = (float)(backward || z > 0 ? z : 0);
    }
    struct cpu_winograd args = {.n = q->n,
                                .h = q->h,
                                .w = q->w,
                                .c_in = c_in,
                                .c_out = c_out,
                                .src = src,
                                .weights = transformed,
                                .bias = backward ? NULL : bias,
                                .dst = dst,
                                .sum = !backward,
                                .relu = !backward,
                                .scratch = scratch};
    cpu_winograd_weights(transformed, weights, q->k, q->c, backward, threads);
    cpu_winograd(&args, threads);
    assert_tensor_close(dst, expected, pixels * c_out, TOLERANCE, backward ? "d_src" : "dst");
    void *const blocks[] = {src, weights, bias, dst, expected, sums, transformed, scratch};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        mem_free(&ctx->mem, blocks[i]);
    test_ctx_free(ctx);
}

static const struct problem PROBLEMS[] = {
    {1, 16, 16, 1, 1},  {2, 16, 32, 9, 7},  {3, 32, 16, 4, 4},
    {1, 48, 48, 5, 13}, {5, 16, 16, 8, 12}, {1, 64, 64, 2, 3},
};

/* Of the channels that are read the last block need not be full. */
static const struct problem FORWARD[] = {{1, 21, 32, 9, 6}, {2, 3, 16, 8, 8}};
static const struct problem BACKWARD[] = {{1, 32, 21, 9, 6}, {2, 16, 3, 8, 8}};

static void test_forward_matches_loops(void **state)
{
    (void)state;
    if (!cpu_winograd_available())
        skip();
    for (size_t i = 0; i < sizeof PROBLEMS / sizeof *PROBLEMS; i++)
        check(&PROBLEMS[i], false, 1 + (int)i % 3);
    for (size_t i = 0; i < sizeof FORWARD / sizeof *FORWARD; i++)
        check(&FORWARD[i], false, 1 + (int)i);
}

static void test_backward_matches_loops(void **state)
{
    (void)state;
    if (!cpu_winograd_available())
        skip();
    for (size_t i = 0; i < sizeof PROBLEMS / sizeof *PROBLEMS; i++)
        check(&PROBLEMS[i], true, 1 + (int)i % 3);
    for (size_t i = 0; i < sizeof BACKWARD / sizeof *BACKWARD; i++)
        check(&BACKWARD[i], true, 1 + (int)i);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forward_matches_loops),
        cmocka_unit_test(test_backward_matches_loops),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

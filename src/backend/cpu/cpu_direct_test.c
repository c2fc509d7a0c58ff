/*
 * The direct kernel against a plain convolution in double: kernels, strides and channel counts of residual
 * networks, images that leave tiles cut off, sources in blocks and plain ones.
 */
#include "backend/cpu/cpu_direct.h"

#include "core/rng.h"
#include "support/tensor_check.h"
#include "support/test_ctx.h"

#include <string.h>

enum { BLOCK = CPU_DIRECT_BLOCK };

struct problem {
    int64_t n, c, k, h, w; /* k: a multiple of 16 */
    int64_t kernel, stride, pad;
    int64_t src_block;
    bool sum, relu;
};

/* A sum in float against one in double: 1.2e-13 is the worst seen over these sizes. */
static const double TOLERANCE = 1e-12;

struct operands {
    float *src, *weights, *bias, *dst, *ordered, *scratch;
};

static float *random_floats(struct der_ctx *ctx, int64_t count, uint32_t stream)
{
    float *data = mem_alloc(&ctx->mem, (size_t)count, sizeof *data);
    assert_non_null(data);
    rng_normal(data, count, 1.0, 5, RNG_TEST, stream);
    return data;
}

static int64_t rounded(int64_t channels, int64_t block)
{
    return (channels + block - 1) / block * block;
}

static struct cpu_direct arguments(const struct problem *q)
{
    return (struct cpu_direct){.n = q->n,
                               .c = q->c,
                               .h = q->h,
                               .w = q->w,
                               .k = q->k,
                               .out_h = (q->h + 2 * q->pad - q->kernel) / q->stride + 1,
                               .out_w = (q->w + 2 * q->pad - q->kernel) / q->stride + 1,
                               .kernel = q->kernel,
                               .stride = q->stride,
                               .pad = q->pad,
                               .src_block = q->src_block,
                               .sum = q->sum,
                               .relu = q->relu};
}

/* Where pixel (y, x) of channel c lies in [n][channels / block][h][w][block]. */
static int64_t place(int64_t channels, int64_t block, int64_t h, int64_t w, int64_t n, int64_t c,
                     int64_t y, int64_t x)
{
    return (((n * (channels / block) + c / block) * h + y) * w + x) * block + c % block;
}

static double convolved(const struct cpu_direct *a, const float *src, const float *weights,
                        int64_t n, int64_t k, int64_t out_y, int64_t out_x)
{
    double sum = 0;
    int64_t stored = rounded(a->c, a->src_block);
    for (int64_t c = 0; c < a->c; c++)
        for (int64_t r = 0; r < a->kernel; r++)
            for (int64_t s = 0; s < a->kernel; s++) {
                int64_t y = out_y * a->stride + r - a->pad;
                int64_t x = out_x * a->stride + s - a->pad;
                if (y < 0 || y >= a->h || x < 0 || x >= a->w)
                    continue;
                sum += (double)src[place(stored, a->src_block, a->h, a->w, n, c, y, x)] *
                       weights[((k * a->c + c) * a->kernel + r) * a->kernel + s];
            }
    return sum;
}

static void expect(const struct cpu_direct *a, const struct operands *o, float *expected)
{
    for (int64_t n = 0; n < a->n; n++)
        for (int64_t k = 0; k < a->k; k++)
            for (int64_t y = 0; y < a->out_h; y++)
                for (int64_t x = 0; x < a->out_w; x++) {
                    int64_t at = place(a->k, BLOCK, a->out_h, a->out_w, n, k, y, x);
                    double z = convolved(a, o->src, o->weights, n, k, y, x) + o->bias[k];
                    z += a->sum ? (double)o->dst[at] : 0;
                    expected[at] = (float)(a->relu && z < 0 ? 0 : z);
                }
}

static void check(const struct problem *q, int threads)
{
    struct der_ctx *ctx = test_ctx_new(threads);
    struct cpu_direct args = arguments(q);
    int64_t results = args.n * args.k * args.out_h * args.out_w;
    int64_t taps = args.k * args.c * args.kernel * args.kernel;
    struct operands o = {
        .src = random_floats(ctx, args.n * rounded(args.c, args.src_block) * args.h * args.w, 0),
        .weights = random_floats(ctx, taps, 1),
        .bias = random_floats(ctx, args.k, 2),
        .dst = random_floats(ctx, results, 3),
        .ordered = mem_alloc(&ctx->mem, cpu_direct_weights_bytes(args.k, args.c, args.kernel), 1),
        .scratch = mem_alloc(&ctx->mem, cpu_direct_scratch_bytes(&args), 1)};
    float *expected = mem_alloc(&ctx->mem, (size_t)results, sizeof *expected);
    assert_true(o.ordered && o.scratch && expected);
    /* What lies in the scratch, or in the channels that fill up a block, must not matter. */
    memset(o.scratch, 0xff, cpu_direct_scratch_bytes(&args));
    expect(&args, &o, expected);
    args.src = o.src;
    args.weights = o.ordered;
    args.bias = o.bias;
    args.dst = o.dst;
    args.scratch = o.scratch;
    cpu_direct_weights(o.ordered, o.weights, args.k, args.c, args.kernel, threads);
    cpu_direct(&args, threads);
    assert_tensor_close(o.dst, expected, results, TOLERANCE, "dst");
    void *const blocks[] = {o.src, o.weights, o.bias, o.dst, o.ordered, o.scratch, expected};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        mem_free(&ctx->mem, blocks[i]);
    test_ctx_free(ctx);
}

static void test_results_are_those_of_loops(void **state)
{
    (void)state;
    static const struct problem problems[] = {
        {1, 37, 32, 4, 4, 3, 1, 1, 16, true, true},     /* late body layers */
        {2, 16, 16, 8, 8, 3, 1, 1, 16, true, true},     /* a full block, two images */
        {1, 21, 48, 8, 8, 3, 2, 1, 16, false, true},    /* into a stage */
        {1, 33, 32, 16, 16, 1, 2, 0, 16, false, false}, /* shortcut */
        {1, 7, 16, 32, 32, 1, 2, 0, 16, false, false},  /* shortcut read where it lies */
        {1, 3, 32, 32, 32, 3, 1, 1, 1, false, true},    /* stem, plain picture */
        {2, 3, 16, 15, 11, 7, 2, 3, 1, false, true},    /* ImageNet's stem, two odd pictures */
        {1, 16, 16, 9, 5, 3, 1, 1, 1, true, false},     /* plain, as many channels as a block */
        {1, 1, 16, 1, 1, 3, 1, 1, 16, true, true},      /* one pixel, one channel */
        {1, 18, 16, 7, 13, 3, 2, 1, 16, true, false},   /* tiles cut off on both sides */
        {3, 5, 16, 3, 17, 3, 1, 1, 16, false, false},   /* wider than a tile by one */
    };
    if (!cpu_direct_available(1))
        skip();
    for (size_t i = 0; i < sizeof problems / sizeof *problems; i++)
        check(&problems[i], 1 + (int)i % 3);
}

static void test_only_strides_it_knows_are_offered(void **state)
{
    (void)state;
    assert_false(cpu_direct_available(0));
    assert_false(cpu_direct_available(3));
    assert_int_equal(cpu_direct_available(1), cpu_direct_available(2));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_results_are_those_of_loops),
        cmocka_unit_test(test_only_strides_it_knows_are_offered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

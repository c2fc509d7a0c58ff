/*
 * Max-pooling between images whose channels are stored in different numbers, as those of pruned extractors may be,
 * forwards and backwards against plain loops; nothing behind the arrays is written.
 */
#include "backend/cuda/kernels.h"
#include "core/rng.h"
#include "graph/backend.h"
#include "support/test_ctx.h"

#include <stdlib.h>
#include <string.h>

enum { N = 2, C = 13, SIDE = 9, OUT = 5, KERNEL = 3, STRIDE = 2, PAD = 1, BEHIND = 64 };

static const float UNTOUCHED = 12345.0f;

struct arrays {
    float *src, *dst, *d_dst, *d_src; /* numbers of a host, and BEHIND of them more */
    int32_t *index;
};

static int64_t pixels(int side)
{
    return (int64_t)N * side * side;
}

static float *filled(int64_t count)
{
    float *x = malloc((size_t)(count + BEHIND) * sizeof *x);
    assert_non_null(x);
    for (int64_t i = 0; i < count + BEHIND; i++)
        x[i] = UNTOUCHED;
    return x;
}

/* Random numbers in the C channels that there are, zeros in the padding. */
static void draw(float *x, int side, int64_t stored, uint32_t stream)
{
    for (int64_t i = 0; i < pixels(side) * stored; i++)
        x[i] = i % stored < C
                   ? (float)(rng_at(1, RNG_TEST, stream, (uint64_t)i).word[0] % 1000) - 500.0f
                   : 0.0f;
}

/* Best of the window at (y, x) of image n, channel c, as a place in the image. */
static int place_of_best(const struct cuda_pool *pool, const float *src, int n, int y, int x, int c)
{
    int best = -1;
    for (int h = y * STRIDE - PAD; h < y * STRIDE - PAD + KERNEL; h++)
        for (int w = x * STRIDE - PAD; w < x * STRIDE - PAD + KERNEL; w++) {
            if (h < 0 || w < 0 || h >= SIDE || w >= SIDE)
                continue;
            const float *image = src + (int64_t)n * SIDE * SIDE * pool->src_stored + c;
            if (best < 0 ||
                image[(h * SIDE + w) * pool->src_stored] > image[best * pool->src_stored])
                best = h * SIDE + w;
        }
    return best;
}

static void *to_gpu(const void *host, size_t bytes)
{
    void *there;
    assert_int_equal(cudaMalloc(&there, bytes), cudaSuccess);
    assert_int_equal(cudaMemcpy(there, host, bytes, cudaMemcpyHostToDevice), cudaSuccess);
    return there;
}

static void from_gpu(void *host, void *there, size_t bytes)
{
    assert_int_equal(cudaMemcpy(host, there, bytes, cudaMemcpyDeviceToHost), cudaSuccess);
    assert_int_equal(cudaFree(there), cudaSuccess);
}

static void run_both(const struct cuda_pool *pool, struct arrays *a, int64_t n_src, int64_t n_dst)
{
    const size_t src_bytes = (size_t)(n_src + BEHIND) * sizeof(float);
    const size_t dst_bytes = (size_t)(n_dst + BEHIND) * sizeof(float);
    void *src = to_gpu(a->src, src_bytes);
    void *dst = to_gpu(a->dst, dst_bytes);
    void *d_dst = to_gpu(a->d_dst, dst_bytes);
    void *d_src = to_gpu(a->d_src, src_bytes);
    void *index = to_gpu(a->index, dst_bytes);
    assert_int_equal(cuda_maxpool(pool, dst, index, src, NULL), cudaSuccess);
    assert_int_equal(cuda_maxpool_grad(pool, d_src, d_dst, index, NULL), cudaSuccess);
    from_gpu(a->src, src, src_bytes);
    from_gpu(a->dst, dst, dst_bytes);
    from_gpu(a->d_dst, d_dst, dst_bytes);
    from_gpu(a->d_src, d_src, src_bytes);
    from_gpu(a->index, index, dst_bytes);
}

static void compare(const struct cuda_pool *pool, const struct arrays *a, int64_t n_src,
                    int64_t n_dst)
{
    float *slopes = filled(n_src);
    memset(slopes, 0, (size_t)n_src * sizeof *slopes);
    for (int64_t i = 0; i < n_dst; i++) {
        const int c = (int)(i % pool->dst_stored);
        const int x = (int)(i / pool->dst_stored % OUT);
        const int y = (int)(i / pool->dst_stored / OUT % OUT);
        const int n = (int)(i / pool->dst_stored / OUT / OUT);
        if (c >= C) {
            assert_true(a->dst[i] == 0.0f);
            continue;
        }
        const int best = place_of_best(pool, a->src, n, y, x, c);
        const int64_t at = ((int64_t)n * SIDE * SIDE + best) * pool->src_stored + c;
        assert_int_equal(a->index[i], best);
        assert_true(a->dst[i] == a->src[at]);
        slopes[at] += a->d_dst[i];
    }
    assert_memory_equal(a->d_src, slopes, (size_t)(n_src + BEHIND) * sizeof *slopes);
    for (int64_t i = n_dst; i < n_dst + BEHIND; i++)
        assert_true(a->dst[i] == UNTOUCHED);
    free(slopes);
}

static void check_pool(int64_t src_stored, int64_t dst_stored)
{
    const struct cuda_pool pool = {.n = N,
                                   .h = SIDE,
                                   .w = SIDE,
                                   .out_h = OUT,
                                   .out_w = OUT,
                                   .src_stored = src_stored,
                                   .dst_stored = dst_stored,
                                   .kernel = KERNEL,
                                   .stride = STRIDE,
                                   .pad = PAD,
                                   .type = CUDA_F32};
    const int64_t n_src = pixels(SIDE) * src_stored;
    const int64_t n_dst = pixels(OUT) * dst_stored;
    struct arrays a = {.src = filled(n_src),
                       .dst = filled(n_dst),
                       .d_dst = filled(n_dst),
                       .d_src = filled(n_src),
                       .index = calloc((size_t)(n_dst + BEHIND), sizeof *a.index)};
    assert_non_null(a.index);
    draw(a.src, SIDE, src_stored, 1);
    draw(a.d_dst, OUT, dst_stored, 2);
    run_both(&pool, &a, n_src, n_dst);
    compare(&pool, &a, n_src, n_dst);
    free(a.src);
    free(a.dst);
    free(a.d_dst);
    free(a.d_src);
    free(a.index);
}

extern const struct backend_ops cuda_backend;

static void test_channels_may_be_stored_in_different_numbers(void **state)
{
    (void)state;
    if (!backend_is_usable(&cuda_backend))
        skip();
    check_pool(16, 16);
    check_pool(16, 24);
    check_pool(32, 16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_channels_may_be_stored_in_different_numbers)};
    return cmocka_run_group_tests_name("cuda_pool", tests, NULL, NULL);
}

/*
 * Kernels of strip_weights.cu: pictures of every size that there is, any way to share the pixels, against the plain
 * kernels (conv.cu), and within the back end; and the rule that chooses, which needs no GPU.
 */
#include "backend/cuda/cuda.h"

#include "support/cuda/conv_arrays.h"
#include "support/test_ctx.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- kernels ------------------------------------------------------------------------------------------- */

enum { GUARD = 4096, FRESH = 0xff };

/* Scratch, and bytes behind it that nobody may write. */
struct watched {
    int splits;
    unsigned char *scratch;
    size_t bytes;
};

static void watch(struct watched *w, const struct cuda_conv_shape *shape)
{
    void *memory = NULL;
    w->bytes = cuda_strip_grad_scratch(shape, w->splits);
    assert_int_equal(cudaMalloc(&memory, w->bytes + GUARD), cudaSuccess);
    assert_int_equal(cudaMemset(memory, FRESH, w->bytes + GUARD), cudaSuccess);
    w->scratch = memory;
}

static void assert_untouched_behind(const struct watched *w)
{
    unsigned char host[GUARD];
    assert_int_equal(cudaMemcpy(host, w->scratch + w->bytes, GUARD, cudaMemcpyDeviceToHost),
                     cudaSuccess);
    for (int i = 0; i < GUARD; i++)
        assert_int_equal(host[i], FRESH);
    assert_int_equal(cudaFree(w->scratch), cudaSuccess);
}

static cudaError_t launch_weights(struct conv_arrays *a, const void *user)
{
    const struct watched *w = user;
    return cuda_strip_d_weights(&a->shape, w->splits, a->actual, a->src, a->dst, w->scratch, NULL);
}

static void compare(struct conv_arrays *a, int splits)
{
    const struct cuda_conv_shape *s = &a->shape;
    struct watched w = {.splits = splits};
    char what[120];
    (void)snprintf(what, sizeof what, "%lld -> %lld, %lld of %lldx%lld, side %lld /%lld, splits %d",
                   (long long)s->c, (long long)s->k, (long long)s->n, (long long)s->h,
                   (long long)s->w, (long long)s->r, (long long)s->stride, splits);
    watch(&w, s);
    conv_arrays_run(a, (size_t)a->n_weights * 2, launch_weights, &w);
    conv_arrays_compare(a, a->n_weights, true, what);
    assert_untouched_behind(&w);
}

/* With 1 nothing is to be added, with 100 there is more than a share of most slices of the adding launch. */
static void compare_splits(const struct conv_layer *layer)
{
    static const int splits[] = {1, 2, 3, 17, 100};
    struct conv_arrays a;
    conv_arrays_init(&a, layer);
    struct cuda_conv_shape wide = a.shape;
    wide.type = CUDA_F32;
    assert_int_equal(cuda_conv_d_weights(&wide, a.expected, a.wide_src, a.wide_dst, NULL),
                     cudaSuccess);
    compare(&a, cuda_strip_splits(&a.shape));
    for (size_t i = 0; i < sizeof splits / sizeof *splits; i++)
        compare(&a, splits[i]);
    conv_arrays_fini(&a);
}

/* Some are not square, and some have fewer pictures than a portion, or more portions than blocks. */
static const struct conv_layer LAYERS[] = {
    {1, 32, 32, 64, 64, 3, 1},   {3, 32, 32, 64, 64, 3, 1},    {128, 32, 32, 64, 64, 3, 1},
    {1, 16, 16, 128, 128, 3, 1}, {88, 16, 16, 128, 128, 3, 1}, {3, 16, 16, 64, 192, 3, 1},
    {1, 8, 8, 256, 64, 3, 1},    {3, 8, 8, 64, 128, 3, 1},     {88, 8, 8, 256, 256, 3, 1},
    {1, 4, 4, 64, 64, 3, 1},     {3, 4, 4, 128, 320, 3, 1},    {128, 4, 4, 512, 512, 3, 1},
    {5, 8, 24, 64, 64, 3, 1},    {9, 12, 20, 64, 64, 3, 1},    {2, 24, 16, 128, 64, 3, 1},
    {1, 32, 32, 64, 128, 1, 2},  {3, 32, 32, 64, 128, 1, 2},   {128, 32, 32, 64, 128, 1, 2},
    {3, 16, 16, 64, 384, 1, 2},  {88, 16, 16, 128, 256, 1, 2}, {17, 8, 8, 64, 128, 1, 2},
    {128, 8, 8, 256, 512, 1, 2}, {5, 8, 24, 64, 128, 1, 2},    {9, 24, 16, 128, 128, 1, 2},
    {11, 7, 7, 128, 128, 1, 2},  {2, 7, 15, 64, 128, 1, 2},
};

enum { N_LAYERS = sizeof LAYERS / sizeof *LAYERS };

static void test_gradient_of_weights(void **state)
{
    (void)state;
    skip_without_hopper();
    for (int i = 0; i < N_LAYERS; i++)
        compare_splits(&LAYERS[i]);
}

/* ---- the rule ------------------------------------------------------------------------------------------ */

static struct cuda_conv_shape shape_of(int64_t n, int64_t size, int64_t c, int64_t k)
{
    const struct conv_layer layer = {n, size, size, c, k, 3, 1};
    return conv_layer_shape(&layer);
}

/* A shortcut that halves the sides and doubles the channels. */
static struct cuda_conv_shape shortcut_of(int64_t n, int64_t size, int64_t c)
{
    const struct conv_layer layer = {n, size, size, c, 2 * c, 1, 2};
    return conv_layer_shape(&layer);
}

/* Half of the GPU, or as many blocks as there are channels for. */
static void test_the_rule_fills_half_of_the_gpu(void **state)
{
    (void)state;
    enum { BLOCKS = 66, MOST_SCRATCH = 10 << 20 };
    for (int64_t size = 4; size <= 32; size *= 2)
        for (int64_t c = 64; c <= 512; c += 64)
            for (int64_t k = 64; k <= 512; k += 64) {
                const struct cuda_conv_shape s = shape_of(128, size, c, k);
                const int splits = cuda_strip_splits(&s);
                const int64_t blocks = c / 64 * (k / 64) * splits;
                assert_true(blocks <= BLOCKS && (blocks > BLOCKS / 2 || splits == size * size));
                assert_true(cuda_strip_grad_scratch(&s, splits) <= MOST_SCRATCH);
            }
}

/* Their blocks have twice the channels. */
static void test_shortcuts_have_a_quarter_of_it(void **state)
{
    (void)state;
    for (int64_t c = 64; c <= 256; c *= 2) {
        const struct cuda_conv_shape s = shortcut_of(128, 2048 / c, c);
        const int64_t tiles = c / 64 * (2 * c / 128);
        assert_int_equal(cuda_strip_grad_tiles(&s), tiles);
        assert_int_equal(cuda_strip_splits(&s), 33 / tiles);
        assert_int_equal(cuda_strip_grad_scratch(&s, 3), 3 * s.k * s.c * 4);
    }
    const struct cuda_conv_shape few = shortcut_of(64, 8, 64);
    assert_int_equal(cuda_strip_splits(&few), 64 * 16 / 128);
}

/* No block is without pixels, and one always is there. */
static void test_few_pixels_have_few_blocks(void **state)
{
    (void)state;
    const struct cuda_conv_shape few = shape_of(64, 4, 64, 64);
    const struct cuda_conv_shape fewer = shape_of(1, 4, 64, 64);
    const struct cuda_conv_shape wide = shape_of(128, 4, 1024, 1024);
    assert_int_equal(cuda_strip_splits(&few), 64 * 16 / 128);
    assert_int_equal(cuda_strip_splits(&fewer), 1);
    assert_int_equal(cuda_strip_splits(&wide), 1);
    assert_int_equal(cuda_strip_grad_scratch(&wide, 1), 0);
}

/* Such a launch fails; it does not begin. */
static void test_no_kernel_is_an_error(void **state)
{
    (void)state;
    static const int splits[] = {-1, 0, 257};
    struct cuda_conv_shape s = shape_of(8, 8, 64, 64);
    for (int i = 0; i < 3; i++)
        assert_int_equal(cuda_strip_d_weights(&s, splits[i], NULL, NULL, NULL, NULL, NULL),
                         cudaErrorInvalidValue);
    s.c = 32;
    assert_int_equal(cuda_strip_d_weights(&s, 1, NULL, NULL, NULL, NULL, NULL),
                     cudaErrorInvalidValue);
}

static void test_what_is_served(void **state)
{
    (void)state;
    for (int64_t size = 4; size <= 32; size *= 2) {
        struct cuda_conv_shape s = shape_of(128, size, 64, 192);
        assert_true(cuda_strip_serves(&s, DNN_D_WEIGHTS));
        s.n = 63;
        assert_false(cuda_strip_serves(&s, DNN_D_WEIGHTS));
        assert_true(cuda_strip_grad_exists(&s));
    }
}

static void test_which_shortcuts_are_served(void **state)
{
    (void)state;
    for (int64_t size = 8; size <= 32; size *= 2) {
        struct cuda_conv_shape s = shortcut_of(128, size, 64);
        assert_true(cuda_strip_serves(&s, DNN_D_WEIGHTS));
        assert_false(cuda_strip_serves(&s, DNN_FORWARD));
        assert_false(cuda_strip_serves(&s, DNN_D_SRC));
        s.n = 63;
        assert_false(cuda_strip_serves(&s, DNN_D_WEIGHTS));
    }
    const struct cuda_conv_shape shape = shortcut_of(128, 16, 64);
    struct cuda_conv_shape s = shape;
    s.k = 192; /* one and a half of what a block has */
    assert_false(cuda_strip_grad_exists(&s));
    s = shape, s.c = 32;
    assert_false(cuda_strip_grad_exists(&s));
    s = shortcut_of(128, 12, 64); /* 6x6 */
    assert_false(cuda_strip_grad_exists(&s));
    s = shape, s.stride = 1, s.out_h = s.out_w = 16;
    assert_false(cuda_strip_grad_exists(&s));
    s = shape, s.pad = 1;
    assert_false(cuda_strip_grad_exists(&s));
    s = shape, s.h = 32;
    assert_false(cuda_strip_grad_exists(&s));
}

static void test_what_is_not_served(void **state)
{
    (void)state;
    const struct cuda_conv_shape shape = shape_of(128, 16, 64, 64);
    struct cuda_conv_shape s = shape;
    assert_true(cuda_strip_grad_exists(&s));
    s.type = CUDA_F32;
    assert_false(cuda_strip_grad_exists(&s));
    s = shape, s.c = 96;
    assert_false(cuda_strip_grad_exists(&s));
    s = shape, s.k = 32;
    assert_false(cuda_strip_grad_exists(&s));
    s = shape, s.h = s.out_h = 15;
    assert_false(cuda_strip_grad_exists(&s));
    s = shape, s.w = s.out_w = 14;
    assert_false(cuda_strip_grad_exists(&s));
    s = shape, s.stride = 2, s.out_h = s.out_w = 8;
    assert_false(cuda_strip_grad_exists(&s));
    s = shape, s.pad = 0;
    assert_false(cuda_strip_grad_exists(&s));
    s = shape, s.r = 1;
    assert_false(cuda_strip_grad_exists(&s));
    s = shape, s.s = 1;
    assert_false(cuda_strip_grad_exists(&s));
    s = shape, s.n = INT32_MAX / 256; /* more pixels than are counted */
    assert_false(cuda_strip_grad_exists(&s));
    s = shape, s.out_w = 12; /* not what the convolution gives */
    assert_false(cuda_strip_grad_exists(&s));
    s = shape_of(128, 64, 64, 64); /* not measured */
    assert_true(cuda_strip_grad_exists(&s));
    assert_false(cuda_strip_serves(&s, DNN_D_WEIGHTS));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gradient_of_weights),
        cmocka_unit_test(test_the_rule_fills_half_of_the_gpu),
        cmocka_unit_test(test_shortcuts_have_a_quarter_of_it),
        cmocka_unit_test(test_few_pixels_have_few_blocks),
        cmocka_unit_test(test_no_kernel_is_an_error),
        cmocka_unit_test(test_what_is_served),
        cmocka_unit_test(test_which_shortcuts_are_served),
        cmocka_unit_test(test_what_is_not_served),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

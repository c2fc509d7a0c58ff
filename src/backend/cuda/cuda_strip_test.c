/*
 * Kernels of strip.cu: every shape that there is, forwards and backwards, against the plain kernels (conv.cu); and the
 * rule that chooses them, which needs no GPU.
 */
#include "backend/cuda/cuda.h"

#include "support/cuda/conv_arrays.h"
#include "support/test_ctx.h"

#include <stdio.h>

extern const struct backend_ops cuda_backend;

static const struct {
    int64_t c, k, size;
} SHAPES[] = {{64, 64, 32}, {32, 64, 32}, {64, 32, 32},  {32, 32, 32},  {48, 64, 32},
              {48, 48, 32}, {64, 64, 16}, {64, 128, 16}, {128, 64, 16}, {128, 128, 16}};

enum { N_SHAPES = sizeof SHAPES / sizeof *SHAPES };

static struct conv_layer layer_of(int shape, int64_t n)
{
    return (struct conv_layer){.n = n,
                               .h = SHAPES[shape].size,
                               .w = SHAPES[shape].size,
                               .c = SHAPES[shape].c,
                               .k = SHAPES[shape].k,
                               .kernel = 3,
                               .stride = 1};
}

/* ---- kernels ------------------------------------------------------------------------------------------- */

/* No GPU, or one of another kind: the kernels are for compute capability 9.0 alone. */
static void skip_elsewhere(void)
{
    bool runs = false;
    struct der_ctx *ctx = test_ctx_new(1);
    if (backend_is_usable(&cuda_backend))
        assert_ok(ctx, cuda_strip_runs_on(ctx, 0, &runs));
    test_ctx_free(ctx);
    if (!runs)
        skip();
}

static cudaError_t launch_strip(struct conv_arrays *a, const void *user)
{
    const struct conv_pass *pass = user;
    const struct cuda_thin operands = conv_arrays_operands(a, pass);
    if (pass->backwards)
        return cuda_strip_d_src(&a->shape, a->actual, a->dst, a->weights, NULL);
    return cuda_strip(&a->shape, &operands, NULL);
}

static void compare_passes(const struct conv_pass *passes, int n)
{
    static const int64_t batches[] = {1, 3, 88};
    for (int i = 0; i < N_SHAPES * 3; i++) {
        const struct conv_layer layer = layer_of(i / 3, batches[i % 3]);
        struct conv_arrays a;
        char what[80];
        conv_arrays_init(&a, &layer);
        for (int j = 0; j < n; j++) {
            const int64_t count = conv_arrays_count(&a, &passes[j]);
            (void)snprintf(what, sizeof what, "%lld -> %lld, %lld images of %lld, pass %d",
                           (long long)layer.c, (long long)layer.k, (long long)layer.n,
                           (long long)layer.h, j);
            conv_arrays_expect(&a, &passes[j]);
            conv_arrays_run(&a, (size_t)count * 2, launch_strip, &passes[j]);
            conv_arrays_compare(&a, count, true, conv_pass_extra(&passes[j]), what);
        }
        conv_arrays_fini(&a);
    }
}

static void test_forward(void **state)
{
    (void)state;
    static const struct conv_pass plain = {0};
    skip_elsewhere();
    compare_passes(&plain, 1);
}

static void test_forward_with_bias_residual_and_relu(void **state)
{
    (void)state;
    static const struct conv_pass passes[] = {{.bias = true},
                                              {.bias = true, .relu = true},
                                              {.bias = true, .residual = true},
                                              {.bias = true, .residual = true, .relu = true}};
    skip_elsewhere();
    compare_passes(passes, 4);
}

static void test_gradient_of_data(void **state)
{
    (void)state;
    static const struct conv_pass backwards = {.backwards = true};
    skip_elsewhere();
    compare_passes(&backwards, 1);
}

/* ---- the rule ------------------------------------------------------------------------------------------ */

static void test_what_is_served(void **state)
{
    (void)state;
    for (int i = 0; i < N_SHAPES; i++) {
        const struct conv_layer layer = layer_of(i, 128);
        struct cuda_conv_shape s = conv_layer_shape(&layer);
        assert_true(cuda_strip_serves(&s, DNN_FORWARD));
        assert_true(cuda_strip_serves(&s, DNN_D_SRC));
        assert_false(cuda_strip_serves(&s, DNN_D_WEIGHTS));
        s.n = 64;
        assert_true(cuda_strip_serves(&s, DNN_FORWARD));
        s.n = 63;
        assert_false(cuda_strip_serves(&s, DNN_FORWARD));
        assert_true(cuda_strip_exists(&s, false));
    }
}

static void assert_unknown(const struct cuda_conv_shape *s)
{
    assert_false(cuda_strip_serves(s, DNN_FORWARD));
    assert_false(cuda_strip_serves(s, DNN_D_SRC));
}

static void test_what_is_not_served(void **state)
{
    (void)state;
    const struct conv_layer layer = layer_of(0, 128);
    const struct cuda_conv_shape shape = conv_layer_shape(&layer);
    struct cuda_conv_shape s = shape;
    s.type = CUDA_F32;
    assert_unknown(&s);
    s = shape, s.c = 80;
    assert_unknown(&s);
    s = shape, s.k = 128;
    assert_unknown(&s);
    s = shape, s.h = 16;
    assert_unknown(&s);
    s = shape, s.w = 16;
    assert_unknown(&s);
    s = shape, s.stride = 2;
    assert_unknown(&s);
    s = shape, s.pad = 0;
    assert_unknown(&s);
    s = shape, s.r = 1;
    assert_unknown(&s);
    s = shape, s.s = 1;
    assert_unknown(&s);
    s = shape, s.n = INT32_MAX / 1024; /* more pixels than an int counts */
    assert_unknown(&s);
}

/* Such a launch fails; it does not begin. */
static void test_no_kernel_is_an_error(void **state)
{
    (void)state;
    const struct conv_layer layer = layer_of(0, 128);
    struct cuda_conv_shape s = conv_layer_shape(&layer);
    const struct cuda_thin operands = {0};
    s.c = 16;
    assert_int_equal(cuda_strip(&s, &operands, NULL), cudaErrorInvalidValue);
    assert_int_equal(cuda_strip_d_src(&s, NULL, NULL, NULL, NULL), cudaErrorInvalidValue);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forward),
        cmocka_unit_test(test_forward_with_bias_residual_and_relu),
        cmocka_unit_test(test_gradient_of_data),
        cmocka_unit_test(test_what_is_served),
        cmocka_unit_test(test_what_is_not_served),
        cmocka_unit_test(test_no_kernel_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

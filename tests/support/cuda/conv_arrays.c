#include "support/cuda/conv_arrays.h"

#include "support/test_ctx.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

extern const struct backend_ops cuda_backend;

void skip_without_hopper(void)
{
    bool runs = false;
    struct der_ctx *ctx = test_ctx_new(1);
    if (backend_is_usable(&cuda_backend))
        assert_ok(ctx, cuda_strip_runs_on(ctx, 0, &runs));
    test_ctx_free(ctx);
    if (!runs)
        skip();
}

enum { GUARD = 4096, FRESH = 0xff /* bytes of arrays that nobody has written; NaN */ };

struct cuda_conv_shape conv_layer_shape(const struct conv_layer *l)
{
    const int64_t pad = l->kernel / 2;
    return (struct cuda_conv_shape){.n = l->n,
                                    .c = l->c,
                                    .h = l->h,
                                    .w = l->w,
                                    .k = l->k,
                                    .r = l->kernel,
                                    .s = l->kernel,
                                    .out_h = (l->h + 2 * pad - l->kernel) / l->stride + 1,
                                    .out_w = (l->w + 2 * pad - l->kernel) / l->stride + 1,
                                    .stride = l->stride,
                                    .pad = pad,
                                    .type = CUDA_BF16};
}

/* ---- arrays ------------------------------------------------------------------------------------------ */

static void *device_array(size_t bytes)
{
    void *p = NULL;
    assert_int_equal(cudaMalloc(&p, bytes), cudaSuccess);
    assert_int_equal(cudaMemset(p, FRESH, bytes), cudaSuccess);
    return p;
}

/* Numbers from -2 to 2 in steps of 1/64, so that bf16 holds them exactly. */
static void *random_array(int64_t count, unsigned seed, bool is_bf16)
{
    const size_t element = is_bf16 ? 2 : 4;
    char *host = malloc((size_t)count * element);
    assert_non_null(host);
    for (int64_t i = 0; i < count; i++) {
        seed = seed * 1664525U + 1013904223U;
        const float x = (float)((int)(seed >> 16 & 255U) - 128) / 64.0f;
        uint32_t word;
        memcpy(&word, &x, sizeof word);
        const uint16_t half = (uint16_t)(word >> 16);
        if (is_bf16)
            memcpy(host + (size_t)i * element, &half, sizeof half);
        else
            memcpy(host + (size_t)i * element, &x, sizeof x);
    }
    void *p = device_array((size_t)count * element);
    assert_int_equal(cudaMemcpy(p, host, (size_t)count * element, cudaMemcpyHostToDevice),
                     cudaSuccess);
    free(host);
    return p;
}

static int64_t most(const struct conv_arrays *a)
{
    int64_t n = a->n_src > a->n_dst ? a->n_src : a->n_dst;
    return n > 2 * a->n_weights ? n : 2 * a->n_weights;
}

void conv_arrays_init(struct conv_arrays *a, const struct conv_layer *layer)
{
    const struct cuda_conv_shape s = conv_layer_shape(layer);
    *a = (struct conv_arrays){.shape = s,
                              .n_src = s.n * s.h * s.w * s.c,
                              .n_dst = s.n * s.out_h * s.out_w * s.k,
                              .n_weights = s.k * s.r * s.s * s.c};
    a->src = random_array(a->n_src, 1, true);
    a->dst = random_array(a->n_dst, 2, true);
    a->weights = random_array(a->n_weights, 3, true);
    a->residual = random_array(a->n_dst, 4, true);
    a->wide_src = random_array(a->n_src, 1, false);
    a->wide_dst = random_array(a->n_dst, 2, false);
    a->wide_weights = random_array(a->n_weights, 3, false);
    a->wide_residual = random_array(a->n_dst, 4, false);
    a->bias = random_array(s.k, 5, false);
    a->expected = device_array((size_t)most(a) * sizeof *a->expected);
    a->room = device_array((size_t)most(a) * 2 + 2 * GUARD);
    a->actual = (char *)a->room + GUARD;
    a->scratch = device_array((size_t)(CONV_SCRATCH_BLOCKS * a->n_weights) * sizeof(float));
}

void conv_arrays_fini(struct conv_arrays *a)
{
    void *all[] = {a->src,      a->dst,      a->weights,      a->residual,
                   a->wide_src, a->wide_dst, a->wide_weights, a->wide_residual,
                   a->bias,     a->expected, a->room,         a->scratch};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        assert_int_equal(cudaFree(all[i]), cudaSuccess);
}

/* ---- running ----------------------------------------------------------------------------------------- */

const struct conv_pass CONV_EPILOGUES[] = {{.bias = true},
                                           {.bias = true, .relu = true},
                                           {.bias = true, .residual = true},
                                           {.bias = true, .residual = true, .relu = true}};

int64_t conv_arrays_count(const struct conv_arrays *a, const struct conv_pass *pass)
{
    return pass->backwards ? a->n_src : a->n_dst;
}

void conv_arrays_expect(struct conv_arrays *a, const struct conv_pass *pass)
{
    struct cuda_conv_shape wide = a->shape;
    const struct cuda_conv_shape *s = &wide;
    wide.type = CUDA_F32;
    if (pass->backwards) {
        assert_int_equal(cuda_conv_d_src(s, a->expected, a->wide_dst, a->wide_weights, NULL),
                         cudaSuccess);
        return;
    }
    assert_int_equal(cuda_conv(s, a->expected, a->wide_src, a->wide_weights, NULL), cudaSuccess);
    if (!pass->bias)
        return;
    const struct cuda_rows rows = {.data = a->expected,
                                   .rows = s->n * s->out_h * s->out_w,
                                   .cols = s->k,
                                   .stored = s->k,
                                   .pitch = s->k,
                                   .type = CUDA_F32};
    struct cuda_rows residual = rows;
    residual.data = pass->residual ? a->wide_residual : NULL;
    assert_int_equal(cuda_epilogue(rows, rows, a->bias, residual, pass->relu, NULL), cudaSuccess);
}

struct cuda_thin conv_arrays_operands(const struct conv_arrays *a, const struct conv_pass *pass)
{
    return (struct cuda_thin){.dst = a->actual,
                              .src = a->src,
                              .weights = a->weights,
                              .bias = pass->bias ? a->bias : NULL,
                              .residual = pass->residual ? a->residual : NULL,
                              .relu = pass->relu};
}

static void assert_fresh(const unsigned char *bytes)
{
    for (int i = 0; i < GUARD; i++)
        assert_int_equal(bytes[i], FRESH);
}

void conv_arrays_run(struct conv_arrays *a, size_t bytes, conv_launch *launch, const void *user)
{
    const size_t watched = bytes + 2 * GUARD;
    unsigned char *result[2];
    for (int i = 0; i < 2; i++) {
        result[i] = malloc(watched);
        assert_non_null(result[i]);
        assert_int_equal(cudaMemset(a->room, FRESH, watched), cudaSuccess);
        assert_int_equal(launch(a, user), cudaSuccess);
        assert_int_equal(cudaMemcpy(result[i], a->room, watched, cudaMemcpyDeviceToHost),
                         cudaSuccess);
        assert_fresh(result[i]);
        assert_fresh(result[i] + GUARD + bytes);
    }
    assert_memory_equal(result[0], result[1], watched);
    free(result[0]);
    free(result[1]);
}

/* ---- comparing --------------------------------------------------------------------------------------- */

float *conv_numbers(const void *device, int64_t count, bool is_bf16)
{
    char *host = malloc((size_t)count * 4);
    float *numbers = malloc((size_t)count * sizeof *numbers);
    assert_true(host && numbers);
    assert_int_equal(
        cudaMemcpy(host, device, (size_t)count * (is_bf16 ? 2 : 4), cudaMemcpyDeviceToHost),
        cudaSuccess);
    for (int64_t i = 0; i < count; i++) {
        uint16_t half;
        uint32_t word;
        memcpy(&half, host + (size_t)i * 2, sizeof half);
        word = (uint32_t)half << 16;
        memcpy(&numbers[i], is_bf16 ? (void *)&word : (void *)(host + (size_t)i * 4), 4);
    }
    free(host);
    return numbers;
}

/* Sums in another order differ by little; bf16 holds eight bits, so rounding once adds at most 2^-8 of a number. */
void conv_arrays_compare(const struct conv_arrays *a, int64_t count, bool is_bf16, const char *what)
{
    float *x = conv_numbers(a->actual, count, is_bf16);
    float *y = conv_numbers(a->expected, count, false);
    double largest = 0.0;
    for (int64_t i = 0; i < count; i++)
        largest = fabs((double)y[i]) > largest ? fabs((double)y[i]) : largest;
    for (int64_t i = 0; i < count; i++) {
        const double allowed = 1e-5 * largest + (is_bf16 ? fabs((double)y[i]) / 256.0 : 0.0);
        if (!(fabs((double)x[i] - (double)y[i]) <= allowed))
            fail_msg("%s: number %lld is %g, want %g", what, (long long)i, (double)x[i],
                     (double)y[i]);
    }
    free(x);
    free(y);
}

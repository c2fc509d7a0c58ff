/*
 * The kernels of batch norm against sums in double on the host: slices of every width, sizes that no block
 * divides, padded channels, results over operands, and the same bits twice.
 */
#include "backend/cuda/kernels.h"
#include "core/rng.h"
#include "graph/backend.h"
#include "support/bf16.h"
#include "support/tensor_check.h"
#include "support/test_ctx.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { IMAGES = 6, VECTORS = 10, TEXT_MAX = 160 };

/* Images of the forward pass, and of the backward one. */
enum { F_SRC, F_RESIDUAL, F_DST };
enum { B_D_DST, B_D_DST2, B_SRC, B_DST, B_D_SRC, B_D_RESIDUAL };
enum { GAMMA, BETA, MASK, RUNNING_MEAN, RUNNING_VAR, MEAN, INV_STD, D_GAMMA, D_BETA, D_MASK };

static const struct size {
    int64_t rows, cols, stored;
} SIZES[] = {
    {1, 1, 8},       {7, 5, 8},        {255, 16, 16},    {257, 33, 64},  {300, 9, 24},
    {513, 64, 64},   {2048, 512, 512}, {3001, 40, 64},   {8192, 64, 64}, {1531, 256, 256},
    {32768, 32, 32}, {4003, 130, 192}, {131072, 16, 16}, {5, 3, 3},      {8192, 60, 64},
    {8193, 64, 64},  {2049, 100, 128}, {504, 60, 64},
};

/* What is fused into it. */
struct kind {
    bool training, relu, mask, more; /* more: residual, or d_dst2 and d_residual */
    bool over;                       /* results over operands */
    bool in_passes;                  /* small images too */
    bool sparse;                     /* backward: d_dst2 without its zeros */
};

enum { LOG_W = 2, W = 1 << LOG_W }; /* columns of images, where that counts */

struct trial {
    struct size size;
    enum cuda_type type;
    struct kind kind;
    float *host[IMAGES]; /* [rows, stored] */
    void *raw[IMAGES];   /* the same as the device has it */
    float *vector[VECTORS];
    void *device[IMAGES];
    float *device_vector[VECTORS];
    void *scratch;
};

static int64_t numbers(const struct trial *t)
{
    return t->size.rows * t->size.stored;
}

static size_t image_bytes(const struct trial *t)
{
    return (size_t)numbers(t) * (t->type == CUDA_BF16 ? 2 : 4);
}

static void assert_cuda(cudaError_t error)
{
    if (error != cudaSuccess)
        fail_msg("%s", cudaGetErrorString(error));
}

/* ---- between host and device ---------------------------------------------------------------------- */

static float *download(const struct trial *t, const void *from)
{
    const int64_t n = numbers(t);
    float *out = calloc((size_t)n, sizeof *out);
    uint16_t *half = calloc((size_t)n, sizeof *half);
    assert_true(out && half);
    assert_cuda(cudaMemcpy(t->type == CUDA_BF16 ? (void *)half : (void *)out, from, image_bytes(t),
                           cudaMemcpyDeviceToHost));
    for (int64_t k = 0; k < n && t->type == CUDA_BF16; k++)
        out[k] = of_bf16(half[k]);
    free(half);
    return out;
}

static void upload_all(const struct trial *t)
{
    const size_t bytes = (size_t)t->size.cols * sizeof(float);
    for (int i = 0; i < IMAGES; i++)
        assert_cuda(cudaMemcpy(t->device[i], t->raw[i], image_bytes(t), cudaMemcpyHostToDevice));
    for (int i = 0; i < VECTORS; i++)
        assert_cuda(cudaMemcpy(t->device_vector[i], t->vector[i], bytes, cudaMemcpyHostToDevice));
}

/* ---- one size ----------------------------------------------------------------------------------------- */

/* Numbers from -1 to 2 that images can hold; zeros past the channels. */
static void draw_image(struct trial *t, int i)
{
    uint16_t *half = malloc((size_t)numbers(t) * sizeof *half);
    t->host[i] = malloc((size_t)numbers(t) * sizeof(float));
    assert_true(half && t->host[i]);
    for (int64_t k = 0; k < numbers(t); k++) {
        const bool inside = k % t->size.stored < t->size.cols;
        const uint32_t drawn = (uint32_t)(k * IMAGES + i) * 2654435761U;
        const float x = inside ? 3.0F * rng_unit(drawn ^ drawn >> 15) - 1.0F : 0.0F;
        half[k] = to_bf16(x);
        t->host[i][k] = t->type == CUDA_BF16 ? of_bf16(half[k]) : x;
    }
    t->raw[i] = t->type == CUDA_BF16 ? (void *)half : (void *)t->host[i];
    if (t->type != CUDA_BF16)
        free(half);
}

static void make(struct trial *t, struct size size, enum cuda_type type)
{
    *t = (struct trial){.size = size, .type = type};
    for (int i = 0; i < IMAGES; i++) {
        draw_image(t, i);
        assert_cuda(cudaMalloc(&t->device[i], image_bytes(t)));
    }
    for (int i = 0; i < VECTORS; i++) {
        const size_t bytes = (size_t)size.cols * sizeof(float);
        t->vector[i] = malloc(bytes);
        assert_non_null(t->vector[i]);
        rng_uniform(t->vector[i], size.cols, 0.5, 2.0, 7, RNG_TEST, (uint32_t)(IMAGES + i));
        assert_cuda(cudaMalloc((void **)&t->device_vector[i], bytes));
    }
    assert_cuda(cudaMalloc(&t->scratch, cuda_bn_scratch(size.stored)));
}

static void drop(struct trial *t)
{
    for (int i = 0; i < IMAGES; i++) {
        if (t->raw[i] != t->host[i])
            free(t->raw[i]);
        free(t->host[i]);
        assert_cuda(cudaFree(t->device[i]));
    }
    for (int i = 0; i < VECTORS; i++) {
        free(t->vector[i]);
        assert_cuda(cudaFree(t->device_vector[i]));
    }
    assert_cuda(cudaFree(t->scratch));
}

static struct cuda_rows rows_at(const struct trial *t, int i)
{
    return (struct cuda_rows){.data = t->device[i],
                              .rows = t->size.rows,
                              .cols = t->size.cols,
                              .stored = t->size.stored,
                              .pitch = t->size.stored,
                              .type = t->type};
}

/* Limits are on the squared error relative to the square of the values: bf16
 * rounds by at most 2^-8 of a value. */
static void check_image(const struct trial *t, const void *from, const double *expected,
                        const char *what)
{
    float *actual = download(t, from);
    float *rounded = malloc((size_t)numbers(t) * sizeof *rounded);
    assert_non_null(rounded);
    for (int64_t k = 0; k < numbers(t); k++) {
        rounded[k] = (float)expected[k];
        if (k % t->size.stored >= t->size.cols && actual[k] != 0.0F)
            fail_msg("%s: padding at %lld is %g", what, (long long)k, (double)actual[k]);
    }
    assert_tensor_close(actual, rounded, numbers(t), t->type == CUDA_BF16 ? 1.6e-5 : 1e-11, what);
    free(actual);
    free(rounded);
}

static void check_vector(const struct trial *t, int i, const double *expected, const char *what)
{
    const int64_t n = t->size.cols;
    float *actual = malloc(2 * (size_t)n * sizeof *actual);
    assert_non_null(actual);
    assert_cuda(cudaMemcpy(actual, t->device_vector[i], (size_t)n * sizeof *actual,
                           cudaMemcpyDeviceToHost));
    for (int64_t c = 0; c < n; c++)
        actual[n + c] = (float)expected[c];
    assert_tensor_close(actual, actual + n, n, t->type == CUDA_BF16 ? 1e-9 : 1e-11, what);
    free(actual);
}

/* ---- forward ---------------------------------------------------------------------------------------- */

static cudaError_t run_forward(const struct trial *t)
{
    struct cuda_bn bn = {
        .src = rows_at(t, F_SRC),
        .dst = rows_at(t, t->kind.over ? F_SRC : F_DST),
        .gamma = t->device_vector[GAMMA],
        .beta = t->device_vector[BETA],
        .running_mean = t->device_vector[RUNNING_MEAN],
        .running_var = t->device_vector[RUNNING_VAR],
        .mask = t->kind.mask ? t->device_vector[MASK] : NULL,
        .mean = t->device_vector[MEAN],
        .inv_std = t->device_vector[INV_STD],
        .eps = 1e-5F,
        .momentum = 0.1F,
        .training = t->kind.training,
        .relu = t->kind.relu,
        .scratch = t->scratch,
        .in_passes = t->kind.in_passes,
    };
    if (t->kind.more)
        bn.residual = rows_at(t, F_RESIDUAL);
    cudaError_t error = cuda_bn(&bn, NULL);
    return error == cudaSuccess ? cudaDeviceSynchronize() : error;
}

/* What has to come out, for channel c; dst has the layout of images. */
struct forward {
    double *dst, *mean, *inv_std, *running_mean, *running_var;
};

static double square(double x)
{
    return x * x;
}

static void forward_channel(const struct trial *t, int64_t c, struct forward *out)
{
    const int64_t rows = t->size.rows;
    const int64_t stored = t->size.stored;
    double mean = 0.0;
    double var = 0.0;
    for (int64_t r = 0; r < rows; r++)
        mean += (double)t->host[F_SRC][r * stored + c] / (double)rows;
    for (int64_t r = 0; r < rows; r++)
        var += square((double)t->host[F_SRC][r * stored + c] - mean) / (double)rows;
    out->running_mean[c] = (double)t->vector[RUNNING_MEAN][c];
    out->running_var[c] = (double)t->vector[RUNNING_VAR][c];
    if (t->kind.training) {
        const double unbiased = rows > 1 ? var * (double)rows / (double)(rows - 1) : var;
        out->running_mean[c] = 0.9 * out->running_mean[c] + 0.1 * mean;
        out->running_var[c] = 0.9 * out->running_var[c] + 0.1 * unbiased;
    } else {
        mean = out->running_mean[c];
        var = out->running_var[c];
    }
    out->mean[c] = mean;
    out->inv_std[c] = 1.0 / sqrt(var + 1e-5);
    const double m = t->kind.mask ? (double)t->vector[MASK][c] : 1.0;
    for (int64_t r = 0; r < rows; r++) {
        const int64_t k = r * stored + c;
        const double x = ((double)t->host[F_SRC][k] - mean) * out->inv_std[c];
        double z = m * ((double)t->vector[GAMMA][c] * x + (double)t->vector[BETA][c]);
        z += t->kind.more ? (double)t->host[F_RESIDUAL][k] : 0.0;
        out->dst[k] = t->kind.relu && z < 0.0 ? 0.0 : z;
    }
}

static void check_forward(const struct trial *t, const struct forward *expected, const char *what)
{
    check_image(t, t->device[t->kind.over ? F_SRC : F_DST], expected->dst, what);
    check_vector(t, MEAN, expected->mean, what);
    check_vector(t, INV_STD, expected->inv_std, what);
    check_vector(t, RUNNING_MEAN, expected->running_mean, what);
    check_vector(t, RUNNING_VAR, expected->running_var, what);
}

/* ---- backward --------------------------------------------------------------------------------------- */

static int d_src_of(const struct trial *t)
{
    return t->kind.over ? B_SRC : B_D_SRC;
}

static int d_residual_of(const struct trial *t)
{
    return t->kind.over && !t->kind.sparse ? B_D_DST2 : B_D_RESIDUAL;
}

static cudaError_t run_backward(const struct trial *t)
{
    struct cuda_bn_grad bn = {
        .d_dst = rows_at(t, B_D_DST),
        .src = rows_at(t, B_SRC),
        .d_src = rows_at(t, d_src_of(t)),
        .gamma = t->device_vector[GAMMA],
        .beta = t->device_vector[BETA],
        .mean = t->device_vector[MEAN],
        .inv_std = t->device_vector[INV_STD],
        .mask = t->kind.mask ? t->device_vector[MASK] : NULL,
        .d_gamma = t->device_vector[D_GAMMA],
        .d_beta = t->device_vector[D_BETA],
        .d_mask = t->kind.mask ? t->device_vector[D_MASK] : NULL,
        .training = t->kind.training,
        .relu = t->kind.relu,
        .scratch = t->scratch,
        .in_passes = t->kind.in_passes,
    };
    if (t->kind.relu)
        bn.dst = rows_at(t, B_DST);
    if (t->kind.more) {
        bn.d_dst2 = rows_at(t, B_D_DST2);
        bn.d_residual = rows_at(t, d_residual_of(t));
        bn.log_w = t->kind.sparse ? LOG_W : 0;
        bn.d_dst2.rows /= t->kind.sparse ? 4 : 1;
    }
    cudaError_t error = cuda_bn_grad(&bn, NULL);
    return error == cudaSuccess ? cudaDeviceSynchronize() : error;
}

/* Sums are those of g, d_src has it rounded as images are. */
struct backward {
    double *g, *d_src, *d_gamma, *d_beta, *d_mask;
};

/* Number k of the second gradient. */
static double second_at(const struct trial *t, int64_t k)
{
    const int64_t row = k / t->size.stored;
    const int64_t x = row % W;
    const int64_t line = row / W;
    if (!t->kind.sparse)
        return (double)t->host[B_D_DST2][k];
    if (x % 2 != 0 || line % 2 != 0)
        return 0.0;
    return (double)
        t->host[B_D_DST2][(line / 2 * (W / 2) + x / 2) * t->size.stored + k % t->size.stored];
}

static void backward_channel(const struct trial *t, int64_t c, struct backward *out)
{
    const double mean = (double)t->vector[MEAN][c];
    const double inv_std = (double)t->vector[INV_STD][c];
    const double gamma = (double)t->vector[GAMMA][c];
    const double m = t->kind.mask ? (double)t->vector[MASK][c] : 1.0;
    const int64_t stored = t->size.stored;
    double along = 0.0;
    double sum = 0.0;
    for (int64_t k = c; k < numbers(t); k += stored) {
        double g = (double)t->host[B_D_DST][k];
        g += t->kind.more ? second_at(t, k) : 0.0;
        g = t->kind.relu && t->host[B_DST][k] <= 0.0F ? 0.0 : g;
        sum += g;
        along += g * ((double)t->host[B_SRC][k] - mean) * inv_std;
        out->g[k] = t->type == CUDA_BF16 ? (double)of_bf16(to_bf16((float)g)) : g;
    }
    for (int64_t k = c; k < numbers(t); k += stored) {
        const double x = ((double)t->host[B_SRC][k] - mean) * inv_std;
        const double share = (sum + x * along) / (double)t->size.rows;
        out->d_src[k] = gamma * m * inv_std * (out->g[k] - (t->kind.training ? share : 0.0));
    }
    out->d_gamma[c] = m * along;
    out->d_beta[c] = m * sum;
    out->d_mask[c] = gamma * along + (double)t->vector[BETA][c] * sum;
}

static void check_backward(const struct trial *t, const struct backward *expected, const char *what)
{
    check_image(t, t->device[d_src_of(t)], expected->d_src, what);
    if (t->kind.more)
        check_image(t, t->device[d_residual_of(t)], expected->g, what);
    check_vector(t, D_GAMMA, expected->d_gamma, what);
    check_vector(t, D_BETA, expected->d_beta, what);
    if (t->kind.mask)
        check_vector(t, D_MASK, expected->d_mask, what);
}

/* ---- all of them ------------------------------------------------------------------------------------ */

static void *zeros(int64_t n)
{
    double *p = calloc((size_t)n, sizeof *p);
    assert_non_null(p);
    return p;
}

/* Every result of a run as it lies in memory: images, then vectors. */
static size_t results_bytes(const struct trial *t)
{
    return IMAGES * image_bytes(t) + VECTORS * (size_t)t->size.cols * sizeof(float);
}

static char *all_results(const struct trial *t)
{
    const size_t vector = (size_t)t->size.cols * sizeof(float);
    char *all = malloc(results_bytes(t));
    char *at = all;
    assert_non_null(all);
    for (int i = 0; i < IMAGES; i++, at += image_bytes(t))
        assert_cuda(cudaMemcpy(at, t->device[i], image_bytes(t), cudaMemcpyDeviceToHost));
    for (int i = 0; i < VECTORS; i++, at += vector)
        assert_cuda(cudaMemcpy(at, t->device_vector[i], vector, cudaMemcpyDeviceToHost));
    return all;
}

typedef cudaError_t run_fn(const struct trial *t);

/* Runs it twice, for equal bits. */
static void run_twice(const struct trial *t, run_fn *run, const char *what)
{
    char *results[2];
    for (int i = 0; i < 2; i++) {
        upload_all(t);
        const cudaError_t error = run(t);
        if (error != cudaSuccess)
            fail_msg("%s: %s", what, cudaGetErrorString(error));
        results[i] = all_results(t);
    }
    if (memcmp(results[0], results[1], results_bytes(t)) != 0)
        fail_msg("%s: two runs differ", what);
    free(results[0]);
    free(results[1]);
}

static const char *describe(const struct trial *t, char *text)
{
    (void)snprintf(
        text, TEXT_MAX,
        "%lld x %lld (%lld), training %d, relu %d, mask %d, more %d, over %d, passes %d, sparse %d",
        (long long)t->size.rows, (long long)t->size.cols, (long long)t->size.stored,
        t->kind.training, t->kind.relu, t->kind.mask, t->kind.more, t->kind.over, t->kind.in_passes,
        t->kind.sparse);
    return text;
}

static void try_forward(const struct trial *t)
{
    const int64_t c = t->size.cols;
    char what[TEXT_MAX];
    struct forward expected = {zeros(numbers(t)), zeros(c), zeros(c), zeros(c), zeros(c)};
    for (int64_t i = 0; i < c; i++)
        forward_channel(t, i, &expected);
    run_twice(t, run_forward, describe(t, what));
    check_forward(t, &expected, what);
    free(expected.dst);
    free(expected.mean);
    free(expected.inv_std);
    free(expected.running_mean);
    free(expected.running_var);
}

static void try_backward(const struct trial *t)
{
    const int64_t c = t->size.cols;
    char what[TEXT_MAX];
    struct backward expected = {zeros(numbers(t)), zeros(numbers(t)), zeros(c), zeros(c), zeros(c)};
    for (int64_t i = 0; i < c; i++)
        backward_channel(t, i, &expected);
    run_twice(t, run_backward, describe(t, what));
    check_backward(t, &expected, what);
    free(expected.g);
    free(expected.d_src);
    free(expected.d_gamma);
    free(expected.d_beta);
    free(expected.d_mask);
}

extern const struct backend_ops cuda_backend;

/* Small images are read once, larger ones in passes. What has no zeros stored is a second gradient of whole images. */
static bool is_there(const struct trial *t, bool backward)
{
    const bool is_small = t->size.rows <= 2048 && t->size.stored % 64 == 0;
    if (t->kind.in_passes && (t->type != CUDA_BF16 || !is_small))
        return false;
    return !t->kind.sparse ||
           (t->type == CUDA_BF16 && backward && t->kind.more && t->size.rows % (2 * W) == 0);
}

/* Small sizes with everything fused into them in turn, large ones with some of it. */
static void try_all(enum cuda_type type, bool backward)
{
    for (size_t s = 0; s < sizeof SIZES / sizeof *SIZES; s++) {
        struct trial t;
        make(&t, SIZES[s], type);
        for (unsigned option = 0; option < 128; option++) {
            if (numbers(&t) > 50000 && option % 32 != 31 && option % 12 != 3)
                continue;
            t.kind = (struct kind){option & 1,  option & 2,  option & 4, option & 8,
                                   option & 16, option & 32, option & 64};
            if (!is_there(&t, backward))
                continue;
            (backward ? try_backward : try_forward)(&t);
        }
        drop(&t);
    }
}

static void test_forward(void **state)
{
    if (!backend_is_usable(&cuda_backend))
        skip();
    try_all((enum cuda_type)(intptr_t)*state, false);
}

static void test_backward(void **state)
{
    if (!backend_is_usable(&cuda_backend))
        skip();
    try_all((enum cuda_type)(intptr_t)*state, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        {"test_forward_in_f32", test_forward, NULL, NULL, (void *)(intptr_t)CUDA_F32},
        {"test_forward_in_bf16", test_forward, NULL, NULL, (void *)(intptr_t)CUDA_BF16},
        {"test_backward_in_f32", test_backward, NULL, NULL, (void *)(intptr_t)CUDA_F32},
        {"test_backward_in_bf16", test_backward, NULL, NULL, (void *)(intptr_t)CUDA_BF16},
    };
    return cmocka_run_group_tests_name("cuda_norm", tests, NULL, NULL);
}

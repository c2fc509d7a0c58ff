/*
 * Gradients of convolutions' data that leave the sums of batch norm's gradient: what every kernel that does so gives
 * batch norm, the gradient of batch norm with it.
 */
#include "backend/cuda/cuda.h"

#include "support/bf16.h"
#include "support/cuda/conv_arrays.h"
#include "support/cuda/thin_tiles.h"
#include "support/tensor_check.h"
#include "support/test_ctx.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern const struct backend_ops cuda_backend;

enum { GUARD = 1024, FRESH = 0xff /* bytes that nobody has written; NaN */ };

static void assert_cuda(cudaError_t error)
{
    if (error != cudaSuccess)
        fail_msg("%s", cudaGetErrorString(error));
}

/* ---- kernels ------------------------------------------------------------------------------------------- */

enum {
    GAMMA,
    BETA,
    MASK,
    RUNNING_MEAN,
    RUNNING_VAR,
    MEAN,
    INV_STD,
    D_GAMMA,
    D_BETA,
    D_MASK,
    N_VECTORS
};
enum { PADDING = 3 }; /* channels that do not count */

/* What is there besides the gradient that comes back from the convolution. */
struct kind {
    bool other, relu, residual, mask; /* residual: forwards */
};

static const struct kind KINDS[] = {
    {0},
    {.other = true},
    {.relu = true},
    {.relu = true, .mask = true},
    {.relu = true, .other = true},
    {.relu = true, .other = true, .residual = true},
    {.relu = true, .residual = true, .mask = true},
};

/* Images as the source of the convolution, [n, h, w, c], on the GPU. */
struct trial {
    struct conv_arrays a;
    const struct cuda_thin_tile *tile; /* of thin.cu; NULL: strip.cu */
    int parts;                         /* of sums */
    struct kind kind;
    char what[160];
    void *src, *other, *dst; /* of batch norm; other: a second gradient, and the residual */
    void *plain;             /* what comes back from the convolution */
    void *d_src, *d_residual;
    float *vectors; /* [N_VECTORS][c] */
    void *scratch;
    size_t bytes; /* of sums */
    char *room;   /* of sums, guards included */
};

static size_t image_bytes(const struct trial *t)
{
    return (size_t)t->a.n_src * 2;
}

static float *vector_at(const struct trial *t, int i)
{
    return t->vectors + i * t->a.shape.c;
}

static void *image_new(const struct trial *t)
{
    void *image;
    assert_cuda(cudaMalloc(&image, image_bytes(t)));
    return image;
}

static bool counts(const struct trial *t, int64_t i)
{
    return i % t->a.shape.c < t->a.shape.c - PADDING;
}

/* Numbers between -2 and 2 of eight bits; zeros where channels do not count. */
static void draw_image(const struct trial *t, void *image, uint32_t seed)
{
    uint16_t *numbers = malloc(image_bytes(t));
    assert_non_null(numbers);
    for (int64_t i = 0; i < t->a.n_src; i++) {
        const uint32_t drawn = ((uint32_t)i + seed) * 2654435761U;
        const float x = (float)((drawn ^ drawn >> 15) % 509U) / 127.0F - 2.0F;
        numbers[i] = to_bf16(counts(t, i) ? x : 0.0F);
    }
    assert_cuda(cudaMemcpy(image, numbers, image_bytes(t), cudaMemcpyHostToDevice));
    free(numbers);
}

static void draw_vectors(const struct trial *t)
{
    const int64_t n = N_VECTORS * t->a.shape.c;
    float *numbers = malloc((size_t)n * sizeof *numbers);
    assert_non_null(numbers);
    for (int64_t i = 0; i < n; i++)
        numbers[i] = 0.5F + (float)((uint32_t)i * 2654435761U >> 16) / 65536.0F;
    assert_cuda(
        cudaMemcpy(t->vectors, numbers, (size_t)n * sizeof *numbers, cudaMemcpyHostToDevice));
    free(numbers);
}

/* Weights of source channels that do not count are zeros, as padding is. */
static void clear_padding(const struct trial *t)
{
    const struct cuda_conv_shape *s = &t->a.shape;
    for (int64_t i = 0; i < s->k * 9; i++)
        assert_cuda(
            cudaMemset((char *)t->a.weights + ((i + 1) * s->c - PADDING) * 2, 0, PADDING * 2));
}

static void trial_init(struct trial *t, const struct conv_layer *layer,
                       const struct cuda_thin_tile *tile, int parts)
{
    *t = (struct trial){.tile = tile, .parts = parts, .bytes = cuda_bn_sums(layer->c, parts)};
    conv_arrays_init(&t->a, layer);
    clear_padding(t);
    void **images[] = {&t->src, &t->other, &t->dst, &t->plain, &t->d_src, &t->d_residual};
    for (size_t i = 0; i < sizeof images / sizeof *images; i++)
        *images[i] = image_new(t);
    draw_image(t, t->src, 1);
    draw_image(t, t->other, 77777);
    assert_cuda(cudaMalloc((void **)&t->vectors, N_VECTORS * (size_t)layer->c * sizeof(float)));
    assert_cuda(cudaMalloc(&t->scratch, cuda_bn_scratch(layer->c)));
    assert_cuda(cudaMalloc((void **)&t->room, t->bytes + 2 * (size_t)GUARD));
    assert_cuda(tile ? cuda_thin_d_src(&t->a.shape, tile, t->plain, t->a.dst, t->a.weights, NULL)
                     : cuda_strip_d_src(&t->a.shape, t->plain, t->a.dst, t->a.weights, NULL));
}

static void trial_fini(struct trial *t)
{
    void *arrays[] = {t->src,        t->other,   t->dst,     t->plain, t->d_src,
                      t->d_residual, t->vectors, t->scratch, t->room};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        assert_cuda(cudaFree(arrays[i]));
    conv_arrays_fini(&t->a);
}

static struct cuda_rows rows_at(const struct trial *t, void *image)
{
    const struct cuda_conv_shape *s = &t->a.shape;
    return (struct cuda_rows){.data = image,
                              .rows = s->n * s->h * s->w,
                              .cols = s->c - PADDING,
                              .stored = s->c,
                              .pitch = s->c,
                              .type = CUDA_BF16};
}

/* Forwards: dst, mean and deviation. */
static void run_norm(const struct trial *t)
{
    struct cuda_bn bn = {.src = rows_at(t, t->src),
                         .dst = rows_at(t, t->dst),
                         .gamma = vector_at(t, GAMMA),
                         .beta = vector_at(t, BETA),
                         .running_mean = vector_at(t, RUNNING_MEAN),
                         .running_var = vector_at(t, RUNNING_VAR),
                         .mask = t->kind.mask ? vector_at(t, MASK) : NULL,
                         .mean = vector_at(t, MEAN),
                         .inv_std = vector_at(t, INV_STD),
                         .eps = 1e-5F,
                         .momentum = 0.1F,
                         .training = true,
                         .relu = t->kind.relu,
                         .scratch = t->scratch};
    if (t->kind.residual)
        bn.residual = rows_at(t, t->other);
    assert_cuda(cuda_bn(&bn, NULL));
}

/* Without sums; d_dst is what comes back from the convolution. */
static struct cuda_bn_grad gradient_of(const struct trial *t)
{
    struct cuda_bn_grad bn = {.d_dst = rows_at(t, t->plain),
                              .src = rows_at(t, t->src),
                              .d_src = rows_at(t, t->d_src),
                              .gamma = vector_at(t, GAMMA),
                              .beta = vector_at(t, BETA),
                              .mean = vector_at(t, MEAN),
                              .inv_std = vector_at(t, INV_STD),
                              .mask = t->kind.mask ? vector_at(t, MASK) : NULL,
                              .d_gamma = vector_at(t, D_GAMMA),
                              .d_beta = vector_at(t, D_BETA),
                              .d_mask = t->kind.mask ? vector_at(t, D_MASK) : NULL,
                              .training = true,
                              .relu = t->kind.relu,
                              .scratch = t->scratch};
    if (t->kind.other)
        bn.d_dst2 = rows_at(t, t->other);
    if (t->kind.relu)
        bn.dst = rows_at(t, t->dst);
    if (t->kind.residual)
        bn.d_residual = rows_at(t, t->d_residual);
    return bn;
}

/* Into `actual`. */
static struct cuda_bn_grad summed_gradient_of(const struct trial *t)
{
    struct cuda_bn_grad bn = gradient_of(t);
    bn.d_dst.data = t->a.actual;
    bn.scratch = t->room + GUARD;
    bn.summed = t->parts;
    if (t->kind.residual)
        bn.d_residual.data = t->a.actual;
    return bn;
}

static cudaError_t launch_summed(struct conv_arrays *a, const void *user)
{
    const struct trial *t = user;
    struct cuda_bn_grad bn = summed_gradient_of(t);
    if (!t->kind.residual)
        bn.dst = (struct cuda_rows){0};
    assert_cuda(cudaMemset(t->room, FRESH, t->bytes + 2 * (size_t)GUARD));
    return t->tile ? cuda_thin_d_src_summed(&a->shape, t->tile, a->dst, a->weights, &bn, NULL)
                   : cuda_strip_d_src_summed(&a->shape, a->dst, a->weights, &bn, NULL);
}

/* What reaches batch norm, to the last bit. Where the ReLU was open is told from the source as from the result. */
static void check_result(const struct trial *t)
{
    const int64_t n = t->a.n_src;
    float *actual = conv_numbers(t->a.actual, n, true);
    float *expected = conv_numbers(t->plain, n, true);
    float *other = conv_numbers(t->other, n, true);
    float *dst = conv_numbers(t->dst, n, true);
    int64_t n_open = 0;
    for (int64_t i = 0; i < n; i++) {
        if (t->kind.other)
            expected[i] = of_bf16(to_bf16(expected[i] + other[i]));
        if (t->kind.relu && dst[i] <= 0.0F)
            expected[i] = 0.0F;
        n_open += expected[i] != 0.0F;
        if (actual[i] != expected[i])
            fail_msg("%s: number %lld is %g, want %g", t->what, (long long)i, (double)actual[i],
                     (double)expected[i]);
    }
    assert_in_range(n_open, n / 8, n);
    free(actual);
    free(expected);
    free(other);
    free(dst);
}

/* Channel c of the pixels [first, last) against the sums of `count` parts; f32 rounds each of a hundred additions by 2^-24 at
 * most. column: of the first of these parts. */
struct share {
    int64_t c, first, last, count;
    const float *column;
};

static void check_share(const struct trial *t, const struct share *share, const float *g,
                        const float *x)
{
    const int64_t c = t->a.shape.c;
    const int64_t width = c > 32 ? 64 : c > 16 ? 32 : 16; /* of a slice */
    double want[2] = {0.0, 0.0};
    double sums[2] = {0.0, 0.0};
    double size = 0.0;
    for (int64_t k = share->first * c + share->c; k < share->last * c; k += c) {
        want[0] += (double)g[k];
        want[1] += (double)g[k] * (double)x[k];
        size += 2.0 * fabs((double)g[k]);
    }
    for (int64_t k = 0; k < share->count * 2; k++)
        sums[k % 2] += (double)share->column[k * width];
    for (int i = 0; i < 2; i++)
        if (!(fabs(sums[i] - want[i]) <= 6e-6 * size))
            fail_msg("%s: from pixel %lld on, channel %lld: sum %d is %g, want %g", t->what,
                     (long long)share->first, (long long)share->c, i, sums[i], want[i]);
}

/* Parts of strips are pictures; those of thin layers are whatever boxes a block had. */
static void check_sums(const struct trial *t)
{
    const struct cuda_conv_shape *s = &t->a.shape;
    const int64_t area = s->h * s->w;
    const int64_t width = s->c > 32 ? 64 : s->c > 16 ? 32 : 16;
    const int64_t n_shares = t->tile ? 1 : s->n;
    const int64_t pixels = s->n * area / n_shares;
    float *g = conv_numbers(t->a.actual, t->a.n_src, true);
    float *x = conv_numbers(t->src, t->a.n_src, true);
    float *sums = conv_numbers(t->room, (int64_t)(t->bytes + 2 * (size_t)GUARD) / 4, false);
    for (int64_t i = 0; i < n_shares * s->c; i++) {
        const int64_t at = i / s->c;
        const int64_t c = i % s->c;
        const struct share share = {.c = c,
                                    .first = at * pixels,
                                    .last = (at + 1) * pixels,
                                    .count = t->tile ? t->parts : 1,
                                    .column = sums + GUARD / 4 +
                                              (c / width * t->parts + at) * 2 * width + c % width};
        check_share(t, &share, g, x);
    }
    for (int64_t i = 0; i < GUARD / 4; i++)
        assert_true(isnan(sums[i]) && isnan(sums[(int64_t)t->bytes / 4 + GUARD / 4 + i]));
    free(g);
    free(x);
    free(sums);
}

struct results {
    float *d_src, *vectors;
};

static struct results run_gradient(const struct trial *t, const struct cuda_bn_grad *bn)
{
    assert_cuda(cuda_bn_grad(bn, NULL));
    return (struct results){conv_numbers(t->d_src, t->a.n_src, true),
                            conv_numbers(t->vectors, N_VECTORS * t->a.shape.c, false)};
}

/* The root of the mean square of what reaches batch norm, times that of the number of pixels: what a sum of random signs comes
 * to. Factors of batch norm are between 0.5 and 1.5, and its source has a deviation of one after it. */
static double size_of_sums(const struct trial *t)
{
    float *g = conv_numbers(t->a.actual, t->a.n_src, true);
    double squares = 0.0;
    for (int64_t i = 0; i < t->a.n_src; i++)
        squares += (double)g[i] * (double)g[i];
    free(g);
    return sqrt(squares / (double)t->a.shape.c);
}

/* d_gamma, d_beta or d_mask, which has three times the factors. A sum of sixty numbers of a normal distribution is beyond five
 * deviations once in a million. */
static void check_vector(const struct trial *t, const float *actual, const float *expected)
{
    const double limit = 3.0 * 5.0 * size_of_sums(t) / 512.0 / sqrt(3.0);
    for (int64_t i = 0; i < t->a.shape.c - PADDING; i++)
        if (!(fabs((double)actual[i] - (double)expected[i]) <= limit))
            fail_msg("%s: channel %lld is %g, want %g within %g", t->what, (long long)i,
                     (double)actual[i], (double)expected[i], limit);
}

/* With sums that are there, and from the beginning. Where there are two gradients, sums are of numbers that have been rounded,
 * by 2^-9 of their size at most: that of a sum is the square root of their number times as large, as sums of random signs
 * are, but those of these numbers, which are spread evenly, are a few times smaller. So errors are held against the size of
 * such sums, not against what they come to. What batch norm leaves of numbers that differ by 3e-6 of their square differs by
 * 7e-6 of its own (cuda_statistics_test.c). */
static void check_gradient(const struct trial *t)
{
    const int64_t c = t->a.shape.c;
    const struct cuda_bn_grad apart = gradient_of(t);
    const struct cuda_bn_grad summed = summed_gradient_of(t);
    struct results expected = run_gradient(t, &apart);
    struct results actual = run_gradient(t, &summed);
    for (int i = D_GAMMA; i < (t->kind.mask ? N_VECTORS : D_MASK); i++)
        if (t->kind.other)
            check_vector(t, actual.vectors + i * c, expected.vectors + i * c);
        else
            assert_tensor_close(actual.vectors + i * c, expected.vectors + i * c, c - PADDING,
                                1e-10, t->what);
    assert_tensor_close(actual.d_src, expected.d_src, t->a.n_src, t->kind.other ? 2e-5 : 1e-7,
                        t->what);
    free(expected.d_src);
    free(expected.vectors);
    free(actual.d_src);
    free(actual.vectors);
}

static void try_kinds(struct trial *t)
{
    for (size_t i = 0; i < sizeof KINDS / sizeof *KINDS; i++) {
        t->kind = KINDS[i];
        (void)snprintf(t->what, sizeof t->what, "%lld <- %lld of %lld, %d parts, %d rows, kind %d",
                       (long long)t->a.shape.c, (long long)t->a.shape.k, (long long)t->a.shape.h,
                       t->parts, t->tile ? t->tile->rows * t->tile->warps : 0, (int)i);
        draw_vectors(t);
        run_norm(t);
        conv_arrays_run(&t->a, image_bytes(t), launch_summed, t);
        check_result(t);
        check_sums(t);
        check_gradient(t);
    }
}

/* Every kernel that there is, whatever its channels. */
static void test_what_reaches_batch_norm(void **state)
{
    (void)state;
    enum { STEP = 16, STEPS = 8, SIZES = 2 };
    int n_kernels = 0;
    skip_without_hopper();
    for (int i = 0; i < SIZES * STEPS * STEPS; i++) {
        struct conv_layer layer = {.n = 66, .kernel = 3, .stride = 1};
        layer.c = (i / STEPS % STEPS + 1) * STEP;
        layer.k = (i % STEPS + 1) * STEP;
        layer.h = layer.w = i < STEPS * STEPS ? 32 : 16;
        const struct cuda_conv_shape shape = conv_layer_shape(&layer);
        if (!cuda_strip_sums(&shape, true))
            continue;
        struct trial t;
        trial_init(&t, &layer, NULL, (int)layer.n);
        try_kinds(&t);
        trial_fini(&t);
        n_kernels++;
    }
    assert_true(n_kernels >= 10);
}

static void try_slope(const struct conv_layer *layer, const struct cuda_thin_tile *tile, int parts)
{
    struct trial t;
    trial_init(&t, layer, tile, parts);
    try_kinds(&t);
    trial_fini(&t);
}

/* Images and batches that fill no box, channels that fill no slice or several. */
static void test_what_reaches_batch_norm_from_every_thin_tile(void **state)
{
    (void)state;
    static const struct conv_layer layers[] = {
        {3, 17, 15, 16, 16, 3, 1}, {17, 8, 8, 32, 48, 3, 1}, {9, 9, 11, 48, 16, 3, 1},
        {35, 5, 7, 64, 64, 3, 1},  {11, 8, 9, 80, 32, 3, 1},
    };
    if (!backend_is_usable(&cuda_backend))
        skip();
    assert_true(try_thin_tiles(layers, sizeof layers / sizeof *layers, true, try_slope) >= 120);
}

/* What networks have in training, as the rule cuts it up. */
static void test_what_reaches_batch_norm_from_thin_tiles_of_the_rule(void **state)
{
    (void)state;
    static const int64_t batches[] = {21, 128};
    int n_tiles = 0;
    if (!backend_is_usable(&cuda_backend))
        skip();
    for (int i = 0; i < 2 * 3; i++) {
        const int64_t size = 32 >> i % 3;
        const int64_t channels = 16 << i % 3;
        const struct conv_layer layer = {batches[i / 3], size, size, channels, channels, 3, 1};
        const struct cuda_conv_shape shape = conv_layer_shape(&layer);
        const struct cuda_thin_tile tile = cuda_thin_tile_of(&shape, true, 99 << 10);
        n_tiles += cuda_thin_boxes(&shape, true, &tile) > 0;
        try_thin_parts(&layer, true, &tile, try_slope);
    }
    assert_int_equal(n_tiles, 2 * 3);
}

/* One that could be launched, if there were more room than for a few numbers. */
static struct cuda_bn_grad launchable(const struct cuda_conv_shape *s, void *room, int parts)
{
    const struct cuda_rows rows = {.data = room,
                                   .rows = s->n * s->h * s->w,
                                   .cols = s->c,
                                   .stored = s->c,
                                   .pitch = s->c,
                                   .type = CUDA_BF16};
    return (struct cuda_bn_grad){
        .d_dst = rows, .src = rows, .training = true, .scratch = room, .summed = parts};
}

/* Such launches fail; they do not begin. */
static void test_what_cannot_be_summed_is_an_error(void **state)
{
    (void)state;
    const struct conv_layer layer = {
        .n = 64, .h = 32, .w = 32, .c = 64, .k = 64, .kernel = 3, .stride = 1};
    const struct cuda_conv_shape s = conv_layer_shape(&layer);
    _Alignas(16) float room[4] = {0};
    const struct cuda_bn_grad fine = launchable(&s, room, 64);
    const struct cuda_rows rows = fine.src;
    struct cuda_bn_grad bn = fine;
    assert_true(cuda_strip_sums(&s, true));
    bn.scratch = NULL;
    assert_int_equal(cuda_strip_d_src_summed(&s, room, room, &bn, NULL), cudaErrorInvalidValue);
    bn = fine;
    bn.src.data = NULL;
    assert_int_equal(cuda_strip_d_src_summed(&s, room, room, &bn, NULL), cudaErrorInvalidValue);
    bn = fine;
    bn.src.pitch = 72;
    assert_int_equal(cuda_strip_d_src_summed(&s, room, room, &bn, NULL), cudaErrorInvalidValue);
    bn = fine;
    bn.d_dst2 = rows;
    bn.d_dst2.rows = 1;
    assert_int_equal(cuda_strip_d_src_summed(&s, room, room, &bn, NULL), cudaErrorInvalidValue);
    bn = fine;
    bn.training = false;
    assert_int_equal(cuda_bn_grad(&bn, NULL), cudaErrorInvalidValue);
    bn = fine;
    bn.src.type = CUDA_F32;
    assert_int_equal(cuda_bn_grad(&bn, NULL), cudaErrorInvalidValue);
    bn = fine;
    bn.d_residual = rows;
    bn.d_residual.data = room + 1;
    assert_int_equal(cuda_bn_grad(&bn, NULL), cudaErrorInvalidValue);
}

/* The same of thin layers; more parts than boxes; 1x1, strides, channels that lanes do not have in turn. */
static void test_what_thin_kernels_cannot_sum_is_an_error(void **state)
{
    (void)state;
    struct conv_layer layer = {8, 8, 8, 32, 32, 3, 1};
    const struct cuda_conv_shape s = conv_layer_shape(&layer);
    struct cuda_thin_tile tile = {.rows = 2, .warps = 4, .columns = 32, .chunk = 32, .stages = 1};
    _Alignas(16) float room[4] = {0};
    const struct cuda_bn_grad fine = launchable(&s, room, 4);
    const struct cuda_rows rows = fine.src;
    struct cuda_bn_grad bad[5] = {fine, fine, fine, fine, fine};
    assert_int_equal(cuda_thin_boxes(&s, true, &tile), 4);
    bad[0].summed = 5;
    bad[1].summed = 0;
    bad[2].scratch = NULL;
    bad[3].src.pitch = 40;
    bad[4].dst = rows;
    bad[4].dst.rows = 1;
    for (int i = 0; i < 5; i++)
        assert_int_equal(cuda_thin_d_src_summed(&s, &tile, room, room, &bad[i], NULL),
                         cudaErrorInvalidValue);
    tile.columns = 48;
    assert_int_equal(cuda_thin_boxes(&s, true, &tile), 0);
    assert_int_equal(cuda_thin_d_src_summed(&s, &tile, room, room, &fine, NULL),
                     cudaErrorInvalidValue);
    tile.columns = 32;
    for (int i = 0; i < 2; i++) {
        layer.kernel = i == 0 ? 1 : 3;
        layer.stride = i == 0 ? 1 : 2;
        const struct cuda_conv_shape other = conv_layer_shape(&layer);
        assert_true(cuda_thin_shared(&other, true, false, &tile) > 0);
        assert_int_equal(cuda_thin_boxes(&other, true, &tile), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_reaches_batch_norm),
        cmocka_unit_test(test_what_reaches_batch_norm_from_every_thin_tile),
        cmocka_unit_test(test_what_reaches_batch_norm_from_thin_tiles_of_the_rule),
        cmocka_unit_test(test_what_cannot_be_summed_is_an_error),
        cmocka_unit_test(test_what_thin_kernels_cannot_sum_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

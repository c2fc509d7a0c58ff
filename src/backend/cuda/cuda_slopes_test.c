/*
 * Gradients of convolutions' data that leave the sums of batch norm's gradient: what every kernel that does so gives
 * batch norm, the gradient of batch norm with it; and the rule that chooses them, which needs no GPU.
 */
#include "backend/cuda/cuda.h"

#include "support/bf16.h"
#include "support/cuda/conv_arrays.h"
#include "support/tensor_check.h"
#include "support/test_ctx.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    struct kind kind;
    char what[120];
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

static void trial_init(struct trial *t, const struct conv_layer *layer)
{
    *t = (struct trial){.bytes = cuda_bn_sums(layer->c, layer->n)};
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
    assert_cuda(cuda_strip_d_src(&t->a.shape, t->plain, t->a.dst, t->a.weights, NULL));
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
    bn.summed = (int)t->a.shape.n;
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
    return cuda_strip_d_src_summed(&a->shape, a->dst, a->weights, &bn, NULL);
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

/* f32 rounds each of a hundred additions by 2^-24 at most. */
static void check_sums(const struct trial *t)
{
    const struct cuda_conv_shape *s = &t->a.shape;
    const int64_t area = s->h * s->w;
    const int64_t width = s->c > 32 ? 64 : 32; /* of a slice */
    float *g = conv_numbers(t->a.actual, t->a.n_src, true);
    float *x = conv_numbers(t->src, t->a.n_src, true);
    float *sums = conv_numbers(t->room, (int64_t)(t->bytes + 2 * (size_t)GUARD) / 4, false);
    for (int64_t i = 0; i < s->n * s->c; i++) {
        const int64_t image = i / s->c;
        const int64_t c = i % s->c;
        const float *part = sums + GUARD / 4 + (c / width * s->n + image) * 2 * width + c % width;
        double first = 0.0;
        double second = 0.0;
        double size = 0.0;
        for (int64_t k = image * area; k < (image + 1) * area; k++) {
            first += (double)g[k * s->c + c];
            second += (double)g[k * s->c + c] * (double)x[k * s->c + c];
            size += 2.0 * fabs((double)g[k * s->c + c]);
        }
        if (!(fabs((double)part[0] - first) <= 6e-6 * size) ||
            !(fabs((double)part[width] - second) <= 6e-6 * size))
            fail_msg("%s: image %lld, channel %lld: sums %g and %g, want %g and %g", t->what,
                     (long long)image, (long long)c, (double)part[0], (double)part[width], first,
                     second);
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
        (void)snprintf(t->what, sizeof t->what, "%lld <- %lld of %lld, kind %d",
                       (long long)t->a.shape.c, (long long)t->a.shape.k, (long long)t->a.shape.h,
                       (int)i);
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
        trial_init(&t, &layer);
        try_kinds(&t);
        trial_fini(&t);
        n_kernels++;
    }
    assert_true(n_kernels >= 10);
}

/* Such launches fail; they do not begin. */
static void test_what_cannot_be_summed_is_an_error(void **state)
{
    (void)state;
    const struct conv_layer layer = {
        .n = 64, .h = 32, .w = 32, .c = 64, .k = 64, .kernel = 3, .stride = 1};
    const struct cuda_conv_shape s = conv_layer_shape(&layer);
    _Alignas(16) float room[4] = {0};
    const struct cuda_rows rows = {.data = room,
                                   .rows = s.n * s.h * s.w,
                                   .cols = s.c,
                                   .stored = s.c,
                                   .pitch = s.c,
                                   .type = CUDA_BF16};
    const struct cuda_bn_grad fine = {
        .d_dst = rows, .src = rows, .training = true, .scratch = room, .summed = 64};
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

/* ---- the rule ------------------------------------------------------------------------------------------ */

enum { SRC, DST, OTHER_GRADIENT, BACK, D_DST, WEIGHTS, D_SRC, D_RESIDUAL, MEANS, N_VALUES };
enum { NORM, OTHER, CONV, GRADIENT, BEHIND, N_STEPS };
enum { CHANNELS = 32, SIZE = 32 };

/* Batch norm with a ReLU; something that makes a second gradient; the gradient of data that reaches batch norm, and its
 * gradient; a step that does nothing. No GPU is asked. */
struct fixture {
    struct der_ctx *ctx;
    struct cuda_backend cuda;
    struct cuda_program p;
    struct cuda_value values[N_VALUES];
    struct cuda_step steps[N_STEPS];
    struct cuda_derived derived[N_STEPS];
    int norm_in[BN_N_IN], norm_out[BN_N_OUT];
    int conv_in[2], conv_out;
    int gradient_in[BNG_N_IN], gradient_out[BNG_N_OUT];
    int other_out, behind_in;
};

static void fill_ids(int *ids, int n)
{
    for (int i = 0; i < n; i++)
        ids[i] = NO_VALUE;
}

static void make_nodes(struct fixture *f)
{
    fill_ids(f->norm_in, BN_N_IN);
    fill_ids(f->norm_out, BN_N_OUT);
    fill_ids(f->gradient_in, BNG_N_IN);
    fill_ids(f->gradient_out, BNG_N_OUT);
    f->norm_in[BN_SRC] = f->gradient_in[BNG_SRC] = SRC;
    f->norm_out[BN_DST] = f->gradient_in[BNG_DST] = DST;
    f->norm_out[BN_MEAN] = f->gradient_in[BNG_MEAN] = MEANS;
    f->conv_in[CONV_D_SRC_WEIGHTS] = WEIGHTS;
    f->conv_in[CONV_D_SRC_D_DST] = D_DST;
    f->conv_out = f->gradient_in[BNG_D_DST] = BACK;
    f->gradient_out[BNG_D_SRC] = D_SRC;
    f->other_out = OTHER_GRADIENT;
    f->behind_in = NO_VALUE;
    f->steps[NORM].node = (struct node){.op = OP_BATCHNORM,
                                        .in = f->norm_in,
                                        .n_in = BN_N_IN,
                                        .out = f->norm_out,
                                        .n_out = BN_N_OUT};
    f->steps[OTHER].node = (struct node){.op = OP_ADD, .out = &f->other_out, .n_out = 1};
    f->steps[CONV].node = (struct node){
        .op = OP_CONV2D_D_SRC, .in = f->conv_in, .n_in = 2, .out = &f->conv_out, .n_out = 1};
    f->steps[CONV].node.attr.conv = (struct conv_attr){.stride = 1, .pad = 1};
    f->steps[GRADIENT].node = (struct node){.op = OP_BATCHNORM_GRAD,
                                            .in = f->gradient_in,
                                            .n_in = BNG_N_IN,
                                            .out = f->gradient_out,
                                            .n_out = BNG_N_OUT};
    f->steps[NORM].node.attr.norm = f->steps[GRADIENT].node.attr.norm =
        (struct norm_attr){.training = true, .relu = true};
    f->steps[BEHIND].node = (struct node){.op = OP_ADD, .in = &f->behind_in, .n_in = 1};
}

static void make(struct fixture *f, int64_t n, bool strips)
{
    *f = (struct fixture){.ctx = test_ctx_new(1)};
    for (int v = 0; v < N_VALUES; v++) {
        f->values[v].slot.shape =
            v == WEIGHTS ? shape_4d(CHANNELS, CHANNELS, 3, 3) : shape_4d(n, CHANNELS, SIZE, SIZE);
        f->values[v].stored = CHANNELS;
        f->values[v].owner = v;
        f->values[v].kind = v == WEIGHTS ? VALUE_EXTERNAL : VALUE_TEMP;
    }
    f->cuda.base.ctx = f->ctx;
    f->cuda.strips = strips;
    f->cuda.shared = 227 << 10;
    f->p = (struct cuda_program){.base = {.be = &f->cuda.base},
                                 .values = f->values,
                                 .n_values = N_VALUES,
                                 .steps = f->steps,
                                 .n_steps = N_STEPS,
                                 .derived = f->derived,
                                 .precision = PRECISION_BF16,
                                 .type = CUDA_BF16};
    arena_init(&f->p.arena, &f->ctx->mem);
    make_nodes(f);
    f->steps[GRADIENT].scratch_bytes = 1;
    assert_ok(f->ctx, cuda_conv_init(&f->p, &f->steps[CONV]));
}

static void drop(struct fixture *f)
{
    arena_fini(&f->p.arena);
    test_ctx_free(f->ctx);
}

static void check_summed(struct fixture *f, bool is_plain)
{
    cuda_statistics_plan(&f->p);
    assert_ptr_equal(f->steps[GRADIENT].summed_by, &f->steps[CONV]);
    assert_ptr_equal(f->steps[CONV].conv->norm, &f->steps[GRADIENT]);
    assert_int_equal(f->steps[GRADIENT].is_plain, is_plain);
    assert_int_equal(f->steps[GRADIENT].scratch_bytes,
                     f->steps[CONV].conv->shape.n * CHANNELS * 2 * (int)sizeof(float));
    assert_int_equal(cuda_statistics_first(&f->p, GRADIENT), CONV);
    assert_int_equal(f->gradient_in[BNG_D_DST], BACK);
    drop(f);
}

static void check_apart(struct fixture *f)
{
    cuda_statistics_plan(&f->p);
    assert_null(f->steps[GRADIENT].summed_by);
    assert_null(f->steps[CONV].conv->norm);
    assert_int_equal(f->steps[GRADIENT].scratch_bytes, 1);
    assert_int_equal(cuda_statistics_first(&f->p, GRADIENT), GRADIENT);
    assert_int_equal(f->values[D_RESIDUAL].owner, D_RESIDUAL);
    drop(f);
}

static void test_a_gradient_leaves_the_sums_of_its_batch_norm(void **state)
{
    (void)state;
    static const int64_t batches[] = {64, 128, 256};
    for (int i = 0; i < 3; i++) {
        struct fixture f;
        make(&f, batches[i], true);
        check_summed(&f, true);
    }
}

/* Whichever of the two comes from the convolution. What it writes is the residual's gradient too. */
static void test_a_second_gradient_is_added_on_the_way(void **state)
{
    (void)state;
    for (int is_second = 0; is_second < 2; is_second++) {
        struct fixture f;
        make(&f, 128, true);
        f.norm_in[BN_RESIDUAL] = SRC;
        f.gradient_in[is_second ? BNG_D_DST2 : BNG_D_DST] = BACK;
        f.gradient_in[is_second ? BNG_D_DST : BNG_D_DST2] = OTHER_GRADIENT;
        f.gradient_out[BNG_D_RESIDUAL] = D_RESIDUAL;
        cuda_statistics_plan(&f.p);
        assert_int_equal(f.gradient_in[BNG_D_DST2], OTHER_GRADIENT);
        assert_int_equal(f.values[D_RESIDUAL].owner, BACK);
        assert_int_equal(f.values[D_RESIDUAL].kind, VALUE_ALIAS);
        drop(&f);
        make(&f, 128, true);
        f.norm_in[BN_RESIDUAL] = SRC;
        f.gradient_in[is_second ? BNG_D_DST2 : BNG_D_DST] = BACK;
        f.gradient_in[is_second ? BNG_D_DST : BNG_D_DST2] = OTHER_GRADIENT;
        check_summed(&f, false);
    }
}

/* The convolution waits for what the gradient of batch norm reads, which comes so much later that it would leave it to
 * another lane. */
static void test_lanes_know_what_is_read_on_the_way(void **state)
{
    (void)state;
    struct fixture f;
    make(&f, 128, true);
    f.gradient_in[BNG_D_DST2] = OTHER_GRADIENT;
    const struct cuda_step gradient = f.steps[GRADIENT];
    f.steps[GRADIENT] = f.steps[BEHIND];
    f.steps[BEHIND] = gradient;
    cuda_lanes_plan(&f.p);
    const struct cuda_step *other = &f.steps[OTHER];
    assert_int_equal(other->lane, LANE_BRANCH);
    cuda_statistics_plan(&f.p);
    assert_ptr_equal(f.steps[BEHIND].summed_by, &f.steps[CONV]);
    cuda_lanes_plan(&f.p);
    assert_true(other->lane == f.steps[CONV].lane || (f.steps[CONV].waits >> other->lane & 1U));
    drop(&f);
}

/* On request, without kernels, so many images that their parts are too many to be read, running statistics. */
static void test_others_leave_none(void **state)
{
    (void)state;
    struct fixture f;
    make(&f, 128, true);
    f.cuda.slopes_apart = true;
    check_apart(&f);
    make(&f, 128, false);
    check_apart(&f);
    make(&f, 257, true);
    check_apart(&f);
    make(&f, 128, true);
    f.steps[GRADIENT].node.attr.norm.training = false;
    check_apart(&f);
}

/* Somebody else who wants to see what comes back; a caller who does, or wants the residual's gradient; what comes to be
 * only behind the convolution; a result that another step changes. */
static void test_what_others_need_is_left_alone(void **state)
{
    (void)state;
    struct fixture f;
    make(&f, 128, true);
    f.behind_in = BACK;
    check_apart(&f);
    make(&f, 128, true);
    f.values[BACK].kind = VALUE_EXTERNAL;
    check_apart(&f);
    make(&f, 128, true);
    f.gradient_out[BNG_D_RESIDUAL] = D_RESIDUAL;
    f.values[D_RESIDUAL].kind = VALUE_EXTERNAL;
    check_apart(&f);
    make(&f, 128, true);
    f.gradient_in[BNG_D_DST2] = OTHER_GRADIENT;
    const struct cuda_step other = f.steps[OTHER];
    f.steps[OTHER] = f.steps[CONV];
    f.steps[CONV] = other;
    cuda_statistics_plan(&f.p);
    assert_null(f.steps[GRADIENT].summed_by);
    drop(&f);
    make(&f, 128, true);
    f.other_out = BACK;
    check_apart(&f);
}

/* Where there was a residual, or the result is that of something else, the source does not tell where the ReLU was
 * open. */
static void test_only_plain_batch_norm_is_computed_anew(void **state)
{
    (void)state;
    struct fixture f;
    make(&f, 128, true);
    f.norm_in[BN_RESIDUAL] = OTHER_GRADIENT;
    check_summed(&f, false);
    make(&f, 128, true);
    f.norm_in[BN_SRC] = D_SRC;
    check_summed(&f, false);
    make(&f, 128, true);
    f.gradient_in[BNG_DST] = OTHER_GRADIENT;
    check_summed(&f, false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_reaches_batch_norm),
        cmocka_unit_test(test_what_cannot_be_summed_is_an_error),
        cmocka_unit_test(test_a_gradient_leaves_the_sums_of_its_batch_norm),
        cmocka_unit_test(test_a_second_gradient_is_added_on_the_way),
        cmocka_unit_test(test_lanes_know_what_is_read_on_the_way),
        cmocka_unit_test(test_others_leave_none),
        cmocka_unit_test(test_what_others_need_is_left_alone),
        cmocka_unit_test(test_only_plain_batch_norm_is_computed_anew),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

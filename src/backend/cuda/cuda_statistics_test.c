/*
 * Sums for batch norm that convolutions leave: those of every kernel that does, batch norm with them, training in the
 * back end with and without them; and the rule that chooses them, which needs no GPU.
 */
#include "backend/cuda/cuda.h"

#include "support/cuda/conv_arrays.h"
#include "support/cuda/hand_program.h"
#include "support/cuda/thin_tiles.h"
#include "support/tensor_check.h"
#include "support/test_ctx.h"
#include "support/test_net.h"

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

/* A convolution, and what it leaves between guards. */
struct trial {
    struct conv_arrays a;
    const struct cuda_thin_tile *tile; /* of thin.cu; NULL: strip.cu */
    int parts;
    char what[160];
    size_t bytes; /* of sums */
    char *room;   /* on the GPU, guards included */
    char *sums;   /* the same on the host, after a launch */
};

static size_t room_bytes(const struct trial *t)
{
    return t->bytes + 2 * GUARD;
}

static void trial_init(struct trial *t, const struct conv_layer *layer,
                       const struct cuda_thin_tile *tile, int parts)
{
    *t = (struct trial){
        .tile = tile, .parts = parts, .bytes = cuda_bn_sums(layer->k, (int64_t)parts)};
    const int n = snprintf(t->what, sizeof t->what, "%lld -> %lld, %lld images of %lld, %d parts",
                           (long long)layer->c, (long long)layer->k, (long long)layer->n,
                           (long long)layer->h, parts);
    if (tile)
        (void)snprintf(t->what + n, sizeof t->what - (size_t)n, ", rows %d, warps %d, columns %d",
                       tile->rows, tile->warps, tile->columns);
    conv_arrays_init(&t->a, layer);
    assert_cuda(cudaMalloc((void **)&t->room, room_bytes(t)));
}

static void trial_fini(struct trial *t)
{
    conv_arrays_fini(&t->a);
    assert_cuda(cudaFree(t->room));
    free(t->sums);
}

static cudaError_t launch_summed(struct conv_arrays *a, const void *user)
{
    const struct trial *t = user;
    const struct conv_pass plain = {0};
    const struct cuda_thin operands = conv_arrays_operands(a, &plain);
    assert_cuda(cudaMemset(t->room, FRESH, room_bytes(t)));
    return t->tile
               ? cuda_thin_summed(&a->shape, t->tile, &operands, t->parts, t->room + GUARD, NULL)
               : cuda_strip_summed(&a->shape, &operands, t->room + GUARD, NULL);
}

static cudaError_t launch_plain(struct conv_arrays *a, const void *user)
{
    const struct trial *t = user;
    const struct conv_pass plain = {0};
    const struct cuda_thin operands = conv_arrays_operands(a, &plain);
    return t->tile ? cuda_thin(&a->shape, t->tile, &operands, NULL)
                   : cuda_strip(&a->shape, &operands, NULL);
}

static char *fetch(const void *device, size_t bytes)
{
    char *host = malloc(bytes);
    assert_non_null(host);
    assert_cuda(cudaMemcpy(host, device, bytes, cudaMemcpyDeviceToHost));
    return host;
}

/* Twice the same bytes, none of them around the sums, and the result is that of the kernel that sums nothing. */
static void check_launches(struct trial *t)
{
    const size_t bytes = (size_t)t->a.n_dst * 2;
    assert_cuda(launch_plain(&t->a, t));
    char *expected = fetch(t->a.actual, bytes);
    assert_cuda(launch_summed(&t->a, t));
    t->sums = fetch(t->room, room_bytes(t));
    conv_arrays_run(&t->a, bytes, launch_summed, t);
    char *again = fetch(t->room, room_bytes(t));
    char *actual = fetch(t->a.actual, bytes);
    assert_memory_equal(t->sums, again, room_bytes(t));
    assert_memory_equal(actual, expected, bytes);
    for (size_t i = 0; i < GUARD; i++) {
        assert_int_equal((unsigned char)t->sums[i], FRESH);
        assert_int_equal((unsigned char)t->sums[GUARD + t->bytes + i], FRESH);
    }
    free(expected);
    free(again);
    free(actual);
}

enum { CHANNELS_MAX = 128 };

/* Of pictures, channel by channel. */
struct totals {
    double sum[CHANNELS_MAX], size[CHANNELS_MAX], squares[CHANNELS_MAX];
};

static void add_totals(struct totals *totals, const float *numbers, int64_t pixels,
                       int64_t channels)
{
    *totals = (struct totals){0};
    for (int64_t i = 0; i < pixels; i++)
        for (int64_t c = 0; c < channels; c++) {
            const double x = (double)numbers[i * channels + c];
            totals->sum[c] += x;
            totals->size[c] += fabs(x);
            totals->squares[c] += x * x;
        }
}

/* Parts from `first` on, together. f32 rounds each of a hundred additions by 2^-24 at most. */
static void check_parts(const struct trial *t, const struct totals *totals, int first, int count)
{
    const int64_t k = t->a.shape.k;
    const int64_t width = k > 32 ? 64 : k > 16 ? 32 : 16; /* of a slice */
    const float *sums = (const float *)(const void *)(t->sums + GUARD);
    for (int64_t c = 0; c < k; c++) {
        double sum = 0.0;
        double squares = 0.0;
        for (int i = first; i < first + count; i++) {
            const float *part = sums + (c / width * t->parts + i) * 2 * width + c % width;
            sum += (double)part[0];
            squares += (double)part[width];
        }
        if (!(fabs(sum - totals->sum[c]) <= 6e-6 * totals->size[c]) ||
            !(fabs(squares - totals->squares[c]) <= 6e-6 * totals->squares[c]))
            fail_msg("%s: part %d, channel %lld: sums %g and %g, want %g and %g", t->what, first,
                     (long long)c, sum, squares, totals->sum[c], totals->squares[c]);
    }
}

/* Parts of strips are pictures; those of thin layers are whatever boxes a block had. */
static void check_sums(const struct trial *t)
{
    const struct cuda_conv_shape *s = &t->a.shape;
    const int64_t at_once = t->tile ? s->n : 1;
    const int64_t pixels = at_once * s->out_h * s->out_w;
    float *numbers = conv_numbers(t->a.actual, t->a.n_dst, true);
    assert_true(s->k <= CHANNELS_MAX);
    for (int64_t image = 0; image < s->n; image += at_once) {
        struct totals totals;
        add_totals(&totals, numbers + image * pixels * s->k, pixels, s->k);
        check_parts(t, &totals, (int)image, t->tile ? t->parts : 1);
    }
    free(numbers);
}

/* ---- batch norm with them -------------------------------------------------------------------------------- */

enum { GAMMA, BETA, RUNNING_MEAN, RUNNING_VAR, MEAN, INV_STD, N_VECTORS };

static void fill_with_ones(float *device, int64_t count)
{
    float *ones = malloc((size_t)count * sizeof *ones);
    assert_non_null(ones);
    for (int64_t i = 0; i < count; i++)
        ones[i] = 1.0F;
    assert_cuda(cudaMemcpy(device, ones, (size_t)count * sizeof *ones, cudaMemcpyHostToDevice));
    free(ones);
}

/* Of the result, into `expected`. vectors: [N_VECTORS][k] on the GPU, all ones at first. */
static void run_norm(const struct trial *t, float *vectors, void *scratch, int summed)
{
    const struct cuda_conv_shape *s = &t->a.shape;
    const struct cuda_rows rows = {.data = t->a.actual,
                                   .rows = s->n * s->out_h * s->out_w,
                                   .cols = s->k,
                                   .stored = s->k,
                                   .pitch = s->k,
                                   .type = CUDA_BF16};
    struct cuda_bn bn = {.src = rows,
                         .dst = rows,
                         .gamma = vectors + GAMMA * s->k,
                         .beta = vectors + BETA * s->k,
                         .running_mean = vectors + RUNNING_MEAN * s->k,
                         .running_var = vectors + RUNNING_VAR * s->k,
                         .mean = vectors + MEAN * s->k,
                         .inv_std = vectors + INV_STD * s->k,
                         .eps = 1e-5F,
                         .momentum = 0.1F,
                         .training = true,
                         .relu = true,
                         .scratch = scratch,
                         .summed = summed};
    bn.dst.data = t->a.expected;
    fill_with_ones(vectors, N_VECTORS * s->k);
    assert_cuda(cuda_bn(&bn, NULL));
    assert_cuda(cudaDeviceSynchronize());
}

/* With sums that are there, and with its own: squared errors of f32 in the vectors, and of few numbers of the result that
 * round to the neighbour in bf16. */
static void check_norm(const struct trial *t)
{
    const int64_t n = N_VECTORS * t->a.shape.k;
    void *scratch;
    float *vectors;
    assert_cuda(cudaMalloc(&scratch, cuda_bn_scratch(t->a.shape.k)));
    assert_cuda(cudaMalloc((void **)&vectors, (size_t)n * sizeof *vectors));
    run_norm(t, vectors, scratch, 0);
    float *expected = conv_numbers(vectors, n, false);
    float *dst = conv_numbers(t->a.expected, t->a.n_dst, true);
    run_norm(t, vectors, t->room + GUARD, t->parts);
    float *actual = conv_numbers(vectors, n, false);
    float *summed = conv_numbers(t->a.expected, t->a.n_dst, true);
    for (int i = RUNNING_MEAN; i < N_VECTORS; i++)
        assert_tensor_close(actual + i * t->a.shape.k, expected + i * t->a.shape.k, t->a.shape.k,
                            1e-11, t->what);
    assert_tensor_close(summed, dst, t->a.n_dst, 1e-8, t->what);
    free(expected);
    free(dst);
    free(actual);
    free(summed);
    assert_cuda(cudaFree(scratch));
    assert_cuda(cudaFree(vectors));
}

static void check_trial(struct trial *t)
{
    check_launches(t);
    check_sums(t);
    check_norm(t);
    trial_fini(t);
}

/* Every kernel that there is, whatever its channels. */
static void test_sums_are_those_of_the_result(void **state)
{
    (void)state;
    static const int64_t batches[] = {64, 88, 128};
    enum { STEP = 16, STEPS = 8, SIZES = 2 };
    int n_kernels = 0;
    skip_without_hopper();
    for (int i = 0; i < SIZES * STEPS * STEPS; i++) {
        struct conv_layer layer = {.n = 64, .kernel = 3, .stride = 1};
        layer.c = (i / STEPS % STEPS + 1) * STEP;
        layer.k = (i % STEPS + 1) * STEP;
        layer.h = layer.w = i < STEPS * STEPS ? 32 : 16;
        const struct cuda_conv_shape shape = conv_layer_shape(&layer);
        for (int j = 0; j < 3 && cuda_strip_sums(&shape, false); j++) {
            struct trial t;
            layer.n = batches[j];
            trial_init(&t, &layer, NULL, (int)layer.n);
            check_trial(&t);
            n_kernels += j == 0;
        }
    }
    assert_true(n_kernels >= 10);
}

static void try_sums(const struct conv_layer *layer, const struct cuda_thin_tile *tile, int parts)
{
    struct trial t;
    trial_init(&t, layer, tile, parts);
    check_trial(&t);
}

/* Images that fill no box, batches that fill none, channels that fill no slice or several, strides. */
static const struct conv_layer THIN_LAYERS[] = {
    {1, 5, 7, 16, 16, 3, 1},   {3, 8, 8, 32, 32, 3, 1},    {2, 9, 17, 16, 32, 3, 2},
    {9, 2, 2, 32, 16, 3, 1},   {5, 4, 4, 48, 48, 3, 1},    {3, 7, 5, 32, 48, 1, 2},
    {2, 6, 6, 64, 64, 1, 1},   {40, 8, 8, 64, 64, 3, 1},   {2, 8, 8, 48, 80, 3, 2},
    {1, 18, 35, 16, 16, 3, 1}, {17, 16, 16, 32, 64, 3, 2}, {7, 33, 31, 16, 16, 3, 1},
};
enum { N_THIN_LAYERS = sizeof THIN_LAYERS / sizeof *THIN_LAYERS };

static void test_sums_of_every_thin_tile(void **state)
{
    (void)state;
    if (!backend_is_usable(&cuda_backend))
        skip();
    assert_true(try_thin_tiles(THIN_LAYERS, N_THIN_LAYERS, false, try_sums) >= 300);
}

/* What networks have in training, as the rule cuts it up. */
static void test_sums_of_thin_tiles_of_the_rule(void **state)
{
    (void)state;
    static const int64_t batches[] = {1, 21, 128};
    static const int64_t channels[] = {16, 32, 64};
    int n_tiles = 0;
    if (!backend_is_usable(&cuda_backend))
        skip();
    for (int i = 0; i < 3 * 3 * 2; i++) {
        const int64_t size = 32 >> i % 3;
        const struct conv_layer layer = {
            batches[i / 6], size, size, channels[i % 3], channels[i % 3], i / 3 % 2 ? 1 : 3, 1};
        const struct cuda_conv_shape shape = conv_layer_shape(&layer);
        const struct cuda_thin_tile tile = cuda_thin_tile_of(&shape, false, 99 << 10);
        n_tiles += cuda_thin_boxes(&shape, false, &tile) > 0;
        try_thin_parts(&layer, false, &tile, try_sums);
    }
    assert_int_equal(n_tiles, 3 * 3 * 2);
}

/* Such launches fail; they do not begin. */
static void test_what_cannot_be_summed_is_an_error(void **state)
{
    (void)state;
    const struct conv_layer layer = {
        .n = 128, .h = 32, .w = 32, .c = 64, .k = 64, .kernel = 3, .stride = 1};
    struct cuda_conv_shape s = conv_layer_shape(&layer);
    float room = 0.0F;
    assert_true(cuda_strip_sums(&s, false));
    assert_int_equal(cuda_strip_summed(&s, &(struct cuda_thin){0}, NULL, NULL),
                     cudaErrorInvalidValue);
    assert_int_equal(cuda_strip_summed(&s, &(struct cuda_thin){.bias = &room}, &room, NULL),
                     cudaErrorInvalidValue);
    assert_int_equal(cuda_strip_summed(&s, &(struct cuda_thin){.residual = &room}, &room, NULL),
                     cudaErrorInvalidValue);
    assert_int_equal(cuda_strip_summed(&s, &(struct cuda_thin){.relu = true}, &room, NULL),
                     cudaErrorInvalidValue);
    s.c = 16;
    assert_false(cuda_strip_sums(&s, false));
    assert_int_equal(cuda_strip_summed(&s, &(struct cuda_thin){0}, &room, NULL),
                     cudaErrorInvalidValue);
    const struct cuda_bn frozen = {.src.type = CUDA_BF16, .summed = 1};
    const struct cuda_bn wide = {.src.type = CUDA_F32, .training = true, .summed = 1};
    assert_int_equal(cuda_bn(&frozen, NULL), cudaErrorInvalidValue);
    assert_int_equal(cuda_bn(&wide, NULL), cudaErrorInvalidValue);
}

/* The same of thin layers; more parts than boxes; channels that lanes do not have in turn. */
static void test_what_thin_kernels_cannot_sum_is_an_error(void **state)
{
    (void)state;
    const struct conv_layer layer = {8, 8, 8, 32, 32, 3, 1};
    const struct cuda_conv_shape s = conv_layer_shape(&layer);
    struct cuda_thin_tile tile = {.rows = 2, .warps = 4, .columns = 32, .chunk = 32, .stages = 1};
    const struct cuda_thin plain = {0};
    float room = 0.0F;
    assert_int_equal(cuda_thin_boxes(&s, false, &tile), 4);
    assert_int_equal(cuda_thin_summed(&s, &tile, &plain, 4, NULL, NULL), cudaErrorInvalidValue);
    assert_int_equal(cuda_thin_summed(&s, &tile, &plain, 0, &room, NULL), cudaErrorInvalidValue);
    assert_int_equal(cuda_thin_summed(&s, &tile, &plain, 5, &room, NULL), cudaErrorInvalidValue);
    const struct cuda_thin more[] = {{.bias = &room}, {.residual = &room}, {.relu = true}};
    for (int i = 0; i < 3; i++)
        assert_int_equal(cuda_thin_summed(&s, &tile, &more[i], 4, &room, NULL),
                         cudaErrorInvalidValue);
    tile.columns = 48;
    assert_true(cuda_thin_shared(&s, false, false, &tile) > 0);
    assert_int_equal(cuda_thin_boxes(&s, false, &tile), 0);
    assert_int_equal(cuda_thin_summed(&s, &tile, &plain, 4, &room, NULL), cudaErrorInvalidValue);
    tile.columns = 96;
    assert_int_equal(cuda_thin_boxes(&s, false, &tile), 0);
}

/* ---- the back end -------------------------------------------------------------------------------------- */

enum { BATCH = 64, LAYERS = 2, N_PARAMS = 5, N_RESULTS = LAYERS * N_PARAMS + 1, RUNS = 3 };

/* Two layers, the second with a shortcut; what comes out: running statistics, gradients, the loss. */
struct net {
    struct graph *g;
    int results[N_RESULTS];
};

static int param(struct graph *g, const char *name, const char *suffix, struct shape shape,
                 bool trainable)
{
    char full[32];
    int value;
    (void)snprintf(full, sizeof full, "%s.%s", name, suffix);
    assert_ok(g->ctx, graph_param(g, full, shape, trainable, &value));
    return value;
}

/* results: [N_PARAMS] parameters. */
static int conv_norm(struct graph *g, const char *name, int src, int *results)
{
    const int64_t c = g->values[src].shape.dim[1];
    const struct shape vector = shape_1d(c);
    const int weights = param(g, name, "weights", shape_4d(c, c, 3, 3), true);
    const struct batchnorm_params params = {
        .gamma = param(g, name, "gamma", vector, true),
        .beta = param(g, name, "beta", vector, true),
        .running_mean = param(g, name, "running_mean", vector, false),
        .running_var = param(g, name, "running_var", vector, false),
    };
    int x;
    assert_ok(g->ctx, graph_conv2d(g, src, weights, 1, 1, &x));
    assert_ok(g->ctx, graph_batchnorm(g, x, &params, true, &x));
    results[0] = weights;
    results[1] = params.gamma;
    results[2] = params.beta;
    results[3] = params.running_mean;
    results[4] = params.running_var;
    return x;
}

static void net_init(struct net *net, struct der_ctx *ctx, int64_t channels, int64_t size)
{
    int image;
    int teacher;
    int weight;
    int x;
    int y;
    assert_ok(ctx, graph_new(ctx, &net->g));
    struct graph *g = net->g;
    assert_ok(ctx,
              graph_input(g, "image", DTYPE_F32, shape_4d(BATCH, channels, size, size), &image));
    assert_ok(ctx, graph_input(g, "teacher", DTYPE_F32, shape_2d(BATCH, channels), &teacher));
    assert_ok(ctx, graph_input(g, "main weight", DTYPE_F32, shape_1d(1), &weight));
    x = conv_norm(g, "a", image, net->results);
    assert_ok(ctx, graph_relu(g, x, &x));
    y = conv_norm(g, "b", x, net->results + N_PARAMS);
    assert_ok(ctx, graph_add(g, y, x, &y));
    assert_ok(ctx, graph_relu(g, y, &y));
    assert_ok(ctx, graph_avgpool(g, y, &y));
    assert_ok(ctx, graph_cosine_loss(g, y, teacher, weight, &net->results[N_RESULTS - 1]));
    assert_ok(ctx, graph_fuse(g));
    assert_ok(ctx, graph_backward(g));
    for (int i = 0; i < N_RESULTS; i++)
        if (g->values[net->results[i]].trainable)
            net->results[i] = g->values[net->results[i]].grad;
}

static int n_summed(const struct program *program, enum op op)
{
    const struct cuda_program *p = (const struct cuda_program *)program;
    int n = 0;
    for (int i = 0; i < p->n_steps; i++)
        n += p->steps[i].node.op == op && p->steps[i].summed_by != NULL;
    return n;
}

/* Several times, so that it is replayed, unless it is to go step by step. results: [N_RESULTS], the caller's. */
static void run_net(int64_t channels, int64_t size, struct backend_tuning tuning, bool step_by_step,
                    float **results)
{
    struct der_ctx *ctx = test_ctx_new(2);
    const struct backend_options options = {.precision = PRECISION_BF16, .tuning = tuning};
    struct backend *be = NULL;
    struct graph_runner runner;
    struct net net;
    assert_ok(ctx, backend_open(ctx, cuda_backend.name, &options, &be));
    net_init(&net, ctx, channels, size);
    graph_runner_init(&runner, be, net.g);
    assert_int_equal(n_summed(runner.program, OP_BATCHNORM), tuning.statistics_apart ? 0 : LAYERS);
    assert_int_equal(n_summed(runner.program, OP_BATCHNORM_GRAD),
                     tuning.slopes_apart ? 0 : LAYERS - 1); /* the last one's is of a pool */
    for (int i = 0; i < RUNS; i++) {
        if (step_by_step)
            be->ops->sequence_drop(be, runner.sequence);
        graph_runner_run(&runner);
    }
    for (int i = 0; i < N_RESULTS; i++)
        results[i] = graph_runner_read(&runner, net.results[i]);
    graph_runner_fini(&runner);
    graph_free(net.g);
    backend_close(be);
    test_ctx_free(ctx);
}

static int64_t result_count(int i, int64_t channels)
{
    return i == N_RESULTS - 1 ? 1 : i % N_PARAMS == 0 ? channels * channels * 9 : channels;
}

/* Sums in another order move means and deviations by a few units of 2^-24, and so a number in ten thousand to its
 * neighbour in bf16, relative 2^-8. Where two gradients meet and sums are left for the gradient, their sum is rounded to
 * bf16, by 2^-9 at most, which is 3e-6 of its square; what batch norm leaves of it is smaller, and rounded otherwise then:
 * 7e-6 of the square of what reaches the convolution, 12e-6 of its weights' gradient (computed with these numbers). */
static void compare_nets(int64_t channels, int64_t size)
{
    const struct backend_tuning usual = {0};
    float *apart[N_RESULTS];
    float *slopes[N_RESULTS];
    float *summed[N_RESULTS];
    float *again[N_RESULTS];
    run_net(channels, size, (struct backend_tuning){.statistics_apart = true}, false, apart);
    run_net(channels, size, (struct backend_tuning){.slopes_apart = true}, false, slopes);
    run_net(channels, size, usual, false, summed);
    run_net(channels, size, usual, true, again);
    for (int i = 0; i < N_RESULTS; i++) {
        const int64_t n = result_count(i, channels);
        char what[80];
        (void)snprintf(what, sizeof what, "%lld channels, result %d", (long long)channels, i);
        assert_memory_equal(summed[i], again[i], (size_t)n * sizeof(float));
        assert_tensor_close(summed[i], apart[i], n, 1e-6, what);
        assert_tensor_close(summed[i], slopes[i], n, 2e-5, what);
        free(apart[i]);
        free(slopes[i]);
        free(summed[i]);
        free(again[i]);
    }
}

/* Two kinds of kernels, and 40 channels with padding. */
static void test_training_is_the_same_with_them(void **state)
{
    (void)state;
    skip_without_hopper();
    compare_nets(64, 32);
    compare_nets(40, 32);
    compare_nets(32, 32);
    compare_nets(128, 16);
}

static void test_training_of_thin_layers_is_the_same_with_them(void **state)
{
    (void)state;
    if (!backend_is_usable(&cuda_backend))
        skip();
    compare_nets(16, 32);
    compare_nets(16, 9);
    compare_nets(10, 32);
}

/* ---- the rule ------------------------------------------------------------------------------------------ */

enum { IMAGE, WEIGHTS, RESULT, NORMED, N_VALUES };
enum { N_STEPS = 3 };

/* A convolution of 32 channels, 32 x 32 pixels, which is thin where it is no strip, and batch norm behind it; a step that
 * does nothing. No GPU is asked. */
struct fixture {
    struct hand_program hand;
    struct cuda_value values[N_VALUES];
    struct cuda_step steps[N_STEPS];
    struct cuda_derived derived[N_STEPS];
    int conv_in[2], norm_in[BN_N_IN];
    int conv_out, norm_out;
};

enum { CONV, NORM, OTHER };

static void make(struct fixture *f, int64_t n, bool strips)
{
    const struct conv_layer layer = {n, 32, 32, 32, 32, 3, 1};
    const struct hand_parts parts = {f->values, N_VALUES, WEIGHTS, f->steps, N_STEPS, f->derived};
    *f = (struct fixture){.conv_in = {IMAGE, WEIGHTS}, .conv_out = RESULT, .norm_out = NORMED};
    hand_program_init(&f->hand, &parts, &layer, strips);
    for (int i = 0; i < BN_N_IN; i++)
        f->norm_in[i] = i == BN_SRC ? RESULT : NO_VALUE;
    f->steps[CONV].node = (struct node){
        .op = OP_CONV2D, .in = f->conv_in, .n_in = 2, .out = &f->conv_out, .n_out = 1};
    f->steps[CONV].node.attr.conv = (struct conv_attr){.stride = 1, .pad = 1};
    f->steps[NORM].node = (struct node){
        .op = OP_BATCHNORM, .in = f->norm_in, .n_in = BN_N_IN, .out = &f->norm_out, .n_out = 1};
    f->steps[NORM].node.attr.norm.training = true;
    f->steps[NORM].scratch_bytes = 1;
    f->steps[OTHER].node.op = OP_JOIN;
    assert_ok(f->hand.ctx, cuda_conv_init(&f->hand.p, &f->steps[CONV]));
}

static void check_none_is_summed(struct fixture *f)
{
    cuda_statistics_plan(&f->hand.p);
    for (int i = 0; i < N_STEPS; i++) {
        assert_null(f->steps[i].summed_by);
        assert_true(!f->steps[i].conv || !f->steps[i].conv->norm);
        assert_int_equal(cuda_statistics_first(&f->hand.p, i), i);
    }
    hand_program_fini(&f->hand);
}

static void test_a_convolution_leaves_the_sums_of_its_batch_norm(void **state)
{
    (void)state;
    static const int64_t batches[] = {64, 128, 256};
    for (int i = 0; i < 3; i++) {
        struct fixture f;
        make(&f, batches[i], true);
        cuda_statistics_plan(&f.hand.p);
        assert_ptr_equal(f.steps[CONV].conv->norm, &f.steps[NORM]);
        assert_ptr_equal(f.steps[NORM].summed_by, &f.steps[CONV]);
        assert_int_equal(f.steps[NORM].scratch_bytes, batches[i] * 32 * 2 * (int)sizeof(float));
        assert_int_equal(f.steps[CONV].conv->parts, batches[i]);
        assert_int_equal(f.steps[CONV].scratch_bytes, 0);
        assert_int_equal(cuda_statistics_first(&f.hand.p, NORM), CONV);
        assert_int_equal(cuda_statistics_first(&f.hand.p, OTHER), OTHER);
        hand_program_fini(&f.hand);
    }
}

/* Thin layers leave as many parts as they have boxes, of 512 pixels where images are many, or as many as can be read. */
static void test_a_thin_layer_leaves_few_parts(void **state)
{
    (void)state;
    static const struct {
        int64_t batch;
        int parts;
    } cases[] = {{1, 16}, {64, 128}, {128, 256}, {257, 256}};
    for (int i = 0; i < 4; i++) {
        struct fixture f;
        const int parts = cases[i].parts;
        make(&f, cases[i].batch, false);
        assert_int_equal(f.steps[CONV].conv->way, CONV_BY_THIN);
        cuda_statistics_plan(&f.hand.p);
        assert_ptr_equal(f.steps[CONV].conv->norm, &f.steps[NORM]);
        assert_int_equal(f.steps[CONV].conv->parts, parts);
        assert_int_equal(f.steps[NORM].scratch_bytes, parts * 32 * 2 * (int)sizeof(float));
        hand_program_fini(&f.hand);
    }
}

/* On request, other kernels, so many images that their parts are too many to be read, results with a bias. */
static void test_others_leave_none(void **state)
{
    (void)state;
    struct fixture f;
    make(&f, 128, true);
    f.steps[CONV].node.op = OP_CONV2D_AFFINE;
    check_none_is_summed(&f);
    make(&f, 128, true);
    f.hand.cuda.statistics_apart = true;
    check_none_is_summed(&f);
    make(&f, 128, false);
    f.hand.cuda.statistics_apart = true;
    check_none_is_summed(&f);
    make(&f, 128, false);
    f.steps[CONV].conv->way = CONV_BY_CUDNN;
    check_none_is_summed(&f);
    make(&f, 257, true);
    check_none_is_summed(&f);
}

/* With running statistics there is nothing to sum. */
static void test_only_training_wants_sums(void **state)
{
    (void)state;
    struct fixture f;
    make(&f, 128, true);
    f.steps[NORM].node.attr.norm.training = false;
    check_none_is_summed(&f);
}

/* Batch norm of something else; of what another step has changed since; before the convolution. */
static void test_sums_are_of_what_batch_norm_reads(void **state)
{
    (void)state;
    struct fixture f;
    make(&f, 128, true);
    f.norm_in[BN_SRC] = IMAGE;
    check_none_is_summed(&f);
    make(&f, 128, true);
    f.steps[OTHER].node = (struct node){.op = OP_JOIN, .out = &f.conv_out, .n_out = 1};
    check_none_is_summed(&f);
    make(&f, 128, true);
    const struct cuda_step conv = f.steps[CONV];
    f.steps[CONV] = f.steps[NORM];
    f.steps[NORM] = conv;
    check_none_is_summed(&f);
}

/* Sums have one place. */
static void test_the_first_of_two_has_them(void **state)
{
    (void)state;
    struct fixture f;
    make(&f, 128, true);
    int second_out = IMAGE;
    f.steps[OTHER].node = f.steps[NORM].node;
    f.steps[OTHER].node.out = &second_out;
    cuda_statistics_plan(&f.hand.p);
    assert_ptr_equal(f.steps[NORM].summed_by, &f.steps[CONV]);
    assert_null(f.steps[OTHER].summed_by);
    assert_ptr_equal(f.steps[CONV].conv->norm, &f.steps[NORM]);
    hand_program_fini(&f.hand);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sums_are_those_of_the_result),
        cmocka_unit_test(test_sums_of_every_thin_tile),
        cmocka_unit_test(test_sums_of_thin_tiles_of_the_rule),
        cmocka_unit_test(test_what_cannot_be_summed_is_an_error),
        cmocka_unit_test(test_what_thin_kernels_cannot_sum_is_an_error),
        cmocka_unit_test(test_training_is_the_same_with_them),
        cmocka_unit_test(test_training_of_thin_layers_is_the_same_with_them),
        cmocka_unit_test(test_a_convolution_leaves_the_sums_of_its_batch_norm),
        cmocka_unit_test(test_a_thin_layer_leaves_few_parts),
        cmocka_unit_test(test_others_leave_none),
        cmocka_unit_test(test_only_training_wants_sums),
        cmocka_unit_test(test_sums_are_of_what_batch_norm_reads),
        cmocka_unit_test(test_the_first_of_two_has_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

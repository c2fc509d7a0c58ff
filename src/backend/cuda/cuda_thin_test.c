/*
 * Kernels for thin layers: every way to cut up the work against the plain kernels (conv.cu), on images that fill
 * no box and channels that fill no tile; and the rule that chooses among them, which needs no GPU.
 */
#include "backend/cuda/cuda.h"

#include "support/test_ctx.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern const struct backend_ops cuda_backend;

enum { MOST_SHARED = 99 << 10 }; /* what every GPU from compute capability 8.0 on gives a block */

struct layer {
    int64_t n, h, w, c, k, kernel, stride;
};

/* Tails smaller than a tile everywhere: one image, images of one pixel, of odd sizes, more channels than one chunk. */
static const struct layer LAYERS[] = {
    {1, 5, 7, 16, 16, 3, 1},   {3, 8, 8, 32, 32, 3, 1},    {2, 9, 17, 16, 32, 3, 2},
    {5, 4, 4, 48, 48, 3, 1},   {9, 2, 2, 32, 16, 3, 1},    {1, 18, 35, 16, 16, 3, 1},
    {3, 7, 5, 32, 48, 1, 2},   {2, 8, 8, 48, 80, 3, 2},    {2, 4, 4, 80, 112, 3, 1},
    {3, 1, 1, 16, 16, 3, 1},   {2, 6, 6, 64, 64, 1, 1},    {40, 8, 8, 64, 64, 3, 1},
    {3, 4, 4, 144, 208, 3, 1}, {2, 5, 4, 16, 64, 3, 2},    {70, 4, 4, 160, 160, 3, 1},
    {1, 6, 5, 208, 16, 1, 2},  {17, 16, 16, 32, 64, 3, 2}, {2, 33, 31, 64, 32, 3, 2},
};

enum { N_LAYERS = sizeof LAYERS / sizeof *LAYERS };

static struct cuda_conv_shape shape_of(const struct layer *l)
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

/* ---- arrays of the GPU ---------------------------------------------------------------------------- */

static void *device_array(size_t bytes)
{
    void *p = NULL;
    assert_int_equal(cudaMalloc(&p, bytes), cudaSuccess);
    assert_int_equal(cudaMemset(p, 0xff, bytes), cudaSuccess); /* NaN */
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

struct arrays {
    struct cuda_conv_shape shape;
    int64_t n_src, n_dst, n_weights;
    void *src, *dst, *weights, *residual;
    float *bias;
    void *expected, *actual; /* results */
    void *scratch;
};

static int64_t most(const struct arrays *a)
{
    int64_t n = a->n_src > a->n_dst ? a->n_src : a->n_dst;
    return n > 2 * a->n_weights ? n : 2 * a->n_weights;
}

enum { SCRATCH_BLOCKS = 5 };

static void arrays_init(struct arrays *a, const struct layer *layer)
{
    const struct cuda_conv_shape s = shape_of(layer);
    *a = (struct arrays){.shape = s,
                         .n_src = s.n * s.h * s.w * s.c,
                         .n_dst = s.n * s.out_h * s.out_w * s.k,
                         .n_weights = s.k * s.r * s.s * s.c};
    a->src = random_array(a->n_src, 1, true);
    a->dst = random_array(a->n_dst, 2, true);
    a->weights = random_array(a->n_weights, 3, true);
    a->residual = random_array(a->n_dst, 4, true);
    a->bias = random_array(s.k, 5, false);
    a->expected = device_array((size_t)most(a) * 2);
    a->actual = device_array((size_t)most(a) * 2);
    a->scratch = device_array((size_t)(SCRATCH_BLOCKS * a->n_weights) * sizeof(float));
}

static void arrays_fini(struct arrays *a)
{
    void *all[] = {a->src,  a->dst,      a->weights, a->residual,
                   a->bias, a->expected, a->actual,  a->scratch};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        assert_int_equal(cudaFree(all[i]), cudaSuccess);
}

/* ---- comparing --------------------------------------------------------------------------------------- */

static float *numbers_of(const void *device, int64_t count, bool is_bf16)
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

/* Sums in another order differ by little; rounded to bf16 they may fall to the other side. */
static void assert_same(const struct arrays *a, int64_t count, bool is_bf16, double extra,
                        const char *what)
{
    float *x = numbers_of(a->actual, count, is_bf16);
    float *y = numbers_of(a->expected, count, is_bf16);
    double largest = 0.0;
    for (int64_t i = 0; i < count; i++)
        largest = fabs((double)y[i]) > largest ? fabs((double)y[i]) : largest;
    for (int64_t i = 0; i < count; i++) {
        const double allowed =
            extra + 1e-5 * largest + (is_bf16 ? fabs((double)y[i]) / 128.0 : 0.0);
        if (!(fabs((double)x[i] - (double)y[i]) <= allowed))
            fail_msg("%s: number %lld is %g, want %g", what, (long long)i, (double)x[i],
                     (double)y[i]);
    }
    free(x);
    free(y);
}

/* ---- forwards and backwards ------------------------------------------------------------------------- */

/* Runs twice: what is there afterwards is the second result, and equal to the first bit by bit. */
static void run_tile(struct arrays *a, bool backwards, bool fused,
                     const struct cuda_thin_tile *tile)
{
    const size_t bytes = (size_t)(backwards ? a->n_src : a->n_dst) * 2;
    const struct cuda_thin thin = {.dst = a->actual,
                                   .src = a->src,
                                   .weights = a->weights,
                                   .bias = fused ? a->bias : NULL,
                                   .residual = fused ? a->residual : NULL,
                                   .relu = fused};
    void *first = malloc(bytes);
    void *second = malloc(bytes);
    assert_true(first && second);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(cudaMemset(a->actual, 0xff, bytes), cudaSuccess);
        if (backwards)
            assert_int_equal(cuda_thin_d_src(&a->shape, tile, a->actual, a->dst, a->weights, NULL),
                             cudaSuccess);
        else
            assert_int_equal(cuda_thin(&a->shape, tile, &thin, NULL), cudaSuccess);
        assert_int_equal(
            cudaMemcpy(i == 0 ? first : second, a->actual, bytes, cudaMemcpyDeviceToHost),
            cudaSuccess);
    }
    assert_memory_equal(first, second, bytes);
    free(first);
    free(second);
}

static void run_plain(struct arrays *a, bool backwards, bool fused)
{
    const struct cuda_conv_shape *s = &a->shape;
    if (backwards) {
        assert_int_equal(cuda_conv_d_src(s, a->expected, a->dst, a->weights, NULL), cudaSuccess);
        return;
    }
    assert_int_equal(cuda_conv(s, a->expected, a->src, a->weights, NULL), cudaSuccess);
    if (!fused)
        return;
    const struct cuda_rows rows = {.data = a->expected,
                                   .rows = s->n * s->out_h * s->out_w,
                                   .cols = s->k,
                                   .stored = s->k,
                                   .pitch = s->k,
                                   .type = CUDA_BF16};
    struct cuda_rows residual = rows;
    residual.data = a->residual;
    assert_int_equal(cuda_epilogue(rows, rows, a->bias, residual, true, NULL), cudaSuccess);
}

/* The tiles that there are for a layer, one after the other; false behind the last. */
static bool next_tile(const struct cuda_conv_shape *shape, bool backwards, bool residual, int *at,
                      struct cuda_thin_tile *tile)
{
    static const int chunks[] = {16, 32, 48, 80};
    enum { N = 3 * 4 * 5 * 4 * 4 };
    for (; *at < N; ++*at) {
        const int i = *at;
        *tile = (struct cuda_thin_tile){.rows = 1 << i % 3,
                                        .warps = 1 << i / 3 % 4,
                                        .columns = 16 * (1 + i / 12 % 5),
                                        .chunk = chunks[i / 60 % 4],
                                        .stages = 1 + i / 240};
        const size_t shared = cuda_thin_shared(shape, backwards, residual, tile);
        if (shared > 0 && shared <= MOST_SHARED) {
            ++*at;
            return true;
        }
    }
    return false;
}

/* Plain kernels round a sum before bias and residual, up to 2 each, may take it to zero. */
static void compare_tiles(bool backwards, bool fused)
{
    const double extra = fused ? 4.0 / 256.0 : 0.0;
    for (int i = 0; i < N_LAYERS; i++) {
        struct arrays a;
        struct cuda_thin_tile tile;
        char what[160];
        int n = 0;
        arrays_init(&a, &LAYERS[i]);
        run_plain(&a, backwards, fused);
        for (int at = 0; next_tile(&a.shape, backwards, fused, &at, &tile); n++) {
            (void)snprintf(what, sizeof what,
                           "layer %d, rows %d, warps %d, columns %d, chunk %d, stages %d", i,
                           tile.rows, tile.warps, tile.columns, tile.chunk, tile.stages);
            run_tile(&a, backwards, fused, &tile);
            assert_same(&a, backwards ? a.n_src : a.n_dst, true, extra, what);
        }
        assert_true(n >= 20);
        arrays_fini(&a);
    }
}

static void test_forward(void **state)
{
    (void)state;
    if (!backend_is_usable(&cuda_backend))
        skip();
    compare_tiles(false, false);
}

static void test_forward_with_bias_residual_and_relu(void **state)
{
    (void)state;
    if (!backend_is_usable(&cuda_backend))
        skip();
    compare_tiles(false, true);
}

static void test_gradient_of_data(void **state)
{
    (void)state;
    if (!backend_is_usable(&cuda_backend))
        skip();
    compare_tiles(true, false);
}

/* ---- weights ------------------------------------------------------------------------------------------ */

/* Fewer channels than are stored, as layers have that are padded. */
static void compare_weights(struct arrays *a, const struct cuda_thin_grad_tile *tile)
{
    const struct cuda_conv_shape *s = &a->shape;
    const struct cuda_weights sizes = {
        .k = s->k - 3, .c = s->c - 5, .area = s->r * s->s, .k_stored = s->k, .c_stored = s->c};
    const int64_t count = sizes.k * sizes.c * sizes.area;
    char what[120];
    (void)snprintf(what, sizeof what, "%lld -> %lld, pixels %d, chunk %d, blocks %d",
                   (long long)s->c, (long long)s->k, tile->pixels, tile->chunk, tile->blocks);
    assert_int_equal(cuda_conv_d_weights(s, a->scratch, a->src, a->dst, NULL), cudaSuccess);
    assert_int_equal(cuda_export_weights(a->expected, a->scratch, CUDA_F32, &sizes, NULL),
                     cudaSuccess);
    float *first = NULL;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(cudaMemset(a->actual, 0xff, (size_t)count * sizeof(float)), cudaSuccess);
        assert_int_equal(
            cuda_thin_d_weights(s, tile, a->actual, &sizes, a->src, a->dst, a->scratch, NULL),
            cudaSuccess);
        float *numbers = numbers_of(a->actual, count, false);
        if (first) {
            assert_memory_equal(first, numbers, (size_t)count * sizeof *first);
            free(numbers);
        } else {
            first = numbers;
        }
    }
    free(first);
    assert_same(a, count, false, 0.0, what);
}

static void test_gradient_of_weights(void **state)
{
    (void)state;
    int n = 0;
    if (!backend_is_usable(&cuda_backend))
        skip();
    for (int i = 0; i < N_LAYERS; i++) {
        struct arrays a;
        arrays_init(&a, &LAYERS[i]);
        for (int j = 0; j < 3 * 4 * 3; j++) {
            static const int blocks[] = {1, 3, SCRATCH_BLOCKS};
            const struct cuda_thin_grad_tile tile = {
                .pixels = 64 << j % 3, .chunk = 16 * (1 + j / 3 % 4), .blocks = blocks[j / 12]};
            const size_t shared = cuda_thin_grad_shared(&a.shape, &tile);
            if (shared == 0 || shared > MOST_SHARED)
                continue;
            compare_weights(&a, &tile);
            n++;
        }
        arrays_fini(&a);
    }
    assert_true(n > 100);
}

/* ---- the rule ------------------------------------------------------------------------------------------- */

/* What is served has tiles that exist, within the memory that a block can have; how many do. */
static int check_tiles(const struct cuda_conv_shape *shape, size_t most)
{
    int n = 0;
    for (int backwards = 0; backwards < 2; backwards++) {
        const struct cuda_thin_tile tile = cuda_thin_tile_of(shape, backwards, most);
        if (!cuda_thin_serves(shape, backwards ? DNN_D_SRC : DNN_FORWARD))
            continue;
        assert_in_range(cuda_thin_shared(shape, backwards, !backwards, &tile), 1, most);
        n++;
    }
    const struct cuda_thin_grad_tile tile = cuda_thin_grad_tile_of(shape, most);
    if (!cuda_thin_serves(shape, DNN_D_WEIGHTS))
        return n;
    assert_in_range(cuda_thin_grad_shared(shape, &tile), 1, most);
    assert_true(tile.blocks > 0);
    return n + 1;
}

static void test_tiles_of_the_rule_exist(void **state)
{
    (void)state;
    static const int64_t batches[] = {1, 17, 128, 1000};
    static const int64_t sizes[] = {1, 2, 4, 5, 8, 16, 32, 57};
    enum { N_SIZES = sizeof sizes / sizeof *sizes, MORE_SHARED = 227 << 10 };
    int n = 0;
    for (int64_t c = 16; c <= 512; c += c < 256 ? 16 : 64)
        for (int64_t k = 16; k <= 512; k += k < 256 ? 16 : 64)
            for (int i = 0; i < 4 * 4 * N_SIZES; i++) {
                const int64_t size = sizes[i / 16];
                const struct layer layer = {batches[i / 4 % 4], size,         size, c, k,
                                            i % 2 == 0 ? 3 : 1, 1 + i / 2 % 2};
                const struct cuda_conv_shape shape = shape_of(&layer);
                n += check_tiles(&shape, MOST_SHARED);
                n += check_tiles(&shape, MORE_SHARED);
            }
    assert_true(n > 10000);
}

static void test_what_is_not_served(void **state)
{
    (void)state;
    const struct layer thin = {8, 8, 8, 16, 16, 3, 1};
    const struct cuda_conv_shape shape = shape_of(&thin);
    for (int pass = DNN_FORWARD; pass <= DNN_D_WEIGHTS; pass++) {
        struct cuda_conv_shape s = shape;
        assert_true(cuda_thin_serves(&s, pass));
        s.type = CUDA_F32;
        assert_false(cuda_thin_serves(&s, pass));
        s = shape, s.c = 8;
        assert_false(cuda_thin_serves(&s, pass));
        s = shape, s.k = 24;
        assert_false(cuda_thin_serves(&s, pass));
        s = shape, s.stride = 3;
        assert_false(cuda_thin_serves(&s, pass));
        s = shape, s.pad = 0;
        assert_false(cuda_thin_serves(&s, pass));
        s = shape, s.r = 5, s.s = 5, s.pad = 2;
        assert_false(cuda_thin_serves(&s, pass));
        s = shape, s.c = 256, s.k = 256; /* cuDNN's ground */
        assert_false(cuda_thin_serves(&s, pass));
    }
}

/* One stage cannot hold the chunk that is multiplied and the next one. */
static void test_what_is_no_tile(void **state)
{
    (void)state;
    const struct layer layer = {8, 8, 8, 32, 32, 3, 1};
    const struct cuda_conv_shape shape = shape_of(&layer);
    const struct cuda_thin_tile good = {
        .rows = 2, .warps = 4, .columns = 32, .chunk = 32, .stages = 1};
    struct cuda_thin_tile tile = good;
    assert_true(cuda_thin_shared(&shape, false, false, &tile) > 0);
    tile.chunk = 16;
    assert_int_equal(cuda_thin_shared(&shape, false, false, &tile), 0);
    tile.stages = 2;
    assert_true(cuda_thin_shared(&shape, false, false, &tile) > 0);
    tile.stages = 5;
    assert_int_equal(cuda_thin_shared(&shape, false, false, &tile), 0);
    tile = good, tile.warps = 3;
    assert_int_equal(cuda_thin_shared(&shape, false, false, &tile), 0);
    tile = good, tile.warps = 16;
    assert_int_equal(cuda_thin_shared(&shape, false, false, &tile), 0);
    tile = good, tile.columns = 96;
    assert_int_equal(cuda_thin_shared(&shape, false, false, &tile), 0);
    tile = good, tile.chunk = 24;
    assert_int_equal(cuda_thin_shared(&shape, false, false, &tile), 0);
}

/* Sixteens for own kernels, cuDNN's tiles for all others. */
static void test_padding(void **state)
{
    (void)state;
    static const struct {
        int64_t channels, thin, whole;
    } cases[] = {{3, 8, 8},    {12, 16, 16},  {18, 32, 32},    {36, 48, 64},
                 {64, 64, 64}, {72, 80, 128}, {145, 160, 192}, {512, 512, 512}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(cuda_padded(CUDA_BF16, true, cases[i].channels), cases[i].thin);
        assert_int_equal(cuda_padded(CUDA_BF16, false, cases[i].channels), cases[i].whole);
    }
    assert_int_equal(cuda_padded(CUDA_F32, true, 36), 40);
}

/* Three convolutions in a row, of so many channels, the stem first. */
static void test_own_kernels_have_all_of_a_size_or_nothing(void **state)
{
    (void)state;
    enum { MOST = 80 };
    static const struct {
        int64_t channels[4];
        bool is_thin[4];
        int stride; /* of the last one */
    } cases[] = {{{3, 36, 40, 72}, {true, true, true, true}, 1},
                 {{3, 36, 72, 128}, {false, false, false, false}, 1}, /* too wide */
                 {{3, 36, 60, 36}, {false, false, false, false}, 1},  /* 48 x 64 is no gain */
                 {{3, 18, 20, 18}, {false, false, false, false}, 1},  /* 32 x 32 for both */
                 {{3, 36, 40, 128}, {true, true, true, false}, 2}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct value values[4] = {0};
        struct node nodes[3] = {0};
        const struct graph g = {.values = values, .n_values = 4, .nodes = nodes, .n_nodes = 3};
        int in[3][AFFINE_N_IN];
        int out[3];
        for (int v = 0; v < 4; v++)
            values[v].shape = shape_4d(2, cases[i].channels[v], 8, 8);
        for (int k = 0; k < 3; k++) {
            for (int j = 0; j < AFFINE_N_IN; j++)
                in[k][j] = NO_VALUE;
            in[k][AFFINE_SRC] = k;
            out[k] = k + 1;
            nodes[k] = (struct node){.op = OP_CONV2D_AFFINE,
                                     .in = in[k],
                                     .n_in = AFFINE_N_IN,
                                     .out = &out[k],
                                     .n_out = 1};
        }
        nodes[2].attr.conv.stride = cases[i].stride;
        for (int v = 0; v < 4; v++)
            assert_int_equal(cuda_is_thin(&g, v, MOST), cases[i].is_thin[v]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forward),
        cmocka_unit_test(test_forward_with_bias_residual_and_relu),
        cmocka_unit_test(test_gradient_of_data),
        cmocka_unit_test(test_gradient_of_weights),
        cmocka_unit_test(test_tiles_of_the_rule_exist),
        cmocka_unit_test(test_what_is_not_served),
        cmocka_unit_test(test_what_is_no_tile),
        cmocka_unit_test(test_padding),
        cmocka_unit_test(test_own_kernels_have_all_of_a_size_or_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

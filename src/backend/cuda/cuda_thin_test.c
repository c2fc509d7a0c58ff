/*
 * Kernels for thin layers: every way to cut up the work against the plain kernels (conv.cu), on images that fill
 * no box and channels that fill no tile; and the rule that chooses among them, which needs no GPU.
 */
#include "backend/cuda/cuda.h"

#include "support/cuda/conv_arrays.h"
#include "support/test_ctx.h"

#include <pthread.h>
#include <stdio.h>

extern const struct backend_ops cuda_backend;

enum { MOST_SHARED = 99 << 10 }; /* what every GPU from compute capability 8.0 on gives a block */

/* Tails smaller than a tile everywhere: one image, images of one pixel, of odd sizes, more channels than one chunk. */
static const struct conv_layer LAYERS[] = {
    {1, 5, 7, 16, 16, 3, 1},   {3, 8, 8, 32, 32, 3, 1},    {2, 9, 17, 16, 32, 3, 2},
    {5, 4, 4, 48, 48, 3, 1},   {9, 2, 2, 32, 16, 3, 1},    {1, 18, 35, 16, 16, 3, 1},
    {3, 7, 5, 32, 48, 1, 2},   {2, 8, 8, 48, 80, 3, 2},    {2, 4, 4, 80, 112, 3, 1},
    {3, 1, 1, 16, 16, 3, 1},   {2, 6, 6, 64, 64, 1, 1},    {40, 8, 8, 64, 64, 3, 1},
    {3, 4, 4, 144, 208, 3, 1}, {2, 5, 4, 16, 64, 3, 2},    {70, 4, 4, 160, 160, 3, 1},
    {1, 6, 5, 208, 16, 1, 2},  {17, 16, 16, 32, 64, 3, 2}, {2, 33, 31, 64, 32, 3, 2},
};

enum { N_LAYERS = sizeof LAYERS / sizeof *LAYERS };

/* ---- forwards and backwards ------------------------------------------------------------------------- */

struct tile_launch {
    struct conv_pass pass;
    struct cuda_thin_tile tile;
};

static cudaError_t launch_tile(struct conv_arrays *a, const void *user)
{
    const struct tile_launch *l = user;
    const struct cuda_thin thin = conv_arrays_operands(a, &l->pass);
    if (l->pass.backwards)
        return cuda_thin_d_src(&a->shape, &l->tile, a->actual, a->dst, a->weights, NULL);
    return cuda_thin(&a->shape, &l->tile, &thin, NULL);
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

static void compare_tiles(struct conv_pass pass)
{
    for (int i = 0; i < N_LAYERS; i++) {
        struct conv_arrays a;
        struct tile_launch l = {.pass = pass};
        char what[160];
        int n = 0;
        conv_arrays_init(&a, &LAYERS[i]);
        conv_arrays_expect(&a, &pass);
        const int64_t count = conv_arrays_count(&a, &pass);
        for (int at = 0; next_tile(&a.shape, pass.backwards, pass.residual, &at, &l.tile); n++) {
            (void)snprintf(what, sizeof what,
                           "layer %d, rows %d, warps %d, columns %d, chunk %d, stages %d", i,
                           l.tile.rows, l.tile.warps, l.tile.columns, l.tile.chunk, l.tile.stages);
            conv_arrays_run(&a, (size_t)count * 2, launch_tile, &l);
            conv_arrays_compare(&a, count, true, what);
        }
        assert_true(n >= 20);
        conv_arrays_fini(&a);
    }
}

static void test_forward(void **state)
{
    (void)state;
    if (!backend_is_usable(&cuda_backend))
        skip();
    compare_tiles((struct conv_pass){0});
}

static void test_forward_with_bias_residual_and_relu(void **state)
{
    (void)state;
    if (!backend_is_usable(&cuda_backend))
        skip();
    compare_tiles((struct conv_pass){.bias = true, .residual = true, .relu = true});
}

static void test_gradient_of_data(void **state)
{
    (void)state;
    if (!backend_is_usable(&cuda_backend))
        skip();
    compare_tiles((struct conv_pass){.backwards = true});
}

struct launcher {
    struct conv_arrays arrays;
    struct tile_launch launch;
    cudaError_t error;
};

/* No assertions in here: cmocka's belong to the main thread. */
static void *launch_often(void *argument)
{
    struct launcher *l = argument;
    for (int i = 0; i < 2000 && l->error == cudaSuccess; i++)
        l->error = launch_tile(&l->arrays, &l->launch);
    return NULL;
}

/* One kernel with little and with much shared memory. */
static void test_threads_launch_a_kernel_with_memory_of_their_own(void **state)
{
    (void)state;
    static const struct conv_layer layer = {40, 8, 8, 64, 64, 3, 1};
    const struct cuda_conv_shape shape = conv_layer_shape(&layer);
    struct launcher two[2] = {
        {.launch.tile = {.rows = 1, .warps = 4, .columns = 32, .chunk = 16, .stages = 2}},
        {.launch.tile = {.rows = 1, .warps = 4, .columns = 32, .chunk = 64, .stages = 2}}};
    pthread_t threads[2];
    assert_in_range(cuda_thin_shared(&shape, false, false, &two[0].launch.tile), 1, 48 << 10);
    assert_in_range(cuda_thin_shared(&shape, false, false, &two[1].launch.tile), 49 << 10,
                    MOST_SHARED);
    if (!backend_is_usable(&cuda_backend))
        skip();
    for (int i = 0; i < 2; i++)
        conv_arrays_init(&two[i].arrays, &layer);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, launch_often, &two[i]), 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    for (int i = 0; i < 2; i++) {
        assert_string_equal(cudaGetErrorString(two[i].error), cudaGetErrorString(cudaSuccess));
        conv_arrays_fini(&two[i].arrays);
    }
}

/* ---- weights ------------------------------------------------------------------------------------------ */

/* Fewer channels than are stored, as layers have that are padded. */
static struct cuda_weights sizes_of(const struct cuda_conv_shape *s)
{
    return (struct cuda_weights){
        .k = s->k - 3, .c = s->c - 5, .area = s->r * s->s, .k_stored = s->k, .c_stored = s->c};
}

static cudaError_t launch_weights(struct conv_arrays *a, const void *user)
{
    const struct cuda_weights sizes = sizes_of(&a->shape);
    return cuda_thin_d_weights(&a->shape, user, a->actual, &sizes, a->src, a->dst, a->scratch,
                               NULL);
}

static void compare_weights(struct conv_arrays *a, const struct cuda_thin_grad_tile *tile)
{
    const struct cuda_conv_shape *s = &a->shape;
    const struct cuda_weights sizes = sizes_of(s);
    const int64_t count = sizes.k * sizes.c * sizes.area;
    char what[120];
    (void)snprintf(what, sizeof what, "%lld -> %lld, pixels %d, chunk %d, blocks %d",
                   (long long)s->c, (long long)s->k, tile->pixels, tile->chunk, tile->blocks);
    assert_int_equal(cuda_conv_d_weights(s, a->scratch, a->src, a->dst, NULL), cudaSuccess);
    assert_int_equal(cuda_export_weights(a->expected, a->scratch, CUDA_F32, &sizes, NULL),
                     cudaSuccess);
    conv_arrays_run(a, (size_t)count * sizeof(float), launch_weights, tile);
    conv_arrays_compare(a, count, false, what);
}

static void test_gradient_of_weights(void **state)
{
    (void)state;
    int n = 0;
    if (!backend_is_usable(&cuda_backend))
        skip();
    for (int i = 0; i < N_LAYERS; i++) {
        struct conv_arrays a;
        conv_arrays_init(&a, &LAYERS[i]);
        for (int j = 0; j < 3 * 4 * 3; j++) {
            static const int blocks[] = {1, 3, CONV_SCRATCH_BLOCKS};
            const struct cuda_thin_grad_tile tile = {
                .pixels = 64 << j % 3, .chunk = 16 * (1 + j / 3 % 4), .blocks = blocks[j / 12]};
            const size_t shared = cuda_thin_grad_shared(&a.shape, &tile);
            if (shared == 0 || shared > MOST_SHARED)
                continue;
            compare_weights(&a, &tile);
            n++;
        }
        conv_arrays_fini(&a);
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
                const struct conv_layer layer = {batches[i / 4 % 4], size,         size, c, k,
                                                 i % 2 == 0 ? 3 : 1, 1 + i / 2 % 2};
                const struct cuda_conv_shape shape = conv_layer_shape(&layer);
                n += check_tiles(&shape, MOST_SHARED);
                n += check_tiles(&shape, MORE_SHARED);
            }
    assert_true(n > 10000);
}

static void test_what_is_not_served(void **state)
{
    (void)state;
    const struct conv_layer thin = {8, 8, 8, 16, 16, 3, 1};
    const struct cuda_conv_shape shape = conv_layer_shape(&thin);
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
    const struct conv_layer layer = {8, 8, 8, 32, 32, 3, 1};
    const struct cuda_conv_shape shape = conv_layer_shape(&layer);
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
    } cases[] = {{3, 16, 16},  {12, 16, 16},  {18, 32, 32},    {36, 48, 64},
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
                 {{3, 36, 7, 72}, {false, false, false, false}, 1},   /* few channels count, too */
                 {{3, 36, 40, 128}, {true, true, true, false}, 2}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct value values[4] = {0};
        struct node nodes[3] = {0};
        const struct graph g = {.values = values, .n_values = 4, .nodes = nodes, .n_nodes = 3};
        int in[3][AFFINE_N_IN];
        int out[3];
        for (int v = 0; v < 4; v++)
            values[v].shape = shape_4d(2, cases[i].channels[v], 8, 8);
        values[0].kind = VALUE_EXTERNAL;
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
        cmocka_unit_test(test_threads_launch_a_kernel_with_memory_of_their_own),
        cmocka_unit_test(test_gradient_of_weights),
        cmocka_unit_test(test_tiles_of_the_rule_exist),
        cmocka_unit_test(test_what_is_not_served),
        cmocka_unit_test(test_what_is_no_tile),
        cmocka_unit_test(test_padding),
        cmocka_unit_test(test_own_kernels_have_all_of_a_size_or_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

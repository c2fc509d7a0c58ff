/*
 * Kernels of sheet.cu: every way to cut up the work against the plain kernels (conv.cu), on channels that fill no piece
 * and batches that fill no block; and the rules that choose them, which need no GPU.
 */
#include "backend/cuda/cuda.h"

#include "support/cuda/conv_arrays.h"
#include "support/test_ctx.h"

#include <stdio.h>

enum { MOST_SHARED = 227 << 10 };

/* Rests of every length with and without pieces before them, sources of one size and of twice that, results of one
 * part and of several, the last of which is cut off. */
static const struct conv_layer LAYERS[] = {
    {3, 16, 16, 80, 80, 3, 1},  {1, 16, 16, 64, 80, 3, 1},   {2, 16, 16, 96, 64, 3, 1},
    {3, 16, 16, 112, 96, 3, 1}, {1, 16, 16, 128, 112, 3, 1}, {2, 16, 16, 48, 48, 3, 1},
    {1, 16, 16, 16, 128, 3, 1}, {5, 8, 8, 208, 80, 3, 1},    {7, 8, 8, 80, 144, 3, 1},
    {2, 8, 8, 64, 208, 3, 1},   {3, 8, 8, 32, 16, 3, 1},     {2, 32, 32, 32, 112, 3, 2},
    {1, 32, 32, 48, 80, 3, 2},  {5, 16, 16, 80, 176, 3, 2},  {3, 16, 16, 144, 64, 3, 2},
    {2, 32, 32, 32, 80, 1, 2},  {3, 16, 16, 80, 80, 1, 2},   {2, 8, 8, 112, 48, 1, 1},
    {88, 16, 16, 80, 80, 3, 1}, {88, 8, 8, 144, 80, 3, 1},   {11, 4, 4, 192, 48, 3, 1},
    {9, 4, 4, 64, 112, 3, 1},   {3, 4, 4, 256, 32, 3, 1},    {88, 4, 4, 80, 64, 3, 1},
    {9, 8, 8, 80, 144, 3, 2},   {17, 8, 8, 64, 192, 3, 2},   {9, 8, 8, 80, 64, 1, 2},
};

enum { N_LAYERS = sizeof LAYERS / sizeof *LAYERS };

/* ---- kernels ------------------------------------------------------------------------------------------- */

struct launch {
    struct conv_pass pass;
    struct cuda_sheet_tile tile;
};

static cudaError_t launch_sheet(struct conv_arrays *a, const void *user)
{
    const struct launch *l = user;
    const struct cuda_thin operands = conv_arrays_operands(a, &l->pass);
    return cuda_sheet(&a->shape, &l->tile, &operands, NULL);
}

/* The tiles that there are for a layer, one after the other; false behind the last. */
static bool next_tile(const struct cuda_conv_shape *shape, int *at, struct cuda_sheet_tile *tile)
{
    static const int slots[] = {2, 3, 4, 9};
    enum { N = 4 * 4 * 7 * 2 };
    for (; *at < N; ++*at) {
        const int i = *at;
        *tile = (struct cuda_sheet_tile){.pictures = 1 + i / 4 % 4,
                                         .columns = 32 + 16 * (i / 16 % 7),
                                         .sheets = 1 + i / 112,
                                         .slots = slots[i % 4]};
        if (cuda_sheet_shared(shape, tile) > 0) {
            ++*at;
            return true;
        }
    }
    return false;
}

/* How many tiles there were. */
static int compare_tiles(const struct conv_layer *layer, const struct conv_pass *pass)
{
    struct conv_arrays a;
    struct launch l = {.pass = *pass};
    int n = 0;
    conv_arrays_init(&a, layer);
    conv_arrays_expect(&a, pass);
    for (int at = 0; next_tile(&a.shape, &at, &l.tile); n++) {
        char what[160];
        const int64_t count = conv_arrays_count(&a, pass);
        (void)snprintf(what, sizeof what,
                       "%lld -> %lld, %lldx%lld /%lld, %lld images of %lld: pictures %d, columns "
                       "%d, sheets %d, slots %d",
                       (long long)layer->c, (long long)layer->k, (long long)layer->kernel,
                       (long long)layer->kernel, (long long)layer->stride, (long long)layer->n,
                       (long long)layer->h, l.tile.pictures, l.tile.columns, l.tile.sheets,
                       l.tile.slots);
        conv_arrays_run(&a, (size_t)count * 2, launch_sheet, &l);
        conv_arrays_compare(&a, count, true, what);
    }
    conv_arrays_fini(&a);
    return n;
}

static void test_forward(void **state)
{
    (void)state;
    static const struct conv_pass plain = {0};
    int n = 0;
    skip_without_hopper();
    for (int i = 0; i < N_LAYERS; i++) {
        const int tiles = compare_tiles(&LAYERS[i], &plain);
        assert_true(tiles > 0);
        n += tiles;
    }
    assert_true(n > 200);
}

static void test_forward_with_bias_residual_and_relu(void **state)
{
    (void)state;
    skip_without_hopper();
    for (int i = 0; i < N_LAYERS; i++)
        assert_true(compare_tiles(&LAYERS[i], &CONV_EPILOGUES[i % N_CONV_EPILOGUES]) > 0);
}

/* ---- padding -------------------------------------------------------------------------------------------- */

/* Convolutions in a row, from a picture on; each result is as large as its source, or half as large. */
enum { N_VALUES = 6, NONE = 0 };

struct chain {
    int64_t channels[N_VALUES], sizes[N_VALUES];
    int64_t stored[N_VALUES]; /* NONE: by another rule */
};

static void check_chain(const struct chain *c, int64_t n)
{
    struct value values[2 * N_VALUES - 1] = {0}; /* weights behind images */
    struct node nodes[N_VALUES - 1] = {0};
    int in[N_VALUES - 1][AFFINE_N_IN];
    int out[N_VALUES - 1];
    const struct graph g = {
        .values = values, .n_values = 2 * N_VALUES - 1, .nodes = nodes, .n_nodes = N_VALUES - 1};
    for (int v = 0; v < N_VALUES; v++)
        values[v].shape = shape_4d(n, c->channels[v], c->sizes[v], c->sizes[v]);
    values[0].kind = VALUE_EXTERNAL;
    for (int k = 0; k < N_VALUES - 1; k++) {
        values[N_VALUES + k].shape = shape_4d(c->channels[k + 1], c->channels[k], 3, 3);
        for (int j = 0; j < AFFINE_N_IN; j++)
            in[k][j] = NO_VALUE;
        in[k][AFFINE_SRC] = k;
        in[k][AFFINE_WEIGHTS] = N_VALUES + k;
        out[k] = k + 1;
        nodes[k] = (struct node){
            .op = OP_CONV2D_AFFINE, .in = in[k], .n_in = AFFINE_N_IN, .out = &out[k], .n_out = 1};
        nodes[k].attr.conv =
            (struct conv_attr){.stride = (int)(c->sizes[k] / c->sizes[k + 1]), .pad = 1};
    }
    for (int v = 1; v < N_VALUES; v++) {
        assert_int_equal(cuda_is_narrow(&g, v), c->stored[v] != NONE);
        if (c->stored[v] != NONE)
            assert_int_equal(cuda_narrow_channels(&values[v].shape), c->stored[v]);
    }
}

static void test_all_of_a_size_is_narrow_or_nothing(void **state)
{
    (void)state;
    static const struct chain chains[] = {
        /* as pruned for accuracy */
        {{3, 35, 53, 99, 68, 164}, {32, 32, 32, 16, 16, 8}, {NONE, 48, 64, 112, 80, 176}},
        {{3, 27, 70, 185, 68, 176}, {16, 16, 16, 8, 8, 4}, {NONE, 32, 80, 192, 80, 176}},
        /* 400 channels of 4x4 do not fit */
        {{3, 70, 148, 400, 390, 70}, {8, 8, 8, 4, 4, 4}, {NONE, 80, 160, NONE, NONE, NONE}},
        /* thin.cu does these */
        {{3, 70, 68, 72, 70, 70}, {8, 8, 8, 8, 4, 4}, {NONE}},
        /* no strip from 48 to 32 */
        {{3, 35, 20, 99, 68, 70}, {32, 32, 32, 16, 16, 16}, {NONE, NONE, NONE, 112, 80, 80}},
        /* too wide for 16x16 in one block, so all of that size is cuDNN's */
        {{3, 35, 53, 400, 390, 70}, {32, 32, 32, 16, 16, 16}, {NONE, 48, 64, NONE, NONE, NONE}},
        /* pictures of other sizes */
        {{3, 70, 70, 70, 70, 70}, {48, 48, 24, 24, 12, 12}, {NONE, NONE, NONE, NONE, NONE, NONE}},
    };
    static const struct chain none = {{3, 35, 53, 99, 68, 164}, {32, 32, 32, 16, 16, 8}, {NONE}};
    for (size_t i = 0; i < sizeof chains / sizeof *chains; i++)
        check_chain(&chains[i], 128);
    check_chain(&none, 32); /* few images */
}

/* ---- the rule ------------------------------------------------------------------------------------------ */

static struct cuda_conv_shape shape_of(int64_t n, int64_t c, int64_t size, int64_t k,
                                       int64_t kernel, int64_t stride)
{
    const struct conv_layer layer = {n, size, size, c, k, kernel, stride};
    return conv_layer_shape(&layer);
}

/* What is served has a tile that exists, and few of its columns are for nothing. */
static void test_tiles_of_the_rule_exist(void **state)
{
    (void)state;
    int n = 0;
    for (int64_t c = 16; c <= 512; c += 16)
        for (int64_t k = 16; k <= 512; k += 16)
            for (int i = 0; i < 4; i++) {
                const int64_t stride = 1 + i % 2;
                const int64_t size = (i < 2 ? 8 : 16) * stride;
                const struct cuda_conv_shape s = shape_of(128, c, size, k, 3, stride);
                const struct cuda_sheet_tile tile = cuda_sheet_tile_of(&s);
                if (!cuda_sheet_serves(&s, DNN_FORWARD))
                    continue;
                assert_in_range(cuda_sheet_shared(&s, &tile), 1, MOST_SHARED);
                n++;
            }
    assert_true(n > 500);
}

static void test_what_is_not_served(void **state)
{
    (void)state;
    const struct cuda_conv_shape shape = shape_of(128, 80, 16, 80, 3, 1);
    struct cuda_conv_shape s = shape;
    assert_true(cuda_sheet_serves(&s, DNN_FORWARD));
    assert_false(cuda_sheet_serves(&s, DNN_D_SRC));
    assert_false(cuda_sheet_serves(&s, DNN_D_WEIGHTS));
    s.type = CUDA_F32;
    assert_false(cuda_sheet_serves(&s, DNN_FORWARD));
    s = shape, s.n = 63;
    assert_false(cuda_sheet_serves(&s, DNN_FORWARD));
    s = shape, s.n = INT32_MAX / 1024; /* more pixels than an int counts */
    assert_false(cuda_sheet_serves(&s, DNN_FORWARD));
    s = shape, s.c = 72;
    assert_false(cuda_sheet_serves(&s, DNN_FORWARD));
    s = shape, s.k = 72;
    assert_false(cuda_sheet_serves(&s, DNN_FORWARD));
    s = shape, s.w = 8, s.out_w = 8;
    assert_false(cuda_sheet_serves(&s, DNN_FORWARD));
    s = shape, s.h = 15, s.w = 15, s.stride = 1, s.out_h = 15, s.out_w = 15;
    assert_false(cuda_sheet_serves(&s, DNN_FORWARD));
    s = shape, s.pad = 0;
    assert_false(cuda_sheet_serves(&s, DNN_FORWARD));
    s = shape, s.r = 1, s.s = 1;
    assert_false(cuda_sheet_serves(&s, DNN_FORWARD));
    s = shape_of(128, 48, 16, 32, 3, 1);
    assert_true(cuda_sheet_serves(&s, DNN_FORWARD));
    s = shape_of(128, 32, 16, 32, 3, 1); /* thin */
    assert_false(cuda_sheet_serves(&s, DNN_FORWARD));
    s = shape_of(128, 80, 32, 80, 3, 1);
    assert_false(cuda_sheet_serves(&s, DNN_FORWARD));
    s = shape_of(128, 80, 31, 80, 3, 2); /* of an odd size */
    assert_false(cuda_sheet_serves(&s, DNN_FORWARD));
    s = shape_of(128, 80, 2, 80, 3, 1);
    assert_false(cuda_sheet_serves(&s, DNN_FORWARD));
    s = shape_of(128, 80, 24, 80, 3, 3);
    assert_false(cuda_sheet_serves(&s, DNN_FORWARD));
    s = shape_of(128, 256, 8, 256, 3, 1); /* cuDNN's ground */
    assert_false(cuda_sheet_serves(&s, DNN_FORWARD));
    s = shape_of(128, 160, 4, 160, 3, 1);
    assert_false(cuda_sheet_serves(&s, DNN_FORWARD));
    s = shape_of(128, 208, 4, 80, 3, 1);
    assert_true(cuda_sheet_serves(&s, DNN_FORWARD));
    s = shape_of(128, 80, 8, 80, 3, 1); /* thin.cu's */
    assert_false(cuda_sheet_serves(&s, DNN_FORWARD));
    s = shape_of(128, 80, 8, 96, 3, 1);
    assert_true(cuda_sheet_serves(&s, DNN_FORWARD));
}

/* Such a launch fails; it does not begin. */
static void test_what_is_no_tile(void **state)
{
    (void)state;
    const struct cuda_conv_shape shape = shape_of(128, 80, 16, 80, 3, 1);
    const struct cuda_thin operands = {0};
    const struct cuda_sheet_tile good = {.pictures = 1, .columns = 80, .sheets = 1, .slots = 4};
    static const struct cuda_sheet_tile bad[] = {
        {0, 80, 1, 4}, {2, 80, 1, 4},  {1, 72, 1, 4}, {1, 160, 1, 4}, {1, 80, 0, 4},
        {1, 80, 3, 4}, {1, 128, 2, 4}, {1, 80, 1, 1}, {1, 80, 1, 10},
    };
    assert_true(cuda_sheet_shared(&shape, &good) > 0);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(cuda_sheet_shared(&shape, &bad[i]), 0);
        assert_int_equal(cuda_sheet(&shape, &bad[i], &operands, NULL), cudaErrorInvalidValue);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forward),
        cmocka_unit_test(test_forward_with_bias_residual_and_relu),
        cmocka_unit_test(test_all_of_a_size_is_narrow_or_nothing),
        cmocka_unit_test(test_tiles_of_the_rule_exist),
        cmocka_unit_test(test_what_is_not_served),
        cmocka_unit_test(test_what_is_no_tile),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

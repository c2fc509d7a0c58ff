/*
 * Folded networks of thin layers as one launch: the same features as layer by layer; and where everything lies in shared
 * memory, which needs no GPU.
 */
#include "backend/cuda/cuda.h"

#include "support/tensor_check.h"
#include "support/test_ctx.h"
#include "support/test_net.h"

#include <stdio.h>
#include <stdlib.h>

extern const struct backend_ops cuda_backend;

enum { MOST_SHARED = 227 << 10, MAX_STAGES = 3, MAX_BLOCKS = 25, RUNS = 3 };

/* A residual network of two convolutions to a block; all stages but the first begin with a stride. */
struct thin_net {
    int64_t n, h, w;
    int n_stages, n_blocks;
    int stream[MAX_STAGES];
    int inner[MAX_STAGES][MAX_BLOCKS];
};

/* What pruning leaves of the modified 32-layer network, few channels everywhere; pictures of other shapes. */
static const struct thin_net NETS[] = {
    {130, 32, 32, 3, 5, {13, 24, 37}, {{8, 10, 8, 7, 11}, {27, 9, 5, 3, 5}, {42, 25, 10, 4, 17}}},
    {64, 32, 32, 3, 5, {4, 8, 15}, {{4, 4, 4, 4, 4}, {8, 8, 8, 8, 8}, {15, 15, 15, 15, 15}}},
    {1, 32, 32, 2, 2, {5, 20}, {{16, 1}, {17, 28}}},
    {5, 16, 16, 3, 2, {30, 44, 40}, {{31, 9}, {30, 16}, {20, 9}}},
    {3, 16, 64, 3, 1, {16, 40, 80}, {{11}, {12}, {32}}},
    {9, 16, 16, 3, 1, {16, 16, 16}, {{16}, {16}, {160}}},
};

enum { N_NETS = sizeof NETS / sizeof *NETS };

/* ---- graphs ----------------------------------------------------------------------------------------------- */

static int param(struct graph *g, int layer, const char *suffix, struct shape shape)
{
    char name[32];
    int value;
    (void)snprintf(name, sizeof name, "%d.%s", layer, suffix);
    assert_ok(g->ctx, graph_param(g, name, shape, false, &value));
    return value;
}

static int conv_norm(struct graph *g, int *layer, int src, int64_t k, int kernel, int stride)
{
    const int64_t c = g->values[src].shape.dim[1];
    const struct batchnorm_params params = {
        .gamma = param(g, *layer, "gamma", shape_1d(k)),
        .beta = param(g, *layer, "beta", shape_1d(k)),
        .running_mean = param(g, *layer, "running_mean", shape_1d(k)),
        .running_var = param(g, *layer, "running_var", shape_1d(k)),
    };
    const int weights = param(g, (*layer)++, "weights", shape_4d(k, c, kernel, kernel));
    int x;
    assert_ok(g->ctx, graph_conv2d(g, src, weights, stride, kernel / 2, &x));
    assert_ok(g->ctx, graph_batchnorm(g, x, &params, false, &x));
    return x;
}

static int block(struct graph *g, int *layer, int src, int64_t inner, int64_t k, int stride)
{
    const bool has_shortcut = stride > 1 || g->values[src].shape.dim[1] != k;
    int x = conv_norm(g, layer, src, inner, 3, stride);
    assert_ok(g->ctx, graph_relu(g, x, &x));
    x = conv_norm(g, layer, x, k, 3, 1);
    const int shortcut = has_shortcut ? conv_norm(g, layer, src, k, 1, stride) : src;
    assert_ok(g->ctx, graph_add(g, x, shortcut, &x));
    assert_ok(g->ctx, graph_relu(g, x, &x));
    return x;
}

static struct graph *describe(struct der_ctx *ctx, const struct thin_net *net, int *features)
{
    struct graph *g;
    int layer = 0;
    int x;
    assert_ok(ctx, graph_new(ctx, &g));
    assert_ok(ctx, graph_input(g, "image", DTYPE_F32, shape_4d(net->n, 3, net->h, net->w), &x));
    x = conv_norm(g, &layer, x, net->stream[0], 3, 1);
    assert_ok(ctx, graph_relu(g, x, &x));
    for (int k = 0; k < net->n_stages; k++)
        for (int b = 0; b < net->n_blocks; b++)
            x = block(g, &layer, x, net->inner[k][b], net->stream[k], k > 0 && b == 0 ? 2 : 1);
    assert_ok(ctx, graph_avgpool(g, x, features));
    assert_ok(ctx, graph_expose(g, *features));
    assert_ok(ctx, graph_fuse(g));
    return g;
}

/* What a program does with a description: nodes in the order of the back end, which the caller frees. */
static bool make_chain(const struct graph *g, size_t shared, struct graph *ordered,
                       struct cuda_chain *chain)
{
    bool is_worth_it;
    *ordered = *g;
    ordered->nodes = calloc((size_t)g->n_nodes, sizeof *ordered->nodes);
    assert_non_null(ordered->nodes);
    cuda_lanes_order(g, ordered->nodes);
    assert_ok(g->ctx, cuda_chain_make(ordered, shared, chain, &is_worth_it));
    return is_worth_it;
}

static bool is_chain(const struct graph *g, size_t shared)
{
    struct graph ordered;
    struct cuda_chain chain;
    const bool is_worth_it = make_chain(g, shared, &ordered, &chain);
    free(ordered.nodes);
    return is_worth_it;
}

/* ---- on a GPU ---------------------------------------------------------------------------------------------- */

struct way {
    enum precision precision;
    bool layer_by_layer, step_by_step;
};

/* Several times, so that it is replayed, unless it is to go step by step. The caller frees. */
static float *features_of(const struct thin_net *net, const struct way *way, int64_t *count)
{
    struct der_ctx *ctx = test_ctx_new(2);
    const struct backend_options options = {.precision = way->precision,
                                            .tuning.without_chains = way->layer_by_layer};
    struct backend *be = NULL;
    struct graph_runner runner;
    int features;
    assert_ok(ctx, backend_open(ctx, cuda_backend.name, &options, &be));
    struct graph *g = describe(ctx, net, &features);
    graph_runner_init(&runner, be, g);
    const struct cuda_program *p = (const struct cuda_program *)runner.program;
    const bool is_wanted = way->precision == PRECISION_BF16 && !way->layer_by_layer;
    assert_int_equal(p->chain != NULL,
                     is_wanted && is_chain(g, ((struct cuda_backend *)be)->shared));
    for (int i = 0; i < RUNS; i++) {
        if (way->step_by_step)
            be->ops->sequence_drop(be, runner.sequence);
        graph_runner_run(&runner);
    }
    float *result = graph_runner_read(&runner, features);
    *count = shape_count(g->values[features].shape);
    graph_runner_fini(&runner);
    graph_free(g);
    backend_close(be);
    test_ctx_free(ctx);
    return result;
}

/* Sums in another order move some numbers in a hundred to their neighbours in bf16, relative 2^-8, in every layer. How far all
 * of these roundings lead away from f32 depends on the network, and is the same either way. */
static void compare_ways(const struct thin_net *net, const char *what)
{
    static const struct way chain = {PRECISION_BF16, false, false};
    static const struct way steps = {PRECISION_BF16, false, true};
    static const struct way layers = {PRECISION_BF16, true, false};
    static const struct way exact = {PRECISION_F32, false, false};
    int64_t count;
    float *by_chain = features_of(net, &chain, &count);
    float *by_steps = features_of(net, &steps, &count);
    float *by_layers = features_of(net, &layers, &count);
    float *expected = features_of(net, &exact, &count);
    assert_memory_equal(by_chain, by_steps, (size_t)count * sizeof(float));
    assert_tensor_close(by_chain, by_layers, count, 1e-5, what);
    assert_tensor_close(by_chain, expected, count, 1.5 * tensor_nmse(by_layers, expected, count),
                        what);
    assert_tensor_close(by_layers, expected, count, 1e-3, what);
    free(by_chain);
    free(by_steps);
    free(by_layers);
    free(expected);
}

static void test_features_are_those_of_all_layers(void **state)
{
    (void)state;
    if (!backend_is_usable(&cuda_backend))
        skip();
    for (int i = 0; i < N_NETS; i++) {
        char what[32];
        (void)snprintf(what, sizeof what, "network %d", i);
        compare_ways(&NETS[i], what);
    }
}

/* ---- shared memory ------------------------------------------------------------------------------------------- */

/* Bytes [first, end). */
struct range {
    size_t first, end;
};

static struct range range_of(int at, size_t bytes)
{
    return (struct range){(size_t)at, (size_t)at + bytes};
}

static void assert_apart(struct range a, struct range b)
{
    assert_true(a.end <= b.first || b.end <= a.first);
}

static struct range source_of(const struct cuda_chain_layer *l)
{
    const int64_t pixels = (int64_t)l->stride * l->stride << (l->log_w + l->log_h);
    return range_of(l->src_at, cuda_chain_image(pixels, l->c));
}

static struct range result_of(const struct cuda_chain_layer *l)
{
    return range_of(l->dst_at, cuda_chain_image((int64_t)1 << (l->log_w + l->log_h), l->k));
}

static struct range weights_of(const struct cuda_chain_layer *l)
{
    return range_of(l->weights_at, cuda_chain_weights(l->k, l->taps, l->c));
}

static void check_places(const struct cuda_chain *chain)
{
    const struct range zeros = range_of(chain->zeros_at, cuda_chain_zeros());
    for (int i = 0; i < chain->n; i++) {
        const struct cuda_chain_layer *l = &chain->layers[i];
        const struct range used[] = {source_of(l), result_of(l), weights_of(l), zeros};
        const bool brings_next = i + 1 < chain->n && l[1].is_early;
        assert_int_equal((l->log_w + l->log_h >= 4) + (l->c % 16 == 0) + (l->k % 16 == 0), 3);
        assert_true(l->residual_at < 0 || l->residual_at == l->dst_at);
        for (int a = 0; a < 4; a++) {
            assert_true(used[a].end <= chain->shared && used[a].first % 16 == 0);
            for (int b = 0; b < a; b++)
                assert_apart(used[a], used[b]);
            if (brings_next)
                assert_apart(used[a], weights_of(l + 1));
        }
    }
}

static bool make_net(struct der_ctx *ctx, const struct thin_net *net, struct cuda_chain *chain)
{
    int features;
    struct graph ordered;
    struct graph *g = describe(ctx, net, &features);
    const bool is_worth_it = make_chain(g, MOST_SHARED, &ordered, chain);
    free(ordered.nodes);
    graph_free(g);
    return is_worth_it;
}

static void test_images_and_weights_lie_apart(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    for (int i = 0; i < N_NETS; i++) {
        struct cuda_chain chain;
        if (!make_net(ctx, &NETS[i], &chain))
            fail_msg("network %d is no chain", i);
        assert_int_equal(chain.n, 2 * NETS[i].n_stages * NETS[i].n_blocks + NETS[i].n_stages - 1);
        assert_true(chain.shared <= MOST_SHARED / 2);
        check_places(&chain);
    }
    test_ctx_free(ctx);
}

static int producer(const struct graph *g, int value)
{
    int i = 0;
    while (g->nodes[i].out[0] != value)
        i++;
    return i;
}

/* From the layer that makes an image, the first convolution among them, to every one that reads it, nothing is written over it. */
static void check_lives(const struct graph *g, const struct cuda_chain *chain)
{
    for (int i = 1; i < g->n_nodes; i++)
        for (int k = 0; k < g->nodes[i].n_in; k++) {
            const int value = g->nodes[i].in[k];
            if (value == NO_VALUE || g->values[value].kind != VALUE_TEMP)
                continue;
            const bool is_pooled = i == g->n_nodes - 1;
            const struct cuda_chain_layer *reader = &chain->layers[i - 1];
            const struct range image = is_pooled              ? result_of(reader - 1)
                                       : k == AFFINE_RESIDUAL ? result_of(reader)
                                                              : source_of(reader);
            for (int at = producer(g, value) + 1; at < i; at++) {
                const struct cuda_chain_layer *between = &chain->layers[at - 1];
                assert_apart(image, result_of(between));
                assert_apart(image, weights_of(between));
            }
        }
}

static void test_images_live_until_they_are_read(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    for (int i = 0; i < N_NETS; i++) {
        struct cuda_chain chain;
        struct graph ordered;
        int features;
        struct graph *g = describe(ctx, &NETS[i], &features);
        assert_true(make_chain(g, MOST_SHARED, &ordered, &chain));
        check_lives(&ordered, &chain);
        free(ordered.nodes);
        graph_free(g);
    }
    test_ctx_free(ctx);
}

/* ---- which ------------------------------------------------------------------------------------------------------ */

static void test_other_networks_go_layer_by_layer(void **state)
{
    (void)state;
    static const struct thin_net others[] = {
        {2, 28, 28, 2, 1, {16, 32}, {{16}, {32}}},         /* no power of two */
        {2, 8, 8, 3, 1, {16, 16, 16}, {{16}, {16}, {16}}}, /* 2x2 in the end */
        {2, 32, 32, 1, 2, {64}, {{64, 64}}},               /* too large */
        {2, 16, 16, 2, 2, {32, 64}, {{32, 32}, {64, 64}}}, /* no room for weights that come early */
    };
    struct der_ctx *ctx = test_ctx_new(1);
    struct thin_net deep = {2, 16, 16, 1, 0, {16}, {{0}}};
    struct cuda_chain chain;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        assert_false(make_net(ctx, &others[i], &chain));
    for (; deep.n_blocks < MAX_BLOCKS; deep.n_blocks++)
        deep.inner[0][deep.n_blocks] = 16;
    assert_true(2 * deep.n_blocks > CUDA_CHAIN_MOST);
    assert_false(make_net(ctx, &deep, &chain));
    deep.n_blocks = CUDA_CHAIN_MOST / 2;
    assert_true(make_net(ctx, &deep, &chain));
    test_ctx_free(ctx);
}

static void show_a_layer(struct graph *g)
{
    g->values[g->nodes[2].out[0]].kind = VALUE_EXTERNAL;
}

static void compute_weights(struct graph *g)
{
    g->values[g->nodes[2].in[AFFINE_WEIGHTS]].kind = VALUE_TEMP;
}

static void pool_another(struct graph *g)
{
    g->nodes[g->n_nodes - 1].in[0] = g->nodes[0].out[0];
}

static void leave_pooling_out(struct graph *g)
{
    g->n_nodes--;
}

static void add_the_picture(struct graph *g)
{
    g->nodes[2].in[AFFINE_RESIDUAL] = g->nodes[0].in[AFFINE_SRC];
}

static void have_many_channels(struct graph *g)
{
    g->values[g->nodes[2].out[0]].shape.dim[1] = 257;
}

static void test_what_is_looked_at_inside_is_no_chain(void **state)
{
    (void)state;
    static void (*const changes[])(struct graph * g) = {show_a_layer,    compute_weights,
                                                        pool_another,    leave_pooling_out,
                                                        add_the_picture, have_many_channels};
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        struct der_ctx *ctx = test_ctx_new(1);
        int features;
        struct graph *g = describe(ctx, &NETS[2], &features);
        assert_true(is_chain(g, MOST_SHARED));
        changes[i](g);
        assert_false(is_chain(g, MOST_SHARED));
        graph_free(g);
        test_ctx_free(ctx);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_features_are_those_of_all_layers),
        cmocka_unit_test(test_images_and_weights_lie_apart),
        cmocka_unit_test(test_images_live_until_they_are_read),
        cmocka_unit_test(test_other_networks_go_layer_by_layer),
        cmocka_unit_test(test_what_is_looked_at_inside_is_no_chain),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

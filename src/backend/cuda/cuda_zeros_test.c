/*
 * Gradients of strided shortcuts without their zeros: training is the same as with them; and which images have none
 * stored, without a GPU.
 */
#include "backend/cuda/cuda.h"

#include "support/tensor_check.h"
#include "support/test_ctx.h"
#include "support/test_net.h"

#include <stdio.h>
#include <stdlib.h>

extern const struct backend_ops cuda_backend;

/* ---- training ------------------------------------------------------------------------------------------ */

enum { BATCH = 64, SIZE = 16, CHANNELS = 64, LAYERS = 3, N_RESULTS = 3 * LAYERS, RUNS = 3 };

/* A layer, and a block with a strided shortcut behind it; what comes out: the gradients of all parameters. */
struct net {
    struct graph *g;
    int results[N_RESULTS];
};

static int param(struct graph *g, int layer, const char *suffix, struct shape shape, bool trainable)
{
    char name[32];
    int value;
    (void)snprintf(name, sizeof name, "%d.%s", layer, suffix);
    assert_ok(g->ctx, graph_param(g, name, shape, trainable, &value));
    return value;
}

static int conv_norm(struct net *net, int layer, int src, int kernel, int stride)
{
    struct graph *g = net->g;
    const int64_t c = g->values[src].shape.dim[1];
    const struct shape vector = shape_1d(CHANNELS);
    int *results = net->results + 3 * layer;
    int x;
    results[0] = param(g, layer, "weights", shape_4d(CHANNELS, c, kernel, kernel), true);
    const struct batchnorm_params params = {
        .gamma = results[1] = param(g, layer, "gamma", vector, true),
        .beta = results[2] = param(g, layer, "beta", vector, true),
        .running_mean = param(g, layer, "running_mean", vector, false),
        .running_var = param(g, layer, "running_var", vector, false),
    };
    assert_ok(g->ctx, graph_conv2d(g, src, results[0], stride, kernel / 2, &x));
    assert_ok(g->ctx, graph_batchnorm(g, x, &params, true, &x));
    return x;
}

static void net_init(struct net *net, struct der_ctx *ctx)
{
    int image;
    int teacher;
    int weight;
    int x;
    int y;
    int loss;
    assert_ok(ctx, graph_new(ctx, &net->g));
    struct graph *g = net->g;
    assert_ok(ctx, graph_input(g, "image", DTYPE_F32, shape_4d(BATCH, 3, SIZE, SIZE), &image));
    assert_ok(ctx, graph_input(g, "teacher", DTYPE_F32, shape_2d(BATCH, CHANNELS), &teacher));
    assert_ok(ctx, graph_input(g, "main weight", DTYPE_F32, shape_1d(1), &weight));
    x = conv_norm(net, 0, image, 3, 1);
    assert_ok(ctx, graph_relu(g, x, &x));
    y = conv_norm(net, 1, x, 3, 2);
    x = conv_norm(net, 2, x, 1, 2);
    assert_ok(ctx, graph_add(g, y, x, &y));
    assert_ok(ctx, graph_relu(g, y, &y));
    assert_ok(ctx, graph_avgpool(g, y, &y));
    assert_ok(ctx, graph_cosine_loss(g, y, teacher, weight, &loss));
    assert_ok(ctx, graph_fuse(g));
    assert_ok(ctx, graph_backward(g));
    for (int i = 0; i < N_RESULTS; i++)
        net->results[i] = g->values[net->results[i]].grad;
}

static int n_sparse(const struct program *program)
{
    const struct cuda_program *p = (const struct cuda_program *)program;
    int n = 0;
    for (int v = 0; v < p->n_values; v++)
        n += p->values[v].sparse;
    return n;
}

/* Several times, so that it is replayed, unless it is to go step by step. counts: [N_RESULTS], results: the caller's. */
static void run_net(bool zeros, bool step_by_step, float **results, int64_t *counts)
{
    struct der_ctx *ctx = test_ctx_new(2);
    const struct backend_options options = {.precision = PRECISION_BF16,
                                            .tuning.zeros_stored = zeros};
    struct backend *be = NULL;
    struct graph_runner runner;
    struct net net;
    assert_ok(ctx, backend_open(ctx, cuda_backend.name, &options, &be));
    net_init(&net, ctx);
    graph_runner_init(&runner, be, net.g);
    assert_int_equal(n_sparse(runner.program), zeros ? 0 : 1);
    for (int i = 0; i < RUNS; i++) {
        if (step_by_step)
            be->ops->sequence_drop(be, runner.sequence);
        graph_runner_run(&runner);
    }
    for (int i = 0; i < N_RESULTS; i++) {
        results[i] = graph_runner_read(&runner, net.results[i]);
        counts[i] = shape_count(net.g->values[net.results[i]].shape);
    }
    graph_runner_fini(&runner);
    graph_free(net.g);
    backend_close(be);
    test_ctx_free(ctx);
}

/* The shortcut's gradient is computed by another kernel of cuDNN: sums in another order move a number in some hundred to
 * its neighbour in bf16, relative 2^-8. */
static void test_training_is_the_same_without_zeros(void **state)
{
    (void)state;
    float *with[N_RESULTS];
    float *without[N_RESULTS];
    float *again[N_RESULTS];
    int64_t counts[N_RESULTS];
    if (!backend_is_usable(&cuda_backend))
        skip();
    run_net(true, false, with, counts);
    run_net(false, false, without, counts);
    run_net(false, true, again, counts);
    for (int i = 0; i < N_RESULTS; i++) {
        char what[32];
        (void)snprintf(what, sizeof what, "result %d", i);
        assert_memory_equal(without[i], again[i], (size_t)counts[i] * sizeof(float));
        assert_tensor_close(without[i], with[i], counts[i], 1e-6, what);
        free(with[i]);
        free(without[i]);
        free(again[i]);
    }
}

/* ---- the rule ------------------------------------------------------------------------------------------ */

static int count_sparse(const struct graph *g)
{
    int n = 0;
    for (int v = 0; v < g->n_values; v++)
        n += cuda_is_sparse(g, v);
    return n;
}

/* The gradient of a strided shortcut's data. */
static struct node *gradient_of_shortcut(struct graph *g)
{
    for (int i = 0; i < g->n_nodes; i++) {
        struct node *node = &g->nodes[i];
        if (node->op == OP_CONV2D_D_SRC && node->attr.conv.stride == 2 &&
            g->values[node->in[CONV_D_SRC_WEIGHTS]].shape.dim[2] == 1)
            return node;
    }
    fail_msg("the network has no strided shortcut");
    return NULL;
}

static struct node *reader_of(struct graph *g, int value)
{
    for (int i = 0; i < g->n_nodes; i++)
        for (int k = 0; k < g->nodes[i].n_in; k++)
            if (g->nodes[i].in[k] == value)
                return &g->nodes[i];
    fail_msg("nothing reads value %d", value);
    return NULL;
}

static void make(struct net *net, struct der_ctx *ctx)
{
    net_init(net, ctx);
    assert_int_equal(count_sparse(net->g), 1);
    const struct node *conv = gradient_of_shortcut(net->g);
    assert_true(cuda_is_sparse(net->g, conv->out[0]));
}

static void test_zeros_of_shortcuts_are_not_stored(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    struct net net;
    make(&net, ctx);
    graph_free(net.g);
    test_ctx_free(ctx);
}

static void remove_second(struct graph *g, struct node *conv)
{
    struct node *norm = reader_of(g, conv->out[0]);
    norm->in[BNG_D_DST] = conv->out[0];
    norm->in[BNG_D_DST2] = NO_VALUE;
}

static void have_it_seen(struct graph *g, struct node *conv)
{
    g->values[conv->out[0]].kind = VALUE_EXTERNAL;
}

static void read_it_twice(struct graph *g, struct node *conv)
{
    conv->in[CONV_D_SRC_D_DST] = conv->out[0];
    (void)g;
}

static void make_it_odd(struct graph *g, struct node *conv)
{
    g->values[conv->out[0]].shape.dim[2]--;
}

static void make_it_broad(struct graph *g, struct node *conv)
{
    g->values[conv->out[0]].shape.dim[3] = 12;
}

static void take_the_stride_away(struct graph *g, struct node *conv)
{
    conv->attr.conv.stride = 1;
    (void)g;
}

static void test_other_images_are_stored_whole(void **state)
{
    (void)state;
    static void (*const changes[])(struct graph * g, struct node * conv) = {
        remove_second, have_it_seen,  read_it_twice,
        make_it_odd,   make_it_broad, take_the_stride_away};
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        struct der_ctx *ctx = test_ctx_new(1);
        struct net net;
        make(&net, ctx);
        changes[i](net.g, gradient_of_shortcut(net.g));
        assert_int_equal(count_sparse(net.g), 0);
        graph_free(net.g);
        test_ctx_free(ctx);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_training_is_the_same_without_zeros),
        cmocka_unit_test(test_zeros_of_shortcuts_are_not_stored),
        cmocka_unit_test(test_other_images_are_stored_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

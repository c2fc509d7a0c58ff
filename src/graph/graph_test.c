/*
 * Building, fusing and differentiating: the structure of graphs, without running them.
 */
#include "graph/graph.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

struct fixture {
    struct der_ctx *ctx;
    struct graph *g;
};

static int setup(void **state)
{
    static struct fixture f;
    if (der_ctx_new(NULL, &f.ctx) != DER_OK || graph_new(f.ctx, &f.g) != DER_OK)
        return -1;
    *state = &f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    graph_free(f->g);
    int leaked = der_ctx_memory(f->ctx).n_live != 0;
    der_ctx_free(f->ctx);
    return leaked;
}

#define OK(expression) assert_int_equal(expression, DER_OK)

static int input(struct graph *g, const char *name, struct shape shape)
{
    int value;
    OK(graph_input(g, name, DTYPE_F32, shape, &value));
    return value;
}

static int param(struct graph *g, const char *name, struct shape shape, bool trainable)
{
    int value;
    OK(graph_param(g, name, shape, trainable, &value));
    return value;
}

/* conv 3x3 and batch norm; returns the result of the latter. */
static int conv_bn(struct graph *g, int src, int64_t channels, bool trainable, bool training)
{
    struct shape x = g->values[src].shape;
    struct shape c = shape_1d(channels);
    int weights = param(g, "w", shape_4d(channels, x.dim[1], 3, 3), trainable);
    struct batchnorm_params norm = {.gamma = param(g, "gamma", c, trainable),
                                    .beta = param(g, "beta", c, trainable),
                                    .running_mean = input(g, "mean", c),
                                    .running_var = input(g, "var", c)};
    int value;
    OK(graph_conv2d(g, src, weights, 1, 1, &value));
    OK(graph_batchnorm(g, value, &norm, training, &value));
    return value;
}

static int count_op(const struct graph *g, enum op op)
{
    int n = 0;
    for (int i = 0; i < g->n_nodes; i++)
        n += g->nodes[i].op == op;
    return n;
}

static const struct node *first_of(const struct graph *g, enum op op)
{
    for (int i = 0; i < g->n_nodes; i++)
        if (g->nodes[i].op == op)
            return &g->nodes[i];
    fail_msg("no %s in the graph", op_name(op));
    return NULL;
}

static void test_misfits_are_refused_with_names_and_shapes(void **state)
{
    struct fixture *f = *state;
    struct graph *g = f->g;
    int x = input(g, "picture", shape_4d(2, 3, 8, 8));
    int w = param(g, "kernel", shape_4d(4, 5, 3, 3), true);
    int out;
    assert_int_equal(graph_conv2d(g, x, w, 1, 1, &out), DER_SHAPE);
    assert_non_null(strstr(der_ctx_error(f->ctx), "'picture' [2, 3, 8, 8]"));
    assert_non_null(strstr(der_ctx_error(f->ctx), "'kernel' [4, 5, 3, 3]"));
    int wide = param(g, "wide", shape_4d(4, 3, 11, 11), true);
    assert_int_equal(graph_conv2d(g, x, wide, 1, 1, &out), DER_SHAPE);
    int m = input(g, "m", shape_1d(4));
    assert_int_equal(graph_scale_channel(g, x, m, &out), DER_SHAPE);
    assert_int_equal(graph_scale(g, x, m, &out), DER_SHAPE);
    assert_int_equal(graph_add(g, x, m, &out), DER_SHAPE);
    assert_int_equal(graph_avgpool(g, m, &out), DER_SHAPE);
    assert_int_equal(graph_l2norm(g, x, &out), DER_SHAPE);
    assert_int_equal(graph_maxpool(g, x, 3, 2, 2, &out), DER_SHAPE);
    assert_int_equal(graph_expose(g, x), DER_ARG);
    assert_int_equal(graph_input(g, "none", DTYPE_F32, shape_2d(0, 4), &out), DER_SHAPE);
    assert_int_equal(graph_input(g, "huge", DTYPE_F32, shape_2d(INT64_MAX, 4), &out), DER_SHAPE);
    assert_int_equal(g->n_nodes, 0);
}

static void test_losses_check_labels_and_ranges(void **state)
{
    struct fixture *f = *state;
    struct graph *g = f->g;
    int z = input(g, "z", shape_2d(4, 6));
    int weight = input(g, "weight", shape_1d(1));
    int wrong = input(g, "floats", shape_1d(4));
    int labels;
    int out;
    OK(graph_input(g, "labels", DTYPE_I32, shape_1d(4), &labels));
    assert_int_equal(graph_softmax_xent(g, z, wrong, weight, NULL, &out), DER_SHAPE);
    assert_int_equal(graph_softmax_xent(g, z, labels, weight,
                                        &(struct xent_options){.first = 4, .count = 3}, &out),
                     DER_SHAPE);
    assert_int_equal(graph_margin_loss(g, z, labels, weight, 5, 2, 0.5f, &out), DER_SHAPE);
    assert_int_equal(graph_bce(g, z, labels, NO_VALUE, 2, weight, &out), DER_SHAPE);
    assert_int_equal(graph_rank(g, z, labels, -1, 0, &out), DER_SHAPE);
    OK(graph_softmax_xent(g, z, labels, weight, NULL, &out));
    assert_int_equal(g->nodes[0].attr.loss.count, 6);
    assert_true(g->nodes[0].attr.loss.temperature == 1.0f);
}

static void test_integers_are_refused_where_floats_are_wanted(void **state)
{
    struct fixture *f = *state;
    struct graph *g = f->g;
    int labels;
    int z = input(g, "z", shape_2d(4, 6));
    int out;
    OK(graph_input(g, "labels", DTYPE_I32, shape_2d(4, 6), &labels));
    assert_int_equal(graph_relu(g, labels, &out), DER_SHAPE);
    assert_int_equal(graph_add(g, z, labels, &out), DER_SHAPE);
    assert_int_equal(graph_l2norm(g, labels, &out), DER_SHAPE);
    assert_int_equal(graph_cosine_loss(g, z, labels, input(g, "w", shape_1d(1)), &out), DER_SHAPE);
    assert_non_null(strstr(der_ctx_error(f->ctx), "'labels'"));
    assert_int_equal(g->n_nodes, 0);
}

static void test_batchnorm_takes_in_mask_residual_and_relu(void **state)
{
    struct graph *g = ((struct fixture *)*state)->g;
    int x = input(g, "x", shape_4d(2, 4, 8, 8));
    int m = input(g, "m", shape_1d(4));
    int value = conv_bn(g, x, 4, true, true);
    OK(graph_scale_channel(g, value, m, &value));
    OK(graph_add(g, x, value, &value));
    OK(graph_relu(g, value, &value));
    OK(graph_fuse(g));
    assert_int_equal(g->n_nodes, 2);
    const struct node *norm = &g->nodes[1];
    assert_int_equal(norm->op, OP_BATCHNORM);
    assert_int_equal(norm->in[BN_MASK], m);
    assert_int_equal(norm->in[BN_RESIDUAL], x);
    assert_true(norm->attr.norm.relu);
    assert_int_equal(norm->out[BN_DST], value);
    assert_int_equal(g->values[value].producer, 1);
}

static void test_two_branches_fuse_once_and_in_order(void **state)
{
    struct graph *g = ((struct fixture *)*state)->g;
    int x = input(g, "x", shape_4d(2, 4, 8, 8));
    int left = conv_bn(g, x, 4, true, true);
    int right = conv_bn(g, x, 4, true, true);
    int sum;
    OK(graph_add(g, left, right, &sum));
    OK(graph_relu(g, sum, &sum));
    OK(graph_fuse(g));
    assert_int_equal(g->n_nodes, 4);
    assert_int_equal(g->nodes[3].op, OP_BATCHNORM);
    assert_int_equal(g->nodes[3].in[BN_RESIDUAL], right);
    assert_int_equal(g->values[right].producer, 2);
}

static void test_values_that_others_see_are_not_fused_away(void **state)
{
    struct graph *g = ((struct fixture *)*state)->g;
    int x = input(g, "x", shape_4d(2, 4, 8, 8));
    int value = conv_bn(g, x, 4, false, false);
    int relu;
    int twice;
    OK(graph_relu(g, value, &relu));
    OK(graph_expose(g, value));
    OK(graph_add(g, relu, relu, &twice));
    OK(graph_fuse(g));
    assert_int_equal(count_op(g, OP_RELU), 1);
    assert_int_equal(count_op(g, OP_CONV2D_AFFINE), 1);
}

static void test_only_frozen_convolutions_are_folded(void **state)
{
    struct graph *g = ((struct fixture *)*state)->g;
    int x = input(g, "x", shape_4d(2, 4, 8, 8));
    int frozen = conv_bn(g, x, 4, false, false);
    OK(graph_relu(g, frozen, &frozen));
    int trained = conv_bn(g, frozen, 4, true, false);
    int behind = conv_bn(g, trained, 4, false, false); /* a gradient passes through */
    OK(graph_add(g, behind, frozen, &behind));
    OK(graph_fuse(g));
    assert_int_equal(count_op(g, OP_CONV2D_AFFINE), 1);
    assert_int_equal(count_op(g, OP_CONV2D), 2);
    assert_true(first_of(g, OP_CONV2D_AFFINE)->attr.conv.relu);
}

/* A classifier on top of `features` with a cross-entropy loss. */
static void add_head(struct graph *g, int features, int64_t classes)
{
    struct shape f = g->values[features].shape;
    int weights = param(g, "head", shape_2d(classes, f.dim[1]), true);
    int labels;
    int logits;
    int loss;
    OK(graph_input(g, "labels", DTYPE_I32, shape_1d(f.dim[0]), &labels));
    OK(graph_linear(g, features, weights, NO_VALUE, &logits));
    OK(graph_softmax_xent(g, logits, labels, input(g, "weight", shape_1d(1)), NULL, &loss));
}

static void test_gradients_stop_at_frozen_parts(void **state)
{
    struct graph *g = ((struct fixture *)*state)->g;
    int x = input(g, "x", shape_4d(2, 3, 8, 8));
    int frozen = conv_bn(g, x, 4, false, true);
    int trained = conv_bn(g, frozen, 5, true, true);
    int pooled;
    OK(graph_avgpool(g, trained, &pooled));
    add_head(g, pooled, 3);
    OK(graph_backward(g));
    assert_int_equal(count_op(g, OP_CONV2D_D_WEIGHTS), 1);
    assert_int_equal(count_op(g, OP_CONV2D_D_SRC), 0);
    assert_int_equal(count_op(g, OP_BATCHNORM_GRAD), 1);
    for (int v = 0; v < g->n_values; v++)
        if (g->values[v].trainable)
            assert_int_equal(g->values[g->values[v].grad].kind, VALUE_EXTERNAL);
}

static void test_two_gradients_meet_inside_the_batchnorm(void **state)
{
    struct graph *g = ((struct fixture *)*state)->g;
    int x = input(g, "x", shape_4d(2, 3, 8, 8));
    int stream = conv_bn(g, x, 4, true, true);
    OK(graph_relu(g, stream, &stream));
    int branch = conv_bn(g, stream, 4, true, true);
    OK(graph_add(g, branch, stream, &branch));
    OK(graph_relu(g, branch, &branch));
    int pooled;
    OK(graph_avgpool(g, branch, &pooled));
    add_head(g, pooled, 3);
    OK(graph_fuse(g));
    OK(graph_backward(g));
    assert_int_equal(count_op(g, OP_ADD), 0);
    const struct node *last = NULL;
    for (int i = 0; i < g->n_nodes; i++)
        if (g->nodes[i].op == OP_BATCHNORM_GRAD)
            last = &g->nodes[i];
    assert_int_not_equal(last->in[BNG_D_DST2], NO_VALUE);
}

/* The joined matrix asks for the gradient of the trained columns only. */
static void test_join_passes_its_own_columns_back(void **state)
{
    struct graph *g = ((struct fixture *)*state)->g;
    int x = input(g, "x", shape_4d(2, 3, 8, 8));
    int matrix = input(g, "features", shape_2d(2, 11));
    int trained = conv_bn(g, x, 5, true, true);
    int pooled;
    int joined;
    OK(graph_avgpool(g, trained, &pooled));
    OK(graph_join(g, pooled, matrix, 6, &joined));
    add_head(g, joined, 3);
    add_head(g, pooled, 2);
    OK(graph_backward(g));
    int n_partial = 0;
    for (int i = 0; i < g->n_nodes; i++) {
        const struct node *node = &g->nodes[i];
        if (node->op != OP_LINEAR_D_SRC)
            continue;
        assert_true(shape_equal(g->values[node->out[0]].shape, shape_2d(2, 5)));
        n_partial += node->attr.columns.first == 6;
    }
    assert_int_equal(n_partial, 1);
    assert_int_equal(count_op(g, OP_LINEAR_D_SRC), 2);
}

static void test_join_wants_a_fresh_pooled_part(void **state)
{
    struct fixture *f = *state;
    struct graph *g = f->g;
    int matrix = input(g, "features", shape_2d(2, 11));
    int part = input(g, "part", shape_2d(2, 5));
    int out;
    assert_int_equal(graph_join(g, part, matrix, 0, &out), DER_SHAPE);
    assert_int_equal(graph_join(g, part, matrix, 7, &out), DER_SHAPE);
}

static void test_unreached_parameters_are_an_error(void **state)
{
    struct fixture *f = *state;
    struct graph *g = f->g;
    int pooled = input(g, "features", shape_2d(2, 4));
    add_head(g, pooled, 3);
    (void)param(g, "lonely", shape_1d(3), true);
    assert_int_equal(graph_backward(g), DER_STATE);
    assert_non_null(strstr(der_ctx_error(f->ctx), "'lonely'"));
}

static void test_sgd_needs_gradients(void **state)
{
    struct fixture *f = *state;
    struct graph *g = f->g;
    int p = param(g, "p", shape_1d(3), true);
    int velocity;
    struct sgd_attr attr = {.momentum = 0.9f, .gain = 1.0f, .low = -INFINITY, .high = INFINITY};
    assert_int_equal(graph_sgd(g, &p, 1, input(g, "lr", shape_1d(1)), &attr, &velocity), DER_STATE);
}

static void test_masks_share_one_gate_and_one_gradient(void **state)
{
    struct graph *g = ((struct fixture *)*state)->g;
    int x = input(g, "x", shape_4d(2, 3, 8, 8));
    int e[2] = {param(g, "e0", shape_1d(4), true), param(g, "e1", shape_1d(5), true)};
    int m[2];
    int loss;
    OK(graph_mask_gate(g, input(g, "s", shape_1d(1)), e, 2, MASK_GRADIENT_EXACT, 400.0f, m));
    int a = conv_bn(g, x, 4, true, true);
    OK(graph_scale_channel(g, a, m[0], &a));
    int b = conv_bn(g, a, 5, true, true);
    OK(graph_scale_channel(g, b, m[1], &b));
    const struct sparsity_layer layers[] = {{-1, 0, 9, 3}, {0, 1, 9, 0}};
    OK(graph_mask_sparsity(g, input(g, "lambda", shape_1d(1)), m, 2, layers, 2, NULL, &loss));
    int pooled;
    OK(graph_avgpool(g, b, &pooled));
    add_head(g, pooled, 3);
    OK(graph_fuse(g));
    OK(graph_backward(g));
    assert_int_equal(count_op(g, OP_MASK_GATE_GRAD), 1);
    assert_int_equal(first_of(g, OP_MASK_GATE_GRAD)->n_out, 2);
    assert_true(first_of(g, OP_MASK_SPARSITY)->attr.sparsity.total == 9.0 * 12 + 9.0 * 20);
    assert_int_not_equal(g->values[e[0]].grad, NO_VALUE);
    assert_int_equal(count_op(g, OP_SCALE_CHANNEL), 0);
}

static int ints(struct graph *g, const char *name, int64_t n)
{
    int value;
    OK(graph_input(g, name, DTYPE_I32, shape_1d(n), &value));
    return value;
}

static void test_feeding_wants_what_fits_together(void **state)
{
    const struct fixture *f = *state;
    struct graph *g = f->g;
    const struct feed_attr attr = {.batch = 4,
                                   .channels = 3,
                                   .height = 8,
                                   .width = 8,
                                   .out_height = 8,
                                   .out_width = 8,
                                   .pad = 2,
                                   .low = 0.5,
                                   .high = 1.5};
    const struct feed_inputs good = {.pixels = ints(g, "pixels", 48),
                                     .levels = input(g, "levels", shape_1d(3 * FEED_LEVELS)),
                                     .order = ints(g, "order", 10),
                                     .clock = ints(g, "clock", CLOCK_WORDS),
                                     .table = input(g, "table", shape_1d(24)),
                                     .table_width = 8};
    struct feed_outputs out;
    OK(graph_feed(g, &good, &attr, &out));
    assert_int_equal(shape_count(g->values[out.image].shape), 4 * 3 * 8 * 8);
    assert_int_equal(shape_count(g->values[out.now].shape), 8);

    struct feed_inputs bad[6];
    for (int i = 0; i < 6; i++)
        bad[i] = good;
    bad[0].pixels = ints(g, "few", 47);
    bad[1].levels = input(g, "levels", shape_1d(FEED_LEVELS));
    bad[2].order = ints(g, "odd", 9);
    bad[3].clock = ints(g, "clock", 3);
    bad[4].table_width = 7;
    bad[5].pixels = good.levels;
    for (int i = 0; i < 6; i++)
        assert_int_equal(graph_feed(g, &bad[i], &attr, &out), DER_SHAPE);
    struct feed_attr large = attr;
    large.out_height = 13;
    assert_int_equal(graph_feed(g, &good, &large, &out), DER_SHAPE);
    assert_non_null(strstr(der_ctx_error(f->ctx), "feed of 'pixels' [48]"));
}

static void test_keeping_wants_what_fits_together(void **state)
{
    const struct fixture *f = *state;
    struct graph *g = f->g;
    const int clock = ints(g, "clock", CLOCK_WORDS);
    const struct tally_item good = {
        .src = ints(g, "rank", 12), .table = ints(g, "ranks", 40), .by_row = true};
    struct tally_item mixed = good;
    mixed.table = input(g, "losses", shape_1d(40));
    OK(graph_tally(g, clock, &good, 1, 4));
    const struct node *node = &g->nodes[g->n_nodes - 1];
    assert_true(node_overwrites_input(node, 0) && !node_overwrites_input(node, 1) &&
                node_overwrites_input(node, 2));
    assert_int_equal(graph_tally(g, clock, &good, 1, 5), DER_SHAPE);
    assert_int_equal(graph_tally(g, clock, &mixed, 1, 4), DER_SHAPE);
    assert_int_equal(graph_tally(g, good.src, &good, 1, 4), DER_SHAPE);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_misfits_are_refused_with_names_and_shapes),
        TEST(test_losses_check_labels_and_ranges),
        TEST(test_integers_are_refused_where_floats_are_wanted),
        TEST(test_batchnorm_takes_in_mask_residual_and_relu),
        TEST(test_two_branches_fuse_once_and_in_order),
        TEST(test_values_that_others_see_are_not_fused_away),
        TEST(test_only_frozen_convolutions_are_folded),
        TEST(test_gradients_stop_at_frozen_parts),
        TEST(test_two_gradients_meet_inside_the_batchnorm),
        TEST(test_join_passes_its_own_columns_back),
        TEST(test_join_wants_a_fresh_pooled_part),
        TEST(test_unreached_parameters_are_an_error),
        TEST(test_sgd_needs_gradients),
        TEST(test_masks_share_one_gate_and_one_gradient),
        TEST(test_feeding_wants_what_fits_together),
        TEST(test_keeping_wants_what_fits_together),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * Whole training steps: back ends against the reference, fused graphs against unfused ones.
 *
 * Differences of single ops (see parity_test.c) pass through a dozen layers and two updates on
 * their way here, hence 1e-8.
 */
#include "support/test_backend.h"
#include "support/tensor_check.h"
#include "support/test_ctx.h"
#include "support/test_net.h"

#include <stdio.h>
#include <stdlib.h>

static const double NMSE_MAX = 1e-8;

enum { TEST_THREADS = 2, N_STEPS = 2 };

/* One network on one back end, after its steps. */
struct trained {
    struct der_ctx *ctx;
    struct backend *be;
    struct test_net net;
    struct graph_runner runner;
};

static void trained_init(struct trained *t, const char *name,
                         const struct test_net_options *options)
{
    t->ctx = test_ctx_new(TEST_THREADS);
    assert_ok(t->ctx, backend_open(t->ctx, name, NULL, &t->be));
    test_net_init(&t->net, t->ctx, options);
    graph_runner_init(&t->runner, t->be, t->net.g);
    for (int i = 0; i < N_STEPS; i++)
        graph_runner_run(&t->runner);
}

static void trained_fini(struct trained *t)
{
    graph_runner_fini(&t->runner);
    test_net_fini(&t->net);
    backend_close(t->be);
    test_ctx_free(t->ctx);
}

static void compare_value(const struct trained *actual, int actual_id,
                          const struct trained *expected, int expected_id, const char *what)
{
    const struct value *value = &expected->net.g->values[expected_id];
    float *a = graph_runner_read(&actual->runner, actual_id);
    float *e = graph_runner_read(&expected->runner, expected_id);
    char text[128];
    (void)snprintf(text, sizeof text, "%s on %s: %s of %s", what, actual->be->ops->name,
                   value->name, expected->be->ops->name);
    assert_tensor_close(a, e, shape_count(value->shape), NMSE_MAX, text);
    free(a);
    free(e);
}

/* All that a step leaves behind: parameters, velocities, gradients, statistics, losses. */
static void compare_trained(const struct trained *actual, const struct trained *expected,
                            const char *what)
{
    const struct test_net *a = &actual->net;
    const struct test_net *e = &expected->net;
    assert_int_equal(a->n_params, e->n_params);
    for (int i = 0; i < e->n_params; i++) {
        compare_value(actual, a->params[i], expected, e->params[i], what);
        compare_value(actual, a->velocity[i], expected, e->velocity[i], what);
        compare_value(actual, a->g->values[a->params[i]].grad, expected,
                      e->g->values[e->params[i]].grad, what);
    }
    assert_int_equal(a->n_states, e->n_states);
    for (int i = 0; i < e->n_states; i++)
        compare_value(actual, a->states[i], expected, e->states[i], what);
}

/* Every back end, fused and not, against the unfused network on the reference. */
static void compare_everywhere(struct test_net_options options, const char *what)
{
    struct trained expected;
    options.backward = true;
    options.sgd = true;
    options.fuse = false;
    trained_init(&expected, "ref", &options);
    for (const struct backend_ops *const *ops = test_backends(); *ops; ops++)
        for (int fuse = 0; fuse < 2; fuse++) {
            struct trained actual;
            options.fuse = fuse;
            trained_init(&actual, (*ops)->name, &options);
            compare_trained(&actual, &expected, what);
            trained_fini(&actual);
        }
    trained_fini(&expected);
}

static void test_training_steps_agree(void **state)
{
    (void)state;
    compare_everywhere((struct test_net_options){.masks = false}, "training");
}

static void test_training_steps_with_masks_agree(void **state)
{
    (void)state;
    compare_everywhere((struct test_net_options){.masks = true}, "training with masks");
}

static void test_head_over_frozen_extractor_agrees(void **state)
{
    (void)state;
    compare_everywhere((struct test_net_options){.frozen = true}, "frozen extractor");
}

static int count_nodes(const struct graph *g, enum op op)
{
    int n = 0;
    for (int i = 0; i < g->n_nodes; i++)
        n += g->nodes[i].op == op;
    return n;
}

static void test_fusing_leaves_no_separate_masks_sums_and_relus(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    struct test_net net;
    test_net_init(&net, ctx, &(struct test_net_options){.masks = true, .fuse = true});
    assert_int_equal(count_nodes(net.g, OP_RELU), 0);
    assert_int_equal(count_nodes(net.g, OP_ADD), 0);
    assert_int_equal(count_nodes(net.g, OP_SCALE_CHANNEL), 0);
    test_net_fini(&net);

    test_net_init(&net, ctx, &(struct test_net_options){.frozen = true, .fuse = true});
    assert_int_equal(count_nodes(net.g, OP_BATCHNORM), 0);
    assert_int_equal(count_nodes(net.g, OP_CONV2D), 0);
    assert_int_equal(count_nodes(net.g, OP_RELU), 0);
    test_net_fini(&net);
    test_ctx_free(ctx);
}

static void test_training_steps_allocate_nothing(void **state)
{
    (void)state;
    for (const struct backend_ops *const *ops = test_backends(); *ops; ops++) {
        struct trained t;
        trained_init(
            &t, (*ops)->name,
            &(struct test_net_options){.masks = true, .fuse = true, .backward = true, .sgd = true});
        const uint64_t before = der_ctx_memory(t.ctx).n_allocs;
        graph_runner_run(&t.runner);
        assert_int_equal(der_ctx_memory(t.ctx).n_allocs, before);
        trained_fini(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_training_steps_agree),
        cmocka_unit_test(test_training_steps_with_masks_agree),
        cmocka_unit_test(test_head_over_frozen_extractor_agrees),
        cmocka_unit_test(test_fusing_leaves_no_separate_masks_sums_and_relus),
        cmocka_unit_test(test_training_steps_allocate_nothing),
    };
    return cmocka_run_group_tests_name("parity_graph", tests, NULL, NULL);
}

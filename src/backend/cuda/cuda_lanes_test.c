/*
 * Lanes without a GPU: the order of the steps, what waits for what, and how long memory stays.
 */
#include "backend/cuda/cuda.h"

#include "support/test_ctx.h"
#include "support/test_net.h"

#include <stdlib.h>

/* A small network's training step as the back end lays it out, up to what needs a device. */
struct fixture {
    struct der_ctx *ctx;
    struct test_net net;
    struct graph ordered; /* net.g with its nodes in the back end's order */
    struct cuda_program p;
};

static void make(struct fixture *f, bool masks)
{
    const struct test_net_options options = {
        .masks = masks, .fuse = true, .backward = true, .sgd = true};
    f->ctx = test_ctx_new(1);
    test_net_init(&f->net, f->ctx, &options);
    const struct graph *g = f->net.g;
    f->ordered = *g;
    f->ordered.nodes = calloc((size_t)g->n_nodes, sizeof *g->nodes);
    f->p = (struct cuda_program){.n_values = g->n_values, .n_steps = g->n_nodes};
    f->p.values = calloc((size_t)g->n_values, sizeof *f->p.values);
    f->p.steps = calloc((size_t)g->n_nodes, sizeof *f->p.steps);
    assert_true(f->ordered.nodes && f->p.values && f->p.steps);
    cuda_lanes_order(g, f->ordered.nodes);
    for (int v = 0; v < g->n_values; v++) {
        f->p.values[v].owner = graph_storage_of(g, v);
        f->p.values[v].slot.shape = g->values[v].shape;
    }
    for (int i = 0; i < g->n_nodes; i++)
        f->p.steps[i].node = f->ordered.nodes[i];
    cuda_lanes_plan(&f->p);
}

static void drop(struct fixture *f)
{
    free(f->ordered.nodes);
    free(f->p.values);
    free(f->p.steps);
    test_net_fini(&f->net);
    test_ctx_free(f->ctx);
}

static bool touches(const struct fixture *f, const int *ids, int n, int owner)
{
    for (int k = 0; k < n; k++)
        if (ids[k] != NO_VALUE && f->p.values[ids[k]].owner == owner)
            return true;
    return false;
}

static void test_every_node_stays_behind_those_it_reads(void **state)
{
    (void)state;
    struct fixture f;
    make(&f, true);
    for (int i = 0; i < f.ordered.n_nodes; i++)
        for (int j = i + 1; j < f.ordered.n_nodes; j++) {
            const struct node *early = &f.ordered.nodes[i];
            const struct node *late = &f.ordered.nodes[j];
            for (int k = 0; k < early->n_in; k++)
                for (int m = 0; early->in[k] != NO_VALUE && m < late->n_out; m++)
                    assert_int_not_equal(early->in[k], late->out[m]);
        }
    drop(&f);
}

static void test_shortcuts_begin_with_their_block(void **state)
{
    (void)state;
    struct fixture f;
    int n = 0;
    make(&f, true);
    for (int i = 1; i < f.ordered.n_nodes; i++) {
        const struct node *node = &f.ordered.nodes[i];
        if (node->op != OP_CONV2D || f.ordered.values[node->in[CONV_WEIGHTS]].shape.dim[2] != 1)
            continue;
        /* The node before it makes the block's input. */
        const struct node *before = &f.ordered.nodes[i - 1];
        assert_true(touches(&f, before->out, before->n_out, f.p.values[node->in[CONV_SRC]].owner));
        assert_int_not_equal(f.p.steps[i].lane, LANE_MAIN);
        n++;
    }
    assert_true(n > 0);
    drop(&f);
}

/* Plays the lanes with clocks: known[a][b] is the newest step of lane b that lane a has waited for.
 * Whatever a step reads or overwrites must have been waited for. */
static void check_waits(const struct fixture *f)
{
    int known[N_LANES][N_LANES];
    int newest[N_LANES] = {-1, -1, -1};
    for (int a = 0; a < N_LANES; a++)
        for (int b = 0; b < N_LANES; b++)
            known[a][b] = -1;
    for (int i = 0; i < f->p.n_steps; i++) {
        const struct cuda_step *step = &f->p.steps[i];
        for (int other = 0; other < N_LANES; other++) {
            if (!(step->waits >> other & 1U))
                continue;
            for (int b = 0; b < N_LANES; b++)
                if (known[step->lane][b] < known[other][b])
                    known[step->lane][b] = known[other][b];
            known[step->lane][other] = newest[other];
        }
        for (int j = 0; j < i; j++) {
            const struct cuda_step *earlier = &f->p.steps[j];
            bool depends = false;
            for (int k = 0; k < step->node.n_in; k++)
                depends |= step->node.in[k] != NO_VALUE &&
                           touches(f, earlier->node.out, earlier->node.n_out,
                                   f->p.values[step->node.in[k]].owner);
            if (depends && earlier->lane != step->lane && known[step->lane][earlier->lane] < j)
                fail_msg("step %d (%s) does not wait for step %d (%s)", i, op_name(step->node.op),
                         j, op_name(earlier->node.op));
        }
        newest[step->lane] = i;
    }
}

static void test_steps_wait_for_what_they_read(void **state)
{
    (void)state;
    for (int masks = 0; masks < 2; masks++) {
        struct fixture f;
        make(&f, masks);
        check_waits(&f);
        drop(&f);
    }
}

static void test_the_first_step_of_a_lane_waits_for_the_main_lane(void **state)
{
    (void)state;
    struct fixture f;
    bool seen[N_LANES] = {true};
    make(&f, true);
    for (int i = 0; i < f.p.n_steps; i++) {
        const struct cuda_step *step = &f.p.steps[i];
        assert_true(seen[step->lane] || (step->waits >> LANE_MAIN & 1U));
        seen[step->lane] = true;
    }
    assert_true(seen[LANE_BRANCH] && seen[LANE_SINK]);
    drop(&f);
}

/* Memory that other lanes touch stays until a step of the main lane has waited for them. */
static void test_memory_stays_until_the_main_lane_has_waited(void **state)
{
    (void)state;
    struct fixture f;
    make(&f, true);
    for (int i = 0; i < f.p.n_steps; i++) {
        const struct cuda_step *step = &f.p.steps[i];
        if (step->lane == LANE_MAIN) {
            assert_int_equal(step->last_step, i);
            continue;
        }
        assert_true(step->last_step > i);
        if (step->last_step == f.p.n_steps)
            continue;
        const struct cuda_step *join = &f.p.steps[step->last_step];
        assert_int_equal(join->lane, LANE_MAIN);
        assert_true(join->waits >> step->lane & 1U);
    }
    drop(&f);
}

static void test_gradients_of_weights_leave_the_main_lane_and_the_update_waits(void **state)
{
    (void)state;
    struct fixture f;
    int n_sinks = 0;
    make(&f, false);
    for (int i = 0; i < f.p.n_steps; i++) {
        const struct cuda_step *step = &f.p.steps[i];
        n_sinks += step->node.op == OP_CONV2D_D_WEIGHTS && step->lane == LANE_SINK;
        if (step->node.op != OP_SGD)
            continue;
        assert_int_equal(step->lane, LANE_MAIN);
        assert_true(step->waits >> LANE_SINK & 1U);
    }
    assert_true(n_sinks >= 3);
    drop(&f);
}

/* Only the sums that need the last gradient of all may be left to do behind it. */
static void test_gradients_of_masks_are_summed_as_they_come(void **state)
{
    (void)state;
    struct fixture f;
    int last_gradient = 0;
    int n = 0;
    make(&f, true);
    for (int i = 0; i < f.p.n_steps; i++)
        if (f.p.steps[i].node.op == OP_BATCHNORM_GRAD)
            last_gradient = i;
    const struct node *last = &f.p.steps[last_gradient].node;
    for (int i = 0; i < f.p.n_steps; i++) {
        const struct cuda_step *step = &f.p.steps[i];
        if (step->node.op != OP_ADD || step->node.out[0] == NO_VALUE ||
            f.net.g->values[step->node.out[0]].shape.rank != 1)
            continue;
        bool needs_last = false;
        for (int k = 0; k < step->node.n_in; k++)
            needs_last |= touches(&f, last->out, last->n_out, f.p.values[step->node.in[k]].owner);
        if (needs_last || i > last_gradient) {
            assert_true(needs_last);
            continue;
        }
        assert_int_equal(step->lane, LANE_SINK);
        n++;
    }
    assert_true(n >= 3);
    drop(&f);
}

static void test_parameters_and_their_gradients_are_no_images(void **state)
{
    (void)state;
    struct fixture f;
    make(&f, true);
    const struct graph *g = f.net.g;
    bool *image = calloc((size_t)g->n_values, sizeof *image);
    assert_non_null(image);
    cuda_layout_choose(g, image);
    int n_images = 0;
    for (int v = 0; v < g->n_values; v++)
        n_images += image[v];
    for (int i = 0; i < f.net.n_params; i++) {
        assert_false(image[f.net.params[i]]);
        assert_false(image[g->values[f.net.params[i]].grad]);
        assert_false(image[f.net.velocity[i]]);
    }
    assert_true(n_images > 10);
    free(image);
    drop(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_node_stays_behind_those_it_reads),
        cmocka_unit_test(test_shortcuts_begin_with_their_block),
        cmocka_unit_test(test_steps_wait_for_what_they_read),
        cmocka_unit_test(test_the_first_step_of_a_lane_waits_for_the_main_lane),
        cmocka_unit_test(test_memory_stays_until_the_main_lane_has_waited),
        cmocka_unit_test(test_gradients_of_weights_leave_the_main_lane_and_the_update_waits),
        cmocka_unit_test(test_gradients_of_masks_are_summed_as_they_come),
        cmocka_unit_test(test_parameters_and_their_gradients_are_no_images),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

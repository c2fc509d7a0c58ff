/*
 * Without a GPU: which parameters are updated early, behind what, and on which lane.
 */
#include "backend/cuda/cuda.h"

#include "support/test_ctx.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LAYERS = 4 };

/* Convolutions one behind the other, as of a network whose last layers have most of the parameters. */
struct fixture {
    struct der_ctx *ctx;
    struct graph *g;
    struct graph split; /* the same with its updates in parts */
    struct arena arena;
    int params[LAYERS];
};

static int layer(struct fixture *f, int i, int src, int64_t channels)
{
    const struct shape shape = shape_4d(channels, f->g->values[src].shape.dim[1], 3, 3);
    char name[32];
    int x;
    (void)snprintf(name, sizeof name, "weights %d", i);
    assert_ok(f->ctx, graph_param(f->g, name, shape, true, &f->params[i]));
    assert_ok(f->ctx, graph_conv2d(f->g, src, f->params[i], 1, 1, &x));
    assert_ok(f->ctx, graph_relu(f->g, x, &x));
    return x;
}

/* channels: [LAYERS] */
static void make(struct fixture *f, const int64_t *channels)
{
    int x;
    int teacher;
    int weight;
    int lr;
    int loss;
    int velocity[LAYERS];
    *f = (struct fixture){.ctx = test_ctx_new(1)};
    assert_ok(f->ctx, graph_new(f->ctx, &f->g));
    assert_ok(f->ctx, graph_input(f->g, "image", DTYPE_F32, shape_4d(2, 3, 8, 8), &x));
    assert_ok(f->ctx,
              graph_input(f->g, "teacher", DTYPE_F32, shape_2d(2, channels[LAYERS - 1]), &teacher));
    assert_ok(f->ctx, graph_input(f->g, "weight", DTYPE_F32, shape_1d(1), &weight));
    assert_ok(f->ctx, graph_input(f->g, "rate", DTYPE_F32, shape_1d(1), &lr));
    for (int i = 0; i < LAYERS; i++)
        x = layer(f, i, x, channels[i]);
    assert_ok(f->ctx, graph_avgpool(f->g, x, &x));
    assert_ok(f->ctx, graph_cosine_loss(f->g, x, teacher, weight, &loss));
    assert_ok(f->ctx, graph_backward(f->g));
    const struct sgd_attr sgd = {.momentum = 0.9F};
    assert_ok(f->ctx, graph_sgd(f->g, f->params, LAYERS, lr, &sgd, velocity));
    arena_init(&f->arena, &f->ctx->mem);
    f->split = *f->g;
    f->split.nodes = calloc((size_t)f->g->n_nodes + CUDA_UPDATE_PARTS, sizeof *f->split.nodes);
    assert_non_null(f->split.nodes);
    memcpy(f->split.nodes, f->g->nodes, (size_t)f->g->n_nodes * sizeof *f->split.nodes);
    assert_ok(f->ctx, cuda_parts_split(&f->arena, &f->split));
}

static void drop(struct fixture *f)
{
    free(f->split.nodes);
    arena_fini(&f->arena);
    graph_free(f->g);
    test_ctx_free(f->ctx);
}

/* The last layers have most. */
static const int64_t PYRAMID[LAYERS] = {64, 256, 512, 512};

static int n_updates(const struct graph *g)
{
    int n = 0;
    for (int i = 0; i < g->n_nodes; i++)
        n += g->nodes[i].op == OP_SGD;
    return n;
}

/* The update of a parameter; there is one. */
static int update_of(const struct fixture *f, int param)
{
    int found = -1;
    for (int i = 0; i < f->split.n_nodes; i++) {
        const struct node *node = &f->split.nodes[i];
        for (int k = 1; node->op == OP_SGD && k < node->n_in; k += 3) {
            if (node->in[k] != param)
                continue;
            assert_int_equal(found, -1);
            found = i;
        }
    }
    assert_true(found >= 0);
    return found;
}

static void test_every_parameter_is_updated_once_with_what_is_its_own(void **state)
{
    (void)state;
    struct fixture f;
    make(&f, PYRAMID);
    const struct node *whole = &f.g->nodes[f.g->n_nodes - 1];
    assert_int_equal(n_updates(&f.split), 3);
    assert_int_equal(f.split.n_nodes, f.g->n_nodes + 2);
    for (int i = 0; i < LAYERS; i++) {
        const struct node *part = &f.split.nodes[update_of(&f, f.params[i])];
        assert_int_equal(part->in[0], whole->in[0]);
        assert_memory_equal(&part->attr.sgd, &whole->attr.sgd, sizeof part->attr.sgd);
        for (int k = 1; k < part->n_in; k += 3)
            if (part->in[k] == f.params[i])
                assert_memory_equal(&part->in[k], &whole->in[1 + 3 * i], 3 * sizeof *part->in);
    }
    drop(&f);
}

static bool uses(const struct node *node, int value)
{
    for (int k = 0; k < node->n_in; k++)
        if (node->in[k] == value)
            return true;
    for (int k = 0; k < node->n_out; k++)
        if (node->out[k] == value)
            return true;
    return false;
}

/* As early as that allows: the node before is one of them, or another part. */
static void test_parts_are_behind_all_that_read_or_write_what_is_theirs(void **state)
{
    (void)state;
    struct fixture f;
    make(&f, PYRAMID);
    for (int i = 0; i < f.split.n_nodes; i++) {
        const struct node *part = &f.split.nodes[i];
        if (part->op != OP_SGD)
            continue;
        for (int j = i + 1; j < f.split.n_nodes; j++)
            for (int k = 1; k < part->n_in; k++)
                assert_false(uses(&f.split.nodes[j], part->in[k]));
        bool is_next = false;
        for (int k = 1; k < part->n_in; k++)
            is_next |= uses(&f.split.nodes[i - 1], part->in[k]);
        assert_true(is_next);
    }
    drop(&f);
}

static void test_the_other_nodes_stay_in_order(void **state)
{
    (void)state;
    struct fixture f;
    int at = 0;
    make(&f, PYRAMID);
    for (int i = 0; i < f.split.n_nodes; i++)
        if (f.split.nodes[i].op != OP_SGD)
            assert_ptr_equal(f.split.nodes[i].in, f.g->nodes[at++].in);
    assert_int_equal(at, f.g->n_nodes - 1);
    drop(&f);
}

static void test_few_parameters_stay_together(void **state)
{
    (void)state;
    static const int64_t few[LAYERS] = {16, 16, 64, 64};
    struct fixture f;
    make(&f, few);
    assert_int_equal(n_updates(&f.split), 1);
    assert_int_equal(f.split.n_nodes, f.g->n_nodes);
    drop(&f);
}

/* The last layers' gradients come first; where the first have most, nothing is there early. */
static void test_an_update_that_has_to_wait_stays_whole(void **state)
{
    (void)state;
    static const int64_t early[LAYERS] = {2048, 16, 16, 16};
    struct fixture f;
    make(&f, early);
    assert_int_equal(update_of(&f, f.params[0]), f.split.n_nodes - 1);
    drop(&f);
}

static void test_without_memory_nothing_is_split(void **state)
{
    (void)state;
    struct fixture f;
    struct arena arena;
    make(&f, PYRAMID);
    struct graph g = *f.g;
    arena_init(&arena, &f.ctx->mem);
    f.ctx->mem.fail_at = f.ctx->mem.n_allocs + 1;
    assert_int_equal(cuda_parts_split(&arena, &g), DER_NOMEM);
    f.ctx->mem.fail_at = 0;
    assert_int_equal(g.n_nodes, f.g->n_nodes);
    arena_fini(&arena);
    drop(&f);
}

/* What reads a parameter behind the update is to see it changed, so that lanes have to leave it where it is. */
static void plan_lanes(const struct fixture *f, struct cuda_program *p, bool is_read)
{
    const struct graph *g = &f->split;
    *p = (struct cuda_program){.n_values = g->n_values, .n_steps = g->n_nodes + is_read};
    p->values = calloc((size_t)p->n_values, sizeof *p->values);
    p->steps = calloc((size_t)p->n_steps, sizeof *p->steps);
    assert_true(p->values && p->steps);
    for (int v = 0; v < g->n_values; v++) {
        p->values[v].owner = graph_storage_of(g, v);
        p->values[v].slot.shape = g->values[v].shape;
    }
    for (int i = 0; i < g->n_nodes; i++)
        p->steps[i].node = g->nodes[i];
    for (int i = 0; i < g->n_nodes && is_read; i++)
        if (g->nodes[i].op == OP_CONV2D && uses(&g->nodes[i], f->params[LAYERS - 1]))
            p->steps[g->n_nodes].node = g->nodes[i];
    cuda_lanes_plan(p);
}

static void test_parts_run_beside_the_main_lane(void **state)
{
    (void)state;
    for (int is_read = 0; is_read < 2; is_read++) {
        struct fixture f;
        struct cuda_program p;
        make(&f, PYRAMID);
        plan_lanes(&f, &p, is_read);
        const int first = update_of(&f, f.params[LAYERS - 1]);
        const int last = update_of(&f, f.params[0]);
        assert_true(first < last);
        assert_int_equal(p.steps[first].lane, is_read ? LANE_MAIN : LANE_SINK);
        if (!is_read) {
            assert_true(p.steps[first].waits >> LANE_MAIN & 1U);
            assert_int_equal(p.steps[last].lane, LANE_MAIN);
            assert_true(p.steps[last].waits >> LANE_SINK & 1U);
        }
        free(p.values);
        free(p.steps);
        drop(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_parameter_is_updated_once_with_what_is_its_own),
        cmocka_unit_test(test_parts_are_behind_all_that_read_or_write_what_is_theirs),
        cmocka_unit_test(test_the_other_nodes_stay_in_order),
        cmocka_unit_test(test_few_parameters_stay_together),
        cmocka_unit_test(test_an_update_that_has_to_wait_stays_whole),
        cmocka_unit_test(test_without_memory_nothing_is_split),
        cmocka_unit_test(test_parts_run_beside_the_main_lane),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

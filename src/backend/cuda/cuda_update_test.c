/*
 * Without a GPU: which derived weights the update of a training step may write itself.
 */
#include "backend/cuda/cuda.h"

#include "support/test_ctx.h"
#include "support/test_net.h"

#include <stdlib.h>

enum { KERNEL_AREA = 9 };

/* A small network's training step, its convolutions with a derived weight each. */
struct fixture {
    struct der_ctx *ctx;
    struct test_net net;
    struct cuda_backend cuda;
    struct cuda_program p;
    struct cuda_conv *convs; /* [n_steps] */
    int sgd;                 /* the step that updates */
};

static void make(struct fixture *f)
{
    const struct test_net_options options = {.fuse = true, .backward = true, .sgd = true};
    *f = (struct fixture){.ctx = test_ctx_new(1)};
    test_net_init(&f->net, f->ctx, &options);
    const struct graph *g = f->net.g;
    f->cuda.base.ctx = f->ctx;
    f->p = (struct cuda_program){.base = {.be = &f->cuda.base},
                                 .n_values = g->n_values,
                                 .n_steps = g->n_nodes,
                                 .type = CUDA_BF16};
    arena_init(&f->p.arena, &f->ctx->mem);
    f->p.values = calloc((size_t)g->n_values, sizeof *f->p.values);
    f->p.steps = calloc((size_t)g->n_nodes, sizeof *f->p.steps);
    f->p.derived = calloc((size_t)g->n_nodes, sizeof *f->p.derived);
    f->convs = calloc((size_t)g->n_nodes, sizeof *f->convs);
    assert_true(f->p.values && f->p.steps && f->p.derived && f->convs);
    for (int v = 0; v < g->n_values; v++)
        f->p.values[v].owner = graph_storage_of(g, v);
    for (int i = 0; i < g->n_nodes; i++) {
        struct cuda_step *step = &f->p.steps[i];
        step->node = g->nodes[i];
        if (step->node.op == OP_SGD)
            f->sgd = i;
        if (step->node.op != OP_CONV2D)
            continue;
        step->conv = &f->convs[i];
        step->conv->derived = f->p.n_derived;
        f->p.derived[f->p.n_derived++] = (struct cuda_derived){
            .source = {step->node.in[CONV_WEIGHTS], NO_VALUE, NO_VALUE, NO_VALUE, NO_VALUE},
            .shape = {.area = KERNEL_AREA}};
    }
    assert_true(f->p.n_derived > 3);
    assert_true(f->sgd > 0);
}

static void drop(struct fixture *f)
{
    arena_fini(&f->p.arena);
    free(f->p.values);
    free(f->p.steps);
    free(f->p.derived);
    free(f->convs);
    test_net_fini(&f->net);
    test_ctx_free(f->ctx);
}

static int n_kept(const struct fixture *f)
{
    int n = 0;
    for (int i = 0; i < f->p.n_derived; i++)
        n += f->p.derived[i].kept;
    return n;
}

static void test_the_update_writes_what_it_changes(void **state)
{
    (void)state;
    struct fixture f;
    int n = 0;
    make(&f);
    assert_ok(f.ctx, cuda_update_plan(&f.p));
    assert_int_equal(n_kept(&f), f.p.n_derived);
    const struct cuda_step *sgd = &f.p.steps[f.sgd];
    for (int i = 0; i < (sgd->node.n_in - 1) / 3; i++) {
        if (sgd->keeps[i] < 0)
            continue;
        assert_int_equal(f.p.derived[sgd->keeps[i]].source[0], sgd->node.in[1 + 3 * i]);
        n++;
    }
    assert_int_equal(n, f.p.n_derived);
    drop(&f);
}

static void test_weights_in_f32_and_on_request_are_left_alone(void **state)
{
    (void)state;
    struct fixture f;
    make(&f);
    f.p.type = CUDA_F32;
    assert_ok(f.ctx, cuda_update_plan(&f.p));
    assert_int_equal(n_kept(&f), 0);
    f.p.type = CUDA_BF16;
    f.cuda.weights_apart = true;
    assert_ok(f.ctx, cuda_update_plan(&f.p));
    assert_int_equal(n_kept(&f), 0);
    drop(&f);
}

/* Folded ones, those that the program computes, those that no update changes, and too large kernels. */
static void test_what_an_update_does_not_know_is_left_alone(void **state)
{
    (void)state;
    struct fixture f;
    make(&f);
    f.p.derived[0].source[1] = f.p.derived[0].source[0];
    f.p.derived[1].inside = true;
    f.p.derived[2].source[0] = f.p.steps[0].node.in[0];
    f.p.derived[3].shape.area = 1 << 12;
    assert_ok(f.ctx, cuda_update_plan(&f.p));
    for (int i = 0; i < f.p.n_derived; i++)
        assert_int_equal(f.p.derived[i].kept, i > 3);
    drop(&f);
}

/* A convolution behind the update is to see the weights before it, as all others do. */
static void test_weights_that_are_read_behind_the_update_are_left_alone(void **state)
{
    (void)state;
    struct fixture f;
    make(&f);
    const struct node last = f.p.steps[f.p.n_steps - 1].node;
    assert_int_equal(f.sgd, f.p.n_steps - 1);
    f.p.steps[f.sgd].conv = f.p.steps[f.sgd - 1].conv;
    f.p.steps[f.sgd].node = f.p.steps[f.sgd - 1].node;
    f.p.steps[f.sgd - 1].node = last;
    f.convs[f.sgd].derived = 1;
    f.p.steps[f.sgd].conv = &f.convs[f.sgd];
    assert_ok(f.ctx, cuda_update_plan(&f.p));
    for (int i = 0; i < f.p.n_derived; i++)
        assert_int_equal(f.p.derived[i].kept, i != 1);
    drop(&f);
}

/* A block takes whole kernels, in 16 bytes and in pairs of channels, and no more than it has room for. */
static void test_blocks_of_the_update_hold_whole_kernels(void **state)
{
    (void)state;
    const int64_t all = cuda_sgd_per_block(0);
    for (int64_t area = 1; area <= 121; area++) {
        const int64_t n = cuda_sgd_per_block(area);
        assert_true(n > 0 && n <= all);
        assert_int_equal(n % area, 0);
        assert_int_equal(n / area % 2, 0);
        assert_int_equal(n % 4, 0);
    }
    assert_int_equal(cuda_sgd_per_block(1 << 12), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_update_writes_what_it_changes),
        cmocka_unit_test(test_weights_in_f32_and_on_request_are_left_alone),
        cmocka_unit_test(test_what_an_update_does_not_know_is_left_alone),
        cmocka_unit_test(test_weights_that_are_read_behind_the_update_are_left_alone),
        cmocka_unit_test(test_blocks_of_the_update_hold_whole_kernels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

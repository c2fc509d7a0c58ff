/*
 * Without a GPU: which derived weights the update of a training step may write itself, and which gradients it may
 * read as convolutions write them.
 */
#include "backend/cuda/cuda.h"

#include "support/test_ctx.h"
#include "support/test_net.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_CONVS = 8, TOO_LARGE = 64 /* a side of a kernel */ };

static const struct dnn_plan PLAN = {.workspace = 1000};

/* A small network's training step; its convolutions have a derived weight each, and a gradient by cuDNN. */
struct fixture {
    struct der_ctx *ctx;
    struct test_net net;
    struct cuda_backend cuda;
    struct cuda_program p;
    struct cuda_conv *convs; /* [n_steps] */
    int sgd;                 /* the step that updates */
    int grads[MAX_CONVS];    /* [n_grads] those that compute gradients of weights */
    int n_grads;
};

static int64_t padded(int64_t channels)
{
    return (channels + CUDA_CHANNELS - 1) / CUDA_CHANNELS * CUDA_CHANNELS;
}

static struct cuda_conv_shape shape_of(const struct fixture *f, int weights)
{
    const int64_t *dim = f->net.g->values[weights].shape.dim;
    return (struct cuda_conv_shape){
        .k = padded(dim[0]), .c = padded(dim[1]), .r = dim[2], .s = dim[3], .type = f->p.type};
}

static void add_derived(struct fixture *f, int i)
{
    struct cuda_step *step = &f->p.steps[i];
    const int weights = step->node.in[CONV_WEIGHTS];
    const int64_t *dim = f->net.g->values[weights].shape.dim;
    f->convs[i].shape = shape_of(f, weights);
    f->convs[i].derived = f->p.n_derived;
    f->p.derived[f->p.n_derived++] =
        (struct cuda_derived){.source = {weights, NO_VALUE, NO_VALUE, NO_VALUE, NO_VALUE},
                              .shape = {.k = dim[0],
                                        .c = dim[1],
                                        .area = dim[2] * dim[3],
                                        .k_stored = f->convs[i].shape.k,
                                        .c_stored = f->convs[i].shape.c}};
}

static void add_gradient(struct fixture *f, int i)
{
    struct cuda_step *step = &f->p.steps[i];
    struct cuda_conv *conv = &f->convs[i];
    assert_true(f->n_grads < MAX_CONVS);
    f->grads[f->n_grads++] = i;
    conv->shape = shape_of(f, step->node.out[0]);
    conv->derived = -1;
    conv->plan = &PLAN;
    conv->grad_type = CUDA_BF16;
    step->scratch_bytes = cuda_conv_raw_bytes(conv) + PLAN.workspace;
}

static void add_step(struct fixture *f, int i)
{
    struct cuda_step *step = &f->p.steps[i];
    step->node = f->net.g->nodes[i];
    if (step->node.op == OP_SGD)
        f->sgd = i;
    if (!cuda_is_conv(step->node.op))
        return;
    step->conv = &f->convs[i];
    step->conv->derived = -1;
    if (step->node.op == OP_CONV2D)
        add_derived(f, i);
    if (step->node.op == OP_CONV2D_D_WEIGHTS)
        add_gradient(f, i);
}

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
                                 .type = CUDA_BF16,
                                 .hides_gradients = true};
    arena_init(&f->p.arena, &f->ctx->mem);
    f->p.values = calloc((size_t)g->n_values, sizeof *f->p.values);
    f->p.steps = calloc((size_t)g->n_nodes, sizeof *f->p.steps);
    f->p.derived = calloc((size_t)g->n_nodes, sizeof *f->p.derived);
    f->convs = calloc((size_t)g->n_nodes, sizeof *f->convs);
    assert_true(f->p.values && f->p.steps && f->p.derived && f->convs);
    for (int v = 0; v < g->n_values; v++) {
        struct cuda_value *value = &f->p.values[v];
        assert_ok(f->ctx, slot_init(f->ctx, &f->p.arena, &g->values[v], &value->slot));
        value->kind = g->values[v].kind;
        value->owner = graph_storage_of(g, v);
    }
    for (int i = 0; i < g->n_nodes; i++)
        add_step(f, i);
    assert_true(f->p.n_derived > 3);
    assert_int_equal(f->n_grads, f->p.n_derived);
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

/* ---- gradients ------------------------------------------------------------------------------------- */

static int gradient(const struct fixture *f, int i)
{
    return f->p.steps[f->grads[i]].node.out[0];
}

static int n_raw(const struct fixture *f)
{
    int n = 0;
    for (int v = 0; v < f->p.n_values; v++)
        n += f->p.values[v].raw != NULL;
    return n;
}

/* They take what cuDNN writes, padding included, and their steps need no scratch but its workspace. */
static void test_the_update_reads_gradients_as_they_are_computed(void **state)
{
    (void)state;
    struct fixture f;
    make(&f);
    assert_ok(f.ctx, cuda_update_plan(&f.p));
    assert_int_equal(n_raw(&f), f.n_grads);
    for (int i = 0; i < f.n_grads; i++) {
        const struct cuda_step *step = &f.p.steps[f.grads[i]];
        const struct cuda_value *value = &f.p.values[gradient(&f, i)];
        const struct cuda_conv_shape *s = &step->conv->shape;
        const size_t bytes = (size_t)(s->k * s->r * s->s * s->c) * 2;
        assert_ptr_equal(value->raw, step->conv);
        assert_int_equal(value->kind, VALUE_TEMP);
        assert_int_equal(cuda_value_bytes(&f.p, value), cuda_aligned(bytes));
        assert_int_equal(step->scratch_bytes, PLAN.workspace);
        assert_non_null(step->run);
    }
    drop(&f);
}

static void check_none_is_raw(struct fixture *f)
{
    assert_ok(f->ctx, cuda_update_plan(&f->p));
    assert_int_equal(n_raw(f), 0);
    for (int i = 0; i < f->n_grads; i++) {
        const struct cuda_step *step = &f->p.steps[f->grads[i]];
        const struct cuda_value *value = &f->p.values[gradient(f, i)];
        assert_int_equal(value->kind, VALUE_EXTERNAL);
        assert_int_equal(cuda_value_bytes(&f->p, value), 4 * shape_count(value->slot.shape));
        assert_int_equal(step->scratch_bytes, cuda_conv_raw_bytes(step->conv) + PLAN.workspace);
        assert_null(step->run);
    }
    drop(f);
}

static void test_gradients_that_the_caller_reads_are_written_out(void **state)
{
    (void)state;
    struct fixture f;
    make(&f);
    f.p.hides_gradients = false;
    check_none_is_raw(&f);
}

static void test_gradients_in_f32_and_on_request_are_written_out(void **state)
{
    (void)state;
    struct fixture f;
    make(&f);
    f.p.type = CUDA_F32;
    check_none_is_raw(&f);
    make(&f);
    f.cuda.gradients_apart = true;
    check_none_is_raw(&f);
}

/* An update that comes first reads what the iteration before has left. */
static void test_gradients_that_outlive_an_iteration_are_written_out(void **state)
{
    (void)state;
    struct fixture f;
    make(&f);
    const struct cuda_step sgd = f.p.steps[f.sgd];
    memmove(f.p.steps + 1, f.p.steps, (size_t)f.sgd * sizeof sgd);
    f.p.steps[0] = sgd;
    assert_ok(f.ctx, cuda_update_plan(&f.p));
    assert_int_equal(n_raw(&f), 0);
    drop(&f);
}

/* They write what cuDNN would. */
static void test_gradients_of_small_images_stay_as_they_are(void **state)
{
    (void)state;
    struct fixture f;
    make(&f);
    struct cuda_conv *conv = &f.convs[f.grads[1]];
    conv->plan = NULL;
    conv->way = CONV_BY_STRIP;
    assert_ok(f.ctx, cuda_update_plan(&f.p));
    assert_int_equal(n_raw(&f), f.n_grads);
    assert_ptr_equal(f.p.values[gradient(&f, 1)].raw, conv);
    drop(&f);
}

/* Own kernels for pictures and thin layers, results in f32, too large kernels. */
static void test_gradients_of_other_kernels_are_written_out(void **state)
{
    (void)state;
    struct fixture f;
    make(&f);
    f.convs[f.grads[0]].plan = NULL;
    f.convs[f.grads[1]].grad_type = CUDA_F32;
    struct shape *shape = &f.p.values[gradient(&f, 2)].slot.shape;
    shape->dim[2] = shape->dim[3] = TOO_LARGE;
    assert_ok(f.ctx, cuda_update_plan(&f.p));
    for (int i = 0; i < f.n_grads; i++)
        assert_int_equal(f.p.values[gradient(&f, i)].raw != NULL, i > 2);
    drop(&f);
}

/* The step of an op that occurs in the network. */
static struct node *node_of(struct fixture *f, enum op op)
{
    for (int i = 0; i < f->p.n_steps; i++)
        if (f->p.steps[i].node.op == op)
            return &f->p.steps[i].node;
    fail_msg("the network has no %s", op_name(op));
    return NULL;
}

/* Read by another op, through other columns, by the update as something else too, or written by another op. */
static void test_gradients_that_others_touch_are_written_out(void **state)
{
    (void)state;
    struct fixture f;
    make(&f);
    assert_true(f.n_grads > 5);
    struct node *sgd = &f.p.steps[f.sgd].node;
    node_of(&f, OP_AVGPOOL)->in[0] = gradient(&f, 0);
    f.p.values[node_of(&f, OP_MAXPOOL)->in[0]].owner = gradient(&f, 1);
    sgd->in[0] = gradient(&f, 2);
    node_of(&f, OP_MAXPOOL)->out[0] = gradient(&f, 3);
    f.p.values[gradient(&f, 4)].owner = gradient(&f, 5);
    assert_ok(f.ctx, cuda_update_plan(&f.p));
    for (int i = 0; i < f.n_grads; i++)
        assert_int_equal(f.p.values[gradient(&f, i)].raw != NULL, i > 5);
    drop(&f);
}

/* ---- what the kernel is told ------------------------------------------------------------------------- */

static const struct cuda_sgd_span *fill_table(struct fixture *f, char *memory)
{
    struct cuda_step *sgd = &f->p.steps[f->sgd];
    const size_t n = (size_t)(sgd->node.n_in - 1) / 3;
    assert_ok(f->ctx, cuda_update_plan(&f->p));
    f->p.block = memory;
    for (int v = 0; v < f->p.n_values; v++)
        f->p.values[v].data = memory + 256 * (size_t)v;
    f->p.tables = arena_zalloc(&f->p.arena, n, sizeof(struct cuda_sgd_span));
    assert_non_null(f->p.tables);
    cuda_step_table(&f->p, sgd);
    return (const struct cuda_sgd_span *)(void *)f->p.tables;
}

/* Blocks take whole kernels wherever [c, area] meets [area, c]. */
static void check_spans(struct fixture *f, bool has_copies, bool has_raw)
{
    char *memory = calloc((size_t)f->p.n_values, 256);
    assert_non_null(memory);
    const struct cuda_sgd_span *spans = fill_table(f, memory);
    const struct node *sgd = &f->p.steps[f->sgd].node;
    int64_t first_block = 0;
    int n = 0;
    for (int i = 0; i < (sgd->n_in - 1) / 3; i++) {
        const struct cuda_value *g = &f->p.values[sgd->in[2 + 3 * i]];
        const struct shape *shape = &g->slot.shape;
        const bool has_kernels = shape->rank == 4;
        const bool is_raw = has_kernels && has_raw;
        const int64_t area = has_kernels && (has_raw || has_copies) ? shape_spatial(*shape) : 0;
        assert_ptr_equal(spans[i].raw, is_raw ? g->data : NULL);
        assert_ptr_equal(spans[i].g, is_raw ? NULL : g->data);
        assert_int_equal(spans[i].copy != NULL, has_kernels && has_copies);
        assert_int_equal(spans[i].area, area);
        assert_int_equal(spans[i].c, area ? shape->dim[1] : 0);
        assert_int_equal(spans[i].c_stored, area ? padded(shape->dim[1]) : 0);
        assert_int_equal(spans[i].per_block, cuda_sgd_per_block(area));
        assert_int_equal(spans[i].first_block, first_block);
        assert_int_equal(spans[i].count, shape_count(*shape));
        first_block += (spans[i].count + spans[i].per_block - 1) / spans[i].per_block;
        n += has_kernels;
    }
    assert_int_equal(n, f->n_grads);
    free(memory);
    drop(f);
}

static void test_the_kernel_is_told_where_gradients_are(void **state)
{
    (void)state;
    for (int way = 0; way < 4; way++) {
        struct fixture f;
        make(&f);
        f.cuda.weights_apart = way & 1;
        f.cuda.gradients_apart = way & 2;
        check_spans(&f, !f.cuda.weights_apart, !f.cuda.gradients_apart);
    }
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
        cmocka_unit_test(test_the_update_reads_gradients_as_they_are_computed),
        cmocka_unit_test(test_gradients_that_the_caller_reads_are_written_out),
        cmocka_unit_test(test_gradients_in_f32_and_on_request_are_written_out),
        cmocka_unit_test(test_gradients_that_outlive_an_iteration_are_written_out),
        cmocka_unit_test(test_gradients_of_small_images_stay_as_they_are),
        cmocka_unit_test(test_gradients_of_other_kernels_are_written_out),
        cmocka_unit_test(test_gradients_that_others_touch_are_written_out),
        cmocka_unit_test(test_the_kernel_is_told_where_gradients_are),
        cmocka_unit_test(test_blocks_of_the_update_hold_whole_kernels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

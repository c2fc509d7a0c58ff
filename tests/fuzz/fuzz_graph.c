/*
 * Fuzz target: whatever calls the bytes ask of the graph builders, a call is either refused with
 * a sentence or leads to a graph that can be differentiated, planned and run on the reference
 * back end without touching memory that is not its own and without leaking.
 */
#include "core/ctx.h"
#include "graph/backend.h"
#include "graph/graph.h"
#include "graph/memplan.h"

#include <der/der.h>

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum {
    OPS_MAX = 24,       /* calls per input, to keep one run short */
    DIM_MAX = 6,        /* largest dimension of an input */
    ELEMENTS_MAX = 4096 /* a value larger than this ends the building */
};

struct source {
    const uint8_t *data;
    size_t left;
    int values[OPS_MAX + 1]; /* what builders returned: a caller knows no other ids */
    int n_values;
};

/* The next byte modulo n; 0 when the input is used up. */
static int pick(struct source *in, int n)
{
    if (in->left == 0)
        return 0;
    in->left--;
    return *in->data++ % n;
}

static int pick_dim(struct source *in)
{
    return 1 + pick(in, DIM_MAX);
}

static int pick_value(struct source *in)
{
    return in->values[pick(in, in->n_values)];
}

static void require(bool holds)
{
    if (!holds)
        abort();
}

static enum der_status pick_external(struct source *in, struct graph *g, int *out)
{
    int n = pick_dim(in);
    int c = pick_dim(in);
    int h = pick_dim(in);
    int w = pick_dim(in);
    switch (pick(in, 7)) {
    case 0:
        return graph_input(g, "image", DTYPE_F32, shape_4d(n, c, h, w), out);
    case 1:
        return graph_input(g, "matrix", DTYPE_F32, shape_2d(n, c), out);
    case 2:
        return graph_input(g, "labels", DTYPE_I32, shape_1d(n), out);
    case 3:
        return graph_input(g, "scalar", DTYPE_F32, shape_1d(1), out);
    case 4:
        return graph_param(g, "filters", shape_4d(n, c, h, w), pick(in, 2), out);
    case 5:
        return graph_param(g, "weights", shape_2d(n, c), pick(in, 2), out);
    default:
        return graph_param(g, "vector", shape_1d(n), pick(in, 2), out);
    }
}

static enum der_status pick_loss(struct source *in, struct graph *g, int *out)
{
    int a = pick_value(in);
    int b = pick_value(in);
    int weight = pick_value(in);
    int first = pick(in, DIM_MAX);
    int count = pick(in, DIM_MAX);
    switch (pick(in, 6)) {
    case 0: {
        struct xent_options options = {.first = first,
                                       .count = count,
                                       .label_shift = pick(in, 3) - 1,
                                       .clamp_low = pick(in, 2),
                                       .temperature = (float)pick(in, 3)};
        return graph_softmax_xent(g, a, b, weight, &options, out);
    }
    case 1: {
        struct distill_options options = {.first = first,
                                          .count = count,
                                          .teacher_first = pick(in, DIM_MAX),
                                          .temperature = (float)pick(in, 3)};
        return graph_distill(g, a, b, weight, &options, out);
    }
    case 2:
        return graph_bce(g, a, b, pick(in, 2) ? pick_value(in) : NO_VALUE, first, weight, out);
    case 3:
        return graph_cosine_loss(g, a, b, weight, out);
    case 4:
        return graph_margin_loss(g, a, b, weight, first, count, 0.5f, out);
    default:
        return graph_rank(g, a, b, first, count, out);
    }
}

static enum der_status pick_op(struct source *in, struct graph *g, int *out)
{
    int a = pick_value(in);
    int b = pick_value(in);
    switch (pick(in, 12)) {
    case 0:
    case 1: {
        int stride = pick(in, 4);
        return graph_conv2d(g, a, b, stride, pick(in, 3), out);
    }
    case 2: {
        struct batchnorm_params params = {.gamma = b,
                                          .beta = pick_value(in),
                                          .running_mean = pick_value(in),
                                          .running_var = pick_value(in)};
        return graph_batchnorm(g, a, &params, pick(in, 2), out);
    }
    case 3:
        return graph_relu(g, a, out);
    case 4:
        return graph_add(g, a, b, out);
    case 5:
        return graph_scale_channel(g, a, b, out);
    case 6:
        return graph_scale(g, a, b, out);
    case 7: {
        int kernel = pick(in, 4);
        int stride = pick(in, 4);
        return graph_maxpool(g, a, kernel, stride, pick(in, 3), out);
    }
    case 8:
        return graph_avgpool(g, a, out);
    case 9:
        return graph_join(g, a, b, pick(in, DIM_MAX), out);
    case 10:
        return graph_linear(g, a, b, pick(in, 2) ? pick_value(in) : NO_VALUE, out);
    default:
        return graph_l2norm(g, a, out);
    }
}

static bool is_small(const struct graph *g)
{
    for (int i = 0; i < g->n_values; i++)
        if (shape_count(g->values[i].shape) > ELEMENTS_MAX)
            return false;
    return true;
}

/* False when the graph grew too large to go on with. */
static bool build(struct source *in, struct graph *g)
{
    struct der_ctx *ctx = g->ctx;
    if (graph_input(g, "one", DTYPE_F32, shape_1d(1), &in->values[in->n_values++]) != DER_OK)
        return false;
    for (int i = 0; i < OPS_MAX && in->left > 0; i++) {
        ctx->error[0] = '\0';
        int kind = pick(in, 8);
        int value = NO_VALUE;
        enum der_status status = kind < 3   ? pick_external(in, g, &value)
                                 : kind < 7 ? pick_op(in, g, &value)
                                            : pick_loss(in, g, &value);
        require((status == DER_OK) == (ctx->error[0] == '\0'));
        if (status == DER_OK)
            in->values[in->n_values++] = value;
        if (!is_small(g))
            return false;
    }
    return true;
}

/* No two temporaries that live at the same time may share a byte. */
static void check_plan(struct graph *g)
{
    int n = g->n_values;
    int *first = calloc((size_t)n, sizeof *first);
    int *last = calloc((size_t)n, sizeof *last);
    struct memplan_item *items = calloc((size_t)n, sizeof *items);
    require(first && last && items);
    graph_liveness(g, first, last);
    for (int i = 0; i < n; i++)
        if (g->values[i].kind == VALUE_TEMP && first[i] >= 0)
            items[i] = (struct memplan_item){.bytes = (size_t)shape_count(g->values[i].shape) *
                                                      sizeof(float),
                                             .first = first[i],
                                             .last = last[i]};
    size_t total = 0;
    require(memplan(g->ctx, items, n, &total) == DER_OK);
    for (int i = 0; i < n; i++) {
        require(items[i].bytes == 0 || items[i].offset + items[i].bytes <= total);
        for (int j = 0; j < i; j++) {
            bool together = items[i].first <= items[j].last && items[j].first <= items[i].last;
            bool apart = items[i].offset + items[i].bytes <= items[j].offset ||
                         items[j].offset + items[j].bytes <= items[i].offset;
            require(items[i].bytes == 0 || items[j].bytes == 0 || !together || apart);
        }
    }
    free(items);
    free(last);
    free(first);
}

static enum der_status bind_all(struct backend *be, const struct graph *g, struct program *program,
                                struct buffer **buffers)
{
    for (int i = 0; i < g->n_values; i++) {
        if (g->values[i].kind != VALUE_EXTERNAL)
            continue;
        size_t bytes = (size_t)shape_count(g->values[i].shape) * dtype_bytes(g->values[i].dtype);
        TRY(buffer_new(be, bytes, &buffers[i]));
        TRY(program_bind(program, i, (struct span){.buffer = buffers[i]}));
    }
    return DER_OK;
}

static enum der_status run(struct backend *be, const struct graph *g)
{
    struct program *program = NULL;
    struct sequence *sequence = NULL;
    struct buffer **buffers = calloc((size_t)g->n_values, sizeof *buffers);
    require(buffers);
    enum der_status status = program_compile(be, g, &program);
    if (status == DER_OK)
        status = bind_all(be, g, program, buffers);
    if (status == DER_OK)
        status = sequence_new(be, &(struct sequence_item){.program = program}, 1, &sequence);
    if (status == DER_OK)
        status = sequence_run(sequence);
    sequence_free(sequence);
    program_free(program);
    for (int i = 0; i < g->n_values; i++)
        buffer_free(buffers[i]);
    free(buffers);
    return status;
}

static void try_graph(struct source *in, struct der_ctx *ctx)
{
    struct graph *g = NULL;
    require(graph_new(ctx, &g) == DER_OK);
    bool with_fusion = pick(in, 2);
    bool with_gradient = pick(in, 2);
    bool usable = build(in, g);
    if (usable && with_fusion)
        require(graph_fuse(g) == DER_OK);
    if (usable && with_gradient)
        usable = graph_backward(g) == DER_OK;
    if (usable && g->n_nodes > 0) {
        check_plan(g);
        struct backend *be = NULL;
        require(backend_open(ctx, "ref", NULL, &be) == DER_OK);
        require(run(be, g) == DER_OK);
        backend_close(be);
    }
    graph_free(g);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct source in = {.data = data, .left = size};
    struct der_ctx *ctx = NULL;
    require(der_ctx_new(NULL, &ctx) == DER_OK);
    try_graph(&in, ctx);
    require(der_ctx_memory(ctx).n_live == 0);
    der_ctx_free(ctx);
    return 0;
}

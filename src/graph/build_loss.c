/*
 * Builders of the losses: each appends a value to be read back and the place of its gradient.
 */
#include "graph/graph.h"

#include <assert.h>
#include <string.h>

static struct shape shape_of(const struct graph *g, int value)
{
    assert(value >= 0 && value < g->n_values);
    return g->values[value].shape;
}

static enum der_status refuse(struct graph *g, enum op op, int value, const char *why)
{
    char text[SHAPE_TEXT_MAX];
    return ctx_fail(g->ctx, DER_SHAPE, "%s of '%s' %s: %s", op_name(op), g->values[value].name,
                    shape_text(shape_of(g, value), text), why);
}

static enum der_status add_named(struct graph *g, enum op op, int like, const char *suffix,
                                 struct shape shape, enum value_kind kind, int *out)
{
    *out = NO_VALUE;
    char *name = arena_printf(&g->arena, "%s.%s%s", g->values[like].name, op_name(op), suffix);
    if (!name)
        return ctx_nomem(g->ctx);
    return graph_add_value(g, name, DTYPE_F32, shape, kind, out);
}

/* The loss value is external: somebody reads it. The gradient's place is added by graph_backward,
 * so that a program without gradients does not compute any. */
static enum der_status append_loss(struct graph *g, enum op op, const int *in, int n_in, int scores,
                                   const union op_attr *attr, int *loss)
{
    bool has_labels = op != OP_DISTILL && op != OP_COSINE_LOSS;
    for (int i = 0; i < n_in; i++)
        if (in[i] != NO_VALUE && !(has_labels && i == LOSS_LABELS) &&
            g->values[in[i]].dtype != DTYPE_F32)
            return refuse(g, op, in[i], "floating-point numbers are wanted");
    TRY(add_named(g, op, scores, "", shape_1d(1), VALUE_EXTERNAL, loss));
    return graph_add_node(g, op, in, n_in, (int[]){*loss, NO_VALUE}, 2, attr);
}

static enum der_status check_scores(struct graph *g, enum op op, int scores, int weight)
{
    if (shape_of(g, scores).rank != 2)
        return refuse(g, op, scores, "a matrix of scores is wanted");
    if (weight != NO_VALUE && !shape_equal(shape_of(g, weight), shape_1d(1)))
        return refuse(g, op, weight, "a loss weight is a single number");
    return DER_OK;
}

static enum der_status check_labels(struct graph *g, enum op op, int scores, int labels)
{
    if (g->values[labels].dtype != DTYPE_I32 ||
        !shape_equal(shape_of(g, labels), shape_1d(shape_of(g, scores).dim[0])))
        return refuse(g, op, labels, "one integer label per row is wanted");
    return DER_OK;
}

static enum der_status check_columns(struct graph *g, enum op op, int scores, int64_t first,
                                     int64_t *count)
{
    int64_t columns = shape_of(g, scores).dim[1];
    if (first >= 0 && *count == 0)
        *count = columns - first;
    if (first < 0 || *count < 1 || first + *count > columns)
        return refuse(g, op, scores, "the range of columns lies outside");
    return DER_OK;
}

enum der_status graph_softmax_xent(struct graph *g, int logits, int labels, int weight,
                                   const struct xent_options *options, int *loss)
{
    *loss = NO_VALUE;
    struct xent_options o = options ? *options : (struct xent_options){0};
    if (o.temperature == 0.0f)
        o.temperature = 1.0f;
    TRY(check_scores(g, OP_SOFTMAX_XENT, logits, weight));
    TRY(check_labels(g, OP_SOFTMAX_XENT, logits, labels));
    TRY(check_columns(g, OP_SOFTMAX_XENT, logits, o.first, &o.count));
    union op_attr attr = {.loss = {.first = o.first,
                                   .count = o.count,
                                   .label_shift = o.label_shift,
                                   .clamp_low = o.clamp_low,
                                   .temperature = o.temperature}};
    return append_loss(g, OP_SOFTMAX_XENT, (int[]){logits, labels, weight}, 3, logits, &attr, loss);
}

enum der_status graph_distill(struct graph *g, int logits, int teacher, int weight,
                              const struct distill_options *options, int *loss)
{
    *loss = NO_VALUE;
    int64_t count = options->count;
    TRY(check_scores(g, OP_DISTILL, logits, weight));
    TRY(check_scores(g, OP_DISTILL, teacher, NO_VALUE));
    if (shape_of(g, teacher).dim[0] != shape_of(g, logits).dim[0])
        return refuse(g, OP_DISTILL, teacher, "the teacher has another number of rows");
    TRY(check_columns(g, OP_DISTILL, logits, options->first, &count));
    TRY(check_columns(g, OP_DISTILL, teacher, options->teacher_first, &count));
    float temperature = options->temperature == 0.0f ? 1.0f : options->temperature;
    union op_attr attr = {.loss = {.first = options->first,
                                   .count = count,
                                   .teacher_first = options->teacher_first,
                                   .temperature = temperature}};
    return append_loss(g, OP_DISTILL, (int[]){logits, teacher, weight}, 3, logits, &attr, loss);
}

enum der_status graph_bce(struct graph *g, int logits, int labels, int teacher, int64_t n_old,
                          int weight, int *loss)
{
    *loss = NO_VALUE;
    TRY(check_scores(g, OP_BCE, logits, weight));
    TRY(check_labels(g, OP_BCE, logits, labels));
    if (n_old < 0 || n_old > shape_of(g, logits).dim[1])
        return refuse(g, OP_BCE, logits, "there are fewer columns than old classes");
    if (n_old > 0 && teacher == NO_VALUE)
        return refuse(g, OP_BCE, logits, "old classes need a teacher");
    if (teacher != NO_VALUE && (shape_of(g, teacher).rank != 2 ||
                                shape_of(g, teacher).dim[0] != shape_of(g, logits).dim[0] ||
                                shape_of(g, teacher).dim[1] < n_old))
        return refuse(g, OP_BCE, teacher, "the teacher does not cover the old classes");
    union op_attr attr = {.loss = {.n_old = n_old}};
    return append_loss(g, OP_BCE, (int[]){logits, labels, teacher, weight}, 4, logits, &attr, loss);
}

enum der_status graph_cosine_loss(struct graph *g, int a, int b, int weight, int *loss)
{
    *loss = NO_VALUE;
    TRY(check_scores(g, OP_COSINE_LOSS, a, weight));
    if (!shape_equal(shape_of(g, a), shape_of(g, b)))
        return refuse(g, OP_COSINE_LOSS, b, "the two matrices differ in shape");
    return append_loss(g, OP_COSINE_LOSS, (int[]){a, b, weight}, 3, a, NULL, loss);
}

enum der_status graph_margin_loss(struct graph *g, int scores, int labels, int weight,
                                  int64_t n_old, int top_k, float margin, int *loss)
{
    *loss = NO_VALUE;
    TRY(check_scores(g, OP_MARGIN_LOSS, scores, weight));
    TRY(check_labels(g, OP_MARGIN_LOSS, scores, labels));
    if (n_old < 0 || top_k < 1 || n_old + top_k > shape_of(g, scores).dim[1])
        return refuse(g, OP_MARGIN_LOSS, scores, "there are fewer new classes than top_k");
    union op_attr attr = {.loss = {.n_old = n_old, .top_k = top_k, .margin = margin}};
    return append_loss(g, OP_MARGIN_LOSS, (int[]){scores, labels, weight}, 3, scores, &attr, loss);
}

enum der_status graph_rank(struct graph *g, int logits, int labels, int64_t first, int64_t count,
                           int *rank)
{
    *rank = NO_VALUE;
    TRY(check_scores(g, OP_RANK, logits, NO_VALUE));
    TRY(check_labels(g, OP_RANK, logits, labels));
    TRY(check_columns(g, OP_RANK, logits, first, &count));
    if (g->values[logits].dtype != DTYPE_F32)
        return refuse(g, OP_RANK, logits, "floating-point numbers are wanted");
    char *name = arena_printf(&g->arena, "%s.rank", g->values[logits].name);
    if (!name)
        return ctx_nomem(g->ctx);
    TRY(graph_add_value(g, name, DTYPE_I32, shape_of(g, labels), VALUE_EXTERNAL, rank));
    union op_attr attr = {.loss = {.first = first, .count = count}};
    return graph_add_node(g, OP_RANK, (int[]){logits, labels}, 2, rank, 1, &attr);
}

enum der_status graph_mask_sparsity(struct graph *g, int weight, const int *m, int n,
                                    const struct sparsity_layer *layers, int n_layers,
                                    const int *least, int *loss)
{
    *loss = NO_VALUE;
    struct sparsity_layer *copy = arena_zalloc(&g->arena, (size_t)n_layers, sizeof *copy);
    int *in = arena_zalloc(&g->arena, (size_t)n + 1, sizeof *in);
    int *out = arena_zalloc(&g->arena, (size_t)n + 1, sizeof *out);
    int *limits = arena_zalloc(&g->arena, (size_t)n, sizeof *limits);
    if (!copy || !in || !out || !limits)
        return ctx_nomem(g->ctx);
    memcpy(copy, layers, (size_t)n_layers * sizeof *copy);
    if (least)
        memcpy(limits, least, (size_t)n * sizeof *limits);

    double total = 0.0;
    for (int i = 0; i < n; i++)
        if (shape_of(g, m[i]).rank != 1 || g->values[m[i]].dtype != DTYPE_F32)
            return refuse(g, OP_MASK_SPARSITY, m[i],
                          "a vector of floating-point numbers is wanted");
    if (!shape_equal(shape_of(g, weight), shape_1d(1)) || g->values[weight].dtype != DTYPE_F32)
        return refuse(g, OP_MASK_SPARSITY, weight, "a loss weight is a single number");
    for (int i = 0; i < n_layers; i++) {
        assert(layers[i].in_mask < n && layers[i].out_mask >= 0 && layers[i].out_mask < n);
        int64_t c_in = layers[i].in_mask < 0 ? layers[i].in_channels
                                             : shape_of(g, m[layers[i].in_mask]).dim[0];
        total += (double)layers[i].kernel_area * (double)c_in *
                 (double)shape_of(g, m[layers[i].out_mask]).dim[0];
    }
    in[0] = weight;
    memcpy(in + 1, m, (size_t)n * sizeof *in);
    TRY(add_named(g, OP_MASK_SPARSITY, m[0], "", shape_1d(1), VALUE_EXTERNAL, &out[0]));
    for (int i = 0; i < n; i++)
        out[1 + i] = NO_VALUE; /* graph_backward adds the gradients */
    union op_attr attr = {
        .sparsity = {
            .layers = copy, .n_layers = n_layers, .total = total, .least = least ? limits : NULL}};
    TRY(graph_add_node(g, OP_MASK_SPARSITY, in, n + 1, out, n + 1, &attr));
    *loss = out[0];
    return DER_OK;
}

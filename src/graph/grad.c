/*
 * Reverse-mode differentiation: one rule per op, appended behind the forward nodes.
 *
 * Forward nodes are visited from last to first. Every use of a value has by then contributed its
 * share of the gradient; the shares are added up where the value was produced. Only values that
 * lead to a trainable parameter get any: frozen extractors cost nothing here.
 */
#include "graph/graph_internal.h"

#include <assert.h>
#include <string.h>

/* One share of a value's gradient. */
struct share {
    int value;          /* holds the share */
    struct share *next; /* earlier share; in the graph's arena */
};

struct backward {
    struct graph *g;
    bool *wants;           /* [n_forward_values] */
    struct share **shares; /* [n_forward_values], newest first */
    int n_forward_values;  /* gradients of gradients are not asked for */
};

static bool wants(const struct backward *b, int value)
{
    return value != NO_VALUE && b->wants[value];
}

/* The shape a gradient of `value` has: its own, or the live columns only (JOIN). */
static struct shape grad_shape(const struct value *value)
{
    if (value->grad_count == 0)
        return value->shape;
    return shape_2d(value->shape.dim[0], value->grad_count);
}

/* A new value for (a share of) the gradient of `value`, NO_VALUE if nobody wants it. */
static enum der_status new_share(struct backward *b, int value, int *out)
{
    *out = NO_VALUE;
    if (!wants(b, value))
        return DER_OK;
    struct graph *g = b->g;
    char *name = arena_printf(&g->arena, "%s.grad", g->values[value].name);
    if (!name)
        return ctx_nomem(g->ctx);
    return graph_add_value(g, name, DTYPE_F32, grad_shape(&g->values[value]), VALUE_TEMP, out);
}

/* Notes that `share` is part of the gradient of `value`. */
static enum der_status contribute(struct backward *b, int value, int share)
{
    if (!wants(b, value) || share == NO_VALUE)
        return DER_OK;
    struct graph *g = b->g;
    if (!shape_equal(g->values[share].shape, grad_shape(&g->values[value])))
        return ctx_fail(g->ctx, DER_UNSUPPORTED,
                        "'%s' is used by an op that needs a gradient of all its columns",
                        g->values[value].name);
    struct share *entry = arena_zalloc(&g->arena, 1, sizeof *entry);
    if (!entry)
        return ctx_nomem(g->ctx);
    *entry = (struct share){.value = share, .next = b->shares[value]};
    b->shares[value] = entry;
    return DER_OK;
}

static int count_shares(const struct share *share)
{
    int n = 0;
    for (; share; share = share->next)
        n++;
    return n;
}

/* Adds up a chain of shares in the order they came; NO_VALUE for an empty chain. */
static enum der_status sum_shares(struct backward *b, int value, const struct share *chain,
                                  int *total)
{
    *total = NO_VALUE;
    int n = count_shares(chain);
    if (n == 0)
        return DER_OK;
    if (n == 1) {
        *total = chain->value;
        return DER_OK;
    }
    struct graph *g = b->g;
    int *in = arena_zalloc(&g->arena, (size_t)n, sizeof *in);
    if (!in)
        return ctx_nomem(g->ctx);
    for (int i = n - 1; i >= 0; i--, chain = chain->next)
        in[i] = chain->value;
    TRY(new_share(b, value, total));
    return graph_add_node(g, OP_ADD, in, n, total, 1, NULL);
}

static enum der_status grad_of(struct backward *b, int value, int *total)
{
    *total = NO_VALUE;
    if (!wants(b, value))
        return DER_OK;
    return sum_shares(b, value, b->shares[value], total);
}

static enum der_status emit(struct backward *b, enum op op, const int *in, int n_in, const int *out,
                            int n_out, const union op_attr *attr)
{
    return graph_add_node(b->g, op, in, n_in, out, n_out, attr);
}

/* A gradient op with one result that is a share of `towards`. */
static enum der_status emit_share(struct backward *b, enum op op, const int *in, int n_in,
                                  int towards, const union op_attr *attr)
{
    if (!wants(b, towards))
        return DER_OK;
    int share;
    TRY(new_share(b, towards, &share));
    TRY(emit(b, op, in, n_in, &share, 1, attr));
    return contribute(b, towards, share);
}

/* A gradient op with two optional results. */
static enum der_status emit_two(struct backward *b, enum op op, const int *in, int n_in,
                                const int towards[2], const union op_attr *attr)
{
    int share[2];
    for (int i = 0; i < 2; i++)
        TRY(new_share(b, towards[i], &share[i]));
    TRY(emit(b, op, in, n_in, share, 2, attr));
    for (int i = 0; i < 2; i++)
        TRY(contribute(b, towards[i], share[i]));
    return DER_OK;
}

static enum der_status conv2d_rule(struct backward *b, const struct node *node)
{
    int d_dst;
    TRY(grad_of(b, node->out[0], &d_dst));
    int src = node->in[CONV_SRC];
    int weights = node->in[CONV_WEIGHTS];
    TRY(emit_share(b, OP_CONV2D_D_WEIGHTS, (int[]){src, d_dst}, 2, weights, &node->attr));
    return emit_share(b, OP_CONV2D_D_SRC, (int[]){d_dst, weights}, 2, src, &node->attr);
}

/* The two sources of d_dst, typically the next convolution and the shortcut, are added inside the
 * gradient op, which reads them anyway. */
static enum der_status batchnorm_rule(struct backward *b, const struct node *node)
{
    const struct share *chain = b->shares[node->out[BN_DST]];
    bool relu = node->attr.norm.relu;
    int residual = node_in(node, BN_RESIDUAL);
    int d_dst;
    int d_dst2 = NO_VALUE;
    if (count_shares(chain) == 2 && (relu || !wants(b, residual))) {
        d_dst = chain->next->value;
        d_dst2 = chain->value;
    } else {
        TRY(sum_shares(b, node->out[BN_DST], chain, &d_dst));
    }
    int mask = node_in(node, BN_MASK);
    const int towards[BNG_N_OUT] = {node->in[BN_SRC], node->in[BN_GAMMA], node->in[BN_BETA], mask,
                                    relu ? residual : NO_VALUE};
    const int in[BNG_N_IN] = {
        d_dst,
        d_dst2,
        node->in[BN_SRC],
        relu ? node->out[BN_DST] : NO_VALUE,
        node->in[BN_GAMMA],
        node->in[BN_BETA],
        node->out[BN_MEAN],
        node->out[BN_INV_STD],
        mask,
    };
    int out[BNG_N_OUT];
    for (int i = 0; i < BNG_N_OUT; i++)
        TRY(new_share(b, towards[i], &out[i]));
    TRY(emit(b, OP_BATCHNORM_GRAD, in, BNG_N_IN, out, BNG_N_OUT, &node->attr));
    for (int i = 0; i < BNG_N_OUT; i++)
        TRY(contribute(b, towards[i], out[i]));
    return relu ? DER_OK : contribute(b, residual, d_dst);
}

static enum der_status relu_rule(struct backward *b, const struct node *node)
{
    int d_dst;
    TRY(grad_of(b, node->out[0], &d_dst));
    return emit_share(b, OP_RELU_GRAD, (int[]){d_dst, node->out[0]}, 2, node->in[0], NULL);
}

static enum der_status add_rule(struct backward *b, const struct node *node)
{
    int d_dst;
    TRY(grad_of(b, node->out[0], &d_dst));
    for (int i = 0; i < node->n_in; i++)
        TRY(contribute(b, node->in[i], d_dst));
    return DER_OK;
}

/* SCALE_CHANNEL and SCALE: src and a factor, both may want a gradient. */
static enum der_status scaling_rule(struct backward *b, const struct node *node)
{
    enum op op = node->op == OP_SCALE ? OP_SCALE_GRAD : OP_SCALE_CHANNEL_GRAD;
    int d_dst;
    TRY(grad_of(b, node->out[0], &d_dst));
    return emit_two(b, op, (int[]){d_dst, node->in[0], node->in[1]}, 3, node->in, NULL);
}

static enum der_status maxpool_rule(struct backward *b, const struct node *node)
{
    int d_dst;
    TRY(grad_of(b, node->out[0], &d_dst));
    return emit_share(b, OP_MAXPOOL_GRAD, (int[]){d_dst, node->out[1]}, 2, node->in[0],
                      &node->attr);
}

static enum der_status avgpool_rule(struct backward *b, const struct node *node)
{
    int d_dst;
    TRY(grad_of(b, node->out[0], &d_dst));
    return emit_share(b, OP_AVGPOOL_GRAD, &d_dst, 1, node->in[0], NULL);
}

static enum der_status join_rule(struct backward *b, const struct node *node)
{
    int d_dst;
    TRY(grad_of(b, node->out[0], &d_dst));
    return contribute(b, node->in[0], d_dst);
}

static enum der_status linear_rule(struct backward *b, const struct node *node)
{
    int src = node->in[0];
    int weights = node->in[1];
    int bias = node->in[2];
    int d_dst;
    TRY(grad_of(b, node->out[0], &d_dst));
    if (wants(b, weights) || wants(b, bias))
        TRY(emit_two(b, OP_LINEAR_D_WEIGHTS, (int[]){src, d_dst}, 2, (int[]){weights, bias}, NULL));
    const struct value *x = &b->g->values[src];
    union op_attr attr = {.columns = {.first = x->grad_first,
                                      .count = x->grad_count ? x->grad_count : x->shape.dim[1]}};
    return emit_share(b, OP_LINEAR_D_SRC, (int[]){d_dst, weights}, 2, src, &attr);
}

static enum der_status l2norm_rule(struct backward *b, const struct node *node)
{
    int d_dst;
    TRY(grad_of(b, node->out[0], &d_dst));
    return emit_share(b, OP_L2NORM_GRAD, (int[]){d_dst, node->out[0], node->out[1]}, 3, node->in[0],
                      &node->attr);
}

/* Losses compute the gradient beside the value: give it a place. */
static enum der_status loss_rule(struct backward *b, struct node *node, int index)
{
    int scores = node->in[0];
    int share;
    TRY(new_share(b, scores, &share));
    if (share == NO_VALUE)
        return DER_OK;
    node->out[LOSS_D_LOGITS] = share;
    b->g->values[share].producer = index;
    return contribute(b, scores, share);
}

static enum der_status sparsity_rule(struct backward *b, struct node *node, int index)
{
    for (int i = 1; i < node->n_in; i++) {
        int share;
        TRY(new_share(b, node->in[i], &share));
        node->out[i] = share;
        if (share == NO_VALUE)
            continue;
        b->g->values[share].producer = index;
        TRY(contribute(b, node->in[i], share));
    }
    return DER_OK;
}

/* Only masks that something depends on take part. */
static enum der_status mask_gate_rule(struct backward *b, const struct node *node)
{
    struct graph *g = b->g;
    int n = 0;
    int *in = arena_zalloc(&g->arena, 2 * (size_t)node->n_out + 1, sizeof *in);
    int *d_m = arena_zalloc(&g->arena, (size_t)node->n_out, sizeof *d_m);
    int *d_e = arena_zalloc(&g->arena, (size_t)node->n_out, sizeof *d_e);
    if (!in || !d_m || !d_e)
        return ctx_nomem(g->ctx);
    in[0] = node->in[0];
    for (int i = 0; i < node->n_out; i++) {
        int e = node->in[1 + i];
        TRY(grad_of(b, node->out[i], &d_m[n]));
        if (d_m[n] == NO_VALUE || !wants(b, e))
            continue;
        TRY(new_share(b, e, &d_e[n]));
        TRY(contribute(b, e, d_e[n]));
        in[1 + n++] = e;
    }
    memcpy(in + 1 + n, d_m, (size_t)n * sizeof *in);
    return emit(b, OP_MASK_GATE_GRAD, in, 1 + 2 * n, d_e, n, &node->attr);
}

bool op_is_loss(enum op op)
{
    return op == OP_SOFTMAX_XENT || op == OP_DISTILL || op == OP_BCE || op == OP_COSINE_LOSS ||
           op == OP_MARGIN_LOSS;
}

/* True when some output of the node has a share to pass on. */
static bool has_gradient(const struct backward *b, const struct node *node)
{
    for (int i = 0; i < node->n_out; i++)
        if (node->out[i] != NO_VALUE && b->shares[node->out[i]])
            return true;
    return false;
}

static enum der_status apply_rule(struct backward *b, int index)
{
    /* A copy: rules append nodes, which may move the array. Operand lists stay where they are. */
    struct node node = b->g->nodes[index];
    if (op_is_loss(node.op))
        return loss_rule(b, &node, index);
    if (node.op == OP_MASK_SPARSITY)
        return sparsity_rule(b, &node, index);
    if (!has_gradient(b, &node))
        return DER_OK;
    switch (node.op) {
    case OP_CONV2D:
        return conv2d_rule(b, &node);
    case OP_BATCHNORM:
        return batchnorm_rule(b, &node);
    case OP_RELU:
        return relu_rule(b, &node);
    case OP_ADD:
        return add_rule(b, &node);
    case OP_SCALE_CHANNEL:
    case OP_SCALE:
        return scaling_rule(b, &node);
    case OP_MAXPOOL:
        return maxpool_rule(b, &node);
    case OP_AVGPOOL:
        return avgpool_rule(b, &node);
    case OP_JOIN:
        return join_rule(b, &node);
    case OP_LINEAR:
        return linear_rule(b, &node);
    case OP_L2NORM:
        return l2norm_rule(b, &node);
    case OP_MASK_GATE:
        return mask_gate_rule(b, &node);
    default:
        return ctx_fail(b->g->ctx, DER_UNSUPPORTED, "%s has no gradient", op_name(node.op));
    }
}

void graph_mark_wanted(const struct graph *g, bool *wanted)
{
    for (int v = 0; v < g->n_values; v++)
        wanted[v] = g->values[v].trainable;
    for (int i = 0; i < g->n_nodes; i++) {
        const struct node *node = &g->nodes[i];
        /* Losses end the chain: nothing is differentiated with respect to their value. */
        if (op_is_loss(node->op) || node->op == OP_MASK_SPARSITY || node->op == OP_RANK)
            continue;
        bool any = false;
        for (int k = 0; k < node->n_in && !any; k++)
            any = node->in[k] != NO_VALUE && wanted[node->in[k]];
        for (int k = 0; k < node->n_out && any; k++)
            if (node->out[k] != NO_VALUE && g->values[node->out[k]].dtype == DTYPE_F32)
                wanted[node->out[k]] = true;
    }
}

/* Gradients of parameters belong to the caller: make each one an external value of its own. */
static enum der_status export_grads(struct backward *b)
{
    struct graph *g = b->g;
    for (int v = 0; v < b->n_forward_values; v++) {
        if (!g->values[v].trainable)
            continue;
        int total;
        TRY(grad_of(b, v, &total));
        if (total == NO_VALUE)
            return ctx_fail(g->ctx, DER_STATE, "no loss depends on the trainable parameter '%s'",
                            g->values[v].name);
        if (g->values[total].kind != VALUE_TEMP || g->values[total].producer < 0) {
            /* Shared with another parameter or passed through unchanged: copy. */
            int copy;
            TRY(new_share(b, v, &copy));
            TRY(emit(b, OP_ADD, &total, 1, &copy, 1, NULL));
            total = copy;
        }
        g->values[total].kind = VALUE_EXTERNAL;
        g->values[v].grad = total;
    }
    return DER_OK;
}

enum der_status graph_backward(struct graph *g)
{
    struct backward b = {.g = g, .n_forward_values = g->n_values};
    b.wants = arena_zalloc(&g->arena, (size_t)g->n_values, sizeof *b.wants);
    b.shares = arena_zalloc(&g->arena, (size_t)g->n_values, sizeof(struct share *));
    if (!b.wants || !b.shares)
        return ctx_nomem(g->ctx);
    graph_mark_wanted(g, b.wants);
    for (int i = g->n_nodes - 1; i >= 0; i--)
        TRY(apply_rule(&b, i));
    return export_grads(&b);
}

enum der_status graph_sgd(struct graph *g, const int *params, int n, int lr,
                          const struct sgd_attr *sgd, int *velocity)
{
    if (!shape_equal(g->values[lr].shape, shape_1d(1)) || g->values[lr].dtype != DTYPE_F32)
        return ctx_fail(g->ctx, DER_SHAPE, "the learning rate '%s' is not a single number",
                        g->values[lr].name);
    int *in = arena_zalloc(&g->arena, 3 * (size_t)n + 1, sizeof *in);
    if (!in)
        return ctx_nomem(g->ctx);
    in[0] = lr;
    for (int i = 0; i < n; i++) {
        const struct value *p = &g->values[params[i]];
        if (p->grad == NO_VALUE)
            return ctx_fail(g->ctx, DER_STATE, "parameter '%s' has no gradient to be updated with",
                            p->name);
        char *name = arena_printf(&g->arena, "%s.velocity", p->name);
        if (!name)
            return ctx_nomem(g->ctx);
        in[1 + 3 * i] = params[i];
        in[2 + 3 * i] = p->grad;
        TRY(graph_input(g, name, DTYPE_F32, p->shape, &velocity[i]));
        in[3 + 3 * i] = velocity[i];
    }
    union op_attr attr = {.sgd = *sgd};
    return graph_add_node(g, OP_SGD, in, 3 * n + 1, NULL, 0, &attr);
}

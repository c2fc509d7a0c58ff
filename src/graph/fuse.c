/*
 * Fusion: what follows a batch norm moves into it, and a frozen batch norm moves into its
 * convolution.
 *
 * A pattern is fused only along values that exactly one node reads and nobody outside sees. The
 * fused node takes the place of the pattern's last node, where all its operands exist.
 */
#include "graph/graph_internal.h"

#include <string.h>

struct fusion {
    struct graph *g;
    int *n_uses;   /* [n_values] nodes that read a value, each operand counted */
    int *user;     /* [n_values] the last of them */
    bool *wants;   /* [n_values] gradients are needed */
    bool *dropped; /* [n_nodes] absorbed by another node */
};

static void count_uses(struct fusion *f)
{
    for (int i = 0; i < f->g->n_nodes; i++) {
        const struct node *node = &f->g->nodes[i];
        for (int k = 0; k < node->n_in; k++) {
            if (node->in[k] == NO_VALUE)
                continue;
            f->n_uses[node->in[k]]++;
            f->user[node->in[k]] = i;
        }
    }
}

/* The only node that reads a hidden value, or -1. */
static int only_user(const struct fusion *f, int value)
{
    if (f->n_uses[value] != 1 || f->g->values[value].kind != VALUE_TEMP)
        return -1;
    return f->user[value];
}

/* Moves a node's operation into slot `at`, which held the node being absorbed. */
static void replace(struct fusion *f, int from, int at, const struct node *fused)
{
    f->dropped[from] = true;
    f->g->nodes[at] = *fused;
    for (int k = 0; k < fused->n_in; k++)
        if (fused->in[k] != NO_VALUE && f->user[fused->in[k]] == from)
            f->user[fused->in[k]] = at;
}

/* Takes one follower into the batch norm at `at`; returns its new place, or -1 when there is none. */
static int absorb_follower(struct fusion *f, int at)
{
    struct node norm = f->g->nodes[at];
    int next = only_user(f, norm.out[BN_DST]);
    if (next < 0 || norm.attr.norm.relu)
        return -1;
    const struct node *follower = &f->g->nodes[next];
    int dst = norm.out[BN_DST];
    bool has_residual = norm.in[BN_RESIDUAL] != NO_VALUE;
    if (follower->op == OP_SCALE_CHANNEL && follower->in[0] == dst && !has_residual &&
        norm.in[BN_MASK] == NO_VALUE)
        norm.in[BN_MASK] = follower->in[1];
    else if (follower->op == OP_ADD && follower->n_in == 2 && !has_residual)
        norm.in[BN_RESIDUAL] = follower->in[follower->in[0] == dst ? 1 : 0];
    else if (follower->op == OP_RELU)
        norm.attr.norm.relu = true;
    else
        return -1;
    norm.out[BN_DST] = follower->out[0];
    replace(f, at, next, &norm);
    return next;
}

/* conv + frozen batch norm -> CONV2D_AFFINE, in the place of the batch norm. */
static enum der_status fold_convolution(struct fusion *f, int at)
{
    struct graph *g = f->g;
    const struct node *norm = &g->nodes[at];
    int src = norm->in[BN_SRC];
    int conv_at = g->values[src].producer;
    if (norm->attr.norm.training || norm->in[BN_MASK] != NO_VALUE || only_user(f, src) != at ||
        conv_at < 0 || g->nodes[conv_at].op != OP_CONV2D || f->wants[norm->out[BN_DST]])
        return DER_OK;
    /* The saved statistics vanish; keep the node when somebody looks at them. */
    for (int k = BN_MEAN; k <= BN_INV_STD; k++)
        if (f->n_uses[norm->out[k]] > 0 || g->values[norm->out[k]].kind != VALUE_TEMP)
            return DER_OK;
    const struct node *conv = &g->nodes[conv_at];
    int *in = arena_zalloc(&g->arena, AFFINE_N_IN, sizeof *in);
    if (!in)
        return ctx_nomem(g->ctx);
    in[AFFINE_SRC] = conv->in[CONV_SRC];
    in[AFFINE_WEIGHTS] = conv->in[CONV_WEIGHTS];
    in[AFFINE_GAMMA] = norm->in[BN_GAMMA];
    in[AFFINE_BETA] = norm->in[BN_BETA];
    in[AFFINE_MEAN] = norm->in[BN_RUNNING_MEAN];
    in[AFFINE_VAR] = norm->in[BN_RUNNING_VAR];
    in[AFFINE_RESIDUAL] = norm->in[BN_RESIDUAL];
    struct node folded = {
        .op = OP_CONV2D_AFFINE, .n_in = AFFINE_N_IN, .n_out = 1, .in = in, .out = norm->out};
    folded.attr.conv = (struct conv_attr){.stride = conv->attr.conv.stride,
                                          .pad = conv->attr.conv.pad,
                                          .eps = norm->attr.norm.eps,
                                          .relu = norm->attr.norm.relu};
    replace(f, conv_at, at, &folded);
    return DER_OK;
}

/* Closes the gaps and tells every value anew who produces it. */
static void compact(struct fusion *f)
{
    struct graph *g = f->g;
    int kept = 0;
    for (int i = 0; i < g->n_nodes; i++)
        if (!f->dropped[i])
            g->nodes[kept++] = g->nodes[i];
    g->n_nodes = kept;
    for (int v = 0; v < g->n_values; v++)
        g->values[v].producer = -1;
    for (int i = 0; i < g->n_nodes; i++)
        for (int k = 0; k < g->nodes[i].n_out; k++)
            if (g->nodes[i].out[k] != NO_VALUE)
                g->values[g->nodes[i].out[k]].producer = i;
}

enum der_status graph_fuse(struct graph *g)
{
    struct fusion f = {.g = g};
    size_t n_values = (size_t)g->n_values;
    f.n_uses = arena_zalloc(&g->arena, n_values, sizeof *f.n_uses);
    f.user = arena_zalloc(&g->arena, n_values, sizeof *f.user);
    f.wants = arena_zalloc(&g->arena, n_values, sizeof *f.wants);
    f.dropped = arena_zalloc(&g->arena, (size_t)g->n_nodes, sizeof *f.dropped);
    if (!f.n_uses || !f.user || !f.wants || !f.dropped)
        return ctx_nomem(g->ctx);
    count_uses(&f);
    graph_mark_wanted(g, f.wants);
    for (int i = 0; i < g->n_nodes; i++) {
        if (f.dropped[i] || g->nodes[i].op != OP_BATCHNORM)
            continue;
        int at = i;
        for (int next = i; next >= 0; next = absorb_follower(&f, at))
            at = next;
        TRY(fold_convolution(&f, at));
    }
    compact(&f);
    return DER_OK;
}

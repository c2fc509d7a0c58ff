#include "graph/memplan.h"

#include <stdbool.h>

static bool alive_together(const struct memplan_item *a, const struct memplan_item *b)
{
    return a->first <= b->last && b->first <= a->last;
}

static size_t aligned(size_t bytes)
{
    return (bytes + MEM_ALIGNMENT - 1) / MEM_ALIGNMENT * MEM_ALIGNMENT;
}

/* Insertion into an order by falling size; equal sizes keep their order, so that the plan is the
 * same everywhere. A few hundred items: no need for more. */
static void sort_by_size(const struct memplan_item *items, int *order, int n)
{
    for (int i = 0; i < n; i++) {
        int at = i;
        for (; at > 0 && items[order[at - 1]].bytes < items[i].bytes; at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
}

/* Placed items in `by_offset` are ordered by offset: the first gap that is wide enough serves. */
static size_t lowest_place(const struct memplan_item *items, const int *by_offset, int n_placed,
                           const struct memplan_item *item)
{
    size_t offset = 0;
    for (int k = 0; k < n_placed; k++) {
        const struct memplan_item *other = &items[by_offset[k]];
        if (!alive_together(item, other))
            continue;
        if (offset + item->bytes <= other->offset)
            break;
        size_t end = aligned(other->offset + other->bytes);
        if (end > offset)
            offset = end;
    }
    return offset;
}

enum der_status memplan(struct der_ctx *ctx, struct memplan_item *items, int n, size_t *total)
{
    *total = 0;
    int *order = mem_alloc(&ctx->mem, (size_t)n, 2 * sizeof *order);
    if (!order)
        return ctx_nomem(ctx);
    int *by_offset = order + n;
    int n_placed = 0;
    sort_by_size(items, order, n);
    for (int i = 0; i < n; i++) {
        struct memplan_item *item = &items[order[i]];
        item->offset = 0;
        if (item->bytes == 0)
            continue;
        item->offset = lowest_place(items, by_offset, n_placed, item);
        int at = n_placed++;
        for (; at > 0 && items[by_offset[at - 1]].offset > item->offset; at--)
            by_offset[at] = by_offset[at - 1];
        by_offset[at] = order[i];
        if (aligned(item->offset + item->bytes) > *total)
            *total = aligned(item->offset + item->bytes);
    }
    mem_free(&ctx->mem, order);
    return DER_OK;
}

static void touch(const struct graph *g, int value, int node, int *first, int *last)
{
    if (value == NO_VALUE)
        return;
    value = graph_storage_of(g, value);
    if (first[value] < 0)
        first[value] = node;
    last[value] = node;
}

void graph_liveness(const struct graph *g, int *first, int *last)
{
    for (int v = 0; v < g->n_values; v++)
        first[v] = last[v] = -1;
    for (int i = 0; i < g->n_nodes; i++) {
        const struct node *node = &g->nodes[i];
        for (int k = 0; k < node->n_in; k++)
            touch(g, node->in[k], i, first, last);
        for (int k = 0; k < node->n_out; k++)
            touch(g, node->out[k], i, first, last);
    }
}

int node_inplace_input(const struct node *node, int out_position)
{
    switch (node->op) {
    case OP_RELU:
    case OP_RELU_GRAD:
    case OP_ADD:
    case OP_SCALE_CHANNEL:
    case OP_SCALE:
        return 0;
    case OP_BATCHNORM:
        return out_position == BN_DST ? BN_SRC : -1;
    case OP_BATCHNORM_GRAD:
        /* d_dst and src usually both die here. The residual's gradient is d_dst but for the zeros of the
         * ReLU, so it comes first; d_src takes what is left. */
        if (out_position == BNG_D_RESIDUAL)
            return BNG_D_DST;
        if (out_position != BNG_D_SRC)
            return -1;
        return node_out(node, BNG_D_RESIDUAL) == NO_VALUE ? BNG_D_DST : BNG_SRC;
    case OP_CONV2D_AFFINE:
        return AFFINE_RESIDUAL;
    default:
        return -1;
    }
}

/*
 * Updates in parts. An update reads and writes some twenty bytes for every parameter, which is all that the GPU does then.
 * Most parameters are those of the last layers, whose gradients come first: they can be updated while the other gradients are
 * computed, which need memory less.
 */
#include "backend/cuda/cuda.h"

enum { LEAST_PART = 1 << 18 }; /* numbers: fewer are not worth a launch */

/* Parameters of an update that are left, and when each can be updated. */
struct remainder {
    const struct graph *g;
    struct node *sgd;
    int *ready; /* [n] nodes that have to be done, by their number */
    bool *taken;
    int n;
};

/* Writes, that is, or reads. */
static bool node_touches(const struct graph *g, const struct node *node, int storage, bool reads)
{
    for (int k = 0; k < node->n_in; k++)
        if (node->in[k] != NO_VALUE && graph_storage_of(g, node->in[k]) == storage &&
            (reads || node_overwrites_input(node, k)))
            return true;
    for (int k = 0; k < node->n_out; k++)
        if (node->out[k] != NO_VALUE && graph_storage_of(g, node->out[k]) == storage)
            return true;
    return false;
}

/* Nodes up to the last one before the update, node `end`, that has to be done before it has operand k. */
static int done_with(const struct graph *g, const struct node *sgd, int k, int end)
{
    const int storage = graph_storage_of(g, sgd->in[k]);
    const bool is_changed = node_overwrites_input(sgd, k);
    while (end > 0 && !node_touches(g, &g->nodes[end - 1], storage, is_changed))
        end--;
    return end;
}

static int64_t numbers_of(const struct remainder *r, int i)
{
    return shape_count(r->g->values[r->sgd->in[1 + 3 * i]].shape);
}

/* Numbers that are left and can be updated behind so many nodes. */
static int64_t ready_numbers(const struct remainder *r, int nodes)
{
    int64_t numbers = 0;
    for (int i = 0; i < r->n; i++)
        numbers += !r->taken[i] && r->ready[i] <= nodes ? numbers_of(r, i) : 0;
    return numbers;
}

/* Takes the parameters that are ready behind so many nodes; in: has room for all. */
static int take_ready(struct remainder *r, int nodes, int *in)
{
    int n = 0;
    in[n++] = r->sgd->in[0];
    for (int i = 0; i < r->n; i++) {
        if (r->taken[i] || r->ready[i] > nodes)
            continue;
        r->taken[i] = true;
        for (int k = 1; k <= 3; k++)
            in[n++] = r->sgd->in[3 * i + k];
    }
    return n;
}

/* A part is what is ready when half of the numbers that are left are. at: [CUDA_UPDATE_PARTS + 1] nodes behind which parts
 * run. Returns how many there are; the last is what is left behind all nodes before the update, `end` of them. */
static int choose_parts(struct remainder *r, int end, struct arena *arena, struct node *parts,
                        int *at)
{
    int n = 0;
    for (int nodes = 0; nodes <= end; nodes++) {
        const int64_t left = ready_numbers(r, end);
        const int64_t ready = ready_numbers(r, nodes);
        const bool is_worth = n < CUDA_UPDATE_PARTS && nodes < end && 2 * ready >= left &&
                              ready >= LEAST_PART && left - ready > 0;
        if (!is_worth && nodes < end)
            continue;
        int *in = arena_zalloc(arena, (size_t)r->sgd->n_in, sizeof *in);
        if (!in)
            return -1;
        parts[n] = *r->sgd;
        parts[n].in = in;
        parts[n].n_in = take_ready(r, nodes, in);
        at[n++] = nodes;
    }
    return n;
}

/* Node `end` becomes its parts. */
static void insert_parts(struct graph *g, int end, const struct node *parts, const int *at, int n)
{
    for (int i = g->n_nodes - 1; i > end; i--)
        g->nodes[i + n - 1] = g->nodes[i];
    int from = end - 1;
    for (int part = n - 1; part >= 0; part--) {
        for (; from >= at[part]; from--)
            g->nodes[from + part + 1] = g->nodes[from];
        g->nodes[at[part] + part] = parts[part];
    }
    g->n_nodes += n - 1;
}

/* Returns how many nodes node `at` has become, -1 without memory. */
static int split_update(struct arena *arena, struct graph *g, int at)
{
    struct node parts[CUDA_UPDATE_PARTS + 1];
    int behind[CUDA_UPDATE_PARTS + 1];
    struct node sgd = g->nodes[at];
    struct remainder r = {.g = g, .sgd = &sgd, .n = (sgd.n_in - 1) / 3};
    r.ready = arena_zalloc(arena, (size_t)r.n, sizeof *r.ready);
    r.taken = arena_zalloc(arena, (size_t)r.n, sizeof *r.taken);
    if (!r.ready || !r.taken)
        return -1;
    for (int i = 0; i < r.n; i++) {
        r.ready[i] = done_with(g, &sgd, 0, at);
        for (int k = 1; k <= 3; k++) {
            const int done = done_with(g, &sgd, 3 * i + k, at);
            r.ready[i] = done > r.ready[i] ? done : r.ready[i];
        }
    }
    const int n = choose_parts(&r, at, arena, parts, behind);
    if (n > 1)
        insert_parts(g, at, parts, behind, n);
    return n;
}

enum der_status cuda_parts_split(struct arena *arena, struct graph *g)
{
    for (int i = 0; i < g->n_nodes; i++) {
        if (g->nodes[i].op != OP_SGD)
            continue;
        const int n = split_update(arena, g, i);
        if (n < 0)
            return ctx_nomem(g->ctx);
        i += n - 1;
    }
    return DER_OK;
}

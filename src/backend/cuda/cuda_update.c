/*
 * What the update of a training step does besides: it writes weights as the convolutions of the next iteration want
 * them, and reads gradients as those of this one have written them. Launches between the two would read and write
 * all of them once more. It need not wait for the last gradient either: while others are computed, memory has time for
 * the parameters whose gradients are there.
 */
#include "backend/cuda/cuda.h"

static int n_parameters(const struct node *sgd)
{
    return (sgd->n_in - 1) / 3;
}

bool cuda_writes(const struct cuda_program *p, int step, int value)
{
    const struct node *node = &p->steps[step].node;
    bool writes = false;
    for (int k = 0; k < node->n_out; k++)
        writes |= node->out[k] != NO_VALUE && p->values[node->out[k]].owner == value;
    for (int k = 0; k < node->n_in; k++)
        writes |= node->in[k] != NO_VALUE && p->values[node->in[k]].owner == value &&
                  node_overwrites_input(node, k);
    return writes;
}

int cuda_only_writer(const struct cuda_program *p, int value)
{
    int writer = -1;
    int n = 0;
    for (int i = 0; i < p->n_steps; i++)
        if (cuda_writes(p, i, value)) {
            writer = i;
            n++;
        }
    return n == 1 ? writer : -1;
}

/* ---- parts ----------------------------------------------------------------------------------------- */

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
    struct remainder r = {.g = g, .sgd = &sgd, .n = n_parameters(&sgd)};
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

enum der_status cuda_update_split(struct arena *arena, struct graph *g)
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

/* ---- weights --------------------------------------------------------------------------------------- */

static bool is_read_behind(const struct cuda_program *p, int index, int step)
{
    for (int i = step + 1; i < p->n_steps; i++)
        if (p->steps[i].conv && p->steps[i].conv->derived == index)
            return true;
    return false;
}

/* The place of a value among the parameters of an update; -1: it is none of them. */
static int parameter_of(const struct node *sgd, int value)
{
    for (int i = 0; i < n_parameters(sgd); i++)
        if (sgd->in[1 + 3 * i] == value)
            return i;
    return -1;
}

static void keep(struct cuda_program *p, int index)
{
    struct cuda_derived *derived = &p->derived[index];
    const int source = derived->source[0];
    if (derived->inside || derived->source[1] != NO_VALUE ||
        cuda_sgd_per_block(derived->shape.area) == 0)
        return;
    const int writer = cuda_only_writer(p, source);
    if (writer < 0 || p->steps[writer].node.op != OP_SGD || is_read_behind(p, index, writer))
        return;
    const int parameter = parameter_of(&p->steps[writer].node, source);
    if (parameter < 0 || p->steps[writer].keeps[parameter] >= 0)
        return;
    p->steps[writer].keeps[parameter] = index;
    derived->kept = true;
}

/* ---- gradients ------------------------------------------------------------------------------------- */

/* True when a value is a gradient of one update behind step `writer`, and nothing else reads it. */
static bool is_spent(const struct cuda_program *p, int value, int writer)
{
    int n_reads = 0;
    bool is_gradient = false;
    for (int i = 0; i < p->n_steps; i++) {
        const struct node *node = &p->steps[i].node;
        for (int k = 0; k < node->n_in; k++)
            n_reads += node->in[k] != NO_VALUE && p->values[node->in[k]].owner == value;
        for (int k = 0; i > writer && node->op == OP_SGD && k < n_parameters(node); k++)
            is_gradient |= node->in[2 + 3 * k] == value;
    }
    return is_gradient && n_reads == 1;
}

/* In f32 gradients are written out as ever: what is trained so is not trained for speed. */
static bool can_stay_raw(const struct cuda_program *p, int step)
{
    const struct cuda_conv *conv = p->steps[step].conv;
    if (p->steps[step].node.op != OP_CONV2D_D_WEIGHTS ||
        !(conv->plan || conv->way == CONV_BY_STRIP) || conv->grad_type != CUDA_BF16)
        return false;
    const int id = p->steps[step].node.out[0];
    const struct cuda_value *value = &p->values[id];
    const bool is_seen = value->kind != VALUE_TEMP && !p->hides_gradients;
    return !is_seen && cuda_sgd_per_block(shape_spatial(value->slot.shape)) > 0 &&
           cuda_only_writer(p, id) == step && is_spent(p, id, step);
}

/* ---- both ------------------------------------------------------------------------------------------ */

static enum der_status keep_nothing(struct cuda_program *p, struct cuda_step *sgd)
{
    const int n = n_parameters(&sgd->node);
    sgd->keeps = arena_zalloc(&p->arena, (size_t)n, sizeof *sgd->keeps);
    if (!sgd->keeps)
        return ctx_nomem(p->base.be->ctx);
    for (int k = 0; k < n; k++)
        sgd->keeps[k] = -1;
    return DER_OK;
}

enum der_status cuda_update_plan(struct cuda_program *p)
{
    for (int i = 0; i < p->n_steps; i++)
        if (p->steps[i].node.op == OP_SGD)
            TRY(keep_nothing(p, &p->steps[i]));
    if (p->type != CUDA_BF16)
        return DER_OK;
    for (int i = 0; i < p->n_derived && !cuda_of(p)->weights_apart; i++)
        keep(p, i);
    for (int i = 0; i < p->n_steps && !cuda_of(p)->gradients_apart; i++)
        if (can_stay_raw(p, i))
            cuda_conv_stay_raw(p, &p->steps[i]);
    return DER_OK;
}

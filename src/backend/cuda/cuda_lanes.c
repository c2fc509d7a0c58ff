/*
 * Lanes: which steps of a program may run beside each other, and what waits for what.
 *
 * Kernels of a step seldom fill a GPU from their first microsecond to their last. So the steps that
 * everything waits for stay on the main lane; branches that are needed later (shortcuts, a second
 * head) run on another; and what nothing waits for but the update (gradients of weights) on a third.
 *
 * A step on another lane waits for all of the main lane that comes before it, and for the steps of
 * other lanes whose results it reads; the main lane waits where it reads what another has written.
 * Memory that such a step touches is kept until the main lane has waited for its lane.
 */
#include "backend/cuda/cuda.h"

/* Main-lane steps that must lie between a result and its first reader for another lane to be worth it. */
enum { SLACK = 2 };

/* ---- order: branches begin as early as they can --------------------------------------------------- */

/* Shortcuts of residual networks: a 1x1 convolution, and the batch norm behind one. */
static bool starts_branch(const struct graph *g, const struct node *node)
{
    if (node->op == OP_CONV2D)
        return g->values[node->in[CONV_WEIGHTS]].shape.dim[2] == 1;
    return node->op == OP_CONV2D_AFFINE && node->in[AFFINE_RESIDUAL] == NO_VALUE &&
           g->values[node->in[AFFINE_WEIGHTS]].shape.dim[2] == 1;
}

/* Vectors that are added are shares of a mask's gradient, which nothing but the update waits for. Where gradients are
 * made they come behind all else: twenty small launches in a row at the end of a ResNet-18. */
static bool is_vector(const struct shape *shape)
{
    return shape->rank == 1;
}

static bool reads_result_of(const struct node *node, const struct node *other)
{
    for (int i = 0; i < node->n_in; i++)
        for (int k = 0; k < other->n_out; k++)
            if (node->in[i] != NO_VALUE && node->in[i] == other->out[k])
                return true;
    return false;
}

/* Moves node `at` up to just behind the last node whose results it reads; returns its new place. */
static int move_up(struct node *nodes, int at)
{
    const struct node node = nodes[at];
    for (; at > 0 && !reads_result_of(&node, &nodes[at - 1]); at--)
        nodes[at] = nodes[at - 1];
    nodes[at] = node;
    return at;
}

void cuda_lanes_order(const struct graph *g, struct node *nodes)
{
    for (int i = 0; i < g->n_nodes; i++)
        nodes[i] = g->nodes[i];
    for (int i = 0; i < g->n_nodes; i++) {
        const struct node *node = &nodes[i];
        bool is_next = node->op == OP_BATCHNORM && node->in[BN_RESIDUAL] == NO_VALUE;
        int producer = 0;
        while (is_next && producer < i &&
               !(nodes[producer].n_out > 0 && nodes[producer].out[0] == node->in[BN_SRC]))
            producer++;
        is_next = is_next && producer < i && starts_branch(g, &nodes[producer]);
        if (is_next || starts_branch(g, node) ||
            (node->op == OP_ADD && is_vector(&g->values[node->out[0]].shape)))
            (void)move_up(nodes, i);
    }
}

/* ---- lanes ------------------------------------------------------------------------------------------ */

static int owner_of(const struct cuda_program *p, int value)
{
    return value == NO_VALUE ? NO_VALUE : p->values[value].owner;
}

/* The copy of a caller's image that a step reads in is its work too. */
static bool writes(const struct cuda_program *p, const struct cuda_step *step, int owner)
{
    for (int k = 0; k < step->n_import; k++)
        if (step->import[k] == owner)
            return true;
    for (int k = 0; k < step->node.n_out; k++)
        if (owner_of(p, step->node.out[k]) == owner)
            return true;
    return false;
}

static bool reads_result(const struct cuda_program *p, const struct node *node,
                         const struct cuda_step *producer)
{
    for (int k = 0; k < node->n_in; k++) {
        int owner = owner_of(p, node->in[k]);
        if (owner != NO_VALUE && writes(p, producer, owner))
            return true;
    }
    return false;
}

/* A gradient that does some of batch norm's work reads what that reads (cuda_statistics.c). */
static bool reads_from(const struct cuda_program *p, const struct cuda_step *step,
                       const struct cuda_step *producer)
{
    const bool is_both = step->node.op == OP_CONV2D_D_SRC && step->conv && step->conv->norm;
    return reads_result(p, &step->node, producer) ||
           (is_both && reads_result(p, &step->conv->norm->node, producer));
}

/* What ends in the update alone. */
static bool is_sink(const struct cuda_program *p, const struct cuda_step *step)
{
    const struct node *node = &step->node;
    switch (node->op) {
    case OP_ADD:
        return is_vector(&p->values[node->out[0]].slot.shape);
    case OP_CONV2D_D_WEIGHTS:
    case OP_LINEAR_D_WEIGHTS:
    case OP_MASK_SPARSITY:
    case OP_MASK_GATE_GRAD:
        return true;
    default:
        return false;
    }
}

/* From the last step to the first: a step leaves the main lane when all that read it have left, or come
 * much later. */
static void choose_lanes(struct cuda_program *p)
{
    int n_main = 0; /* steps of the main lane behind step i */
    for (int i = p->n_steps - 1; i >= 0; i--) {
        struct cuda_step *step = &p->steps[i];
        bool leaves = step->node.op != OP_SGD && step->node.op != OP_JOIN && step->node.n_out > 0;
        int passed = 0; /* of them, those before step j */
        for (int j = i + 1; j < p->n_steps && leaves && passed < SLACK; j++) {
            bool on_main = p->steps[j].lane == LANE_MAIN;
            leaves = !on_main || !reads_from(p, &p->steps[j], step);
            passed += on_main;
        }
        leaves = leaves && n_main >= SLACK;
        step->lane = !leaves ? LANE_MAIN : is_sink(p, step) ? LANE_SINK : LANE_BRANCH;
        n_main += step->lane == LANE_MAIN;
    }
}

void cuda_lanes_plan(struct cuda_program *p)
{
    int waited[N_LANES][N_LANES]; /* [lane][other]: steps before this one have been waited for */
    int newest[N_LANES] = {-1, -1, -1};
    choose_lanes(p);
    for (int lane = 0; lane < N_LANES; lane++)
        for (int other = 0; other < N_LANES; other++)
            waited[lane][other] = 0;
    for (int i = 0; i < p->n_steps; i++) {
        struct cuda_step *step = &p->steps[i];
        for (int other = 0; other < N_LANES; other++) {
            bool is_first = other == LANE_MAIN && newest[step->lane] < 0;
            bool waits = is_first || ((other == LANE_MAIN || step->node.op == OP_SGD) &&
                                      newest[other] >= waited[step->lane][other]);
            for (int j = waited[step->lane][other]; j < i && !waits; j++)
                waits = (int)p->steps[j].lane == other && reads_from(p, step, &p->steps[j]);
            if (other == (int)step->lane || !waits)
                continue;
            step->waits |= 1U << other;
            waited[step->lane][other] = i;
        }
        newest[step->lane] = i;
        step->last_step = i;
    }
    for (int i = 0; i < p->n_steps; i++) {
        struct cuda_step *step = &p->steps[i];
        if (step->lane == LANE_MAIN)
            continue;
        step->last_step = p->n_steps;
        for (int j = p->n_steps - 1; j > i; j--)
            if (p->steps[j].lane == LANE_MAIN && p->steps[j].waits >> step->lane & 1U)
                step->last_step = j;
    }
}

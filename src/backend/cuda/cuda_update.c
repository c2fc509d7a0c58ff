/*
 * What the update of a training step does besides: it has all weights at hand, and writes them as the convolutions of
 * the next iteration want them. A launch of its own would read all of them again.
 */
#include "backend/cuda/cuda.h"

/* The only step that writes a value; -1 when none does, or several. */
static int only_writer(const struct cuda_program *p, int value)
{
    int writer = -1;
    int n = 0;
    for (int i = 0; i < p->n_steps; i++) {
        const struct node *node = &p->steps[i].node;
        bool writes = false;
        for (int k = 0; k < node->n_out; k++)
            writes |= node->out[k] != NO_VALUE && p->values[node->out[k]].owner == value;
        for (int k = 0; k < node->n_in; k++)
            writes |= node->in[k] != NO_VALUE && p->values[node->in[k]].owner == value &&
                      node_overwrites_input(node, k);
        if (writes) {
            writer = i;
            n++;
        }
    }
    return n == 1 ? writer : -1;
}

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
    for (int i = 0; i < (sgd->n_in - 1) / 3; i++)
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
    const int writer = only_writer(p, source);
    if (writer < 0 || p->steps[writer].node.op != OP_SGD || is_read_behind(p, index, writer))
        return;
    const int parameter = parameter_of(&p->steps[writer].node, source);
    if (parameter < 0 || p->steps[writer].keeps[parameter] >= 0)
        return;
    p->steps[writer].keeps[parameter] = index;
    derived->kept = true;
}

enum der_status cuda_update_plan(struct cuda_program *p)
{
    for (int i = 0; i < p->n_steps; i++) {
        struct cuda_step *step = &p->steps[i];
        if (step->node.op != OP_SGD)
            continue;
        const int n = (step->node.n_in - 1) / 3;
        step->keeps = arena_zalloc(&p->arena, (size_t)n, sizeof *step->keeps);
        if (!step->keeps)
            return ctx_nomem(p->base.be->ctx);
        for (int k = 0; k < n; k++)
            step->keeps[k] = -1;
    }
    if (p->type != CUDA_BF16 || cuda_of(p)->weights_apart)
        return DER_OK;
    for (int i = 0; i < p->n_derived; i++)
        keep(p, i);
    return DER_OK;
}

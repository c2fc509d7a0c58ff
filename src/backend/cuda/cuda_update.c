/*
 * What the update of a training step does besides: it writes weights as the convolutions of the next iteration want
 * them, and reads gradients as those of this one have written them. Launches between the two would read and write
 * all of them once more.
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

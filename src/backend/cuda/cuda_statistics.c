/*
 * Batch norm in training begins with sums over its source. Where that is the result of a convolution by kernels of strip.cu or
 * thin.cu, these leave the sums, which they have in registers, in the scratch of batch norm, and the launch that would
 * read all of the image for them is left out.
 *
 * The gradient of batch norm begins with sums over what reaches it. Where that comes from the gradient of such a
 * convolution's data, that does what else has to be done on the way, and leaves the sums.
 */
#include "backend/cuda/cuda.h"

/* All blocks of batch norm read all parts of their channels; its own launch leaves 128 at most. */
enum { MOST_PARTS = 256 };

static bool can_sum(const struct cuda_program *p, const struct cuda_step *step, enum op op)
{
    return step->node.op == op && !step->conv->norm && cuda_conv_parts(p, step, MOST_PARTS) > 0;
}

/* The step before step i that alone writes a value and can leave sums over it; or -1. */
static int summing_writer(const struct cuda_program *p, int value, int i, enum op op)
{
    const int writer = value == NO_VALUE ? -1 : cuda_only_writer(p, value);
    return writer >= 0 && writer < i && can_sum(p, &p->steps[writer], op) ? writer : -1;
}

static void sum_by(struct cuda_program *p, int i, int writer, int64_t channels)
{
    struct cuda_conv *conv = p->steps[writer].conv;
    conv->norm = &p->steps[i];
    conv->parts = cuda_conv_parts(p, &p->steps[writer], MOST_PARTS);
    p->steps[i].summed_by = &p->steps[writer];
    p->steps[i].scratch_bytes = cuda_bn_sums(channels, conv->parts);
}

/* ---- forwards --------------------------------------------------------------------------------------- */

static void plan_norm(struct cuda_program *p, int i)
{
    const struct node *norm = &p->steps[i].node;
    if (!norm->attr.norm.training)
        return;
    const int writer = summing_writer(p, norm->in[BN_SRC], i, OP_CONV2D);
    if (writer >= 0)
        sum_by(p, i, writer, p->steps[writer].conv->shape.k);
}

/* ---- backwards -------------------------------------------------------------------------------------- */

/* Steps from `first` on, up to step i, leave what that reads alone, its operand `but` aside. */
static bool reads_early(const struct cuda_program *p, int i, int first, int but)
{
    const struct node *node = &p->steps[i].node;
    for (int k = 0; k < node->n_in; k++)
        for (int j = first; k != but && node->in[k] != NO_VALUE && j < i; j++)
            if (cuda_writes(p, j, p->values[node->in[k]].owner))
                return false;
    return true;
}

/* Inside the program, and nothing but step i reads it. */
static bool is_for_alone(const struct cuda_program *p, int value, int i)
{
    int n_reads = 0;
    for (int j = 0; j < p->n_steps; j++) {
        const struct node *node = &p->steps[j].node;
        for (int k = 0; k < node->n_in; k++) {
            const bool reads = node->in[k] != NO_VALUE && p->values[node->in[k]].owner == value;
            if (reads && j != i)
                return false;
            n_reads += reads;
        }
    }
    return n_reads == 1 && p->values[value].kind == VALUE_TEMP;
}

/* Whether there was nothing between batch norm and its ReLU, so that the source tells where that was open. */
static bool was_plain(const struct cuda_program *p, const struct node *gradient)
{
    const int dst = gradient->in[BNG_DST];
    const int writer = dst == NO_VALUE ? -1 : cuda_only_writer(p, dst);
    if (writer < 0 || p->steps[writer].node.op != OP_BATCHNORM)
        return false;
    const struct node *norm = &p->steps[writer].node;
    return norm->in[BN_RESIDUAL] == NO_VALUE && norm->in[BN_SRC] == gradient->in[BNG_SRC] &&
           norm->out[BN_MEAN] == gradient->in[BNG_MEAN];
}

/* What the convolution writes is then the residual's gradient too. */
static void share_residual(struct cuda_program *p, const struct node *gradient)
{
    const int residual = node_out(gradient, BNG_D_RESIDUAL);
    if (residual == NO_VALUE)
        return;
    p->values[residual].kind = VALUE_ALIAS;
    p->values[residual].owner = gradient->in[BNG_D_DST];
}

/* at: which of the two gradients comes from the convolution. */
static bool plan_gradient(struct cuda_program *p, int i, int at)
{
    struct node *gradient = &p->steps[i].node;
    const int d_dst = gradient->in[at];
    const int residual = node_out(gradient, BNG_D_RESIDUAL);
    const int writer = summing_writer(p, d_dst, i, OP_CONV2D_D_SRC);
    const int other = gradient->in[at == BNG_D_DST ? BNG_D_DST2 : BNG_D_DST];
    if (writer < 0 || p->values[d_dst].sparse || (other != NO_VALUE && p->values[other].sparse) ||
        !is_for_alone(p, d_dst, i) || !reads_early(p, i, writer, at) ||
        (residual != NO_VALUE && p->values[residual].kind != VALUE_TEMP))
        return false;
    sum_by(p, i, writer, p->steps[writer].conv->shape.c);
    p->steps[i].is_plain = was_plain(p, gradient);
    gradient->in[at] = gradient->in[BNG_D_DST];
    gradient->in[BNG_D_DST] = d_dst;
    share_residual(p, gradient);
    return true;
}

/* ---- both ------------------------------------------------------------------------------------------- */

void cuda_statistics_plan(struct cuda_program *p)
{
    const struct cuda_backend *cuda = cuda_of(p);
    for (int i = 0; i < p->n_steps; i++) {
        const struct node *node = &p->steps[i].node;
        if (node->op == OP_BATCHNORM && !cuda->statistics_apart)
            plan_norm(p, i);
        if (node->op == OP_BATCHNORM_GRAD && node->attr.norm.training && !cuda->slopes_apart &&
            !plan_gradient(p, i, BNG_D_DST))
            (void)plan_gradient(p, i, BNG_D_DST2);
    }
}

int cuda_statistics_first(const struct cuda_program *p, int i)
{
    const struct cuda_step *conv = p->steps[i].summed_by;
    return conv ? (int)(conv - p->steps) : i;
}

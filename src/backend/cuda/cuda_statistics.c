/*
 * Batch norm in training begins with sums over its source. Where that is the result of a convolution by kernels of strip.cu,
 * these leave the sums, which they have in registers, in the scratch of batch norm, and the launch that would read
 * all of the image for them is left out.
 */
#include "backend/cuda/cuda.h"

/* All blocks of batch norm read a part for each picture; its own launch leaves 128 at most. */
enum { MOST_PARTS = 256 };

static bool can_sum(const struct cuda_step *step)
{
    return step->node.op == OP_CONV2D && step->conv->way == CONV_BY_STRIP && !step->conv->norm &&
           step->conv->shape.n <= MOST_PARTS && cuda_strip_sums(&step->conv->shape);
}

/* The convolution that writes what batch norm, step i, reads, and can leave its sums; or NULL. */
static struct cuda_step *source_of(const struct cuda_program *p, int i)
{
    const struct node *norm = &p->steps[i].node;
    if (norm->op != OP_BATCHNORM || !norm->attr.norm.training)
        return NULL;
    const int writer = cuda_only_writer(p, norm->in[BN_SRC]);
    if (writer < 0 || writer >= i || !can_sum(&p->steps[writer]))
        return NULL;
    return &p->steps[writer];
}

void cuda_statistics_plan(struct cuda_program *p)
{
    for (int i = 0; i < p->n_steps && !cuda_of(p)->statistics_apart; i++) {
        struct cuda_step *conv = source_of(p, i);
        if (!conv)
            continue;
        conv->conv->norm = &p->steps[i];
        p->steps[i].summed_by = conv;
        p->steps[i].scratch_bytes = cuda_bn_sums(conv->conv->shape.k, conv->conv->shape.n);
    }
}

int cuda_statistics_first(const struct cuda_program *p, int i)
{
    const struct cuda_step *conv = p->steps[i].summed_by;
    return conv ? (int)(conv - p->steps) : i;
}

#include "support/cases.h"

#include "support/test_ctx.h"

static void (*const generators[OP_COUNT])(enum op op, struct case_sink *sink) = {
    [OP_CONV2D] = cases_conv,
    [OP_CONV2D_D_SRC] = cases_conv,
    [OP_CONV2D_D_WEIGHTS] = cases_conv,
    [OP_CONV2D_AFFINE] = cases_conv,
    [OP_BATCHNORM] = cases_batchnorm,
    [OP_BATCHNORM_GRAD] = cases_batchnorm_grad,
    [OP_RELU] = cases_pointwise,
    [OP_RELU_GRAD] = cases_pointwise,
    [OP_ADD] = cases_pointwise,
    [OP_SCALE_CHANNEL] = cases_pointwise,
    [OP_SCALE_CHANNEL_GRAD] = cases_pointwise,
    [OP_SCALE] = cases_pointwise,
    [OP_SCALE_GRAD] = cases_pointwise,
    [OP_MAXPOOL] = cases_pool,
    [OP_MAXPOOL_GRAD] = cases_pool,
    [OP_AVGPOOL] = cases_pool,
    [OP_AVGPOOL_GRAD] = cases_pool,
    [OP_LINEAR] = cases_linear,
    [OP_LINEAR_D_SRC] = cases_linear,
    [OP_LINEAR_D_WEIGHTS] = cases_linear,
    [OP_L2NORM] = cases_l2norm,
    [OP_L2NORM_GRAD] = cases_l2norm,
    [OP_SOFTMAX_XENT] = cases_logits_loss,
    [OP_BCE] = cases_logits_loss,
    [OP_MARGIN_LOSS] = cases_logits_loss,
    [OP_RANK] = cases_logits_loss,
    [OP_DISTILL] = cases_pair_loss,
    [OP_COSINE_LOSS] = cases_pair_loss,
    [OP_MASK_GATE] = cases_mask,
    [OP_MASK_GATE_GRAD] = cases_mask,
    [OP_MASK_SPARSITY] = cases_mask,
    [OP_SGD] = cases_sgd,
    [OP_FEED] = cases_feed,
    [OP_TALLY] = cases_feed,
};

void case_emit(struct case_sink *sink, struct op_case c)
{
    c.stream = ++sink->n_visited;
    sink->visit(sink->user, &c);
}

void cases_of(enum op op, struct case_sink *sink)
{
    if (generators[op])
        generators[op](op, sink);
}

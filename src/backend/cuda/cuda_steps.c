/*
 * Steps that are neither convolution nor matrix product: operands of a node into the arguments of a
 * kernel.
 */
#include "backend/cuda/cuda.h"

#include <assert.h>
#include <string.h>

static struct cuda_rows in_rows(const struct cuda_program *p, const struct cuda_step *step, int i)
{
    return value_rows(p, step_in(p, step, i));
}

static struct cuda_rows out_rows(const struct cuda_program *p, const struct cuda_step *step, int i)
{
    return value_rows(p, step_out(p, step, i));
}

static float *in_data(const struct cuda_program *p, const struct cuda_step *step, int i)
{
    return value_data(step_in(p, step, i));
}

static float *out_data(const struct cuda_program *p, const struct cuda_step *step, int i)
{
    return value_data(step_out(p, step, i));
}

/* ---- batch norm --------------------------------------------------------------------------------- */

static cudaError_t run_batchnorm(struct cuda_program *p, const struct cuda_step *step,
                                 cudaStream_t stream)
{
    const struct norm_attr *attr = &step->node.attr.norm;
    const struct cuda_bn args = {
        .src = in_rows(p, step, BN_SRC),
        .residual = in_rows(p, step, BN_RESIDUAL),
        .dst = out_rows(p, step, BN_DST),
        .gamma = in_data(p, step, BN_GAMMA),
        .beta = in_data(p, step, BN_BETA),
        .running_mean = in_data(p, step, BN_RUNNING_MEAN),
        .running_var = in_data(p, step, BN_RUNNING_VAR),
        .mask = in_data(p, step, BN_MASK),
        .mean = out_data(p, step, BN_MEAN),
        .inv_std = out_data(p, step, BN_INV_STD),
        .eps = attr->eps,
        .momentum = attr->momentum,
        .training = attr->training,
        .relu = attr->relu,
        .scratch = step_scratch(p, step),
        .summed = step->summed_by ? step->summed_by->conv->parts : 0,
        .in_passes = cuda_of(p)->norm_in_passes,
    };
    return cuda_bn(&args, stream);
}

struct cuda_bn_grad cuda_bn_grad_of(const struct cuda_program *p, const struct cuda_step *step)
{
    /* A sparse gradient, if there is one, is the second. */
    const bool first_is_sparse = step_in(p, step, BNG_D_DST)->sparse;
    const int second = first_is_sparse ? BNG_D_DST : BNG_D_DST2;
    const struct cuda_value *d_dst2 = step_in(p, step, second);
    const bool sparse = d_dst2 && d_dst2->sparse;
    return (struct cuda_bn_grad){
        .d_dst = in_rows(p, step, first_is_sparse ? BNG_D_DST2 : BNG_D_DST),
        .d_dst2 = in_rows(p, step, second),
        .log_w = sparse ? cuda_log2(d_dst2->slot.shape.dim[3]) : 0,
        .src = in_rows(p, step, BNG_SRC),
        .dst = in_rows(p, step, BNG_DST),
        .d_src = out_rows(p, step, BNG_D_SRC),
        .d_residual = out_rows(p, step, BNG_D_RESIDUAL),
        .gamma = in_data(p, step, BNG_GAMMA),
        .beta = in_data(p, step, BNG_BETA),
        .mean = in_data(p, step, BNG_MEAN),
        .inv_std = in_data(p, step, BNG_INV_STD),
        .mask = in_data(p, step, BNG_MASK),
        .d_gamma = out_data(p, step, BNG_D_GAMMA),
        .d_beta = out_data(p, step, BNG_D_BETA),
        .d_mask = out_data(p, step, BNG_D_MASK),
        .training = step->node.attr.norm.training,
        .relu = step->node.attr.norm.relu,
        .scratch = step_scratch(p, step),
        .summed = step->summed_by ? step->summed_by->conv->parts : 0,
        .in_passes = cuda_of(p)->norm_in_passes,
    };
}

static cudaError_t run_batchnorm_grad(struct cuda_program *p, const struct cuda_step *step,
                                      cudaStream_t stream)
{
    const struct cuda_bn_grad args = cuda_bn_grad_of(p, step);
    return cuda_bn_grad(&args, stream);
}

/* ---- pointwise ---------------------------------------------------------------------------------- */

static cudaError_t run_relu(struct cuda_program *p, const struct cuda_step *step,
                            cudaStream_t stream)
{
    return cuda_relu(out_rows(p, step, 0), in_rows(p, step, 0), stream);
}

static cudaError_t run_relu_grad(struct cuda_program *p, const struct cuda_step *step,
                                 cudaStream_t stream)
{
    return cuda_relu_grad(out_rows(p, step, 0), in_rows(p, step, 0), in_rows(p, step, 1), stream);
}

/* CUDA_ADD_MAX at a time, in order. */
static cudaError_t run_add(struct cuda_program *p, const struct cuda_step *step,
                           cudaStream_t stream)
{
    const struct cuda_rows dst = out_rows(p, step, 0);
    cudaError_t error = cudaSuccess;
    for (int i = 0; i < step->node.n_in && error == cudaSuccess;) {
        struct cuda_rows src[CUDA_ADD_MAX];
        int n = 0;
        if (i > 0)
            src[n++] = dst;
        while (n < CUDA_ADD_MAX && i < step->node.n_in)
            src[n++] = in_rows(p, step, i++);
        error = cuda_add(dst, src, n, stream);
    }
    return error;
}

static cudaError_t run_scale(struct cuda_program *p, const struct cuda_step *step,
                             cudaStream_t stream)
{
    return cuda_scale(out_rows(p, step, 0), in_rows(p, step, 0), in_data(p, step, 1), stream);
}

static cudaError_t run_scale_grad(struct cuda_program *p, const struct cuda_step *step,
                                  cudaStream_t stream)
{
    return cuda_scale_grad(out_rows(p, step, 0), out_data(p, step, 1), in_rows(p, step, 0),
                           in_rows(p, step, 1), in_data(p, step, 2), stream);
}

static cudaError_t run_scale_channel(struct cuda_program *p, const struct cuda_step *step,
                                     cudaStream_t stream)
{
    return cuda_scale_channel(out_rows(p, step, 0), in_rows(p, step, 0), in_data(p, step, 1),
                              stream);
}

static cudaError_t run_scale_channel_grad(struct cuda_program *p, const struct cuda_step *step,
                                          cudaStream_t stream)
{
    return cuda_scale_channel_grad(out_rows(p, step, 0), out_data(p, step, 1), in_rows(p, step, 0),
                                   in_rows(p, step, 1), in_data(p, step, 2), stream);
}

/* ---- pooling ------------------------------------------------------------------------------------ */

static struct cuda_pool pool_of(const struct cuda_program *p, const struct cuda_value *src,
                                const struct cuda_value *dst, const struct pool_attr *attr)
{
    return (struct cuda_pool){.n = src->slot.shape.dim[0],
                              .h = src->slot.shape.dim[2],
                              .w = src->slot.shape.dim[3],
                              .out_h = dst->slot.shape.dim[2],
                              .out_w = dst->slot.shape.dim[3],
                              .src_stored = src->stored,
                              .dst_stored = dst->stored,
                              .kernel = attr->kernel,
                              .stride = attr->stride,
                              .pad = attr->pad,
                              .type = value_type(p, src)};
}

static cudaError_t run_maxpool(struct cuda_program *p, const struct cuda_step *step,
                               cudaStream_t stream)
{
    const struct cuda_pool pool =
        pool_of(p, step_in(p, step, 0), step_out(p, step, 0), &step->node.attr.pool);
    return cuda_maxpool(&pool, out_data(p, step, 0), value_data(step_out(p, step, 1)),
                        in_data(p, step, 0), stream);
}

static cudaError_t run_maxpool_grad(struct cuda_program *p, const struct cuda_step *step,
                                    cudaStream_t stream)
{
    const struct cuda_pool pool =
        pool_of(p, step_out(p, step, 0), step_in(p, step, 0), &step->node.attr.pool);
    return cuda_maxpool_grad(&pool, out_data(p, step, 0), in_data(p, step, 0),
                             value_data(step_in(p, step, 1)), stream);
}

static cudaError_t run_avgpool(struct cuda_program *p, const struct cuda_step *step,
                               cudaStream_t stream)
{
    return cuda_avgpool(out_rows(p, step, 0), in_rows(p, step, 0),
                        shape_spatial(step_in(p, step, 0)->slot.shape), stream);
}

static cudaError_t run_avgpool_grad(struct cuda_program *p, const struct cuda_step *step,
                                    cudaStream_t stream)
{
    return cuda_avgpool_grad(out_rows(p, step, 0), in_rows(p, step, 0),
                             shape_spatial(step_out(p, step, 0)->slot.shape), stream);
}

/* ---- matrices ----------------------------------------------------------------------------------- */

static cudaError_t run_join(struct cuda_program *p, const struct cuda_step *step,
                            cudaStream_t stream)
{
    /* Aliases have done it already. */
    (void)p;
    (void)step;
    (void)stream;
    return cudaSuccess;
}

static cudaError_t run_l2norm(struct cuda_program *p, const struct cuda_step *step,
                              cudaStream_t stream)
{
    return cuda_l2norm(out_rows(p, step, 0), out_data(p, step, 1), in_rows(p, step, 0),
                       step->node.attr.eps, stream);
}

static cudaError_t run_l2norm_grad(struct cuda_program *p, const struct cuda_step *step,
                                   cudaStream_t stream)
{
    return cuda_l2norm_grad(out_rows(p, step, 0), in_rows(p, step, 0), in_rows(p, step, 1),
                            in_data(p, step, 2), step->node.attr.eps, stream);
}

/* ---- losses ------------------------------------------------------------------------------------- */

static cudaError_t run_loss(struct cuda_program *p, const struct cuda_step *step,
                            cudaStream_t stream)
{
    static const struct {
        cudaError_t (*kernel)(const struct cuda_loss *loss, cudaStream_t stream);
        int labels, teacher, weight; /* positions, -1: has none */
    } losses[OP_COUNT] = {
        [OP_SOFTMAX_XENT] = {cuda_softmax_xent, LOSS_LABELS, -1, LOSS_WEIGHT},
        [OP_DISTILL] = {cuda_distill, -1, PAIR_LOSS_TEACHER, PAIR_LOSS_WEIGHT},
        [OP_BCE] = {cuda_bce, BCE_LABELS, BCE_TEACHER, BCE_WEIGHT},
        [OP_COSINE_LOSS] = {cuda_cosine_loss, -1, PAIR_LOSS_TEACHER, PAIR_LOSS_WEIGHT},
        [OP_MARGIN_LOSS] = {cuda_margin_loss, LOSS_LABELS, -1, LOSS_WEIGHT},
    };
    const struct loss_attr *attr = &step->node.attr.loss;
    const enum op op = step->node.op;
    struct cuda_loss args = {
        .logits = in_rows(p, step, LOSS_LOGITS),
        .weight = in_data(p, step, losses[op].weight),
        .first = attr->first,
        .count = attr->count,
        .teacher_first = attr->teacher_first,
        .label_shift = attr->label_shift,
        .n_old = attr->n_old,
        .top_k = attr->top_k,
        .clamp_low = attr->clamp_low,
        .temperature = attr->temperature,
        .margin = attr->margin,
        .loss = out_data(p, step, LOSS_VALUE),
        .d_logits = out_rows(p, step, LOSS_D_LOGITS),
        .partial = (double *)(void *)step_scratch(p, step),
        .counter = step_counters(p, step),
    };
    if (losses[op].labels >= 0)
        args.labels = value_data(step_in(p, step, losses[op].labels));
    if (losses[op].teacher >= 0)
        args.teacher = in_rows(p, step, losses[op].teacher);
    return losses[op].kernel(&args, stream);
}

static cudaError_t run_rank(struct cuda_program *p, const struct cuda_step *step,
                            cudaStream_t stream)
{
    const struct loss_attr *attr = &step->node.attr.loss;
    return cuda_rank(value_data(step_out(p, step, 0)), in_rows(p, step, LOSS_LOGITS),
                     value_data(step_in(p, step, LOSS_LABELS)), attr->first, attr->count, stream);
}

/* ---- masks and updates: tables of any number of operands -------------------------------------------- */

static void *device_table(const struct cuda_program *p, const struct cuda_step *step)
{
    return p->block + p->tables_offset + step->table;
}

/* Masks that a node has: its inputs are one scalar and one or two lists of them. */
static int n_masks(const struct node *node)
{
    return node->op == OP_MASK_GATE_GRAD ? (node->n_in - 1) / 2 : node->n_in - 1;
}

static cudaError_t run_mask_gate(struct cuda_program *p, const struct cuda_step *step,
                                 cudaStream_t stream)
{
    return cuda_mask_gate(device_table(p, step), n_masks(&step->node), in_data(p, step, 0),
                          MASK_SOFT_FLOOR, stream);
}

static cudaError_t run_mask_gate_grad(struct cuda_program *p, const struct cuda_step *step,
                                      cudaStream_t stream)
{
    const struct mask_attr *attr = &step->node.attr.mask;
    return cuda_mask_gate_grad(device_table(p, step), n_masks(&step->node), in_data(p, step, 0),
                               attr->gradient == MASK_GRADIENT_HAT, attr->s_max, stream);
}

static cudaError_t run_mask_sparsity(struct cuda_program *p, const struct cuda_step *step,
                                     cudaStream_t stream)
{
    const struct sparsity_attr *attr = &step->node.attr.sparsity;
    const int n = n_masks(&step->node);
    const struct cuda_mask *masks = device_table(p, step);
    return cuda_mask_sparsity(masks, n, (const void *)(masks + n), attr->n_layers, attr->total,
                              in_data(p, step, 0), out_data(p, step, 0), stream);
}

/* What a block takes of parameter i of an update. */
static int64_t per_block(const struct cuda_program *p, const struct cuda_step *step, int i)
{
    const struct cuda_value *gradient = step_in(p, step, 2 + 3 * i);
    const bool has_kernels = step->keeps[i] >= 0 || gradient->raw;
    return cuda_sgd_per_block(has_kernels ? shape_spatial(gradient->slot.shape) : 0);
}

static int64_t n_blocks(const struct cuda_program *p, const struct cuda_step *step, int i,
                        int64_t count)
{
    const int64_t each = per_block(p, step, i);
    return (count + each - 1) / each;
}

static cudaError_t run_sgd(struct cuda_program *p, const struct cuda_step *step,
                           cudaStream_t stream)
{
    const struct sgd_attr *attr = &step->node.attr.sgd;
    const int n = (step->node.n_in - 1) / 3;
    struct cuda_sgd args = {.spans = device_table(p, step),
                            .n = n,
                            .lr = in_data(p, step, 0),
                            .momentum = attr->momentum,
                            .decay = attr->decay,
                            .gain = attr->gain,
                            .low = attr->low,
                            .high = attr->high};
    for (int i = 0; i < n; i++)
        args.n_blocks += n_blocks(p, step, i, shape_count(step_in(p, step, 1 + 3 * i)->slot.shape));
    return cuda_sgd(&args, stream);
}

/* ---- feeding and keeping --------------------------------------------------------------------------- */

static int64_t in_count(const struct cuda_program *p, const struct cuda_step *step, int i)
{
    return shape_count(step_in(p, step, i)->slot.shape);
}

static cudaError_t run_feed(struct cuda_program *p, const struct cuda_step *step,
                            cudaStream_t stream)
{
    const struct cuda_value *now = step_out(p, step, FEED_NOW);
    struct cuda_feed args = {
        .attr = step->node.attr.feed,
        .pixels = value_data(step_in(p, step, FEED_PIXELS)),
        .levels = in_data(p, step, FEED_TABLE_LEVELS),
        .order = value_data(step_in(p, step, FEED_ORDER)),
        .n_items = in_count(p, step, FEED_ORDER) / FEED_ITEM_WORDS,
        .table = in_data(p, step, FEED_TABLE),
        .clock = value_data(step_in(p, step, FEED_CLOCK)),
        .image = out_data(p, step, FEED_IMAGE),
        .labels = value_data(step_out(p, step, FEED_LABELS)),
        .now = value_data(now),
    };
    if (now) {
        args.width = shape_count(now->slot.shape);
        args.n_lines = in_count(p, step, FEED_TABLE) / args.width;
    }
    return cuda_feed(&args, stream);
}

_Static_assert((int)CUDA_TALLY_MAX == (int)TALLY_MAX, "kernels.h repeats what graph.h says");

static cudaError_t run_tally(struct cuda_program *p, const struct cuda_step *step,
                             cudaStream_t stream)
{
    const struct tally_attr *attr = &step->node.attr.tally;
    struct cuda_tally args = {.n = (step->node.n_in - TALLY_FIRST) / 2,
                              .rows = attr->rows,
                              .by_row = attr->by_row,
                              .clock = value_data(step_in(p, step, TALLY_CLOCK))};
    for (int k = 0; k < args.n; k++) {
        const int src = TALLY_FIRST + 2 * k;
        args.pair[k] = (struct cuda_tally_pair){.src = value_data(step_in(p, step, src)),
                                                .table = value_data(step_in(p, step, src + 1)),
                                                .src_words = in_count(p, step, src),
                                                .table_words = in_count(p, step, src + 1)};
    }
    return cuda_tally(&args, stream);
}

/* ---- tables of masks and updates ------------------------------------------------------------------- */

static void fill_masks(struct cuda_program *p, const struct cuda_step *step, char *table)
{
    const int n = n_masks(&step->node);
    const bool is_sparsity = step->node.op == OP_MASK_SPARSITY;
    const struct sparsity_attr *attr = is_sparsity ? &step->node.attr.sparsity : NULL;
    for (int i = 0; i < n; i++) {
        const struct cuda_mask mask = {
            .e = in_data(p, step, 1 + i),
            .d_m = step->node.op == OP_MASK_GATE_GRAD ? in_data(p, step, 1 + n + i) : NULL,
            .out = out_data(p, step, is_sparsity ? 1 + i : i),
            .n = shape_count(step_in(p, step, 1 + i)->slot.shape),
            .least = is_sparsity && attr->least ? attr->least[i] : -1,
        };
        memcpy(table + (size_t)i * sizeof mask, &mask, sizeof mask);
    }
    if (!is_sparsity)
        return;
    table += (size_t)n * sizeof(struct cuda_mask);
    for (int i = 0; i < attr->n_layers; i++) {
        const struct cuda_sparsity_layer layer = {
            .in_mask = attr->layers[i].in_mask,
            .out_mask = attr->layers[i].out_mask,
            .kernel_area = attr->layers[i].kernel_area,
            .in_channels = attr->layers[i].in_channels,
        };
        memcpy(table + (size_t)i * sizeof layer, &layer, sizeof layer);
    }
}

/* What else the update has to do with weights of convolutions. */
static void fill_kernels(const struct cuda_program *p, const struct cuda_step *step, int i,
                         struct cuda_sgd_span *span)
{
    const struct cuda_value *gradient = step_in(p, step, 2 + 3 * i);
    if (step->keeps[i] >= 0) {
        const struct cuda_weights copy = cuda_derived_row(p, step->keeps[i]);
        span->copy = copy.dst;
        span->c = copy.c;
        span->area = copy.area;
        span->c_stored = copy.c_stored;
    }
    if (gradient->raw) {
        assert(!span->copy || span->c_stored == gradient->raw->shape.c);
        span->g = NULL;
        span->raw = gradient->data;
        span->c = gradient->slot.shape.dim[1];
        span->area = shape_spatial(gradient->slot.shape);
        span->c_stored = gradient->raw->shape.c;
    }
}

static void fill_spans(struct cuda_program *p, const struct cuda_step *step, char *table)
{
    int64_t first_block = 0;
    for (int i = 0; i < (step->node.n_in - 1) / 3; i++) {
        const struct cuda_rows weight = in_rows(p, step, 1 + 3 * i);
        const struct cuda_rows gradient = in_rows(p, step, 2 + 3 * i);
        const struct cuda_rows velocity = in_rows(p, step, 3 + 3 * i);
        struct cuda_sgd_span span = {
            .p = weight.data,
            .g = gradient.data,
            .v = velocity.data,
            .count = weight.rows * weight.cols,
            .cols = weight.cols,
            .p_pitch = weight.pitch,
            .g_pitch = gradient.pitch,
            .v_pitch = velocity.pitch,
            .first_block = first_block,
            .per_block = per_block(p, step, i),
        };
        fill_kernels(p, step, i, &span);
        first_block += n_blocks(p, step, i, span.count);
        memcpy(table + (size_t)i * sizeof span, &span, sizeof span);
    }
}

void cuda_step_table(struct cuda_program *p, struct cuda_step *step)
{
    if (step->node.op == OP_SGD)
        fill_spans(p, step, p->tables + step->table);
    else
        fill_masks(p, step, p->tables + step->table);
}

/* ---- the table ---------------------------------------------------------------------------------- */

enum scratch_kind { SCRATCH_NONE, SCRATCH_NORM, SCRATCH_LOSS };

static const struct step_kind {
    cudaError_t (*kernel)(struct cuda_program *p, const struct cuda_step *step,
                          cudaStream_t stream);
    enum scratch_kind scratch;
} kinds[OP_COUNT] = {
    [OP_BATCHNORM] = {run_batchnorm, SCRATCH_NORM},
    [OP_BATCHNORM_GRAD] = {run_batchnorm_grad, SCRATCH_NORM},
    [OP_RELU] = {run_relu, SCRATCH_NONE},
    [OP_RELU_GRAD] = {run_relu_grad, SCRATCH_NONE},
    [OP_ADD] = {run_add, SCRATCH_NONE},
    [OP_SCALE_CHANNEL] = {run_scale_channel, SCRATCH_NONE},
    [OP_SCALE_CHANNEL_GRAD] = {run_scale_channel_grad, SCRATCH_NONE},
    [OP_SCALE] = {run_scale, SCRATCH_NONE},
    [OP_SCALE_GRAD] = {run_scale_grad, SCRATCH_NONE},
    [OP_MAXPOOL] = {run_maxpool, SCRATCH_NONE},
    [OP_MAXPOOL_GRAD] = {run_maxpool_grad, SCRATCH_NONE},
    [OP_AVGPOOL] = {run_avgpool, SCRATCH_NONE},
    [OP_AVGPOOL_GRAD] = {run_avgpool_grad, SCRATCH_NONE},
    [OP_JOIN] = {run_join, SCRATCH_NONE},
    [OP_L2NORM] = {run_l2norm, SCRATCH_NONE},
    [OP_L2NORM_GRAD] = {run_l2norm_grad, SCRATCH_NONE},
    [OP_SOFTMAX_XENT] = {run_loss, SCRATCH_LOSS},
    [OP_DISTILL] = {run_loss, SCRATCH_LOSS},
    [OP_BCE] = {run_loss, SCRATCH_LOSS},
    [OP_COSINE_LOSS] = {run_loss, SCRATCH_LOSS},
    [OP_MARGIN_LOSS] = {run_loss, SCRATCH_LOSS},
    [OP_RANK] = {run_rank, SCRATCH_NONE},
    [OP_MASK_GATE] = {run_mask_gate, SCRATCH_NONE},
    [OP_MASK_GATE_GRAD] = {run_mask_gate_grad, SCRATCH_NONE},
    [OP_MASK_SPARSITY] = {run_mask_sparsity, SCRATCH_NONE},
    [OP_SGD] = {run_sgd, SCRATCH_NONE},
    [OP_FEED] = {run_feed, SCRATCH_NONE},
    [OP_TALLY] = {run_tally, SCRATCH_NONE},
};

static enum der_status run_kernel(struct cuda_program *p, const struct cuda_step *step,
                                  cudaStream_t stream)
{
    return cuda_check(p->base.be->ctx, kinds[step->node.op].kernel(p, step, stream),
                      op_name(step->node.op));
}

static size_t table_bytes(const struct node *node)
{
    switch (node->op) {
    case OP_SGD:
        return (size_t)(node->n_in - 1) / 3 * sizeof(struct cuda_sgd_span);
    case OP_MASK_GATE:
    case OP_MASK_GATE_GRAD:
        return (size_t)n_masks(node) * sizeof(struct cuda_mask);
    case OP_MASK_SPARSITY:
        return (size_t)n_masks(node) * sizeof(struct cuda_mask) +
               (size_t)node->attr.sparsity.n_layers * sizeof(struct cuda_sparsity_layer);
    default:
        return 0;
    }
}

enum der_status cuda_step_init(struct cuda_program *p, struct cuda_step *step)
{
    const struct step_kind *kind = &kinds[step->node.op];
    const struct cuda_rows first = in_rows(p, step, 0);
    assert(kind->kernel);
    step->run = run_kernel;
    step->counters = p->n_counters;
    if (kind->scratch == SCRATCH_NORM) {
        step->scratch_bytes = cuda_bn_scratch(first.stored);
    } else if (kind->scratch == SCRATCH_LOSS) {
        step->scratch_bytes = (size_t)first.rows * sizeof(double);
        p->n_counters++;
    }
    step->table = p->tables_bytes;
    step->table_bytes = table_bytes(&step->node);
    p->tables_bytes += (step->table_bytes + 15) / 16 * 16;
    return DER_OK;
}

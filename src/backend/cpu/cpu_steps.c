/*
 * Steps that are no convolution: operands of a node into the arguments of a kernel.
 *
 * Most kernels work on dense arrays only. A matrix that the caller bound with a pitch is made dense
 * for the length of such a step, in scratch that every step with outside matrices sets aside.
 */
#include "backend/cpu/cpu.h"

#include "graph/feed.h"

#include <assert.h>
#include <string.h>

static float *in_data(const struct cpu_program *p, const struct cpu_step *step, int position)
{
    return value_data(step_in(p, step, position));
}

static float *out_data(const struct cpu_program *p, const struct cpu_step *step, int position)
{
    return value_data(step_out(p, step, position));
}

/* ---- batch norm --------------------------------------------------------------------------------- */

static void run_batchnorm(struct cpu_program *p, const struct cpu_step *step)
{
    const struct norm_attr *attr = &step->node.attr.norm;
    struct cpu_bn args = {
        .image = value_image(step_in(p, step, BN_SRC)),
        .src = in_data(p, step, BN_SRC),
        .gamma = in_data(p, step, BN_GAMMA),
        .beta = in_data(p, step, BN_BETA),
        .running_mean = in_data(p, step, BN_RUNNING_MEAN),
        .running_var = in_data(p, step, BN_RUNNING_VAR),
        .mask = in_data(p, step, BN_MASK),
        .residual = in_data(p, step, BN_RESIDUAL),
        .dst = out_data(p, step, BN_DST),
        .mean = out_data(p, step, BN_MEAN),
        .inv_std = out_data(p, step, BN_INV_STD),
        .eps = attr->eps,
        .momentum = attr->momentum,
        .training = attr->training,
        .relu = attr->relu,
        .scratch = step_scratch(p, step),
    };
    cpu_bn(&args, p->threads);
}

static void run_batchnorm_grad(struct cpu_program *p, const struct cpu_step *step)
{
    struct cpu_bn_grad args = {
        .image = value_image(step_in(p, step, BNG_SRC)),
        .d_dst = in_data(p, step, BNG_D_DST),
        .d_dst2 = in_data(p, step, BNG_D_DST2),
        .src = in_data(p, step, BNG_SRC),
        .dst = in_data(p, step, BNG_DST),
        .gamma = in_data(p, step, BNG_GAMMA),
        .beta = in_data(p, step, BNG_BETA),
        .mean = in_data(p, step, BNG_MEAN),
        .inv_std = in_data(p, step, BNG_INV_STD),
        .mask = in_data(p, step, BNG_MASK),
        .d_src = out_data(p, step, BNG_D_SRC),
        .d_gamma = out_data(p, step, BNG_D_GAMMA),
        .d_beta = out_data(p, step, BNG_D_BETA),
        .d_mask = out_data(p, step, BNG_D_MASK),
        .d_residual = out_data(p, step, BNG_D_RESIDUAL),
        .training = step->node.attr.norm.training,
        .relu = step->node.attr.norm.relu,
        .scratch = step_scratch(p, step),
    };
    cpu_bn_grad(&args, p->threads);
}

/* ---- pointwise ---------------------------------------------------------------------------------- */

static void run_relu(struct cpu_program *p, const struct cpu_step *step)
{
    cpu_relu(out_data(p, step, 0), in_data(p, step, 0), value_floats(step_in(p, step, 0)),
             p->threads);
}

static void run_relu_grad(struct cpu_program *p, const struct cpu_step *step)
{
    cpu_relu_grad(out_data(p, step, 0), in_data(p, step, 0), in_data(p, step, 1),
                  value_floats(step_in(p, step, 0)), p->threads);
}

static void run_add(struct cpu_program *p, const struct cpu_step *step)
{
    for (int i = 0; i < step->node.n_in; i++)
        step->pointers[i] = in_data(p, step, i);
    cpu_add(out_data(p, step, 0), step->pointers, step->node.n_in,
            value_floats(step_in(p, step, 0)), p->threads);
}

static void run_scale(struct cpu_program *p, const struct cpu_step *step)
{
    cpu_scale(out_data(p, step, 0), in_data(p, step, 0), in_data(p, step, 1),
              value_floats(step_in(p, step, 0)), p->threads);
}

static void run_scale_grad(struct cpu_program *p, const struct cpu_step *step)
{
    struct cpu_scale_grad args = {
        .count = value_floats(step_in(p, step, 0)),
        .d_dst = in_data(p, step, 0),
        .src = in_data(p, step, 1),
        .factor = in_data(p, step, 2),
        .d_src = out_data(p, step, 0),
        .d_factor = out_data(p, step, 1),
        .scratch = step_scratch(p, step),
    };
    cpu_scale_grad(&args, p->threads);
}

static void run_scale_channel(struct cpu_program *p, const struct cpu_step *step)
{
    struct cpu_scale_channel args = {
        .image = value_image(step_in(p, step, 0)),
        .src = in_data(p, step, 0),
        .m = in_data(p, step, 1),
        .dst = out_data(p, step, 0),
    };
    cpu_scale_channel(&args, p->threads);
}

static void run_scale_channel_grad(struct cpu_program *p, const struct cpu_step *step)
{
    struct cpu_scale_channel_grad args = {
        .image = value_image(step_in(p, step, 0)),
        .d_dst = in_data(p, step, 0),
        .src = in_data(p, step, 1),
        .m = in_data(p, step, 2),
        .d_src = out_data(p, step, 0),
        .d_m = out_data(p, step, 1),
        .scratch = step_scratch(p, step),
    };
    cpu_scale_channel_grad(&args, p->threads);
}

/* ---- pooling ------------------------------------------------------------------------------------ */

static struct cpu_pool_shape pool_shape(const struct cpu_value *src, const struct cpu_value *dst,
                                        const struct pool_attr *attr)
{
    return (struct cpu_pool_shape){
        .n = src->slot.shape.dim[0],
        .c = src->slot.shape.dim[1],
        .h = src->slot.shape.dim[2],
        .w = src->slot.shape.dim[3],
        .out_h = dst->slot.shape.dim[2],
        .out_w = dst->slot.shape.dim[3],
        .block = src->block,
        .attr = *attr,
    };
}

static void run_maxpool(struct cpu_program *p, const struct cpu_step *step)
{
    struct cpu_maxpool args = {
        .shape = pool_shape(step_in(p, step, 0), step_out(p, step, 0), &step->node.attr.pool),
        .src = in_data(p, step, 0),
        .dst = out_data(p, step, 0),
        .index = (int32_t *)(void *)out_data(p, step, 1),
    };
    cpu_maxpool(&args, p->threads);
}

static void run_maxpool_grad(struct cpu_program *p, const struct cpu_step *step)
{
    struct cpu_maxpool_grad args = {
        .shape = pool_shape(step_out(p, step, 0), step_in(p, step, 0), &step->node.attr.pool),
        .d_dst = in_data(p, step, 0),
        .index = (const int32_t *)(void *)in_data(p, step, 1),
        .d_src = out_data(p, step, 0),
    };
    cpu_maxpool_grad(&args, p->threads);
}

static void run_avgpool(struct cpu_program *p, const struct cpu_step *step)
{
    cpu_avgpool(value_matrix(step_out(p, step, 0)), in_data(p, step, 0),
                value_image(step_in(p, step, 0)), p->threads);
}

static void run_avgpool_grad(struct cpu_program *p, const struct cpu_step *step)
{
    cpu_avgpool_grad(out_data(p, step, 0), value_matrix(step_in(p, step, 0)),
                     value_image(step_out(p, step, 0)), p->threads);
}

/* ---- matrices ----------------------------------------------------------------------------------- */

static void run_join(struct cpu_program *p, const struct cpu_step *step)
{
    /* Aliases have done it already. */
    (void)p;
    (void)step;
}

static void run_l2norm(struct cpu_program *p, const struct cpu_step *step)
{
    cpu_l2norm(value_matrix(step_out(p, step, 0)), out_data(p, step, 1),
               value_matrix(step_in(p, step, 0)), step->node.attr.eps);
}

static void run_l2norm_grad(struct cpu_program *p, const struct cpu_step *step)
{
    cpu_l2norm_grad(value_matrix(step_out(p, step, 0)), value_matrix(step_in(p, step, 0)),
                    value_matrix(step_in(p, step, 1)), in_data(p, step, 2), step->node.attr.eps);
}

/* ---- losses ------------------------------------------------------------------------------------- */

static struct cpu_loss loss_args(struct cpu_program *p, const struct cpu_step *step, int labels,
                                 int teacher, int weight)
{
    return (struct cpu_loss){
        .logits = value_matrix(step_in(p, step, LOSS_LOGITS)),
        .teacher = teacher < 0 ? (struct cpu_matrix){0} : value_matrix(step_in(p, step, teacher)),
        .labels = labels < 0 ? NULL : (const int32_t *)(void *)in_data(p, step, labels),
        .weight = in_data(p, step, weight),
        .attr = step->node.attr.loss,
        .loss = out_data(p, step, LOSS_VALUE),
        .d_logits = value_matrix(step_out(p, step, LOSS_D_LOGITS)),
    };
}

static void run_softmax_xent(struct cpu_program *p, const struct cpu_step *step)
{
    struct cpu_loss args = loss_args(p, step, LOSS_LABELS, -1, LOSS_WEIGHT);
    cpu_softmax_xent(&args);
}

static void run_distill(struct cpu_program *p, const struct cpu_step *step)
{
    struct cpu_loss args = loss_args(p, step, -1, PAIR_LOSS_TEACHER, PAIR_LOSS_WEIGHT);
    cpu_distill(&args);
}

static void run_bce(struct cpu_program *p, const struct cpu_step *step)
{
    struct cpu_loss args = loss_args(p, step, BCE_LABELS, BCE_TEACHER, BCE_WEIGHT);
    cpu_bce(&args);
}

static void run_cosine_loss(struct cpu_program *p, const struct cpu_step *step)
{
    struct cpu_loss args = loss_args(p, step, -1, PAIR_LOSS_TEACHER, PAIR_LOSS_WEIGHT);
    cpu_cosine_loss(&args);
}

static void run_margin_loss(struct cpu_program *p, const struct cpu_step *step)
{
    struct cpu_loss args = loss_args(p, step, LOSS_LABELS, -1, LOSS_WEIGHT);
    cpu_margin_loss(&args);
}

static void run_rank(struct cpu_program *p, const struct cpu_step *step)
{
    cpu_rank((int32_t *)(void *)out_data(p, step, 0), value_matrix(step_in(p, step, LOSS_LOGITS)),
             (const int32_t *)(void *)in_data(p, step, LOSS_LABELS), &step->node.attr.loss);
}

/* ---- masks and updates: any number of operands --------------------------------------------------- */

/* Addresses of inputs, then of outputs; sizes likewise. */
static void gather(struct cpu_program *p, const struct cpu_step *step)
{
    int n_in = step->node.n_in;
    for (int i = 0; i < n_in; i++)
        step->pointers[i] = in_data(p, step, i);
    for (int i = 0; i < step->node.n_out; i++)
        step->pointers[n_in + i] = out_data(p, step, i);
}

static void run_mask_gate(struct cpu_program *p, const struct cpu_step *step)
{
    gather(p, step);
    int n = step->node.n_out;
    struct cpu_mask_gate args = {
        .n = n,
        .sizes = step->sizes + 1,
        .s = step->pointers[0],
        .e = step->pointers + 1,
        .m = step->pointers + 1 + n,
    };
    cpu_mask_gate(&args);
}

static void run_mask_gate_grad(struct cpu_program *p, const struct cpu_step *step)
{
    gather(p, step);
    int n = step->node.n_out;
    struct cpu_mask_gate_grad args = {
        .n = n,
        .sizes = step->sizes + 1,
        .s = step->pointers[0],
        .e = step->pointers + 1,
        .d_m = step->pointers + 1 + n,
        .d_e = step->pointers + 1 + 2 * n,
        .attr = step->node.attr.mask,
    };
    cpu_mask_gate_grad(&args);
}

static void run_mask_sparsity(struct cpu_program *p, const struct cpu_step *step)
{
    gather(p, step);
    int n = step->node.n_in - 1;
    struct cpu_mask_sparsity args = {
        .n = n,
        .sizes = step->sizes + 1,
        .weight = step->pointers[0],
        .m = step->pointers + 1,
        .d_m = step->node.n_out > 1 ? step->pointers + 1 + n + 1 : NULL,
        .loss = step->pointers[1 + n],
        .attr = step->node.attr.sparsity,
        .scratch = step_scratch(p, step),
    };
    cpu_mask_sparsity(&args);
}

static void run_sgd(struct cpu_program *p, const struct cpu_step *step)
{
    int n = (step->node.n_in - 1) / 3;
    for (int i = 0; i < n; i++)
        step->spans[i] = (struct cpu_sgd_span){
            .p = in_data(p, step, 1 + 3 * i),
            .g = in_data(p, step, 2 + 3 * i),
            .v = in_data(p, step, 3 + 3 * i),
            .count = step->sizes[1 + 3 * i],
        };
    cpu_sgd(step->spans, n, in_data(p, step, 0), &step->node.attr.sgd, p->threads);
}

/* ---- feeding and keeping --------------------------------------------------------------------------- */

static const int32_t *in_ints(const struct cpu_program *p, const struct cpu_step *step, int i)
{
    return (const int32_t *)(void *)in_data(p, step, i);
}

static int64_t in_count(const struct cpu_program *p, const struct cpu_step *step, int i)
{
    return shape_count(step_in(p, step, i)->slot.shape);
}

static void run_feed(struct cpu_program *p, const struct cpu_step *step)
{
    const struct cpu_value *now = step_out(p, step, FEED_NOW);
    struct feed_operands operands = {
        .pixels = (const uint8_t *)(void *)in_data(p, step, FEED_PIXELS),
        .levels = in_data(p, step, FEED_TABLE_LEVELS),
        .order = in_ints(p, step, FEED_ORDER),
        .n_items = in_count(p, step, FEED_ORDER) / FEED_ITEM_WORDS,
        .table = in_data(p, step, FEED_TABLE),
        .clock = in_ints(p, step, FEED_CLOCK),
        .image = out_data(p, step, FEED_IMAGE),
        .labels = (int32_t *)(void *)out_data(p, step, FEED_LABELS),
        .now = value_data(now),
    };
    if (now) {
        operands.width = shape_count(now->slot.shape);
        operands.n_lines = in_count(p, step, FEED_TABLE) / operands.width;
    }
    feed_run(&step->node.attr.feed, &operands);
}

static void run_tally(struct cpu_program *p, const struct cpu_step *step)
{
    const struct tally_attr *attr = &step->node.attr.tally;
    int32_t *clock = (int32_t *)(void *)in_data(p, step, TALLY_CLOCK);
    for (int k = 0; TALLY_FIRST + 2 * k < step->node.n_in; k++) {
        const int src = TALLY_FIRST + 2 * k;
        const struct tally_pair pair = {.src = in_data(p, step, src),
                                        .table = in_data(p, step, src + 1),
                                        .src_words = in_count(p, step, src),
                                        .table_words = in_count(p, step, src + 1)};
        tally_keep(attr, k, &pair, clock);
    }
    tally_advance(attr, clock);
}

/* ---- the table ---------------------------------------------------------------------------------- */

enum scratch_kind { SCRATCH_NONE, SCRATCH_CHANNEL, SCRATCH_FLAT, SCRATCH_SPARSITY };

static const struct step_kind {
    void (*kernel)(struct cpu_program *p, const struct cpu_step *step);
    enum der_status (*product)(struct cpu_program *p, const struct cpu_step *step);
    bool takes_pitch; /* reads and writes matrices of any pitch */
    bool many;        /* any number of operands */
    enum scratch_kind scratch;
} kinds[OP_COUNT] = {
    [OP_BATCHNORM] = {.kernel = run_batchnorm, .scratch = SCRATCH_CHANNEL},
    [OP_BATCHNORM_GRAD] = {.kernel = run_batchnorm_grad, .scratch = SCRATCH_CHANNEL},
    [OP_RELU] = {.kernel = run_relu},
    [OP_RELU_GRAD] = {.kernel = run_relu_grad},
    [OP_ADD] = {.kernel = run_add, .many = true},
    [OP_SCALE_CHANNEL] = {.kernel = run_scale_channel},
    [OP_SCALE_CHANNEL_GRAD] = {.kernel = run_scale_channel_grad, .scratch = SCRATCH_CHANNEL},
    [OP_SCALE] = {.kernel = run_scale},
    [OP_SCALE_GRAD] = {.kernel = run_scale_grad, .scratch = SCRATCH_FLAT},
    [OP_MAXPOOL] = {.kernel = run_maxpool},
    [OP_MAXPOOL_GRAD] = {.kernel = run_maxpool_grad},
    [OP_AVGPOOL] = {.kernel = run_avgpool, .takes_pitch = true},
    [OP_AVGPOOL_GRAD] = {.kernel = run_avgpool_grad, .takes_pitch = true},
    [OP_JOIN] = {.kernel = run_join, .takes_pitch = true},
    [OP_LINEAR] = {.product = cpu_linear, .takes_pitch = true},
    [OP_LINEAR_D_SRC] = {.product = cpu_linear_d_src, .takes_pitch = true},
    [OP_LINEAR_D_WEIGHTS] = {.product = cpu_linear_d_weights, .takes_pitch = true},
    [OP_L2NORM] = {.kernel = run_l2norm, .takes_pitch = true},
    [OP_L2NORM_GRAD] = {.kernel = run_l2norm_grad, .takes_pitch = true},
    [OP_SOFTMAX_XENT] = {.kernel = run_softmax_xent, .takes_pitch = true},
    [OP_DISTILL] = {.kernel = run_distill, .takes_pitch = true},
    [OP_BCE] = {.kernel = run_bce, .takes_pitch = true},
    [OP_COSINE_LOSS] = {.kernel = run_cosine_loss, .takes_pitch = true},
    [OP_MARGIN_LOSS] = {.kernel = run_margin_loss, .takes_pitch = true},
    [OP_RANK] = {.kernel = run_rank, .takes_pitch = true},
    [OP_MASK_GATE] = {.kernel = run_mask_gate, .many = true},
    [OP_MASK_GATE_GRAD] = {.kernel = run_mask_gate_grad, .many = true},
    [OP_MASK_SPARSITY] = {.kernel = run_mask_sparsity, .many = true, .scratch = SCRATCH_SPARSITY},
    [OP_SGD] = {.kernel = run_sgd, .many = true},
    [OP_FEED] = {.kernel = run_feed, .takes_pitch = true},
    [OP_TALLY] = {.kernel = run_tally, .takes_pitch = true},
};

static size_t scratch_floats(const struct cpu_program *p, const struct cpu_step *step)
{
    switch (kinds[step->node.op].scratch) {
    case SCRATCH_CHANNEL: /* the image is the first operand, or shaped like it */
        return (size_t)cpu_bn_scratch_floats(value_image(step_in(p, step, 0)));
    case SCRATCH_FLAT:
        return CPU_FLAT_SCRATCH_FLOATS;
    case SCRATCH_SPARSITY:
        return 4 * (size_t)step->node.n_in;
    case SCRATCH_NONE:
        break;
    }
    return 0;
}

/* ---- pitched matrices for kernels that want dense ones ----------------------------------------- */

/* Matrices of the caller, or parts of one: only those can have a pitch. */
static bool may_be_pitched(const struct cpu_value *value)
{
    return value && value->kind != VALUE_TEMP && value->slot.shape.rank == 2;
}

static bool is_pitched(const struct cpu_value *value)
{
    return may_be_pitched(value) && value->pitch != value->slot.shape.dim[1];
}

static void copy_rows(struct cpu_matrix dst, struct cpu_matrix src)
{
    for (int64_t row = 0; row < src.rows; row++)
        memcpy(dst.data + row * dst.pitch, src.data + row * src.pitch,
               (size_t)src.cols * sizeof *dst.data);
}

/* Operand number i of a step, inputs first. */
static struct cpu_value *operand(const struct cpu_program *p, const struct cpu_step *step, int i)
{
    return i < step->node.n_in ? step_in(p, step, i) : step_out(p, step, i - step->node.n_in);
}

static size_t dense_bytes(const struct cpu_value *value)
{
    return cpu_aligned((size_t)shape_count(value->slot.shape) * sizeof(float));
}

/* Walks over the operands that may be pitched. Before the kernel (enter) pitched ones move into
 * scratch, afterwards they move back, all of them: whether the kernel has written to one makes no
 * difference to what is there. The same value twice moves only once. */
static void make_dense(struct cpu_program *p, const struct cpu_step *step, bool enter)
{
    char *room = p->block + step->scratch + step->dense;
    for (int i = 0; i < step->node.n_in + step->node.n_out; i++) {
        struct cpu_value *value = operand(p, step, i);
        if (!may_be_pitched(value))
            continue;
        struct cpu_matrix here = value_matrix(value);
        struct cpu_matrix dense = here;
        dense.data = (float *)(void *)room;
        dense.pitch = here.cols;
        room += dense_bytes(value);
        if (enter && is_pitched(value)) {
            copy_rows(dense, here);
            value->dense_of = here;
            value->data = dense.data;
            value->pitch = dense.pitch;
        } else if (!enter && value->dense_of.data) {
            copy_rows(value->dense_of, value_matrix(value));
            value->data = value->dense_of.data;
            value->pitch = value->dense_of.pitch;
            value->dense_of.data = NULL;
        }
    }
}

static enum der_status run_kernel(struct cpu_program *p, const struct cpu_step *step)
{
    kinds[step->node.op].kernel(p, step);
    return DER_OK;
}

static enum der_status run_dense(struct cpu_program *p, const struct cpu_step *step)
{
    make_dense(p, step, true);
    kinds[step->node.op].kernel(p, step);
    make_dense(p, step, false);
    return DER_OK;
}

/* ---- set-up ------------------------------------------------------------------------------------- */

static enum der_status make_lists(struct cpu_program *p, struct cpu_step *step)
{
    size_t n = (size_t)step->node.n_in + (size_t)step->node.n_out;
    step->pointers = arena_zalloc(&p->arena, n, sizeof *step->pointers);
    step->sizes = arena_zalloc(&p->arena, n, sizeof *step->sizes);
    step->spans = arena_zalloc(&p->arena, n, sizeof *step->spans);
    if (!step->pointers || !step->sizes || !step->spans)
        return ctx_nomem(p->base.be->ctx);
    for (size_t i = 0; i < n; i++) {
        const struct cpu_value *value = operand(p, step, (int)i);
        step->sizes[i] = value ? shape_count(value->slot.shape) : 0;
    }
    return DER_OK;
}

enum der_status cpu_step_init(struct cpu_program *p, struct cpu_step *step)
{
    const struct step_kind *kind = &kinds[step->node.op];
    assert(kind->kernel || kind->product);
    step->run = kind->product ? kind->product : run_kernel;
    step->scratch_bytes = cpu_aligned(scratch_floats(p, step) * sizeof(float));
    if (kind->many)
        TRY(make_lists(p, step));
    if (kind->takes_pitch)
        return DER_OK;
    step->dense = step->scratch_bytes;
    for (int i = 0; i < step->node.n_in + step->node.n_out; i++) {
        const struct cpu_value *value = operand(p, step, i);
        if (!may_be_pitched(value))
            continue;
        step->scratch_bytes += dense_bytes(value);
        step->run = run_dense;
    }
    return DER_OK;
}

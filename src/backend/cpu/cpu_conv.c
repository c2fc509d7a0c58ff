/*
 * Convolution steps: a oneDNN primitive or cpu_winograd(), and round it whatever brings operands into its layouts.
 *
 * Inside a network nothing has to be brought anywhere but weights. Channels that do not fill their
 * last block are computed all the same, with zero weights: the images have that room, and the
 * kernels for full blocks are the fast ones.
 */
#include "backend/cpu/cpu.h"

#include <assert.h>
#include <string.h>

static char *scratch_at(const struct cpu_program *p, const struct cpu_step *step, size_t offset)
{
    return p->block + step->scratch + offset;
}

static void run_winograd(const struct cpu_program *p, const struct cpu_conv *conv,
                         const struct conv_args *args, bool backward)
{
    const struct conv_geometry *g = &conv->geometry;
    struct cpu_winograd winograd = {
        .n = g->n,
        .h = g->h,
        .w = g->w,
        .c_in = backward ? g->k : g->c,
        .c_out = backward ? g->c : g->k,
        .src = backward ? args->dst : args->src,
        .weights = args->weights,
        .bias = args->bias,
        .dst = backward ? args->src : args->dst,
        .sum = conv->sum,
        .relu = conv->relu,
        .scratch = args->scratch,
    };
    cpu_winograd(&winograd, p->threads);
}

static struct cpu_direct direct_sizes(const struct conv_geometry *g, int64_t src_block)
{
    return (struct cpu_direct){.n = g->n,
                               .c = g->c,
                               .h = g->h,
                               .w = g->w,
                               .k = g->k,
                               .out_h = g->out_h,
                               .out_w = g->out_w,
                               .kernel = g->r,
                               .stride = g->stride,
                               .pad = g->pad,
                               .src_block = src_block};
}

static void run_direct(const struct cpu_program *p, const struct cpu_conv *conv,
                       const struct conv_args *args)
{
    struct cpu_direct direct = direct_sizes(&conv->geometry, conv->info.src_block);
    direct.src = args->src;
    direct.weights = args->weights;
    direct.bias = args->bias;
    direct.dst = args->dst;
    direct.sum = conv->sum;
    direct.relu = conv->relu;
    direct.scratch = args->scratch;
    cpu_direct(&direct, p->threads);
}

/* Any kind of convolution, operands in its layouts. */
static enum der_status convolve(struct cpu_program *p, const struct cpu_conv *conv,
                                const struct conv_args *args, bool backward)
{
    if (conv->kind == CONV_BY_DNNL)
        return shim_conv_run(conv->primitive, args);
    if (conv->kind == CONV_BY_WINOGRAD)
        run_winograd(p, conv, args, backward);
    else
        run_direct(p, conv, args);
    return DER_OK;
}

static enum der_status run_forward(struct cpu_program *p, const struct cpu_step *step)
{
    const struct cpu_conv *conv = step->conv;
    struct conv_operands at = cpu_conv_operands(&step->node);
    const struct cpu_value *src = &p->values[at.src];
    const struct cpu_value *dst = &p->values[at.dst];
    const struct cpu_value *residual =
        step->node.op == OP_CONV2D_AFFINE ? step_in(p, step, AFFINE_RESIDUAL) : NULL;
    struct conv_args args = {.src = src->data,
                             .weights = p->values[at.weights].data,
                             .dst = dst->data,
                             .scratch = scratch_at(p, step, 0)};
    if (conv->derived >= 0) {
        struct cpu_derived *derived = &p->derived[conv->derived];
        TRY(cpu_derived_refresh(
            p, derived, (float *)(void *)scratch_at(p, step, conv->canonical_stage), args.scratch));
        args.weights = p->derived_block + derived->offset;
        if (derived->folded)
            args.bias = p->derived_block + derived->bias_offset;
    }
    if (conv->src_reorder) {
        args.src = scratch_at(p, step, conv->src_stage);
        TRY(shim_reorder_run(conv->src_reorder, src->data, args.src, args.scratch));
    }
    if (conv->dst_reorder)
        args.dst = scratch_at(p, step, conv->dst_stage);
    if (conv->residual_reorder)
        TRY(shim_reorder_run(conv->residual_reorder, residual->data, args.dst, args.scratch));
    else if (residual && residual->data != args.dst)
        cpu_add(args.dst, &residual->data, 1, value_floats(residual), p->threads);
    TRY(convolve(p, conv, &args, false));
    if (conv->dst_reorder)
        TRY(shim_reorder_run(conv->dst_reorder, args.dst, dst->data, args.scratch));
    return DER_OK;
}

static enum der_status run_back_src(struct cpu_program *p, const struct cpu_step *step)
{
    const struct cpu_conv *conv = step->conv;
    struct conv_operands at = cpu_conv_operands(&step->node);
    const struct cpu_value *d_src = &p->values[at.src];
    const struct cpu_value *d_dst = &p->values[at.dst];
    struct conv_args args = {.src = d_src->data,
                             .weights = p->values[at.weights].data,
                             .dst = d_dst->data,
                             .scratch = scratch_at(p, step, 0)};
    if (conv->derived >= 0) {
        struct cpu_derived *derived = &p->derived[conv->derived];
        TRY(cpu_derived_refresh(
            p, derived, (float *)(void *)scratch_at(p, step, conv->canonical_stage), args.scratch));
        args.weights = p->derived_block + derived->offset;
    }
    if (conv->dst_reorder) {
        args.dst = scratch_at(p, step, conv->dst_stage);
        TRY(shim_reorder_run(conv->dst_reorder, d_dst->data, args.dst, args.scratch));
    }
    if (conv->src_reorder)
        args.src = scratch_at(p, step, conv->src_stage);
    TRY(convolve(p, conv, &args, true));
    if (conv->src_reorder)
        TRY(shim_reorder_run(conv->src_reorder, args.src, d_src->data, args.scratch));
    return DER_OK;
}

/* weights [shape] = the leading channels of staged [k, c, area]. */
static void unstage_weights(float *weights, struct shape shape, const float *staged, int64_t c)
{
    int64_t area = shape.dim[2] * shape.dim[3];
    for (int64_t k = 0; k < shape.dim[0]; k++)
        memcpy(weights + k * shape.dim[1] * area, staged + k * c * area,
               (size_t)(shape.dim[1] * area) * sizeof *weights);
}

static enum der_status run_back_weights(struct cpu_program *p, const struct cpu_step *step)
{
    const struct cpu_conv *conv = step->conv;
    /* Its threads wait for each other, and those that it was made for but does not get would never come. */
    if (cpu_threads_are_denied(p->threads))
        return ctx_fail(p->base.be->ctx, DER_STATE,
                        "training with %d threads inside a parallel region of OpenMP, which gives "
                        "it one: train outside of the region, or with one thread",
                        p->threads);
    struct conv_operands at = cpu_conv_operands(&step->node);
    const struct cpu_value *src = &p->values[at.src];
    const struct cpu_value *d_dst = &p->values[at.dst];
    const struct cpu_value *d_weights = &p->values[at.weights];
    float *canonical = conv->padded ? (float *)(void *)scratch_at(p, step, conv->canonical_stage)
                                    : d_weights->data;
    struct conv_args args = {.src = src->data,
                             .weights = canonical,
                             .dst = d_dst->data,
                             .scratch = scratch_at(p, step, 0)};
    if (conv->src_reorder) {
        args.src = scratch_at(p, step, conv->src_stage);
        TRY(shim_reorder_run(conv->src_reorder, src->data, args.src, args.scratch));
    }
    if (conv->dst_reorder) {
        args.dst = scratch_at(p, step, conv->dst_stage);
        TRY(shim_reorder_run(conv->dst_reorder, d_dst->data, args.dst, args.scratch));
    }
    if (conv->weights_reorder)
        args.weights = scratch_at(p, step, conv->weights_stage);
    TRY(shim_conv_run(conv->primitive, &args));
    if (conv->weights_reorder)
        TRY(shim_reorder_run(conv->weights_reorder, args.weights, canonical, args.scratch));
    if (conv->padded)
        unstage_weights(d_weights->data, d_weights->slot.shape, canonical, conv->geometry.c);
    return DER_OK;
}

/* ---- set-up ----------------------------------------------------------------------------------- */

static int64_t full_blocks(int64_t channels, int64_t block)
{
    return (channels + block - 1) / block * block;
}

/* The blocks to compute in: those the images have, but for plain ones that deserve better. */
static enum der_status choose_blocks(struct cpu_program *p, struct conv_spec *spec,
                                     const struct cpu_value *src, const struct cpu_value *dst)
{
    /* The direct kernel reads a plain picture as it is. */
    spec->src_block = src->block;
    spec->dst_block = CPU_DIRECT_BLOCK;
    if (cpu_conv_wants_direct(spec))
        return DER_OK;
    TRY(cpu_conv_prefers(cpu_backend_of(p), spec->pass, &spec->geometry, &spec->src_block,
                         &spec->dst_block));
    if (src->block > 1)
        spec->src_block = src->block;
    if (dst->block > 1)
        spec->dst_block = dst->block;
    /* A stem reads plain images but does not write their gradient. */
    if (spec->pass == CONV_BACK_SRC && spec->src_block == 1)
        spec->src_block = spec->dst_block;
    return DER_OK;
}

static void use_direct(struct cpu_conv *conv, const struct conv_spec *spec)
{
    struct conv_geometry *g = &conv->geometry;
    *g = spec->geometry;
    g->k = full_blocks(g->k, spec->dst_block);
    struct cpu_direct sizes = direct_sizes(g, spec->src_block);
    conv->kind = CONV_BY_DIRECT;
    conv->info = (struct conv_info){.src_block = spec->src_block,
                                    .dst_block = spec->dst_block,
                                    .weights_bytes = cpu_direct_weights_bytes(g->k, g->c, g->r),
                                    .scratch_bytes = cpu_direct_scratch_bytes(&sizes)};
}

/* The channels that it reads need not fill their last block. */
static void use_winograd(struct cpu_conv *conv, const struct conv_spec *spec,
                         const struct conv_geometry *exact, int threads)
{
    struct conv_geometry *g = &conv->geometry;
    *g = spec->geometry;
    int64_t c_in = spec->pass == CONV_BACK_SRC ? (g->k = exact->k) : (g->c = exact->c);
    conv->kind = CONV_BY_WINOGRAD;
    conv->info = (struct conv_info){.src_block = spec->src_block,
                                    .dst_block = spec->dst_block,
                                    .weights_bytes = cpu_winograd_weights_bytes(g->c, g->k),
                                    .scratch_bytes = cpu_winograd_scratch_bytes(c_in, threads)};
}

static enum der_status make_primitive(struct cpu_program *p, struct cpu_step *step,
                                      struct conv_spec spec)
{
    struct shim *shim = cpu_backend_of(p)->shim;
    struct cpu_conv *conv = step->conv;
    struct conv_spec exact = spec;
    struct conv_spec choices[CONV_MAX_CHOICES];
    if (cpu_conv_wants_direct(&spec)) {
        use_direct(conv, &spec);
        return DER_OK;
    }
    spec.geometry.c = full_blocks(spec.geometry.c, spec.src_block);
    spec.geometry.k = full_blocks(spec.geometry.k, spec.dst_block);
    if (cpu_conv_wants_winograd(&spec)) {
        use_winograd(conv, &spec, &exact.geometry, p->threads);
        return DER_OK;
    }
    int n = cpu_conv_choices(&spec, choices);
    for (int i = 0; i < n && !conv->primitive; i++) {
        TRY(shim_conv_new(shim, &choices[i], &conv->primitive));
        conv->geometry = spec.geometry;
    }
    if (!conv->primitive) {
        exact.src_block = exact.dst_block = BLOCK_ANY;
        conv->geometry = exact.geometry;
        TRY(shim_conv_new(shim, &exact, &conv->primitive));
    }
    if (conv->primitive)
        conv->info = *shim_conv_info(conv->primitive);
    if (!conv->primitive || conv->info.src_block < 0 || conv->info.dst_block < 0) {
        char text[SHAPE_TEXT_MAX];
        return ctx_fail(
            p->base.be->ctx, DER_DEVICE, "oneDNN has no %s for weights %s", op_name(step->node.op),
            shape_text(p->values[cpu_conv_operands(&step->node).weights].slot.shape, text));
    }
    return DER_OK;
}

/* A reorder and the room for the image in the other layout; nothing when the layouts agree. */
static enum der_status stage_image(struct cpu_program *p, const struct cpu_value *value,
                                   int64_t block, bool written, size_t *bytes, size_t *stage,
                                   struct shim_reorder **out)
{
    if (value->block == block)
        return DER_OK;
    struct cpu_image image = value_image(value);
    image.block = block;
    *stage = *bytes;
    *bytes += cpu_aligned((size_t)cpu_image_floats(image) * sizeof(float));
    p->base.stats.n_reorders_activation++;
    return shim_reorder_image(cpu_backend_of(p)->shim, value->slot.shape.dim,
                              written ? block : value->block, written ? value->block : block, out);
}

static size_t largest(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* The primitive's own scratch serves the reorders too, which never run at the same time. */
static size_t first_region(const struct cpu_program *p, const struct cpu_conv *conv)
{
    size_t bytes = conv->info.scratch_bytes;
    const struct shim_reorder *reorders[] = {
        conv->src_reorder, conv->dst_reorder, conv->residual_reorder, conv->weights_reorder,
        conv->derived >= 0 ? p->derived[conv->derived].reorder : NULL};
    for (size_t i = 0; i < sizeof reorders / sizeof *reorders; i++)
        bytes = largest(bytes, shim_reorder_scratch_bytes(reorders[i]));
    return cpu_aligned(bytes);
}

static enum der_status stage_operands(struct cpu_program *p, struct cpu_step *step, size_t *bytes)
{
    struct cpu_conv *conv = step->conv;
    struct conv_operands at = cpu_conv_operands(&step->node);
    const struct conv_info *info = &conv->info;
    const struct cpu_value *dst = &p->values[at.dst];
    const struct cpu_value *residual =
        step->node.op == OP_CONV2D_AFFINE ? step_in(p, step, AFFINE_RESIDUAL) : NULL;
    bool forward = step->node.op == OP_CONV2D || step->node.op == OP_CONV2D_AFFINE;
    TRY(stage_image(p, &p->values[at.src], info->src_block, step->node.op == OP_CONV2D_D_SRC, bytes,
                    &conv->src_stage, &conv->src_reorder));
    TRY(stage_image(p, dst, info->dst_block, forward, bytes, &conv->dst_stage, &conv->dst_reorder));
    /* The residual is added where the result goes, so it needs no room of its own. */
    size_t unused = 0;
    if (residual)
        TRY(stage_image(p, residual, info->dst_block, false, &unused, &unused,
                        &conv->residual_reorder));
    if (step->node.op == OP_CONV2D_D_WEIGHTS) {
        if (!info->canonical_weights) {
            TRY(shim_reorder_weights(cpu_backend_of(p)->shim, conv->primitive, true,
                                     &conv->weights_reorder));
            conv->weights_stage = *bytes;
            *bytes += cpu_aligned(info->weights_bytes);
            p->base.stats.n_reorders_weights++;
        }
    } else {
        TRY(cpu_derived_find(p, step, &conv->derived));
    }
    if (conv->padded || step->node.op == OP_CONV2D_AFFINE) {
        conv->canonical_stage = *bytes;
        *bytes += cpu_canonical_bytes(&conv->geometry);
    }
    return DER_OK;
}

enum der_status cpu_conv_init(struct cpu_program *p, struct cpu_step *step)
{
    struct conv_operands at = cpu_conv_operands(&step->node);
    const struct cpu_value *src = &p->values[at.src];
    const struct cpu_value *dst = &p->values[at.dst];
    const struct cpu_value *weights = &p->values[at.weights];
    const struct conv_attr *attr = &step->node.attr.conv;
    struct conv_spec spec = {
        .pass = cpu_conv_pass(step->node.op),
        .geometry = cpu_conv_geometry(src->slot.shape, weights->slot.shape, dst->slot.shape, attr)};
    if (spec.pass == CONV_FOLDED) {
        spec.relu = attr->relu;
        spec.sum = node_in(&step->node, AFFINE_RESIDUAL) != NO_VALUE;
    }
    step->conv = mem_zalloc(&p->base.be->ctx->mem, 1, sizeof *step->conv);
    if (!step->conv)
        return ctx_nomem(p->base.be->ctx);
    struct cpu_conv *conv = step->conv;
    conv->derived = -1;
    conv->sum = spec.sum;
    conv->relu = spec.relu;
    TRY(choose_blocks(p, &spec, src, dst));
    TRY(make_primitive(p, step, spec));
    conv->padded = conv->geometry.c != spec.geometry.c || conv->geometry.k != spec.geometry.k;

    size_t staged = 0;
    TRY(stage_operands(p, step, &staged));
    size_t first = first_region(p, conv);
    conv->src_stage += first;
    conv->dst_stage += first;
    conv->weights_stage += first;
    conv->canonical_stage += first;
    step->scratch_bytes = first + staged;
    step->run = spec.pass == CONV_BACK_SRC       ? run_back_src
                : spec.pass == CONV_BACK_WEIGHTS ? run_back_weights
                                                 : run_forward;
    return DER_OK;
}

void cpu_conv_free(struct cpu_program *p, struct cpu_conv *conv)
{
    if (!conv)
        return;
    shim_conv_free(conv->primitive);
    shim_reorder_free(conv->src_reorder);
    shim_reorder_free(conv->dst_reorder);
    shim_reorder_free(conv->residual_reorder);
    shim_reorder_free(conv->weights_reorder);
    mem_free(&p->base.be->ctx->mem, conv);
}

/*
 * Convolutions: cuDNN where it is fast, own kernels for pictures, thin layers and small images, and plain ones where it
 * has no engine.
 */
#include "backend/cuda/cuda.h"

#include <assert.h>

/* Values of a convolution node by what they are to the forward pass. */
struct operands {
    int src, weights, dst;
};

static struct operands operands_of(const struct node *node)
{
    switch (node->op) {
    case OP_CONV2D_D_SRC:
        return (struct operands){node->out[0], node->in[CONV_D_SRC_WEIGHTS],
                                 node->in[CONV_D_SRC_D_DST]};
    case OP_CONV2D_D_WEIGHTS:
        return (struct operands){node->in[CONV_D_WEIGHTS_SRC], node->out[0],
                                 node->in[CONV_D_WEIGHTS_D_DST]};
    case OP_CONV2D_AFFINE:
        return (struct operands){node->in[AFFINE_SRC], node->in[AFFINE_WEIGHTS], node->out[0]};
    default:
        return (struct operands){node->in[CONV_SRC], node->in[CONV_WEIGHTS], node->out[0]};
    }
}

static struct cuda_conv_shape shape_of(const struct cuda_program *p, const struct node *node)
{
    const struct operands at = operands_of(node);
    const int64_t *src = p->values[at.src].slot.shape.dim;
    const int64_t *weights = p->values[at.weights].slot.shape.dim;
    const int64_t *dst = p->values[at.dst].slot.shape.dim;
    const bool sparse = p->values[at.src].sparse; /* as without a stride */
    return (struct cuda_conv_shape){.n = src[0],
                                    .c = p->values[at.src].stored,
                                    .h = sparse ? dst[2] : src[2],
                                    .w = sparse ? dst[3] : src[3],
                                    .k = p->values[at.dst].stored,
                                    .r = weights[2],
                                    .s = weights[3],
                                    .out_h = dst[2],
                                    .out_w = dst[3],
                                    .stride = sparse ? 1 : node->attr.conv.stride,
                                    .pad = node->attr.conv.pad,
                                    .type = p->type};
}

bool cuda_conv_reads_outside(const struct cuda_program *p, const struct node *node)
{
    if (p->type != CUDA_BF16 || !cuda_is_conv(node->op) || node->op == OP_CONV2D_D_SRC)
        return false;
    const struct cuda_conv_shape shape = shape_of(p, node);
    const struct cuda_value *src = &p->values[operands_of(node).src];
    return src->slot.is_external && shape.r == 3 && shape.s == 3 && shape.stride == 1 &&
           shape.pad == 1 && cuda_stem_serves(src->slot.shape.dim[1], shape.k) &&
           (node->op != OP_CONV2D_AFFINE || node_in(node, AFFINE_RESIDUAL) == NO_VALUE);
}

static enum dnn_pass pass_of(enum op op)
{
    return op == OP_CONV2D_D_SRC       ? DNN_D_SRC
           : op == OP_CONV2D_D_WEIGHTS ? DNN_D_WEIGHTS
                                       : DNN_FORWARD;
}

static enum cuda_conv_way way_of(const struct cuda_program *p, const struct node *node)
{
    const struct cuda_backend *cuda = cuda_of(p);
    const struct cuda_conv_shape shape = shape_of(p, node);
    const enum dnn_pass pass = pass_of(node->op);
    if (cuda_conv_reads_outside(p, node))
        return CONV_BY_STEM;
    if (p->chain && !p->values[operands_of(node).src].slot.is_external)
        return CONV_BY_CHAIN;
    if (cuda->strips && cuda_strip_serves(&shape, pass))
        return CONV_BY_STRIP;
    if (cuda->sheets && cuda_sheet_serves(&shape, pass))
        return CONV_BY_SHEET;
    return cuda_thin_serves(&shape, pass) ? CONV_BY_THIN : CONV_BY_CUDNN;
}

static struct cuda_stem stem_of(const struct cuda_program *p, const struct cuda_step *step)
{
    const struct cuda_value *src = &p->values[operands_of(&step->node).src];
    const int64_t *dim = src->slot.shape.dim;
    return (struct cuda_stem){.image = (const float *)(void *)src->outside,
                              .n = dim[0],
                              .c = dim[1],
                              .h = dim[2],
                              .w = dim[3],
                              .k = step->conv->shape.k};
}

/* ---- running ------------------------------------------------------------------------------------ */

static char *derived_at(const struct cuda_program *p, size_t offset)
{
    return p->block + p->derived_offset + offset;
}

static enum der_status run_plan(struct cuda_program *p, const struct cuda_step *step,
                                struct dnn_pointers pointers, size_t workspace, cudaStream_t stream)
{
    pointers.workspace = step_scratch(p, step) + workspace;
    return dnn_run(cuda_of(p)->dnn, step->conv->plan, &pointers, stream);
}

/* Weights that the program computes itself are new here. */
static enum der_status prepare_weights(struct cuda_program *p, const struct cuda_step *step,
                                       cudaStream_t stream)
{
    if (!p->derived[step->conv->derived].inside)
        return DER_OK;
    return cuda_derived_refresh_one(p, step->conv->derived, stream);
}

static enum der_status run_forward(struct cuda_program *p, const struct cuda_step *step,
                                   cudaStream_t stream)
{
    const struct cuda_conv *conv = step->conv;
    const struct cuda_derived *derived = &p->derived[conv->derived];
    const struct operands at = operands_of(&step->node);
    void *src = p->values[at.src].data;
    void *weights = derived_at(p, derived->offset);
    void *dst = p->values[at.dst].data;
    TRY(prepare_weights(p, step, stream));
    if (!conv->plan)
        return cuda_check(p->base.be->ctx, cuda_conv(&conv->shape, dst, src, weights, stream),
                          "a convolution");
    struct dnn_pointers pointers = {.image = src, .weights = weights, .result = dst};
    if (conv->fused) {
        pointers.bias = (const float *)(void *)derived_at(p, derived->bias_offset);
        pointers.residual = value_data(step_in(p, step, AFFINE_RESIDUAL));
    }
    return run_plan(p, step, pointers, 0, stream);
}

static enum der_status run_stem(struct cuda_program *p, const struct cuda_step *step,
                                cudaStream_t stream)
{
    const struct cuda_derived *derived = &p->derived[step->conv->derived];
    const struct cuda_stem stem = stem_of(p, step);
    const bool is_affine = step->node.op == OP_CONV2D_AFFINE;
    const float *bias = (const float *)(void *)derived_at(p, derived->bias_offset);
    TRY(prepare_weights(p, step, stream));
    return cuda_check(p->base.be->ctx,
                      cuda_stem(&stem, step_out(p, step, 0)->data, derived_at(p, derived->offset),
                                is_affine ? bias : NULL, is_affine && step->node.attr.conv.relu,
                                stream),
                      "the first convolution");
}

static enum der_status run_stem_d_weights(struct cuda_program *p, const struct cuda_step *step,
                                          cudaStream_t stream)
{
    const struct cuda_stem stem = stem_of(p, step);
    const struct cuda_value *d_weights = step_out(p, step, 0);
    return cuda_check(p->base.be->ctx,
                      cuda_stem_d_weights(&stem, (float *)(void *)d_weights->data,
                                          d_weights->slot.shape.dim[0],
                                          step_in(p, step, CONV_D_WEIGHTS_D_DST)->data,
                                          step_scratch(p, step), stream),
                      "the gradient of the first weights");
}

static enum der_status run_affine(struct cuda_program *p, const struct cuda_step *step,
                                  cudaStream_t stream)
{
    TRY(run_forward(p, step, stream));
    if (step->conv->fused)
        return DER_OK;
    const struct cuda_derived *derived = &p->derived[step->conv->derived];
    const struct cuda_rows dst = value_rows(p, step_out(p, step, 0));
    return cuda_check(p->base.be->ctx,
                      cuda_epilogue(dst, dst,
                                    (const float *)(void *)derived_at(p, derived->bias_offset),
                                    value_rows(p, step_in(p, step, AFFINE_RESIDUAL)),
                                    step->node.attr.conv.relu, stream),
                      "what follows a convolution");
}

static enum der_status run_d_src(struct cuda_program *p, const struct cuda_step *step,
                                 cudaStream_t stream)
{
    const struct cuda_conv *conv = step->conv;
    const struct operands at = operands_of(&step->node);
    void *weights = derived_at(p, p->derived[conv->derived].offset);
    TRY(prepare_weights(p, step, stream));
    if (!conv->plan)
        return cuda_check(p->base.be->ctx,
                          cuda_conv_d_src(&conv->shape, p->values[at.src].data,
                                          p->values[at.dst].data, weights, stream),
                          "the gradient of a convolution");
    const struct dnn_pointers pointers = {
        .image = p->values[at.src].data, .weights = weights, .result = p->values[at.dst].data};
    return run_plan(p, step, pointers, 0, stream);
}

size_t cuda_conv_raw_bytes(const struct cuda_conv *conv)
{
    const struct cuda_conv_shape *s = &conv->shape;
    return cuda_aligned((size_t)(s->k * s->r * s->s * s->c) *
                        (conv->grad_type == CUDA_BF16 ? 2 : 4));
}

static struct cuda_weights sizes_of(const struct cuda_program *p, const struct cuda_step *step)
{
    const int64_t *dim = step_out(p, step, 0)->slot.shape.dim;
    return (struct cuda_weights){.k = dim[0],
                                 .c = dim[1],
                                 .area = dim[2] * dim[3],
                                 .k_stored = step->conv->shape.k,
                                 .c_stored = step->conv->shape.c};
}

/* As [k, r, s, c], of the type that conv->grad_type says; room: where the scratch is that is left. */
static enum der_status compute_d_weights(struct cuda_program *p, const struct cuda_step *step,
                                         void *d_weights, size_t room, cudaStream_t stream)
{
    const struct cuda_conv *conv = step->conv;
    const struct operands at = operands_of(&step->node);
    struct der_ctx *ctx = p->base.be->ctx;
    void *src = p->values[at.src].data;
    void *d_dst = p->values[at.dst].data;
    if (conv->plan) {
        const struct dnn_pointers pointers = {.image = src, .weights = d_weights, .result = d_dst};
        return run_plan(p, step, pointers, room, stream);
    }
    if (conv->way == CONV_BY_STRIP)
        return cuda_check(ctx,
                          cuda_strip_d_weights(&conv->shape, cuda_strip_splits(&conv->shape),
                                               d_weights, src, d_dst, step_scratch(p, step) + room,
                                               stream),
                          "the gradient of weights of small images");
    return cuda_check(ctx, cuda_conv_d_weights(&conv->shape, d_weights, src, d_dst, stream),
                      "the gradient of weights");
}

static enum der_status run_d_weights(struct cuda_program *p, const struct cuda_step *step,
                                     cudaStream_t stream)
{
    const struct cuda_conv *conv = step->conv;
    char *stage = step_scratch(p, step);
    const struct cuda_weights sizes = sizes_of(p, step);
    TRY(compute_d_weights(p, step, stage, cuda_conv_raw_bytes(conv), stream));
    return cuda_check(p->base.be->ctx,
                      cuda_export_weights(value_data(step_out(p, step, 0)), stage, conv->grad_type,
                                          &sizes, stream),
                      "writing a gradient out");
}

static enum der_status run_raw_d_weights(struct cuda_program *p, const struct cuda_step *step,
                                         cudaStream_t stream)
{
    return compute_d_weights(p, step, step_out(p, step, 0)->data, 0, stream);
}

/* Of a forward pass, for kernels that do all of it. */
static struct cuda_thin thin_of(const struct cuda_program *p, const struct cuda_step *step)
{
    const struct cuda_derived *derived = &p->derived[step->conv->derived];
    const struct operands at = operands_of(&step->node);
    struct cuda_thin thin = {.dst = p->values[at.dst].data,
                             .src = p->values[at.src].data,
                             .weights = derived_at(p, derived->offset)};
    if (step->node.op == OP_CONV2D_AFFINE) {
        thin.bias = (const float *)(void *)derived_at(p, derived->bias_offset);
        thin.residual = value_data(step_in(p, step, AFFINE_RESIDUAL));
        thin.relu = step->node.attr.conv.relu;
    }
    return thin;
}

static enum der_status run_thin(struct cuda_program *p, const struct cuda_step *step,
                                cudaStream_t stream)
{
    const struct cuda_conv *conv = step->conv;
    const struct cuda_conv_shape *shape = &conv->shape;
    const struct cuda_thin_tile tile = cuda_thin_tile_of(shape, false, cuda_of(p)->shared);
    const struct cuda_thin thin = thin_of(p, step);
    TRY(prepare_weights(p, step, stream));
    return cuda_check(p->base.be->ctx,
                      conv->norm ? cuda_thin_summed(shape, &tile, &thin, conv->parts,
                                                    step_scratch(p, conv->norm), stream)
                                 : cuda_thin(shape, &tile, &thin, stream),
                      "a convolution of a thin layer");
}

/* The gradient of batch norm whose sums a gradient of data leaves. */
static struct cuda_bn_grad summed_norm(const struct cuda_program *p, const struct cuda_conv *conv)
{
    struct cuda_bn_grad bn = cuda_bn_grad_of(p, conv->norm);
    if (conv->norm->is_plain)
        bn.dst = (struct cuda_rows){0};
    return bn;
}

static enum der_status run_thin_d_src(struct cuda_program *p, const struct cuda_step *step,
                                      cudaStream_t stream)
{
    const struct cuda_conv *conv = step->conv;
    const struct cuda_conv_shape *shape = &conv->shape;
    const struct operands at = operands_of(&step->node);
    const struct cuda_thin_tile tile = cuda_thin_tile_of(shape, true, cuda_of(p)->shared);
    const void *d_dst = p->values[at.dst].data;
    const void *weights = derived_at(p, p->derived[conv->derived].offset);
    TRY(prepare_weights(p, step, stream));
    if (!conv->norm)
        return cuda_check(
            p->base.be->ctx,
            cuda_thin_d_src(shape, &tile, p->values[at.src].data, d_dst, weights, stream),
            "the gradient of a thin layer");
    const struct cuda_bn_grad bn = summed_norm(p, conv);
    return cuda_check(p->base.be->ctx,
                      cuda_thin_d_src_summed(shape, &tile, d_dst, weights, &bn, stream),
                      "the gradient of a thin layer behind batch norm");
}

static enum der_status run_thin_d_weights(struct cuda_program *p, const struct cuda_step *step,
                                          cudaStream_t stream)
{
    const struct cuda_conv_shape *shape = &step->conv->shape;
    const struct operands at = operands_of(&step->node);
    const struct cuda_thin_grad_tile tile = cuda_thin_grad_tile_of(shape, cuda_of(p)->shared);
    const struct cuda_weights sizes = sizes_of(p, step);
    return cuda_check(p->base.be->ctx,
                      cuda_thin_d_weights(shape, &tile, value_data(&p->values[at.weights]), &sizes,
                                          p->values[at.src].data, p->values[at.dst].data,
                                          step_scratch(p, step), stream),
                      "the gradient of a thin layer's weights");
}

static enum der_status run_strip(struct cuda_program *p, const struct cuda_step *step,
                                 cudaStream_t stream)
{
    const struct cuda_conv *conv = step->conv;
    const struct cuda_thin operands = thin_of(p, step);
    TRY(prepare_weights(p, step, stream));
    return cuda_check(
        p->base.be->ctx,
        conv->norm ? cuda_strip_summed(&conv->shape, &operands, step_scratch(p, conv->norm), stream)
                   : cuda_strip(&conv->shape, &operands, stream),
        "a convolution of small images");
}

static enum der_status run_strip_d_src(struct cuda_program *p, const struct cuda_step *step,
                                       cudaStream_t stream)
{
    const struct cuda_conv *conv = step->conv;
    const struct operands at = operands_of(&step->node);
    const void *d_dst = p->values[at.dst].data;
    const void *weights = derived_at(p, p->derived[conv->derived].offset);
    TRY(prepare_weights(p, step, stream));
    if (!conv->norm)
        return cuda_check(
            p->base.be->ctx,
            cuda_strip_d_src(&conv->shape, p->values[at.src].data, d_dst, weights, stream),
            "the gradient of small images");
    const struct cuda_bn_grad bn = summed_norm(p, conv);
    return cuda_check(p->base.be->ctx,
                      cuda_strip_d_src_summed(&conv->shape, d_dst, weights, &bn, stream),
                      "the gradient of small images behind batch norm");
}

static enum der_status run_sheet(struct cuda_program *p, const struct cuda_step *step,
                                 cudaStream_t stream)
{
    const struct cuda_conv_shape *shape = &step->conv->shape;
    const struct cuda_sheet_tile tile = cuda_sheet_tile_of(shape);
    const struct cuda_thin operands = thin_of(p, step);
    TRY(prepare_weights(p, step, stream));
    return cuda_check(p->base.be->ctx, cuda_sheet(shape, &tile, &operands, stream),
                      "a convolution of small images");
}

enum { WHOLE_TILE = 32 }; /* channels */

/* ---- planning ----------------------------------------------------------------------------------- */

/* How cuDNN is asked for the convolution of a node at first; false when it is not asked at all.
 *
 * Inference has bias, residual and ReLU fused in, but not in f32, where our own kernel rounds as the contract
 * says, nor for few channels, where the two together are faster. Plain passes ask for kernels made at run time,
 * the faster ones for whole tiles of channels but for the data gradient of strided layers and of narrow, large
 * ones (docs/KERNELS.md). Both take longer to make than a tail could ever win back. Gradients of weights
 * have the type of the images: the one engine that gives f32 from bf16 images is up to twenty times slower. */
static bool first_request(const struct cuda_program *p, const struct node *node,
                          struct dnn_conv *out)
{
    if (!cuda_is_conv(node->op) || way_of(p, node) != CONV_BY_CUDNN)
        return false;
    struct dnn_conv conv = {.shape = shape_of(p, node),
                            .tensor_cores = p->precision != PRECISION_F32,
                            .deterministic = true};
    const bool is_whole = conv.tensor_cores && conv.shape.c % WHOLE_TILE == 0 && !p->seldom;
    const bool is_strided = conv.shape.stride > 1 && conv.shape.r > 1;
    const bool is_narrow =
        conv.shape.c % (2 * WHOLE_TILE) != 0 && conv.shape.h * conv.shape.w > 256;
    switch (node->op) {
    case OP_CONV2D_AFFINE:
        conv.bias = is_whole;
        conv.residual = is_whole && node_in(node, AFFINE_RESIDUAL) != NO_VALUE;
        conv.relu = is_whole && node->attr.conv.relu;
        break;
    case OP_CONV2D_D_WEIGHTS:
        conv.pass = DNN_D_WEIGHTS;
        conv.d_weights_type = p->type;
        break;
    case OP_CONV2D_D_SRC:
        conv.pass = DNN_D_SRC;
        conv.compiled = is_whole && !is_strided && !is_narrow;
        break;
    default:
        conv.compiled = is_whole;
    }
    *out = conv;
    return true;
}

/* What no engine does as asked at first is asked for plainly. */
static enum der_status choose_plan(struct cuda_program *p, struct cuda_step *step)
{
    struct dnn_conv conv;
    struct dnn *dnn = cuda_of(p)->dnn;
    if (!first_request(p, &step->node, &conv))
        return DER_OK;
    TRY(dnn_find(dnn, &conv, &step->conv->plan));
    step->conv->fused = conv.bias && step->conv->plan;
    step->conv->grad_type = step->conv->plan ? conv.d_weights_type : CUDA_F32;
    if (step->conv->plan || !(conv.bias || conv.compiled))
        return DER_OK;
    conv.bias = conv.residual = conv.relu = conv.compiled = false;
    return dnn_find(dnn, &conv, &step->conv->plan);
}

enum der_status cuda_conv_prefetch(struct cuda_program *p, const struct graph *g)
{
    struct mem *mem = &p->base.be->ctx->mem;
    struct dnn_conv *convs = mem_alloc(mem, (size_t)g->n_nodes, sizeof *convs);
    int n = 0;
    if (!convs)
        return ctx_nomem(p->base.be->ctx);
    for (int i = 0; i < g->n_nodes; i++)
        n += first_request(p, &g->nodes[i], &convs[n]);
    dnn_prefetch(cuda_of(p)->dnn, convs, n);
    mem_free(mem, convs);
    return DER_OK;
}

static void choose_run(struct cuda_step *step)
{
    static cuda_step_run *const forwards[] = {
        [CONV_BY_CUDNN] = run_forward, [CONV_BY_STEM] = run_stem, [CONV_BY_STRIP] = run_strip,
        [CONV_BY_SHEET] = run_sheet,   [CONV_BY_CHAIN] = NULL, /* cuda_chain_finish */
        [CONV_BY_THIN] = run_thin};
    static cuda_step_run *const d_src[] = {[CONV_BY_CUDNN] = run_d_src,
                                           [CONV_BY_STRIP] = run_strip_d_src,
                                           [CONV_BY_THIN] = run_thin_d_src};
    static cuda_step_run *const d_weights[] = {[CONV_BY_CUDNN] = run_d_weights,
                                               [CONV_BY_STEM] = run_stem_d_weights,
                                               [CONV_BY_STRIP] = run_d_weights,
                                               [CONV_BY_THIN] = run_thin_d_weights};
    const enum cuda_conv_way way = step->conv->way;
    switch (step->node.op) {
    case OP_CONV2D_D_SRC:
        step->run = d_src[way];
        break;
    case OP_CONV2D_D_WEIGHTS:
        step->run = d_weights[way];
        break;
    case OP_CONV2D_AFFINE:
        step->run = way == CONV_BY_CUDNN ? run_affine : forwards[way];
        break;
    default:
        step->run = forwards[way];
    }
}

/* What the gradient of weights needs room for, cuDNN's workspace apart. */
static size_t gradient_bytes(const struct cuda_program *p, const struct cuda_step *step)
{
    const struct cuda_conv *conv = step->conv;
    if (conv->way == CONV_BY_STEM) {
        const struct cuda_stem stem = stem_of(p, step);
        return cuda_stem_scratch(&stem);
    }
    if (conv->way == CONV_BY_THIN) {
        const struct cuda_thin_grad_tile tile =
            cuda_thin_grad_tile_of(&conv->shape, cuda_of(p)->shared);
        return cuda_thin_scratch(&conv->shape, &tile);
    }
    const int splits = conv->way == CONV_BY_STRIP ? cuda_strip_splits(&conv->shape) : 0;
    return cuda_conv_raw_bytes(conv) + cuda_strip_grad_scratch(&conv->shape, splits);
}

enum der_status cuda_conv_init(struct cuda_program *p, struct cuda_step *step)
{
    step->conv = arena_zalloc(&p->arena, 1, sizeof *step->conv);
    if (!step->conv)
        return ctx_nomem(p->base.be->ctx);
    struct cuda_conv *conv = step->conv;
    conv->shape = shape_of(p, &step->node);
    conv->derived = -1;
    conv->way = way_of(p, &step->node);
    conv->grad_type =
        conv->way == CONV_BY_STRIP && step->node.op == OP_CONV2D_D_WEIGHTS ? CUDA_BF16 : CUDA_F32;
    choose_run(step);
    if (step->node.op != OP_CONV2D_D_WEIGHTS)
        TRY(cuda_derived_find(p, step, &conv->derived));
    TRY(choose_plan(p, step));
    if (step->node.op == OP_CONV2D_D_WEIGHTS)
        step->scratch_bytes = gradient_bytes(p, step);
    step->scratch_bytes += conv->plan ? cuda_aligned(conv->plan->workspace) : 0;
    return DER_OK;
}

int cuda_conv_parts(const struct cuda_program *p, const struct cuda_step *step, int most)
{
    const struct cuda_conv_shape *shape = &step->conv->shape;
    const bool backwards = step->node.op == OP_CONV2D_D_SRC;
    if (step->conv->way == CONV_BY_STRIP)
        return cuda_strip_sums(shape, backwards) && shape->n <= most ? (int)shape->n : 0;
    if (step->conv->way != CONV_BY_THIN)
        return 0;
    const struct cuda_thin_tile tile = cuda_thin_tile_of(shape, backwards, cuda_of(p)->shared);
    const int boxes = cuda_thin_boxes(shape, backwards, &tile);
    return boxes < most ? boxes : most;
}

void cuda_conv_stay_raw(struct cuda_program *p, struct cuda_step *step)
{
    struct cuda_value *d_weights = step_out(p, step, 0);
    assert((step->conv->plan || step->conv->way == CONV_BY_STRIP) &&
           step->conv->grad_type == CUDA_BF16);
    /* Its memory is the program's, even if the caller has bound some. */
    d_weights->kind = VALUE_TEMP;
    d_weights->raw = step->conv;
    step->run = run_raw_d_weights;
    step->scratch_bytes -= cuda_conv_raw_bytes(step->conv);
}

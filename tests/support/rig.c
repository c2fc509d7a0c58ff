#include "support/rig.h"

#include "core/rng.h"

#include <math.h>
#include <stdio.h>

/* Places in the scalar buffer. */
enum { SCALAR_LR, SCALAR_MASK_LR, SCALAR_ONE, SCALAR_LAMBDA, SCALAR_S, N_SCALARS };
enum { N_LOSSES = 3, MAX_LAYERS = 128 };

static struct span span_at(struct buffer *buffer, int64_t element)
{
    return (struct span){.buffer = buffer, .offset = (size_t)element * sizeof(float)};
}

/* Value ids of the training graph. */
struct ids {
    int image, labels, matrix, scalar[N_SCALARS], loss[N_LOSSES];
    struct param_use net, heads, masks;
};

static enum der_status add_extractor(struct rig *rig, uint32_t stream, struct extractor **out)
{
    struct resnet_spec spec;
    const struct rig_options *o = &rig->options;
    TRY(resnet_spec_init(rig->ctx, &spec, o->network, 3, o->size, o->size, o->width));
    TRY(extractor_new(rig->be, &spec, out));
    return param_set_init((*out)->params, rig->ctx->seed, stream);
}

static enum der_status add_heads_and_masks(struct rig *rig)
{
    int index;
    int64_t dim = resnet_feature_dim(&rig->trained->spec);
    TRY(param_set_new(rig->ctx, &rig->heads));
    TRY(param_set_add(rig->heads, "classifier.weight", shape_2d(rig->n_classes, rig->feature_dim),
                      PARAM_LEARNT, INIT_LINEAR_UNIFORM, &index));
    if (rig->n_frozen > 0)
        TRY(param_set_add(rig->heads, "auxiliary.weight", shape_2d(RIG_CLASSES_PER_STEP + 1, dim),
                          PARAM_LEARNT, INIT_LINEAR_UNIFORM, &index));
    TRY(param_set_allocate(rig->heads, rig->be));
    TRY(param_set_init(rig->heads, rig->ctx->seed, 100));
    TRY(param_set_thaw(rig->heads));
    if (!rig->options.masks)
        return DER_OK;
    TRY(param_set_new(rig->ctx, &rig->masks));
    for (int i = 0; i < resnet_mask_count(&rig->trained->spec); i++) {
        char name[32];
        (void)snprintf(name, sizeof name, "mask.%d", i);
        TRY(param_set_add(rig->masks, name, shape_1d(resnet_mask_channels(&rig->trained->spec, i)),
                          PARAM_LEARNT, INIT_STANDARD_NORMAL, &index));
    }
    TRY(param_set_allocate(rig->masks, rig->be));
    TRY(param_set_init(rig->masks, rig->ctx->seed, 101));
    return param_set_thaw(rig->masks);
}

static enum der_status add_masks(struct rig *rig, struct graph *g, struct ids *ids, int *m)
{
    const struct resnet_spec *spec = &rig->trained->spec;
    int n = resnet_mask_count(spec);
    struct sparsity_layer layers[MAX_LAYERS];
    int n_layers = resnet_sparsity_layers(spec, layers, MAX_LAYERS);
    TRY(params_attach(rig->masks, g, true, &ids->masks));
    TRY(graph_mask_gate(g, ids->scalar[SCALAR_S], ids->masks.value, n, MASK_GRADIENT_EXACT, 400.0f,
                        m));
    return graph_mask_sparsity(g, ids->scalar[SCALAR_LAMBDA], m, n, layers, n_layers, NULL,
                               &ids->loss[2]);
}

static enum der_status add_losses(struct rig *rig, struct graph *g, struct ids *ids, int feature)
{
    int one = ids->scalar[SCALAR_ONE];
    int joined;
    int logits;
    int64_t dim = resnet_feature_dim(&rig->trained->spec);
    TRY(graph_join(g, feature, ids->matrix, rig->feature_dim - dim, &joined));
    TRY(graph_linear(g, joined, ids->heads.value[0], NO_VALUE, &logits));
    TRY(graph_softmax_xent(g, logits, ids->labels, one, NULL, &ids->loss[0]));
    if (rig->n_frozen == 0)
        return DER_OK;
    int n_old = rig->n_classes - RIG_CLASSES_PER_STEP;
    struct xent_options auxiliary = {.label_shift = n_old - 1, .clamp_low = true};
    TRY(graph_linear(g, feature, ids->heads.value[1], NO_VALUE, &logits));
    return graph_softmax_xent(g, logits, ids->labels, one, &auxiliary, &ids->loss[1]);
}

static enum der_status describe(struct rig *rig, struct graph *g, struct ids *ids)
{
    static const char *const names[N_SCALARS] = {"lr", "mask_lr", "one", "lambda_s", "s"};
    const struct rig_options *o = &rig->options;
    TRY(graph_input(g, "image", DTYPE_F32, shape_4d(o->batch, 3, o->size, o->size), &ids->image));
    TRY(graph_input(g, "labels", DTYPE_I32, shape_1d(o->batch), &ids->labels));
    TRY(graph_input(g, "features", DTYPE_F32, shape_2d(o->batch, rig->feature_dim), &ids->matrix));
    for (int i = 0; i < N_SCALARS; i++)
        if (o->masks || i == SCALAR_LR || i == SCALAR_ONE)
            TRY(graph_input(g, names[i], DTYPE_F32, shape_1d(1), &ids->scalar[i]));
    int m[RESNET_MAX_MASKS];
    if (o->masks)
        TRY(add_masks(rig, g, ids, m));
    TRY(params_attach(rig->trained->params, g, true, &ids->net));
    TRY(params_attach(rig->heads, g, true, &ids->heads));
    struct resnet_io io = {.image = ids->image, .masks = o->masks ? m : NULL, .training = true};
    int feature;
    TRY(resnet_build(&rig->trained->spec, g, &ids->net, &io, &feature));
    TRY(add_losses(rig, g, ids, feature));
    if (o->fuse)
        TRY(graph_fuse(g));
    TRY(graph_backward(g));
    params_note_grads(&ids->net, g);
    params_note_grads(&ids->heads, g);
    struct sgd_attr sgd = {
        .momentum = 0.9f, .decay = 5e-4f, .gain = 1.0f, .low = -INFINITY, .high = INFINITY};
    TRY(params_sgd((struct param_use *[]){&ids->net, &ids->heads}, 2, g, ids->scalar[SCALAR_LR],
                   &sgd));
    if (!o->masks)
        return DER_OK;
    params_note_grads(&ids->masks, g);
    struct sgd_attr mask_sgd = {.momentum = 0.9f, .gain = 5.0f, .low = -6.0f, .high = 6.0f};
    return params_sgd((struct param_use *[]){&ids->masks}, 1, g, ids->scalar[SCALAR_MASK_LR],
                      &mask_sgd);
}

static enum der_status bind_all(struct rig *rig, const struct ids *ids)
{
    struct program *p = rig->program;
    TRY(params_bind(&ids->net, p));
    TRY(params_bind(&ids->heads, p));
    if (rig->masks)
        TRY(params_bind(&ids->masks, p));
    TRY(program_bind(p, ids->image, span_at(rig->image, 0)));
    TRY(program_bind(p, ids->labels, span_at(rig->labels, 0)));
    TRY(program_bind(p, ids->matrix, span_at(rig->features, 0)));
    for (int i = 0; i < N_SCALARS; i++)
        if (ids->scalar[i] != NO_VALUE)
            TRY(program_bind(p, ids->scalar[i], span_at(rig->scalars, i)));
    for (int i = 0; i < N_LOSSES; i++)
        if (ids->loss[i] != NO_VALUE)
            TRY(program_bind(p, ids->loss[i], span_at(rig->losses, i)));
    return DER_OK;
}

static enum der_status compile(struct rig *rig)
{
    struct ids ids = {.image = NO_VALUE};
    for (int i = 0; i < N_SCALARS; i++)
        ids.scalar[i] = NO_VALUE;
    for (int i = 0; i < N_LOSSES; i++)
        ids.loss[i] = NO_VALUE;
    struct graph *g;
    TRY(graph_new(rig->ctx, &g));
    g->hides_gradients = true;
    enum der_status status = describe(rig, g, &ids);
    if (status == DER_OK)
        status = program_compile(rig->be, g, &rig->program);
    if (status == DER_OK)
        status = bind_all(rig, &ids);
    param_use_fini(&ids.net);
    param_use_fini(&ids.heads);
    param_use_fini(&ids.masks);
    graph_free(g);
    return status;
}

/* Frozen programs in group 0, the trained one behind them in group 1. */
static enum der_status make_sequence(struct rig *rig)
{
    struct sequence_item items[RIG_MAX_FROZEN + 1];
    const struct folded_use use = {.batch = rig->options.batch, .in_training = true};
    int64_t col = 0;
    for (int i = 0; i < rig->n_frozen; i++) {
        const struct folded *folded;
        TRY(extractor_folded_for(rig->frozen[i], &use, &folded));
        struct span feature = span_at(rig->features, col);
        feature.pitch = rig->feature_dim;
        TRY(folded_bind(folded, span_at(rig->image, 0), feature));
        items[i] = (struct sequence_item){folded->program, 0};
        col += resnet_feature_dim(&rig->frozen[i]->spec);
    }
    items[rig->n_frozen] = (struct sequence_item){rig->program, 1};
    return sequence_new(rig->be, items, rig->n_frozen + 1, &rig->sequence);
}

static enum der_status build(struct rig *rig)
{
    const struct rig_options *o = &rig->options;
    const struct backend_options options = {.precision = o->precision, .tuning = o->tuning};
    TRY(backend_open(rig->ctx, o->backend, &options, &rig->be));
    for (int i = 0; i < o->n_frozen; i++) {
        TRY(add_extractor(rig, (uint32_t)i, &rig->frozen[i]));
        rig->n_frozen = i + 1;
        rig->feature_dim += resnet_feature_dim(&rig->frozen[i]->spec);
    }
    TRY(add_extractor(rig, 99, &rig->trained));
    TRY(param_set_thaw(rig->trained->params));
    rig->feature_dim += resnet_feature_dim(&rig->trained->spec);
    rig->n_classes = RIG_CLASSES_PER_STEP * (rig->n_frozen + 1);
    TRY(add_heads_and_masks(rig));

    size_t batch = (size_t)o->batch;
    size_t pixels = 3 * (size_t)o->size * (size_t)o->size;
    TRY(buffer_new(rig->be, batch * pixels * sizeof(float), &rig->image));
    TRY(buffer_new(rig->be, batch * (size_t)rig->feature_dim * sizeof(float), &rig->features));
    TRY(buffer_new(rig->be, batch * sizeof(int32_t), &rig->labels));
    TRY(buffer_new(rig->be, N_SCALARS * sizeof(float), &rig->scalars));
    TRY(buffer_new(rig->be, N_LOSSES * sizeof(float), &rig->losses));
    TRY(compile(rig));
    return make_sequence(rig);
}

enum der_status rig_open(struct der_ctx *ctx, const struct rig_options *options, struct rig **out)
{
    *out = NULL;
    struct rig *rig = mem_zalloc(&ctx->mem, 1, sizeof *rig);
    if (!rig)
        return ctx_nomem(ctx);
    rig->ctx = ctx;
    rig->options = *options;
    enum der_status status = build(rig);
    if (status != DER_OK) {
        rig_close(rig);
        return status;
    }
    *out = rig;
    return DER_OK;
}

void rig_close(struct rig *rig)
{
    if (!rig)
        return;
    sequence_free(rig->sequence);
    program_free(rig->program);
    for (int i = 0; i < rig->options.n_frozen; i++)
        extractor_free(rig->frozen[i]);
    extractor_free(rig->trained);
    param_set_free(rig->heads);
    param_set_free(rig->masks);
    struct buffer *buffers[] = {rig->image, rig->features, rig->labels, rig->scalars, rig->losses};
    for (int i = 0; i < 5; i++)
        buffer_free(buffers[i]);
    backend_close(rig->be);
    mem_free(&rig->ctx->mem, rig);
}

/* Images of class y are noise around a pattern of y, so that there is something to learn. */
static enum der_status fill_batch(struct rig *rig, int step)
{
    int64_t pixels = 3 * (int64_t)rig->options.size * rig->options.size;
    for (int i = 0; i < rig->options.batch; i++) {
        int32_t label = (int32_t)((i + step) % rig->n_classes);
        uint32_t stream = (uint32_t)(step * rig->options.batch + i);
        TRY(buffer_write(rig->labels, (size_t)i * sizeof label, &label, sizeof label));
        for (int64_t at = 0; at < pixels;) {
            float piece[256];
            int64_t n = pixels - at < 256 ? pixels - at : 256;
            rng_normal(piece, n, 0.5, rig->ctx->seed + (uint64_t)at, RNG_TEST, stream);
            for (int64_t k = 0; k < n; k++)
                piece[k] += sinf((float)(label + 1) * 0.37f * (float)(at + k));
            TRY(buffer_write(rig->image, (size_t)(i * pixels + at) * sizeof(float), piece,
                             (size_t)n * sizeof(float)));
            at += n;
        }
    }
    return DER_OK;
}

enum der_status rig_step(struct rig *rig, int step, float losses[3])
{
    const float lr = rig->options.lr > 0.0F ? rig->options.lr : RIG_LR;
    const float scalars[N_SCALARS] = {[SCALAR_LR] = lr,
                                      [SCALAR_MASK_LR] = lr,
                                      [SCALAR_ONE] = 1.0f,
                                      [SCALAR_LAMBDA] = 0.75f,
                                      [SCALAR_S] = 1.0f + (float)step};
    TRY(fill_batch(rig, step));
    TRY(buffer_write(rig->scalars, 0, scalars, sizeof scalars));
    TRY(sequence_run(rig->sequence));
    return buffer_read(rig->losses, 0, losses, N_LOSSES * sizeof(float));
}

/* FNV-1a over the bytes. */
static enum der_status sum_buffer(const struct buffer *buffer, uint64_t *sum)
{
    unsigned char piece[4096];
    for (size_t at = 0; at < buffer->bytes;) {
        size_t n = buffer->bytes - at < sizeof piece ? buffer->bytes - at : sizeof piece;
        TRY(buffer_read(buffer, at, piece, n));
        for (size_t i = 0; i < n; i++)
            *sum = (*sum ^ piece[i]) * UINT64_C(1099511628211);
        at += n;
    }
    return DER_OK;
}

enum der_status rig_checksum(struct rig *rig, uint64_t *sum)
{
    *sum = UINT64_C(14695981039346656037);
    struct param_set *sets[] = {rig->trained->params, rig->heads, rig->masks};
    for (int i = 0; i < 3; i++) {
        if (!sets[i])
            continue;
        TRY(sum_buffer(sets[i]->values, sum));
        TRY(sum_buffer(sets[i]->states, sum));
        TRY(sum_buffer(sets[i]->velocity, sum));
    }
    return sum_buffer(rig->features, sum);
}

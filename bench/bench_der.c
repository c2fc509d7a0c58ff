/*
 * One iteration of DER's representation stage at step t, and what it is made of.
 *
 *     step     t - 1 frozen, unpruned extractors run folded, the new one is trained beside them: masks,
 *              main loss over all features, auxiliary loss, sparsity, backward, update
 *     train    the new extractor alone, as at step 1: masks, main loss, sparsity, backward, update
 *     frozen   the t - 1 frozen extractors alone
 *
 * A step should take little more than its two parts together. Answers the same lines as bench_net.c.
 */
#include "bench.h"

#include "core/rng.h"
#include "train/assembly.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MAX_EXTRACTORS = 64, CLASSES_PER_STEP = 10 };
enum { LOSS_MAIN, LOSS_SPARSITY, LOSS_AUXILIARY }; /* the last one only beside frozen extractors */
enum { SCALAR_LR, SCALAR_ONE, SCALAR_LAMBDA_S, SCALAR_S, N_SCALARS };

/* Rates of the middle of a training; s of the middle of an epoch. */
static const float SCALARS[N_SCALARS] = {
    [SCALAR_LR] = 0.01f, [SCALAR_ONE] = 1.0f, [SCALAR_LAMBDA_S] = 0.75f, [SCALAR_S] = 200.0f};
static const float S_MAX = 400.0f;
static const float MASK_GAIN = 5.0f;
static const float MASK_CLAMP = 6.0f;

/* Gamma of every second batch norm of a frozen extractor. Its running statistics are those of a network
 * that never ran, and with 1 features would double from block to block. */
static const float FROZEN_GAMMA = 0.2f;

struct der_bench {
    struct backend *be;
    struct resnet_spec spec;
    int n_frozen, n_classes;
    struct extractor *frozen[MAX_EXTRACTORS];
    struct extractor *trained;
    struct param_set *head, *auxiliary, *masks; /* auxiliary: NULL without frozen extractors */
    struct buffer *scalars;
    struct desks desks;
    struct assembly_cache assemblies;
    struct sequence *sequence; /* of the frozen ones alone */
    struct buffer *image, *matrix;
};

static void bench_fini(struct der_bench *b)
{
    sequence_free(b->sequence);
    buffer_free(b->image);
    buffer_free(b->matrix);
    assembly_cache_fini(&b->assemblies);
    desks_fini(&b->desks);
    for (int i = 0; i < b->n_frozen; i++)
        extractor_free(b->frozen[i]);
    extractor_free(b->trained);
    param_set_free(b->head);
    param_set_free(b->auxiliary);
    param_set_free(b->masks);
    buffer_free(b->scalars);
    backend_close(b->be);
}

/* ---- parameters -------------------------------------------------------------------------------- */

static enum der_status calm(struct param_set *params)
{
    float gamma[4096];
    for (int i = 0; i < params->n; i++) {
        size_t n = (size_t)shape_count(params->items[i].shape);
        if (!strstr(params->items[i].name, "bn2.weight"))
            continue;
        if (n > sizeof gamma / sizeof *gamma)
            return ctx_fail(params->ctx, DER_ARG, "layers of more than 4096 channels");
        for (size_t c = 0; c < n; c++)
            gamma[c] = FROZEN_GAMMA;
        TRY(param_write(params, i, gamma));
    }
    return DER_OK;
}

static enum der_status make_frozen(struct der_bench *b, int n)
{
    for (; b->n_frozen < n; b->n_frozen++) {
        struct extractor **extractor = &b->frozen[b->n_frozen];
        TRY(extractor_new(b->be, &b->spec, extractor));
        enum der_status status =
            param_set_init((*extractor)->params, b->be->ctx->seed, (uint32_t)b->n_frozen);
        if (status == DER_OK)
            status = calm((*extractor)->params);
        if (status != DER_OK) {
            extractor_free(*extractor);
            return status;
        }
    }
    return DER_OK;
}

static enum der_status make_head(struct der_bench *b, int64_t rows, int64_t cols,
                                 struct param_set **out)
{
    int index;
    TRY(param_set_new(b->be->ctx, out));
    TRY(param_set_add(*out, "weight", shape_2d(rows, cols), PARAM_LEARNT, INIT_LINEAR_UNIFORM,
                      &index));
    TRY(param_set_allocate(*out, b->be));
    TRY(param_set_init(*out, b->be->ctx->seed, MAX_EXTRACTORS + 1));
    return param_set_thaw(*out);
}

static enum der_status make_masks(struct der_bench *b)
{
    TRY(param_set_new(b->be->ctx, &b->masks));
    for (int i = 0; i < resnet_mask_count(&b->spec); i++) {
        char name[32];
        int index;
        (void)snprintf(name, sizeof name, "masks.%d", i);
        TRY(param_set_add(b->masks, name, shape_1d(resnet_mask_channels(&b->spec, i)), PARAM_LEARNT,
                          INIT_STANDARD_NORMAL, &index));
    }
    TRY(param_set_allocate(b->masks, b->be));
    TRY(param_set_init(b->masks, b->be->ctx->seed, MAX_EXTRACTORS + 2));
    return param_set_thaw(b->masks);
}

static enum der_status make_trained(struct der_bench *b)
{
    int64_t dim = resnet_feature_dim(&b->spec);
    TRY(extractor_new(b->be, &b->spec, &b->trained));
    TRY(param_set_init(b->trained->params, b->be->ctx->seed, MAX_EXTRACTORS));
    TRY(param_set_thaw(b->trained->params));
    TRY(make_masks(b));
    TRY(make_head(b, b->n_classes, (b->n_frozen + 1) * dim, &b->head));
    if (b->n_frozen > 0)
        TRY(make_head(b, CLASSES_PER_STEP + 1, dim, &b->auxiliary));
    TRY(buffer_new(b->be, ASSEMBLY_MAX_SCALARS * sizeof(float), &b->scalars));
    return buffer_write(b->scalars, 0, SCALARS, sizeof SCALARS);
}

/* ---- the trained graph --------------------------------------------------------------------------- */

static enum der_status add_masks(const struct der_bench *b, struct graph *g, struct assembly_io *io,
                                 struct param_use **use, int *m)
{
    struct sparsity_layer layers[RESNET_MAX_LAYERS];
    int n_layers = resnet_sparsity_layers(&b->spec, layers, RESNET_MAX_LAYERS);
    int lambda_s;
    int s;
    TRY(assembly_attach(g, io, b->masks, true, use));
    TRY(assembly_scalar(g, io, SCALAR_LAMBDA_S, "lambda_s", &lambda_s));
    TRY(assembly_scalar(g, io, SCALAR_S, "s", &s));
    TRY(graph_mask_gate(g, s, (*use)->value, b->masks->n, MASK_GRADIENT_EXACT, S_MAX, m));
    return graph_mask_sparsity(g, lambda_s, m, b->masks->n, layers, n_layers,
                               &io->loss[LOSS_SPARSITY]);
}

/* Main loss over all features, and the auxiliary one over those of the new extractor. */
static enum der_status add_losses(const struct der_bench *b, struct graph *g,
                                  struct assembly_io *io, int feature, int one)
{
    struct param_use *use;
    int64_t dim = resnet_feature_dim(&b->spec);
    int joined;
    int logits;
    TRY(assembly_attach(g, io, b->head, true, &use));
    TRY(graph_join(g, feature, io->matrix, b->n_frozen * dim, &joined));
    TRY(graph_linear(g, joined, use->value[0], NO_VALUE, &logits));
    TRY(graph_softmax_xent(g, logits, io->labels, one, NULL, &io->loss[LOSS_MAIN]));
    TRY(graph_rank(g, logits, io->labels, 0, 0, &io->rank));
    if (!b->auxiliary)
        return DER_OK;
    struct xent_options options = {.label_shift = b->n_frozen * CLASSES_PER_STEP - 1,
                                   .clamp_low = true};
    TRY(assembly_attach(g, io, b->auxiliary, true, &use));
    TRY(graph_linear(g, feature, use->value[0], NO_VALUE, &logits));
    return graph_softmax_xent(g, logits, io->labels, one, &options, &io->loss[LOSS_AUXILIARY]);
}

static enum der_status add_updates(const struct der_bench *b, struct graph *g,
                                   struct assembly_io *io, int lr)
{
    struct sgd_attr sgd = {
        .momentum = 0.9f, .decay = 5e-4f, .gain = 1.0f, .low = -INFINITY, .high = INFINITY};
    struct param_use *weights[ASSEMBLY_MAX_USES];
    struct param_use *masks = NULL;
    int n = 0;
    for (int i = 0; i < io->n_uses; i++) {
        params_note_grads(&io->use[i], g);
        if (io->use[i].set == b->masks)
            masks = &io->use[i];
        else
            weights[n++] = &io->use[i];
    }
    TRY(params_sgd(weights, n, g, lr, &sgd));
    sgd = (struct sgd_attr){
        .momentum = 0.9f, .gain = MASK_GAIN, .low = -MASK_CLAMP, .high = MASK_CLAMP};
    return params_sgd(&masks, 1, g, lr, &sgd);
}

static enum der_status describe(void *self, struct graph *g, struct assembly_io *io)
{
    struct der_bench *b = self;
    struct param_use *masks;
    struct param_use *net;
    int m[RESNET_MAX_MASKS];
    int lr;
    int one;
    int feature;
    io->n_losses = b->auxiliary ? LOSS_AUXILIARY + 1 : LOSS_SPARSITY + 1;
    TRY(assembly_scalar(g, io, SCALAR_LR, "lr", &lr));
    TRY(assembly_scalar(g, io, SCALAR_ONE, "one", &one));
    TRY(add_masks(b, g, io, &masks, m));
    TRY(assembly_attach(g, io, b->trained->params, true, &net));
    struct resnet_io net_io = {.image = io->image, .masks = m, .training = true};
    TRY(resnet_build(&b->spec, g, net, &net_io, &feature));
    TRY(add_losses(b, g, io, feature, one));
    TRY(graph_fuse(g));
    TRY(graph_backward(g));
    return add_updates(b, g, io, lr);
}

/* ---- the parts ----------------------------------------------------------------------------------- */

/* Normal pictures and even labels, drawn once. */
static enum der_status fill(struct der_bench *b, struct buffer *image, struct buffer *labels,
                            int batch)
{
    struct mem *mem = &b->be->ctx->mem;
    int64_t n = (int64_t)batch * 3 * BENCH_IMAGE_SIZE * BENCH_IMAGE_SIZE;
    float *pixels = mem_alloc(mem, (size_t)n, sizeof *pixels);
    int32_t *label = mem_alloc(mem, (size_t)batch, sizeof *label);
    enum der_status status = pixels && label ? DER_OK : ctx_nomem(b->be->ctx);
    if (status == DER_OK) {
        rng_normal(pixels, n, 1.0, b->be->ctx->seed, RNG_TEST, 0);
        for (int i = 0; i < batch; i++)
            label[i] = i * 7 % b->n_classes;
        status = buffer_write(image, 0, pixels, (size_t)n * sizeof *pixels);
    }
    if (status == DER_OK && labels)
        status = buffer_write(labels, 0, label, (size_t)batch * sizeof *label);
    mem_free(mem, pixels);
    mem_free(mem, label);
    return status;
}

static enum der_status open_trained(struct der_bench *b, int batch, struct assembly **out)
{
    int64_t dim = resnet_feature_dim(&b->spec);
    TRY(make_trained(b));
    desks_init(&b->desks, b->be, &b->spec, (b->n_frozen + 1) * dim);
    struct assembly_plan plan = {.be = b->be,
                                 .frozen = b->frozen,
                                 .n_frozen = b->n_frozen,
                                 .desks = &b->desks,
                                 .scalars = b->scalars,
                                 .self = b,
                                 .describe = describe};
    TRY(assembly_get(&b->assemblies, &plan, batch, out));
    return fill(b, (*out)->desk.image, (*out)->desk.labels, batch);
}

static enum der_status open_frozen(struct der_bench *b, int batch)
{
    struct sequence_item items[MAX_EXTRACTORS];
    int64_t dim = resnet_feature_dim(&b->spec);
    int64_t columns = b->n_frozen * dim;
    size_t pixels = (size_t)3 * BENCH_IMAGE_SIZE * BENCH_IMAGE_SIZE;
    TRY(buffer_new(b->be, (size_t)batch * pixels * sizeof(float), &b->image));
    TRY(buffer_new(b->be, (size_t)(batch * columns) * sizeof(float), &b->matrix));
    TRY(fill(b, b->image, NULL, batch));
    for (int i = 0; i < b->n_frozen; i++) {
        const struct folded *folded;
        struct span feature = {b->matrix, (size_t)(i * dim) * sizeof(float), columns};
        TRY(extractor_folded(b->frozen[i], batch, &folded));
        TRY(folded_bind(folded, (struct span){.buffer = b->image}, feature));
        items[i] = (struct sequence_item){folded->program, 0};
    }
    return sequence_new(b->be, items, b->n_frozen, &b->sequence);
}

static enum der_status serve(struct der_bench *b, const struct bench_options *o)
{
    double start_mib = bench_status_mib("VmRSS");
    double since = bench_clock();
    bool is_frozen = strcmp(o->part, "frozen") == 0;
    bool is_train = strcmp(o->part, "train") == 0;
    struct assembly *assembly = NULL;
    if (!is_frozen && !is_train && strcmp(o->part, "step") != 0)
        return ctx_fail(b->be->ctx, DER_ARG, "part %s is not step, train or frozen", o->part);
    b->n_classes = is_train ? CLASSES_PER_STEP : o->n_extractors * CLASSES_PER_STEP;
    TRY(make_frozen(b, is_train ? 0 : o->n_extractors - 1));
    if (is_frozen)
        TRY(open_frozen(b, o->batch));
    else
        TRY(open_trained(b, o->batch, &assembly));
    printf("{\"setup_s\": %.3f, \"extractors\": %d}\n", bench_clock() - since, o->n_extractors);
    (void)fflush(stdout);
    if (is_frozen)
        return bench_obey(b->sequence, b->matrix, start_mib);
    return bench_obey(assembly->sequence, assembly->losses, start_mib);
}

enum der_status bench_der(struct der_ctx *ctx, const struct bench_options *options)
{
    if (options->n_extractors < 2 || options->n_extractors > MAX_EXTRACTORS)
        return ctx_fail(ctx, DER_ARG, "%d extractors, want 2 to %d", options->n_extractors,
                        MAX_EXTRACTORS);
    struct der_bench b = {0};
    enum der_status status = resnet_spec_init(ctx, &b.spec, options->model, 3, BENCH_IMAGE_SIZE,
                                              BENCH_IMAGE_SIZE, options->width);
    if (status == DER_OK)
        status = backend_open(ctx, options->backend, NULL, &b.be);
    if (status == DER_OK)
        status = serve(&b, options);
    bench_fini(&b);
    return status;
}

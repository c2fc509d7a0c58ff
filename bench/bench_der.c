/*
 * One iteration of DER's representation stage at step t, and what it is made of.
 *
 *     step     t - 1 frozen extractors run folded, the new one is trained beside them: main loss over all
 *              features, auxiliary loss, backward, update; with --masks also masks and sparsity loss
 *     train    the new extractor alone, as at step 1
 *     frozen   the t - 1 frozen extractors alone
 *
 * What is trained is method/objective.h, the very graph of `der train`. A step should take little more than
 * its two parts together. Answers the same lines as bench_net.c.
 */
#include "bench.h"

#include "core/rng.h"
#include "method/head.h"
#include "method/masks.h"
#include "method/objective.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_EXTRACTORS = 64, CLASSES_PER_STEP = 10 };

/* Rates of the middle of a training; s of the middle of an epoch. */
static const float SCALARS[OBJECTIVE_SCALARS] = {[OBJECTIVE_LR] = 0.01f,
                                                 [OBJECTIVE_MAIN] = 1.0f,
                                                 [OBJECTIVE_LAMBDA_A] = 1.0f,
                                                 [OBJECTIVE_LAMBDA_S] = 0.75f,
                                                 [OBJECTIVE_S] = 200.0f};
static const struct config CONFIG = {
    .momentum = 0.9, .decay = 5e-4, .mask_gain = 5.0, .s_max = 400.0, .mask_clamp = 6.0};

/* Gamma of every second batch norm of a frozen extractor. Its running statistics are those of a network
 * that never ran, and with 1 features would double from block to block. */
static const float FROZEN_GAMMA = 0.2f;

struct der_bench {
    struct backend *be;
    struct resnet_spec spec;
    struct resnet_spec frozen_specs[MAX_EXTRACTORS];
    int n_frozen, n_classes;
    struct extractor *frozen[MAX_EXTRACTORS];
    struct objective objective; /* what is trained; its sets are owned */
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
    extractor_free(b->objective.extractor);
    param_set_free(b->objective.head);
    param_set_free(b->objective.auxiliary);
    param_set_free(b->objective.masks);
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
        TRY(extractor_new(b->be, &b->frozen_specs[b->n_frozen], extractor));
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

static int64_t frozen_dim(const struct der_bench *b)
{
    int64_t dim = 0;
    for (int i = 0; i < b->n_frozen; i++)
        dim += resnet_feature_dim(&b->frozen_specs[i]);
    return dim;
}

static enum der_status make_trained(struct der_bench *b, bool masks)
{
    struct objective *o = &b->objective;
    uint64_t seed = b->be->ctx->seed;
    int64_t dim = resnet_feature_dim(&b->spec);
    o->config = &CONFIG;
    o->n_old = b->n_classes - CLASSES_PER_STEP;
    TRY(extractor_new(b->be, &b->spec, &o->extractor));
    TRY(param_set_init(o->extractor->params, seed, MAX_EXTRACTORS));
    TRY(param_set_thaw(o->extractor->params));
    TRY(head_new(b->be, "classifier.weight", b->n_classes, frozen_dim(b) + dim, INIT_LINEAR_UNIFORM,
                 seed, MAX_EXTRACTORS + 1, &o->head));
    if (b->n_frozen > 0)
        TRY(head_new(b->be, "auxiliary.weight", CLASSES_PER_STEP + 1, dim, INIT_LINEAR_UNIFORM,
                     seed, MAX_EXTRACTORS + 2, &o->auxiliary));
    if (masks)
        TRY(masks_new(b->be, &b->spec, MASK_INIT_NORMAL, seed, MAX_EXTRACTORS + 3, &o->masks));
    TRY(buffer_new(b->be, ASSEMBLY_MAX_SCALARS * sizeof(float), &b->scalars));
    return buffer_write(b->scalars, 0, SCALARS, sizeof SCALARS);
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

static enum der_status open_trained(struct der_bench *b, const struct bench_options *o,
                                    struct assembly **out)
{
    TRY(make_trained(b, o->masks));
    desks_init(&b->desks, b->be, &b->spec, frozen_dim(b) + resnet_feature_dim(&b->spec));
    struct assembly_plan plan = {.be = b->be,
                                 .frozen = b->frozen,
                                 .n_frozen = b->n_frozen,
                                 .desks = &b->desks,
                                 .scalars = b->scalars,
                                 .self = &b->objective,
                                 .describe = objective_describe};
    TRY(assembly_get(&b->assemblies, &plan, o->batch, out));
    return fill(b, (*out)->desk.image, (*out)->desk.labels, o->batch);
}

static enum der_status open_frozen(struct der_bench *b, int batch)
{
    struct sequence_item items[MAX_EXTRACTORS];
    const struct folded_use use = {.batch = batch, .in_training = true};
    int64_t column = 0;
    int64_t columns = frozen_dim(b);
    size_t pixels = (size_t)3 * BENCH_IMAGE_SIZE * BENCH_IMAGE_SIZE;
    TRY(buffer_new(b->be, (size_t)batch * pixels * sizeof(float), &b->image));
    TRY(buffer_new(b->be, (size_t)(batch * columns) * sizeof(float), &b->matrix));
    TRY(fill(b, b->image, NULL, batch));
    for (int i = 0; i < b->n_frozen; i++) {
        const struct folded *folded;
        struct span feature = {b->matrix, (size_t)column * sizeof(float), columns};
        TRY(extractor_folded_for(b->frozen[i], &use, &folded));
        TRY(folded_bind(folded, (struct span){.buffer = b->image}, feature));
        items[i] = (struct sequence_item){folded->program, 0};
        column += resnet_feature_dim(&b->frozen_specs[i]);
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
        TRY(open_trained(b, o, &assembly));
    printf("{\"setup_s\": %.3f, \"extractors\": %d}\n", bench_clock() - since, o->n_extractors);
    (void)fflush(stdout);
    if (is_frozen)
        return bench_obey(b->sequence, b->matrix, start_mib);
    return bench_obey(assembly->sequence, assembly->losses, start_mib);
}

/* Channels of a pruned network, separated by commas: of the stream stage by stage, then within every block. */
static enum der_status set_widths(struct der_ctx *ctx, struct resnet_spec *spec, const char *list)
{
    const char *at = list;
    char *end = NULL;
    for (int stage = 0; stage < spec->n_stages; stage++, at = *end == ',' ? end + 1 : end)
        spec->stream[stage] = (int)strtol(at, &end, 10);
    for (int stage = 0; stage < spec->n_stages; stage++)
        for (int block = 0; block < spec->n_blocks[stage];
             block++, at = *end == ',' ? end + 1 : end)
            spec->inner[stage][block] = (int)strtol(at, &end, 10);
    if (*at != '\0' && *at != '/')
        return ctx_fail(ctx, DER_ARG, "'%s' has more widths than the network", list);
    return resnet_spec_check(ctx, spec);
}

/* Lists with a slash between them are for one frozen extractor after the other, again and again. */
static enum der_status set_frozen_widths(struct der_ctx *ctx, struct der_bench *b,
                                         const char *lists)
{
    const char *at = lists;
    for (int i = 0; lists && i < MAX_EXTRACTORS; i++) {
        TRY(set_widths(ctx, &b->frozen_specs[i], at));
        const char *next = strchr(at, '/');
        at = next ? next + 1 : lists;
    }
    return DER_OK;
}

static enum der_status open_bench(struct der_bench *b, struct der_ctx *ctx,
                                  const struct bench_options *o)
{
    const struct backend_options options = {.precision = o->precision, .tuning = o->tuning};
    TRY(resnet_spec_init(ctx, &b->spec, o->model, 3, BENCH_IMAGE_SIZE, BENCH_IMAGE_SIZE, o->width));
    if (o->widths)
        TRY(set_widths(ctx, &b->spec, o->widths));
    for (int i = 0; i < MAX_EXTRACTORS; i++)
        TRY(resnet_spec_init(ctx, &b->frozen_specs[i], o->model, 3, BENCH_IMAGE_SIZE,
                             BENCH_IMAGE_SIZE, o->frozen_width));
    TRY(set_frozen_widths(ctx, b, o->frozen_widths));
    return backend_open(ctx, o->backend, &options, &b->be);
}

enum der_status bench_der(struct der_ctx *ctx, const struct bench_options *options)
{
    int least = strcmp(options->part, "frozen") == 0 ? 2 : 1;
    if (options->n_extractors < least || options->n_extractors > MAX_EXTRACTORS)
        return ctx_fail(ctx, DER_ARG, "%d extractors, want %d to %d", options->n_extractors, least,
                        MAX_EXTRACTORS);
    struct der_bench b = {0};
    enum der_status status = open_bench(&b, ctx, options);
    if (status == DER_OK)
        status = serve(&b, options);
    bench_fini(&b);
    return status;
}

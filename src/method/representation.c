/*
 * First stage of a step: the representation. A new extractor F_t, its masks, the classifier H_t over
 * the super-feature and the auxiliary classifier H_a are trained; older extractors only run.
 */
#include "method/learner_internal.h"

#include <math.h>
#include <stdio.h>

enum { SCALAR_LR, SCALAR_ONE, SCALAR_LAMBDA_A, SCALAR_LAMBDA_S, SCALAR_S, N_SCALARS };

static const char *const LOSS_NAMES[] = {"main", "auxiliary", "sparsity"};

/* Streams of initialisation; a step adds its number times STREAMS. */
enum { STREAM_EXTRACTOR, STREAM_HEAD, STREAM_AUXILIARY, STREAM_MASKS, STREAM_RESET, STREAMS = 8 };

struct representation {
    struct learner *learner;
    int n_new;                   /* classes of this step */
    struct extractor *extractor; /* F_t, full width */
    struct param_set *head;      /* H_t */
    struct param_set *auxiliary; /* H_a, or NULL */
    struct param_set *masks;     /* e, or NULL */
    struct buffer *scalars;
    struct desks desks;
    struct assembly_cache assemblies;
    const char *loss_names[STAGE_MAX_LOSSES];
    int n_losses;
};

static uint32_t stream_of(const struct representation *r, int which)
{
    return (uint32_t)(r->learner->step * STREAMS + which);
}

static bool has_auxiliary(const struct learner *learner)
{
    return learner->settings.auxiliary && learner->settings.expand && learner->step > 0;
}

/* ---- the graph ------------------------------------------------------------------------------- */

static enum der_status add_masks(struct representation *r, struct graph *g, struct assembly_io *io,
                                 struct param_use **use, int *m)
{
    const struct learner_settings *settings = &r->learner->settings;
    struct sparsity_layer layers[RESNET_MAX_LAYERS];
    int n_layers = resnet_sparsity_layers(&settings->spec, layers, RESNET_MAX_LAYERS);
    int lambda_s;
    int s;
    TRY(assembly_attach(g, io, r->masks, true, use));
    TRY(assembly_scalar(g, io, SCALAR_LAMBDA_S, "lambda_s", &lambda_s));
    TRY(assembly_scalar(g, io, SCALAR_S, "s", &s));
    TRY(graph_mask_gate(g, s, (*use)->value, r->masks->n, MASK_GRADIENT_EXACT,
                        (float)settings->s_max, m));
    return graph_mask_sparsity(g, lambda_s, m, r->masks->n, layers, n_layers,
                               &io->loss[r->n_losses - 1]);
}

/* Old classes are label 0 of H_a, new ones 1, 2, ... */
static enum der_status add_auxiliary(struct representation *r, struct graph *g,
                                     struct assembly_io *io, int feature, struct param_use **use)
{
    int logits;
    int lambda_a;
    struct xent_options options = {.label_shift = r->learner->n_classes - 1, .clamp_low = true};
    TRY(assembly_attach(g, io, r->auxiliary, true, use));
    TRY(assembly_scalar(g, io, SCALAR_LAMBDA_A, "lambda_a", &lambda_a));
    TRY(graph_linear(g, feature, (*use)->value[0], NO_VALUE, &logits));
    return graph_softmax_xent(g, logits, io->labels, lambda_a, &options, &io->loss[1]);
}

static enum der_status add_updates(const struct representation *r, struct graph *g,
                                   struct assembly_io *io, struct param_use *masks)
{
    const struct learner_settings *settings = &r->learner->settings;
    struct param_use *weights[ASSEMBLY_MAX_USES];
    int n = 0;
    for (int i = 0; i < io->n_uses; i++) {
        params_note_grads(&io->use[i], g);
        if (&io->use[i] != masks)
            weights[n++] = &io->use[i];
    }
    struct sgd_attr sgd = {.momentum = settings->momentum,
                           .decay = settings->decay,
                           .gain = 1.0f,
                           .low = -INFINITY,
                           .high = INFINITY};
    TRY(params_sgd(weights, n, g, io->scalar[SCALAR_LR], &sgd));
    if (!masks)
        return DER_OK;
    sgd.decay = 0.0f; /* it would pull e towards indecision */
    sgd.gain = (float)settings->mask_gain;
    sgd.low = -(float)settings->mask_clamp;
    sgd.high = (float)settings->mask_clamp;
    return params_sgd(&masks, 1, g, io->scalar[SCALAR_LR], &sgd);
}

static enum der_status describe(void *self, struct graph *g, struct assembly_io *io)
{
    struct representation *r = self;
    struct param_use *net;
    struct param_use *head;
    struct param_use *other;
    struct param_use *masks = NULL;
    int m[RESNET_MAX_MASKS];
    int lr;
    int one;
    int feature;
    int joined;
    int logits;
    io->n_losses = r->n_losses;
    TRY(assembly_scalar(g, io, SCALAR_LR, "lr", &lr));
    TRY(assembly_scalar(g, io, SCALAR_ONE, "one", &one));
    if (r->masks)
        TRY(add_masks(r, g, io, &masks, m));
    TRY(assembly_attach(g, io, r->extractor->params, true, &net));
    TRY(assembly_attach(g, io, r->head, true, &head));
    struct resnet_io net_io = {.image = io->image, .masks = r->masks ? m : NULL, .training = true};
    TRY(resnet_build(&r->extractor->spec, g, net, &net_io, &feature));
    int64_t first = r->desks.feature_dim - resnet_feature_dim(&r->extractor->spec);
    TRY(graph_join(g, feature, io->matrix, first, &joined));
    TRY(graph_linear(g, joined, head->value[0], NO_VALUE, &logits));
    TRY(graph_softmax_xent(g, logits, io->labels, one, NULL, &io->loss[0]));
    TRY(graph_rank(g, logits, io->labels, 0, 0, &io->rank));
    if (r->auxiliary)
        TRY(add_auxiliary(r, g, io, feature, &other));
    TRY(graph_fuse(g));
    TRY(graph_backward(g));
    return add_updates(r, g, io, masks);
}

/* ---- the stage -------------------------------------------------------------------------------- */

static enum der_status program(void *self, int batch, struct stage_program *out)
{
    struct representation *r = self;
    struct learner *learner = r->learner;
    struct assembly_plan plan = {.be = learner->be,
                                 .frozen = learner->extractors,
                                 .n_frozen = learner->n_extractors,
                                 .desks = &r->desks,
                                 .scalars = r->scalars,
                                 .self = r,
                                 .describe = describe};
    struct assembly *assembly;
    TRY(assembly_get(&r->assemblies, &plan, batch, &assembly));
    *out = assembly_program(assembly);
    return DER_OK;
}

/* Both heads start anew when the warm-up ends; their velocities live on, as in the authors' code. */
static enum der_status epoch(void *self, int number)
{
    struct representation *r = self;
    const struct learner_settings *settings = &r->learner->settings;
    int warmup = settings->representation.warmup_epochs;
    if (!settings->reset_after_warmup || warmup == 0 || number != warmup)
        return DER_OK;
    TRY(param_set_init(r->head, settings->seed, stream_of(r, STREAM_RESET)));
    if (!r->auxiliary)
        return DER_OK;
    return param_set_init(r->auxiliary, settings->seed, stream_of(r, STREAM_RESET) + 1);
}

/* s = 1/s_max + (s_max - 1/s_max) (b - 1) / (B - 1) within an epoch; s_max where B is 1; infinite, that
 * is hard masks, in the last epochs. */
static double steepness(const struct learner_settings *settings, const struct moment *now)
{
    if (now->epoch >= settings->hard_epoch)
        return INFINITY;
    double low = 1.0 / settings->s_max;
    if (now->n_iterations < 2)
        return settings->s_max;
    double share = (double)now->iteration / (double)(now->n_iterations - 1);
    return low + (settings->s_max - low) * share;
}

static enum der_status write_scalars(void *self, const struct moment *now)
{
    struct representation *r = self;
    const struct learner_settings *settings = &r->learner->settings;
    const float scalars[N_SCALARS] = {
        [SCALAR_LR] = (float)now->lr,
        [SCALAR_ONE] = 1.0f,
        [SCALAR_LAMBDA_A] = (float)settings->lambda_a,
        [SCALAR_LAMBDA_S] = (float)settings->lambda_s,
        [SCALAR_S] = (float)steepness(settings, now),
    };
    return buffer_write(r->scalars, 0, scalars, sizeof scalars);
}

static const struct stage_ops STAGE = {
    .program = program, .epoch = epoch, .scalars = write_scalars};

/* ---- before and after ---------------------------------------------------------------------------- */

static enum der_status new_masks(struct representation *r)
{
    struct learner *learner = r->learner;
    TRY(param_set_new(learner->be->ctx, &r->masks));
    for (int i = 0; i < resnet_mask_count(&learner->settings.spec); i++) {
        char name[32];
        int index;
        (void)snprintf(name, sizeof name, "masks.%d", i);
        TRY(param_set_add(r->masks, name,
                          shape_1d(resnet_mask_channels(&learner->settings.spec, i)), PARAM_LEARNT,
                          INIT_STANDARD_NORMAL, &index));
    }
    TRY(param_set_allocate(r->masks, learner->be));
    TRY(param_set_init(r->masks, learner->settings.seed, stream_of(r, STREAM_MASKS)));
    return param_set_thaw(r->masks);
}

/* F_t starts as the last extractor was before it was pruned: starting from what pruning left would
 * make extractors ever smaller. */
static enum der_status open_stage(struct representation *r)
{
    struct learner *learner = r->learner;
    const struct learner_settings *settings = &learner->settings;
    int64_t dim = resnet_feature_dim(&settings->spec);
    int n_classes = learner->n_classes + r->n_new;
    TRY(extractor_new(learner->be, &settings->spec, &r->extractor));
    if (learner->last_full)
        TRY(param_set_copy(r->extractor->params, learner->last_full->params));
    else
        TRY(param_set_init(r->extractor->params, settings->seed, stream_of(r, STREAM_EXTRACTOR)));
    TRY(param_set_thaw(r->extractor->params));
    desks_init(&r->desks, learner->be, &settings->spec, learner_feature_dim(learner) + dim);
    TRY(head_new(learner, "classifier.weight", n_classes, r->desks.feature_dim,
                 stream_of(r, STREAM_HEAD), &r->head));
    r->loss_names[r->n_losses++] = LOSS_NAMES[0];
    if (has_auxiliary(learner)) {
        TRY(head_new(learner, "auxiliary.weight", r->n_new + 1, dim, stream_of(r, STREAM_AUXILIARY),
                     &r->auxiliary));
        r->loss_names[r->n_losses++] = LOSS_NAMES[1];
    }
    if (settings->masks) {
        TRY(new_masks(r));
        r->loss_names[r->n_losses++] = LOSS_NAMES[2];
    }
    return buffer_new(learner->be, ASSEMBLY_MAX_SCALARS * sizeof(float), &r->scalars);
}

static void close_stage(struct representation *r)
{
    assembly_cache_fini(&r->assemblies);
    desks_fini(&r->desks);
    extractor_free(r->extractor);
    param_set_free(r->head);
    param_set_free(r->auxiliary);
    param_set_free(r->masks);
    buffer_free(r->scalars);
}

/* Reads all masks into one block; rows[i] points to mask i. Caller frees rows[0]. */
static enum der_status read_masks(const struct representation *r, const float **rows)
{
    struct der_ctx *ctx = r->learner->be->ctx;
    float *host = mem_alloc(&ctx->mem, (size_t)param_set_count(r->masks), sizeof *host);
    rows[0] = host;
    if (!host)
        return ctx_nomem(ctx);
    for (int i = 0; i < r->masks->n; i++) {
        rows[i] = host;
        TRY(param_read(r->masks, i, host));
        host += shape_count(r->masks->items[i].shape);
    }
    return DER_OK;
}

/* H_t without the columns of features that are gone. */
static enum der_status prune_head(struct representation *r, const struct kept *kept,
                                  struct param_set **out)
{
    struct learner *learner = r->learner;
    struct der_ctx *ctx = learner->be->ctx;
    struct shape full = r->head->items[0].shape;
    int last = learner->settings.spec.n_stages - 1;
    int64_t old = learner_feature_dim(learner);
    int64_t cols = old + kept->count[last];
    TRY(head_new(learner, "classifier.weight", full.dim[0], cols, 0, out));
    float *src = mem_alloc(&ctx->mem, (size_t)shape_count(full), 2 * sizeof *src);
    if (!src)
        return ctx_nomem(ctx);
    float *dst = src + shape_count(full);
    enum der_status status = param_read(r->head, 0, src);
    for (int64_t row = 0; row < full.dim[0] && status == DER_OK; row++) {
        for (int64_t c = 0; c < old; c++)
            dst[row * cols + c] = src[row * full.dim[1] + c];
        for (int c = 0; c < kept->count[last]; c++)
            dst[row * cols + old + c] = src[row * full.dim[1] + old + kept->channel[last][c]];
    }
    if (status == DER_OK)
        status = param_write(*out, 0, dst);
    mem_free(&ctx->mem, src);
    return status;
}

static enum der_status prune_with(struct representation *r, const struct kept *kept,
                                  struct extractor **small, struct param_set **classifier)
{
    struct learner *learner = r->learner;
    struct resnet_spec spec = pruned_spec(&learner->settings.spec, kept);
    TRY(extractor_new(learner->be, &spec, small));
    TRY(prune_params(&learner->settings.spec, kept, r->extractor->params, (*small)->params));
    return prune_head(r, kept, classifier);
}

/* Hands the trained extractor over, pruned where there are masks. */
static enum der_status hand_over(struct representation *r, struct param_set **classifier)
{
    struct learner *learner = r->learner;
    struct der_ctx *ctx = learner->be->ctx;
    struct extractor **next = &learner->extractors[learner->n_extractors];
    struct kept kept = {0};
    const float *rows[RESNET_MAX_MASKS] = {NULL};
    enum der_status status = DER_OK;
    param_set_freeze(r->extractor->params);
    if (r->masks) {
        status = read_masks(r, rows);
        if (status == DER_OK)
            status = kept_from_masks(ctx, &learner->settings.spec, rows, &kept);
        if (status == DER_OK)
            status = prune_with(r, &kept, next, classifier);
        mem_free(&ctx->mem, (void *)(uintptr_t)rows[0]);
        kept_fini(ctx, &kept);
    } else {
        status = extractor_new(learner->be, &learner->settings.spec, next);
        if (status == DER_OK)
            status = param_set_copy((*next)->params, r->extractor->params);
        *classifier = r->head;
        r->head = NULL;
    }
    if (*next)
        learner->n_extractors++;
    if (status != DER_OK)
        return status;
    extractor_free(learner->last_full);
    learner->last_full = r->extractor;
    r->extractor = NULL;
    return DER_OK;
}

enum der_status learn_representation(struct learner *learner, const struct data_view *view,
                                     int n_new, const struct train_hooks *hooks,
                                     struct param_set **classifier)
{
    struct representation r = {.learner = learner, .n_new = n_new};
    char name[64];
    *classifier = NULL;
    enum der_status status = open_stage(&r);
    if (status == DER_OK) {
        (void)snprintf(name, sizeof name, "step %d, representation", learner->step + 1);
        struct stage stage = {.name = name,
                              .ops = &STAGE,
                              .self = &r,
                              .loss_names = r.loss_names,
                              .n_losses = r.n_losses,
                              .schedule = learner->settings.representation,
                              .data = learner_batches(learner, view, STAGE_REPRESENTATION)};
        status = train_stage(learner->be->ctx, &stage, 0, hooks);
    }
    if (status == DER_OK)
        status = hand_over(&r, classifier);
    close_stage(&r);
    return status;
}

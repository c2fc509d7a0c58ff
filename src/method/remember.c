/*
 * The memory of a learner: which images of a class are kept when it is no longer new.
 */
#include "method/aside.h"
#include "method/learner_internal.h"

/* What may be kept of a class: all images of a new one; of a known one what was kept and what has joined. */
static enum der_status candidates(struct learner *learner, int label, struct data_view **out)
{
    struct der_ctx *ctx = learner->be->ctx;
    struct data_view *memory = NULL;
    struct data_view *kept = NULL;
    struct data_view *joining = NULL;
    if (label >= learner->memory->n_classes)
        return view_range(ctx, learner->options.train, label, label + 1, out);
    *out = NULL;
    enum der_status status = exemplars_view(learner->memory, &memory);
    if (status == DER_OK)
        status = view_range(ctx, memory, label, label + 1, &kept);
    if (status == DER_OK)
        status = view_range(ctx, learner->options.joining, label, label + 1, &joining);
    if (status == DER_OK)
        status = view_union(ctx, kept, joining, out);
    view_free(memory);
    view_free(kept);
    view_free(joining);
    return status;
}

/* Ranks the images of a view by herding on the super-feature: the first `quota` to samples [view->n]. */
static enum der_status rank(struct reading *reading, const struct data_view *view, int quota,
                            int64_t *samples, int *n_ranked)
{
    struct learner *learner = reading->learner;
    struct der_ctx *ctx = learner->be->ctx;
    int64_t dim = learner_feature_dim(learner);
    size_t most = (size_t)view->n;
    int64_t n = 0;
    float *features = mem_alloc(&ctx->mem, most * (size_t)dim, sizeof *features);
    struct view_item *rows = mem_alloc(&ctx->mem, most, sizeof *rows); /* of the features */
    int32_t *ranks = mem_alloc(&ctx->mem, most, sizeof *ranks);
    enum der_status status = features && rows && ranks
                                 ? reading_features(reading, view, features, rows, &n)
                                 : ctx_nomem(ctx);
    if (status == DER_OK)
        status = exemplar_herd(ctx, features, (int)n, (int)dim, quota, ranks, n_ranked);
    for (int i = 0; status == DER_OK && i < *n_ranked; i++)
        samples[i] = rows[ranks[i]].sample;
    mem_free(&ctx->mem, features);
    mem_free(&ctx->mem, rows);
    mem_free(&ctx->mem, ranks);
    return status;
}

/* Adds images that are not among the samples yet, until there are `wanted`. */
static int fill_up(const struct data_view *view, int wanted, int64_t *samples, int n)
{
    for (int64_t i = 0; i < view->n && n < wanted; i++) {
        bool is_ranked = false;
        for (int k = 0; k < n && !is_ranked; k++)
            is_ranked = samples[k] == view->items[i].sample;
        if (!is_ranked)
            samples[n++] = view->items[i].sample;
    }
    return n;
}

/* Takes the images of a class that were set aside out of its candidates. */
static enum der_status part(struct data_view *view, const struct data_view *aside, int label,
                            struct data_view **own)
{
    int64_t n = 0;
    TRY(view_range(view->ctx, aside, label, label + 1, own));
    for (int64_t i = 0; i < view->n; i++) {
        bool is_out = false;
        for (int64_t k = 0; k < (*own)->n && !is_out; k++)
            is_out = (*own)->items[k].sample == view->items[i].sample;
        if (!is_out)
            view->items[n++] = view->items[i];
    }
    view->n = n;
    return DER_OK;
}

static enum der_status remember_class(struct reading *reading, int label, int quota,
                                      const struct data_view *aside)
{
    struct learner *learner = reading->learner;
    struct der_ctx *ctx = learner->be->ctx;
    struct data_view *view;
    struct data_view *own = NULL;
    int n = 0;
    TRY(candidates(learner, label, &view));
    int64_t *samples = mem_alloc(&ctx->mem, (size_t)view->n, sizeof *samples);
    enum der_status status = samples ? DER_OK : ctx_nomem(ctx);
    if (status == DER_OK && aside)
        status = part(view, aside, label, &own);
    if (status == DER_OK)
        status = rank(reading, view, quota, samples, &n);
    if (status == DER_OK && learner->options.fills_memory)
        n = fill_up(view, quota, samples, n);
    if (status == DER_OK && own)
        n = aside_weave(own, learner->options.config.correction_share, quota, samples, n);
    if (status == DER_OK)
        status = label < learner->memory->n_classes
                     ? exemplars_replace(learner->memory, label, samples, n)
                     : exemplars_add(learner->memory, samples, n);
    mem_free(&ctx->mem, samples);
    view_free(own);
    view_free(view);
    return status;
}

static bool has_joining(const struct learner *learner, int label)
{
    const struct data_view *joining = learner->options.joining;
    for (int64_t i = 0; joining && i < joining->n; i++)
        if (joining->items[i].label == label)
            return true;
    return false;
}

enum der_status learner_remember(struct learner *learner, int first, const struct data_view *aside)
{
    const struct config *config = &learner->options.config;
    int quota = exemplar_quota(config->memory_mode, config->memory, learner->n_classes);
    struct reading reading = {.learner = learner, .head = learner->classifier};
    enum der_status status = DER_OK;
    exemplars_truncate(learner->memory, quota);
    for (int label = 0; label < learner->n_classes && status == DER_OK; label++)
        if (label >= first || has_joining(learner, label))
            status = remember_class(&reading, label, quota, aside);
    reading_fini(&reading);
    return status;
}

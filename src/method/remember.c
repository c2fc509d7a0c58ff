/*
 * The memory of a learner: which images of a class are kept when it is no longer new.
 */
#include "method/learner_internal.h"

/* Ranks the images of one class by herding on the super-feature and keeps the first `quota`. */
static enum der_status remember_class(struct reading *reading, int label, int quota)
{
    struct learner *learner = reading->learner;
    struct der_ctx *ctx = learner->be->ctx;
    struct data_view *view;
    TRY(view_range(ctx, learner->options.train, label, label + 1, &view));
    int64_t dim = learner_feature_dim(learner);
    size_t n = (size_t)view->n;
    float *features = mem_alloc(&ctx->mem, n * (size_t)dim, sizeof *features);
    int32_t *ranks = mem_alloc(&ctx->mem, n, sizeof *ranks);
    int64_t *samples = mem_alloc(&ctx->mem, n, sizeof *samples);
    enum der_status status =
        features && ranks && samples ? reading_features(reading, view, features) : ctx_nomem(ctx);
    int n_ranked = 0;
    if (status == DER_OK)
        status = exemplar_herd(ctx, features, (int)n, (int)dim, quota, ranks, &n_ranked);
    for (int i = 0; i < n_ranked; i++)
        samples[i] = view->items[ranks[i]].sample;
    if (status == DER_OK)
        status = exemplars_add(learner->memory, samples, n_ranked);
    mem_free(&ctx->mem, features);
    mem_free(&ctx->mem, ranks);
    mem_free(&ctx->mem, samples);
    view_free(view);
    return status;
}

enum der_status learner_remember(struct learner *learner, int first)
{
    const struct config *config = &learner->options.config;
    int quota = exemplar_quota(config->memory_mode, config->memory, learner->n_classes);
    struct reading reading = {.learner = learner, .head = learner->classifier};
    enum der_status status = DER_OK;
    exemplars_truncate(learner->memory, quota);
    for (int label = first; label < learner->n_classes && status == DER_OK; label++)
        status = remember_class(&reading, label, quota);
    reading_fini(&reading);
    return status;
}

/*
 * The nearest mean of exemplars as a classifier. With phi the length-one features of an image,
 *
 *     mu_y = mean of phi over the exemplars of y, made of length one;     y* = argmin |phi - mu_y|
 *
 * and as all means are of length one that is argmax of mu_y . phi, so of mu_y . Phi(x) too: a head with the means as rows, which
 * programs and models have like any other.
 */
#include "method/head.h"
#include "method/learner_internal.h"

#include <math.h>

/* Makes a row of length one. A row of zeros, as of a class without readable exemplars, stays. */
static void normalise(double *row, int64_t dim)
{
    double squares = 0.0;
    for (int64_t d = 0; d < dim; d++)
        squares += row[d] * row[d];
    const double length = sqrt(squares);
    for (int64_t d = 0; d < dim && length > 0.0; d++)
        row[d] /= length;
}

/* Adds phi of one image to the row of its class; `phi` is room for it. */
static void add_feature(const float *feature, int64_t dim, double *phi, double *row)
{
    for (int64_t d = 0; d < dim; d++)
        phi[d] = (double)feature[d];
    normalise(phi, dim);
    for (int64_t d = 0; d < dim; d++)
        row[d] += phi[d];
}

/* sums [n_classes + 1, dim] are zero; the last row is room for one feature. */
static enum der_status add_features(struct learner *learner, const struct data_view *view,
                                    float *features, struct view_item *items, double *sums)
{
    const int64_t dim = learner_feature_dim(learner);
    struct reading reading = {.learner = learner, .head = learner->classifier};
    int64_t n = 0;
    enum der_status status = reading_features(&reading, view, features, items, &n);
    reading_fini(&reading);
    for (int64_t i = 0; status == DER_OK && i < n; i++)
        add_feature(features + i * dim, dim, sums + learner->n_classes * dim,
                    sums + items[i].label * dim);
    return status;
}

static enum der_status sum_features(struct learner *learner, double *sums)
{
    struct der_ctx *ctx = learner->be->ctx;
    struct data_view *view;
    TRY(exemplars_view(learner->memory, &view));
    const size_t n = (size_t)view->n;
    float *features =
        mem_alloc(&ctx->mem, n * (size_t)learner_feature_dim(learner), sizeof *features);
    struct view_item *items = mem_alloc(&ctx->mem, n, sizeof *items);
    enum der_status status =
        features && items ? add_features(learner, view, features, items, sums) : ctx_nomem(ctx);
    mem_free(&ctx->mem, features);
    mem_free(&ctx->mem, items);
    view_free(view);
    return status;
}

/* The sums become the rows of a head. */
static enum der_status new_means(struct learner *learner, double *sums, struct param_set **out)
{
    struct der_ctx *ctx = learner->be->ctx;
    const int64_t n = learner->n_classes;
    const int64_t dim = learner_feature_dim(learner);
    struct param_set *means;
    TRY(head_new(learner->be, "classifier.weight", n, dim, INIT_ZERO, 0, 0, &means));
    float *rows = mem_alloc(&ctx->mem, (size_t)(n * dim), sizeof *rows);
    enum der_status status = rows ? DER_OK : ctx_nomem(ctx);
    for (int64_t label = 0; rows && label < n; label++)
        normalise(sums + label * dim, dim);
    for (int64_t i = 0; rows && i < n * dim; i++)
        rows[i] = (float)sums[i];
    if (rows)
        status = param_write(means, 0, rows);
    mem_free(&ctx->mem, rows);
    if (status != DER_OK) {
        param_set_free(means);
        return status;
    }
    param_set_freeze(means);
    *out = means;
    return DER_OK;
}

enum der_status learner_read_means(struct learner *learner)
{
    struct der_ctx *ctx = learner->be->ctx;
    const size_t rows = (size_t)learner->n_classes + 1;
    struct param_set *means;
    double *sums = mem_zalloc(&ctx->mem, rows * (size_t)learner_feature_dim(learner), sizeof *sums);
    enum der_status status = sums ? sum_features(learner, sums) : ctx_nomem(ctx);
    if (status == DER_OK)
        status = new_means(learner, sums, &means);
    mem_free(&ctx->mem, sums);
    TRY(status);
    param_set_free(learner->trained_head);
    learner->trained_head = learner->classifier;
    learner->classifier = means;
    return DER_OK;
}

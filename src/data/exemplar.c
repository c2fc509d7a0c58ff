#include "data/exemplar.h"

#include <assert.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

enum { HERDING_ITERATIONS_MAX = 1000, DOT_LANES = 8 };

static const double NORM_EPSILON = 1e-8;

int exemplar_quota(enum memory_mode mode, int budget, int n_seen)
{
    assert(budget >= 0 && n_seen > 0);
    return mode == MEMORY_FIXED_TOTAL ? budget / n_seen : budget;
}

/* a . b in double. Independent partial sums let the compiler use vector registers without being
 * allowed to reorder a sum; the grouping is fixed, so the result is the same everywhere. */
static double dot(const double *a, const double *b, int n)
{
    double lane[DOT_LANES] = {0};
    int i = 0;
    for (; i + DOT_LANES <= n; i += DOT_LANES)
        for (int k = 0; k < DOT_LANES; k++)
            lane[k] += a[i + k] * b[i + k];
    double sum = 0;
    for (; i < n; i++)
        sum += a[i] * b[i];
    for (int k = 0; k < DOT_LANES; k++)
        sum += lane[k];
    return sum;
}

/* rows [n][d]: D_i = f_i / (|f_i| + 1e-8), mean [d]: mu = mean of the D_i, which is not normalised
 * again. False when a feature is not finite. */
static bool normalise(const float *features, int n, int d, double *rows, double *mean)
{
    memset(mean, 0, (size_t)d * sizeof *mean);
    for (int i = 0; i < n; i++) {
        double *row = rows + (size_t)i * (size_t)d;
        for (int k = 0; k < d; k++)
            row[k] = (double)features[(size_t)i * (size_t)d + (size_t)k];
        double norm = sqrt(dot(row, row, d));
        if (!isfinite(norm))
            return false;
        for (int k = 0; k < d; k++) {
            row[k] /= norm + NORM_EPSILON;
            mean[k] += row[k];
        }
    }
    for (int k = 0; k < d; k++)
        mean[k] /= n;
    return true;
}

/* The row with the largest w . D_i; the lowest index among equals. */
static int best_row(const double *rows, const double *w, int n, int d)
{
    int best = 0;
    double best_score = -INFINITY;
    for (int i = 0; i < n; i++) {
        double score = dot(rows + (size_t)i * (size_t)d, w, d);
        if (score > best_score) {
            best_score = score;
            best = i;
        }
    }
    return best;
}

/* w = mu; repeat: i = argmax w . D_i; a new i gets the next rank; w += mu - D_i, also when i was
 * taken before; until m have a rank or 1000 iterations are over. */
static int rank_rows(const double *rows, const double *mean, double *w, int n, int d, int m,
                     bool *is_ranked, int32_t *ranks)
{
    memcpy(w, mean, (size_t)d * sizeof *w);
    int n_ranked = 0;
    for (int iteration = 0; iteration < HERDING_ITERATIONS_MAX && n_ranked < m; iteration++) {
        int best = best_row(rows, w, n, d);
        if (!is_ranked[best]) {
            is_ranked[best] = true;
            ranks[n_ranked++] = best;
        }
        const double *row = rows + (size_t)best * (size_t)d;
        for (int k = 0; k < d; k++)
            w[k] += mean[k] - row[k];
    }
    return n_ranked;
}

enum der_status exemplar_herd(struct der_ctx *ctx, const float *features, int n, int d, int m,
                              int32_t *ranks, int *n_ranked)
{
    assert(n >= 0 && d > 0 && m >= 0);
    *n_ranked = 0;
    if (m > n)
        m = n;
    if (m == 0)
        return DER_OK;
    size_t count;
    double *rows =
        size_mul((size_t)n, (size_t)d, &count) ? mem_alloc(&ctx->mem, count, sizeof *rows) : NULL;
    double *mean = mem_alloc(&ctx->mem, (size_t)d, sizeof *mean);
    double *w = mem_alloc(&ctx->mem, (size_t)d, sizeof *w);
    bool *is_ranked = mem_zalloc(&ctx->mem, (size_t)n, sizeof *is_ranked);
    enum der_status status = DER_OK;
    if (!rows || !mean || !w || !is_ranked)
        status = ctx_nomem(ctx);
    else if (!normalise(features, n, d, rows, mean))
        status = ctx_fail(ctx, DER_NUMERIC, "herding: a feature is not a finite number");
    else
        *n_ranked = rank_rows(rows, mean, w, n, d, m, is_ranked, ranks);
    mem_free(&ctx->mem, is_ranked);
    mem_free(&ctx->mem, w);
    mem_free(&ctx->mem, mean);
    mem_free(&ctx->mem, rows);
    return status;
}

enum der_status exemplars_new(struct der_ctx *ctx, int n_classes, struct exemplars **out)
{
    assert(n_classes > 0);
    *out = NULL;
    struct exemplars *memory = mem_zalloc(&ctx->mem, 1, sizeof *memory);
    if (!memory)
        return ctx_nomem(ctx);
    memory->ctx = ctx;
    memory->capacity = n_classes;
    memory->lists = mem_zalloc(&ctx->mem, (size_t)n_classes, sizeof *memory->lists);
    if (!memory->lists) {
        exemplars_free(memory);
        return ctx_nomem(ctx);
    }
    *out = memory;
    return DER_OK;
}

void exemplars_free(struct exemplars *memory)
{
    if (!memory)
        return;
    for (int i = 0; memory->lists && i < memory->n_classes; i++)
        mem_free(&memory->ctx->mem, memory->lists[i].samples);
    mem_free(&memory->ctx->mem, memory->lists);
    mem_free(&memory->ctx->mem, memory);
}

static enum der_status list_new(struct der_ctx *ctx, const int64_t *samples, int n,
                                struct exemplar_list *list)
{
    *list = (struct exemplar_list){.n = n};
    list->samples = mem_alloc(&ctx->mem, (size_t)n, sizeof *list->samples);
    if (!list->samples)
        return ctx_nomem(ctx);
    if (n > 0)
        memcpy(list->samples, samples, (size_t)n * sizeof *samples);
    return DER_OK;
}

enum der_status exemplars_add(struct exemplars *memory, const int64_t *samples, int n)
{
    assert(memory->n_classes < memory->capacity && n >= 0);
    TRY(list_new(memory->ctx, samples, n, &memory->lists[memory->n_classes]));
    memory->n_classes++;
    return DER_OK;
}

enum der_status exemplars_replace(struct exemplars *memory, int label, const int64_t *samples,
                                  int n)
{
    assert(label >= 0 && label < memory->n_classes && n >= 0);
    struct exemplar_list list;
    TRY(list_new(memory->ctx, samples, n, &list));
    mem_free(&memory->ctx->mem, memory->lists[label].samples);
    memory->lists[label] = list;
    return DER_OK;
}

void exemplars_truncate(struct exemplars *memory, int quota)
{
    assert(quota >= 0);
    for (int i = 0; i < memory->n_classes; i++)
        if (memory->lists[i].n > quota)
            memory->lists[i].n = quota;
}

enum der_status exemplars_view(const struct exemplars *memory, struct data_view **out)
{
    int64_t n = 0;
    for (int i = 0; i < memory->n_classes; i++)
        n += memory->lists[i].n;
    *out = NULL;
    struct data_view *view;
    TRY(view_new(memory->ctx, n, &view));
    struct view_item *next = view->items;
    for (int label = 0; label < memory->n_classes; label++)
        for (int i = 0; i < memory->lists[label].n; i++)
            *next++ = (struct view_item){.sample = memory->lists[label].samples[i], .label = label};
    *out = view;
    return DER_OK;
}

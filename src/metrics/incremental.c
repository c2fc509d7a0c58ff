#include "metrics/incremental.h"

#include <assert.h>
#include <math.h>
#include <string.h>

enum { N_ARRAYS = 3 }; /* n, top1, top5: one block */

static double per_cent(int64_t hits, int64_t n)
{
    return n > 0 ? 100.0 * (double)hits / (double)n : NAN;
}

static const struct incremental_step *step_at(const struct incremental *run, int step)
{
    assert(step >= 0 && step < run->n_steps);
    return &run->steps[step];
}

/* Accuracy over the classes [first, last), which may be none. */
static double over_classes(const struct incremental_step *step, int first, int last,
                           enum accuracy_kind kind)
{
    const int64_t *hits = kind == TOP1 ? step->top1 : step->top5;
    int64_t n = 0;
    int64_t n_hits = 0;
    for (int label = first; label < last; label++) {
        n += step->n[label];
        n_hits += hits[label];
    }
    return per_cent(n_hits, n);
}

static enum der_status check_step(const struct incremental *run,
                                  const struct incremental_step *step)
{
    int number = run->n_steps + 1;
    int n_before = run->n_steps > 0 ? run->steps[run->n_steps - 1].n_classes : 0;
    if (step->n_classes <= n_before)
        return ctx_fail(run->ctx, DER_ARG, "step %d: %d classes seen, but there were %d before",
                        number, step->n_classes, n_before);
    for (int label = 0; label < step->n_classes; label++)
        if (step->top1[label] < 0 || step->top5[label] < step->top1[label] ||
            step->n[label] < step->top5[label])
            return ctx_fail(run->ctx, DER_ARG,
                            "step %d, class %d: %lld images cannot have %lld first and %lld "
                            "top-five hits",
                            number, label, (long long)step->n[label], (long long)step->top1[label],
                            (long long)step->top5[label]);
    if (step->parameters < 0 || step->parameters_with_classifier < step->parameters)
        return ctx_fail(run->ctx, DER_ARG, "step %d: %lld parameters, but %lld with the classifier",
                        number, (long long)step->parameters,
                        (long long)step->parameters_with_classifier);
    return DER_OK;
}

enum der_status incremental_new(struct der_ctx *ctx, struct incremental **out)
{
    *out = mem_zalloc(&ctx->mem, 1, sizeof **out);
    if (!*out)
        return ctx_nomem(ctx);
    (*out)->ctx = ctx;
    return DER_OK;
}

void incremental_free(struct incremental *run)
{
    if (!run)
        return;
    struct mem *mem = &run->ctx->mem;
    for (int t = 0; t < run->n_steps; t++)
        mem_free(mem, (void *)run->steps[t].n);
    mem_free(mem, run->steps);
    mem_free(mem, run);
}

enum der_status incremental_add(struct incremental *run, const struct incremental_step *step)
{
    TRY(check_step(run, step));
    struct mem *mem = &run->ctx->mem;
    struct incremental_step *steps =
        mem_realloc(mem, run->steps, (size_t)run->n_steps + 1, sizeof *steps);
    if (!steps)
        return ctx_nomem(run->ctx);
    run->steps = steps;

    size_t n = (size_t)step->n_classes;
    int64_t *counts = mem_alloc(mem, n, N_ARRAYS * sizeof *counts);
    if (!counts)
        return ctx_nomem(run->ctx);
    memcpy(counts, step->n, n * sizeof *counts);
    memcpy(counts + n, step->top1, n * sizeof *counts);
    memcpy(counts + 2 * n, step->top5, n * sizeof *counts);

    struct incremental_step *copy = &steps[run->n_steps++];
    *copy = *step;
    copy->n = counts;
    copy->top1 = counts + n;
    copy->top5 = counts + 2 * n;
    return DER_OK;
}

void incremental_group_range(const struct incremental *run, int group, int *first, int *last)
{
    *last = step_at(run, group)->n_classes;
    *first = group > 0 ? run->steps[group - 1].n_classes : 0;
}

double incremental_accuracy(const struct incremental *run, int step, enum accuracy_kind kind)
{
    const struct incremental_step *s = step_at(run, step);
    return over_classes(s, 0, s->n_classes, kind);
}

double incremental_group(const struct incremental *run, int step, int group,
                         enum accuracy_kind kind)
{
    assert(group <= step);
    int first;
    int last;
    incremental_group_range(run, group, &first, &last);
    return over_classes(step_at(run, step), first, last, kind);
}

double incremental_range(const struct incremental *run, int step, int first, int last,
                         enum accuracy_kind kind)
{
    const struct incremental_step *s = step_at(run, step);
    assert(first >= 0 && first <= last && last <= s->n_classes);
    return over_classes(s, first, last, kind);
}

double incremental_class(const struct incremental *run, int step, int label,
                         enum accuracy_kind kind)
{
    return incremental_range(run, step, label, label + 1, kind);
}

double incremental_average(const struct incremental *run, enum accuracy_kind kind)
{
    if (run->n_steps == 0)
        return NAN;
    double sum = 0.0;
    for (int t = 0; t < run->n_steps; t++)
        sum += incremental_accuracy(run, t, kind);
    return sum / run->n_steps;
}

double incremental_last(const struct incremental *run, enum accuracy_kind kind)
{
    return run->n_steps > 0 ? incremental_accuracy(run, run->n_steps - 1, kind) : NAN;
}

double incremental_forgetting(const struct incremental *run)
{
    int last_step = run->n_steps - 1;
    int n_groups = 0;
    double sum = 0.0;
    for (int j = 0; j < last_step; j++) {
        double last = incremental_group(run, last_step, j, TOP1);
        if (isnan(last))
            continue;
        double best = last;
        /* fmax passes over steps that did not test the group. */
        for (int t = j; t < last_step; t++)
            best = fmax(best, incremental_group(run, t, j, TOP1));
        sum += best - last;
        n_groups++;
    }
    return n_groups > 0 ? sum / n_groups : 0.0;
}

double incremental_average_parameters(const struct incremental *run)
{
    if (run->n_steps == 0)
        return NAN;
    double sum = 0.0;
    for (int t = 0; t < run->n_steps; t++)
        sum += (double)run->steps[t].parameters;
    return sum / run->n_steps;
}

int64_t incremental_final_parameters(const struct incremental *run, bool with_classifier)
{
    if (run->n_steps == 0)
        return 0;
    const struct incremental_step *last = &run->steps[run->n_steps - 1];
    return with_classifier ? last->parameters_with_classifier : last->parameters;
}

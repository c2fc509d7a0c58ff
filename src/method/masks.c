#include "method/masks.h"

#include "core/rng.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* All e of an extractor on the host; row[i] points to mask i. */
struct mask_values {
    float *e; /* [n]; owned */
    size_t n;
    const float *row[RESNET_MAX_MASKS];
};

static enum param_init init_of(enum mask_init init)
{
    switch (init) {
    case MASK_INIT_NORMAL:
        return INIT_STANDARD_NORMAL;
    case MASK_INIT_UNIFORM:
        return INIT_UNIFORM_0_2;
    case MASK_INIT_CONSTANT:
        return INIT_ONE;
    }
    return INIT_STANDARD_NORMAL;
}

static enum der_status declare(struct param_set *masks, struct backend *be,
                               const struct resnet_spec *spec, enum mask_init init)
{
    for (int i = 0; i < resnet_mask_count(spec); i++) {
        char name[32];
        int index;
        (void)snprintf(name, sizeof name, "masks.%d", i);
        TRY(param_set_add(masks, name, shape_1d(resnet_mask_channels(spec, i)), PARAM_LEARNT,
                          init_of(init), &index));
    }
    return param_set_allocate(masks, be);
}

enum der_status masks_new(struct backend *be, const struct resnet_spec *spec, enum mask_init init,
                          uint64_t seed, uint32_t stream, struct param_set **out)
{
    struct param_set *masks;
    *out = NULL;
    TRY(param_set_new(be->ctx, &masks));
    enum der_status status = declare(masks, be, spec, init);
    if (status == DER_OK)
        status = param_set_init(masks, seed, stream);
    if (status == DER_OK)
        status = param_set_thaw(masks);
    if (status != DER_OK) {
        param_set_free(masks);
        return status;
    }
    *out = masks;
    return DER_OK;
}

/* Caller frees values->e, also after a failure. */
static enum der_status read_values(const struct param_set *masks, struct mask_values *values)
{
    *values = (struct mask_values){.n = (size_t)param_set_count(masks)};
    values->e = mem_alloc(&masks->ctx->mem, values->n, sizeof *values->e);
    if (!values->e)
        return ctx_nomem(masks->ctx);
    float *next = values->e;
    for (int i = 0; i < masks->n; i++) {
        values->row[i] = next;
        TRY(param_read(masks, i, next));
        next += shape_count(masks->items[i].shape);
    }
    return DER_OK;
}

enum der_status masks_kept(const struct param_set *masks, const struct resnet_spec *spec,
                           struct kept *out)
{
    struct mask_values values;
    *out = (struct kept){0};
    enum der_status status = read_values(masks, &values);
    if (status == DER_OK)
        status = kept_from_masks(masks->ctx, spec, values.row, out);
    mem_free(&masks->ctx->mem, values.e);
    return status;
}

static enum der_status lean(struct param_set *masks, const struct mask_values *values,
                            const struct kept *kept, float by)
{
    float *next = values->e;
    for (int i = 0; i < masks->n; i++) {
        for (int k = 0; k < kept->count[i]; k++)
            next[kept->channel[i][k]] += by;
        TRY(param_write(masks, i, next));
        next += shape_count(masks->items[i].shape);
    }
    return DER_OK;
}

enum der_status masks_lean(struct param_set *masks, const struct param_set *last,
                           const struct resnet_spec *spec, double by)
{
    struct mask_values values = {0};
    struct kept kept;
    enum der_status status = masks_kept(last, spec, &kept);
    if (status == DER_OK)
        status = read_values(masks, &values);
    if (status == DER_OK)
        status = lean(masks, &values, &kept, (float)by);
    mem_free(&masks->ctx->mem, values.e);
    kept_fini(masks->ctx, &kept);
    return status;
}

enum der_status masks_kept_params(const struct param_set *masks, const struct resnet_spec *spec,
                                  int64_t *out)
{
    struct kept kept;
    enum der_status status = masks_kept(masks, spec, &kept);
    if (status == DER_OK) {
        struct resnet_spec small = pruned_spec(spec, &kept);
        *out = resnet_count_params(&small);
    }
    kept_fini(masks->ctx, &kept);
    return status;
}

/* ---- fitting ----------------------------------------------------------------------------------- */

/* Parameters go with the square of the width: c sqrt(target / full) channels. */
bool masks_least(const struct resnet_spec *spec, int64_t target, double share,
                 int least[RESNET_MAX_MASKS])
{
    const double full = (double)resnet_count_params(spec);
    const double even = target > 0 ? fmin(1.0, sqrt((double)target / full)) : 0.0;
    for (int i = 0; i < resnet_mask_count(spec); i++)
        least[i] = (int)(share * even * resnet_mask_channels(spec, i));
    return share * even > 0.0;
}

static int compare_floats(const void *a, const void *b)
{
    float x = *(const float *)a;
    float y = *(const float *)b;
    return (x > y) - (x < y);
}

static void shift(float *e, size_t n, float by)
{
    for (size_t i = 0; i < n; i++)
        e[i] += by;
}

/* Parameters that stay with the masks' channels above `threshold`. */
static enum der_status count_above(struct der_ctx *ctx, const struct resnet_spec *spec,
                                   const struct mask_values *values, float threshold, int64_t *out)
{
    struct kept kept = {0};
    shift(values->e, values->n, -threshold);
    enum der_status status = kept_from_masks(ctx, spec, values->row, &kept);
    shift(values->e, values->n, threshold);
    if (status == DER_OK) {
        struct resnet_spec small = pruned_spec(spec, &kept);
        *out = resnet_count_params(&small);
    }
    kept_fini(ctx, &kept);
    return status;
}

/* A threshold with i values below it: under the first, between two, above the last. */
static float threshold_at(const float *sorted, size_t n, size_t i)
{
    if (i == 0)
        return sorted[0] - 1.0f;
    return i < n ? 0.5f * (sorted[i - 1] + sorted[i]) : sorted[n - 1] + 1.0f;
}

/* The size falls as the threshold rises, so bisection over the first n of the sorted e, which may go, finds where it
 * passes the target; of the two sides the nearer one is taken. */
static enum der_status find_threshold(struct der_ctx *ctx, const struct resnet_spec *spec,
                                      const struct mask_values *values, const float *sorted,
                                      size_t n, int64_t target, float *out)
{
    size_t low = 0;
    size_t high = n;
    int64_t size;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        TRY(count_above(ctx, spec, values, threshold_at(sorted, values->n, middle), &size));
        if (size > target)
            low = middle + 1;
        else
            high = middle;
    }
    *out = threshold_at(sorted, values->n, low);
    TRY(count_above(ctx, spec, values, *out, &size));
    if (low == 0 || size >= target)
        return DER_OK;
    int64_t above;
    float before = threshold_at(sorted, values->n, low - 1);
    TRY(count_above(ctx, spec, values, before, &above));
    if (above - target < target - size)
        *out = before;
    return DER_OK;
}

/* Puts the highest `least` of n channels where `above` is; of equals the first. sorted: [n] */
static void lift_mask(float *e, int n, int least, float above, float *sorted)
{
    memcpy(sorted, e, (size_t)n * sizeof *e);
    qsort(sorted, (size_t)n, sizeof *sorted, compare_floats);
    const float lowest = least > 0 ? sorted[n - least] : above;
    int n_equal = least; /* places for those that have just as much */
    for (int c = 0; c < n; c++)
        n_equal -= e[c] > lowest;
    for (int c = 0; c < n; c++)
        if (e[c] > lowest || (e[c] == lowest && n_equal-- > 0))
            e[c] = above;
}

/* Puts the highest `least` channels of every mask above all others; returns how many others there are. sorted: [n] */
static size_t lift(const struct param_set *masks, const struct mask_values *values,
                   const int *least, float *sorted)
{
    size_t n_others = values->n;
    float above = values->e[0];
    for (size_t i = 1; i < values->n; i++)
        above = fmaxf(above, values->e[i]);
    above += 1.0f;
    float *e = values->e;
    for (int i = 0; i < masks->n; i++) {
        const int n = (int)shape_count(masks->items[i].shape);
        lift_mask(e, n, least[i], above, sorted);
        n_others -= (size_t)least[i];
        e += n;
    }
    return n_others;
}

static enum der_status fit(struct param_set *masks, const struct resnet_spec *spec,
                           const struct mask_values *values, float *sorted, int64_t target,
                           const int *least)
{
    float threshold;
    const size_t n_others = lift(masks, values, least, sorted);
    for (size_t i = 0; i < values->n; i++)
        sorted[i] = values->e[i];
    qsort(sorted, values->n, sizeof *sorted, compare_floats);
    TRY(find_threshold(masks->ctx, spec, values, sorted, n_others, target, &threshold));
    shift(values->e, values->n, -threshold);
    for (int i = 0; i < masks->n; i++)
        TRY(param_write(masks, i, values->row[i]));
    return DER_OK;
}

enum der_status masks_fit(struct param_set *masks, const struct resnet_spec *spec, int64_t target,
                          const int least[RESNET_MAX_MASKS])
{
    struct mem *mem = &masks->ctx->mem;
    struct mask_values values;
    enum der_status status = read_values(masks, &values);
    float *sorted = mem_alloc(mem, values.n, sizeof *sorted);
    if (status == DER_OK)
        status = sorted ? fit(masks, spec, &values, sorted, target, least) : ctx_nomem(masks->ctx);
    mem_free(mem, sorted);
    mem_free(mem, values.e);
    return status;
}

/* ---- chance -------------------------------------------------------------------------------------- */

/* Fisher and Yates; the modulo of a 32-bit word is fair enough for a few hundred channels. */
static void shuffle(float *e, int n, uint64_t seed, uint32_t stream, int mask)
{
    for (int i = n - 1; i > 0; i--) {
        uint64_t index = (uint64_t)mask << 32 | (uint32_t)i;
        uint32_t word = rng_at(seed, RNG_MASK_SHUFFLE, stream, index).word[0];
        int other = (int)(word % (uint32_t)(i + 1));
        float kept = e[i];
        e[i] = e[other];
        e[other] = kept;
    }
}

enum der_status masks_shuffle(struct param_set *masks, uint64_t seed, uint32_t stream)
{
    struct mask_values values;
    enum der_status status = read_values(masks, &values);
    float *next = values.e;
    for (int i = 0; i < masks->n && status == DER_OK; i++) {
        int n = (int)shape_count(masks->items[i].shape);
        shuffle(next, n, seed, stream, i);
        status = param_write(masks, i, next);
        next += n;
    }
    mem_free(&masks->ctx->mem, values.e);
    return status;
}

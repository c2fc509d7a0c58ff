#include "data/picture_set.h"

#include "core/fnv.h"

#include <stdlib.h>

static uint64_t mark_of(const struct image_view *picture)
{
    const int32_t size[] = {picture->height, picture->width};
    uint64_t hash = fnv_bytes(FNV_START, size, sizeof size);
    return fnv_bytes(hash, picture->data,
                     (size_t)picture->height * (size_t)picture->width * (size_t)picture->channels);
}

static int compare_marks(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a;
    uint64_t y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Brings marks into their order, each once. */
static void put_in_order(struct picture_set *set)
{
    int64_t n = 0;
    qsort(set->marks, (size_t)set->n, sizeof *set->marks, compare_marks);
    for (int64_t i = 0; i < set->n; i++)
        if (n == 0 || set->marks[i] != set->marks[n - 1])
            set->marks[n++] = set->marks[i];
    set->n = n;
}

static enum der_status make_room(struct der_ctx *ctx, int64_t n, struct picture_set *out)
{
    *out = (struct picture_set){.ctx = ctx};
    out->marks = mem_alloc(&ctx->mem, (size_t)n, sizeof *out->marks);
    return out->marks ? DER_OK : ctx_nomem(ctx);
}

void picture_set_fini(struct picture_set *set)
{
    if (set->ctx)
        mem_free(&set->ctx->mem, set->marks);
    *set = (struct picture_set){0};
}

enum der_status picture_set_of(struct der_ctx *ctx, const struct dataset *data,
                               struct picture_set *out)
{
    TRY(make_room(ctx, data ? data->part[DATA_TRAIN].n + data->part[DATA_TEST].n : 0, out));
    for (int split = 0; data && split < DATA_SPLITS; split++)
        for (int64_t i = 0; i < data->part[split].n; i++)
            out->marks[out->n++] = mark_of(&data->part[split].items[i].image);
    put_in_order(out);
    return DER_OK;
}

enum der_status picture_set_with(struct der_ctx *ctx, const struct picture_set *set,
                                 const struct dataset *data, enum data_split split,
                                 const struct data_view *view, struct picture_set *out)
{
    TRY(make_room(ctx, set->n + view->n, out));
    for (int64_t i = 0; i < set->n; i++)
        out->marks[out->n++] = set->marks[i];
    for (int64_t i = 0; i < view->n; i++)
        out->marks[out->n++] = mark_of(&data->part[split].items[view->items[i].sample].image);
    put_in_order(out);
    return DER_OK;
}

bool picture_set_has(const struct picture_set *set, const struct image_view *picture)
{
    uint64_t mark = mark_of(picture);
    return set->n > 0 &&
           bsearch(&mark, set->marks, (size_t)set->n, sizeof mark, compare_marks) != NULL;
}

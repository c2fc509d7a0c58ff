#include "data/view.h"

#include "core/rng.h"

#include <assert.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* An item with the random number that decides whether it is drawn. */
struct ticket {
    uint64_t key;
    int64_t at; /* position in the view */
    int32_t label;
};

enum der_status view_new(struct der_ctx *ctx, int64_t n, struct data_view **out)
{
    assert(n >= 0);
    *out = NULL;
    struct data_view *view = mem_zalloc(&ctx->mem, 1, sizeof *view);
    if (!view)
        return ctx_nomem(ctx);
    *view = (struct data_view){.ctx = ctx, .n = n};
    view->items = mem_zalloc(&ctx->mem, (size_t)n, sizeof *view->items);
    if (!view->items) {
        view_free(view);
        return ctx_nomem(ctx);
    }
    *out = view;
    return DER_OK;
}

void view_free(struct data_view *view)
{
    if (!view)
        return;
    mem_free(&view->ctx->mem, view->items);
    mem_free(&view->ctx->mem, view);
}

/* A counting sort by label keeps the order of the split within a class. */
enum der_status view_classes(struct der_ctx *ctx, const struct data_part *part,
                             const struct class_order *order, int first, int last,
                             struct data_view **out)
{
    assert(first >= 0 && first <= last && last <= order->n);
    *out = NULL;
    int64_t *next = mem_zalloc(&ctx->mem, (size_t)order->n + 1, sizeof *next);
    if (!next)
        return ctx_nomem(ctx);
    for (int64_t i = 0; i < part->n; i++) {
        assert(part->labels[i] >= 0 && part->labels[i] < order->n);
        next[order->label_of[part->labels[i]] + 1]++;
    }
    next[first] = 0;
    for (int label = first; label < last; label++)
        next[label + 1] += next[label];

    struct data_view *view;
    enum der_status status = view_new(ctx, next[last], &view);
    if (status == DER_OK) {
        for (int64_t i = 0; i < part->n; i++) {
            int32_t label = order->label_of[part->labels[i]];
            if (label >= first && label < last)
                view->items[next[label]++] = (struct view_item){.sample = i, .label = label};
        }
        *out = view;
    }
    mem_free(&ctx->mem, next);
    return status;
}

enum der_status view_range(struct der_ctx *ctx, const struct data_view *view, int first, int last,
                           struct data_view **out)
{
    int64_t n = 0;
    *out = NULL;
    for (int64_t i = 0; i < view->n; i++)
        n += view->items[i].label >= first && view->items[i].label < last;
    struct data_view *range;
    TRY(view_new(ctx, n, &range));
    n = 0;
    for (int64_t i = 0; i < view->n; i++)
        if (view->items[i].label >= first && view->items[i].label < last)
            range->items[n++] = view->items[i];
    *out = range;
    return DER_OK;
}

enum der_status view_limit(struct data_view *view, int n_labels, int64_t most)
{
    int64_t *counts = mem_zalloc(&view->ctx->mem, (size_t)n_labels, sizeof *counts);
    if (!counts)
        return ctx_nomem(view->ctx);
    int64_t kept = 0;
    for (int64_t i = 0; i < view->n; i++)
        if (counts[view->items[i].label]++ < most)
            view->items[kept++] = view->items[i];
    view->n = kept;
    mem_free(&view->ctx->mem, counts);
    return DER_OK;
}

enum der_status view_union(struct der_ctx *ctx, const struct data_view *a,
                           const struct data_view *b, struct data_view **out)
{
    struct data_view *view;
    *out = NULL;
    TRY(view_new(ctx, a->n + b->n, &view));
    memcpy(view->items, a->items, (size_t)a->n * sizeof *a->items);
    memcpy(view->items + a->n, b->items, (size_t)b->n * sizeof *b->items);
    *out = view;
    return DER_OK;
}

/* By label, then by random key; equal keys, should they ever occur, by position. */
static int compare_tickets(const void *a, const void *b)
{
    const struct ticket *x = a;
    const struct ticket *y = b;
    if (x->label != y->label)
        return x->label < y->label ? -1 : 1;
    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    return (x->at > y->at) - (x->at < y->at);
}

/* The items in random order within each label: the first m of a label are a draw of m samples
 * without replacement. Caller gives the block back. */
static struct ticket *draw_tickets(struct der_ctx *ctx, const struct data_view *view, uint64_t seed,
                                   enum rng_purpose purpose, uint32_t stream)
{
    struct ticket *tickets = mem_alloc(&ctx->mem, (size_t)view->n, sizeof *tickets);
    if (!tickets)
        return NULL;
    for (int64_t i = 0; i < view->n; i++) {
        uint64_t sample = (uint64_t)view->items[i].sample;
        struct rng_block block = rng_at(seed, purpose, stream, sample);
        tickets[i] = (struct ticket){.key = ((uint64_t)block.word[0] << 32) | block.word[1],
                                     .at = i,
                                     .label = view->items[i].label};
    }
    qsort(tickets, (size_t)view->n, sizeof *tickets, compare_tickets);
    return tickets;
}

/* Where the run of equal labels that starts at `begin` ends. */
static int64_t run_end(const struct ticket *tickets, int64_t n, int64_t begin)
{
    int64_t end = begin;
    while (end < n && tickets[end].label == tickets[begin].label)
        end++;
    return end;
}

static int compare_positions(const void *a, const void *b)
{
    const struct ticket *x = a;
    const struct ticket *y = b;
    return (x->at > y->at) - (x->at < y->at);
}

/* `count` items of a label whose tickets lie in their random order: the first ones, or all of them as often
 * as it takes, the earlier once more often. */
static struct view_item *take_items(const struct data_view *view, struct ticket *tickets, int64_t n,
                                    int64_t count, struct view_item *next)
{
    for (int64_t left = count; left > 0; left -= n) {
        int64_t some = left < n ? left : n;
        qsort(tickets, (size_t)some, sizeof *tickets, compare_positions);
        for (int64_t i = 0; i < some; i++)
            *next++ = view->items[tickets[i].at];
    }
    return next;
}

enum der_status view_balanced(struct der_ctx *ctx, const struct data_view *view, uint64_t seed,
                              uint32_t step, struct data_view **out)
{
    return view_balanced_to(ctx, view, 0, seed, step, out);
}

enum der_status view_balanced_to(struct der_ctx *ctx, const struct data_view *view, int64_t least,
                                 uint64_t seed, uint32_t step, struct data_view **out)
{
    *out = NULL;
    struct ticket *tickets = draw_tickets(ctx, view, seed, RNG_BALANCED, step);
    if (!tickets)
        return ctx_nomem(ctx);
    int64_t rarest = view->n;
    int64_t n_labels = 0;
    for (int64_t begin = 0; begin < view->n; n_labels++) {
        int64_t end = run_end(tickets, view->n, begin);
        if (end - begin < rarest)
            rarest = end - begin;
        begin = end;
    }

    int64_t count = rarest < least ? least : rarest;
    struct data_view *balanced;
    enum der_status status = view_new(ctx, n_labels * count, &balanced);
    if (status == DER_OK) {
        struct view_item *next = balanced->items;
        for (int64_t begin = 0; begin < view->n;) {
            int64_t end = run_end(tickets, view->n, begin);
            next = take_items(view, tickets + begin, end - begin, count, next);
            begin = end;
        }
        *out = balanced;
    }
    mem_free(&ctx->mem, tickets);
    return status;
}

/* What is taken out of a label. */
struct holdout {
    double share;
    int64_t
        fewest; /* labels with fewer samples keep them all; 0: none does, a single one is an error */
    int64_t each; /* instead of a share; 0: not so */
};

static int64_t count_held(const struct holdout *rule, int64_t n)
{
    if (rule->each > 0)
        return rule->each < n - 1 ? rule->each : n - 1;
    const int64_t wanted = (int64_t)floor(rule->share * (double)n + 0.5);
    return n < rule->fewest ? 0 : wanted < 1 ? 1 : wanted > n - 1 ? n - 1 : wanted;
}

/* Marks what is held out; the message names a label that cannot be split. */
static enum der_status mark_held(struct der_ctx *ctx, const struct data_view *view,
                                 const struct ticket *tickets, const struct holdout *rule,
                                 bool *is_held)
{
    for (int64_t begin = 0; begin < view->n;) {
        int64_t end = run_end(tickets, view->n, begin);
        int64_t n = end - begin;
        if (n < 2 && rule->fewest == 0 && rule->each == 0)
            return ctx_fail(ctx, DER_ARG,
                            "validation share %g: class %d of the order has one image, a split "
                            "needs two",
                            rule->share, (int)tickets[begin].label + 1);
        int64_t wanted = count_held(rule, n);
        for (int64_t i = 0; i < wanted; i++)
            is_held[tickets[begin + i].at] = true;
        begin = end;
    }
    return DER_OK;
}

enum der_status view_split(struct der_ctx *ctx, const struct data_view *view, const bool *marks,
                           struct data_view **rest, struct data_view **marked)
{
    int64_t n_marked = 0;
    for (int64_t i = 0; i < view->n; i++)
        n_marked += marks[i];
    *marked = NULL;
    TRY(view_new(ctx, view->n - n_marked, rest));
    enum der_status status = view_new(ctx, n_marked, marked);
    if (status != DER_OK) {
        view_free(*rest);
        *rest = NULL;
        return status;
    }
    struct view_item *next[2] = {(*rest)->items, (*marked)->items};
    for (int64_t i = 0; i < view->n; i++)
        *next[marks[i]]++ = view->items[i];
    return DER_OK;
}

static enum der_status take_out(struct der_ctx *ctx, const struct data_view *view,
                                const struct holdout *rule, uint64_t seed, struct data_view **kept,
                                struct data_view **held)
{
    *kept = NULL;
    *held = NULL;
    struct ticket *tickets = draw_tickets(ctx, view, seed, RNG_VALIDATION, 0);
    bool *is_held = mem_zalloc(&ctx->mem, (size_t)view->n, sizeof *is_held);
    enum der_status status =
        tickets && is_held ? mark_held(ctx, view, tickets, rule, is_held) : ctx_nomem(ctx);
    if (status == DER_OK)
        status = view_split(ctx, view, is_held, kept, held);
    mem_free(&ctx->mem, is_held);
    mem_free(&ctx->mem, tickets);
    return status;
}

static enum der_status hold_out(struct der_ctx *ctx, const struct data_view *view,
                                const struct holdout *rule, uint64_t seed, struct data_view **kept,
                                struct data_view **held)
{
    *kept = NULL;
    *held = NULL;
    if (!(rule->share > 0 && rule->share < 1))
        return ctx_fail(ctx, DER_ARG, "validation share is %g, want more than 0 and less than 1",
                        rule->share);
    return take_out(ctx, view, rule, seed, kept, held);
}

enum der_status view_holdout(struct der_ctx *ctx, const struct data_view *view, double share,
                             uint64_t seed, struct data_view **kept, struct data_view **held)
{
    return hold_out(ctx, view, &(struct holdout){.share = share}, seed, kept, held);
}

enum der_status view_holdout_from(struct der_ctx *ctx, const struct data_view *view, double share,
                                  int64_t fewest, uint64_t seed, struct data_view **kept,
                                  struct data_view **held)
{
    assert(fewest >= 2);
    const struct holdout rule = {.share = share, .fewest = fewest};
    return hold_out(ctx, view, &rule, seed, kept, held);
}

enum der_status view_set_aside(struct der_ctx *ctx, const struct data_view *view, int64_t each,
                               uint64_t seed, struct data_view **kept, struct data_view **aside)
{
    assert(each > 0);
    return take_out(ctx, view, &(struct holdout){.each = each}, seed, kept, aside);
}

void view_counts(const struct data_view *view, int64_t *counts, int n_labels)
{
    memset(counts, 0, (size_t)n_labels * sizeof *counts);
    for (int64_t i = 0; i < view->n; i++)
        if (view->items[i].label >= 0 && view->items[i].label < n_labels)
            counts[view->items[i].label]++;
}

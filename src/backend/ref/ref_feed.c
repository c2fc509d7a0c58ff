/*
 * FEED and TALLY: the loops that host back ends share are the reference; data/augment.c, which knows
 * nothing of them, is what they are tested against.
 */
#include "backend/ref/ref.h"

#include "graph/feed.h"

static int64_t count_of(const struct ref_tensor *tensor)
{
    return tensor ? shape_count(tensor->shape) : 0;
}

void ref_feed(const struct ref_call *call)
{
    const struct ref_tensor *now = ref_out(call, FEED_NOW);
    struct feed_operands operands = {
        .pixels = (const uint8_t *)call->in[FEED_PIXELS].ints,
        .levels = call->in[FEED_TABLE_LEVELS].data,
        .order = call->in[FEED_ORDER].ints,
        .n_items = count_of(&call->in[FEED_ORDER]) / FEED_ITEM_WORDS,
        .table = ref_in_data(call, FEED_TABLE),
        .width = count_of(now),
        .clock = call->in[FEED_CLOCK].ints,
        .image = call->out[FEED_IMAGE].data,
        .labels = call->out[FEED_LABELS].ints,
        .now = ref_out_data(call, FEED_NOW),
    };
    if (now)
        operands.n_lines = count_of(ref_in(call, FEED_TABLE)) / operands.width;
    feed_run(&call->attr->feed, &operands);
}

static void *words_of(const struct ref_tensor *tensor)
{
    return tensor->data ? (void *)tensor->data : (void *)tensor->ints;
}

void ref_tally(const struct ref_call *call)
{
    int32_t *clock = call->in[TALLY_CLOCK].ints;
    for (int k = 0; TALLY_FIRST + 2 * k < call->n_in; k++) {
        const struct ref_tensor *src = &call->in[TALLY_FIRST + 2 * k];
        const struct ref_tensor *table = &call->in[TALLY_FIRST + 2 * k + 1];
        const struct tally_pair pair = {.src = words_of(src),
                                        .table = words_of(table),
                                        .src_words = count_of(src),
                                        .table_words = count_of(table)};
        tally_keep(&call->attr->tally, k, &pair, clock);
    }
    tally_advance(&call->attr->tally, clock);
}

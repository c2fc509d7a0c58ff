/*
 * Builders of FEED and TALLY, and the two in host memory.
 */
#include "graph/feed.h"

#include <assert.h>
#include <string.h>

/* ---- builders ----------------------------------------------------------------------------------- */

static enum der_status refuse(struct graph *g, enum op op, int value, const char *why)
{
    char text[SHAPE_TEXT_MAX];
    return ctx_fail(g->ctx, DER_SHAPE, "%s of '%s' %s: %s", op_name(op), g->values[value].name,
                    shape_text(g->values[value].shape, text), why);
}

static bool is_vector(const struct graph *g, int value, enum dtype dtype)
{
    return g->values[value].shape.rank == 1 && g->values[value].dtype == dtype;
}

static int64_t count_of(const struct graph *g, int value)
{
    return value == NO_VALUE ? 0 : shape_count(g->values[value].shape);
}

static bool is_clock(const struct graph *g, int value)
{
    return is_vector(g, value, DTYPE_I32) && count_of(g, value) == CLOCK_WORDS;
}

static bool crop_fits(const struct feed_attr *a)
{
    return a->batch > 0 && a->channels > 0 && a->height > 0 && a->width > 0 && a->out_height > 0 &&
           a->out_width > 0 && a->pad >= 0 && a->height + 2 * a->pad >= a->out_height &&
           a->width + 2 * a->pad >= a->out_width && a->low >= 0.0 && a->high >= a->low;
}

static enum der_status check_feed(struct graph *g, const struct feed_inputs *in,
                                  const struct feed_attr *attr)
{
    if (!is_vector(g, in->pixels, DTYPE_I32) || !crop_fits(attr) ||
        count_of(g, in->pixels) * 4 < (int64_t)attr->channels * attr->height * attr->width)
        return refuse(g, OP_FEED, in->pixels,
                      "bytes of images are wanted, and a crop that fits into them");
    if (!is_vector(g, in->levels, DTYPE_F32) ||
        count_of(g, in->levels) != (int64_t)attr->channels * FEED_LEVELS)
        return refuse(g, OP_FEED, in->levels, "a number for every byte and channel is wanted");
    if (!is_vector(g, in->order, DTYPE_I32) || count_of(g, in->order) % FEED_ITEM_WORDS != 0)
        return refuse(g, OP_FEED, in->order, "pairs of sample and label are wanted");
    if (!is_clock(g, in->clock))
        return refuse(g, OP_FEED, in->clock, "a clock is wanted");
    if (in->table != NO_VALUE && (!is_vector(g, in->table, DTYPE_F32) || in->table_width < 1 ||
                                  count_of(g, in->table) % in->table_width != 0))
        return refuse(g, OP_FEED, in->table, "lines of equal width are wanted");
    return DER_OK;
}

enum der_status graph_feed(struct graph *g, const struct feed_inputs *in,
                           const struct feed_attr *attr, struct feed_outputs *out)
{
    *out = (struct feed_outputs){NO_VALUE, NO_VALUE, NO_VALUE};
    TRY(check_feed(g, in, attr));
    int64_t pixels = (int64_t)attr->channels * attr->out_height * attr->out_width;
    TRY(graph_add_value(g, "feed.image", DTYPE_F32, shape_1d(attr->batch * pixels), VALUE_EXTERNAL,
                        &out->image));
    TRY(graph_add_value(g, "feed.labels", DTYPE_I32, shape_1d(attr->batch), VALUE_EXTERNAL,
                        &out->labels));
    if (in->table != NO_VALUE)
        TRY(graph_add_value(g, "feed.now", DTYPE_F32, shape_1d(in->table_width), VALUE_EXTERNAL,
                            &out->now));
    const int ins[FEED_N_IN] = {[FEED_PIXELS] = in->pixels,
                                [FEED_TABLE_LEVELS] = in->levels,
                                [FEED_ORDER] = in->order,
                                [FEED_TABLE] = in->table,
                                [FEED_CLOCK] = in->clock};
    const int outs[FEED_N_OUT] = {
        [FEED_IMAGE] = out->image, [FEED_LABELS] = out->labels, [FEED_NOW] = out->now};
    union op_attr op_attr = {.feed = *attr};
    return graph_add_node(g, OP_FEED, ins, FEED_N_IN, outs, FEED_N_OUT, &op_attr);
}

enum der_status graph_tally(struct graph *g, int clock, const struct tally_item *items, int n,
                            int rows)
{
    int in[TALLY_FIRST + 2 * TALLY_MAX];
    union op_attr attr = {.tally = {.rows = rows}};
    assert(n >= 0 && n <= TALLY_MAX && rows > 0);
    if (!is_clock(g, clock))
        return refuse(g, OP_TALLY, clock, "a clock is wanted");
    in[TALLY_CLOCK] = clock;
    for (int k = 0; k < n; k++) {
        const struct tally_item *item = &items[k];
        enum dtype dtype = g->values[item->src].dtype;
        if (!is_vector(g, item->src, dtype) || !is_vector(g, item->table, dtype) ||
            (item->by_row && count_of(g, item->src) % rows != 0))
            return refuse(g, OP_TALLY, item->src,
                          "a vector of equal lines and a table of its type are wanted");
        in[TALLY_FIRST + 2 * k] = item->src;
        in[TALLY_FIRST + 2 * k + 1] = item->table;
        attr.tally.by_row |= (unsigned)item->by_row << k;
    }
    return graph_add_node(g, OP_TALLY, in, TALLY_FIRST + 2 * n, NULL, 0, &attr);
}

/* ---- in host memory --------------------------------------------------------------------------------- */

static void feed_row(const struct feed_attr *attr, const struct feed_operands *o, int row)
{
    int64_t at = (int64_t)o->clock[CLOCK_ROW] + row;
    at = at < o->n_items ? at : o->n_items - 1;
    const int32_t *item = o->order + at * FEED_ITEM_WORDS;
    const struct feed_draw draw =
        feed_draw(attr, feed_seed(o->clock), (uint32_t)o->clock[CLOCK_EPOCH], item[0]);
    const int64_t held = (int64_t)attr->channels * attr->height * attr->width;
    const uint8_t *image = o->pixels + held * item[0];
    float *dst = o->image + (int64_t)row * attr->channels * attr->out_height * attr->out_width;
    for (int c = 0; c < attr->channels; c++)
        for (int i = 0; i < attr->out_height; i++)
            for (int j = 0; j < attr->out_width; j++)
                *dst++ = feed_pixel(attr, &draw, image, o->levels, c, i, j);
    o->labels[row] = item[1];
}

void feed_run(const struct feed_attr *attr, const struct feed_operands *operands)
{
    for (int row = 0; row < attr->batch; row++)
        feed_row(attr, operands, row);
    if (!operands->now)
        return;
    int64_t line = operands->clock[CLOCK_ITERATION];
    line = line < operands->n_lines ? line : operands->n_lines - 1;
    memcpy(operands->now, operands->table + line * operands->width,
           (size_t)operands->width * sizeof *operands->now);
}

void tally_keep(const struct tally_attr *attr, int k, const struct tally_pair *pair,
                const int32_t *clock)
{
    int64_t at = tally_place(attr->by_row >> k & 1U, attr->rows, pair->src_words, clock);
    int64_t left = pair->table_words - at;
    int64_t n = pair->src_words < left ? pair->src_words : left;
    if (n > 0)
        memcpy((int32_t *)pair->table + at, pair->src, (size_t)n * sizeof(int32_t));
}

void tally_advance(const struct tally_attr *attr, int32_t *clock)
{
    clock[CLOCK_ROW] += attr->rows;
    clock[CLOCK_ITERATION]++;
}

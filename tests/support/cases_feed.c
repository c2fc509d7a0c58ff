/*
 * Cases of FEED and TALLY: odd sizes, crops that reach into the padding, rows past the end of the order,
 * lines past the end of a table.
 */
#include "support/cases.h"

#include "core/rng.h"

enum { MAX_WORDS = 4096, MAX_ITEMS = 64, N_HELD = 11 };

struct feed_row {
    struct feed_attr attr;
    int n_items, row, iteration; /* of the order; where the clock stands */
    int n_lines, width;          /* of the table; 0: none */
};
static const struct feed_row feed_rows[] = {
    /* as they are */
    {{1, 1, 1, 1, 1, 1, 0, false, 1.0, 1.0}, 1, 0, 0, 0, 0},
    {{5, 3, 7, 9, 7, 9, 0, false, 1.0, 1.0}, 8, 0, 0, 0, 0},
    /* all at once */
    {{5, 3, 7, 9, 7, 9, 4, true, 0.75, 1.25}, 13, 3, 2, 4, 8},
    {{16, 3, 8, 8, 8, 8, 4, true, 1.0 - 63.0 / 255.0, 1.0 + 63.0 / 255.0}, 40, 16, 1, 3, 8},
    /* a crop without padding, padding wider than the image, much too bright */
    {{4, 1, 9, 5, 6, 5, 0, true, 1.0, 1.0}, 6, 0, 0, 1, 1},
    {{3, 2, 2, 3, 5, 5, 6, false, 0.0, 3.0}, 5, 0, 0, 2, 5},
    /* past the end */
    {{6, 1, 4, 4, 4, 4, 1, false, 1.0, 1.0}, 8, 5, 9, 3, 2},
};

static uint32_t draw(uint32_t stream, int i)
{
    return rng_at(77, RNG_TEST, stream, (uint64_t)i).word[0];
}

static struct operand ints(const int32_t *given, int64_t n)
{
    return (struct operand){.fill = FILL_GIVEN_I32, .shape = shape_1d(n), .given = given};
}

static void emit_feed(const struct feed_row *row, uint32_t stream, struct case_sink *sink)
{
    int32_t pixels[MAX_WORDS];
    int32_t order[MAX_ITEMS * FEED_ITEM_WORDS];
    const struct feed_attr *a = &row->attr;
    const int n_words = (N_HELD * a->channels * a->height * a->width + 3) / 4;
    const int32_t clock[CLOCK_WORDS] = {row->row, row->iteration, 3, -5, 0x1234567};
    for (int i = 0; i < n_words; i++)
        pixels[i] = (int32_t)draw(stream, i);
    for (int i = 0; i < row->n_items; i++) {
        order[i * FEED_ITEM_WORDS] = (int32_t)(draw(stream, i) % N_HELD);
        order[i * FEED_ITEM_WORDS + 1] = i * 3;
    }
    struct op_case c = {.op = OP_FEED, .attr.feed = *a, .n_in = FEED_N_IN, .n_out = FEED_N_OUT};
    c.in[FEED_PIXELS] = ints(pixels, n_words);
    c.in[FEED_TABLE_LEVELS] = operand_normal(shape_1d((int64_t)a->channels * FEED_LEVELS));
    c.in[FEED_ORDER] = ints(order, (int64_t)row->n_items * FEED_ITEM_WORDS);
    c.in[FEED_TABLE] =
        operand_if(row->width > 0, operand_normal(shape_1d((int64_t)row->n_lines * row->width)));
    c.in[FEED_CLOCK] = ints(clock, CLOCK_WORDS);
    c.out[FEED_IMAGE] =
        operand_result(shape_1d((int64_t)a->batch * a->channels * a->out_height * a->out_width));
    c.out[FEED_LABELS] = operand_result_i32(shape_1d(a->batch));
    c.out[FEED_NOW] = operand_if(row->width > 0, operand_result(shape_1d(row->width)));
    case_emit(sink, c);
}

/* Losses, ranks and features of an iteration; the last ones may not find room. */
static void emit_tally(int rows, int columns, int n_iterations, int iteration,
                       struct case_sink *sink)
{
    const int32_t clock[CLOCK_WORDS] = {iteration * rows, iteration, 1, 2, 3, 4, 5, 6};
    struct op_case c = {.op = OP_TALLY, .attr.tally = {.rows = rows, .by_row = 6U}, .n_in = 7};
    c.in[0] = ints(clock, CLOCK_WORDS);
    c.in[1] = operand_normal(shape_1d(3));
    c.in[2] = operand_normal(shape_1d((int64_t)n_iterations * 3));
    c.in[3] = operand_labels(rows, 0, 100);
    c.in[4] = operand_labels((int64_t)n_iterations * rows, -100, 0);
    c.in[5] = operand_normal(shape_1d((int64_t)rows * columns));
    c.in[6] = operand_normal(shape_1d((int64_t)n_iterations * rows * columns - 1));
    case_emit(sink, c);
}

void cases_feed(enum op op, struct case_sink *sink)
{
    if (op == OP_TALLY) {
        emit_tally(1, 1, 2, 0, sink);
        emit_tally(7, 5, 4, 2, sink);
        emit_tally(7, 5, 4, 3, sink);
        emit_tally(33, 700, 3, 1, sink); /* more than a block copies */
        return;
    }
    for (uint32_t i = 0; i < sizeof feed_rows / sizeof feed_rows[0]; i++)
        emit_feed(&feed_rows[i], i, sink);
}

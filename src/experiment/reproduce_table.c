#include "experiment/reproduce_table.h"

#include "core/decimal.h"
#include "core/text.h"
#include "experiment/run_files.h"
#include "io/durable.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { CELL_MAX = 64, COLUMNS_MAX = 8 };

/* ---- rows ---------------------------------------------------------------------------------------- */

/* Mean and deviation of one number of the outcomes (at `offset`) over the orders of a row. */
static struct summary over_orders(const struct reproduction *r, int row, size_t offset,
                                  double factor)
{
    double values[REPRODUCE_ORDERS];
    int n = 0;
    for (int i = 0; i < r->n_items; i++) {
        const struct run_outcome *outcome = &r->items[i].outcome;
        if (r->items[i].row != &r->rows[row] || outcome->state != RUN_DONE)
            continue;
        double value = *(const double *)(const void *)((const char *)outcome + offset);
        if (!isnan(value))
            values[n++] = value * factor;
    }
    return summary_of(values, n);
}

void reproduce_row(const struct reproduction *r, int index, struct reproduce_row *out)
{
#define OVER_ORDERS(field, factor)                                                                 \
    over_orders(r, index, offsetof(struct run_outcome, field), factor)
    const struct paper_run *run = &r->rows[index];
    const struct paper_value *value = paper_run_value(run);
    const struct paper_transfer *transfer = paper_run_transfer(run);
    const struct paper_value *bound = paper_run_bound(run);
    *out = (struct reproduce_row){.run = run,
                                  .params = OVER_ORDERS(avg_params, 1e-6),
                                  .avg_top1 = OVER_ORDERS(avg_top1, 1.0),
                                  .last_top1 = OVER_ORDERS(last_top1, 1.0),
                                  .avg_top5 = OVER_ORDERS(avg_top5, 1.0),
                                  .last_top5 = OVER_ORDERS(last_top5, 1.0),
                                  .bwt = OVER_ORDERS(bwt, 1.0),
                                  .fwt = OVER_ORDERS(fwt, 1.0),
                                  .bound = OVER_ORDERS(bound, 1.0),
                                  .paper = {.parameters = NAN,
                                            .average = NAN,
                                            .std = NAN,
                                            .last = NAN,
                                            .average5 = NAN,
                                            .last5 = NAN},
                                  .transfer = {.backward = NAN, .forward = NAN},
                                  .paper_bound = bound ? bound->average : NAN,
                                  .paper_bound_std = bound ? bound->std : NAN};
#undef OVER_ORDERS
    if (value)
        out->paper = *value;
    if (transfer)
        out->transfer = *transfer;
    out->n_runs = (int)out->avg_top1.n;
    out->difference = out->avg_top1.mean - out->paper.average;
    out->bwt_difference = out->bwt.mean - out->transfer.backward;
    out->fwt_difference = out->fwt.mean - out->transfer.forward;
    out->bound_difference = out->bound.mean - out->paper_bound;
}

/* ---- the title ----------------------------------------------------------------------------------- */

/* A seed is chance, not protocol. */
static bool is_change(const char *assignment)
{
    return strncmp(assignment, "seed=", 5) != 0;
}

/* The overrides with a space between two; nothing, not even `before`, when there are none. */
static void put_changes(const struct reproduction *r, struct text *text, const char *before)
{
    for (int i = 0; i < r->options.n_assignments; i++)
        if (is_change(r->options.assignments[i])) {
            text_put(text, "%s", before);
            text_put_escaped(text, r->options.assignments[i]);
            before = " ";
        }
}

static void put_title(const struct reproduction *r, struct text *text)
{
    text_put(text, "%s: %s", r->table->id, r->table->title);
    put_changes(r, text, "; not the paper's protocol: ");
}

/* ---- Markdown ------------------------------------------------------------------------------------ */

struct line {
    char cell[COLUMNS_MAX][CELL_MAX];
    int n;
};

static void add_cell(struct line *line, double mean, double std)
{
    summary_format(mean, std, line->cell[line->n++], CELL_MAX);
}

static void add_difference(struct line *line, double difference)
{
    char *cell = line->cell[line->n++];
    if (isnan(difference))
        (void)snprintf(cell, CELL_MAX, "-");
    else
        (void)snprintf(cell, CELL_MAX, "%+.2f", difference);
}

static void begin_line(struct line *line, const char *label, int n_runs)
{
    *line = (struct line){.n = 2};
    (void)snprintf(line->cell[0], CELL_MAX, "%s", label);
    if (n_runs > 0)
        (void)snprintf(line->cell[1], CELL_MAX, "%d", n_runs);
    else
        (void)snprintf(line->cell[1], CELL_MAX, "-");
}

static void accuracy_line(const struct reproduce_row *row, struct line *line)
{
    begin_line(line, row->run->label, row->n_runs);
    add_cell(line, row->params.mean, NAN);
    add_cell(line, row->avg_top1.mean, row->avg_top1.std);
    add_cell(line, row->last_top1.mean, row->last_top1.std);
    add_cell(line, row->paper.parameters, NAN);
    add_cell(line, row->paper.average, row->paper.std);
    add_difference(line, row->difference);
}

static void transfer_line(const struct reproduce_row *row, struct line *line)
{
    begin_line(line, row->run->label, row->n_runs);
    add_cell(line, row->bwt.mean, row->bwt.std);
    add_cell(line, row->fwt.mean, row->fwt.std);
    add_cell(line, row->transfer.backward, NAN);
    add_cell(line, row->transfer.forward, NAN);
    add_difference(line, row->bwt_difference);
    add_difference(line, row->fwt_difference);
}

static void bound_line(const struct reproduce_row *row, struct line *line)
{
    begin_line(line, row->run->label, row->n_runs);
    add_cell(line, row->avg_top1.mean, row->avg_top1.std);
    add_cell(line, row->bound.mean, row->bound.std);
    add_cell(line, row->paper.average, row->paper.std);
    add_cell(line, row->paper_bound, row->paper_bound_std);
    add_difference(line, row->difference);
    add_difference(line, row->bound_difference);
}

static const struct line ACCURACY_HEAD = {{"row", "orders", "#Paras (M)", "Avg (%)", "Last (%)",
                                           "paper #Paras", "paper Avg", "difference"},
                                          8};
static const struct line TRANSFER_HEAD = {{"row", "orders", "BWT (%)", "FWT (%)", "paper BWT",
                                           "paper FWT", "BWT difference", "FWT difference"},
                                          8};

static const struct line BOUND_HEAD = {{"row", "orders", "Avg (%)", "bound (%)", "paper Avg",
                                        "paper bound", "difference", "bound difference"},
                                       8};

static const struct {
    const struct line *head;
    void (*fill)(const struct reproduce_row *row, struct line *line);
} KINDS[] = {[PAPER_ACCURACY] = {&ACCURACY_HEAD, accuracy_line},
             [PAPER_TRANSFER] = {&TRANSFER_HEAD, transfer_line},
             [PAPER_BOUND] = {&BOUND_HEAD, bound_line}};

static void make_line(const struct reproduction *r, int index, struct line *line)
{
    struct reproduce_row row;
    reproduce_row(r, index, &row);
    KINDS[r->table->kind].fill(&row, line);
}

static void widen(const struct line *line, int width[COLUMNS_MAX])
{
    for (int i = 0; i < line->n; i++) {
        int length = (int)strlen(line->cell[i]);
        if (length > width[i])
            width[i] = length;
    }
}

/* The first column is words and stands left, the others right. */
static void put_line(struct text *text, const struct line *line, const int width[COLUMNS_MAX])
{
    for (int i = 0; i < line->n; i++)
        text_put(text, "%s%*s", i == 0 ? "| " : " | ", i == 0 ? -width[i] : width[i],
                 line->cell[i]);
    text_put(text, " |\n");
}

static void put_rule(struct text *text, int n, const int width[COLUMNS_MAX])
{
    for (int i = 0; i < n; i++) {
        text_put(text, "|");
        for (int k = 0; k < width[i] + 2 - (i > 0); k++)
            text_put(text, "-");
        text_put(text, "%s", i > 0 ? ":" : "");
    }
    text_put(text, "|\n");
}

enum der_status reproduce_table_text(const struct reproduction *r, char **out)
{
    const struct line *head = KINDS[r->table->kind].head;
    struct text text = {.mem = &r->ctx->mem};
    struct line line;
    int width[COLUMNS_MAX] = {0};
    widen(head, width);
    for (int i = 0; i < r->n_rows; i++) {
        make_line(r, i, &line);
        widen(&line, width);
    }
    put_title(r, &text);
    text_put(&text, "\n\n");
    put_line(&text, head, width);
    put_rule(&text, head->n, width);
    for (int i = 0; i < r->n_rows; i++) {
        make_line(r, i, &line);
        put_line(&text, &line, width);
    }
    return text_finish(r->ctx, &text, out);
}

/* ---- CSV ----------------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    size_t offset; /* of a double in struct reproduce_row */
} CSV_COLUMNS[] = {
#define COLUMN(name, field)                                                                        \
    {                                                                                              \
        name, offsetof(struct reproduce_row, field)                                                \
    }
    COLUMN("params_m", params.mean),
    COLUMN("params_m_std", params.std),
    COLUMN("avg_top1", avg_top1.mean),
    COLUMN("avg_top1_std", avg_top1.std),
    COLUMN("last_top1", last_top1.mean),
    COLUMN("last_top1_std", last_top1.std),
    COLUMN("avg_top5", avg_top5.mean),
    COLUMN("avg_top5_std", avg_top5.std),
    COLUMN("last_top5", last_top5.mean),
    COLUMN("last_top5_std", last_top5.std),
    COLUMN("bwt", bwt.mean),
    COLUMN("bwt_std", bwt.std),
    COLUMN("fwt", fwt.mean),
    COLUMN("fwt_std", fwt.std),
    COLUMN("classifier_bound", bound.mean),
    COLUMN("classifier_bound_std", bound.std),
    COLUMN("paper_params_m", paper.parameters),
    COLUMN("paper_avg_top1", paper.average),
    COLUMN("paper_avg_top1_std", paper.std),
    COLUMN("paper_last_top1", paper.last),
    COLUMN("paper_avg_top5", paper.average5),
    COLUMN("paper_last_top5", paper.last5),
    COLUMN("paper_bwt", transfer.backward),
    COLUMN("paper_fwt", transfer.forward),
    COLUMN("paper_classifier_bound", paper_bound),
    COLUMN("difference", difference),
#undef COLUMN
};

enum { N_CSV_COLUMNS = sizeof CSV_COLUMNS / sizeof *CSV_COLUMNS };

static void put_csv_row(const struct reproduction *r, int index, struct text *text)
{
    struct reproduce_row row;
    reproduce_row(r, index, &row);
    text_put_quoted(text, row.run->label);
    text_put(text, ",%s,%d", row.run->preset, row.n_runs);
    for (int i = 0; i < N_CSV_COLUMNS; i++) {
        double value = *(const double *)(const void *)((const char *)&row + CSV_COLUMNS[i].offset);
        char number[DECIMAL_TEXT_MAX] = "";
        if (!isnan(value))
            decimal_write(value, 10, number);
        text_put(text, ",%s", number);
    }
    text_put(text, ",\"");
    put_changes(r, text, "");
    text_put(text, "\"\n");
}

enum der_status reproduce_table_csv(const struct reproduction *r, char **out)
{
    struct text text = {.mem = &r->ctx->mem};
    text_put(&text, "row,preset,runs");
    for (int i = 0; i < N_CSV_COLUMNS; i++)
        text_put(&text, ",%s", CSV_COLUMNS[i].name);
    text_put(&text, ",changed\n");
    for (int i = 0; i < r->n_rows; i++)
        put_csv_row(r, i, &text);
    return text_finish(r->ctx, &text, out);
}

/* ---- files --------------------------------------------------------------------------------------- */

static enum der_status write_as(const struct reproduction *r, const char *ending,
                                enum der_status (*make)(const struct reproduction *, char **))
{
    struct mem *mem = &r->ctx->mem;
    char name[CELL_MAX];
    char *text;
    TRY(make(r, &text));
    (void)snprintf(name, sizeof name, "%s.%s", r->table->id, ending);
    char *path = run_files_join(r->ctx, r->options.out, name);
    enum der_status status =
        path ? durable_write_file(r->ctx, NULL, path, text, strlen(text)) : ctx_nomem(r->ctx);
    mem_free(mem, path);
    mem_free(mem, text);
    return status;
}

enum der_status reproduce_table_write(const struct reproduction *r)
{
    TRY(write_as(r, "md", reproduce_table_text));
    return write_as(r, "csv", reproduce_table_csv);
}

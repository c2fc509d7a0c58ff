/*
 * der_reproduction_*: the public face of a table that is run again.
 */
#include <der/reproduce.h>

#include "api/api_train.h"
#include "experiment/reproduce_table.h"

struct der_reproduction {
    struct der_ctx *ctx;
    struct der_reproduce_options options;
    struct reproduction *inner;
    char *text; /* the latest answer of der_reproduction_text */
};

int der_paper_table_count(void)
{
    int n;
    (void)paper_tables(&n);
    return n;
}

enum der_status der_paper_table_describe(struct der_ctx *ctx, int index,
                                         struct der_paper_table *out)
{
    int n;
    const struct paper_table *tables = paper_tables(&n);
    *out = (struct der_paper_table){0};
    if (index < 0 || index >= n)
        return ctx_fail(ctx, DER_ARG, "there is no table %d; there are %d", index, n);
    out->name = tables[index].id;
    out->title = tables[index].title;
    (void)paper_runs(out->name, &out->n_rows);
    return DER_OK;
}

enum der_status der_paper_row_describe(struct der_ctx *ctx, int table, int index,
                                       struct der_paper_row *out)
{
    struct der_paper_table described;
    *out = (struct der_paper_row){0};
    TRY(der_paper_table_describe(ctx, table, &described));
    if (index < 0 || index >= described.n_rows)
        return ctx_fail(ctx, DER_ARG, "%s has no row %d; it has %d", described.name, index,
                        described.n_rows);
    int n;
    const struct paper_run *row = &paper_runs(described.name, &n)[index];
    out->label = row->label;
    out->name = row->value_row;
    return DER_OK;
}

static struct der_reproduction_item public_item(const struct reproduce_item *item)
{
    static const enum der_run_state states[] = {
        [RUN_ABSENT] = DER_RUN_ABSENT, [RUN_PARTIAL] = DER_RUN_PARTIAL, [RUN_DONE] = DER_RUN_DONE};
    return (struct der_reproduction_item){.row = item->row->label,
                                          .order = item->order,
                                          .folder = item->path,
                                          .state = states[item->outcome.state]};
}

static void pass_begin(void *user, const struct reproduce_item *item, int number, int total)
{
    const struct der_reproduction *r = user;
    struct der_reproduction_item shown = public_item(item);
    if (r->options.begin)
        r->options.begin(r->options.train.user, &shown, number, total);
}

static enum der_status fill(struct der_reproduction *r)
{
    const struct der_reproduce_options *o = &r->options;
    r->options.train.max_steps = 0;
    struct reproduce_options options = {.table = o->table,
                                        .rows = o->rows,
                                        .n_rows = o->n_rows,
                                        .orders = o->orders,
                                        .n_orders = o->n_orders,
                                        .assignments = o->assignments,
                                        .n_assignments = o->n_assignments,
                                        .out = o->out,
                                        .table_only = o->table_only,
                                        .hooks = {.begin = pass_begin, .user = r}};
    TRY(api_experiment(r->ctx, &r->options.train, &options.run));
    return reproduction_new(r->ctx, &options, &r->inner);
}

enum der_status der_reproduction_new(struct der_ctx *ctx,
                                     const struct der_reproduce_options *options,
                                     struct der_reproduction **out)
{
    *out = NULL;
    struct der_reproduction *r = mem_zalloc(&ctx->mem, 1, sizeof *r);
    if (!r)
        return ctx_nomem(ctx);
    r->ctx = ctx;
    r->options = *options;
    enum der_status status = fill(r);
    if (status != DER_OK) {
        der_reproduction_free(r);
        return status;
    }
    *out = r;
    return DER_OK;
}

void der_reproduction_free(struct der_reproduction *r)
{
    if (!r)
        return;
    struct mem *mem = &r->ctx->mem;
    reproduction_free(r->inner);
    mem_free(mem, r->text);
    mem_free(mem, r);
}

enum der_status der_reproduction_run(struct der_reproduction *r)
{
    struct experiment_options *run = &r->inner->options.run;
    struct tensorboard *board;
    TRY(api_listen(r->ctx, &r->options.train, true, run, &board));
    enum der_status status = reproduction_run(r->inner);
    run->listener = NULL;
    tensorboard_close(board);
    return status;
}

int der_reproduction_item_count(const struct der_reproduction *r)
{
    int n = 0;
    for (int i = 0; i < r->inner->n_items; i++)
        n += r->inner->items[i].is_wanted;
    return n;
}

enum der_status der_reproduction_item(const struct der_reproduction *r, int index,
                                      struct der_reproduction_item *out)
{
    *out = (struct der_reproduction_item){0};
    int left = index;
    for (int i = 0; i < r->inner->n_items && index >= 0; i++) {
        if (!r->inner->items[i].is_wanted || left-- > 0)
            continue;
        *out = public_item(&r->inner->items[i]);
        return DER_OK;
    }
    return ctx_fail(r->ctx, DER_ARG, "there is no run %d; there are %d", index,
                    der_reproduction_item_count(r));
}

int der_reproduction_row_count(const struct der_reproduction *r)
{
    return r->inner->n_rows;
}

static struct der_statistic statistic(struct summary summary)
{
    return (struct der_statistic){.mean = summary.mean, .std = summary.std};
}

enum der_status der_reproduction_row(const struct der_reproduction *r, int index,
                                     struct der_reproduction_row *out)
{
    struct reproduce_row row;
    *out = (struct der_reproduction_row){0};
    if (index < 0 || index >= r->inner->n_rows)
        return ctx_fail(r->ctx, DER_ARG, "there is no row %d; there are %d", index,
                        r->inner->n_rows);
    reproduce_row(r->inner, index, &row);
    *out = (struct der_reproduction_row){
        .label = row.run->label,
        .preset = row.run->preset,
        .n_runs = row.n_runs,
        .params = statistic(row.params),
        .avg_top1 = statistic(row.avg_top1),
        .last_top1 = statistic(row.last_top1),
        .avg_top5 = statistic(row.avg_top5),
        .last_top5 = statistic(row.last_top5),
        .bwt = statistic(row.bwt),
        .fwt = statistic(row.fwt),
        .classifier_bound = statistic(row.bound),
        .paper_params = row.paper.parameters,
        .paper_avg_top1 = {.mean = row.paper.average, .std = row.paper.std},
        .paper_last_top1 = row.paper.last,
        .paper_avg_top5 = row.paper.average5,
        .paper_last_top5 = row.paper.last5,
        .paper_bwt = row.transfer.backward,
        .paper_fwt = row.transfer.forward,
        .paper_classifier_bound = row.paper_bound};
    return DER_OK;
}

enum der_status der_reproduction_text(struct der_reproduction *r, const char **text)
{
    *text = NULL;
    mem_free(&r->ctx->mem, r->text);
    r->text = NULL;
    TRY(reproduce_table_text(r->inner, &r->text));
    *text = r->text;
    return DER_OK;
}

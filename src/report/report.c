#include "report/report.h"

#include "io/durable.h"
#include "report/csv.h"
#include "report/document.h"
#include "report/page.h"

#include <string.h>

static enum der_status read_runs(struct der_ctx *ctx, const struct report_options *options,
                                 struct run_view *runs)
{
    const char *names[REPORT_MAX_RUNS];
    document_names(options->runs, options->n_runs, names);
    for (int i = 0; i < options->n_runs; i++) {
        TRY(run_view_read(ctx, options->runs[i], &runs[i]));
        runs[i].name = names[i];
    }
    return DER_OK;
}

static enum der_status write_page(struct der_ctx *ctx, const struct report_options *options,
                                  const struct run_view *runs, struct report_result *out)
{
    struct document_options how = {
        .title = options->title, .data = options->data, .refresh = options->refresh};
    cJSON *document;
    TRY(document_make(ctx, runs, options->n_runs, &how, &document));
    enum der_status status = page_write(ctx, NULL, options->page, document, &out->bytes);
    json_free(document);
    return status;
}

static enum der_status write_csv(struct der_ctx *ctx, const struct report_options *options,
                                 const struct run_view *runs)
{
    char *text;
    TRY(csv_make(ctx, runs, options->n_runs, &text));
    enum der_status status = durable_write_file(ctx, NULL, options->csv, text, strlen(text));
    mem_free(&ctx->mem, text);
    return status;
}

static enum der_status write_all(struct der_ctx *ctx, const struct report_options *options,
                                 struct run_view *runs, struct report_result *out)
{
    TRY(read_runs(ctx, options, runs));
    for (int i = 0; i < options->n_runs; i++)
        out->n_unfinished += !runs[i].outcome.has_ended;
    if (options->page)
        TRY(write_page(ctx, options, runs, out));
    return options->csv ? write_csv(ctx, options, runs) : DER_OK;
}

enum der_status report_write(struct der_ctx *ctx, const struct report_options *options,
                             struct report_result *out)
{
    *out = (struct report_result){0};
    if (options->n_runs < 1 || options->n_runs > REPORT_MAX_RUNS)
        return ctx_fail(ctx, DER_ARG, "a report is about 1 to %d runs, not %d", REPORT_MAX_RUNS,
                        options->n_runs);
    if (options->page && options->csv && strcmp(options->page, options->csv) == 0)
        return ctx_fail(ctx, DER_ARG, "page and CSV cannot both be %s", options->csv);
    struct run_view *runs = mem_zalloc(&ctx->mem, (size_t)options->n_runs, sizeof *runs);
    if (!runs)
        return ctx_nomem(ctx);
    enum der_status status = write_all(ctx, options, runs, out);
    for (int i = 0; i < options->n_runs; i++)
        run_view_fini(&runs[i]);
    mem_free(&ctx->mem, runs);
    return status;
}

/*
 * der_report: the public face of report/.
 */
#include <der/report.h>

#include "report/report.h"

enum der_status der_report(struct der_ctx *ctx, const struct der_report_options *options,
                           struct der_report_result *result)
{
    struct report_options inner = {.runs = options->runs,
                                   .n_runs = options->n_runs,
                                   .page = options->page,
                                   .csv = options->csv,
                                   .title = options->title,
                                   .data = options->data,
                                   .refresh = options->refresh};
    struct report_result written;
    TRY(report_write(ctx, &inner, &written));
    if (result)
        *result = (struct der_report_result){.n_unfinished = written.n_unfinished,
                                             .bytes = written.bytes};
    return DER_OK;
}

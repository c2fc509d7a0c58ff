/*
 * The numbers of several runs as one table: a line for every step of every run.
 */
#ifndef REPORT_CSV_H
#define REPORT_CSV_H

#include "report/run_view.h"

/* RFC 4180 with newlines alone; docs/FORMATS.md lists the columns. Caller frees with mem_free. */
NODISCARD enum der_status csv_make(struct der_ctx *ctx, const struct run_view *runs, int n,
                                   char **out);

#endif

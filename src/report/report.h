/*
 * What one run or many came to, as a page to look at and as a table to compute with.
 *
 * The page is one file: HTML, style, script and all data, with no need of a network. It shows what the run folders
 * say at the moment of writing; a run that goes on is shown as far as it is.
 */
#ifndef REPORT_REPORT_H
#define REPORT_REPORT_H

#include "core/ctx.h"

enum { REPORT_MAX_RUNS = 64 };

struct report_options {
    const char *const *runs; /* [n_runs] folders */
    int n_runs;
    const char *page;  /* file to write; NULL: none */
    const char *csv;   /* likewise */
    const char *title; /* NULL: made of the runs */
    const char *data;  /* where the images are; NULL: where the runs had them */
    int refresh; /* seconds after which the page loads itself anew while a run goes on; 0: never */
};

struct report_result {
    int n_unfinished; /* runs that have not come to their end */
    int64_t bytes;    /* of the page */
};

/* A folder that is not there, is empty or holds something else, a run of a newer format, a damaged file: an error
 * that names it, and nothing is written. */
NODISCARD enum der_status report_write(struct der_ctx *ctx, const struct report_options *options,
                                       struct report_result *out);

#endif

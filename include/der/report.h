/*
 * Reports: what runs came to, as a page to look at and as a table to compute with.
 */
#ifndef DER_REPORT_H
#define DER_REPORT_H

#include <der/context.h>

/* Zero or NULL means the default in parentheses. Everything is borrowed for the length of the call. */
struct der_report_options {
    const char *const *runs; /* folders of runs, as der_train writes them; 1 to 64, required */
    int n_runs;
    const char *page;  /* file for the page: HTML that needs nothing besides itself (none) */
    const char *csv;   /* file for the numbers, a line for every step of every run (none) */
    const char *title; /* of the page (made of the names of the runs) */
    const char *data;  /* where the data set is now, for its images (where the runs had it) */
    int refresh; /* seconds after which the page loads itself anew while a run goes on (never): for who writes it
                    again and again */
};

struct der_report_result {
    int n_unfinished; /* runs that have not come to their end; they are shown as far as they are */
    int64_t bytes;    /* of the page */
};

/* Writes the files, each whole or not at all. A folder that is not there or holds no run, a run of a newer format
 * and a damaged file are errors that name it, and nothing is written. `result` may be NULL. */
DER_API DER_NODISCARD enum der_status der_report(struct der_ctx *ctx,
                                                 const struct der_report_options *options,
                                                 struct der_report_result *result);

#endif

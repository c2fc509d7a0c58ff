/*
 * One run folder, read: how it was started, what it measured, what it holds.
 */
#ifndef REPORT_RUN_VIEW_H
#define REPORT_RUN_VIEW_H

#include "experiment/run_reader.h"
#include "experiment/run_record.h"
#include "report/history.h"
#include "store/exemplar_file.h"
#include "store/prediction_file.h"

struct run_view {
    struct der_ctx *ctx;
    const char *path; /* borrowed */
    const char *name; /* what it is called on the page; borrowed from the path */
    struct run_outcome outcome;
    struct run_record record;
    struct history history;
    struct prediction_file *predictions; /* NULL: none yet */
    struct exemplar_file *exemplars;     /* likewise */
};

/* Whatever is wrong with the folder is an error that names it. Free with run_view_fini, also after a failure. */
NODISCARD enum der_status run_view_read(struct der_ctx *ctx, const char *path,
                                        struct run_view *out);
void run_view_fini(struct run_view *run);

/* Position of step t's first class, with run_steps(outcome) at the end: groups of the protocol. */
int run_view_first_class(const struct run_view *run, int step);

/* The run as the page wants it; `images` are its thumbnails, taken over. NULL: no memory. */
cJSON *run_view_json(const struct run_view *run, cJSON *images);

#endif

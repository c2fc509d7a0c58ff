/*
 * A table or figure of the paper, run again: which runs it takes, where each lies, what is missing.
 *
 *     reproduction_new -> reproduction_run -> reproduce_table.h
 *
 * A run's folder is named after what is run (preset, method, what the row changes, class order), not
 * after the table, so that tables share runs; what the user overrides is not part of the name, and a
 * folder that holds a run with other settings is refused.
 */
#ifndef EXPERIMENT_REPRODUCE_H
#define EXPERIMENT_REPRODUCE_H

#include "core/arena.h"
#include "experiment/experiment.h"
#include "experiment/run_reader.h"
#include "metrics/paper.h"

enum {
    REPRODUCE_ORDERS = 3, /* the class orders of the paper, from 1 */
    REPRODUCE_TWINS = 2
};

/* One run: a row of the table under one class order. */
struct reproduce_item {
    const struct paper_run *row;
    int order;        /* from 1; 0: the preset's own, where the paper ran no other */
    bool is_wanted;   /* its row was asked for; others are shown if they are done */
    const char *path; /* folder of the run */
    const char *twins
        [REPRODUCE_TWINS]; /* folders of the same run with more measured, which will do; NULL: no more */
    unsigned measure;      /* bits of enum measure */
    struct config config; /* that it must have */
    struct run_outcome outcome;
};

struct reproduce_hooks {
    /* Before a run, the `number`-th (from 1) of those that had to be done. May be NULL. */
    void (*begin)(void *user, const struct reproduce_item *item, int number, int total);
    void *user;
};

struct reproduce_options {
    const char *table;       /* "T1" ... "fig1", "bound" */
    const char *const *rows; /* labels, or names of the paper's rows; none: all */
    int n_rows;
    const int *orders; /* of the classes; none: all three */
    int n_orders;
    const char *const *assignments; /* "key=value" for every run */
    int n_assignments;
    const char *out;               /* folder of the runs and tables */
    bool table_only;               /* nothing is run, only the table written */
    struct experiment_options run; /* of every run; config, out and measure are filled in */
    struct reproduce_hooks hooks;
};

struct reproduction {
    struct der_ctx *ctx;
    struct arena arena; /* everything below */
    const struct paper_table *table;
    struct reproduce_options options; /* what it points to is the caller's and must stay */
    const struct paper_run *rows;
    int n_rows;
    struct reproduce_item *items; /* [n_items]: rows in their order, orders within */
    int n_items;
};

/* Resolves all runs and reads what is there. Unknown tables and rows are DER_ARG with a suggestion, as
 * are overrides of what a row is about. Caller frees with reproduction_free. */
NODISCARD enum der_status reproduction_new(struct der_ctx *ctx,
                                           const struct reproduce_options *options,
                                           struct reproduction **out);
void reproduction_free(struct reproduction *reproduction);

/* Wanted runs that are not done. */
int reproduction_missing(const struct reproduction *reproduction);

/* Does what is missing, in order, and writes the table after every run. What was done before a failure
 * stays and is not done again. */
NODISCARD enum der_status reproduction_run(struct reproduction *reproduction);

#endif

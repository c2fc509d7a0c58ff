/*
 * Tables and figures of the paper, run again: each row under the paper's class orders, as mean and
 * standard deviation beside the published numbers.
 *
 *     der_reproduction_new -> der_reproduction_run -> der_reproduction_text, der_reproduction_row
 *
 * Every run has a folder of its own, as der_train writes it. A finished run is used again, by all
 * tables that need it; one that was broken off is done; one with other settings is refused.
 */
#ifndef DER_REPRODUCE_H
#define DER_REPRODUCE_H

#include <der/train.h>

struct der_reproduction;

enum der_run_state {
    DER_RUN_ABSENT,  /* nothing has been done */
    DER_RUN_PARTIAL, /* it was begun */
    DER_RUN_DONE
};

/* One run. Texts are borrowed as long as the reproduction lives. */
struct der_reproduction_item {
    const char *row; /* its label */
    int order;       /* of the classes, 1 to 3; 0: the preset's own, where there is no other */
    const char *folder;
    enum der_run_state state;
};

/* A table or figure of the paper that can be run again. Strings are of static storage. */
struct der_paper_table {
    const char *name; /* "T1" ... "T8", "fig1", "bound" */
    const char *title;
    int n_rows;
};

/* A row of such a table. Strings are of static storage. */
struct der_paper_row {
    const char *label; /* unique in its table */
    const char *name;  /* the paper's for it, which rows may share; NULL: it has none */
};

DER_API int der_paper_table_count(void);
DER_API DER_NODISCARD enum der_status der_paper_table_describe(struct der_ctx *ctx, int index,
                                                               struct der_paper_table *out);
DER_API DER_NODISCARD enum der_status der_paper_row_describe(struct der_ctx *ctx, int table,
                                                             int index, struct der_paper_row *out);

struct der_reproduce_options {
    const char *table;       /* "T1" ... "T8", "fig1", "bound"; required */
    const char *const *rows; /* rows to run, by their labels or the paper's names (all) */
    int n_rows;
    const int *orders; /* class orders (1, 2, 3) */
    int n_orders;
    const char *const *assignments; /* "key=value" for every run (none) */
    int n_assignments;
    const char *out; /* folder for the runs and the tables; required */
    /* As in struct der_train_options, for every run; settings, init, out and max_steps are ignored. The data
     * set is needed only when a run is missing. Each run has a folder of its own in that of tensorboard. */
    struct der_train_options train;
    /* Before a run, the number-th (from 1) of `total`; train.user is the argument. May be NULL. */
    void (*begin)(void *user, const struct der_reproduction_item *item, int number, int total);
    bool table_only; /* run nothing: the table of what is done */
};

/* Mean and sample standard deviation over the class orders; NAN where there is nothing. */
struct der_statistic {
    double mean, std;
};

/* A row. Accuracies and transfer are per cent, parameters are millions. */
struct der_reproduction_row {
    const char *label;
    const char *preset;
    int n_runs; /* done, of the orders asked for */
    struct der_statistic params, avg_top1, last_top1, avg_top5, last_top5, bwt, fwt;
    struct der_statistic classifier_bound;
    double paper_params; /* what was not published is NAN */
    struct der_statistic paper_avg_top1;
    double paper_last_top1, paper_avg_top5, paper_last_top5;
    double paper_bwt, paper_fwt, paper_classifier_bound;
};

/* Resolves the runs of a table and reads those that are there. `options`, with all it points to, must
 * stay until der_reproduction_free. */
DER_API DER_NODISCARD enum der_status der_reproduction_new(
    struct der_ctx *ctx, const struct der_reproduce_options *options,
    struct der_reproduction **out);
DER_API void der_reproduction_free(struct der_reproduction *reproduction);

/* Does the runs that are missing, and writes OUT/<table>.md and OUT/<table>.csv after each. */
DER_API DER_NODISCARD enum der_status der_reproduction_run(struct der_reproduction *reproduction);

/* The runs that were asked for. */
DER_API int der_reproduction_item_count(const struct der_reproduction *reproduction);
DER_API DER_NODISCARD enum der_status der_reproduction_item(
    const struct der_reproduction *reproduction, int index, struct der_reproduction_item *out);

/* The rows of the table, those that were not asked for included. */
DER_API int der_reproduction_row_count(const struct der_reproduction *reproduction);
DER_API DER_NODISCARD enum der_status der_reproduction_row(
    const struct der_reproduction *reproduction, int index, struct der_reproduction_row *out);

/* The table as Markdown whose columns line up, a title above it. Borrowed until the next call. */
DER_API DER_NODISCARD enum der_status der_reproduction_text(struct der_reproduction *reproduction,
                                                            const char **text);

#endif

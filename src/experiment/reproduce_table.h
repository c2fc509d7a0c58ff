/*
 * The runs of a table as rows: mean and deviation over the class orders beside the paper's numbers,
 * as numbers, as text (Markdown whose columns line up) and as CSV.
 */
#ifndef EXPERIMENT_REPRODUCE_TABLE_H
#define EXPERIMENT_REPRODUCE_TABLE_H

#include "experiment/reproduce.h"
#include "metrics/summary.h"

/* NAN where there is nothing: not run, not measured, not published. Accuracies and transfer in per
 * cent, parameters in millions. */
struct reproduce_row {
    const struct paper_run *run;
    int n_runs; /* that are done */
    struct summary params, avg_top1, last_top1, avg_top5, last_top5;
    struct summary bwt, fwt, bound;
    struct paper_value paper;       /* its names are NULL where the paper has no number */
    struct paper_transfer transfer; /* likewise */
    double paper_bound, paper_bound_std;
    double difference; /* of avg_top1 to the paper's */
    double bwt_difference, fwt_difference, bound_difference;
};

/* Row `index` of the table. */
void reproduce_row(const struct reproduction *reproduction, int index, struct reproduce_row *out);

/* The table as text, a title above it that tells when settings were changed. Caller frees with
 * mem_free. */
NODISCARD enum der_status reproduce_table_text(const struct reproduction *reproduction, char **out);
NODISCARD enum der_status reproduce_table_csv(const struct reproduction *reproduction, char **out);

/* Writes OUT/<table>.md and OUT/<table>.csv. */
NODISCARD enum der_status reproduce_table_write(const struct reproduction *reproduction);

#endif

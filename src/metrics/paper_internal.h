/*
 * The tables behind paper.h: data in paper_values.c, paper_curves.c and paper_runs.c, look-up in
 * paper.c.
 */
#ifndef METRICS_PAPER_INTERNAL_H
#define METRICS_PAPER_INTERNAL_H

#include "metrics/paper.h"

extern const struct paper_value PAPER_VALUES[];
extern const int N_PAPER_VALUES;
extern const struct paper_transfer PAPER_TRANSFERS[];
extern const int N_PAPER_TRANSFERS;
extern const struct paper_curve PAPER_CURVES[];
extern const int N_PAPER_CURVES;
extern const struct paper_table PAPER_TABLES[];
extern const int N_PAPER_TABLES;
extern const struct paper_run PAPER_RUNS[]; /* the rows of a table stand together */
extern const int N_PAPER_RUNS;

#endif

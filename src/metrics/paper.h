/*
 * What the paper published, to print beside what was measured here.
 *
 * S. Yan, J. Xie, X. He: DER: Dynamically Expandable Representation for Class Incremental Learning,
 * CVPR 2021. Numbers are as printed, misprints included (they are named where they stand); what was
 * not given is NAN. Tables are called T1 to T8 in the order of the paper, its appendix included;
 * T10 is a number of the appendix's text. The curves are those the authors released with their
 * code.
 *
 *   T1  CIFAR100-B0, ResNet-18             T5  transfer of the representation
 *   T2  CIFAR100-B50, ResNet-18            T6  sensitivity to lambda_a
 *   T3  ImageNet-100 and ImageNet-1000     T7  CIFAR100-B0, 32-layer network
 *   T4  contribution of each component     T8  CIFAR100-B50, 32-layer network
 *
 * Protocols are called as the presets are: data set, classes of the first step (b0: as many as in
 * every other step), number of steps (after the first one, for b50), network if not ResNet-18.
 * Rows:
 *
 *   joint      the paper's "Bound": one network, trained on all data of all classes seen
 *   finetune   T4's first row: neither expansion nor auxiliary loss
 *   der-noaux  T4's second row: expansion, no pruning, no auxiliary loss
 *   der-wop    "Ours (w/o P)": DER without pruning
 *   der        "Ours": DER with pruning
 *   icarl, ucir, bic, wa, podnet, rpsnet, tpcil: the methods the paper compares with
 *   lambda_a=0.1, 0.5, 1, 5, 10: T6's columns, DER with pruning
 *   classifier-bound: T10, DER with a second stage on all previous data
 */
#ifndef METRICS_PAPER_H
#define METRICS_PAPER_H

#include "metrics/incremental.h"

enum { PAPER_MAX_STEPS = 50, PAPER_MAX_SETTINGS = 5 };

struct paper_protocol {
    const char *name;
    int n_steps;      /* the first one included */
    int n_first;      /* classes of the first step */
    int n_classes;    /* in the end */
    double extractor; /* parameters of one unpruned extractor as the paper rounds them, millions */
};

/* A cell of a table: one method under one protocol. Accuracies in per cent. */
struct paper_value {
    const char *table;
    const char *protocol;
    const char *row;
    double parameters; /* "#Paras", millions: mean over the steps, classifier excluded */
    double average;    /* "Avg", top-1 */
    double std;        /* of Avg over three class orders */
    double last;       /* top-1 after the last step */
    double average5;   /* top-5 likewise */
    double last5;
};

/* A column of T5. */
struct paper_transfer {
    const char *row;
    double backward; /* BWT, per cent */
    double forward;  /* FWT, per cent */
};

/* Accuracy after every step, mean over the class orders. */
struct paper_curve {
    const char *protocol;
    const char *row; /* "der" or "der-wop" */
    enum accuracy_kind kind;
    int n_steps;
    double accuracy[PAPER_MAX_STEPS];
};

/* What the numbers of a table are: accuracies, BWT and FWT, or accuracies beside the classifier's upper bound. */
enum paper_kind { PAPER_ACCURACY, PAPER_TRANSFER, PAPER_BOUND };

/* A table, figure or number that can be run again. */
struct paper_table {
    const char *id; /* "T1" ... "T8", "fig1", "bound" */
    const char *title;
    enum paper_kind kind;
};

/* A row of such a table: what to run, and what to print beside the result. */
struct paper_run {
    const char *table;  /* id */
    const char *label;  /* unique in its table */
    const char *preset; /* name of a protocol */
    const char *method; /* "der", "finetune", "joint", "icarl", "wa" or "bic" */
    const char *settings[PAPER_MAX_SETTINGS]; /* "key=value", beyond the preset's; NULL ends them */
    const char *value_table;                  /* where the paper has its number; NULL: nowhere */
    const char *value_row;
};

/* All of a kind, in the order of the paper; the result is static. */
const struct paper_protocol *paper_protocols(int *n);
const struct paper_value *paper_values(int *n);
const struct paper_transfer *paper_transfers(int *n);
const struct paper_curve *paper_curves(int *n);
const struct paper_table *paper_tables(int *n);

/* The rows of one table; NULL and 0 when there is no such table. */
const struct paper_run *paper_runs(const char *table, int *n);

/* One of a kind by its names, or NULL. */
const struct paper_protocol *paper_protocol_find(const char *name);
const struct paper_value *paper_value_find(const char *table, const char *protocol,
                                           const char *row);
const struct paper_transfer *paper_transfer_find(const char *row);
const struct paper_curve *paper_curve_find(const char *protocol, const char *row);
const struct paper_table *paper_table_find(const char *id);

/* The paper's numbers for a run: accuracies, transfer for tables of transfer, the bound for tables of it. NULL where
 * it has none of that kind. */
const struct paper_value *paper_run_value(const struct paper_run *run);
const struct paper_value *paper_run_bound(const struct paper_run *run);
const struct paper_transfer *paper_run_transfer(const struct paper_run *run);

/* A row's name as the paper prints it: "Ours (w/o P)" for "der-wop"; the name itself where the
 * paper has no other. */
const char *paper_label(const char *row);

#endif

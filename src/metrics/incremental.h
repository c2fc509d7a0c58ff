/*
 * What a class-incremental run measured, step by step, and the numbers that papers report about it.
 *
 * After step t all classes seen so far are tested. Group j is the classes that came with step j.
 * Steps and groups count from 0 here, T is the last step; accuracies are per cent, not rounded, and
 * NAN where there was nothing to test.
 */
#ifndef METRICS_INCREMENTAL_H
#define METRICS_INCREMENTAL_H

#include "core/ctx.h"

/* Is the label the first choice, or among the first five (all, with fewer classes)? */
enum accuracy_kind { TOP1, TOP5 };

/* One step. Counts are by class, in the order of learning. */
struct incremental_step {
    int n_classes;       /* seen so far, those of this step included */
    const int64_t *n;    /* [n_classes] test images */
    const int64_t *top1; /* [n_classes] of them right */
    const int64_t *top5; /* [n_classes] among the best five */
    int64_t parameters;  /* of all extractors that inference runs; no classifier */
    int64_t parameters_with_classifier;
};

struct incremental {
    struct der_ctx *ctx;
    int n_steps;
    struct incremental_step *steps; /* [n_steps]; their counts belong to this struct */
};

/* A run of no steps. Caller frees with incremental_free. */
NODISCARD enum der_status incremental_new(struct der_ctx *ctx, struct incremental **out);
void incremental_free(struct incremental *run);

/* Appends a step; its arrays are copied. DER_ARG, and the run as it was, when the step has no new
 * classes or its counts contradict each other. */
NODISCARD enum der_status incremental_add(struct incremental *run,
                                          const struct incremental_step *step);

/* The classes [first, last) that came with a step. */
void incremental_group_range(const struct incremental *run, int group, int *first, int *last);

/* Accuracy after a step: over all classes seen (a_t), one group of them, one class, those of [first, last). All
 * images weigh the same. */
double incremental_accuracy(const struct incremental *run, int step, enum accuracy_kind kind);
double incremental_group(const struct incremental *run, int step, int group,
                         enum accuracy_kind kind);
double incremental_class(const struct incremental *run, int step, int label,
                         enum accuracy_kind kind);
double incremental_range(const struct incremental *run, int step, int first, int last,
                         enum accuracy_kind kind);

/* Average incremental accuracy, the paper's "Avg": the plain mean of a_t over all steps, the first
 * one included. NAN for a run of no steps. */
double incremental_average(const struct incremental *run, enum accuracy_kind kind);

/* The paper's "Last": a_T. NAN for a run of no steps. */
double incremental_last(const struct incremental *run, enum accuracy_kind kind);

/* Forgetting (Chaudhry et al. 2018): the mean over the groups j < T of max_t acc_t(j) - acc_T(j),
 * top-1, t from j to T. Never negative; 0 with one step. Groups never tested are left out. */
double incremental_forgetting(const struct incremental *run);

/* The paper's "#Paras": the mean over the steps of the extractors' parameters, classifier excluded.
 * In parameters, not millions. NAN for a run of no steps. */
double incremental_average_parameters(const struct incremental *run);

/* Parameters after the last step, 0 for a run of no steps. */
int64_t incremental_final_parameters(const struct incremental *run, bool with_classifier);

#endif

/*
 * Evaluation: the rank of every image's label, the accuracies that follow from it, and what each image was
 * taken for.
 */
#ifndef TRAIN_EVALUATE_H
#define TRAIN_EVALUATE_H

#include "metrics/prediction.h"
#include "train/loop.h"

/* Counts by class; top-5 with fewer than five classes means all of them. */
struct evaluation {
    int n_classes;
    int64_t *n;                     /* [n_classes] images */
    int64_t *top1;                  /* [n_classes] of them right */
    int64_t *top5;                  /* [n_classes] among the best five */
    struct prediction *predictions; /* [n_predictions] in the order of the view; NULL: not wanted */
    int64_t n_predictions;
};

struct evaluation_options {
    struct backend *be;
    struct resident *resident;   /* or NULL */
    const struct stage_ops *ops; /* whose `program` is used, and nothing else */
    void *self;
    const struct loader_options *data; /* mode LOADER_EVAL */
    /* Of the confidence of predictions, which are kept then; the program must tell its logits. 0: none are. */
    double temperature;
};

/* The model behind a stage's `program`, which must measure ranks. The last batch is padded, its padding not
 * counted. Keeping predictions waits for every batch. Free with evaluation_fini, also after a failure. */
NODISCARD enum der_status evaluate(const struct evaluation_options *options, int n_classes,
                                   const struct train_hooks *hooks, struct evaluation *out);

/* One pass of a feeder through a program without scalars; what it kept is read afterwards. */
NODISCARD enum der_status evaluate_batches(struct feeder *feeder,
                                           const struct stage_program *program,
                                           const struct train_hooks *hooks, struct der_ctx *ctx,
                                           int64_t *n_batches);

void evaluation_fini(struct der_ctx *ctx, struct evaluation *evaluation);

/* Per cent over the classes [first, last), all images alike; 0 when there are none. */
double evaluation_top1(const struct evaluation *evaluation, int first, int last);
double evaluation_top5(const struct evaluation *evaluation, int first, int last);

#endif

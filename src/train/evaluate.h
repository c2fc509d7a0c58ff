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

/* What is tested, and on what. */
struct evaluate_options {
    const struct stage_ops *ops; /* of these only `program` is called; it must measure ranks */
    void *self;                  /* argument of ops */
    const struct loader_options *data; /* mode LOADER_EVAL */
    int n_classes;
    double temperature; /* above 0; of the confidence, where the program tells its logits */
};

/* The last batch is padded, its padding not counted. Predictions are kept where the program tells its logits.
 * Free with evaluation_fini, also after a failure. */
NODISCARD enum der_status evaluate(struct der_ctx *ctx, const struct evaluate_options *options,
                                   const struct train_hooks *hooks, struct evaluation *out);
void evaluation_fini(struct der_ctx *ctx, struct evaluation *evaluation);

/* Per cent over the classes [first, last), all images alike; 0 when there are none. */
double evaluation_top1(const struct evaluation *evaluation, int first, int last);
double evaluation_top5(const struct evaluation *evaluation, int first, int last);

#endif

/*
 * What the stages of a step share.
 */
#ifndef METHOD_LEARNER_INTERNAL_H
#define METHOD_LEARNER_INTERNAL_H

#include "method/learner.h"

/* A head: one bias-free matrix [rows, cols] under `name`. */
NODISCARD enum der_status head_new(struct learner *learner, const char *name, int64_t rows,
                                   int64_t cols, uint32_t stream, struct param_set **out);

/* Stages of one seed draw independently of each other. */
enum learner_stage { STAGE_REPRESENTATION = 1, STAGE_CLASSIFIER = 2, STAGE_BALANCE = 3 };
uint64_t learner_seed(const struct learner *learner, enum learner_stage stage);

/* Batches of a training view. */
struct loader_options learner_batches(const struct learner *learner, const struct data_view *view,
                                      enum learner_stage stage);

/* representation.c: trains a new extractor on `view` and leaves it, pruned, as the last of the learner's
 * extractors; *classifier receives H_t over all features, its columns pruned alike. */
NODISCARD enum der_status learn_representation(struct learner *learner,
                                               const struct data_view *view, int n_new,
                                               const struct train_hooks *hooks,
                                               struct param_set **classifier);

/* classifier.c: trains a fresh classifier on the features of all extractors. */
NODISCARD enum der_status learn_classifier(struct learner *learner, const struct data_view *view,
                                           const struct train_hooks *hooks,
                                           struct param_set **classifier);

#endif

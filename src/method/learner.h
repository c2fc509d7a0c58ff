/*
 * A learner meets new classes step after step. What it does with them is set by its config:
 *
 *   der       a new extractor a step beside the frozen ones, with auxiliary loss and channel masks,
 *             pruned to what its masks keep; then the classifier, trained anew on a balanced subset
 *   finetune  one extractor that is trained on, and the same second stage
 *   joint     one fresh network a step, trained on all images of all classes so far: the bound
 *
 * A few images of every class are kept for the next steps (joint keeps them all).
 */
#ifndef METHOD_LEARNER_H
#define METHOD_LEARNER_H

#include "config/config.h"
#include "data/exemplar.h"
#include "model/prune.h"
#include "train/assembly.h"
#include "train/evaluate.h"

enum { LEARNER_MAX_STEPS = 128 };

/* What a learner is made of. Pointers are borrowed and must outlive it. */
struct learner_options {
    struct config config;
    struct resnet_spec spec; /* of a full-width extractor */
    struct augment_spec train_augment, test_augment;
    const struct dataset *set;
    const struct data_view
        *train; /* of DATA_TRAIN: all that may be trained on, labels in learning order */
    const struct data_view *test;
    enum data_split test_split; /* split of `test` */
    int n_classes;              /* in all */
    enum bad_images bad_images;
    int loader_threads;
};

struct learner {
    struct backend *be;
    struct learner_options options;
    struct extractor
        *extractors[LEARNER_MAX_STEPS]; /* frozen and pruned, in order of their columns */
    int n_extractors;
    int step;                               /* steps learnt */
    int n_classes;                          /* classes learnt */
    int first_class[LEARNER_MAX_STEPS + 1]; /* of every step; [step] is n_classes */
    struct extractor *last_full;  /* the newest extractor before pruning: the next one starts so */
    struct param_set *classifier; /* "classifier.weight" [n_classes, feature_dim] */
    struct exemplars *memory;
    struct desks desks;            /* of the finished step */
    struct assembly_cache testing; /* of the finished step */

    /* Of the extractor in training, for records: what its masks would keep now (0 without masks), and the
     * weight of the sparsity loss. */
    int64_t kept_params;
    double lambda_s;
};

NODISCARD enum der_status learner_new(struct backend *be, const struct learner_options *options,
                                      struct learner **out);
void learner_free(struct learner *learner);

/* Learns the next n_new classes. After a failure the learner can only be freed. */
NODISCARD enum der_status learner_step(struct learner *learner, int n_new,
                                       const struct train_hooks *hooks);

/* Tests on all classes learnt so far. */
NODISCARD enum der_status learner_test(struct learner *learner, const struct train_hooks *hooks,
                                       struct evaluation *out);

/* Parameters of all extractors, and columns of the feature matrix. */
int64_t learner_parameters(const struct learner *learner);
int64_t learner_feature_dim(const struct learner *learner);

#endif

/*
 * DER (Yan, Xie, He 2021): a learner that meets new classes step after step.
 *
 * At every step the extractors it has are frozen, a new one is trained beside them with an auxiliary
 * loss and channel masks, pruned to the channels its masks keep, and the classifier is trained anew on
 * a class-balanced subset. A few images of every class are kept for the next steps.
 *
 *     u = [Phi_1(x), ..., Phi_t(x)]   the super-feature, columns of one matrix
 *     L = L_CE(H_t(u), y) + lambda_a L_CE(H_a(F_t(x)), y_a) + lambda_s L_S
 */
#ifndef METHOD_LEARNER_H
#define METHOD_LEARNER_H

#include "data/exemplar.h"
#include "model/prune.h"
#include "train/assembly.h"
#include "train/evaluate.h"

enum { LEARNER_MAX_STEPS = 128 };

/* Everything that can be set. */
struct learner_settings {
    struct resnet_spec spec; /* of a full-width extractor */
    int batch, test_batch;
    struct schedule representation; /* of every step */
    struct schedule classifier;     /* of the second stage */
    float momentum, decay;
    bool expand;    /* a new extractor a step; false: one, trained on (fine-tuning) */
    bool auxiliary; /* the auxiliary loss, from step 2 on */
    double lambda_a;
    bool masks; /* learned masks, and pruning */
    double lambda_s, mask_gain, s_max, mask_clamp;
    int hard_epoch;          /* masks are 0 or 1 from this epoch on */
    bool reset_after_warmup; /* both heads start anew when the warm-up ends */
    bool second_stage;       /* train the classifier anew on a balanced subset */
    double temperature;      /* delta of the second stage */
    enum memory_mode memory_mode;
    int memory; /* images, in all or per class */
    struct augment_spec train_augment, test_augment;
    enum bad_images bad_images;
    int loader_threads;
    uint64_t seed;
};

/* DER's published settings for CIFAR-100 and the given network. */
struct learner_settings learner_defaults(const struct resnet_spec *spec);

struct learner {
    struct backend *be;
    struct learner_settings settings;
    const struct dataset *set;                       /* borrowed */
    const struct class_order *order;                 /* borrowed */
    struct extractor *extractors[LEARNER_MAX_STEPS]; /* frozen and pruned, one a step */
    int n_extractors;
    int step;                     /* steps learnt */
    int n_classes;                /* classes learnt */
    struct extractor *last_full;  /* the newest extractor before pruning: the next one starts so */
    struct param_set *classifier; /* "classifier.weight" [n_classes, feature_dim] */
    struct exemplars *memory;
    struct desks desks;            /* of the finished step */
    struct assembly_cache testing; /* of the finished step */
};

NODISCARD enum der_status learner_new(struct backend *be, const struct learner_settings *settings,
                                      const struct dataset *set, const struct class_order *order,
                                      struct learner **out);
void learner_free(struct learner *learner);

/* Learns the next n_new classes of the order. After a failure the learner can only be freed. */
NODISCARD enum der_status learner_step(struct learner *learner, int n_new,
                                       const struct train_hooks *hooks);

/* Tests on all classes learnt so far. */
NODISCARD enum der_status learner_test(struct learner *learner, const struct train_hooks *hooks,
                                       struct evaluation *out);

/* Parameters of all extractors, and columns of the feature matrix. */
int64_t learner_parameters(const struct learner *learner);
int64_t learner_feature_dim(const struct learner *learner);

#endif

/*
 * A learner meets new classes step after step. What it does with them is set by its config:
 *
 *   der       a new extractor a step beside the frozen ones, with auxiliary loss and channel masks,
 *             pruned to what its masks keep; then the classifier, trained anew on a balanced subset
 *   finetune  one extractor that is trained on, and the same second stage
 *   joint     one fresh network a step, trained on all images of all classes so far: the bound
 *   icarl     one extractor that is trained on, with what it was before as a teacher; classified by the
 *             nearest mean of exemplars
 *   wa        the same, whose classifier's new rows are made as long as the old ones
 *   bic       the same, whose classifier's new rows are corrected by what images say that were set aside
 *
 * A few images of every class are kept for the next steps (joint keeps them all). New images of classes that
 * are known already may join: they are trained on with a step and compete for the places of their class.
 */
#ifndef METHOD_LEARNER_H
#define METHOD_LEARNER_H

#include "config/config.h"
#include "data/exemplar.h"
#include "method/correction.h"
#include "model/prune.h"
#include "store/model_file.h"
#include "store/state_file.h"
#include "train/assembly.h"
#include "train/evaluate.h"

enum { LEARNER_MAX_STEPS = MODEL_MAX_STEPS };

/* Told what would be needed to go on from here: after every `every` epochs of a stage and after its last.
 * What `point` names is borrowed for the length of the call. */
struct learner_saver {
    int every; /* 0: never */
    NODISCARD enum der_status (*save)(void *user, const struct stage_point *point);
    void *user;
};

/* What a learner is made of. Pointers are borrowed and must outlive it. */
struct learner_options {
    struct config config;
    struct resnet_spec spec; /* of a full-width extractor */
    struct augment_spec train_augment, test_augment;
    const struct dataset *set;
    const struct data_view
        *train; /* of DATA_TRAIN: all that may be trained on, labels in learning order */
    const struct data_view
        *joining; /* of DATA_TRAIN: new images of classes that are known already, for the
                                      * next step alone; NULL: none */
    const struct data_view *test;
    enum data_split test_split; /* split of `test` */
    int n_classes;              /* in all */
    int steps_before; /* of the protocol, whose classes the first step here has too; only counted in names */
    bool is_reference; /* trained to be compared with (method/probe.h): its stages are called so */
    int balance_least; /* images of a class that the second stage has at least: see
                                 * view_balanced_to */
    bool fills_memory; /* places that herding leaves open (it gives up after so many picks) go to
                                 * the images it has not ranked, in their order */
    enum bad_images bad_images;
    int loader_threads;
    struct learner_saver saver; /* zero: nothing is saved within steps */
    const char
        *init; /* file of weights (store/weights_file.h) that a network which would begin at random
                       * begins with: the first extractor, each network of method joint; may be NULL */
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
    struct param_set *last_masks; /* its masks: what pruning kept of it; NULL without pruning */
    struct param_set *classifier; /* "classifier.weight" [n_classes, feature_dim], and
                                   * "classifier.bias" [n_classes] where it was corrected */
    struct param_set
        *trained_head;            /* what training left, where the classifier is another; or NULL */
    bool is_corrected;            /* the classifier, at the end of the newest step */
    struct correction correction; /* by these */
    double temperature;           /* that the classifier was trained at */
    struct exemplars *memory;
    struct resident resident;      /* images that the back end holds */
    struct desks desks;            /* of the finished step */
    struct assembly_cache testing; /* of the finished step */

    /* Of the extractor in training, for records: what its masks would keep now (0 without masks), the
     * weight of the sparsity loss, and the masks (NULL without; borrowed from the stage). */
    int64_t kept_params;
    double lambda_s;
    const struct param_set *masks;

    struct state_file *from; /* what the present step goes on from; NULL: it began here */
};

NODISCARD enum der_status learner_new(struct backend *be, const struct learner_options *options,
                                      struct learner **out);
void learner_free(struct learner *learner);

/* Learns the next n_new classes. After a failure the learner can only be freed. */
NODISCARD enum der_status learner_step(struct learner *learner, int n_new,
                                       const struct train_hooks *hooks);

/* Finishes the step that a saved state is in the middle of, as if it had never been interrupted: the learner is
 * the one of learner_adopt, or new where no step was finished. */
NODISCARD enum der_status learner_resume_step(struct learner *learner, int n_new,
                                              struct state_file *from,
                                              const struct train_hooks *hooks);

/* Learns from the joining images without new classes: the representation stays, the classifier is trained
 * anew, and the classes concerned are ranked again. After a failure the learner can only be freed. */
NODISCARD enum der_status learner_refresh(struct learner *learner, const struct train_hooks *hooks);

/* A fresh learner takes over what another one had learnt: extractors and classifier of a model, lists of
 * exemplars. They are moved out of their owners. */
NODISCARD enum der_status learner_adopt(struct learner *learner, struct model *model,
                                        struct exemplars **memory);

/* The last extractor at full width, its masks and the trained head, from a state between steps. */
NODISCARD enum der_status learner_restore_full(struct learner *learner, struct state_file *from);

/* What a state between steps has to hold. The learner's parameters are borrowed. */
struct stage_point learner_point(const struct learner *learner);

/* The learner as a model: parts are borrowed, the input is the test transform. classes [n_classes]. */
struct model learner_model(const struct learner *learner, const char *const *classes);

/* The other way round: everything is moved out into a model of its own, which the caller frees with model_free,
 * and the last extractor at full width. Not where the classifier is not what was trained. The learner can only be
 * freed then. */
NODISCARD enum der_status learner_hand_over(struct learner *learner, const char *const *classes,
                                            struct model **model, struct extractor **last_full);

/* Tests on all classes learnt so far; what every image was taken for is part of it. */
NODISCARD enum der_status learner_test(struct learner *learner, const struct train_hooks *hooks,
                                       struct evaluation *out);

/* Parameters of all extractors, and columns of the feature matrix. */
int64_t learner_parameters(const struct learner *learner);
int64_t learner_feature_dim(const struct learner *learner);

#endif

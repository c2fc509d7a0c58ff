/*
 * What the stages of a step share.
 */
#ifndef METHOD_LEARNER_INTERNAL_H
#define METHOD_LEARNER_INTERNAL_H

#include "method/learner.h"

/* Stages of one seed draw independently of each other. */
enum learner_stage {
    STAGE_REPRESENTATION = 1,
    STAGE_CLASSIFIER = 2,
    STAGE_BALANCE = 3,
    STAGE_IDEAL = 4,
    STAGE_CORRECTION = 5
};
uint64_t learner_seed(const struct learner *learner, enum learner_stage stage);

/* Batches of a view: for training, and for testing. */
struct loader_options learner_batches(const struct learner *learner, const struct data_view *view,
                                      enum learner_stage stage);
struct loader_options learner_test_batches(const struct learner *learner,
                                           const struct data_view *view, enum data_split split);

/* D_t with M_t for a step with n_new classes, or all data so far. Caller frees with view_free. */
NODISCARD enum der_status learner_training_view(struct learner *learner, int n_new,
                                                struct data_view **out);

/* Desks for a matrix of so many columns. */
void learner_desks(const struct learner *learner, int64_t feature_dim, struct desks *desks);

/* What the step that is being learnt is called in messages, from 1. */
static inline int learner_step_number(const struct learner *learner)
{
    return learner->options.steps_before + learner->step + 1;
}

/* "step 2, classifier": what progress and records call a stage. */
enum { LEARNER_STAGE_NAME = 64 };
const char *learner_stage_name(const struct learner *learner, enum learner_stage stage,
                               char text[LEARNER_STAGE_NAME]);

/* The first step has a schedule of its own. */
const struct schedule *learner_schedule(const struct learner *learner);

void learner_drop_extractors(struct learner *learner);

/* H_{t-1} as training left it; NULL before the first step. */
struct param_set *learner_trained_head(const struct learner *learner);

/* Makes the features of the present extractors ready to be read; older programs are dropped. */
void learner_open_features(struct learner *learner);
void learner_close_features(struct learner *learner);

/* representation.c: trains a new extractor on `view` and leaves it, pruned, as the last of the learner's
 * extractors; *classifier receives H_t over all features, its columns pruned alike. */
NODISCARD enum der_status learn_representation(struct learner *learner,
                                               const struct data_view *view, int n_new,
                                               const struct train_hooks *hooks,
                                               struct param_set **classifier);

/* classifier.c: trains a fresh classifier for the labels below n_classes on the features of all
 * extractors. */
NODISCARD enum der_status learn_classifier(struct learner *learner, const struct data_view *view,
                                           enum learner_stage stage,
                                           const struct train_hooks *hooks,
                                           struct param_set **classifier);

/* delta of such a stage, for the extractors that there are. */
double learner_temperature(const struct learner *learner);

/* learner_resume.c: is it time to save after so many epochs of a stage? */
bool learner_saves_at(const struct learner *learner, int epochs_done, int epochs);

/* Checks that a state fits the stage which continues from it. */
NODISCARD enum der_status learner_check_epoch(const struct learner *learner, int epochs);

/* Adds the last extractor at full width, and its masks, to what a state holds. */
void learner_add_last(const struct learner *learner, struct stage_point *point);

/* The same for the trained head, where the classifier is another one; and that head out of the state that the present
 * step goes on from, if it does. */
void learner_add_trained_head(const struct learner *learner, struct stage_point *point);
NODISCARD enum der_status learner_restore_trained_head(struct learner *learner);

/* The pruned extractor and the full one of a step whose first stage is over. */
NODISCARD enum der_status learner_restore_newest(struct learner *learner);

/* reading.c: a head that reads the features, with the rows [first, first + count) competing. */
struct reading {
    struct learner *learner;
    struct param_set *head;
    int first, count;
    bool keeps_guesses; /* tests keep what every image was taken for */
    struct assembly_cache assemblies;
};
void reading_fini(struct reading *reading);
/* Accuracy on the learner's test images of the classes [first, last). */
NODISCARD enum der_status reading_test(struct reading *reading, int first, int last,
                                       const struct train_hooks *hooks, struct evaluation *out);
/* features [*n, feature_dim] of training images, with the test transform, and items [*n] that say whose; room
 * for view->n of both. There are fewer where images do not decode and are skipped. */
NODISCARD enum der_status reading_features(struct reading *reading, const struct data_view *view,
                                           float *features, struct view_item *items, int64_t *n);

/* remember.c: shortens the memory, adds the classes from `first` on, ranked by herding, and ranks those before
 * it again that images have joined. `aside`, or NULL: images that were set aside, which get their places. */
NODISCARD enum der_status learner_remember(struct learner *learner, int first,
                                           const struct data_view *aside);

/* means.c: the classifier becomes one whose rows are the means of the exemplars' features; what was trained stays
 * with the learner, for the next step. */
NODISCARD enum der_status learner_read_means(struct learner *learner);

/* aside.c: splits what a step with n_new classes could be trained on: *aside has the images of old classes that no step
 * was trained on, and those of new ones that none will be. */
NODISCARD enum der_status learner_set_aside(const struct learner *learner,
                                            const struct data_view *view, int n_new,
                                            struct data_view **kept, struct data_view **aside);

/* correction.c: the classifier becomes one whose rows of the classes from n_old on are corrected by what images of
 * `aside` tell, as many of every class; what was trained stays with the learner. */
NODISCARD enum der_status learner_correct(struct learner *learner, const struct data_view *aside,
                                          int n_old);

#endif

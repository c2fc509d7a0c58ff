/*
 * A pupil: a model with what it needs to learn on, taught new classes days apart.
 *
 * Beside the model that is a few pictures of every class, some to train on again and some to test with, and the
 * newest extractor at full width. In memory they are one struct; on the disk they are three files (pupil_files.h).
 * Teaching makes a new pupil and leaves the old one as it is, so that whatever fails, the old one is there.
 */
#ifndef LEARN_PUPIL_H
#define LEARN_PUPIL_H

#include "method/learner.h"
#include "store/basis_file.h"

struct pupil {
    struct backend *be;
    struct model *model; /* NULL: it has learnt nothing yet, and there is nothing else */
    struct dataset
        *album; /* DATA_TRAIN: kept pictures, best rank first; DATA_TEST: held-out ones. Labels are
                            * the model's */
    struct basis basis;
};

void pupil_fini(struct pupil *pupil);

/* What may be said about a lesson; zero or NULL means the default. */
struct lesson_options {
    const char *network; /* of the first lesson */
    double width;        /* of the first lesson */
    int image_size;      /* of the first lesson */
    const char *init;    /* of the first lesson: file of weights to begin with; may be NULL */
    int epochs, classifier_epochs, batch;
    double lr;  /* of both stages */
    int memory; /* pictures kept of a class; later lessons begin with the value of the last */
    double
        validation; /* share of a class held out where the data have no test pictures; negative: none */
    int64_t target_params; /* of a new extractor; later lessons begin with the value of the last */
    uint64_t seed;
    enum bad_images bad_images;
    int loader_threads;
    struct train_hooks hooks;
};

/* What came of it. Accuracies are per cent of held-out pictures, NAN where there are none. */
struct lesson_report {
    int n_new, n_joined; /* classes that are new, and known ones that pictures have joined */
    int64_t n_taken;     /* new pictures trained on */
    int64_t n_known;     /* pictures left out because the model has them already */
    int64_t n_bad;       /* pictures that could not be used */
    int64_t n_held_old, n_held_new;
    double old_before, old_after; /* on classes that were known before */
    double new_after, all_after;
    int64_t params, params_total; /* of the extractors; with the classifier */
};

/* Teaches every class of `data`. `old` is not touched; *taught is freed with pupil_fini. Before the first lesson
 * old->model is NULL. Nothing is trained before all pictures have been read: a class without a usable picture, or
 * data without anything new, are DER_FORMAT. */
NODISCARD enum der_status pupil_teach(const struct pupil *old, const struct dataset *data,
                                      const struct lesson_options *options,
                                      struct lesson_report *report, struct pupil *taught);

#endif

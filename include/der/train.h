/*
 * Training: a method through a protocol on a data set, step by step, measured after every step.
 */
#ifndef DER_TRAIN_H
#define DER_TRAIN_H

#include <der/context.h>
#include <der/settings.h>

#include <stdbool.h>

/* Where training stands; averages since the epoch began. */
struct der_progress {
    const char *stage;               /* what is being trained: "step 2, classifier"; borrowed */
    int epoch, epochs;               /* from 0, in all */
    int64_t iteration, n_iterations; /* done in this epoch, in all of it */
    bool epoch_done;
    double lr, loss;
    double accuracy; /* per cent of the training images; negative: not measured */
    double images_per_second;
    double seconds, seconds_left; /* of the stage */
};

/* A finished step. Accuracies are per cent over all classes learnt so far. */
struct der_step {
    int step, n_steps; /* from 1; in all */
    int n_classes;     /* learnt so far */
    double top1, top5;
    double avg_top1, avg_top5;    /* means over the steps so far */
    double forgetting;            /* per cent */
    int64_t params, params_total; /* of the extractors; with the classifier */
    double avg_params;            /* mean over the steps, the classifier not counted */
    double seconds;
};

enum der_bad_images { DER_BAD_IMAGES_STOP, DER_BAD_IMAGES_SKIP };

/* Of convolutions. BF16 is for training: tests, predictions and the choice of exemplars then run in TF32. */
enum der_precision { DER_PRECISION_F32, DER_PRECISION_TF32, DER_PRECISION_BF16 };

/* What is measured beyond accuracy, each for its price; bits that can be joined. */
enum der_measure {
    DER_MEASURE_REPRESENTATION =
        1,                    /* accuracy of the representation by an ideal classifier, backward
                                     * transfer and the bound of the classifier */
    DER_MEASURE_TRANSFER = 2, /* forward transfer too */
    DER_MEASURE_LATENCY = 4   /* of a prediction, pruned and unpruned */
};

/* Zero or NULL means the default in parentheses. */
struct der_train_options {
    const struct der_settings *settings; /* required; borrowed, as everything here */
    const char *data;                    /* folder of a data set, or "synth:..."; required */
    const char *class_list;              /* image folders: a file with the classes to use (all) */
    const char *init;    /* file of weights to begin with, as der_import takes them (at random) */
    const char *out;     /* folder for the run's files; the names above must be UTF-8 then (none) */
    const char *backend; /* "cpu", "ref" ... (the fastest there is) */
    enum der_precision precision;
    bool deterministic;             /* only algorithms that give the same bytes twice */
    int max_steps;                  /* stop after so many steps (all) */
    unsigned measure;               /* of enum der_measure (none) */
    int loader_threads;             /* threads that prepare batches (1) */
    enum der_bad_images bad_images; /* what to do with images that do not decode (stop) */
    void (*progress)(void *user, const struct der_progress *progress);
    void (*step)(void *user, const struct der_step *step);
    bool (*cancelled)(void *user); /* true ends training with DER_CANCELLED */
    void *user;                    /* argument of the three */
    /* Go on with the run in `out`, to the very bytes that it would have come to without the interruption; where
     * there is no run yet, begin it. Settings (otherwise those of the preset custom), data and back end may be
     * left NULL, since a run knows its own; what is given must be what it was started with, as must be all else
     * that der_run_start tells. Settings are compared in full: der_settings_resume completes some by the run's. Data
     * that a finished run is given are opened and compared only under another name than it was started with. Only
     * the back end may be another, with any precision and threads: the run then goes on there, the log is warned,
     * and its last bits are others. */
    bool resume;
    /* Folder for event files that TensorBoard reads, made if it is not there (none). When they can no longer be
     * written, that is told to the log and the run goes on. */
    const char *tensorboard;
    int save_every; /* epochs from save to save within a step (10, at most every 15 s); negative: only after steps */
};

/* What was not measured is NAN. */
struct der_train_result {
    int steps, n_classes;
    int64_t n_train, n_test; /* images */
    bool on_validation;      /* tested on held-out training images */
    struct der_step last;
    double bwt, fwt;         /* backward and forward transfer, per cent */
    double classifier_bound; /* mean over the steps */
    double seconds;          /* of this call */
    bool
        was_finished; /* resume: there was nothing left to do; of the rest only `last` is filled in */
};

/* Trains and tests. A run with a folder can be ended at any moment, by the cancel function or by force: its
 * latest save stays good. One that fails before its first epoch is done leaves no run in the folder, and another
 * can begin there. */
DER_API DER_NODISCARD enum der_status der_train(struct der_ctx *ctx,
                                                const struct der_train_options *options,
                                                struct der_train_result *result);

#endif

/*
 * The one training loop. It runs any stage of any method: what is computed is the stage's, when it
 * is computed is the loop's.
 *
 * A stage compiles a program for every batch size it meets (the full one and the tail of an epoch)
 * and says what its scalars are in each iteration; the loop feeds batches, follows the schedule, averages
 * the losses, watches for numbers that leave the finite range, reports progress and stops on request.
 *
 * A back end that works on after a call has returned is only looked at a few times a second: what an
 * iteration gave is kept there (feeder.h) and added up later, in the same order.
 */
#ifndef TRAIN_LOOP_H
#define TRAIN_LOOP_H

#include "train/feeder.h"
#include "train/schedule.h"

/* Where the loop stands. */
struct moment {
    int epoch;            /* from 0 */
    int64_t iteration;    /* within the epoch, from 0 */
    int64_t n_iterations; /* of the epoch, the tail counted */
    double lr;
};

struct stage_ops {
    /* Compiled at the first call for a batch size. */
    NODISCARD enum der_status (*program)(void *self, int batch, struct stage_program *out);
    /* Will `epoch` throw away what was compiled? The loop lets go of it before; NULL: never. */
    bool (*renews)(const void *self, int epoch);
    /* At the start of an epoch; NULL: nothing to do. */
    NODISCARD enum der_status (*epoch)(void *self, int epoch);
    /* After the last iteration of an epoch, before it is reported; NULL: nothing to do. */
    NODISCARD enum der_status (*epoch_end)(void *self, int epoch);
    /* Learning rate, loss weights and so on of an iteration; asked for a whole epoch after `epoch`. */
    void (*scalars)(void *self, const struct moment *now, float scalars[STAGE_MAX_SCALARS]);
    /* After an epoch was reported, with the number of epochs done: the place to save what would be needed to
     * go on from here; NULL: nothing to do. */
    NODISCARD enum der_status (*save)(void *self, int epochs_done);
};

struct stage {
    const char *name; /* for messages: "step 2, representation" */
    const struct stage_ops *ops;
    void *self;                    /* argument of ops */
    const char *const *loss_names; /* [n_losses] */
    int n_losses;
    struct schedule schedule;
    struct loader_options data; /* mode LOADER_TRAIN */
    struct backend *be;         /* where the programs run */
    struct resident *resident;  /* images that it holds, or NULL */
};

/* Averages since the epoch began. */
struct train_progress {
    const char *stage;
    int epoch, epochs;               /* from 0, in all */
    int64_t iteration, n_iterations; /* done in this epoch, in all of it */
    bool epoch_done;
    double lr;
    double losses[STAGE_MAX_LOSSES];
    int n_losses;
    const char *const *loss_names;
    double accuracy; /* per cent of training images; negative: not measured */
    double images_per_second;
    int64_t iterations_run; /* since the stage began or was resumed */
    double seconds;         /* since then */
    double seconds_left;    /* at this rate */
};

struct train_hooks {
    void (*progress)(void *user, const struct train_progress *progress); /* may be NULL */
    /* After the last progress of an epoch, for who writes it down: a failure ends the work; may be NULL. */
    NODISCARD enum der_status (*epoch_done)(void *user, const struct train_progress *progress);
    void (*tested)(void *user, int64_t done,
                   int64_t n);     /* images of a test so far, in all; may be NULL */
    bool (*cancelled)(void *user); /* may be NULL; true ends the work with DER_CANCELLED */
    void *user;                    /* argument of all four */
};

/* True when the hooks ask for an end. */
bool train_cancelled(const struct train_hooks *hooks);

/* Runs the epochs from `first_epoch` on. DER_NUMERIC names stage, loss, epoch and batch when a loss
 * is no longer finite or has left every sensible range. */
NODISCARD enum der_status train_stage(struct der_ctx *ctx, const struct stage *stage,
                                      int first_epoch, const struct train_hooks *hooks);

#endif

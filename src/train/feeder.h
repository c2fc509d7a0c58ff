/*
 * A feeder runs the batches of a loader's options through compiled programs, one after the other, and keeps
 * what they give until somebody asks.
 *
 * Where the back end holds the images (resident.h) an iteration is FEED, the stage's programs and TALLY in one
 * sequence: order, scalars and clock are written once an epoch, and the caller only launches. Otherwise a
 * loader makes the batches and they are written before each run; TALLY keeps the results all the same.
 * Both give the same numbers, and neither waits for one.
 */
#ifndef TRAIN_FEEDER_H
#define TRAIN_FEEDER_H

#include "data/loader.h"
#include "train/resident.h"

enum { STAGE_MAX_LOSSES = 8, STAGE_MAX_SCALARS = 8 };

/* What a stage has compiled for one batch size. Borrowed from the stage. */
struct stage_program {
    struct sequence *sequence;
    struct buffer *image;   /* [batch, c, h, w] */
    struct buffer *labels;  /* i32 [batch] */
    struct buffer *scalars; /* [STAGE_MAX_SCALARS], or NULL: it has none */
    struct buffer *losses;  /* [n_losses]; NULL when n_losses is 0 */
    struct buffer *rank;    /* i32 [batch], or NULL: accuracy is not measured */
    struct buffer *logits;  /* [batch, n_logits], or NULL: they stay inside */
    int n_logits;
    struct buffer *matrix; /* [batch, columns] features */
};

struct feeder_options {
    struct backend *be;
    struct resident *resident; /* or NULL: batches come from the host */
    const struct loader_options *data;
    int n_losses;      /* kept of every iteration */
    bool ranks;        /* kept of every row, where the program has them */
    int64_t n_columns; /* of the feature matrix, kept of every row; 0: none */
};

struct feeder;

/* Caller frees with feeder_free, before the programs it ran (or after feeder_forget). */
NODISCARD enum der_status feeder_new(struct der_ctx *ctx, const struct feeder_options *options,
                                     struct feeder **out);
void feeder_free(struct feeder *feeder);

/* Lets go of the programs that it ran, between epochs: others may come in their places. */
void feeder_forget(struct feeder *feeder);

/* Batches of an epoch, and images, those that will be left out counted. */
int64_t feeder_batches(const struct feeder *feeder);
int64_t feeder_images(const struct feeder *feeder);

/* Begins an epoch. scalars: [feeder_batches][STAGE_MAX_SCALARS], borrowed until the epoch is over; NULL where
 * the programs have none. */
NODISCARD enum der_status feeder_start(struct feeder *feeder, uint32_t epoch, const float *scalars);

/* Makes the next batch ready; *rows is how many it has, 0 when the epoch is over. In evaluation programs are
 * for full batches, whatever the rows. */
NODISCARD enum der_status feeder_next(struct feeder *feeder, int *rows);

/* Runs the program on that batch. May return before the work is done. */
NODISCARD enum der_status feeder_run(struct feeder *feeder, const struct stage_program *program);

/* What iterations [first, end) of the epoch gave; these wait. A row i of iteration b is number
 * b * batch + i of the rows, whether the batch is full or not. */
NODISCARD enum der_status feeder_losses(const struct feeder *feeder, int64_t first, int64_t end,
                                        float *losses);
NODISCARD enum der_status feeder_ranks(const struct feeder *feeder, int64_t first, int64_t end,
                                       int32_t *ranks);
/* features [rows of the epoch, n_columns], without those of images that were left out. */
NODISCARD enum der_status feeder_features(const struct feeder *feeder, float *features);

/* Labels by row of what was run in this epoch; -1 where a batch has no such row. */
const int32_t *feeder_labels(const struct feeder *feeder);
/* Positions in the split, by row as the labels; undefined where a batch has no such row. */
const int64_t *feeder_samples(const struct feeder *feeder);

#endif

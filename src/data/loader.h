/*
 * The loader: batches of augmented images, made ahead of whoever trains on them.
 *
 * Threads fill a fixed set of batch buffers, in pieces of a few images, and nothing is allocated
 * once a loader runs on a set in memory (buffers of file decoders grow to the largest image). What
 * a batch holds is a pure function of view, seed, epoch and batch number: any number of threads
 * gives the same bytes, and an epoch can be entered at any batch.
 *
 * One thread uses a loader; only loader_cancel may come from another one.
 */
#ifndef DATA_LOADER_H
#define DATA_LOADER_H

#include "data/augment.h"
#include "data/view.h"

enum loader_mode {
    LOADER_TRAIN, /* shuffled; a last batch of one image is dropped */
    LOADER_EVAL   /* every item once, in the order of the view */
};

/* What happens when an image does not decode, cannot be had, or has a size that the augmentation cannot use. */
enum bad_images {
    BAD_IMAGES_STOP, /* loader_next fails and names the first one in batch order */
    BAD_IMAGES_SKIP  /* each is logged once and counted. In training its row repeats the next good
                      * one of the batch (after the last comes the first), since batches have a
                      * fixed size; in evaluation the batch is shorter, so nothing counts twice */
};

/* Is a failure one of the image, and not of the machine? */
bool loader_can_skip(enum der_status status);

struct loader_options {
    const struct dataset *set;          /* borrowed, as are the next three */
    const struct data_view *view;       /* of the split below */
    const struct augment_spec *augment; /* copied */
    const struct file_io *io;           /* how files are read; NULL: read(2) */
    enum data_split split;
    enum loader_mode mode;
    enum bad_images bad_images;
    int batch;     /* images of a full batch */
    int threads;   /* 0: loader_next does the work itself */
    int n_buffers; /* batches in the making or in use; 0: LOADER_BUFFERS */
    uint64_t seed; /* of order and augmentation */
};

enum { LOADER_BUFFERS = 3 };

struct batch {
    int64_t number;   /* within the epoch, from 0 */
    int n;            /* rows */
    float *images;    /* [n][channels][height][width] of the augmentation */
    int32_t *labels;  /* [n] */
    int64_t *samples; /* [n] positions in the split */
};

struct loader;

/* Can the augmentation make images of this split what they are to be? Of images in files, which may have any size,
 * only the loader will tell. */
NODISCARD enum der_status loader_check(struct der_ctx *ctx, const struct dataset *set,
                                       enum data_split split, const struct augment_spec *augment);

/* Starts the threads. Caller frees with loader_free. */
NODISCARD enum der_status loader_new(struct der_ctx *ctx, const struct loader_options *options,
                                     struct loader **out);

/* Ends the threads and frees everything, at any time. */
void loader_free(struct loader *loader);

/* Batches of an epoch. */
int64_t loader_batches(const struct loader *loader);

/* Distinct images that could not be used so far. */
int64_t loader_bad(const struct loader *loader);

/* Begins an epoch at a batch, whatever was going on before. */
NODISCARD enum der_status loader_start(struct loader *loader, uint32_t epoch, int64_t first_batch);

/* The next batch, borrowed until the next call of loader_next, loader_start or loader_free; NULL
 * when the epoch is over. After a failure only loader_start and loader_free are of use. */
NODISCARD enum der_status loader_next(struct loader *loader, const struct batch **out);

/* Makes the present and every later loader_next and loader_start fail with DER_CANCELLED. */
void loader_cancel(struct loader *loader);

#endif

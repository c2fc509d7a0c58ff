/*
 * Image sets that a back end holds: the bytes of a split go there once, and every stage of every step makes
 * its batches from them.
 */
#ifndef TRAIN_RESIDENT_H
#define TRAIN_RESIDENT_H

#include "data/dataset.h"
#include "graph/backend.h"

struct resident {
    struct backend *be;
    const struct dataset *set;
    bool is_wanted; /* false: batches are made on the host */
    struct buffer *pixels[DATA_SPLITS];
    bool is_refused[DATA_SPLITS]; /* tried in vain, and said so */
};

/* Wanted where the back end has memory of its own; takes no memory yet. The set must outlive it. */
void resident_init(struct resident *resident, struct backend *be, const struct dataset *set);
void resident_fini(struct resident *resident);

/* The bytes [n][channels][height][width] of a split, uploaded at the first call; *out is NULL when they are
 * not wanted, lie in files or do not fit: batches are then streamed. */
NODISCARD enum der_status resident_pixels(struct resident *resident, enum data_split split,
                                          struct buffer **out);

/* Makes room for something that did not fit: whatever is held is let go of, and batches are streamed from then on.
 * False: nothing was held. No feeder may be using it. */
bool resident_let_go(struct resident *resident);

#endif

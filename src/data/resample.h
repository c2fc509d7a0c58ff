/*
 * Bilinear resizing of bytes with antialiasing, bit for bit what Pillow's Image.resize does.
 *
 * Two passes, along rows and then along columns, each rounding to bytes; weights are a triangle as
 * wide as the reduction asks for, in fixed point with 22 fractional bits.
 */
#ifndef DATA_RESAMPLE_H
#define DATA_RESAMPLE_H

#include "data/dataset.h"

#include <stdbool.h>

/* One direction of a resize: the stretch [begin, end) of the source becomes `size` pixels, of which
 * `count` from `first` on are wanted (a crop of the result costs no more than its own pixels). */
struct resample_axis {
    double begin, end; /* in source pixels, within the source */
    int size;          /* of the whole result */
    int first, count;  /* what is wanted of it */
};

/* Weights of one axis, and memory that grows to the largest image met and is then reused. */
struct resample_weights {
    int32_t *weight; /* [count][taps] */
    int32_t *from;   /* [count] first source pixel of every result pixel */
    int32_t *n;      /* [count] source pixels it is made of, at most taps */
    int taps;
    size_t weight_bytes, from_bytes, n_bytes; /* of the blocks above */
};

/* Working memory of one thread. Zeroed but for `mem`, it is ready. */
struct resample {
    struct mem *mem;
    bool is_portable; /* leave out what this processor has beyond the common; for tests */
    struct resample_weights across, down;
    uint8_t *columns;  /* [source columns needed][channels][source rows needed, rounded up] */
    uint8_t *narrowed; /* [result columns][channels][source rows needed, rounded up] */
    uint8_t *rows;     /* [source rows needed][result columns, rounded up], of one channel */
    uint8_t *result;   /* [channels][result rows][result columns, rounded up] */
    size_t columns_bytes, narrowed_bytes, rows_bytes, result_bytes;
};

/* Resizes an image whose channels are interleaved without gaps, or planes whose rows have none.
 * *out is a planar view of memory that belongs to `work`, borrowed until the next call.
 * DER_NOMEM is the only failure, and it leaves the message to the caller. */
NODISCARD enum der_status resample_apply(struct resample *work, const struct image_view *src,
                                         const struct resample_axis *across,
                                         const struct resample_axis *down, struct image_view *out);

void resample_fini(struct resample *work);

#endif

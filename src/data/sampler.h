/*
 * The order in which an epoch visits the items of a view, cut into batches.
 *
 * The order is a pure function of (seed, epoch), so an epoch can be entered at any batch, by any
 * number of threads, in a resumed run as in an unbroken one.
 */
#ifndef DATA_SAMPLER_H
#define DATA_SAMPLER_H

#include "core/ctx.h"

#include <stdbool.h>

struct sampler {
    struct mem *mem;
    int64_t n;      /* items */
    int batch;      /* items of a full batch */
    bool training;  /* shuffled, and a tail of one item is dropped */
    int64_t *order; /* [n] item at every position of the epoch */
};

/* For training the items are shuffled by sampler_epoch, and a last batch of a single item is left
 * out, since batch norm has nothing to normalise there; otherwise every item comes, in order. */
NODISCARD enum der_status sampler_init(struct der_ctx *ctx, int64_t n, int batch, bool training,
                                       struct sampler *sampler);
void sampler_fini(struct sampler *sampler);

/* Lays out an epoch. */
void sampler_epoch(struct sampler *sampler, uint64_t seed, uint32_t epoch);

/* Batches of an epoch. */
int64_t sampler_batches(const struct sampler *sampler);

/* Batch b of the epoch: its items, and through `n_items` how many they are. */
const int64_t *sampler_batch(const struct sampler *sampler, int64_t b, int *n_items);

#endif

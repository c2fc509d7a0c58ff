/*
 * Is there an image of every class that can be used? Asked where bad images are skipped: a class of which nothing
 * is left would be trained without, tested without, and reported as if it were there.
 */
#ifndef DATA_READABLE_H
#define DATA_READABLE_H

#include "data/loader.h"

/* Tries the images of every label below n_labels until one can be had, which is the first as a rule. DER_FORMAT
 * names a class of which none can. Of `data` it takes set, view, split, augment and io. */
NODISCARD enum der_status readable_check(struct der_ctx *ctx, const struct loader_options *data,
                                         int n_labels);

#endif

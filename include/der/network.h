/*
 * The networks that can serve as feature extractors.
 */
#ifndef DER_NETWORK_H
#define DER_NETWORK_H

#include <der/context.h>

/* One network at its published width. Strings are of static storage. */
struct der_network_info {
    const char *name;      /* as settings and flags take it */
    const char *summary;   /* one line */
    int64_t parameters;    /* learnt numbers, the classifier not counted */
    int features;          /* length of the feature vector */
    int maskable_channels; /* channels that learned masks can prune */
};

/* How many networks there are. */
DER_API int der_network_count(void);

/* Describes network `index` (from 0) for images of `channels` colour channels. */
DER_API DER_NODISCARD enum der_status der_network_describe(struct der_ctx *ctx, int index,
                                                           int channels,
                                                           struct der_network_info *out);

#endif

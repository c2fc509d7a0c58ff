/*
 * Sets of pictures, each known by a fingerprint of its size and bytes: whether a model has met a picture before can
 * be told without keeping the picture.
 */
#ifndef DATA_PICTURE_SET_H
#define DATA_PICTURE_SET_H

#include "data/view.h"

struct picture_set {
    struct der_ctx *ctx; /* whose memory it is; NULL: the set is empty */
    uint64_t *marks;     /* [n] rising */
    int64_t n;
};

void picture_set_fini(struct picture_set *set);

/* All pictures of both splits of a data set that lies in memory; of none when `data` is NULL. */
NODISCARD enum der_status picture_set_of(struct der_ctx *ctx, const struct dataset *data,
                                         struct picture_set *out);

/* The pictures of `set`, and those of a split of `data` that `view` names. */
NODISCARD enum der_status picture_set_with(struct der_ctx *ctx, const struct picture_set *set,
                                           const struct dataset *data, enum data_split split,
                                           const struct data_view *view, struct picture_set *out);

bool picture_set_has(const struct picture_set *set, const struct image_view *picture);

#endif

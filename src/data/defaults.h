/*
 * What a data set is trained and tested with when nobody says otherwise.
 */
#ifndef DATA_DEFAULTS_H
#define DATA_DEFAULTS_H

#include "data/augment.h"

/* CIFAR: the paper's augmentation; files, sources and images of various sizes: ImageNet's; other sets in
 * memory: a crop out of an eighth of padding, no flip (it would turn digits into others), and the mean and
 * deviation of the training pixels. */
NODISCARD enum der_status augment_defaults(const struct dataset *set, bool training,
                                           struct augment_spec *out);

#endif

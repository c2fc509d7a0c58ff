/*
 * The mask parameters e of one extractor: how they start, what they keep, and fitting that to a size.
 *
 * An extractor has one mask per residual stream and one per block inside (model/resnet.h); m = sigmoid(s e)
 * while they are learnt, m = [e > 0] once they are hard.
 */
#ifndef METHOD_MASKS_H
#define METHOD_MASKS_H

#include "config/config.h"
#include "model/prune.h"

/* Trainable masks for a network of full width. Caller frees with param_set_free. */
NODISCARD enum der_status masks_new(struct backend *be, const struct resnet_spec *spec,
                                    enum mask_init init, uint64_t seed, uint32_t stream,
                                    struct param_set **out);

/* Adds `by` to every e whose channel the masks `last`, of the same network, keep. */
NODISCARD enum der_status masks_lean(struct param_set *masks, const struct param_set *last,
                                     const struct resnet_spec *spec, double by);

/* The channels that stay if the masks are made hard now. Free with kept_fini. */
NODISCARD enum der_status masks_kept(const struct param_set *masks, const struct resnet_spec *spec,
                                     struct kept *out);

/* Parameters of the network that stays if the masks are made hard now. */
NODISCARD enum der_status masks_kept_params(const struct param_set *masks,
                                            const struct resnet_spec *spec, int64_t *out);

/* Channels that every mask keeps: `share` of what would be left of it if all were cut alike, down to a network of
 * `target` parameters. Zeros for a share of 0 and where any size will do (target 0); false then. */
bool masks_least(const struct resnet_spec *spec, int64_t target, double share,
                 int least[RESNET_MAX_MASKS]);

/* Adds one constant to all e, so that what stays has as nearly as possible `target` parameters: the
 * order of the channels, which training found, decides. The highest `least` of every mask, at most all, stay: these
 * are put above all others before. */
NODISCARD enum der_status masks_fit(struct param_set *masks, const struct resnet_spec *spec,
                                    int64_t target, const int least[RESNET_MAX_MASKS]);

/* Shuffles the e of every mask: as many channels stay, but others. A pure function of seed and stream. */
NODISCARD enum der_status masks_shuffle(struct param_set *masks, uint64_t seed, uint32_t stream);

#endif

/*
 * Physical pruning: a network with hard masks becomes a small dense one that computes the same.
 *
 * Masks are shared where an identity shortcut ties channels together (one per stage for the residual
 * stream, one per block inside), so removing the masked channels of every layer leaves a network of the
 * same kind with other widths, and nothing has to be gathered or scattered.
 */
#ifndef MODEL_PRUNE_H
#define MODEL_PRUNE_H

#include "model/resnet.h"

/* Channels that stay, mask by mask (numbered as resnet_mask_count does). */
struct kept {
    int n_masks;
    int count[RESNET_MAX_MASKS];        /* at least 1 */
    int32_t *channel[RESNET_MAX_MASKS]; /* [count] ascending */
    int32_t *storage;                   /* all of them; owned */
};

/* Keeps what MASK_GATE keeps with s infinite: every e > 0, and where there is none the largest, the
 * first of equals. e[i] has resnet_mask_channels(spec, i) values. Free with kept_fini. */
NODISCARD enum der_status kept_from_masks(struct der_ctx *ctx, const struct resnet_spec *spec,
                                          const float *const *e, struct kept *out);
void kept_fini(struct der_ctx *ctx, struct kept *kept);

/* The network that remains. */
struct resnet_spec pruned_spec(const struct resnet_spec *spec, const struct kept *kept);

/* The sparsity loss of hard masks: weights of convolutions that stay, as a share of all. */
double pruned_share(const struct resnet_spec *spec, const struct resnet_spec *pruned);

/* Copies the rows and columns that stay into a set declared for pruned_spec; where both sets are in training,
 * the velocities too. */
NODISCARD enum der_status prune_params(const struct resnet_spec *spec, const struct kept *kept,
                                       const struct param_set *from, struct param_set *to);

/* The way back: `from` are the parameters of the pruned network, `to` those of the whole one, which keeps its
 * other rows and columns. */
NODISCARD enum der_status unprune_params(const struct resnet_spec *spec, const struct kept *kept,
                                         const struct param_set *from, struct param_set *to);

#endif

/*
 * Learning rate by epoch: linear warm-up, then a constant that is multiplied at given epochs.
 */
#ifndef TRAIN_SCHEDULE_H
#define TRAIN_SCHEDULE_H

#include "core/ctx.h"

enum { SCHEDULE_MAX_DROPS = 8 };

struct schedule {
    double lr;         /* the rate the warm-up ends with */
    int epochs;        /* in all, warm-up included */
    int warmup_epochs; /* epoch e of it (from 0) runs at lr * (e + 1) / warmup_epochs */
    int n_drops;
    int drop
        [SCHEDULE_MAX_DROPS]; /* epochs (from 0, warm-up included) where the rate falls, ascending */
    double factor;            /* what it is multiplied with at each drop */
};

/* Ascending drops behind the warm-up, positive numbers. */
NODISCARD enum der_status schedule_check(struct der_ctx *ctx, const struct schedule *schedule);

/* The rate of an epoch, counted from 0. */
double schedule_lr(const struct schedule *schedule, int epoch);

/* The same shape squeezed into `epochs` epochs (for short runs): every boundary scaled and rounded,
 * none lost or out of order as far as there is room. */
struct schedule schedule_scaled(const struct schedule *schedule, int epochs);

/* The paper's CIFAR schedule: 10 + 160 epochs, 0.1, x0.1 at 110 and 130. */
struct schedule schedule_cifar(void);

#endif

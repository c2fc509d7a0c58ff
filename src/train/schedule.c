#include "train/schedule.h"

#include <math.h>

enum der_status schedule_check(struct der_ctx *ctx, const struct schedule *schedule)
{
    if (!(schedule->lr > 0.0) || !(schedule->factor > 0.0) || schedule->epochs < 1)
        return ctx_fail(ctx, DER_ARG, "a schedule needs a positive rate, factor and epoch count");
    if (schedule->warmup_epochs < 0 || schedule->warmup_epochs > schedule->epochs)
        return ctx_fail(ctx, DER_ARG, "a warm-up of %d epochs does not fit into %d",
                        schedule->warmup_epochs, schedule->epochs);
    if (schedule->n_drops < 0 || schedule->n_drops > SCHEDULE_MAX_DROPS)
        return ctx_fail(ctx, DER_ARG, "a schedule has at most %d drops", SCHEDULE_MAX_DROPS);
    for (int i = 0; i < schedule->n_drops; i++)
        if (schedule->drop[i] < schedule->warmup_epochs ||
            (i > 0 && schedule->drop[i] <= schedule->drop[i - 1]))
            return ctx_fail(ctx, DER_ARG,
                            "the rate drops at epoch %d: drops ascend and follow the warm-up",
                            schedule->drop[i]);
    return DER_OK;
}

double schedule_lr(const struct schedule *schedule, int epoch)
{
    if (epoch < schedule->warmup_epochs)
        return schedule->lr * (epoch + 1) / schedule->warmup_epochs;
    double lr = schedule->lr;
    for (int i = 0; i < schedule->n_drops && epoch >= schedule->drop[i]; i++)
        lr *= schedule->factor;
    return lr;
}

struct schedule schedule_scaled(const struct schedule *schedule, int epochs)
{
    struct schedule scaled = *schedule;
    double ratio = (double)epochs / schedule->epochs;
    scaled.epochs = epochs;
    scaled.warmup_epochs = (int)lround(schedule->warmup_epochs * ratio);
    scaled.n_drops = 0;
    int previous = scaled.warmup_epochs - 1;
    for (int i = 0; i < schedule->n_drops; i++) {
        int drop = (int)lround(schedule->drop[i] * ratio);
        if (drop <= previous)
            drop = previous + 1;
        if (drop >= epochs)
            break;
        scaled.drop[scaled.n_drops++] = drop;
        previous = drop;
    }
    return scaled;
}

struct schedule schedule_cifar(void)
{
    return (struct schedule){.lr = 0.1,
                             .epochs = 170,
                             .warmup_epochs = 10,
                             .n_drops = 2,
                             .drop = {110, 130},
                             .factor = 0.1};
}

/*
 * Rules over a whole configuration: when masks harden, how classes fall into steps, what goes
 * together.
 */
#include "config/config.h"

#include "config/setting.h"

#include <math.h>
#include <string.h>

enum { HARD_PERCENT = 25, PAPER_ORDER_CLASSES = 100 };

/* The first drop of the rate past HARD_PERCENT of the epochs; without one their end. */
static int first_late_drop(const struct schedule *schedule)
{
    for (int i = 0; i < schedule->n_drops; i++)
        if ((int64_t)schedule->drop[i] * 100 > (int64_t)schedule->epochs * HARD_PERCENT)
            return schedule->drop[i] < schedule->epochs ? schedule->drop[i] : schedule->epochs;
    return schedule->epochs;
}

int config_hard_epoch(const struct config *config, const struct schedule *schedule)
{
    if (config->hard_epoch != HARD_EPOCH_AUTO)
        return config->hard_epoch < schedule->epochs ? config->hard_epoch : schedule->epochs;
    const int drop = first_late_drop(schedule);
    if (config->hard_share == 0.0)
        return drop;
    const int share = (int)ceil(config->hard_share * schedule->epochs);
    return share < drop ? share : drop;
}

/* Classes of a step that begins with `left` classes to go; 0 in the settings means all of them. */
static int take(int wanted, int left)
{
    return wanted > 0 && wanted < left ? wanted : left;
}

int config_step_classes(const struct config *config, int n_classes, int step)
{
    int base = config->base_classes > 0 ? config->base_classes : config->step_classes;
    int now = take(base, n_classes);
    int left = n_classes - now;
    for (int t = 0; t < step && now > 0; t++) {
        now = take(config->step_classes, left);
        left -= now;
    }
    return now;
}

int config_steps(const struct config *config, int n_classes)
{
    int base = config_step_classes(config, n_classes, 0);
    int left = n_classes - base;
    if (base == 0 || left == 0)
        return base > 0;
    int each = take(config->step_classes, left);
    return 1 + left / each + (left % each > 0);
}

const char *config_augment(const struct config *config, bool training)
{
    static const struct {
        const char *name, *training, *testing;
    } families[] = {
        {"cifar100", "cifar100-train", "cifar100-test"},
        {"cifar10", "cifar10-train", "cifar10-test"},
        {"imagenet", "imagenet-train", "imagenet-test"},
        {"imagenet-shorter-side", "imagenet-train", "imagenet-test-shorter-side"},
    };
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++)
        if (strcmp(config->augment, families[i].name) == 0)
            return training ? families[i].training : families[i].testing;
    return NULL;
}

/* What setting_store refuses must not lie in a configuration that was filled otherwise. */
static enum der_status check_ranges(struct der_ctx *ctx, const struct config *config)
{
    struct config scratch = *config;
    for (int i = 0; i < n_settings; i++) {
        char text[SETTING_TEXT_MAX];
        setting_format(&setting_table[i], config, text);
        TRY(setting_store(ctx, &setting_table[i], text, &scratch));
    }
    return DER_OK;
}

/* schedule_check, and drops that are reached. `prefix` opens the names of the schedule's keys. */
static enum der_status check_schedule(struct der_ctx *ctx, const char *prefix,
                                      const struct schedule *schedule)
{
    if (schedule->warmup_epochs > schedule->epochs)
        return ctx_fail(ctx, DER_ARG, "%swarmup_epochs=%d do not fit into %sepochs=%d", prefix,
                        schedule->warmup_epochs, prefix, schedule->epochs);
    for (int i = 0; i < schedule->n_drops; i++)
        if (schedule->drop[i] < schedule->warmup_epochs || schedule->drop[i] >= schedule->epochs)
            return ctx_fail(ctx, DER_ARG,
                            "%sdrops has epoch %d: drops follow the warm-up (%d epochs) and lie "
                            "below %sepochs=%d",
                            prefix, schedule->drop[i], schedule->warmup_epochs, prefix,
                            schedule->epochs);
    return schedule_check(ctx, schedule);
}

static enum der_status check_protocol(struct der_ctx *ctx, const struct config *config)
{
    if (config->classes > 0 && config->base_classes > config->classes)
        return ctx_fail(ctx, DER_ARG, "base_classes=%d is more than classes=%d",
                        config->base_classes, config->classes);
    bool is_paper_order =
        strlen(config->order) == 1 && strchr("123", config->order[0]) && config->order[0];
    if (is_paper_order && config->classes > 0 && config->classes != PAPER_ORDER_CLASSES)
        return ctx_fail(ctx, DER_ARG,
                        "order=%s is one of the paper's for %d classes; this set has %d: use "
                        "seed:N or a file",
                        config->order, PAPER_ORDER_CLASSES, config->classes);
    if (config->memory == 0 && config->second_stage)
        return ctx_fail(ctx, DER_ARG,
                        "second_stage=true trains on kept images, but memory=0: set "
                        "second_stage=false or keep some");
    return DER_OK;
}

static enum der_status check_method(struct der_ctx *ctx, const struct config *config)
{
    if (config->prune && !config->expand)
        return ctx_fail(ctx, DER_ARG,
                        "prune=true needs expand=true: an extractor that is trained on in later "
                        "steps cannot lose channels; set prune=false");
    if (config->auxiliary && !config->expand)
        return ctx_fail(
            ctx, DER_ARG,
            "auxiliary=true needs expand=true: the auxiliary loss makes a new extractor "
            "differ from the old ones; set auxiliary=false");
    if (config->method != METHOD_DER && config->expand)
        return ctx_fail(ctx, DER_ARG,
                        "expand=true: every method but der has one extractor; use method=der");
    if (config->method == METHOD_JOINT && config->second_stage)
        return ctx_fail(ctx, DER_ARG,
                        "second_stage=true: joint training has all images, a balanced subset "
                        "would be less; set second_stage=false");
    int longest = config->first.epochs > config->representation.epochs
                      ? config->first.epochs
                      : config->representation.epochs;
    if (config->hard_epoch > longest)
        return ctx_fail(ctx, DER_ARG, "hard_epoch=%d lies past the last of %d epochs",
                        config->hard_epoch, longest);
    return DER_OK;
}

/* Whatever the paper's comparators do to a step. */
static enum der_status check_comparators(struct der_ctx *ctx, const struct config *config)
{
    static const char *const teaching[] = {[DISTILL_ADDED] = "added", [DISTILL_SHARED] = "shared"};
    static const char *const what[] = {[READOUT_ALIGNED] = "aligned",
                                       [READOUT_MEANS] = "means",
                                       [READOUT_CORRECTED] = "corrected"};
    if (config->distill != DISTILL_NONE && config->expand)
        return ctx_fail(ctx, DER_ARG,
                        "distill=%s needs expand=false: extractors that are frozen forget nothing; "
                        "set distill=none",
                        teaching[config->distill]);
    if (config->distill != DISTILL_NONE && config->method == METHOD_JOINT)
        return ctx_fail(ctx, DER_ARG,
                        "distill=%s and method=joint: joint training begins anew at every step, "
                        "there is no network before it to learn from; set distill=none",
                        teaching[config->distill]);
    if (config->readout == READOUT_TRAINED)
        return DER_OK;
    if (config->method == METHOD_JOINT)
        return ctx_fail(ctx, DER_ARG,
                        "readout=%s is for classes of which few images are left; joint training "
                        "has all of them: set readout=trained",
                        what[config->readout]);
    if (config->second_stage)
        return ctx_fail(ctx, DER_ARG,
                        "readout=%s and second_stage=true both replace the classifier of a step: "
                        "set readout=trained or second_stage=false",
                        what[config->readout]);
    if (config->readout != READOUT_ALIGNED && config->memory == 0)
        return ctx_fail(ctx, DER_ARG,
                        "readout=%s goes by kept images, but memory=0: keep some or set "
                        "readout=trained",
                        what[config->readout]);
    return DER_OK;
}

enum der_status config_check(struct der_ctx *ctx, const struct config *config)
{
    TRY(check_ranges(ctx, config));
    TRY(check_schedule(ctx, "", &config->representation));
    TRY(check_schedule(ctx, "first_", &config->first));
    TRY(check_schedule(ctx, "classifier_", &config->classifier));
    TRY(check_protocol(ctx, config));
    TRY(check_method(ctx, config));
    return check_comparators(ctx, config);
}

enum der_status config_check_memory(struct der_ctx *ctx, const struct config *config, int n_classes,
                                    int n_steps)
{
    const bool needs_last = config->readout == READOUT_MEANS; /* classes of the last step too */
    const bool needs_two =
        config->readout == READOUT_CORRECTED; /* one to train on, one set aside */
    int n_known = 0;
    for (int t = 0; t + 1 < n_steps || (t < n_steps && needs_last); t++)
        n_known += config_step_classes(config, n_classes, t);
    if ((!config->second_stage && !needs_last && !needs_two) || n_known == 0 ||
        exemplar_quota(config->memory_mode, config->memory, n_known) > (needs_two ? 1 : 0))
        return DER_OK;
    if (needs_two)
        return ctx_fail(
            ctx, DER_ARG,
            "readout=corrected needs two kept images of every class known before step %d, one to "
            "train on and one set aside, but memory=%d is not enough: keep %d or more, or set "
            "readout=trained",
            n_steps, config->memory, config->memory_mode == MEMORY_PER_CLASS ? 2 : 2 * n_known);
    if (needs_last)
        return ctx_fail(ctx, DER_ARG,
                        "readout=means needs kept images of every class, but memory=%d in all is "
                        "not one for each of the %d classes of step %d: keep %d or more, or set "
                        "readout=trained",
                        config->memory, n_known, n_steps, n_known);
    return ctx_fail(
        ctx, DER_ARG,
        "second_stage=true trains on kept images of every class, but memory=%d in all is not "
        "one for each of the %d classes known before step %d: keep %d or more, or set "
        "second_stage=false",
        config->memory, n_known, n_steps, n_known);
}

#include "config/override.h"

#include "config/preset.h"
#include "config/setting.h"

#include <string.h>

enum { KEY_MAX = 64 };

static const size_t FROM_LATER_STEPS = offsetof(struct config, representation);
static const size_t TO_FIRST_STEP = offsetof(struct config, first);

static enum der_status refuse_fixed(struct der_ctx *ctx, const struct setting *setting,
                                    const struct config *config)
{
    char value[SETTING_TEXT_MAX];
    setting_format(setting, config, value);
    if (setting->owner == OWNER_PRESET)
        return ctx_fail(ctx, DER_ARG,
                        "%s is not a setting to change: a run is set up from it (%.64s)",
                        setting->key, value);
    return ctx_fail(ctx, DER_ARG,
                    "%s=%.64s is fixed by the protocol of preset %s, whose results would not be "
                    "comparable otherwise; the preset 'custom' leaves it free",
                    setting->key, value, config->preset);
}

/* The preset's schedule, squeezed into the epochs that were just set. The rate is left alone. */
static void rescale(const struct preset *preset, const struct setting *setting,
                    struct config *config)
{
    struct config original;
    struct schedule shape;
    struct schedule now;
    preset_fill(preset, config->method, &original);
    memcpy(&shape, (const char *)&original + setting->schedule, sizeof shape);
    memcpy(&now, (const char *)config + setting->schedule, sizeof now);
    struct schedule scaled = schedule_scaled(&shape, now.epochs);
    scaled.lr = now.lr;
    scaled.factor = now.factor;
    memcpy((char *)config + setting->schedule, &scaled, sizeof scaled);
}

static enum der_status store(struct der_ctx *ctx, const struct preset *preset,
                             const struct setting *setting, const char *value,
                             struct config *config)
{
    TRY(setting_store(ctx, setting, value, config));
    if (setting->rank == RANK_METHOD)
        preset_use_method(config, config->method);
    if (setting->scales)
        rescale(preset, setting, config);
    if (setting->at.offset == offsetof(struct config, target_params))
        config->first_target_params =
            0; /* a size for every step; another for step 1 comes after it */
    return DER_OK;
}

static enum der_status set(struct der_ctx *ctx, const struct setting *setting, const char *value,
                           struct config *config)
{
    const struct preset *preset;
    TRY(preset_find(ctx, config->preset, &preset));
    if (setting->owner == OWNER_PRESET ||
        (setting->owner == OWNER_PROTOCOL && !preset_is_free(preset)))
        return refuse_fixed(ctx, setting, config);
    TRY(store(ctx, preset, setting, value, config));
    if (setting->schedule != FROM_LATER_STEPS || !preset_shares_schedule(preset))
        return DER_OK;
    /* The same field of the schedule of step 1. */
    struct setting twin = *setting;
    twin.schedule = TO_FIRST_STEP;
    twin.at.offset = setting->at.offset - FROM_LATER_STEPS + TO_FIRST_STEP;
    return store(ctx, preset, &twin, value, config);
}

enum der_status config_set(struct der_ctx *ctx, struct config *config, const char *key,
                           const char *value)
{
    const struct setting *setting;
    struct config changed = *config;
    TRY(setting_find(ctx, key, &setting));
    TRY(set(ctx, setting, value, &changed));
    *config = changed;
    return DER_OK;
}

/* Splits "key=value"; *value points into the assignment. */
static enum der_status split(struct der_ctx *ctx, const char *assignment,
                             const struct setting **setting, const char **value)
{
    const char *equals = strchr(assignment, '=');
    if (!equals || equals == assignment)
        return ctx_fail(ctx, DER_ARG, "'%.64s' sets nothing; write key=value", assignment);
    char key[KEY_MAX + 1];
    size_t length = (size_t)(equals - assignment);
    if (length > KEY_MAX)
        length = KEY_MAX; /* longer than any key: unknown all the same */
    memcpy(key, assignment, length);
    key[length] = '\0';
    *value = equals + 1;
    return setting_find(ctx, key, setting);
}

enum der_status config_apply(struct der_ctx *ctx, struct config *config,
                             const char *const *assignments, int n)
{
    struct config changed = *config;
    for (int rank = RANK_METHOD; rank < RANK_END; rank++) {
        for (int i = 0; i < n; i++) {
            const struct setting *setting = NULL;
            const char *value = NULL;
            TRY(split(ctx, assignments[i], &setting, &value));
            if ((int)setting->rank == rank)
                TRY(set(ctx, setting, value, &changed));
        }
    }
    *config = changed;
    return DER_OK;
}

enum der_status config_store(struct der_ctx *ctx, struct config *config,
                             const char *const *assignments, int n)
{
    struct config changed = *config;
    for (int i = 0; i < n; i++) {
        const struct setting *setting = NULL;
        const char *value = NULL;
        TRY(split(ctx, assignments[i], &setting, &value));
        TRY(setting_store(ctx, setting, value, &changed));
    }
    *config = changed;
    return DER_OK;
}

int config_differences(const struct config *a, const struct config *b, config_difference_fn *tell,
                       void *user)
{
    int n = 0;
    for (int i = 0; i < n_settings; i++) {
        char of_a[SETTING_TEXT_MAX];
        char of_b[SETTING_TEXT_MAX];
        if (setting_table[i].is_of_masks && !a->prune && !b->prune)
            continue;
        setting_format(&setting_table[i], a, of_a);
        setting_format(&setting_table[i], b, of_b);
        if (strcmp(of_a, of_b) == 0)
            continue;
        n++;
        if (tell)
            tell(user, setting_table[i].key, of_a, of_b);
    }
    return n;
}

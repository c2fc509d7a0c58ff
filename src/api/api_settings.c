#include "api/api_settings.h"

#include "config/config_json.h"
#include "config/override.h"
#include "config/preset.h"

#include <assert.h>
#include <string.h>

int der_preset_count(void)
{
    return n_presets;
}

enum der_status der_preset_describe(struct der_ctx *ctx, int index, struct der_preset_info *out)
{
    *out = (struct der_preset_info){0};
    if (index < 0 || index >= n_presets)
        return ctx_fail(ctx, DER_ARG, "there is no preset %d; there are %d", index, n_presets);
    out->name = preset_table[index].name;
    out->summary = preset_table[index].summary;
    return DER_OK;
}

int der_setting_count(void)
{
    return n_settings;
}

enum der_status der_setting_describe(struct der_ctx *ctx, int index, struct der_setting_info *out)
{
    *out = (struct der_setting_info){0};
    if (index < 0 || index >= n_settings)
        return ctx_fail(ctx, DER_ARG, "there is no setting %d; there are %d", index, n_settings);
    const struct setting *setting = &setting_table[index];
    out->key = setting->key;
    out->help = setting->help;
    out->fixed_by_preset = setting->owner != OWNER_USER;
    setting_allowed(setting, out->allowed, sizeof out->allowed);
    return DER_OK;
}

const char *der_setting_choice(const char *key, int choice)
{
    for (int i = 0; i < n_settings; i++)
        if (strcmp(setting_table[i].key, key) == 0)
            return setting_choice(&setting_table[i], choice);
    return NULL;
}

static enum der_status resolve(struct der_settings *settings, const char *preset,
                               const char *method, const char *const *assignments, int n)
{
    struct der_ctx *ctx = settings->ctx;
    struct config *config = &settings->config;
    TRY(config_from_preset(ctx, preset, METHOD_DER, config));
    if (method)
        TRY(config_set(ctx, config, "method", method));
    TRY(config_apply(ctx, config, assignments, n));
    return config_check(ctx, config);
}

enum der_status der_settings_new(struct der_ctx *ctx, const char *preset, const char *method,
                                 const char *const *assignments, int n, struct der_settings **out)
{
    assert(n == 0 || assignments);
    *out = NULL;
    struct der_settings *settings = mem_zalloc(&ctx->mem, 1, sizeof *settings);
    if (!settings)
        return ctx_nomem(ctx);
    settings->ctx = ctx;
    enum der_status status = resolve(settings, preset, method, assignments, n);
    if (status != DER_OK) {
        der_settings_free(settings);
        return status;
    }
    *out = settings;
    return DER_OK;
}

void der_settings_free(struct der_settings *settings)
{
    if (!settings)
        return;
    struct mem *mem = &settings->ctx->mem;
    mem_free(mem, settings->json);
    mem_free(mem, settings->plan);
    mem_free(mem, settings);
}

const char *der_settings_value(struct der_settings *settings, int index)
{
    if (index < 0 || index >= n_settings)
        return "";
    setting_format(&setting_table[index], &settings->config, settings->value);
    return settings->value;
}

enum der_status der_settings_json(struct der_settings *settings, const char **text)
{
    *text = NULL;
    if (!settings->json) {
        cJSON *object;
        TRY(config_to_json(settings->ctx, &settings->config, &object));
        enum der_status status = json_print(settings->ctx, object, true, &settings->json);
        json_free(object);
        TRY(status);
    }
    *text = settings->json;
    return DER_OK;
}

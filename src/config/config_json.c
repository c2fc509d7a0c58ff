#include "config/config_json.h"

#include "config/preset.h"
#include "config/setting.h"
#include "core/decimal.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static cJSON *epochs_value(const struct schedule *schedule)
{
    return cJSON_CreateIntArray(schedule->drop, schedule->n_drops);
}

/* NULL when memory is short. */
static cJSON *value_of(const struct setting *setting, const struct config *config)
{
    const void *field = setting_at(setting, config);
    char text[SETTING_TEXT_MAX];
    switch (setting->type) {
    case SETTING_INT:
        return cJSON_CreateNumber(*(const int *)field);
    case SETTING_INT64:
    case SETTING_COUNT:
        return cJSON_CreateNumber((double)*(const int64_t *)field);
    case SETTING_DOUBLE:
        return cJSON_CreateNumber(*(const double *)field);
    case SETTING_BOOL:
        return cJSON_CreateBool(*(const bool *)field);
    case SETTING_CHOICE:
    case SETTING_TEXT:
        setting_format(setting, config, text);
        return cJSON_CreateString(text);
    case SETTING_EPOCHS:
        return epochs_value(field);
    }
    return NULL;
}

enum der_status config_to_json(struct der_ctx *ctx, const struct config *config, cJSON **out)
{
    *out = NULL;
    cJSON *object = cJSON_CreateObject();
    if (!object)
        return ctx_nomem(ctx);
    for (int i = 0; i < n_settings; i++) {
        cJSON *value = value_of(&setting_table[i], config);
        if (!value || !cJSON_AddItemToObject(object, setting_table[i].key, value)) {
            json_free(value);
            json_free(object);
            return ctx_nomem(ctx);
        }
    }
    *out = object;
    return DER_OK;
}

/* Numbers as setting_store reads them: whole ones without an exponent. */
static void number_text(double value, char text[DECIMAL_TEXT_MAX])
{
    bool whole = value == floor(value) && fabs(value) <= 0x1p53;
    decimal_write(value, whole ? 16 : 17, text);
}

/* "110,130" of an array; false when something in it is not a number or there is too much. */
static bool epochs_text(const cJSON *array, char *text, size_t size)
{
    size_t used = 0;
    const cJSON *item;
    cJSON_ArrayForEach(item, array)
    {
        char word[DECIMAL_TEXT_MAX];
        if (!cJSON_IsNumber(item))
            return false;
        number_text(item->valuedouble, word);
        int n = snprintf(text + used, size - used, "%s%s", used > 0 ? "," : "", word);
        if (n < 0 || (size_t)n >= size - used)
            return false;
        used += (size_t)n;
    }
    if (used == 0)
        (void)snprintf(text, size, "none");
    return true;
}

/* The text of a member, or NULL when it has the wrong type. Borrowed from the member or `text`. */
static const char *text_of(const struct setting *setting, const cJSON *item, char *text,
                           size_t size)
{
    switch (setting->type) {
    case SETTING_INT:
    case SETTING_INT64:
    case SETTING_COUNT:
    case SETTING_DOUBLE:
        if (!cJSON_IsNumber(item))
            return NULL;
        number_text(item->valuedouble, text);
        return text;
    case SETTING_BOOL:
        if (!cJSON_IsBool(item))
            return NULL;
        return cJSON_IsTrue(item) ? "true" : "false";
    case SETTING_CHOICE:
    case SETTING_TEXT:
        return cJSON_IsString(item) ? item->valuestring : NULL;
    case SETTING_EPOCHS:
        return cJSON_IsArray(item) && epochs_text(item, text, size) ? text : NULL;
    }
    return NULL;
}

static enum der_status read_member(struct der_ctx *ctx, const struct setting *setting,
                                   const cJSON *object, struct config *config)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, setting->key);
    if (!item && setting->absent)
        return setting_store(ctx, setting, setting->absent, config);
    if (!item)
        return ctx_fail(ctx, DER_FORMAT, "setting '%s' is missing", setting->key);
    char buffer[SETTING_TEXT_MAX];
    const char *text = text_of(setting, item, buffer, sizeof buffer);
    if (!text) {
        setting_allowed(setting, buffer, sizeof buffer);
        return ctx_fail(ctx, DER_FORMAT, "'%s' has the wrong type: it takes %s", setting->key,
                        buffer);
    }
    return setting_store(ctx, setting, text, config);
}

/* Members that are no settings, or are there twice. */
static enum der_status check_members(struct der_ctx *ctx, const cJSON *object)
{
    if (!cJSON_IsObject(object))
        return ctx_fail(ctx, DER_FORMAT, "settings must be an object");
    const cJSON *item;
    cJSON_ArrayForEach(item, object)
    {
        const struct setting *setting;
        TRY(setting_find(ctx, item->string, &setting));
        if (cJSON_GetObjectItemCaseSensitive(object, item->string) != item)
            return ctx_fail(ctx, DER_FORMAT, "setting '%s' is there twice", item->string);
    }
    return DER_OK;
}

/* A record that claims a protocol must keep to it. */
static enum der_status check_preset(struct der_ctx *ctx, const struct config *config)
{
    const struct preset *preset;
    struct config original;
    TRY(preset_find(ctx, config->preset, &preset));
    preset_fill(preset, config->method, &original);
    for (int i = 0; i < n_settings && !preset_is_free(preset); i++) {
        char wanted[SETTING_TEXT_MAX];
        char met[SETTING_TEXT_MAX];
        if (setting_table[i].owner != OWNER_PROTOCOL)
            continue;
        setting_format(&setting_table[i], &original, wanted);
        setting_format(&setting_table[i], config, met);
        if (strcmp(wanted, met) != 0)
            return ctx_fail(ctx, DER_FORMAT, "%s=%.64s, but the protocol of preset %s has %.64s",
                            setting_table[i].key, met, preset->name, wanted);
    }
    return DER_OK;
}

static enum der_status read_all(struct der_ctx *ctx, const cJSON *object, struct config *config)
{
    TRY(check_members(ctx, object));
    for (int i = 0; i < n_settings; i++)
        TRY(read_member(ctx, &setting_table[i], object, config));
    TRY(check_preset(ctx, config));
    return config_check(ctx, config);
}

enum der_status config_from_json(struct der_ctx *ctx, const char *source, const cJSON *object,
                                 struct config *config)
{
    struct config read = {0};
    if (read_all(ctx, object, &read) != DER_OK) {
        char sentence[CTX_ERROR_MAX];
        (void)snprintf(sentence, sizeof sentence, "%s", ctx->error);
        return ctx_fail(ctx, DER_FORMAT, "%s: %s", source, sentence);
    }
    *config = read;
    return DER_OK;
}

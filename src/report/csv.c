#include "report/csv.h"

#include "config/setting.h"
#include "core/decimal.h"
#include "core/text.h"

#include <string.h>

/* Settings that tell runs apart at a glance; all of them are in config.json. */
static const char *const SETTINGS[] = {"preset", "method", "order", "seed"};
enum { N_SETTINGS = sizeof SETTINGS / sizeof SETTINGS[0] };

/* Arrays of a step that become columns KEY_1, KEY_2, ... */
static const char *const LISTS[] = {"groups", "representation"};
static const char *const LIST_COLUMNS[] = {"group", "representation"};
enum { N_LISTS = sizeof LISTS / sizeof LISTS[0] };

static const cJSON *get(const cJSON *object, const char *key)
{
    return cJSON_GetObjectItemCaseSensitive(object, key);
}

/* Longest such array of any step. */
static int list_length(const struct run_view *runs, int n, const char *key)
{
    int most = 0;
    for (int i = 0; i < n; i++) {
        const cJSON *step;
        cJSON_ArrayForEach(step, runs[i].history.steps)
        {
            int length = cJSON_GetArraySize(get(step, key));
            most = length > most ? length : most;
        }
    }
    return most;
}

static void put_head(struct text *text, const int lengths[N_LISTS])
{
    text_put(text, "run,data_kind,device,precision");
    for (int i = 0; i < N_SETTINGS; i++)
        text_put(text, ",%s", SETTINGS[i]);
    for (int i = 0; i < N_HISTORY_STEP_NUMBERS; i++)
        text_put(text, ",%s", HISTORY_STEP_NUMBERS[i].key);
    for (int i = 0; i < HISTORY_LATENCY_MODELS; i++)
        for (int j = 0; j < HISTORY_LATENCY_BATCHES; j++)
            text_put(text, ",latency_%s_%s", HISTORY_LATENCY_MODEL[i], HISTORY_LATENCY_BATCH[j]);
    for (int i = 0; i < N_LISTS; i++)
        for (int k = 1; k <= lengths[i]; k++)
            text_put(text, ",%s_%d", LIST_COLUMNS[i], k);
    text_put(text, "\n");
}

/* All digits: what is read back is the same number. Nothing where there is none. */
static void put_number(struct text *text, const cJSON *number)
{
    char digits[DECIMAL_TEXT_MAX] = "";
    if (cJSON_IsNumber(number))
        decimal_write(number->valuedouble, 17, digits);
    text_put(text, ",%s", digits);
}

static enum der_status put_settings(struct der_ctx *ctx, const struct config *config,
                                    struct text *text)
{
    for (int i = 0; i < N_SETTINGS; i++) {
        const struct setting *setting;
        char value[SETTING_TEXT_MAX];
        TRY(setting_find(ctx, SETTINGS[i], &setting));
        setting_format(setting, config, value);
        text_put(text, ",");
        text_put_quoted(text, value);
    }
    return DER_OK;
}

static enum der_status put_step(struct der_ctx *ctx, const struct run_view *run, const cJSON *step,
                                const int lengths[N_LISTS], struct text *text)
{
    text_put_quoted(text, run->path);
    text_put(text, ",%s,%s,%s", run->outcome.data_kind, run->record.device, run->record.precision);
    TRY(put_settings(ctx, &run->outcome.config, text));
    for (int i = 0; i < N_HISTORY_STEP_NUMBERS; i++)
        put_number(text, get(step, HISTORY_STEP_NUMBERS[i].key));
    for (int i = 0; i < HISTORY_LATENCY_MODELS; i++)
        for (int j = 0; j < HISTORY_LATENCY_BATCHES; j++)
            put_number(text, get(get(get(step, "latency_ms"), HISTORY_LATENCY_MODEL[i]),
                                 HISTORY_LATENCY_BATCH[j]));
    for (int i = 0; i < N_LISTS; i++) {
        const cJSON *list = get(step, LISTS[i]);
        const cJSON *item = list ? list->child : NULL;
        for (int k = 0; k < lengths[i]; k++) {
            put_number(text, item);
            item = item ? item->next : NULL;
        }
    }
    text_put(text, "\n");
    return DER_OK;
}

enum der_status csv_make(struct der_ctx *ctx, const struct run_view *runs, int n, char **out)
{
    struct text text = {.mem = &ctx->mem};
    int lengths[N_LISTS];
    *out = NULL;
    for (int i = 0; i < N_LISTS; i++)
        lengths[i] = list_length(runs, n, LISTS[i]);
    put_head(&text, lengths);
    for (int i = 0; i < n; i++) {
        const cJSON *step;
        cJSON_ArrayForEach(step, runs[i].history.steps)
        {
            enum der_status status = put_step(ctx, &runs[i], step, lengths, &text);
            if (status != DER_OK) {
                text_fini(&text);
                return status;
            }
        }
    }
    return text_finish(ctx, &text, out);
}

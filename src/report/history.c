#include "report/history.h"

#include "core/decimal.h"
#include "json/maker.h"
#include "store/model_file.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DIGITS = 6, MAX_EPOCHS = 1 << 20 };

static const double MOST = 1e18;
static const double PERCENT = 100.0;

const struct history_number HISTORY_STEP_NUMBERS[] = {
    {"step", 1, MODEL_MAX_STEPS},
    {"classes", 1, 1e6},
    {"new_classes", 1, 1e6},
    {"top1", 0, 100},
    {"top5", 0, 100},
    {"avg_top1", 0, 100},
    {"avg_top5", 0, 100},
    {"forgetting", -100, 100},
    {"params", 0, 1e18},
    {"avg_params", 0, 1e18},
    {"params_total", 0, 1e18},
    {"classifier_bound", 0, 100},
    {"reference", 0, 100},
    {"reference_own", 0, 100},
    {"seconds", 0, 1e18},
    {"ms_per_iter", 0, 1e18},
    {"peak_bytes", 0, 1e18},
};
const int N_HISTORY_STEP_NUMBERS = sizeof HISTORY_STEP_NUMBERS / sizeof HISTORY_STEP_NUMBERS[0];

static const struct history_number END_NUMBERS[] = {
    {"steps", 1, MODEL_MAX_STEPS},
    {"avg_top1", 0, 100},
    {"last_top1", 0, 100},
    {"avg_top5", 0, 100},
    {"last_top5", 0, 100},
    {"avg_params", 0, 1e18},
    {"params", 0, 1e18},
    {"params_total", 0, 1e18},
    {"forgetting", -100, 100},
    {"bwt", -100, 100},
    {"fwt", -100, 100},
    {"classifier_bound", 0, 100},
    {"seconds", 0, 1e18},
};

static const struct history_number EPOCH_NUMBERS[] = {
    {"step", 1, MODEL_MAX_STEPS},   {"epoch", 1, MAX_EPOCHS},
    {"epochs", 1, MAX_EPOCHS},      {"lr", 0, 1e18},
    {"train_top1", 0, 100},         {"sparsity", 0, 1},
    {"kept_params", 0, 1e18},       {"lambda_s", 0, 1e18},
    {"images_per_second", 0, 1e18},
};

const char *const HISTORY_LATENCY_MODEL[HISTORY_LATENCY_MODELS] = {"model", "unpruned",
                                                                   "one_network"};
const char *const HISTORY_LATENCY_BATCH[HISTORY_LATENCY_BATCHES] = {"batch_1", "batch_128"};

enum {
    N_END_NUMBERS = sizeof END_NUMBERS / sizeof END_NUMBERS[0],
    N_EPOCH_NUMBERS = sizeof EPOCH_NUMBERS / sizeof EPOCH_NUMBERS[0],
    N_EPOCH_PLACES = 3 /* of them say where the epoch belongs, and must be there */
};

/* One line on its way. */
struct line {
    struct der_ctx *ctx;
    const char *source; /* opens messages */
    const cJSON *object;
    int n_classes;
};

/* ---- numbers --------------------------------------------------------------------------------------- */

static enum der_status check_range(const struct line *line, const char *key, double value,
                                   double low, double high)
{
    if (value >= low && value <= high)
        return DER_OK;
    return ctx_fail(line->ctx, DER_FORMAT, "%s: '%s' must lie between %g and %g, not be %g",
                    line->source, key, low, high, value);
}

/* A number that may be missing; it is NAN then. */
static enum der_status get_number(const struct line *line, const cJSON *object,
                                  const struct history_number *number, double *out)
{
    *out = NAN;
    if (!cJSON_GetObjectItemCaseSensitive(object, number->key))
        return DER_OK;
    double value = 0.0;
    TRY(json_get_number(line->ctx, line->source, object, number->key, &value));
    TRY(check_range(line, number->key, value, number->low, number->high));
    *out = value;
    return DER_OK;
}

static enum der_status copy_numbers(const struct line *line, const struct history_number *numbers,
                                    int n, struct maker *m)
{
    for (int i = 0; i < n; i++) {
        double value;
        TRY(get_number(line, line->object, &numbers[i], &value));
        add_number(m, numbers[i].key, value);
    }
    return DER_OK;
}

/* An array of numbers; null stands for what was not measured, where it may. */
static enum der_status copy_array(const struct line *line, const char *key, const cJSON *array,
                                  int most, struct history_number range, cJSON *to)
{
    const cJSON *item;
    int n = 0;
    if (!cJSON_IsArray(array))
        return ctx_fail(line->ctx, DER_FORMAT, "%s: '%s' must be an array of numbers", line->source,
                        key);
    cJSON_ArrayForEach(item, array)
    {
        bool is_null = cJSON_IsNull(item);
        if (++n > most || (!is_null && !cJSON_IsNumber(item)))
            return ctx_fail(line->ctx, DER_FORMAT, "%s: '%s' must have at most %d numbers",
                            line->source, key, most);
        if (!is_null)
            TRY(check_range(line, key, item->valuedouble, range.low, range.high));
        if (!append_item(to, is_null ? cJSON_CreateNull() : cJSON_CreateNumber(item->valuedouble)))
            return ctx_nomem(line->ctx);
    }
    return DER_OK;
}

/* The member `key` of an object, an array, where it is there. */
static enum der_status copy_list(const struct line *line, const cJSON *object, const char *key,
                                 int most, struct history_number range, struct maker *m)
{
    const cJSON *array = cJSON_GetObjectItemCaseSensitive(object, key);
    if (!array)
        return DER_OK;
    cJSON *list = cJSON_CreateArray();
    enum der_status status = copy_array(line, key, array, most, range, list);
    if (status == DER_OK)
        add_item(m, key, list);
    else
        cJSON_Delete(list);
    return status;
}

/* ---- steps ----------------------------------------------------------------------------------------- */

/* A square of counts. */
static enum der_status fill_confusion(const struct line *line, const cJSON *rows, int n, cJSON *to)
{
    const struct history_number counts = {"confusion", 0, MOST};
    const cJSON *row;
    cJSON_ArrayForEach(row, rows)
    {
        cJSON *copy = cJSON_CreateArray();
        if (!append_item(to, copy))
            return ctx_nomem(line->ctx);
        TRY(copy_array(line, counts.key, row, n, counts, copy));
        if (cJSON_GetArraySize(copy) != n)
            return ctx_fail(line->ctx, DER_FORMAT, "%s: 'confusion' must be square", line->source);
    }
    return DER_OK;
}

static enum der_status copy_confusion(const struct line *line, struct maker *m)
{
    const cJSON *rows = cJSON_GetObjectItemCaseSensitive(line->object, "confusion");
    if (!rows)
        return DER_OK;
    int n = cJSON_IsArray(rows) ? cJSON_GetArraySize(rows) : -1;
    if (n < 1 || n > MODEL_MAX_STEPS)
        return ctx_fail(line->ctx, DER_FORMAT, "%s: 'confusion' must be an array of rows",
                        line->source);
    cJSON *to = cJSON_CreateArray();
    enum der_status status = fill_confusion(line, rows, n, to);
    if (status == DER_OK)
        add_item(m, "confusion", to);
    else
        cJSON_Delete(to);
    return status;
}

static enum der_status fill_widths(const struct line *line, const cJSON *widths, struct maker *m)
{
    const struct history_number channels = {"widths", 1, 1e6};
    TRY(copy_list(line, widths, "stream", RESNET_MAX_STAGES, channels, m));
    return copy_list(line, widths, "inner", RESNET_MAX_STAGES * RESNET_MAX_BLOCKS, channels, m);
}

static enum der_status fill_latency(const struct line *line, const cJSON *latency, struct maker *m)
{
    for (int i = 0; i < HISTORY_LATENCY_MODELS; i++) {
        const cJSON *model = cJSON_GetObjectItemCaseSensitive(latency, HISTORY_LATENCY_MODEL[i]);
        struct maker times = maker_new();
        enum der_status status = DER_OK;
        for (int j = 0; j < HISTORY_LATENCY_BATCHES && status == DER_OK; j++) {
            double value;
            struct history_number number = {HISTORY_LATENCY_BATCH[j], 0, MOST};
            status = get_number(line, model, &number, &value);
            add_number(&times, number.key, value);
        }
        add_item(m, HISTORY_LATENCY_MODEL[i], maker_done(&times));
        TRY(status);
    }
    return DER_OK;
}

/* The member `key`, an object, as `fill` copies it. */
static enum der_status copy_object(const struct line *line, const char *key,
                                   enum der_status (*fill)(const struct line *, const cJSON *,
                                                           struct maker *),
                                   struct maker *m)
{
    const cJSON *object = cJSON_GetObjectItemCaseSensitive(line->object, key);
    if (!object)
        return DER_OK;
    if (!cJSON_IsObject(object))
        return ctx_fail(line->ctx, DER_FORMAT, "%s: '%s' must be an object", line->source, key);
    struct maker copy = maker_new();
    enum der_status status = fill(line, object, &copy);
    if (status == DER_OK)
        add_item(m, key, maker_done(&copy));
    else
        cJSON_Delete(copy.object);
    return status;
}

static enum der_status fill_step(const struct line *line, struct maker *m)
{
    const struct history_number percent = {"per cent", 0, PERCENT};
    TRY(copy_numbers(line, HISTORY_STEP_NUMBERS, N_HISTORY_STEP_NUMBERS, m));
    TRY(copy_list(line, line->object, "groups", MODEL_MAX_STEPS, percent, m));
    TRY(copy_list(line, line->object, "representation", MODEL_MAX_STEPS, percent, m));
    TRY(copy_list(line, line->object, "per_class", line->n_classes, percent, m));
    TRY(copy_confusion(line, m));
    TRY(copy_object(line, "widths", fill_widths, m));
    return copy_object(line, "latency_ms", fill_latency, m);
}

static enum der_status read_step(const struct line *line, struct history *h)
{
    struct maker m = maker_new();
    enum der_status status = fill_step(line, &m);
    if (status != DER_OK) {
        cJSON_Delete(m.object);
        return status;
    }
    /* Accuracies by class are many and shown for the latest step alone. */
    const cJSON *last = h->steps->child ? h->steps->child->prev : NULL;
    if (last)
        cJSON_DeleteItemFromObjectCaseSensitive((cJSON *)last, "per_class");
    return append_item(h->steps, maker_done(&m)) ? DER_OK : ctx_nomem(line->ctx);
}

static enum der_status read_end(const struct line *line, struct history *h)
{
    struct maker m = maker_new();
    enum der_status status = copy_numbers(line, END_NUMBERS, N_END_NUMBERS, &m);
    if (status != DER_OK) {
        cJSON_Delete(m.object);
        return status;
    }
    cJSON_Delete(h->end);
    h->end = maker_done(&m);
    return h->end ? DER_OK : ctx_nomem(line->ctx);
}

/* ---- epochs ---------------------------------------------------------------------------------------- */

/* Curves are drawn, not computed with: six digits keep the page small. */
static cJSON *short_number(double value)
{
    char text[DECIMAL_TEXT_MAX];
    const char *end;
    if (!isfinite(value))
        return cJSON_CreateNull();
    decimal_write(value, DIGITS, text);
    return decimal_read(text, &value, &end) ? cJSON_CreateNumber(value) : cJSON_CreateNull();
}

static cJSON *member(const cJSON *object, const char *key)
{
    return cJSON_GetObjectItemCaseSensitive(object, key);
}

/* The place of a name in an array of texts, appended when it is new; -1: there is no room for it. */
static int place_of(cJSON *names, const char *name, int most)
{
    const cJSON *item;
    int at = 0;
    cJSON_ArrayForEach(item, names)
    {
        if (strcmp(item->valuestring, name) == 0)
            return at;
        at++;
    }
    return at < most && append_item(names, cJSON_CreateString(name)) ? at : -1;
}

static enum der_status add_stage(const struct line *line, cJSON *epochs)
{
    const char *name;
    TRY(json_get_text(line->ctx, line->source, line->object, "stage", &name));
    int at = place_of(member(epochs, "stages"), name, HISTORY_MAX_STAGES);
    if (at < 0)
        return ctx_fail(line->ctx, DER_FORMAT, "%s: more than %d stages", line->source,
                        HISTORY_MAX_STAGES);
    return append_item(member(epochs, "stage"), cJSON_CreateNumber(at)) ? DER_OK
                                                                        : ctx_nomem(line->ctx);
}

/* The column of a loss; a new one begins with a null for every earlier epoch. */
static cJSON *loss_column(cJSON *losses, const char *name, int n_before)
{
    cJSON *column = member(losses, name);
    if (column)
        return column;
    column = cJSON_CreateArray();
    for (int i = 0; i < n_before; i++)
        if (!append_item(column, cJSON_CreateNull())) {
            cJSON_Delete(column);
            return NULL;
        }
    if (column && !cJSON_AddItemToObject(losses, name, column)) {
        cJSON_Delete(column);
        return NULL;
    }
    return column;
}

static enum der_status add_losses(const struct line *line, cJSON *epochs, int n_before)
{
    cJSON *losses = member(epochs, "loss");
    const cJSON *loss;
    const cJSON *item;
    TRY(json_get_object(line->ctx, line->source, line->object, "loss", &loss));
    if (cJSON_GetArraySize(loss) > HISTORY_MAX_LOSSES)
        return ctx_fail(line->ctx, DER_FORMAT, "%s: more than %d losses", line->source,
                        HISTORY_MAX_LOSSES);
    cJSON_ArrayForEach(item, loss)
    {
        if (!loss_column(losses, item->string, n_before))
            return ctx_nomem(line->ctx);
    }
    if (cJSON_GetArraySize(losses) > HISTORY_MAX_LOSSES)
        return ctx_fail(line->ctx, DER_FORMAT, "%s: more than %d losses so far", line->source,
                        HISTORY_MAX_LOSSES);
    cJSON *column;
    cJSON_ArrayForEach(column, losses)
    {
        struct history_number number = {column->string, -MOST, MOST};
        double value;
        TRY(get_number(line, loss, &number, &value));
        if (!append_item(column, short_number(value)))
            return ctx_nomem(line->ctx);
    }
    return DER_OK;
}

static enum der_status read_epoch(const struct line *line, struct history *h)
{
    cJSON *epochs = h->epochs;
    int n_before = h->n_epochs++;
    for (int i = 0; i < N_EPOCH_NUMBERS; i++) {
        double value;
        TRY(get_number(line, line->object, &EPOCH_NUMBERS[i], &value));
        if (i < N_EPOCH_PLACES && isnan(value))
            return ctx_fail(line->ctx, DER_FORMAT, "%s: '%s' is missing", line->source,
                            EPOCH_NUMBERS[i].key);
        if (!append_item(member(epochs, EPOCH_NUMBERS[i].key), short_number(value)))
            return ctx_nomem(line->ctx);
    }
    TRY(add_stage(line, epochs));
    return add_losses(line, epochs, n_before);
}

/* ---- lines ----------------------------------------------------------------------------------------- */

struct reading {
    struct der_ctx *ctx;
    int n_classes;
    struct history *history;
};

static enum der_status read_line(void *user, const char *source, const cJSON *object)
{
    const struct reading *r = user;
    struct line line = {
        .ctx = r->ctx, .source = source, .object = object, .n_classes = r->n_classes};
    const char *event;
    TRY(json_get_text(r->ctx, source, object, "event", &event));
    if (strcmp(event, "step") == 0)
        return read_step(&line, r->history);
    if (strcmp(event, "epoch") == 0)
        return read_epoch(&line, r->history);
    if (strcmp(event, "end") == 0)
        return read_end(&line, r->history);
    return DER_OK;
}

static enum der_status begin(struct der_ctx *ctx, struct history *h)
{
    struct maker epochs = maker_new();
    for (int i = 0; i < N_EPOCH_NUMBERS; i++)
        add_item(&epochs, EPOCH_NUMBERS[i].key, cJSON_CreateArray());
    add_item(&epochs, "stage", cJSON_CreateArray());
    add_item(&epochs, "stages", cJSON_CreateArray());
    add_item(&epochs, "loss", cJSON_CreateObject());
    *h = (struct history){.steps = cJSON_CreateArray(), .epochs = maker_done(&epochs)};
    return h->steps && h->epochs ? DER_OK : ctx_nomem(ctx);
}

enum der_status history_read(struct der_ctx *ctx, const char *source, const char *text,
                             size_t length, int n_classes, struct history *out)
{
    struct reading reading = {.ctx = ctx, .n_classes = n_classes, .history = out};
    TRY(begin(ctx, out));
    return json_lines(ctx, source, text, length, read_line, &reading);
}

void history_fini(struct history *history)
{
    json_free(history->steps);
    json_free(history->epochs);
    json_free(history->end);
    *history = (struct history){0};
}

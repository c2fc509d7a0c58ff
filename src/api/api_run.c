/*
 * der_run_*: what the folder of a run tells.
 */
#include <der/inspect.h>

#include "api/api_json.h"
#include "api/api_settings.h"
#include "config/config_json.h"
#include "config/override.h"
#include "config/preset.h"
#include "experiment/records.h"
#include "experiment/run_files.h"
#include "experiment/run_folder.h"
#include "experiment/run_reader.h"
#include "experiment/run_record.h"
#include "io/lock_held.h"
#include "store/state_text.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct der_run {
    struct der_ctx *ctx;
    struct run_outcome outcome;
    bool is_running, has_model;
    const char *phase; /* "" between steps */
    int epochs_saved;
    char method[SETTING_TEXT_MAX];
    struct der_settings *settings;
    char *json;
};

/* ---- reading ------------------------------------------------------------------------------------- */

static enum der_status settings_of(struct der_ctx *ctx, const struct config *config,
                                   struct der_settings **out)
{
    struct der_settings *settings = mem_zalloc(&ctx->mem, 1, sizeof *settings);
    *out = settings;
    if (!settings)
        return ctx_nomem(ctx);
    settings->ctx = ctx;
    settings->config = *config;
    return DER_OK;
}

static enum der_status read_state(struct der_run *run, const char *path)
{
    struct state_file *state;
    TRY(run_folder_peek(run->ctx, path, &state));
    if (!state)
        return DER_OK;
    const struct stage_point *point = &state->state.point;
    if (point->phase == PHASE_REPRESENTATION || point->phase == PHASE_CLASSIFIER) {
        run->phase = state_phase_name(point->phase);
        run->epochs_saved = point->epoch;
    }
    state_close(state);
    return DER_OK;
}

static enum der_status find_model(struct der_run *run, const char *path)
{
    char *file = run_files_join(run->ctx, path, "model.safetensors");
    if (!file)
        return ctx_nomem(run->ctx);
    run->has_model = access(file, F_OK) == 0;
    mem_free(&run->ctx->mem, file);
    return DER_OK;
}

/* A process may be at work meanwhile, so the state can be newer than the metrics; each is whole by itself. */
static enum der_status read_run(struct der_run *run, const char *path)
{
    struct der_ctx *ctx = run->ctx;
    const struct setting *method;
    TRY(run_read(ctx, path, &run->outcome));
    if (run->outcome.state == RUN_ABSENT)
        return ctx_fail(ctx, DER_FORMAT, "there is no run in %s", path);
    TRY(lock_is_held(ctx, path, &run->is_running));
    TRY(read_state(run, path));
    TRY(find_model(run, path));
    TRY(settings_of(ctx, &run->outcome.config, &run->settings));
    TRY(setting_find(ctx, "method", &method));
    setting_format(method, &run->outcome.config, run->method);
    return DER_OK;
}

enum der_status der_run_open(struct der_ctx *ctx, const char *path, struct der_run **out)
{
    *out = NULL;
    struct der_run *run = mem_zalloc(&ctx->mem, 1, sizeof *run);
    if (!run)
        return ctx_nomem(ctx);
    run->ctx = ctx;
    run->phase = "";
    enum der_status status = read_run(run, path);
    if (status != DER_OK) {
        der_run_free(run);
        return status;
    }
    *out = run;
    return DER_OK;
}

void der_run_free(struct der_run *run)
{
    if (!run)
        return;
    struct mem *mem = &run->ctx->mem;
    der_settings_free(run->settings);
    mem_free(mem, run->json);
    mem_free(mem, run);
}

struct der_settings *der_run_settings(struct der_run *run)
{
    return run->settings;
}

/* ---- how it was started -------------------------------------------------------------------------- */

static enum der_precision public_precision(enum precision precision)
{
    switch (precision) {
    case PRECISION_TF32:
        return DER_PRECISION_TF32;
    case PRECISION_BF16:
        return DER_PRECISION_BF16;
    default:
        return DER_PRECISION_F32;
    }
}

static enum der_status fill_start(struct der_ctx *ctx, const char *path,
                                  const struct run_record *record, struct der_run_start *out)
{
    enum precision precision;
    unsigned measure;
    if (!precision_from_name(record->precision, &precision))
        return ctx_fail(ctx, DER_FORMAT,
                        "%s/config.json: 'precision' must be f32, tf32 or bf16, not %s", path,
                        record->precision);
    if (strlen(record->device) >= sizeof out->device)
        return ctx_fail(ctx, DER_FORMAT, "%s/config.json: there is no device '%s'", path,
                        record->device);
    if (!measures_from_names(record->measure, &measure))
        return ctx_fail(ctx, DER_FORMAT, "%s/config.json: 'measure' cannot be '%s'", path,
                        record->measure);
    *out = (struct der_run_start){
        .has_run = true,
        .precision = public_precision(precision),
        .deterministic = record->deterministic,
        .threads = record->threads,
        .max_steps = record->max_steps,
        .measure = measure,
        .bad_images =
            strcmp(record->bad_images, "skip") == 0 ? DER_BAD_IMAGES_SKIP : DER_BAD_IMAGES_STOP,
    };
    (void)snprintf(out->device, sizeof out->device, "%s", record->device);
    return DER_OK;
}

enum der_status der_run_start(struct der_ctx *ctx, const char *path, struct der_run_start *out)
{
    struct run_record record;
    bool has_run;
    *out = (struct der_run_start){0};
    TRY(run_folder_has_run(ctx, path, &has_run));
    if (!has_run)
        return DER_OK;
    enum der_status status = run_record_read(ctx, path, &record);
    if (status == DER_OK)
        status = fill_start(ctx, path, &record, out);
    run_record_fini(&record);
    return status;
}

/* ---- going on with its settings ------------------------------------------------------------------ */

static enum der_status store_one(struct der_ctx *ctx, const char *key, const char *value,
                                 struct config *config)
{
    const struct setting *setting;
    TRY(setting_find(ctx, key, &setting));
    return setting_store(ctx, setting, value, config);
}

/* The settings of a run, with what is given in their places: what differs then was given. */
static enum der_status check_given(struct der_ctx *ctx, const char *path,
                                   const struct run_record *record,
                                   const struct der_settings_given *given)
{
    struct config config = record->config;
    const struct preset *preset;
    if (given->preset) {
        TRY(preset_find(ctx, given->preset, &preset));
        TRY(store_one(ctx, "preset", given->preset, &config));
    }
    if (given->method)
        TRY(store_one(ctx, "method", given->method, &config));
    TRY(config_store(ctx, &config, given->assignments, given->n_assignments));
    return run_record_check_settings(ctx, record, path, &config);
}

enum der_status der_settings_resume(struct der_ctx *ctx, const char *path,
                                    const struct der_settings_given *given,
                                    struct der_settings **out)
{
    struct run_record record;
    bool has_run;
    *out = NULL;
    TRY(run_folder_has_run(ctx, path, &has_run));
    if (!has_run)
        return der_settings_new(ctx, given->preset ? given->preset : "custom", given->method,
                                given->assignments, given->n_assignments, out);
    enum der_status status = run_record_read(ctx, path, &record);
    if (status == DER_OK)
        status = check_given(ctx, path, &record, given);
    if (status == DER_OK)
        status = settings_of(ctx, &record.config, out);
    run_record_fini(&record);
    return status;
}

/* ---- telling ------------------------------------------------------------------------------------- */

static double mean(const double *values, int n)
{
    double sum = 0.0;
    for (int i = 0; i < n; i++)
        sum += values[i];
    return n > 0 ? sum / n : NAN;
}

/* Steps of the protocol that are behind it, whether each was tested or not. */
static int steps_done(const struct run_outcome *o)
{
    return o->n_steps > 0 ? run_step_number(o, o->n_steps - 1) : 0;
}

struct der_run_info der_run_info(const struct der_run *run)
{
    const struct run_outcome *o = &run->outcome;
    int n = o->n_steps;
    return (struct der_run_info){.state = o->state == RUN_DONE ? DER_RUN_DONE : DER_RUN_PARTIAL,
                                 .has_ended = o->has_ended,
                                 .is_running = run->is_running,
                                 .has_model = run->has_model,
                                 .preset = o->config.preset,
                                 .method = run->method,
                                 .network = o->config.network,
                                 .data_kind = o->data_kind,
                                 .precision = o->precision,
                                 .n_classes = o->n_classes,
                                 .train_images = o->train_images,
                                 .test_images = o->test_images,
                                 .steps_done = steps_done(o),
                                 .n_steps = config_steps(&o->config, o->n_classes),
                                 .phase = run->phase,
                                 .epochs_saved = run->epochs_saved,
                                 .last_top1 = n > 0 ? o->top1[n - 1] : NAN,
                                 .last_top5 = n > 0 ? o->top5[n - 1] : NAN,
                                 .avg_top1 = mean(o->top1, n),
                                 .avg_top5 = mean(o->top5, n),
                                 .avg_params = mean(o->params, n),
                                 .bwt = o->bwt,
                                 .fwt = o->fwt,
                                 .classifier_bound = o->bound};
}

enum der_status der_run_step(const struct der_run *run, int index, struct der_run_step *out)
{
    const struct run_outcome *o = &run->outcome;
    int n = steps_done(o);
    *out = (struct der_run_step){0};
    if (index < 0 || index >= n)
        return ctx_fail(run->ctx, DER_ARG, "there is no step %d; %d are done", index, n);
    int record = index - (n - o->n_steps); /* those without a record come first */
    *out = (struct der_run_step){.step = index + 1, .top1 = NAN, .top5 = NAN};
    if (record < 0)
        return DER_OK;
    out->top1 = o->top1[record];
    out->top5 = o->top5[record];
    out->params = (int64_t)o->params[record];
    return DER_OK;
}

static cJSON *steps_json(const struct run_outcome *o)
{
    cJSON *array = cJSON_CreateArray();
    for (int i = 0; array && i < o->n_steps; i++) {
        cJSON *object = cJSON_CreateObject();
        bool complete = api_json_number(object, "step", run_step_number(o, i)) &&
                        api_json_number(object, "top1", o->top1[i]) &&
                        api_json_number(object, "top5", o->top5[i]) &&
                        api_json_number(object, "parameters", o->params[i]);
        if (!api_json_append(array, object) || !complete) {
            cJSON_Delete(array);
            return NULL;
        }
    }
    return array;
}

static bool fill(cJSON *object, const struct der_run_info *info, const struct run_outcome *o)
{
    return api_json_text(object, "state", info->state == DER_RUN_DONE ? "done" : "partial") &&
           api_json_bool(object, "ended", info->has_ended) &&
           api_json_bool(object, "running", info->is_running) &&
           api_json_bool(object, "model", info->has_model) &&
           api_json_text(object, "data_kind", info->data_kind) &&
           api_json_text(object, "precision", info->precision) &&
           api_json_number(object, "classes", info->n_classes) &&
           api_json_number(object, "train_images", (double)info->train_images) &&
           api_json_number(object, "test_images", (double)info->test_images) &&
           api_json_number(object, "steps_done", info->steps_done) &&
           api_json_number(object, "n_steps", info->n_steps) &&
           api_json_text(object, "phase", info->phase) &&
           api_json_number(object, "epochs_saved", info->epochs_saved) &&
           api_json_number(object, "last_top1", info->last_top1) &&
           api_json_number(object, "last_top5", info->last_top5) &&
           api_json_number(object, "avg_top1", info->avg_top1) &&
           api_json_number(object, "avg_top5", info->avg_top5) &&
           api_json_number(object, "avg_parameters", info->avg_params) &&
           api_json_number(object, "bwt", info->bwt) && api_json_number(object, "fwt", info->fwt) &&
           api_json_number(object, "classifier_bound", info->classifier_bound) &&
           api_json_add(object, "steps", steps_json(o));
}

enum der_status der_run_json(struct der_run *run, const char **text)
{
    struct der_run_info info = der_run_info(run);
    cJSON *settings;
    *text = NULL;
    TRY(config_to_json(run->ctx, &run->outcome.config, &settings));
    cJSON *object = cJSON_CreateObject();
    bool complete = fill(object, &info, &run->outcome);
    complete = api_json_add(object, "settings", settings) && complete;
    TRY(api_json_print(run->ctx, object, complete, true, &run->json));
    *text = run->json;
    return DER_OK;
}

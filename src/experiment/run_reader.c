#include "experiment/run_reader.h"

#include "config/config_json.h"
#include "core/file.h"
#include "experiment/run_files.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FORMAT = 1, MAX_COUNT = 1 << 30 };

static const double PERCENT = 100.0;
static const double MOST_PARAMS = 1e15;

/* Sums of the same numbers in the same order differ by rounding at most. */
static const double AGREEMENT = 1e-9;

/* ---- config.json --------------------------------------------------------------------------------- */

static enum der_status copy_text(struct der_ctx *ctx, const char *source, const cJSON *object,
                                 const char *key, char text[CONFIG_NAME])
{
    const char *value;
    TRY(json_get_text(ctx, source, object, key, &value));
    if (strlen(value) >= CONFIG_NAME)
        return ctx_fail(ctx, DER_FORMAT, "%s: '%s' is longer than %d characters", source, key,
                        CONFIG_NAME - 1);
    (void)snprintf(text, CONFIG_NAME, "%s", value);
    return DER_OK;
}

static enum der_status read_config(struct der_ctx *ctx, const char *source, const cJSON *root,
                                   struct run_outcome *out)
{
    int64_t format = 0;
    int64_t max_steps = 0;
    const cJSON *settings;
    const cJSON *order;
    TRY(json_get_int(ctx, source, root, "format", 0, MAX_COUNT, &format));
    if (format != FORMAT)
        return ctx_fail(ctx, DER_FORMAT, "%s has format %d; this program reads format %d", source,
                        (int)format, FORMAT);
    TRY(json_get_object(ctx, source, root, "settings", &settings));
    TRY(config_from_json(ctx, source, settings, &out->config));
    TRY(copy_text(ctx, source, root, "data_kind", out->data_kind));
    TRY(copy_text(ctx, source, root, "data_checksum", out->data_checksum));
    TRY(copy_text(ctx, source, root, "precision", out->precision));
    out->has_init = cJSON_HasObjectItem(root, "init");
    TRY(json_get_int(ctx, source, root, "train_images", 0, MAX_COUNT, &out->train_images));
    TRY(json_get_int(ctx, source, root, "test_images", 0, MAX_COUNT, &out->test_images));
    TRY(json_get_int(ctx, source, root, "max_steps", 0, MAX_COUNT, &max_steps));
    out->max_steps = (int)max_steps;
    TRY(json_get_array(ctx, source, root, "class_order", &order));
    out->n_classes = cJSON_GetArraySize(order);
    if (out->n_classes < 1 || (out->config.classes > 0 && out->n_classes != out->config.classes))
        return ctx_fail(ctx, DER_FORMAT, "%s: 'class_order' has %d classes, want %d", source,
                        out->n_classes, out->config.classes);
    return DER_OK;
}

enum der_status run_read_config(struct der_ctx *ctx, const char *source, const char *text,
                                size_t length, struct run_outcome *out)
{
    cJSON *root;
    *out = (struct run_outcome){.state = RUN_ABSENT};
    TRY(json_parse(ctx, source, text, length, &root));
    enum der_status status = read_config(ctx, source, root, out);
    json_free(root);
    TRY(status);
    out->state = RUN_PARTIAL;
    return DER_OK;
}

/* ---- metrics.jsonl ------------------------------------------------------------------------------- */

/* A number within a range. One that may be missing is NAN then. */
static enum der_status get(struct der_ctx *ctx, const char *source, const cJSON *object,
                           const char *key, bool is_optional, double low, double high, double *out)
{
    *out = NAN;
    if (is_optional && !cJSON_GetObjectItemCaseSensitive(object, key))
        return DER_OK;
    double value = 0.0;
    TRY(json_get_number(ctx, source, object, key, &value));
    if (value < low || value > high)
        return ctx_fail(ctx, DER_FORMAT, "%s: '%s' must lie between %g and %g, not be %g", source,
                        key, low, high, value);
    *out = value;
    return DER_OK;
}

static enum der_status must(struct der_ctx *ctx, const char *source, const cJSON *object,
                            const char *key, double high, double *out)
{
    return get(ctx, source, object, key, false, 0.0, high, out);
}

static enum der_status may(struct der_ctx *ctx, const char *source, const cJSON *object,
                           const char *key, double low, double *out)
{
    return get(ctx, source, object, key, true, low, PERCENT, out);
}

/* Does it record its last step alone, as joint training may? */
static bool records_last_alone(const struct run_outcome *run)
{
    return run->config.method == METHOD_JOINT && run->config.joint_last;
}

/* Where it was to end before its protocol does. */
static bool is_cut(const struct run_outcome *run)
{
    return run->max_steps > 0 && run->max_steps < config_steps(&run->config, run->n_classes);
}

int run_steps(const struct run_outcome *run)
{
    return is_cut(run) ? run->max_steps : config_steps(&run->config, run->n_classes);
}

/* How many steps are recorded when all is done. */
static int recorded_steps(const struct run_outcome *run)
{
    return records_last_alone(run) ? 1 : run_steps(run);
}

int run_step_number(const struct run_outcome *run, int index)
{
    return records_last_alone(run) ? run_steps(run) : index + 1;
}

static enum der_status read_step(struct der_ctx *ctx, const char *source, const cJSON *object,
                                 struct run_outcome *run)
{
    int next = run_step_number(run, run->n_steps);
    int64_t step = 0;
    if (run->n_steps == recorded_steps(run) || run->n_steps == LEARNER_MAX_STEPS)
        return ctx_fail(ctx, DER_FORMAT, "%s: a step after the last one", source);
    TRY(json_get_int(ctx, source, object, "step", 0, MAX_COUNT, &step));
    if (step != next)
        return ctx_fail(ctx, DER_FORMAT, "%s: step %d where step %d belongs", source, (int)step,
                        next);
    int at = run->n_steps;
    TRY(must(ctx, source, object, "top1", PERCENT, &run->top1[at]));
    TRY(may(ctx, source, object, "top5", 0.0, &run->top5[at]));
    TRY(must(ctx, source, object, "params", MOST_PARAMS, &run->params[at]));
    run->n_steps++;
    return DER_OK;
}

static double mean(const double *values, int n)
{
    double sum = 0.0;
    for (int i = 0; i < n; i++)
        sum += values[i];
    return sum / n;
}

static bool agree(double a, double b)
{
    return (isnan(a) && isnan(b)) || fabs(a - b) <= AGREEMENT * fmax(1.0, fabs(b));
}

static enum der_status check_end(struct der_ctx *ctx, const char *source,
                                 const struct run_outcome *run)
{
    int n = run->n_steps;
    const struct {
        const char *key;
        double met, wanted;
    } rows[] = {{"avg_top1", run->avg_top1, mean(run->top1, n)},
                {"last_top1", run->last_top1, run->top1[n - 1]},
                {"avg_top5", run->avg_top5, mean(run->top5, n)},
                {"last_top5", run->last_top5, run->top5[n - 1]},
                {"avg_params", run->avg_params, mean(run->params, n)}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!agree(rows[i].met, rows[i].wanted))
            return ctx_fail(ctx, DER_FORMAT, "%s: '%s' is %g, but the steps give %g", source,
                            rows[i].key, rows[i].met, rows[i].wanted);
    return DER_OK;
}

static enum der_status read_end(struct der_ctx *ctx, const char *source, const cJSON *object,
                                struct run_outcome *run)
{
    int n_steps = run_steps(run);
    int n_recorded = recorded_steps(run);
    int64_t steps = 0;
    TRY(json_get_int(ctx, source, object, "steps", 0, MAX_COUNT, &steps));
    if (run->n_steps != n_recorded)
        return ctx_fail(ctx, DER_FORMAT, "%s: the run ends with %d steps, its protocol has %d",
                        source, run->n_steps, n_recorded);
    if (steps != n_steps)
        return ctx_fail(ctx, DER_FORMAT, "%s: 'steps' is %d, want %d", source, (int)steps, n_steps);
    TRY(must(ctx, source, object, "avg_top1", PERCENT, &run->avg_top1));
    TRY(must(ctx, source, object, "last_top1", PERCENT, &run->last_top1));
    TRY(may(ctx, source, object, "avg_top5", 0.0, &run->avg_top5));
    TRY(may(ctx, source, object, "last_top5", 0.0, &run->last_top5));
    TRY(must(ctx, source, object, "avg_params", MOST_PARAMS, &run->avg_params));
    TRY(may(ctx, source, object, "bwt", -PERCENT, &run->bwt));
    TRY(may(ctx, source, object, "fwt", -PERCENT, &run->fwt));
    TRY(may(ctx, source, object, "classifier_bound", 0.0, &run->bound));
    TRY(check_end(ctx, source, run));
    run->has_ended = true;
    if (!is_cut(run))
        run->state = RUN_DONE;
    return DER_OK;
}

struct reading {
    struct der_ctx *ctx;
    struct run_outcome *run;
};

/* Events of other names tell of things that are of no interest here. */
static enum der_status read_event(void *user, const char *source, const cJSON *object)
{
    const struct reading *r = user;
    const char *event;
    if (r->run->has_ended)
        return ctx_fail(r->ctx, DER_FORMAT, "%s: something follows the end of the run", source);
    TRY(json_get_text(r->ctx, source, object, "event", &event));
    if (strcmp(event, "step") == 0)
        return read_step(r->ctx, source, object, r->run);
    if (strcmp(event, "end") == 0)
        return read_end(r->ctx, source, object, r->run);
    return DER_OK;
}

enum der_status run_read_metrics(struct der_ctx *ctx, const char *source, const char *text,
                                 size_t length, struct run_outcome *out)
{
    struct reading reading = {.ctx = ctx, .run = out};
    out->state = RUN_PARTIAL;
    out->n_steps = 0;
    out->has_ended = false;
    out->avg_top1 = out->last_top1 = out->avg_top5 = out->last_top5 = out->avg_params = NAN;
    out->bwt = out->fwt = out->bound = NAN;
    return json_lines(ctx, source, text, length, read_event, &reading);
}

/* ---- the folder ---------------------------------------------------------------------------------- */

typedef enum der_status part_reader(struct der_ctx *ctx, const char *source, const char *text,
                                    size_t length, struct run_outcome *out);

/* Reads FOLDER/name; a file that is not there is left alone, and *is_there tells. */
static enum der_status read_part(struct der_ctx *ctx, const char *folder, const char *name,
                                 part_reader *read, struct run_outcome *out, bool *is_there)
{
    struct file_bytes bytes = {0};
    struct fault fault;
    char *path = run_files_join(ctx, folder, name);
    if (!path)
        return ctx_nomem(ctx);
    enum der_status status = DER_OK;
    *is_there = access(path, F_OK) == 0 || errno != ENOENT;
    if (*is_there) {
        status = file_read(&ctx->mem, NULL, path, JSON_MAX_BYTES, &bytes, &fault);
        if (status == DER_OK)
            status = read(ctx, path, (const char *)bytes.data, bytes.size, out);
        else
            status = ctx_fail(ctx, status, "%s", fault.text);
    }
    file_bytes_free(&ctx->mem, &bytes);
    mem_free(&ctx->mem, path);
    return status;
}

enum der_status run_read(struct der_ctx *ctx, const char *path, struct run_outcome *out)
{
    struct stat info;
    bool is_there;
    *out = (struct run_outcome){.state = RUN_ABSENT};
    if (stat(path, &info) != 0 && errno == ENOENT)
        return DER_OK;
    TRY(read_part(ctx, path, "config.json", run_read_config, out, &is_there));
    if (is_there)
        return read_part(ctx, path, "metrics.jsonl", run_read_metrics, out, &is_there);
    bool is_empty = false;
    TRY(run_files_is_empty(ctx, path, &is_empty));
    if (!is_empty)
        return ctx_fail(ctx, DER_FORMAT, "%s holds something, but no run: there is no config.json",
                        path);
    return DER_OK;
}

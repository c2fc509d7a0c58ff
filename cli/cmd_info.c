/*
 * `der info`: a model, a run or a preset described.
 */
#include "options.h"
#include "text.h"

#include <der/inspect.h>
#include <der/model.h>

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* What the command line fills in. */
struct request {
    const char *path;
    const char *preset;
    struct option_texts set;
    bool json;
};

static const struct option options[] = {
    {.name = "MODEL|RUN",
     .type = OPTION_WORD,
     .kind = KIND_FILE,
     .help = "a model file, or the folder of a run",
     .at = AT(path)},
    {.name = "preset",
     .kind = KIND_PRESET,
     .argument = "NAME",
     .help = "the network and the steps of a preset instead",
     .more = "Its settings are shown by `der presets`.",
     .at = AT(preset)},
    SET_ROW(set, "change a setting of the preset"),
    JSON_ROW(json, "everything, as a JSON object"),
};

enum { LABEL_COLUMN = 16 };

static void show_label(const char *label)
{
    printf("%-*s", LABEL_COLUMN, label);
}

static void show_named(const char *label, const char *text)
{
    show_label(label);
    text_print(stdout, text);
    printf("\n");
}

/* ---- models -------------------------------------------------------------------------------------- */

static void show_channel_values(const char *name, const float *values, int n)
{
    printf("%s", name);
    for (int i = 0; i < n; i++)
        printf(" %.6g", (double)values[i]);
}

static void show_model_head(const struct der_model_info *info)
{
    show_label("classes");
    printf("%d in %d step%s\n", info->n_classes, info->n_steps, info->n_steps == 1 ? "" : "s");
    show_label("image");
    printf("%d x %d x %d, %s", info->channels, info->height, info->width, info->transform);
    if (info->resize > 0)
        printf(" to %d, then the middle", info->resize);
    printf("\n");
    show_label("normalisation");
    show_channel_values("mean", info->mean, info->channels);
    show_channel_values(", std", info->std, info->channels);
    printf("\n");
    show_label("temperature");
    printf("%g\n", info->temperature);
    show_label("parameters");
    printf("%" PRId64 ", with classifier %" PRId64 "\n", info->params, info->params_total);
    show_label("multiply-adds");
    printf("%" PRId64 " for one image\n", info->multiply_adds);
    show_label("features");
    printf("%" PRId64 "\n", info->features);
    show_label("network");
    text_print(stdout, info->network);
    printf(", width %g\n", info->width_factor);
    show_label("made by");
    printf("der ");
    text_print(stdout, info->version);
    printf(", preset ");
    text_print(stdout, info->preset[0] ? info->preset : "none");
    printf(", seed %" PRIu64 "\n", info->seed);
}

static void show_widths(const struct der_extractor_info *info)
{
    for (int k = 0; k < info->n_stages; k++) {
        printf("%s%d (", k > 0 ? ", " : "", info->streams[k]);
        for (int b = 0; b < info->n_blocks[k]; b++)
            printf("%s%d", b > 0 ? " " : "", info->inner[k][b]);
        printf(")");
    }
    printf("\n");
}

static enum der_status show_extractors(const struct der_model *model, int n)
{
    printf("\n%9s %10s %13s  %-8s  %s\n", "extractor", "parameters", "multiply-adds", "stem",
           "channels of each stage (and within its blocks)");
    for (int i = 0; i < n; i++) {
        struct der_extractor_info info;
        enum der_status status = der_model_extractor(model, i, &info);
        if (status != DER_OK)
            return status;
        printf("%9d %10" PRId64 " %13" PRId64 "  %-8s  ", i + 1, info.params, info.multiply_adds,
               info.stem);
        show_widths(&info);
    }
    return DER_OK;
}

static void show_classes(const struct der_model *model, int n_steps)
{
    int label = 0;
    for (int t = 0; t < n_steps; t++) {
        printf("\nstep %d:", t + 1);
        for (int c = 0; c < der_model_step_classes(model, t); c++) {
            printf("%s ", c > 0 ? "," : "");
            text_print(stdout, der_model_class(model, label++));
        }
    }
    printf("\n");
}

static enum der_status show_model(const struct request *r, struct der_ctx *ctx)
{
    struct der_model *model;
    const char *text;
    enum der_status status = der_model_load(ctx, r->path, NULL, &model);
    if (status != DER_OK)
        return status;
    struct der_model_info info = der_model_info(model);
    if (r->json) {
        status = der_model_json(model, &text);
        if (status == DER_OK)
            fputs(text, stdout);
    } else {
        show_named("model", r->path);
        show_model_head(&info);
        status = show_extractors(model, info.n_extractors);
        show_classes(model, info.n_steps);
    }
    der_model_free(model);
    return status;
}

/* ---- runs ---------------------------------------------------------------------------------------- */

static void show_percent(const char *label, double value)
{
    if (isnan(value))
        return;
    show_label(label);
    printf("%.2f %%\n", value);
}

static void show_run_head(const struct der_run_info *info)
{
    const char *state = info->state == DER_RUN_DONE ? "finished"
                        : info->has_ended           ? "ended, as --max-steps said"
                                                    : "not finished";
    show_label("state");
    printf("%s%s, %d of %d step%s done", state, info->is_running ? ", running" : "",
           info->steps_done, info->n_steps, info->n_steps == 1 ? "" : "s");
    if (info->phase[0])
        printf(", saved in the %s stage after %d epoch%s", info->phase, info->epochs_saved,
               info->epochs_saved == 1 ? "" : "s");
    printf("\n");
    show_label("preset");
    text_print(stdout, info->preset);
    printf(", method %s, network ", info->method);
    text_print(stdout, info->network);
    printf(", %s\n", info->precision);
    show_label("data");
    text_print(stdout, info->data_kind);
    printf(", %d classes, %" PRId64 " training and %" PRId64 " test images\n", info->n_classes,
           info->train_images, info->test_images);
    show_label("model");
    printf("%s\n", info->has_model ? "model.safetensors" : "none yet");
    show_percent("last top-1", info->last_top1);
    show_percent("last top-5", info->last_top5);
    show_percent("average top-1", info->avg_top1);
    show_percent("average top-5", info->avg_top5);
    show_percent("backward", info->bwt);
    show_percent("forward", info->fwt);
    show_percent("bound", info->classifier_bound);
}

static enum der_status show_steps(const struct der_run *run, int n)
{
    if (n > 0)
        printf("\n%7s %8s %8s %12s\n", "step", "top-1 %", "top-5 %", "parameters");
    for (int i = 0; i < n; i++) {
        struct der_run_step step;
        enum der_status status = der_run_step(run, i, &step);
        if (status != DER_OK)
            return status;
        if (!isnan(step.top1)) /* nothing was trained in it */
            printf("%7d %8.2f %8.2f %12" PRId64 "\n", step.step, step.top1, step.top5, step.params);
    }
    return DER_OK;
}

static enum der_status show_settings(struct der_ctx *ctx, struct der_settings *settings)
{
    printf("\n");
    for (int i = 0; i < der_setting_count(); i++) {
        struct der_setting_info info;
        enum der_status status = der_setting_describe(ctx, i, &info);
        if (status != DER_OK)
            return status;
        printf("%-24s ", info.key);
        text_print(stdout, der_settings_value(settings, i));
        printf("\n");
    }
    return DER_OK;
}

static enum der_status show_run(const struct request *r, struct der_ctx *ctx)
{
    struct der_run *run;
    const char *text;
    enum der_status status = der_run_open(ctx, r->path, &run);
    if (status != DER_OK)
        return status;
    struct der_run_info info = der_run_info(run);
    if (r->json) {
        status = der_run_json(run, &text);
        if (status == DER_OK)
            fputs(text, stdout);
    } else {
        show_named("run", r->path);
        show_run_head(&info);
        status = show_steps(run, info.steps_done);
        if (status == DER_OK)
            status = show_settings(ctx, der_run_settings(run));
    }
    der_run_free(run);
    return status;
}

/* ---- presets ------------------------------------------------------------------------------------- */

static void show_plan(const struct der_settings *settings, const struct der_plan_info *plan)
{
    show_label("steps");
    if (plan->n_steps == 0)
        printf("as the data set and step_classes say\n");
    else
        printf("%d: %d classes in the first%s", plan->n_steps,
               der_settings_step_classes(settings, 0), plan->n_steps > 1 ? "" : "\n");
    if (plan->n_steps > 1)
        printf(", then %d each, %d in all\n", der_settings_step_classes(settings, 1),
               plan->n_classes);
    show_label("memory");
    printf("%d exemplars %s\n", plan->memory,
           plan->memory_is_per_class ? "of each class" : "in all");
    show_label("image");
    printf("%d x %d x %d%s\n", plan->channels, plan->height, plan->width,
           plan->image_is_assumed ? ", for example: the data set decides" : "");
    show_label("network");
    printf("%s, width %g, of every new extractor before it is pruned\n", plan->network,
           plan->width_factor);
    show_label("features");
    printf("%d\n", plan->features);
    printf("\n%-24s %9s %9s %7s %9s %10s %13s\n", "layer", "channels", "kernel", "stride", "result",
           "parameters", "multiply-adds");
}

static enum der_status show_layers(const struct der_settings *settings,
                                   const struct der_plan_info *plan)
{
    for (int i = 0; i < plan->n_layers; i++) {
        struct der_layer_info l;
        char channels[32];
        char kernel[32];
        char result[32];
        enum der_status status = der_settings_layer(settings, i, &l);
        if (status != DER_OK)
            return status;
        (void)snprintf(channels, sizeof channels, "%d>%d", l.in_channels, l.out_channels);
        (void)snprintf(kernel, sizeof kernel, "%dx%d", l.kernel, l.kernel);
        (void)snprintf(result, sizeof result, "%dx%d", l.height, l.width);
        printf("%-24s %9s %9s %7d %9s %10" PRId64 " %13" PRId64 "\n", l.name, channels, kernel,
               l.stride, result, l.params, l.multiply_adds);
    }
    printf("%-24s %9s %9s %7s %9s %10" PRId64 " %13" PRId64 "\n", "all", "", "", "", "",
           plan->params, plan->multiply_adds);
    return DER_OK;
}

static enum der_status show_preset(const struct request *r, struct der_ctx *ctx)
{
    struct der_settings *settings;
    struct der_plan_info plan;
    const char *text;
    enum der_status status =
        der_settings_new(ctx, r->preset, NULL, r->set.text, r->set.n, &settings);
    if (status != DER_OK)
        return status;
    if (r->json) {
        status = der_settings_plan_json(settings, &text);
        if (status == DER_OK)
            fputs(text, stdout);
    } else {
        status = der_settings_plan(settings, &plan);
        if (status == DER_OK) {
            show_named("preset", r->preset);
            show_plan(settings, &plan);
            status = show_layers(settings, &plan);
        }
    }
    der_settings_free(settings);
    return status;
}

/* ---- the command --------------------------------------------------------------------------------- */

static bool is_folder(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

static enum exit_code run(void *user)
{
    const struct request *r = user;
    if (!r->path == !r->preset)
        return fail(EXIT_USAGE, "MODEL, RUN or --preset NAME is wanted, one of them");
    if (r->set.n > 0 && !r->preset)
        return fail(EXIT_USAGE, "--set goes with --preset NAME");

    struct der_ctx_options ctx_options = {.log = show_warning};
    struct der_ctx *ctx;
    enum der_status status = der_ctx_new(&ctx_options, &ctx);
    if (status != DER_OK)
        return fail_status(NULL, status);
    if (r->preset)
        status = show_preset(r, ctx);
    else
        status = is_folder(r->path) ? show_run(r, ctx) : show_model(r, ctx);
    enum exit_code code = status == DER_OK ? EXIT_OK : fail_status(ctx, status);
    der_ctx_free(ctx);
    return code;
}

const struct command command_info = {
    .name = "info",
    .usage = "MODEL|RUN [OPTIONS]\n--preset NAME [OPTIONS]",
    .summary = "describe a model, a run or a preset",
    .about =
        "Describes a model file (classes by step, extractors with every width, parameters, images, "
        "normalisation, temperature, what made it), the folder of a run (how far it is, whether a "
        "process works "
        "on it, accuracies, settings), or what the network and the steps of a preset amount to, "
        "layer by layer.",
    TAKES(options),
    .run = run,
};

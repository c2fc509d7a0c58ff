/*
 * `der eval`: a model tested on a data set.
 */
#include "loading.h"
#include "options.h"
#include "outputs.h"
#include "progress.h"
#include "running.h"
#include "style.h"
#include "text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* What the command line fills in. */
struct request {
    struct loading loading;
    const char *data, *class_list;
    int split; /* of splits; -1: test where there is one */
    struct der_evaluate_options evaluate;
    bool per_class, json, quiet;
    struct progress progress;
};

static const char *const splits[] = {"train", "test", NULL};

static const struct request defaults = {.loading = {.threads = 2}, .split = -1};

static const struct option options[] = {
    MODEL_ROW(loading.model),
    {.name = "data",
     .kind = KIND_FOLDER,
     .argument = "DIR",
     .help = "the data set, as `der train` takes it",
     .required = true,
     .at = AT(data)},
    {.name = "split",
     .type = OPTION_CHOICE,
     .choices = splits,
     .help = "which images (test; train where there are none)",
     .at = AT(split)},
    CLASS_LIST_ROW(class_list),
    {.name = "batch",
     .type = OPTION_INT,
     .argument = "N",
     .help = "images at once (64; 16 of large images)",
     .at = AT(evaluate.batch)},
    BAD_IMAGES_ROW(evaluate.bad_images, "stop", ""),
    DEVICE_ROW(loading.device),
    PRECISION_ROW(loading.precision),
    THREADS_ROW(loading.threads),
    LOADERS_ROW(evaluate.loader_threads),
    {.name = "per-class",
     .type = OPTION_FLAG,
     .help = "show the accuracy of every class",
     .at = AT(per_class)},
    {.name = "predictions",
     .kind = KIND_FILE,
     .argument = "FILE",
     .help = "write what every image was taken for, a safetensors file",
     .more = "docs/FORMATS.md says what is in it. A file that is there is replaced.",
     .at = AT(evaluate.predictions)},
    JSON_ROW(json, "everything, as a JSON object"),
    QUIET_ROW(quiet, "show no progress"),
};

/* ---- showing ------------------------------------------------------------------------------------- */

static void show_score(const struct der_class_score *scores, int first, int last)
{
    struct der_class_score sum = {0};
    for (int c = first; c < last; c++) {
        sum.n += scores[c].n;
        sum.top1 += scores[c].top1;
        sum.top5 += scores[c].top5;
    }
    double n = (double)sum.n;
    if (sum.n > 0)
        printf(" %8" PRId64 " %8.2f %8.2f", sum.n, 100.0 * (double)sum.top1 / n,
               100.0 * (double)sum.top5 / n);
    else
        printf(" %8d %8s %8s", 0, "-", "-");
}

static void show_steps(const struct der_model *model, const struct der_class_score *scores)
{
    int n_steps = der_model_info(model).n_steps;
    int first = 0;
    style_heading("%7s %8s %8s %8s %8s\n", "step", "classes", "images", "top-1 %", "top-5 %");
    for (int t = 0; t < n_steps; t++) {
        int n = der_model_step_classes(model, t);
        printf("%3d/%-3d %8d", t + 1, n_steps, n);
        show_score(scores, first, first + n);
        printf("\n");
        first += n;
    }
}

static void show_classes(const struct der_model *model, const struct der_class_score *scores)
{
    int n_classes = der_model_info(model).n_classes;
    style_heading("%7s %8s %8s %8s  %s\n", "label", "images", "top-1 %", "top-5 %", "class");
    for (int c = 0; c < n_classes; c++) {
        printf("%7d", c);
        show_score(scores, c, c + 1);
        printf("  ");
        text_print(stdout, der_model_class(model, c));
        printf("\n");
    }
}

static enum der_status show(const struct request *r, struct der_model *model,
                            const struct der_evaluation *e)
{
    const struct der_class_score *scores = r->evaluate.scores;
    if (r->json) {
        const char *text;
        enum der_status status = der_model_evaluation_json(model, e, scores, &text);
        if (status == DER_OK)
            fputs(text, stdout);
        return status;
    }
    show_steps(model, scores);
    if (r->per_class)
        show_classes(model, scores);
    /* A folder without a part for tests is somebody's test: only what was asked for is called by its name. */
    const char *which = e->split == DER_SPLIT_TEST ? "test " : r->split < 0 ? "" : "training ";
    printf("%saccuracy: top-1 %.2f %%, top-5 %.2f %% of %" PRId64
           " images in %d of the model's %d classes\n",
           which, e->top1, e->top5, e->n, e->n_classes, der_model_info(model).n_classes);
    if (e->bad_images > 0)
        printf("left out: %" PRId64 " images that do not decode\n", e->bad_images);
    return DER_OK;
}

/* ---- testing ------------------------------------------------------------------------------------- */

static enum der_split choose_split(const struct request *r, const struct der_data *data)
{
    struct der_data_info info = der_data_info(data);
    if (r->split >= 0)
        return r->split == 1 ? DER_SPLIT_TEST : DER_SPLIT_TRAIN;
    return info.n_test > 0 ? DER_SPLIT_TEST : DER_SPLIT_TRAIN;
}

static void show_progress(void *user, int64_t done, int64_t total)
{
    struct request *r = user;
    if (!r->quiet)
        progress_show_images(&r->progress, done, total);
}

static enum der_status evaluate(struct request *r, struct der_ctx *ctx, struct der_model *model)
{
    struct der_evaluation evaluation;
    struct der_data *data;
    enum der_status status = der_data_open(ctx, r->data, r->class_list, &data);
    r->progress.started = progress_clock();
    if (status == DER_OK)
        status = der_model_evaluate(model, data, choose_split(r, data), &r->evaluate, &evaluation);
    progress_end(&r->progress);
    if (status == DER_OK)
        status = show(r, model, &evaluation);
    der_data_free(data);
    return status;
}

static enum exit_code run(void *user)
{
    struct request *r = user;
    struct der_ctx *ctx;
    struct der_model *model;
    r->evaluate.progress = show_progress;
    r->evaluate.cancelled = running_is_interrupted;
    r->evaluate.user = r;
    enum exit_code code = outputs_spare("predictions", r->evaluate.predictions, r->loading.model);
    if (code != EXIT_OK)
        return code;
    running_catch_interrupts();
    code = loading_open(&r->loading, &ctx, &model);
    if (code != EXIT_OK)
        return code;
    size_t n_classes = (size_t)der_model_info(model).n_classes;
    r->evaluate.scores = calloc(n_classes, sizeof *r->evaluate.scores);
    enum der_status status = r->evaluate.scores ? evaluate(r, ctx, model) : DER_NOMEM;
    if (status != DER_OK)
        code = fail_status(r->evaluate.scores ? ctx : NULL, status);
    free(r->evaluate.scores);
    der_model_free(model);
    der_ctx_free(ctx);
    return code;
}

const struct command command_eval = {
    .name = "eval",
    .usage = "MODEL --data DIR [OPTIONS]",
    .summary = "test a model on a data set",
    .about = "Tests a model on a data set: top-1 and top-5 accuracy over all images, and of the "
             "classes of each step. "
             "Classes of the data set and of the model are matched by name; images of classes that "
             "the model does "
             "not know are left out with a warning, and a data set without a single class that it "
             "knows is refused.",
    TAKES(options),
    .defaults = &defaults,
    .run = run,
};

/*
 * `der eval`: a model tested on a data set.
 */
#include "cli.h"
#include "loading.h"
#include "options.h"
#include "progress.h"
#include "running.h"
#include "text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What the command line fills in. */
struct request {
    struct loading loading;
    const char *data, *class_list, *split, *bad_images;
    struct der_evaluate_options evaluate;
    bool per_class, json;
    struct progress progress;
};

enum { N_OPTIONS = 12 };

static void list_options(struct request *r, struct option options[N_OPTIONS])
{
    const struct option table[N_OPTIONS] = {
        {"MODEL", OPTION_WORD, "", "a model file, or the folder of a run", &r->loading.model},
        {"data", OPTION_TEXT, "DIR", "the data set, as 'der train' takes it", &r->data},
        {"split", OPTION_TEXT, "train|test", "which images (test; train where there are none)",
         &r->split},
        {"class-list", OPTION_TEXT, "FILE",
         "image folders: use the classes named in FILE, one a line", &r->class_list},
        {"batch", OPTION_INT, "N", "images at once (64; 16 of large images)", &r->evaluate.batch},
        {"bad-images", OPTION_TEXT, "skip|stop", "what to do with images that do not decode (stop)",
         &r->bad_images},
        {"device", OPTION_TEXT, "NAME", "back end, as 'der --version' lists them (the fastest)",
         &r->loading.device},
        {"precision", OPTION_TEXT, "f32|tf32|bf16", "of convolutions; the CPU has f32 only (f32)",
         &r->loading.precision},
        {"threads", OPTION_INT, "N", "compute threads; results depend on it (2)",
         &r->loading.threads},
        {"loaders", OPTION_INT, "N", "threads that prepare batches (1)",
         &r->evaluate.loader_threads},
        {"per-class", OPTION_FLAG, "", "show the accuracy of every class", &r->per_class},
        {"json", OPTION_FLAG, "", "everything, as a JSON object", &r->json},
    };
    memcpy(options, table, sizeof table);
}

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
    printf("%7s %8s %8s %8s %8s\n", "step", "classes", "images", "top-1 %", "top-5 %");
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
    printf("%7s %8s %8s %8s  %s\n", "label", "images", "top-1 %", "top-5 %", "class");
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
    printf("%s accuracy: top-1 %.2f %%, top-5 %.2f %% of %" PRId64
           " images in %d of the model's %d classes\n",
           e->split == DER_SPLIT_TEST ? "test" : "training", e->top1, e->top5, e->n, e->n_classes,
           der_model_info(model).n_classes);
    if (e->bad_images > 0)
        printf("left out: %" PRId64 " images that do not decode\n", e->bad_images);
    return DER_OK;
}

/* ---- testing ------------------------------------------------------------------------------------- */

static enum der_split choose_split(const struct request *r, const struct der_data *data)
{
    struct der_data_info info = der_data_info(data);
    if (r->split)
        return strcmp(r->split, "test") == 0 ? DER_SPLIT_TEST : DER_SPLIT_TRAIN;
    return info.n_test > 0 ? DER_SPLIT_TEST : DER_SPLIT_TRAIN;
}

static void show_progress(void *user, int64_t done, int64_t total)
{
    progress_show_images(user, done, total);
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

static enum exit_code run(struct request *r)
{
    struct der_ctx *ctx;
    struct der_model *model;
    enum exit_code code = loading_open(&r->loading, "eval", &ctx, &model);
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

static enum exit_code read_words(struct request *r)
{
    static const char *const splits[] = {"train", "test"};
    static const char *const bad_images[] = {"stop", "skip"};
    int bad = running_choose("eval", "bad-images", r->bad_images, bad_images, 2);
    if (bad < 0 || (r->split && running_choose("eval", "split", r->split, splits, 2) < 0))
        return EXIT_USAGE;
    r->evaluate.bad_images = bad ? DER_BAD_IMAGES_SKIP : DER_BAD_IMAGES_STOP;
    return EXIT_OK;
}

enum exit_code cmd_eval(int argc, char **argv)
{
    struct request request = {.loading = {.threads = 2}, .bad_images = "stop"};
    struct option options[N_OPTIONS];
    list_options(&request, options);
    if (argc == 2 && strcmp(argv[1], "--help") == 0) {
        printf("usage: der eval MODEL --data DIR [OPTIONS]\n\n");
        options_print(options, N_OPTIONS);
        return EXIT_OK;
    }
    enum exit_code code = options_parse(options, N_OPTIONS, argc, argv);
    if (code == EXIT_OK)
        code = read_words(&request);
    if (code != EXIT_OK)
        return code;
    if (!request.data)
        return fail(EXIT_USAGE, "--data is missing; see 'der eval --help'");
    if (request.evaluate.batch < 0 || request.evaluate.loader_threads < 0)
        return fail(EXIT_USAGE, "--batch and --loaders want 0 or more");
    request.evaluate.progress = show_progress;
    request.evaluate.cancelled = running_is_interrupted;
    request.evaluate.user = &request.progress;
    running_catch_interrupts();
    return run(&request);
}

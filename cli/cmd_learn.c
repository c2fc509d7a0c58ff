/*
 * `der learn`: adds the classes of an image folder to a model.
 */
#include "cli.h"
#include "options.h"
#include "progress.h"
#include "running.h"

#include <der/learn.h>

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What the flags fill in. */
struct flags {
    struct der_learn_options learn;
    struct der_model_options model;
    const char *path, *data, *class_list, *target_params, *precision, *bad_images;
    double validation;
    int threads, seed;
    bool quiet, json;
    struct progress progress;
};

enum { N_OPTIONS = 21 };

static void list_options(struct flags *f, struct option options[N_OPTIONS])
{
    const struct option table[N_OPTIONS] = {
        {"MODEL", OPTION_WORD, "", "the model file; made if it is not there", &f->path},
        {"new", OPTION_TEXT, "DIR", "folder with a folder of pictures for every class", &f->data},
        {"class-list", OPTION_TEXT, "FILE", "learn the classes named in FILE alone, one a line",
         &f->class_list},
        {"arch", OPTION_TEXT, "NAME",
         "network of a new model, as 'der nets' lists them (by the pictures)", &f->learn.network},
        {"width", OPTION_NUMBER, "X", "factor on the channels of a new model (1)", &f->learn.width},
        {"image-size", OPTION_INT, "N", "side of the images of a new model (by the pictures)",
         &f->learn.image_size},
        {"init", OPTION_TEXT, "WEIGHTS",
         "a new model begins with these weights; see 'der import' (at random)", &f->learn.init},
        {"epochs", OPTION_INT, "N", "epochs of the new extractor (by the number of pictures)",
         &f->learn.epochs},
        {"classifier-epochs", OPTION_INT, "N", "epochs of the classifier (30)",
         &f->learn.classifier_epochs},
        {"batch", OPTION_INT, "N", "pictures of a batch (by their number)", &f->learn.batch},
        {"memory", OPTION_INT, "N", "pictures of every class kept with the model (as before; 20)",
         &f->learn.memory},
        {"validation", OPTION_NUMBER, "F",
         "share of each class held out where DIR has no val or test (0.2)", &f->validation},
        {"target-params", OPTION_TEXT, "N",
         "wanted parameters of the new extractor: 90000, 90k (as before; a third)",
         &f->target_params},
        {"seed", OPTION_INT, "N", "seed of everything random (1)", &f->seed},
        {"bad-images", OPTION_TEXT, "skip|stop",
         "what to do with pictures that do not decode (skip)", &f->bad_images},
        {"device", OPTION_TEXT, "NAME", "back end, as 'der --version' lists them (the fastest)",
         &f->model.backend},
        {"precision", OPTION_TEXT, "f32|tf32|bf16", "of convolutions; the CPU has f32 only (f32)",
         &f->precision},
        {"threads", OPTION_INT, "N", "compute threads; results depend on it (2)", &f->threads},
        {"loaders", OPTION_INT, "N", "threads that prepare batches (1)", &f->learn.loader_threads},
        {"json", OPTION_FLAG, "", "tell the result as JSON", &f->json},
        {"quiet", OPTION_FLAG, "", "no progress, only the result", &f->quiet},
    };
    memcpy(options, table, sizeof table);
}

static void show_progress(void *user, const struct der_progress *progress)
{
    struct flags *f = user;
    if (!f->quiet)
        progress_show(&f->progress, progress);
}

static void show_log(void *user, enum der_log_level level, const char *text)
{
    struct flags *f = user;
    if (level > DER_LOG_WARNING)
        return;
    progress_end(&f->progress);
    (void)fprintf(stderr, "der: warning: %s\n", text);
}

static const char *plural(int64_t n, const char *one, const char *many)
{
    return n == 1 ? one : many;
}

static void show_accuracy(const char *what, double before, double after, int64_t n)
{
    if (n == 0) {
        printf("  %-12s no held-out pictures\n", what);
        return;
    }
    printf("  %-12s ", what);
    if (!isnan(before))
        printf("%6.2f %% before, ", before);
    printf("%6.2f %% now, of %" PRId64 " held-out %s\n", after, n,
           plural(n, "picture", "pictures"));
}

static void show_report(const struct flags *f, const struct der_learn_report *r)
{
    printf("%s knows %d classes: %d new, %d joined by new pictures\n", f->path, r->n_classes,
           r->new_classes, r->joined_classes);
    printf("learnt from %" PRId64 " new %s in %.0f s", r->n_pictures,
           plural(r->n_pictures, "picture", "pictures"), r->seconds);
    if (r->known_pictures > 0)
        printf("; %" PRId64 " it had already", r->known_pictures);
    if (r->bad_pictures > 0)
        printf("; %" PRId64 " could not be read", r->bad_pictures);
    printf("\naccuracy:\n");
    if (r->held_out_old > 0 || r->n_classes > r->new_classes)
        show_accuracy("old classes", r->old_before, r->old_after, r->held_out_old);
    if (r->new_classes > 0)
        show_accuracy("new classes", NAN, r->new_after, r->held_out_new);
    show_accuracy("all classes", NAN, r->all_after, r->held_out_old + r->held_out_new);
    printf("parameters: %" PRId64 ", with classifier %" PRId64 "\n", r->params, r->params_total);
}

/* JSON has no word for what was not measured but null. */
static void show_number(const char *key, double value)
{
    if (isnan(value))
        printf("  \"%s\": null,\n", key);
    else
        printf("  \"%s\": %.10g,\n", key, value);
}

static void show_json(const struct der_learn_report *r)
{
    printf("{\n  \"classes\": %d,\n  \"new_classes\": %d,\n  \"joined_classes\": %d,\n",
           r->n_classes, r->new_classes, r->joined_classes);
    printf("  \"pictures\": %" PRId64 ",\n  \"known_pictures\": %" PRId64
           ",\n  \"bad_pictures\": %" PRId64 ",\n",
           r->n_pictures, r->known_pictures, r->bad_pictures);
    printf("  \"held_out_old\": %" PRId64 ",\n  \"held_out_new\": %" PRId64 ",\n", r->held_out_old,
           r->held_out_new);
    show_number("old_before", r->old_before);
    show_number("old_after", r->old_after);
    show_number("new_after", r->new_after);
    show_number("all_after", r->all_after);
    printf("  \"params\": %" PRId64 ",\n  \"params_total\": %" PRId64 ",\n  \"seconds\": %.3f\n}\n",
           r->params, r->params_total, r->seconds);
}

static enum exit_code learn(struct der_ctx *ctx, struct flags *f)
{
    struct der_learn_report report;
    struct der_data *data;
    enum der_status status = der_data_open(ctx, f->data, f->class_list, &data);
    if (status == DER_OK)
        status = der_learn(ctx, f->path, data, &f->model, &f->learn, &report);
    progress_end(&f->progress);
    der_data_free(data);
    if (status == DER_CANCELLED)
        return fail(EXIT_RUN, "%s; %s is as it was", der_ctx_error(ctx), f->path);
    if (status != DER_OK)
        return fail_status(ctx, status);
    if (f->json)
        show_json(&report);
    else
        show_report(f, &report);
    return EXIT_OK;
}

static enum exit_code run(struct flags *f)
{
    struct der_ctx_options options = {.threads = f->threads, .log = show_log, .log_user = f};
    struct der_ctx *ctx;
    enum der_status status = der_ctx_new(&options, &ctx);
    if (status != DER_OK)
        return fail_status(NULL, status);
    enum exit_code code = learn(ctx, f);
    der_ctx_free(ctx);
    return code;
}

static enum exit_code read_words(struct flags *f)
{
    static const char *const bad_images[] = {"stop", "skip"};
    int bad = running_choose("learn", "bad-images", f->bad_images, bad_images, 2);
    if (bad < 0 || !running_precision("learn", f->precision, &f->model.precision))
        return EXIT_USAGE;
    f->learn.bad_images = bad ? DER_BAD_IMAGES_SKIP : DER_BAD_IMAGES_STOP;
    if (f->target_params && !running_count(f->target_params, &f->learn.target_params))
        return fail(EXIT_USAGE,
                    "--target-params wants a number such as 90000, 90k or 0.9M, not '%s'",
                    f->target_params);
    return EXIT_OK;
}

static enum exit_code check(struct flags *f)
{
    if (!f->path || !f->data)
        return fail(EXIT_USAGE, "%s is missing; see 'der learn --help'",
                    f->path ? "--new" : "MODEL");
    if (f->threads < 1 || f->seed < 0 || f->learn.epochs < 0 || f->learn.classifier_epochs < 0 ||
        f->learn.batch < 0 || f->learn.memory < 0 || f->learn.image_size < 0 ||
        f->learn.width < 0.0 || f->learn.loader_threads < 0)
        return fail(EXIT_USAGE, "--threads wants 1 or more, the other numbers 0 or more");
    if (!(f->validation >= 0.0 && f->validation < 1.0))
        return fail(EXIT_USAGE, "--validation wants a share from 0 up to, but not including, 1");
    f->learn.validation = f->validation > 0.0 ? f->validation : -1.0;
    f->learn.seed = (uint64_t)f->seed;
    f->learn.progress = show_progress;
    f->learn.cancelled = running_is_interrupted;
    f->learn.user = f;
    return EXIT_OK;
}

enum exit_code cmd_learn(int argc, char **argv)
{
    struct flags f = {
        .precision = "f32", .bad_images = "skip", .threads = 2, .seed = 1, .validation = 0.2};
    struct option options[N_OPTIONS];
    list_options(&f, options);
    if (argc == 2 && strcmp(argv[1], "--help") == 0) {
        printf("usage: der learn MODEL --new DIR [OPTIONS]\n\n");
        options_print(options, N_OPTIONS);
        return EXIT_OK;
    }
    enum exit_code code = options_parse(options, N_OPTIONS, argc, argv);
    if (code == EXIT_OK)
        code = read_words(&f);
    if (code == EXIT_OK)
        code = check(&f);
    if (code != EXIT_OK)
        return code;
    running_catch_interrupts();
    return run(&f);
}

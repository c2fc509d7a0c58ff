/*
 * `der learn`: adds the classes of an image folder to a model.
 */
#include "cache_dir.h"
#include "options.h"
#include "progress.h"
#include "running.h"

#include <der/learn.h>

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* What the command line fills in. */
struct request {
    struct der_learn_options learn;
    struct der_model_options model;
    const char *path, *data, *class_list, *target_params;
    double validation;
    int threads, seed;
    bool quiet, json;
    struct progress progress;
};

static const struct request defaults = {
    .learn = {.bad_images = DER_BAD_IMAGES_SKIP}, .threads = 2, .seed = 1, .validation = 0.2};

static const struct option options[] = {
    {.name = "MODEL",
     .type = OPTION_WORD,
     .kind = KIND_FILE,
     .help = "the model file; made if it is not there",
     .required = true,
     .at = AT(path)},
    {.name = "new",
     .kind = KIND_FOLDER,
     .argument = "DIR",
     .help = "folder with a folder of pictures for every class",
     .more = "Or any other data set, as `der train` takes it.",
     .required = true,
     .at = AT(data)},
    {.name = "class-list",
     .kind = KIND_FILE,
     .argument = "FILE",
     .help = "learn the classes named in FILE alone, one a line",
     .at = AT(class_list)},
    {.name = "arch",
     .kind = KIND_NETWORK,
     .argument = "NAME",
     .help = "network of a new model, as `der nets` lists them (by the pictures)",
     .more = "It is chosen by size and number of the pictures.",
     .at = AT(learn.network)},
    {.name = "width",
     .type = OPTION_NUMBER,
     .argument = "X",
     .is_positive = true,
     .help = "factor on the channels of a new model (1)",
     .at = AT(learn.width)},
    {.name = "image-size",
     .type = OPTION_INT,
     .argument = "N",
     .at_least = 1,
     .help = "side of the images of a new model (by the pictures)",
     .more = "That of square pictures up to 64 x 64, else 48 for up to 5,000 pictures, 128 for up "
             "to 50,000, 224 "
             "for more, but no more than the pictures have.",
     .at = AT(learn.image_size)},
    {.name = "init",
     .kind = KIND_FILE,
     .argument = "WEIGHTS",
     .help = "a new model begins with these weights; see `der import` (at random)",
     .more = "The network is then resnet18 unless `--arch` names another. "
             "The file is not needed afterwards.",
     .at = AT(learn.init)},
    {.name = "epochs",
     .type = OPTION_INT,
     .argument = "N",
     .at_least = 1,
     .help = "epochs of the new extractor (by the number of pictures)",
     .more = "24,000 over that number, 20 to 100.",
     .at = AT(learn.epochs)},
    {.name = "classifier-epochs",
     .type = OPTION_INT,
     .argument = "N",
     .at_least = 1,
     .help = "epochs of the classifier that is trained anew (30)",
     .more = "Or those of the extractor, where they are fewer.",
     .at = AT(learn.classifier_epochs)},
    {.name = "batch",
     .type = OPTION_INT,
     .argument = "N",
     .at_least = 1,
     .help = "pictures of a batch (by their number)",
     .more = "An eighth of all as a power of two, 16 to 128.",
     .at = AT(learn.batch)},
    {.name = "lr",
     .type = OPTION_NUMBER,
     .argument = "X",
     .is_positive = true,
     .help = "learning rate (0.02; 0.05 with batches above 32)",
     .more = "What extractor and classifier begin with; batches below 16 take proportionally less.",
     .at = AT(learn.lr)},
    {.name = "memory",
     .type = OPTION_INT,
     .argument = "N",
     .at_least = 1,
     .help = "pictures of every class kept with the model (as before; 20)",
     .more = "They are trained on again; at most as many are kept to test with.",
     .at = AT(learn.memory)},
    {.name = "validation",
     .type = OPTION_NUMBER,
     .argument = "F",
     .help = "share of each class held out where DIR has no val or test (0.2)",
     .more = "With 0, none.",
     .at = AT(validation)},
    {.name = "target-params",
     .argument = "N",
     .help = "wanted parameters of the new extractor: 90000, 90k (as before; a third)",
     .more = "A third of the unpruned ones.",
     .at = AT(target_params)},
    {.name = "seed",
     .type = OPTION_INT,
     .argument = "N",
     .help = "seed of everything random (1)",
     .at = AT(seed)},
    {.name = "bad-images",
     .type = OPTION_CHOICE,
     .choices = BAD_IMAGE_WORDS,
     .help = "what to do with pictures that do not decode (skip)",
     .more = "Those that are skipped are named. A class without a single picture that can be read "
             "is an error in "
             "either case.",
     .at = AT(learn.bad_images)},
    DEVICE_ROW(model.backend),
    PRECISION_ROW(model.precision),
    THREADS_ROW(threads),
    LOADERS_ROW(learn.loader_threads),
    {.name = "json",
     .type = OPTION_FLAG,
     .help = "tell the result as a JSON object",
     .more = "What was not measured is null.",
     .at = AT(json)},
    QUIET_ROW(quiet, "show no progress, only the result"),
};

static void show_progress(void *user, const struct der_progress *progress)
{
    struct request *f = user;
    if (!f->quiet)
        progress_show(&f->progress, progress);
}

static void show_log(void *user, enum der_log_level level, const char *text)
{
    struct request *f = user;
    progress_end(&f->progress);
    show_warning(user, level, text);
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

static void show_report(const struct request *f, const struct der_learn_report *r)
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

static enum exit_code learn(struct der_ctx *ctx, struct request *f)
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

static enum exit_code start(struct request *f)
{
    char path[CACHE_DIR_MAX];
    struct der_ctx_options ctx_options = {
        .threads = f->threads, .log = show_log, .log_user = f, .cache_dir = cache_dir(path)};
    struct der_ctx *ctx;
    enum der_status status = der_ctx_new(&ctx_options, &ctx);
    if (status != DER_OK)
        return fail_status(NULL, status);
    enum exit_code code = learn(ctx, f);
    der_ctx_free(ctx);
    return code;
}

/* Everything that needs more than a place to be put. */
static enum exit_code check(struct request *f)
{
    if (f->target_params && !running_count(f->target_params, &f->learn.target_params))
        return fail(EXIT_USAGE,
                    "--target-params wants a number such as 90000, 90k or 0.9M, not '%s'",
                    f->target_params);
    if (f->validation >= 1.0)
        return fail(EXIT_USAGE, "--validation wants a share from 0 up to, but not including, 1");
    f->learn.validation = f->validation > 0.0 ? f->validation : -1.0;
    f->learn.seed = (uint64_t)f->seed;
    f->learn.progress = show_progress;
    f->learn.cancelled = running_is_interrupted;
    f->learn.user = f;
    return EXIT_OK;
}

static enum exit_code run(void *user)
{
    struct request *f = user;
    enum exit_code code = check(f);
    if (code != EXIT_OK)
        return code;
    running_catch_interrupts();
    return start(f);
}

const struct command command_learn = {
    .name = "learn",
    .usage = "MODEL --new DIR [OPTIONS]",
    .summary = "add the classes of an image folder to a model",
    .about = "Adds the classes of an image folder to a model, any number of times; the model is "
             "made if it is not "
             "there. Classes are matched by name: pictures of one that the model knows join it. "
             "Where all classes are "
             "known already, the extractors stay and only the classifier is trained anew. The "
             "first time at least two "
             "classes are needed.\n"
             "Beside cats`.safetensors` two more files are kept, a few pictures of every class in "
             "cats`.exemplars.safetensors` and what training goes on from in "
             "cats`.state.safetensors`; copy or move all "
             "three. To predict, the model alone is enough. A link stands for the model that it "
             "leads to, beside which those files are. The pictures in DIR are not needed any "
             "more afterwards.\n"
             "The old files stay until the new ones are complete: a kill, a full disk or an "
             "interrupt (Ctrl-C) leaves "
             "the model that was there. Meanwhile a lock, cats`.lock`, keeps other processes from "
             "learning into the "
             "same model.\n"
             "Pictures to test with are those of DIR`/val` or DIR`/test`, or a share of each class "
             "with five pictures "
             "or more. Accuracy on held-out pictures of the classes known before and of the new "
             "ones is printed, "
             "before and after.",
    TAKES(options),
    .defaults = &defaults,
    .run = run,
};

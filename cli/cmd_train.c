/*
 * `der train`: a method through a protocol on a data set, step by step.
 */
#include "cache_dir.h"
#include "options.h"
#include "progress.h"
#include "running.h"

#include <der/inspect.h>
#include <der/train.h>

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* What the command line fills in. */
struct request {
    struct der_train_options train;
    struct option_texts settings; /* "key=value" */
    const char *preset, *method, *order, *joint_steps, *target_params;
    double validation;
    int threads;               /* 0: not given */
    int precision, bad_images; /* negative: not given */
    int seed, save_every;
    bool quiet;
    bool has_header; /* of the table of steps */
    struct progress progress;
};

enum { DEFAULT_THREADS = 2, MAX_SETTINGS = OPTION_TEXTS_MAX + 8, SETTING_TEXT = 1200 };

static const char *const measures[] = {"representation", "transfer", "latency", NULL};
static const char *const orders[] = {"1", "2", "3", "seed:", NULL};

static const struct request defaults = {
    .precision = -1, .bad_images = -1, .seed = -1, .save_every = -1, .validation = -1.0};

static const struct option options[] = {
    {.name = "data",
     .kind = KIND_FOLDER,
     .argument = "DIR",
     .help = "the data set; or synth:classes=10,train=100,...",
     .more = "A folder with CIFAR-10 or CIFAR-100 (binary or Python files), IDX files of the MNIST "
             "family (plain or "
             "`.gz`), or image folders (DIR`/train/`CLASS`/*` with DIR`/val` or DIR`/test`, or a "
             "single folder of "
             "classes, of which a fifth is held out for testing); or "
             "`synth:classes=10,train=100,test=20,size=32,seed=1`, procedural images.",
     .at = AT(train.data)},
    {.name = "preset",
     .kind = KIND_PRESET,
     .argument = "NAME",
     .help = "the protocol, as `der presets` lists them (custom)",
     .more = "The preset `custom` has all classes in one step, unless `step_classes` is set.",
     .at = AT(preset)},
    {.name = "method",
     .setting = "method",
     .help = "what is done with new classes (der)",
     .more = "`der` is the method of this program, `finetune` one network that is trained on, "
             "`joint` one fresh "
             "network a step that sees all images of all classes so far: the bound. `icarl`, "
             "`wa` and `bic` are finetune with "
             "the network of the step before as a teacher, and instead of a second stage with the "
             "nearest mean of exemplars, a classifier that is aligned, or one that is corrected on "
             "images set aside.",
     .at = AT(method)},
    {.name = "init",
     .kind = KIND_FILE,
     .argument = "WEIGHTS",
     .help = "begin with these weights; see `der import` (at random)",
     .more = "The first extractor begins with them, and every network of method joint. Images are "
             "still normalised "
             "as the preset says. The file is needed again only by a run that is resumed before "
             "its first save, or "
             "that begins further networks.",
     .at = AT(train.init)},
    {.name = "out",
     .letter = 'o',
     .kind = KIND_FOLDER,
     .argument = "RUN",
     .help = "folder to make for the model, the metrics and the state",
     .more = "Every setting used is in `config.json` there, beside the name of the data set, which "
             "must be UTF-8; one object an epoch and one a step in `metrics.jsonl`. A run that "
             "fails before its first epoch is done leaves neither.",
     .at = AT(train.out)},
    {.name = "resume",
     .type = OPTION_FLAG,
     .help = "go on with the run in RUN; settings need not be repeated",
     .more = "It goes on from its latest save to the same result, byte for byte, as without the "
             "interruption; where "
             "there is no run yet, it begins. The run knows its settings, its data, its back end, "
             "precision and "
             "number of threads, what it measures, its last step and what it does with bad images; "
             "they may be left out, and what is given must be the same; settings that are not "
             "given are "
             "the run's, whatever a preset has. Only "
             "`--device` may be "
             "another: the run then goes on there, in f32 unless `--precision` says otherwise, and "
             "a warning tells "
             "that it will not end with the same bytes. Another version of oneDNN is warned about. "
             "A finished run is "
             "left alone; `--data` and `--class-list` are compared with its own if they have other "
             "names.",
     .at = AT(train.resume)},
    {.name = "save-every",
     .type = OPTION_INT,
     .argument = "N",
     .help = "save after every N epochs; 0: only after steps (10)",
     .more = "Without the option, a save follows the one before after 15 s at the soonest. The end "
             "of each stage is saved too. A run that is killed loses what came after its "
             "latest save, and "
             "nothing else.",
     .at = AT(save_every)},
    {.name = "tensorboard",
     .kind = KIND_FOLDER,
     .argument = "DIR",
     .help = "write event files for TensorBoard to DIR",
     .more = "It is made if it is not there. They have losses, learning rate, accuracies, sizes, "
             "histograms of the "
             "masks, pictures of the exemplars. A run that is resumed begins a new file there and "
             "no curve doubles. "
             "When events can no longer be written, on a full disk say, that is warned about and "
             "the run goes on.",
     .at = AT(train.tensorboard)},
    {.name = "order",
     .kind = KIND_FILE,
     .argument = "1|2|3|seed:N|FILE",
     .choices = orders,
     .help = "order of the classes (the preset's)",
     .more = "One of the paper's three, numpy's shuffle of a seed, or a file with the numbers of "
             "the classes.",
     .at = AT(order)},
    {.name = "seed",
     .type = OPTION_INT,
     .argument = "N",
     .help = "seed of everything random (the preset's)",
     .at = AT(seed)},
    {.name = "max-steps",
     .type = OPTION_INT,
     .argument = "N",
     .help = "stop after so many steps (all)",
     .at = AT(train.max_steps)},
    {.name = "validation",
     .type = OPTION_NUMBER,
     .argument = "F",
     .help = "hold out this share of the training images and test on it",
     .at = AT(validation)},
    {.name = "joint-steps",
     .setting = "joint_steps",
     .help = "when method joint trains (every)",
     .at = AT(joint_steps)},
    {.name = "target-params",
     .argument = "N",
     .help = "wanted parameters of a pruned extractor: 900000, 900k, 0.9M",
     .more = "The weight of the sparsity loss is steered towards it.",
     .at = AT(target_params)},
    SET_ROW(settings, "change a setting; `der help settings` lists them"),
    {.name = "measure",
     .type = OPTION_CHOICES,
     .choices = measures,
     .help = "measure more after every step; may be given several times",
     .more = "`representation`: its accuracy, read by a classifier trained on all data of all "
             "classes so far, with "
             "backward transfer and the bound of the classifier; `transfer`: forward transfer too, "
             "against a fresh "
             "network; `latency`: milliseconds per image, pruned and unpruned.",
     .at = AT(train.measure)},
    CLASS_LIST_ROW(train.class_list),
    BAD_IMAGES_ROW(bad_images, "stop", BAD_IMAGES_OF_TRAINING),
    DEVICE_ROW(train.backend),
    PRECISION_ROW(precision),
    DETERMINISTIC_ROW(train.deterministic),
    THREADS_ROW(threads),
    LOADERS_ROW(train.loader_threads),
    QUIET_ROW(quiet, "show no progress, only the table of steps and the result"),
};

static void show_progress(void *user, const struct der_progress *progress)
{
    struct request *f = user;
    if (!f->quiet)
        progress_show(&f->progress, progress);
}

static void show_step(void *user, const struct der_step *step)
{
    struct request *f = user;
    running_show_step(&f->has_header, step);
}

static void show_transfer(const char *name, double value)
{
    if (!isnan(value))
        printf("%s: %+.2f %%\n", name, value);
}

static void show_result(const struct der_train_result *r)
{
    printf("%d classes in %d step%s, %" PRId64 " training images, %.0f s\n", r->n_classes, r->steps,
           r->steps == 1 ? "" : "s", r->n_train, r->seconds);
    printf("%s accuracy: average %.2f %%, last %.2f %%, top-5 %.2f %% of %" PRId64 " images\n",
           r->on_validation ? "held-out" : "test", r->last.avg_top1, r->last.top1, r->last.top5,
           r->n_test);
    printf("parameters: average %.0f, last %" PRId64 ", with classifier %" PRId64 "\n",
           r->last.avg_params, r->last.params, r->last.params_total);
    printf("forgetting: %.2f %%\n", r->last.forgetting);
    if (!isnan(r->classifier_bound))
        printf("classifier bound: %.2f %%\n", r->classifier_bound);
    show_transfer("backward transfer", r->bwt);
    show_transfer("forward transfer", r->fwt);
}

static void show_finished(const struct request *f, const struct der_step *last)
{
    printf("%s: this run is finished: %d classes in %d step%s, average %.2f %%, last %.2f %%\n",
           f->train.out, last->n_classes, last->n_steps, last->n_steps == 1 ? "" : "s",
           last->avg_top1, last->top1);
}

static enum exit_code train(struct der_ctx *ctx, struct request *f)
{
    struct der_train_result result;
    enum der_status status = der_train(ctx, &f->train, &result);
    progress_end(&f->progress);
    if (status == DER_CANCELLED && f->train.out)
        return fail(EXIT_RUN, "%s; '--out %s --resume' goes on from the latest save",
                    der_ctx_error(ctx), f->train.out);
    if (status != DER_OK)
        return fail_status(ctx, status);
    if (result.was_finished)
        show_finished(f, &result.last);
    else
        show_result(&result);
    return EXIT_OK;
}

/* What the library has to say about a run that works nevertheless. */
static void show_log(void *user, enum der_log_level level, const char *text)
{
    struct request *f = user;
    progress_end(&f->progress);
    show_warning(user, level, text);
}

/* Flags that stand for a setting, then what --set says. */
struct assignments {
    char own[8][SETTING_TEXT];
    int n_own;
    const char *all[MAX_SETTINGS];
    int n;
};

static void assign(struct assignments *a, const char *key, const char *value)
{
    if (!value)
        return;
    char *text = a->own[a->n_own++];
    (void)snprintf(text, SETTING_TEXT, "%s=%s", key, value);
    a->all[a->n++] = text;
}

static void collect(const struct request *f, struct assignments *a)
{
    char seed[32];
    char validation[64];
    (void)snprintf(seed, sizeof seed, "%d", f->seed);
    (void)snprintf(validation, sizeof validation, "%.17g", f->validation);
    assign(a, "order", f->order);
    assign(a, "joint_steps", f->joint_steps);
    assign(a, "target_params", f->target_params);
    assign(a, "seed", f->seed >= 0 ? seed : NULL);
    assign(a, "validation", f->validation >= 0.0 ? validation : NULL);
    for (int i = 0; i < f->settings.n; i++)
        a->all[a->n++] = f->settings.text[i];
}

/* What was said about settings. A run that goes on knows its own: they stay NULL when nothing was. */
static enum der_status settle(struct der_ctx *ctx, const struct request *f,
                              struct der_settings **out)
{
    struct assignments a = {0};
    collect(f, &a);
    const struct der_settings_given given = {
        .preset = f->preset, .method = f->method, .assignments = a.all, .n_assignments = a.n};
    *out = NULL;
    if (!f->train.resume)
        return der_settings_new(ctx, f->preset ? f->preset : "custom",
                                f->method ? f->method : "der", a.all, a.n, out);
    if (!f->preset && !f->method && a.n == 0)
        return DER_OK;
    return der_settings_resume(ctx, f->train.out, &given, out);
}

static enum exit_code start(struct request *f)
{
    char path[CACHE_DIR_MAX];
    struct der_ctx_options ctx_options = {
        .threads = f->threads, .log = show_log, .log_user = f, .cache_dir = cache_dir(path)};
    struct der_settings *settings = NULL;
    struct der_ctx *ctx;
    enum der_status status = der_ctx_new(&ctx_options, &ctx);
    if (status != DER_OK)
        return fail_status(NULL, status);
    status = settle(ctx, f, &settings);
    f->train.settings = settings;
    enum exit_code code = status == DER_OK ? train(ctx, f) : fail_status(ctx, status);
    der_settings_free(settings);
    der_ctx_free(ctx);
    return code;
}

/* A run that goes on does as it was started, in what was not asked for otherwise. On another device its
 * precision may not exist, and the default is taken. */
static void adopt(struct request *f, const struct der_run_start *begun)
{
    bool is_moved = f->train.backend && strcmp(f->train.backend, begun->device) != 0;
    if (f->threads == 0)
        f->threads = begun->threads;
    if (f->precision < 0 && !is_moved)
        f->train.precision = begun->precision;
    f->train.deterministic = f->train.deterministic || begun->deterministic;
    if (f->train.max_steps == 0)
        f->train.max_steps = begun->max_steps;
    if (f->train.measure == 0)
        f->train.measure = begun->measure;
    if (f->bad_images < 0)
        f->train.bad_images = begun->bad_images;
}

static enum exit_code recall(struct request *f)
{
    struct der_run_start begun;
    struct der_ctx *ctx;
    enum der_status status = der_ctx_new(NULL, &ctx);
    if (status != DER_OK)
        return fail_status(NULL, status);
    status = der_run_start(ctx, f->train.out, &begun);
    enum exit_code code = status == DER_OK ? EXIT_OK : fail_status(ctx, status);
    der_ctx_free(ctx);
    if (status == DER_OK && begun.has_run)
        adopt(f, &begun);
    return code;
}

static enum exit_code run(void *user)
{
    struct request *f = user;
    if (f->train.resume && !f->train.out)
        return fail(EXIT_USAGE, "--resume wants --out RUN, the run to go on with");
    if (!f->train.data && !f->train.resume)
        return fail(EXIT_USAGE, "--data is missing; see 'der help train'");
    if (f->precision >= 0)
        f->train.precision = (enum der_precision)f->precision;
    if (f->bad_images >= 0)
        f->train.bad_images = (enum der_bad_images)f->bad_images;
    enum exit_code code = f->train.resume ? recall(f) : EXIT_OK;
    if (code != EXIT_OK)
        return code;
    if (f->threads == 0)
        f->threads = DEFAULT_THREADS;
    f->train.save_every = f->save_every < 0 ? 0 : f->save_every == 0 ? -1 : f->save_every;
    f->train.progress = show_progress;
    f->train.step = show_step;
    f->train.cancelled = running_is_interrupted;
    f->train.user = f;
    running_catch_interrupts();
    return start(f);
}

const struct command command_train = {
    .name = "train",
    .usage = "--data DIR [OPTIONS]\n--out RUN --resume [OPTIONS]",
    .summary = "train a network on a data set and test it",
    .about = "Learns the classes of a data set step by step, as a preset says, and tests on all "
             "classes so far after "
             "every step. Each step prints a line: accuracy, its average over the steps, "
             "parameters of the extractors. "
             "Progress goes to standard error: one line that rewrites itself on a terminal, a "
             "plain line every half "
             "minute elsewhere. An interrupt (Ctrl-C) ends training after the current batch.",
    TAKES(options),
    .defaults = &defaults,
    .run = run,
};

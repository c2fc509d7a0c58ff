/*
 * `der train`: a method through a protocol on a data set, step by step.
 */
#include "cli.h"
#include "options.h"
#include "progress.h"
#include "running.h"

#include <der/inspect.h>
#include <der/train.h>

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* What the flags fill in. */
struct flags {
    struct der_train_options train;
    struct option_texts settings; /* "key=value" */
    struct option_texts measure;
    const char *preset, *method, *order, *joint_steps, *target_params, *precision, *bad_images;
    double validation;
    int threads, seed, save_every;
    bool quiet;
    bool has_header; /* of the table of steps */
    struct progress progress;
};

enum { NOT_GIVEN = INT_MIN, DEFAULT_THREADS = 2 };

enum { N_OPTIONS = 24, MAX_SETTINGS = OPTION_TEXTS_MAX + 8, SETTING_TEXT = 1200 };

static void list_options(struct flags *f, struct option options[N_OPTIONS])
{
    const struct option table[N_OPTIONS] = {
        {"data", OPTION_TEXT, "DIR", "the data set; or synth:classes=10,train=100,...",
         &f->train.data},
        {"preset", OPTION_TEXT, "NAME", "the protocol, as 'der presets' lists them (custom)",
         &f->preset},
        {"method", OPTION_TEXT, "der|finetune|joint", "what is done with new classes (der)",
         &f->method},
        {"init", OPTION_TEXT, "WEIGHTS", "begin with these weights; see 'der import' (at random)",
         &f->train.init},
        {"out", OPTION_TEXT, "RUN", "folder to make for the model, the metrics and the state",
         &f->train.out},
        {"resume", OPTION_FLAG, "", "go on with the run in RUN; settings need not be repeated",
         &f->train.resume},
        {"save-every", OPTION_INT, "N", "save after every N epochs; 0: only after steps (10)",
         &f->save_every},
        {"tensorboard", OPTION_TEXT, "DIR", "write event files for TensorBoard to DIR",
         &f->train.tensorboard},
        {"order", OPTION_TEXT, "1|2|3|seed:N|FILE", "order of the classes (the preset's)",
         &f->order},
        {"seed", OPTION_INT, "N", "seed of everything random (the preset's)", &f->seed},
        {"max-steps", OPTION_INT, "N", "stop after so many steps (all)", &f->train.max_steps},
        {"validation", OPTION_NUMBER, "F",
         "hold out this share of the training images and test on it", &f->validation},
        {"joint-steps", OPTION_TEXT, "every|last", "when method joint trains (every)",
         &f->joint_steps},
        {"target-params", OPTION_TEXT, "N",
         "wanted parameters of a pruned extractor: 900000, 900k, 0.9M", &f->target_params},
        {"set", OPTION_TEXTS, "KEY=VALUE", "change a setting; 'der presets NAME' lists them",
         &f->settings},
        {"measure", OPTION_TEXTS, "representation|transfer|latency",
         "measure more after every step; may be given several times", &f->measure},
        {"class-list", OPTION_TEXT, "FILE",
         "image folders: use the classes named in FILE, one a line", &f->train.class_list},
        {"bad-images", OPTION_TEXT, "skip|stop", "what to do with images that do not decode (stop)",
         &f->bad_images},
        {"device", OPTION_TEXT, "NAME", "back end, as 'der --version' lists them (the fastest)",
         &f->train.backend},
        {"precision", OPTION_TEXT, "f32|tf32|bf16", "of convolutions; the CPU has f32 only (f32)",
         &f->precision},
        {"deterministic", OPTION_FLAG, "", "only algorithms that give the same bytes twice",
         &f->train.deterministic},
        {"threads", OPTION_INT, "N", "compute threads; results depend on it (2)", &f->threads},
        {"loaders", OPTION_INT, "N", "threads that prepare batches (1)", &f->train.loader_threads},
        {"quiet", OPTION_FLAG, "", "no progress, only the table at the end", &f->quiet},
    };
    memcpy(options, table, sizeof table);
}

static void show_progress(void *user, const struct der_progress *progress)
{
    struct flags *f = user;
    if (!f->quiet)
        progress_show(&f->progress, progress);
}

static void show_step(void *user, const struct der_step *step)
{
    struct flags *f = user;
    running_show_step(&f->has_header, step);
}

static void show_measured(const char *name, double value)
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
    show_measured("classifier bound", r->classifier_bound);
    show_measured("backward transfer", r->bwt);
    show_measured("forward transfer", r->fwt);
}

static void show_finished(const struct flags *f, const struct der_step *last)
{
    printf("%s: this run is finished: %d classes in %d step%s, average %.2f %%, last %.2f %%\n",
           f->train.out, last->n_classes, last->n_steps, last->n_steps == 1 ? "" : "s",
           last->avg_top1, last->top1);
}

static enum exit_code train(struct der_ctx *ctx, struct flags *f)
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
    struct flags *f = user;
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

static void collect(const struct flags *f, struct assignments *a)
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

/* Was anything said about settings? A run that goes on knows its own. */
static bool has_settings(const struct flags *f, const struct assignments *a)
{
    return f->preset || f->method || a->n > 0;
}

static enum exit_code run(struct flags *f)
{
    struct der_ctx_options ctx_options = {.threads = f->threads, .log = show_log, .log_user = f};
    struct der_settings *settings = NULL;
    struct der_ctx *ctx;
    struct assignments assignments = {0};
    collect(f, &assignments);
    enum der_status status = der_ctx_new(&ctx_options, &ctx);
    if (status != DER_OK)
        return fail_status(NULL, status);
    if (!f->train.resume || has_settings(f, &assignments))
        status =
            der_settings_new(ctx, f->preset ? f->preset : "custom", f->method ? f->method : "der",
                             assignments.all, assignments.n, &settings);
    f->train.settings = settings;
    enum exit_code code = status == DER_OK ? train(ctx, f) : fail_status(ctx, status);
    der_settings_free(settings);
    der_ctx_free(ctx);
    return code;
}

static enum exit_code read_words(struct flags *f)
{
    static const char *const bad_images[] = {"stop", "skip"};
    static const char *const measures[] = {"representation", "transfer", "latency"};
    int bad = running_choose("train", "bad-images", f->bad_images, bad_images, 2);
    if (bad < 0 || (f->precision && !running_precision("train", f->precision, &f->train.precision)))
        return EXIT_USAGE;
    f->train.bad_images = bad ? DER_BAD_IMAGES_SKIP : DER_BAD_IMAGES_STOP;
    for (int i = 0; i < f->measure.n; i++) {
        int which = running_choose("train", "measure", f->measure.text[i], measures, 3);
        if (which < 0)
            return EXIT_USAGE;
        f->train.measure |= 1u << which;
    }
    return EXIT_OK;
}

static enum exit_code check(const struct flags *f)
{
    if (f->train.resume && !f->train.out)
        return fail(EXIT_USAGE, "--resume wants --out RUN, the run to go on with");
    if (!f->train.data && !f->train.resume)
        return fail(EXIT_USAGE, "--data is missing; see 'der train --help'");
    if ((f->threads < 1 && f->threads != NOT_GIVEN) || f->train.max_steps < 0 ||
        f->train.loader_threads < 0 || f->save_every < 0)
        return fail(EXIT_USAGE, "--threads wants 1 or more, --max-steps, --loaders and "
                                "--save-every 0 or more");
    return EXIT_OK;
}

/* A run that goes on computes as it was started, in what was not asked for otherwise. On another device its
 * precision may not exist, and the default is taken. */
static void adopt(struct flags *f, const struct der_run_start *start)
{
    bool is_moved = f->train.backend && strcmp(f->train.backend, start->device) != 0;
    if (f->threads == NOT_GIVEN)
        f->threads = start->threads;
    if (!f->precision && !is_moved)
        f->train.precision = start->precision;
    f->train.deterministic = f->train.deterministic || start->deterministic;
}

static enum exit_code recall(struct flags *f)
{
    struct der_run_start start;
    struct der_ctx *ctx;
    enum der_status status = der_ctx_new(NULL, &ctx);
    if (status != DER_OK)
        return fail_status(NULL, status);
    status = der_run_start(ctx, f->train.out, &start);
    enum exit_code code = status == DER_OK ? EXIT_OK : fail_status(ctx, status);
    der_ctx_free(ctx);
    if (status == DER_OK && start.has_run)
        adopt(f, &start);
    return code;
}

enum exit_code cmd_train(int argc, char **argv)
{
    struct flags f = {.bad_images = "stop",
                      .threads = NOT_GIVEN,
                      .seed = -1,
                      .save_every = 10,
                      .validation = -1.0};
    struct option options[N_OPTIONS];
    list_options(&f, options);
    if (argc == 2 && strcmp(argv[1], "--help") == 0) {
        printf("usage: der train --data DIR [OPTIONS]\n\n");
        options_print(options, N_OPTIONS);
        return EXIT_OK;
    }
    enum exit_code code = options_parse(options, N_OPTIONS, argc, argv);
    if (code == EXIT_OK)
        code = read_words(&f);
    if (code == EXIT_OK)
        code = check(&f);
    if (code == EXIT_OK && f.train.resume)
        code = recall(&f);
    if (code != EXIT_OK)
        return code;
    if (f.threads == NOT_GIVEN)
        f.threads = DEFAULT_THREADS;
    f.train.save_every = f.save_every > 0 ? f.save_every : -1;
    f.train.progress = show_progress;
    f.train.step = show_step;
    f.train.cancelled = running_is_interrupted;
    f.train.user = &f;
    running_catch_interrupts();
    return run(&f);
}

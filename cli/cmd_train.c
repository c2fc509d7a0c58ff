/*
 * `der train`: trains a network on all classes of a data set at once and tests it.
 */
#include "cli.h"
#include "options.h"
#include "progress.h"

#include <der/train.h>

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

/* What the flags fill in. */
struct settings {
    struct der_train_options train;
    int threads, seed;
    const char *bad_images;
};

enum { N_OPTIONS = 15 };

static void list_options(struct settings *s, struct option options[N_OPTIONS])
{
    const struct option table[N_OPTIONS] = {
        {"data", OPTION_TEXT, "DIR", "the data set; or synth:classes=10,train=100,...",
         &s->train.data},
        {"class-list", OPTION_TEXT, "FILE",
         "image folders: use the classes named in FILE, one a line", &s->train.class_list},
        {"first-classes", OPTION_INT, "N",
         "image folders: use the first N classes (100: ImageNet-100)", &s->train.first_classes},
        {"net", OPTION_TEXT, "NAME", "network, as 'der nets' lists them (resnet18-cifar)",
         &s->train.network},
        {"width", OPTION_NUMBER, "F", "factor on the channels of every layer (1)", &s->train.width},
        {"epochs", OPTION_INT, "N", "epochs; the schedule is scaled to them (170)",
         &s->train.epochs},
        {"batch", OPTION_INT, "N", "images a batch (128)", &s->train.batch},
        {"lr", OPTION_NUMBER, "F", "learning rate after the warm-up (0.1)", &s->train.lr},
        {"per-class", OPTION_INT, "N", "use at most N training images of each class (all)",
         &s->train.per_class},
        {"validation", OPTION_NUMBER, "F",
         "hold out this share of the training images and test on it", &s->train.validation},
        {"bad-images", OPTION_TEXT, "skip|stop", "what to do with images that do not decode (stop)",
         &s->bad_images},
        {"device", OPTION_TEXT, "NAME", "back end, as 'der --version' lists them (the fastest)",
         &s->train.backend},
        {"threads", OPTION_INT, "N", "compute threads; results depend on it (2)", &s->threads},
        {"loaders", OPTION_INT, "N", "threads that prepare batches (1)", &s->train.loader_threads},
        {"seed", OPTION_INT, "N", "seed of everything random (1993)", &s->seed},
    };
    memcpy(options, table, sizeof table);
}

/* The only thing a signal handler may touch. */
static volatile sig_atomic_t interrupted;

static void interrupt(int signal_number)
{
    (void)signal_number;
    interrupted = 1;
}

static bool is_interrupted(void *user)
{
    (void)user;
    return interrupted != 0;
}

static enum exit_code run(const struct settings *settings)
{
    struct der_ctx_options ctx_options = {.threads = settings->threads,
                                          .seed = (uint64_t)settings->seed};
    struct der_ctx *ctx;
    enum der_status status = der_ctx_new(&ctx_options, &ctx);
    if (status != DER_OK)
        return fail_status(NULL, status);
    struct der_train_result result;
    status = der_train(ctx, &settings->train, &result);
    enum exit_code code = EXIT_OK;
    if (status != DER_OK)
        code = fail_status(ctx, status);
    else
        printf("%d classes, %" PRId64 " training images, %" PRId64 " parameters, %.0f s\n"
               "%s accuracy: top-1 %.2f %%, top-5 %.2f %% of %" PRId64 " images\n",
               result.n_classes, result.n_train, result.parameters, result.seconds,
               result.on_validation ? "held-out" : "test", result.top1, result.top5, result.n_test);
    der_ctx_free(ctx);
    return code;
}

enum exit_code cmd_train(int argc, char **argv)
{
    struct settings settings = {.threads = 2, .seed = 1993, .bad_images = "stop"};
    struct option options[N_OPTIONS];
    list_options(&settings, options);
    if (argc == 2 && strcmp(argv[1], "--help") == 0) {
        printf("usage: der train --data DIR [OPTIONS]\n\n");
        options_print(options, N_OPTIONS);
        return EXIT_OK;
    }
    enum exit_code code = options_parse(options, N_OPTIONS, argc, argv);
    if (code != EXIT_OK)
        return code;
    if (!settings.train.data)
        return fail(EXIT_USAGE, "--data is missing; see 'der train --help'");
    if (settings.threads < 1 || settings.seed < 0)
        return fail(EXIT_USAGE, "--threads wants 1 or more, --seed 0 or more");
    bool skip = strcmp(settings.bad_images, "skip") == 0;
    if (!skip && strcmp(settings.bad_images, "stop") != 0)
        return fail(EXIT_USAGE, "--bad-images wants 'skip' or 'stop', not '%s'",
                    settings.bad_images);
    settings.train.bad_images = skip ? DER_BAD_IMAGES_SKIP : DER_BAD_IMAGES_STOP;
    settings.train.progress = progress_show;
    settings.train.cancelled = is_interrupted;
    (void)signal(SIGINT, interrupt);
    (void)signal(SIGTERM, interrupt);
    return run(&settings);
}

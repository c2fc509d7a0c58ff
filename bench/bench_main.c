/*
 * der_bench: measures what bench/run.py asks for.
 *
 *     der_bench net  [--model NAME] [--infer] [--batch N] [--threads N] [--width X] [--backend NAME]
 *     der_bench step [--extractors N] [--precision f32|tf32|bf16] [--cache DIR] ...
 *     der_bench der  [--extractors N] [--part step|train|frozen] [--masks] [--frozen-width X]
 *                    [--widths LIST] [--frozen-widths LIST]
 *                    [--precision f32|tf32|bf16] [--lanes N] [--thin-most N] [--weights-apart]
 *                    [--gradients-apart] [--statistics-apart] [--slopes-apart]
 *                    [--norm-in-passes] [--zeros-stored] [--without-strips]
 *                    [--without-sheets] [--without-chains] [--cache DIR] ...
 *     der_bench augment ...
 *     der_bench loader [--folder DIR | --side PIXELS] [--rounds N] [--batch N] [--threads N]
 *     der_bench model --file MODEL [--extractors N] [--model NAME] [--width X]
 *     der_bench predict --file MODEL --image BYTES [--threads N] [--backend NAME]
 */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char USAGE[] =
    "usage: der_bench net|step|der|augment [--model NAME] [--infer] [--batch N] [--threads N]\n"
    "                                      [--width X] [--backend NAME] [--extractors N]\n"
    "                                      [--part step|train|frozen] [--masks]\n"
    "                                      [--frozen-width X] [--widths LIST]\n"
    "                                      [--frozen-widths LIST] [--precision f32|tf32|bf16]\n"
    "                                      [--lanes N] [--thin-most N] [--weights-apart]\n"
    "                                      [--gradients-apart] [--statistics-apart]\n"
    "                                      [--slopes-apart] [--norm-in-passes] [--zeros-stored]\n"
    "                                      [--without-strips] [--without-sheets]\n"
    "                                      [--without-chains] [--cache DIR]\n"
    "       der_bench loader [--folder DIR | --side PIXELS] [--rounds N] [--batch N]\n"
    "                        [--threads N]\n"
    "       der_bench model --file MODEL [--extractors N] [--model NAME] [--width X]\n"
    "       der_bench predict --file MODEL --image BYTES [--threads N] [--backend NAME]\n";

static const struct command {
    const char *name;
    enum der_status (*run)(struct der_ctx *ctx, const struct bench_options *options);
} COMMANDS[] = {
    {"net", bench_net},         {"step", bench_step},     {"der", bench_der},
    {"augment", bench_augment}, {"loader", bench_loader}, {"model", bench_model},
    {"predict", bench_predict},
};

static const struct command *find_command(const char *name)
{
    for (size_t i = 0; i < sizeof COMMANDS / sizeof *COMMANDS; i++)
        if (strcmp(COMMANDS[i].name, name) == 0)
            return &COMMANDS[i];
    return NULL;
}

static enum precision precision_of(const char *name)
{
    if (strcmp(name, "bf16") == 0)
        return PRECISION_BF16;
    return strcmp(name, "tf32") == 0 ? PRECISION_TF32 : PRECISION_F32;
}

/* What an argument without a value sets; NULL: it has a value, or there is no such one. */
static bool *switch_of(struct bench_options *o, const char *argument)
{
    const struct {
        const char *name;
        bool *set;
    } switches[] = {{"--infer", &o->infers},
                    {"--masks", &o->masks},
                    {"--weights-apart", &o->tuning.weights_apart},
                    {"--gradients-apart", &o->tuning.gradients_apart},
                    {"--statistics-apart", &o->tuning.statistics_apart},
                    {"--slopes-apart", &o->tuning.slopes_apart},
                    {"--norm-in-passes", &o->tuning.norm_in_passes},
                    {"--zeros-stored", &o->tuning.zeros_stored},
                    {"--without-strips", &o->tuning.without_strips},
                    {"--without-sheets", &o->tuning.without_sheets},
                    {"--without-chains", &o->tuning.without_chains}};
    for (size_t i = 0; i < sizeof switches / sizeof *switches; i++)
        if (strcmp(argument, switches[i].name) == 0)
            return switches[i].set;
    return NULL;
}

/* False when an argument is not understood. */
static bool parse(int argc, char **argv, struct bench_options *o)
{
    for (int i = 2; i < argc; i++) {
        bool *set = switch_of(o, argv[i]);
        if (set) {
            *set = true;
            continue;
        }
        if (i + 1 == argc)
            return false;
        const char *value = argv[++i];
        int number = (int)strtol(value, NULL, 10);
        if (strcmp(argv[i - 1], "--model") == 0)
            o->model = value;
        else if (strcmp(argv[i - 1], "--backend") == 0)
            o->backend = value;
        else if (strcmp(argv[i - 1], "--width") == 0)
            o->width = strtod(value, NULL);
        else if (strcmp(argv[i - 1], "--batch") == 0)
            o->batch = number;
        else if (strcmp(argv[i - 1], "--threads") == 0)
            o->threads = number;
        else if (strcmp(argv[i - 1], "--extractors") == 0)
            o->n_extractors = number;
        else if (strcmp(argv[i - 1], "--part") == 0)
            o->part = value;
        else if (strcmp(argv[i - 1], "--folder") == 0)
            o->folder = value;
        else if (strcmp(argv[i - 1], "--cache") == 0)
            o->cache = value;
        else if (strcmp(argv[i - 1], "--file") == 0)
            o->file = value;
        else if (strcmp(argv[i - 1], "--image") == 0)
            o->image = value;
        else if (strcmp(argv[i - 1], "--side") == 0)
            o->side = number;
        else if (strcmp(argv[i - 1], "--rounds") == 0)
            o->rounds = number;
        else if (strcmp(argv[i - 1], "--frozen-width") == 0)
            o->frozen_width = strtod(value, NULL);
        else if (strcmp(argv[i - 1], "--widths") == 0)
            o->widths = value;
        else if (strcmp(argv[i - 1], "--frozen-widths") == 0)
            o->frozen_widths = value;
        else if (strcmp(argv[i - 1], "--thin-most") == 0)
            o->tuning.thin_most = number;
        else if (strcmp(argv[i - 1], "--lanes") == 0)
            o->tuning.side_streams = number;
        else if (strcmp(argv[i - 1], "--precision") == 0)
            o->precision = precision_of(value);
        else
            return false;
    }
    return o->batch > 0 && o->threads > 0;
}

int main(int argc, char **argv)
{
    struct bench_options options = {.backend = "cpu",
                                    .model = "resnet18-cifar",
                                    .width = 1.0,
                                    .batch = 128,
                                    .threads = 1,
                                    .n_extractors = 10,
                                    .part = "step",
                                    .side = 500,
                                    .rounds = 9,
                                    .frozen_width = 1.0};
    const struct command *command = argc > 1 ? find_command(argv[1]) : NULL;
    if (!command || !parse(argc, argv, &options)) {
        (void)fputs(USAGE, stderr);
        return 2;
    }
    struct der_ctx *ctx;
    struct der_ctx_options ctx_options = {
        .threads = options.threads, .seed = 1993, .cache_dir = options.cache};
    if (der_ctx_new(&ctx_options, &ctx) != DER_OK)
        return 1;
    enum der_status status = command->run(ctx, &options);
    if (status != DER_OK)
        (void)fprintf(stderr, "der_bench: %s\n", der_ctx_error(ctx));
    der_ctx_free(ctx);
    return status == DER_OK ? 0 : 1;
}

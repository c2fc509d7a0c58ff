/*
 * Predictions on one picture through the public interface: the part of bench/predict.py that is ours.
 *
 * Loads a model file, makes a first prediction, prints how long both took, and then answers lines on
 * standard input:
 *     run K     K predictions one by one; answers {"ms": [...], "cpu_ms": processor time of one}
 *     logits    answers {"logits": [...]}
 *     quit
 */
#include "bench.h"

#include <der/model.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    LINE_MAX_CHARS = 128,
    CHANNELS = 3,
    PIXELS = CHANNELS * BENCH_IMAGE_SIZE * BENCH_IMAGE_SIZE,
    TOP = 5,
};

struct predictor {
    struct der_model *model;
    uint8_t pixels[PIXELS]; /* R G B R G B ... */
    struct der_image image;
};

static enum der_status read_pixels(struct der_ctx *ctx, const char *path, uint8_t pixels[PIXELS])
{
    FILE *stream = fopen(path, "rb");
    size_t n = stream ? fread(pixels, 1, PIXELS, stream) : 0;
    if (stream)
        (void)fclose(stream);
    if (n != PIXELS)
        return ctx_fail(ctx, DER_IO, "%s does not hold the %d bytes of a picture", path, PIXELS);
    return DER_OK;
}

static enum der_status predict(struct predictor *p)
{
    struct der_guess guesses[TOP];
    return der_model_predict(p->model, &p->image, 1, TOP, guesses);
}

static enum der_status run(struct predictor *p, long count)
{
    double cpu = bench_cpu_clock();
    for (long i = 0; i < count; i++) {
        double since = bench_clock();
        TRY(predict(p));
        printf("%s%.5f", i ? ", " : "{\"ms\": [", 1e3 * (bench_clock() - since));
    }
    printf("], \"cpu_ms\": %.5f}\n", 1e3 * (bench_cpu_clock() - cpu) / (double)count);
    return DER_OK;
}

static enum der_status print_logits(struct predictor *p)
{
    float logits[BENCH_N_CLASSES];
    int n = der_model_info(p->model).n_classes;
    if (n > BENCH_N_CLASSES)
        n = BENCH_N_CLASSES;
    TRY(der_model_logits(p->model, &p->image, 1, logits));
    for (int i = 0; i < n; i++)
        printf("%s%.9g", i ? ", " : "{\"logits\": [", (double)logits[i]);
    printf("]}\n");
    return DER_OK;
}

static enum der_status obey(struct predictor *p)
{
    char line[LINE_MAX_CHARS];
    while (fgets(line, sizeof line, stdin) && strncmp(line, "quit", 4) != 0) {
        if (strncmp(line, "run ", 4) == 0)
            TRY(run(p, strtol(line + 4, NULL, 10)));
        else
            TRY(print_logits(p));
        (void)fflush(stdout);
    }
    return DER_OK;
}

static enum der_status start(struct predictor *p, struct der_ctx *ctx,
                             const struct bench_options *options)
{
    struct der_model_options model = {.backend = options->backend};
    double since = bench_clock();
    TRY(der_model_load(ctx, options->file, &model, &p->model));
    double loaded = bench_clock();
    TRY(predict(p));
    printf("{\"load_ms\": %.3f, \"first_ms\": %.3f}\n", 1e3 * (loaded - since),
           1e3 * (bench_clock() - loaded));
    (void)fflush(stdout);
    return DER_OK;
}

enum der_status bench_predict(struct der_ctx *ctx, const struct bench_options *options)
{
    struct predictor p = {.image = {.pixels = p.pixels,
                                    .channels = CHANNELS,
                                    .height = BENCH_IMAGE_SIZE,
                                    .width = BENCH_IMAGE_SIZE}};
    if (!options->file || !options->image)
        return ctx_fail(ctx, DER_ARG, "predict wants --file and --image");
    TRY(read_pixels(ctx, options->image, p.pixels));
    enum der_status status = start(&p, ctx, options);
    if (status == DER_OK)
        status = obey(&p);
    der_model_free(p.model);
    return status;
}

/*
 * Predictions on one picture: the part of bench/predict.py that is ours.
 *
 * Loads a model file, makes a first prediction, prints how long that took, and then answers lines on
 * standard input:
 *     run K     K predictions one by one; answers {"ms": [...], "cpu_ms": processor time of one}
 *     logits    answers {"logits": [...]}
 *     quit
 */
#include "bench.h"

#include "data/augment.h"
#include "store/model_file.h"
#include "train/assembly.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE_MAX_CHARS = 128, PIXELS = 3 * BENCH_IMAGE_SIZE * BENCH_IMAGE_SIZE, MAX_CLASSES = 128 };

struct predictor {
    struct backend *be;
    struct model *model;
    struct desks desks;
    struct assembly_cache cache;
    struct augment augment;
    uint8_t pixels[PIXELS];
    float image[PIXELS];
    float logits[MAX_CLASSES];
};

static enum der_status describe(void *self, struct graph *g, struct assembly_io *io)
{
    struct model *model = self;
    struct param_use *head;
    TRY(assembly_attach(g, io, model->classifier, false, &head));
    TRY(graph_linear(g, io->matrix, head->value[0], NO_VALUE, &io->logits));
    return graph_expose(g, io->logits);
}

static enum der_status open_model(struct predictor *p, struct der_ctx *ctx,
                                  const struct bench_options *options)
{
    TRY(backend_open(ctx, options->backend, NULL, &p->be));
    TRY(model_load(p->be, NULL, options->file, &p->model));
    TRY(augment_init(ctx, &p->model->info.input, &p->augment));
    desks_init(&p->desks, p->be, &p->model->extractors[0]->spec, model_feature_dim(p->model));
    return DER_OK;
}

static enum der_status predict(struct predictor *p)
{
    struct assembly_plan plan = {.be = p->be,
                                 .frozen = p->model->extractors,
                                 .n_frozen = p->model->n_extractors,
                                 .desks = &p->desks,
                                 .self = p->model,
                                 .describe = describe};
    struct assembly *assembly;
    TRY(assembly_get(&p->cache, &plan, 1, &assembly));
    for (int c = 0; c < 3; c++)
        for (int i = 0; i < PIXELS / 3; i++)
            p->image[c * PIXELS / 3 + i] = p->augment.table[c][p->pixels[3 * i + c]];
    TRY(buffer_write(assembly->desk.image, 0, p->image, sizeof p->image));
    TRY(sequence_run(assembly->sequence));
    return buffer_read(assembly->logits, 0, p->logits,
                       (size_t)p->model->info.n_classes * sizeof *p->logits);
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

static enum der_status obey(struct predictor *p)
{
    char line[LINE_MAX_CHARS];
    while (fgets(line, sizeof line, stdin) && strncmp(line, "quit", 4) != 0) {
        if (strncmp(line, "run ", 4) == 0) {
            TRY(run(p, strtol(line + 4, NULL, 10)));
        } else {
            for (int i = 0; i < p->model->info.n_classes; i++)
                printf("%s%.9g", i ? ", " : "{\"logits\": [", (double)p->logits[i]);
            printf("]}\n");
        }
        (void)fflush(stdout);
    }
    return DER_OK;
}

enum der_status bench_predict(struct der_ctx *ctx, const struct bench_options *options)
{
    struct predictor *p = mem_zalloc(&ctx->mem, 1, sizeof *p);
    for (int i = 0; i < PIXELS; i++)
        p->pixels[i] = (uint8_t)(i * 7 + i / 96 * 13);
    double start = bench_clock();
    TRY(open_model(p, ctx, options));
    double loaded = bench_clock();
    TRY(predict(p));
    double first = bench_clock();
    printf("{\"load_ms\": %.3f, \"first_ms\": %.3f}\n", 1e3 * (loaded - start),
           1e3 * (first - loaded));
    (void)fflush(stdout);
    TRY(obey(p));
    assembly_cache_fini(&p->cache);
    desks_fini(&p->desks);
    model_free(p->model);
    backend_close(p->be);
    mem_free(&ctx->mem, p);
    return DER_OK;
}

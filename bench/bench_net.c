/*
 * One network, run on request: the other half of bench/run.py.
 *
 * Prints one line of JSON when it is ready, then answers lines on standard input:
 *     run K     K iterations; answers {"ms": milliseconds per iteration}
 *     memory    answers {"peak_mib": ..., "start_mib": ...}: resident memory of the process
 *     quit
 */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE_MAX_CHARS = 128 };

struct bench_state {
    struct backend *be;
    struct param_set *extractor, *head;
    struct bench_data data;
    struct program *program;
    struct sequence *sequence;
    bool training;
};

double bench_status_mib(const char *field)
{
    FILE *stream = fopen("/proc/self/status", "r");
    char line[LINE_MAX_CHARS];
    double mib = 0.0;
    while (stream && fgets(line, sizeof line, stream))
        if (strncmp(line, field, strlen(field)) == 0)
            mib = strtod(line + strlen(field) + 1, NULL) / 1024.0;
    if (stream)
        (void)fclose(stream);
    return mib;
}

static enum der_status state_init(struct bench_state *s, struct der_ctx *ctx,
                                  const struct bench_options *o)
{
    struct resnet_spec spec;
    *s = (struct bench_state){.training = !o->infers};
    TRY(resnet_spec_init(ctx, &spec, o->model, 3, BENCH_IMAGE_SIZE, BENCH_IMAGE_SIZE, o->width));
    TRY(backend_open(ctx, o->backend, NULL, &s->be));
    TRY(bench_extractor(s->be, &spec, s->training, &s->extractor));
    TRY(bench_head(s->be, resnet_feature_dim(&spec), s->training, &s->head));
    TRY(bench_data_init(&s->data, s->be, o->batch));
    TRY(bench_compile(s->be, &spec, s->extractor, s->head, &s->data, o->batch,
                      s->training ? BENCH_TRAINING : BENCH_ANSWERS, &s->program));
    struct sequence_item item = {.program = s->program};
    return sequence_new(s->be, &item, 1, &s->sequence);
}

static void state_fini(struct bench_state *s)
{
    sequence_free(s->sequence);
    program_free(s->program);
    bench_data_fini(&s->data);
    param_set_free(s->extractor);
    param_set_free(s->head);
    backend_close(s->be);
}

/* Reading the result back waits for the last iteration. */
static enum der_status run(struct sequence *sequence, struct buffer *first, long count)
{
    float result;
    double since = bench_clock();
    for (long i = 0; i < count; i++)
        TRY(sequence_run(sequence));
    TRY(buffer_read(first, 0, &result, sizeof result));
    printf("{\"ms\": %.4f, \"result\": %g}\n", 1e3 * (bench_clock() - since) / (double)count,
           (double)result);
    return DER_OK;
}

enum der_status bench_obey(struct sequence *sequence, struct buffer *result, double start_mib)
{
    char line[LINE_MAX_CHARS];
    while (fgets(line, sizeof line, stdin) && strncmp(line, "quit", 4) != 0) {
        if (strncmp(line, "run ", 4) == 0)
            TRY(run(sequence, result, strtol(line + 4, NULL, 10)));
        else
            printf("{\"peak_mib\": %.1f, \"start_mib\": %.1f}\n", bench_status_mib("VmHWM"),
                   start_mib);
        (void)fflush(stdout);
    }
    return DER_OK;
}

enum der_status bench_net(struct der_ctx *ctx, const struct bench_options *options)
{
    struct bench_state s;
    double start_mib = bench_status_mib("VmRSS");
    double since = bench_clock();
    enum der_status status = state_init(&s, ctx, options);
    if (status == DER_OK) {
        const struct program_stats *stats = &s.program->stats;
        printf("{\"setup_s\": %.3f, \"temp_mib\": %.1f, \"derived_mib\": %.1f, "
               "\"reorders_activation\": %d, \"reorders_weights\": %d}\n",
               bench_clock() - since, (double)stats->temp_bytes / 1048576.0,
               (double)stats->derived_bytes / 1048576.0, stats->n_reorders_activation,
               stats->n_reorders_weights);
        (void)fflush(stdout);
        status = bench_obey(s.sequence, s.training ? s.data.loss : s.data.logits, start_mib);
    }
    state_fini(&s);
    return status;
}

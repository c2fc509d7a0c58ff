/*
 * der_cuda_spike: which engines cuDNN offers for the convolutions of residual networks, and how long
 * each takes. The design of the cuda back end follows from its table.
 *
 *     der_cuda_spike [--batch N] [--engines N] [--numbers bf16|tf32|f32]
 *     der_cuda_spike --thin N [--layer I [--to J]] [--batch N]   own kernels for thin layers and small images beside
 *                                                                cuDNN; the N best tiles
 *
 * One line per engine: convolution, pass, numbers, engine, whether it is compiled at run time, whether
 * it is deterministic, workspace, microseconds, TFLOP/s, measured by cuda_replay.h.
 */
#include "cuda_spike.h"

#include "core/clock.h"
#include "cuda_replay.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct layer {
    const char *name;
    struct spike_layer conv;
};

/* ResNet-18 for 32x32 pictures, then stems and odd widths. */
static const struct layer LAYERS[] = {
    {"stem 3", {3, 32, 64, 3, 1}},    {"stem 8", {8, 32, 64, 3, 1}},
    {"stage1", {64, 32, 64, 3, 1}},   {"down2", {64, 32, 128, 3, 2}},
    {"short2", {64, 32, 128, 1, 2}},  {"stage2", {128, 16, 128, 3, 1}},
    {"down3", {128, 16, 256, 3, 2}},  {"short3", {128, 16, 256, 1, 2}},
    {"stage3", {256, 8, 256, 3, 1}},  {"down4", {256, 8, 512, 3, 2}},
    {"short4", {256, 8, 512, 1, 2}},  {"stage4", {512, 4, 512, 3, 1}},
    {"odd 33", {33, 32, 33, 3, 1}},   {"odd 40", {40, 32, 40, 3, 1}},
    {"thin 16", {16, 32, 16, 3, 1}},  {"pruned 24", {24, 32, 24, 3, 1}},
    {"pruned 72", {72, 8, 72, 3, 1}}, {"pruned 144", {144, 4, 144, 3, 1}},
    {"w32@32", {32, 32, 32, 3, 1}},   {"w48@32", {48, 32, 48, 3, 1}},
    {"w24@16", {24, 16, 24, 3, 1}},   {"w32@16", {32, 16, 32, 3, 1}},
    {"w40@16", {40, 16, 40, 3, 1}},   {"w64@16", {64, 16, 64, 3, 1}},
    {"w96@8", {96, 8, 96, 3, 1}},     {"w128@8", {128, 8, 128, 3, 1}},
    {"w64@8", {64, 8, 64, 3, 1}},     {"w160@4", {160, 4, 160, 3, 1}},
    {"w192@4", {192, 4, 192, 3, 1}},  {"w256@4", {256, 4, 256, 3, 1}},
};

static const struct kind {
    const char *name;
    enum dnn_pass pass;
    enum cuda_type d_weights_type;
    bool bias, residual, relu, compiled;
} KINDS[] = {
    {"forward", DNN_FORWARD, CUDA_F32, false, false, false, false},
    {"forward jit", DNN_FORWARD, CUDA_F32, false, false, false, true},
    {"+bias+relu", DNN_FORWARD, CUDA_F32, true, false, true, false},
    {"+bias+res+relu", DNN_FORWARD, CUDA_F32, true, true, true, false},
    {"d_src", DNN_D_SRC, CUDA_F32, false, false, false, false},
    {"d_src jit", DNN_D_SRC, CUDA_F32, false, false, false, true},
    {"d_weights f32", DNN_D_WEIGHTS, CUDA_F32, false, false, false, false},
    {"d_weights bf16", DNN_D_WEIGHTS, CUDA_BF16, false, false, false, false},
};

static const struct numbers {
    const char *name;
    enum cuda_type type;
    bool tensor_cores;
} NUMBERS[] = {{"bf16", CUDA_BF16, true}, {"tf32", CUDA_F32, true}, {"f32", CUDA_F32, false}};

enum { MAX_ENGINES = 16, LAUNCHES = 10 };

/* Launches spread over the first `beside` streams. */
struct forked {
    struct spike *s;
    const struct spike_work *work;
    int beside;
};

static bool launch_forked(void *user, int number, cudaStream_t stream)
{
    const struct forked *f = user;
    struct spike *s = f->s;
    (void)number;
    bool works = replay_fine(cudaEventRecord(s->event[0], stream), "forking");
    for (int i = 1; i < f->beside; i++)
        works = works && replay_fine(cudaStreamWaitEvent(s->stream[i], s->event[0], 0), "forking");
    for (int i = 0; i < LAUNCHES * f->beside; i++)
        works = works && f->work->launch(s, f->work, i % f->beside);
    for (int i = 1; i < f->beside; i++)
        works = works && replay_fine(cudaEventRecord(s->event[i], s->stream[i]), "joining") &&
                replay_fine(cudaStreamWaitEvent(stream, s->event[i], 0), "joining");
    return works;
}

double spike_measure(struct spike *s, const struct spike_work *work, int beside)
{
    struct forked forked = {s, work, beside};
    double us = replay_measure(launch_forked, &forked, 1, s->stream[0]);
    return us < 0.0 ? us : us / (LAUNCHES * beside);
}

struct cuda_conv_shape spike_shape(const struct spike *s, const struct spike_layer *layer,
                                   enum cuda_type type)
{
    const int64_t out = (layer->size - 1) / layer->stride + 1;
    return (struct cuda_conv_shape){.n = s->batch,
                                    .c = layer->c,
                                    .h = layer->size,
                                    .w = layer->size,
                                    .k = layer->k,
                                    .r = layer->kernel,
                                    .s = layer->kernel,
                                    .out_h = out,
                                    .out_w = out,
                                    .stride = layer->stride,
                                    .pad = layer->kernel / 2,
                                    .type = type};
}

bool spike_launch_plan(struct spike *s, const struct spike_work *work, int branch)
{
    const struct dnn_pointers pointers = {.image = spike_memory(s, SPIKE_IMAGE, branch),
                                          .weights = spike_memory(s, SPIKE_WEIGHTS, branch),
                                          .result = spike_memory(s, SPIKE_RESULT, branch),
                                          .bias = spike_memory(s, SPIKE_BIAS, branch),
                                          .residual = spike_memory(s, SPIKE_RESIDUAL, branch),
                                          .workspace = spike_memory(s, SPIKE_WORKSPACE, branch)};
    return dnn_run(s->dnn, work->user, &pointers, s->stream[branch]) == DER_OK;
}

static void show(struct spike *s, const struct layer *layer, const struct kind *kind,
                 const struct numbers *numbers)
{
    const struct dnn_conv conv = {
        .pass = kind->pass,
        .shape = spike_shape(s, &layer->conv, numbers->type),
        .d_weights_type = kind->d_weights_type,
        .tensor_cores = numbers->tensor_cores,
        .bias = kind->bias,
        .residual = kind->residual,
        .relu = kind->relu,
        .compiled = kind->compiled,
    };
    const struct dnn_plan *plans[MAX_ENGINES];
    int n = 0;
    double since = clock_seconds();
    if (dnn_find_all(s->dnn, &conv, s->n_engines, plans, &n) != DER_OK)
        (void)fprintf(stderr, "%s\n", der_ctx_error(s->ctx));
    double planned = 1e3 * (clock_seconds() - since);
    if (n == 0)
        printf("%-10s %-14s %-5s no engine\n", layer->name, kind->name, numbers->name);
    const struct cuda_conv_shape *shape = &conv.shape;
    double flops = 2.0 * (double)(shape->n * shape->out_h * shape->out_w * shape->k * shape->c) *
                   (double)(shape->r * shape->s);
    for (int i = 0; i < n; i++) {
        const struct spike_work work = {.launch = spike_launch_plan, .user = plans[i]};
        bool fits = plans[i]->workspace <= spike_size(SPIKE_WORKSPACE);
        double us = fits ? spike_measure(s, &work, 1) : -9.0;
        printf("%-10s %-14s %-5s #%d engine %3lld %s %s %s %7.1f KiB %8.1f us %6.1f TF/s",
               layer->name, kind->name, numbers->name, i, (long long)plans[i]->engine,
               plans[i]->is_compiled_now ? "jit" : "   ",
               plans[i]->notes >> CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC & 1 ? "random" : "      ",
               plans[i]->notes >> CUDNN_NUMERICAL_NOTE_WINOGRAD & 1 ? "wino" : "    ",
               (double)plans[i]->workspace / 1024.0, us, flops / us * 1e-6);
        printf(i == 0 ? "  planned in %.1f ms\n" : "\n", planned);
    }
    (void)fflush(stdout);
}

size_t spike_size(enum spike_array which)
{
    static const size_t sizes[SPIKE_ARRAYS] = {
        [SPIKE_IMAGE] = 32 << 20, [SPIKE_WEIGHTS] = 16 << 20,  [SPIKE_RESULT] = 32 << 20,
        [SPIKE_BIAS] = 1 << 20,   [SPIKE_RESIDUAL] = 32 << 20, [SPIKE_WORKSPACE] = 512 << 20};
    return sizes[which];
}

void *spike_memory(const struct spike *s, enum spike_array which, int branch)
{
    return s->memory[which] + (size_t)branch * spike_size(which);
}

/* Bytes that are small numbers both as f32 and as bf16, and not all equal. */
static bool fill(struct spike *s, const unsigned *words, size_t bytes)
{
    for (int which = 0; which < SPIKE_ARRAYS; which++) {
        const size_t size = spike_size(which);
        void *memory;
        if (!replay_fine(cudaMalloc(&memory, size * SPIKE_BRANCHES), "taking memory"))
            return false;
        s->memory[which] = memory;
        for (int i = 0; i < SPIKE_BRANCHES; i++)
            if (!replay_fine(cudaMemcpy(spike_memory(s, which, i), words,
                                        size < bytes ? size : bytes, cudaMemcpyHostToDevice),
                             "copying"))
                return false;
    }
    return true;
}

static bool start(struct spike *s)
{
    const size_t bytes = spike_size(SPIKE_IMAGE);
    if (der_ctx_new(&(struct der_ctx_options){.threads = 8}, &s->ctx) != DER_OK)
        return false;
    if (cuda_libs_load(s->ctx, &s->libs) != DER_OK ||
        dnn_open(s->ctx, &s->libs, &s->dnn) != DER_OK) {
        (void)fprintf(stderr, "%s\n", der_ctx_error(s->ctx));
        return false;
    }
    for (int i = 0; i < SPIKE_BRANCHES; i++)
        if (!replay_fine(cudaStreamCreateWithFlags(&s->stream[i], cudaStreamNonBlocking),
                         "making a stream") ||
            !replay_fine(cudaEventCreateWithFlags(&s->event[i], cudaEventDisableTiming),
                         "making an event"))
            return false;
    unsigned *words = malloc(bytes);
    for (size_t i = 0; words && i < bytes / sizeof *words; i++)
        words[i] = 0x3c003c00U + (unsigned)(i * 2654435761U >> 12 & 0x80ff00ffU);
    bool works = words && fill(s, words, bytes);
    free(words);
    return works;
}

int main(int argc, char **argv)
{
    struct spike s = {.batch = 128, .n_engines = 4};
    const char *numbers = NULL; /* all */
    int n_tiles = 0;
    int only = -1;
    int last = -1;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--batch") == 0)
            s.batch = (int)strtol(argv[i + 1], NULL, 10);
        if (strcmp(argv[i], "--engines") == 0)
            s.n_engines = (int)strtol(argv[i + 1], NULL, 10);
        if (strcmp(argv[i], "--numbers") == 0)
            numbers = argv[i + 1];
        if (strcmp(argv[i], "--thin") == 0)
            n_tiles = (int)strtol(argv[i + 1], NULL, 10);
        if (strcmp(argv[i], "--layer") == 0)
            only = last = (int)strtol(argv[i + 1], NULL, 10);
        if (strcmp(argv[i], "--to") == 0)
            last = (int)strtol(argv[i + 1], NULL, 10);
    }
    if (s.n_engines > MAX_ENGINES)
        s.n_engines = MAX_ENGINES;
    if (!start(&s))
        return 1;
    printf("cuDNN %zu, batch %d\n", s.libs.cudnnGetVersion(), s.batch);
    if (n_tiles > 0)
        spike_thin(&s, n_tiles, only, last);
    for (size_t m = 0; n_tiles == 0 && m < sizeof NUMBERS / sizeof *NUMBERS; m++)
        for (size_t i = 0; i < sizeof LAYERS / sizeof *LAYERS; i++)
            for (size_t k = 0; k < sizeof KINDS / sizeof *KINDS; k++) {
                bool half = KINDS[k].d_weights_type == CUDA_BF16;
                if ((half && NUMBERS[m].type != CUDA_BF16) ||
                    (numbers && strcmp(numbers, NUMBERS[m].name) != 0))
                    continue;
                show(&s, &LAYERS[i], &KINDS[k], &NUMBERS[m]);
            }
    dnn_close(s.dnn);
    der_ctx_free(s.ctx);
    return 0;
}

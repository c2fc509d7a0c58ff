/*
 * der_cuda_spike: which engines cuDNN offers for the convolutions of residual networks, and how long
 * each takes. The design of the cuda back end follows from its table.
 *
 *     der_cuda_spike [--batch N] [--engines N] [--numbers bf16|tf32|f32]
 *
 * One line per engine: convolution, pass, numbers, engine, whether it is compiled at run time, whether
 * it is deterministic, workspace, microseconds, TFLOP/s. The best of three rounds of a replayed graph
 * of ten launches counts.
 */
#include "backend/cuda/cudnn_graph.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct layer {
    const char *name;
    int64_t c, size, k, kernel, stride;
};

/* ResNet-18 for 32x32 pictures, then stems and odd widths. */
static const struct layer LAYERS[] = {
    {"stem 3", 3, 32, 64, 3, 1},    {"stem 8", 8, 32, 64, 3, 1},
    {"stage1", 64, 32, 64, 3, 1},   {"down2", 64, 32, 128, 3, 2},
    {"short2", 64, 32, 128, 1, 2},  {"stage2", 128, 16, 128, 3, 1},
    {"down3", 128, 16, 256, 3, 2},  {"short3", 128, 16, 256, 1, 2},
    {"stage3", 256, 8, 256, 3, 1},  {"down4", 256, 8, 512, 3, 2},
    {"short4", 256, 8, 512, 1, 2},  {"stage4", 512, 4, 512, 3, 1},
    {"odd 33", 33, 32, 33, 3, 1},   {"odd 40", 40, 32, 40, 3, 1},
    {"thin 16", 16, 32, 16, 3, 1},  {"pruned 24", 24, 32, 24, 3, 1},
    {"pruned 72", 72, 8, 72, 3, 1}, {"pruned 144", 144, 4, 144, 3, 1},
    {"w32@32", 32, 32, 32, 3, 1},   {"w48@32", 48, 32, 48, 3, 1},
    {"w24@16", 24, 16, 24, 3, 1},   {"w32@16", 32, 16, 32, 3, 1},
    {"w40@16", 40, 16, 40, 3, 1},   {"w64@16", 64, 16, 64, 3, 1},
    {"w96@8", 96, 8, 96, 3, 1},     {"w128@8", 128, 8, 128, 3, 1},
    {"w64@8", 64, 8, 64, 3, 1},     {"w160@4", 160, 4, 160, 3, 1},
    {"w192@4", 192, 4, 192, 3, 1},  {"w256@4", 256, 4, 256, 3, 1},
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

enum { MAX_ENGINES = 16, LAUNCHES = 10, ROUNDS = 3 };

struct spike {
    struct der_ctx *ctx;
    struct cuda_libs libs;
    struct dnn *dnn;
    cudaStream_t stream;
    void *memory[6]; /* image, weights, result, bias, residual, workspace */
    size_t workspace;
    int batch, n_engines;
};

static double seconds(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static bool fine(cudaError_t error, const char *what)
{
    if (error == cudaSuccess)
        return true;
    (void)fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
    return false;
}

/* Microseconds of one launch, or a negative number. */
static double measure(struct spike *s, const struct dnn_plan *plan)
{
    const struct dnn_pointers pointers = {.image = s->memory[0],
                                          .weights = s->memory[1],
                                          .result = s->memory[2],
                                          .bias = s->memory[3],
                                          .residual = s->memory[4],
                                          .workspace = s->memory[5]};
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    double best = -1.0;
    if (dnn_run(s->dnn, plan, &pointers, s->stream) != DER_OK ||
        !fine(cudaStreamSynchronize(s->stream), "running") ||
        !fine(cudaStreamBeginCapture(s->stream, cudaStreamCaptureModeRelaxed), "capturing"))
        return -1.0;
    for (int i = 0; i < LAUNCHES; i++)
        if (dnn_run(s->dnn, plan, &pointers, s->stream) != DER_OK)
            return -2.0;
    if (!fine(cudaStreamEndCapture(s->stream, &graph), "ending a capture") ||
        !fine(cudaGraphInstantiate(&exec, graph, 0), "instantiating"))
        return -3.0;
    for (int round = 0; round <= ROUNDS; round++) { /* the first warms up */
        (void)cudaStreamSynchronize(s->stream);
        double since = seconds();
        (void)cudaGraphLaunch(exec, s->stream);
        (void)cudaGraphLaunch(exec, s->stream);
        if (!fine(cudaStreamSynchronize(s->stream), "replaying"))
            return -4.0;
        double each = 1e6 * (seconds() - since) / (2 * LAUNCHES);
        if (round > 0 && (best < 0.0 || each < best))
            best = each;
    }
    (void)cudaGraphExecDestroy(exec);
    (void)cudaGraphDestroy(graph);
    return best;
}

static void show(struct spike *s, const struct layer *layer, const struct kind *kind,
                 const struct numbers *numbers)
{
    const int64_t out = (layer->size - 1) / layer->stride + 1;
    const struct dnn_conv conv = {
        .pass = kind->pass,
        .shape = {.n = s->batch,
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
                  .type = numbers->type},
        .d_weights_type = kind->d_weights_type,
        .tensor_cores = numbers->tensor_cores,
        .bias = kind->bias,
        .residual = kind->residual,
        .relu = kind->relu,
        .compiled = kind->compiled,
    };
    const struct dnn_plan *plans[MAX_ENGINES];
    int n = 0;
    double since = seconds();
    if (dnn_find_all(s->dnn, &conv, s->n_engines, plans, &n) != DER_OK)
        (void)fprintf(stderr, "%s\n", der_ctx_error(s->ctx));
    double planned = 1e3 * (seconds() - since);
    if (n == 0)
        printf("%-10s %-14s %-5s no engine\n", layer->name, kind->name, numbers->name);
    double flops = 2.0 * (double)(s->batch * out * out * layer->k * layer->c) *
                   (double)(layer->kernel * layer->kernel);
    for (int i = 0; i < n; i++) {
        bool fits = plans[i]->workspace <= s->workspace;
        double us = fits ? measure(s, plans[i]) : -9.0;
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

static bool start(struct spike *s)
{
    static const size_t sizes[6] = {128 << 20, 32 << 20, 128 << 20, 1 << 20, 128 << 20, 512 << 20};
    if (der_ctx_new(&(struct der_ctx_options){.threads = 1}, &s->ctx) != DER_OK)
        return false;
    if (cuda_libs_load(s->ctx, &s->libs) != DER_OK ||
        dnn_open(s->ctx, &s->libs, &s->dnn) != DER_OK) {
        (void)fprintf(stderr, "%s\n", der_ctx_error(s->ctx));
        return false;
    }
    if (!fine(cudaStreamCreateWithFlags(&s->stream, cudaStreamNonBlocking), "making a stream"))
        return false;
    s->workspace = sizes[5];
    /* Bytes that are small numbers both as f32 and as bf16, and not all equal. */
    unsigned *words = malloc(sizes[0]);
    for (size_t i = 0; words && i < sizes[0] / sizeof *words; i++)
        words[i] = 0x3c003c00U + (unsigned)(i * 2654435761U >> 12 & 0x80ff00ffU);
    for (int i = 0; i < 6; i++) {
        size_t filled = sizes[i] < sizes[0] ? sizes[i] : sizes[0];
        if (!words || !fine(cudaMalloc(&s->memory[i], sizes[i]), "taking memory") ||
            !fine(cudaMemcpy(s->memory[i], words, filled, cudaMemcpyHostToDevice), "copying"))
            return false;
    }
    free(words);
    return true;
}

int main(int argc, char **argv)
{
    struct spike s = {.batch = 128, .n_engines = 4};
    const char *numbers = NULL; /* all */
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--batch") == 0)
            s.batch = (int)strtol(argv[i + 1], NULL, 10);
        if (strcmp(argv[i], "--engines") == 0)
            s.n_engines = (int)strtol(argv[i + 1], NULL, 10);
        if (strcmp(argv[i], "--numbers") == 0)
            numbers = argv[i + 1];
    }
    if (s.n_engines > MAX_ENGINES)
        s.n_engines = MAX_ENGINES;
    if (!start(&s))
        return 1;
    printf("cuDNN %zu, batch %d\n", s.libs.cudnnGetVersion(), s.batch);
    for (size_t m = 0; m < sizeof NUMBERS / sizeof *NUMBERS; m++)
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

/*
 * der_cuda_norm: how long batch norm takes, forward and backward, for the layers of ResNet-18 and of the
 * modified ResNet-32, beside the bytes that have to move.
 *
 *     der_cuda_norm [--batch N] [--numbers bf16|f32] [--passes 1] [--parts N]
 *
 * Every line is one layer with what is fused into it, in microseconds. "hot": the same arrays again and
 * again, which the second-level cache holds where they fit; "cold": other arrays with every launch. Bytes
 * are those of one read of each operand and one write of each result.
 *
 * Where there are kernels for the convolution before it that leave its sums (strip.cu, or else thin.cu), both alone and one
 * behind the other, with sums and without; and likewise the gradient of a convolution's data ("data") and that of batch norm.
 *
 * --passes 1: small images are read twice, as large ones are. --parts N: of the sums that thin.cu leaves, at most.
 */
#include "backend/cuda/cuda.h"
#include "cuda_replay.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct layer {
    const char *name;
    int64_t size, channels;
} LAYERS[] = {
    {"resnet18 1", 32, 64}, {"resnet18 2", 16, 128}, {"resnet18 3", 8, 256}, {"resnet18 4", 4, 512},
    {"resnet32 1", 32, 16}, {"resnet32 2", 16, 32},  {"resnet32 3", 8, 64},
};

static const struct kind {
    const char *name;
    bool backward, residual, mask; /* residual: backward, d_dst2 and d_residual */
    bool conv, sums,
        alone; /* a convolution before it, or, backward, the gradient of its data; which leaves sums; nothing
                             * behind it */
    int images; /* that have to be read or written */
} KINDS[] = {
    {.name = "forward", .images = 2},
    {.name = "forward +residual", .residual = true, .images = 3},
    {.name = "forward +mask +residual", .residual = true, .mask = true, .images = 3},
    {.name = "backward", .backward = true, .images = 4},
    {.name = "backward +residual", .backward = true, .residual = true, .images = 6},
    {.name = "backward +mask +residual",
     .backward = true,
     .residual = true,
     .mask = true,
     .images = 6},
    {.name = "conv", .conv = true, .alone = true, .images = 2},
    {.name = "conv with sums", .conv = true, .sums = true, .alone = true, .images = 2},
    {.name = "conv, forward", .conv = true, .images = 4},
    {.name = "conv with sums, forward", .conv = true, .sums = true, .images = 4},
    {.name = "data", .backward = true, .conv = true, .alone = true, .images = 2},
    {.name = "data with sums",
     .backward = true,
     .conv = true,
     .sums = true,
     .alone = true,
     .images = 3},
    {.name = "data, backward", .backward = true, .conv = true, .images = 6},
    {.name = "data with sums, backward", .backward = true, .conv = true, .sums = true, .images = 5},
    {.name = "data, backward +residual",
     .backward = true,
     .residual = true,
     .conv = true,
     .images = 8},
    {.name = "data with sums, backward +residual",
     .backward = true,
     .residual = true,
     .conv = true,
     .sums = true,
     .images = 7},
};

enum { IMAGES = 6, VECTORS = 10, CHANNELS_MAX = 512, LAUNCHES = 24, SETS_MAX = 24 };
enum { PARTS_MAX = 256 }; /* as cuda_statistics.c has it */
static const size_t POOL_BYTES = (size_t)1 << 30;
static const size_t COLD_BYTES = (size_t)256 << 20;

struct bench {
    cudaStream_t stream;
    char *pool;
    float *vectors; /* [VECTORS][CHANNELS_MAX] */
    void *scratch;
    int batch;
    enum cuda_type type;
    bool has_strips; /* the GPU can run the kernels of strip.cu */
    size_t shared;   /* bytes that a block can have */
    bool passes;
    int most_parts;
};

/* One measurement. */
struct trial {
    const struct bench *bench;
    const struct layer *layer;
    const struct kind *kind;
    struct cuda_conv_shape shape;
    bool by_strips;             /* else by thin.cu */
    struct cuda_thin_tile tile; /* of thin.cu */
    int parts;                  /* of sums; 0: there is no kernel that leaves any */
    int n_sets;                 /* of images, in turns */
};

static int64_t rows_of(const struct bench *b, const struct layer *layer)
{
    return b->batch * layer->size * layer->size;
}

static size_t image_bytes(const struct bench *b, const struct layer *layer)
{
    return (size_t)(rows_of(b, layer) * layer->channels) * (b->type == CUDA_BF16 ? 2 : 4);
}

static struct cuda_rows image_at(const struct trial *t, int set, int i)
{
    const struct bench *b = t->bench;
    const int64_t c = t->layer->channels;
    const size_t bytes = image_bytes(b, t->layer);
    return (struct cuda_rows){.data = b->pool + (size_t)(set * IMAGES + i) * bytes,
                              .rows = rows_of(b, t->layer),
                              .cols = c,
                              .stored = c,
                              .pitch = c,
                              .type = b->type};
}

static float *vector_at(const struct trial *t, int i)
{
    return t->bench->vectors + (size_t)i * CHANNELS_MAX;
}

static struct cuda_conv_shape shape_of(const struct bench *b, const struct layer *layer)
{
    return (struct cuda_conv_shape){.n = b->batch,
                                    .c = layer->channels,
                                    .h = layer->size,
                                    .w = layer->size,
                                    .k = layer->channels,
                                    .r = 3,
                                    .s = 3,
                                    .out_h = layer->size,
                                    .out_w = layer->size,
                                    .stride = 1,
                                    .pad = 1,
                                    .type = b->type};
}

static struct trial trial_of(const struct bench *b, const struct layer *layer,
                             const struct kind *kind)
{
    struct trial t = {
        .bench = b, .layer = layer, .kind = kind, .shape = shape_of(b, layer), .n_sets = 1};
    t.by_strips = b->has_strips && cuda_strip_sums(&t.shape, kind->backward);
    t.tile = cuda_thin_tile_of(&t.shape, kind->backward, b->shared);
    if (t.by_strips)
        t.parts = b->batch;
    else if (cuda_thin_serves(&t.shape, kind->backward ? DNN_D_SRC : DNN_FORWARD))
        t.parts = cuda_thin_boxes(&t.shape, kind->backward, &t.tile);
    if (!t.by_strips && t.parts > b->most_parts)
        t.parts = b->most_parts;
    return t;
}

/* Its result is what run_forward() reads. */
static cudaError_t run_conv(const struct trial *t, int set, cudaStream_t stream)
{
    const struct cuda_thin operands = {.dst = image_at(t, set, 0).data,
                                       .src = image_at(t, set, 3).data,
                                       .weights = image_at(t, set, 4).data};
    void *sums = t->bench->scratch;
    if (t->by_strips)
        return t->kind->sums ? cuda_strip_summed(&t->shape, &operands, sums, stream)
                             : cuda_strip(&t->shape, &operands, stream);
    return t->kind->sums ? cuda_thin_summed(&t->shape, &t->tile, &operands, t->parts, sums, stream)
                         : cuda_thin(&t->shape, &t->tile, &operands, stream);
}

static cudaError_t run_forward(const struct trial *t, int set, cudaStream_t stream)
{
    struct cuda_bn bn = {
        .src = image_at(t, set, 0),
        .dst = image_at(t, set, 1),
        .gamma = vector_at(t, 0),
        .beta = vector_at(t, 1),
        .running_mean = vector_at(t, 2),
        .running_var = vector_at(t, 3),
        .mask = t->kind->mask ? vector_at(t, 4) : NULL,
        .mean = vector_at(t, 5),
        .inv_std = vector_at(t, 6),
        .eps = 1e-5F,
        .momentum = 0.1F,
        .training = true,
        .relu = true,
        .scratch = t->bench->scratch,
        .summed = t->kind->sums ? t->parts : 0,
        .in_passes = t->bench->passes,
    };
    if (t->kind->residual)
        bn.residual = image_at(t, set, 2);
    return cuda_bn(&bn, stream);
}

static struct cuda_bn_grad gradient_of(const struct trial *t, int set)
{
    struct cuda_bn_grad bn = {
        .d_dst = image_at(t, set, 0),
        .src = image_at(t, set, 1),
        .dst = image_at(t, set, 2),
        .d_src = image_at(t, set, 3),
        .gamma = vector_at(t, 0),
        .beta = vector_at(t, 1),
        .mean = vector_at(t, 5),
        .inv_std = vector_at(t, 6),
        .mask = t->kind->mask ? vector_at(t, 4) : NULL,
        .d_gamma = vector_at(t, 7),
        .d_beta = vector_at(t, 8),
        .d_mask = t->kind->mask ? vector_at(t, 9) : NULL,
        .training = true,
        .relu = true,
        .scratch = t->bench->scratch,
        .summed = t->kind->sums ? t->parts : 0,
        .in_passes = t->bench->passes,
    };
    if (t->kind->residual) {
        bn.d_dst2 = image_at(t, set, 4);
        bn.d_residual = image_at(t, set, t->kind->sums ? 0 : 5);
    }
    return bn;
}

/* Its result is what run_backward() reads. */
static cudaError_t run_data(const struct trial *t, int set, cudaStream_t stream)
{
    const void *d_dst = image_at(t, set, 3).data;
    const void *weights = image_at(t, set, 2).data;
    struct cuda_bn_grad bn = gradient_of(t, set);
    if (!t->kind->residual)
        bn.dst = (struct cuda_rows){0};
    if (t->by_strips)
        return t->kind->sums ? cuda_strip_d_src_summed(&t->shape, d_dst, weights, &bn, stream)
                             : cuda_strip_d_src(&t->shape, bn.d_dst.data, d_dst, weights, stream);
    return t->kind->sums
               ? cuda_thin_d_src_summed(&t->shape, &t->tile, d_dst, weights, &bn, stream)
               : cuda_thin_d_src(&t->shape, &t->tile, bn.d_dst.data, d_dst, weights, stream);
}

static cudaError_t run_backward(const struct trial *t, int set, cudaStream_t stream)
{
    const struct cuda_bn_grad bn = gradient_of(t, set);
    return cuda_bn_grad(&bn, stream);
}

static bool launch(void *user, int i, cudaStream_t stream)
{
    const struct trial *t = user;
    const int set = i % t->n_sets;
    cudaError_t error = cudaSuccess;
    if (t->kind->conv)
        error = t->kind->backward ? run_data(t, set, stream) : run_conv(t, set, stream);
    if (error == cudaSuccess && !t->kind->alone)
        error = t->kind->backward ? run_backward(t, set, stream) : run_forward(t, set, stream);
    return replay_fine(error, t->kind->name);
}

static void show(const struct bench *b, const struct layer *layer, const struct kind *kind)
{
    const size_t bytes = image_bytes(b, layer);
    const double moved = (double)bytes * kind->images;
    const size_t most = POOL_BYTES / (bytes * IMAGES);
    size_t n_sets = COLD_BYTES / (bytes * (size_t)kind->images) + 1;
    n_sets = n_sets < SETS_MAX ? n_sets : SETS_MAX;
    n_sets = n_sets < most ? n_sets : most;
    struct trial t = trial_of(b, layer, kind);
    if (kind->conv && t.parts == 0)
        return;
    const double hot = replay_measure(launch, &t, LAUNCHES, b->stream);
    t.n_sets = (int)n_sets;
    const double cold = replay_measure(launch, &t, LAUNCHES, b->stream);
    printf("%-10s %-34s %5.1f MB  hot %5.1f us %4.1f TB/s  cold %5.1f us %4.1f TB/s\n", layer->name,
           kind->name, 1e-6 * moved, hot, 1e-6 * moved / hot, cold, 1e-6 * moved / cold);
    (void)fflush(stdout);
}

/* Words that are numbers from 0.5 to 2 both as f32 and as bf16, of either sign. */
static bool fill(void *where, size_t bytes)
{
    enum { BLOCK = 4 << 20 };
    unsigned *words = malloc(BLOCK);
    bool fine = words;
    for (size_t i = 0; words && i < BLOCK / sizeof *words; i++)
        words[i] = 0x3f003f00U + (unsigned)(i * 2654435761U >> 12 & 0x80ff80ffU);
    for (size_t at = 0; at < bytes && fine; at += BLOCK)
        fine =
            replay_fine(cudaMemcpy((char *)where + at, words,
                                   bytes - at < BLOCK ? bytes - at : BLOCK, cudaMemcpyHostToDevice),
                        "copying");
    free(words);
    return fine;
}

static bool start(struct bench *b)
{
    static const char WHAT[] = "taking memory";
    const size_t vectors = (size_t)VECTORS * CHANNELS_MAX * sizeof(float);
    const size_t own = cuda_bn_scratch(CHANNELS_MAX);
    const size_t sums = cuda_bn_sums(CHANNELS_MAX, PARTS_MAX);
    return replay_fine(cudaStreamCreateWithFlags(&b->stream, cudaStreamNonBlocking), "a stream") &&
           replay_fine(cudaMalloc((void **)&b->pool, POOL_BYTES), WHAT) &&
           replay_fine(cudaMalloc((void **)&b->vectors, vectors), WHAT) &&
           replay_fine(cudaMalloc(&b->scratch, own > sums ? own : sums), WHAT) &&
           fill(b->pool, POOL_BYTES) && fill(b->vectors, vectors);
}

int main(int argc, char **argv)
{
    struct bench b = {.batch = 128, .type = CUDA_BF16, .most_parts = PARTS_MAX};
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--batch") == 0)
            b.batch = (int)strtol(argv[i + 1], NULL, 10);
        if (strcmp(argv[i], "--numbers") == 0)
            b.type = strcmp(argv[i + 1], "f32") == 0 ? CUDA_F32 : CUDA_BF16;
        if (strcmp(argv[i], "--passes") == 0)
            b.passes = strcmp(argv[i + 1], "1") == 0;
        if (strcmp(argv[i], "--parts") == 0)
            b.most_parts = (int)strtol(argv[i + 1], NULL, 10);
    }
    struct cudaDeviceProp gpu;
    if (b.batch < 1 || b.batch > PARTS_MAX || b.most_parts < 1 || b.most_parts > PARTS_MAX ||
        !start(&b) || !replay_fine(cudaGetDeviceProperties(&gpu, 0), "asking the GPU"))
        return 1;
    b.has_strips = gpu.major == 9 && gpu.minor == 0;
    b.shared = gpu.sharedMemPerBlockOptin;
    for (size_t i = 0; i < sizeof LAYERS / sizeof *LAYERS; i++)
        for (size_t k = 0; k < sizeof KINDS / sizeof *KINDS; k++)
            show(&b, &LAYERS[i], &KINDS[k]);
    return 0;
}

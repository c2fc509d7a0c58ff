/*
 * What the parts of der_cuda_spike share: memory with numbers in it, and how long a launch takes.
 */
#ifndef CUDA_SPIKE_H
#define CUDA_SPIKE_H

#include "backend/cuda/cudnn_graph.h"

enum { SPIKE_BRANCHES = 4 }; /* launches side by side, each with memory of its own */

enum spike_array {
    SPIKE_IMAGE,
    SPIKE_WEIGHTS,
    SPIKE_RESULT,
    SPIKE_BIAS,
    SPIKE_RESIDUAL,
    SPIKE_WORKSPACE,
    SPIKE_ARRAYS
};

struct spike {
    struct der_ctx *ctx;
    struct cuda_libs libs;
    struct dnn *dnn;
    cudaStream_t stream[SPIKE_BRANCHES];
    cudaEvent_t event[SPIKE_BRANCHES];
    char *memory[SPIKE_ARRAYS];
    int batch, n_engines;
};

/* A square convolution. */
struct spike_layer {
    int64_t c, size, k, kernel, stride;
};
struct cuda_conv_shape spike_shape(const struct spike *s, const struct spike_layer *layer,
                                   enum cuda_type type);

/* Something to be launched. */
struct spike_work {
    bool (*launch)(struct spike *s, const struct spike_work *work, int branch);
    const void *user;
};

size_t spike_size(enum spike_array which); /* of one branch */
void *spike_memory(const struct spike *s, enum spike_array which, int branch);
/* Microseconds of one launch with so many side by side, or a negative number. */
double spike_measure(struct spike *s, const struct spike_work *work, int beside);
/* user: a plan of cuDNN. */
bool spike_launch_plan(struct spike *s, const struct spike_work *work, int branch);

/* cuda_spike_thin.c: own kernels for thin layers, the n best tiles of each; of one layer alone unless
 * `only` is negative; up to `last`. */
void spike_thin(struct spike *s, int n, int only, int last);

#endif

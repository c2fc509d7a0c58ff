/*
 * Kernels of convolutions against the plain ones (conv.cu): arrays on the GPU with numbers in them, results that are
 * watched, comparisons. For tests that know that there is a GPU.
 */
#ifndef SUPPORT_CUDA_CONV_ARRAYS_H
#define SUPPORT_CUDA_CONV_ARRAYS_H

#include "backend/cuda/cuda.h"

/* Skips a test of kernels for compute capability 9.0 alone where there is no GPU, or one of another kind. */
void skip_without_hopper(void);

enum { CONV_SCRATCH_BLOCKS = 5 };

/* A convolution with padding that keeps the size where the stride is 1. */
struct conv_layer {
    int64_t n, h, w, c, k, kernel, stride;
};
struct cuda_conv_shape conv_layer_shape(const struct conv_layer *layer);

struct conv_arrays {
    struct cuda_conv_shape shape;
    int64_t n_src, n_dst, n_weights; /* numbers */
    void *src, *dst, *weights, *residual;
    float *wide_src, *wide_dst, *wide_weights, *wide_residual; /* the same in float32 */
    float *bias;
    float *expected; /* results; room for any of the three passes */
    void *actual;
    float *scratch; /* CONV_SCRATCH_BLOCKS * n_weights */
    void *room;     /* of `actual` and what is watched around it */
};
/* All but the results hold numbers that bf16 holds exactly. */
void conv_arrays_init(struct conv_arrays *a, const struct conv_layer *layer);
void conv_arrays_fini(struct conv_arrays *a);

/* What is computed: the gradient of the data, or a result and what follows it. */
struct conv_pass {
    bool backwards;
    bool bias, residual, relu; /* residual and relu: with a bias alone */
};
/* A bias, with all that may follow it. */
enum { N_CONV_EPILOGUES = 4 };
extern const struct conv_pass CONV_EPILOGUES[N_CONV_EPILOGUES];
int64_t conv_arrays_count(const struct conv_arrays *a, const struct conv_pass *pass);
/* The plain result in `expected`, float32 throughout. */
void conv_arrays_expect(struct conv_arrays *a, const struct conv_pass *pass);
/* Forwards, into `actual`. */
struct cuda_thin conv_arrays_operands(const struct conv_arrays *a, const struct conv_pass *pass);

/* Something that writes `actual`, or says why not. */
typedef cudaError_t conv_launch(struct conv_arrays *a, const void *user);
/* Launches twice: both give the same bytes, all of them, and none around them. */
void conv_arrays_run(struct conv_arrays *a, size_t bytes, conv_launch *launch, const void *user);

/* Numbers of an array of the GPU; the caller frees them. */
float *conv_numbers(const void *device, int64_t count, bool is_bf16);
/* `actual` is `expected` but for the order of sums, and rounded where it is bf16: once, whatever follows the sum. */
void conv_arrays_compare(const struct conv_arrays *a, int64_t count, bool is_bf16,
                         const char *what);

#endif

/*
 * A program of the cuda back end whose steps a test writes by hand, to see what is planned for it. No GPU is asked anything.
 */
#ifndef SUPPORT_CUDA_HAND_PROGRAM_H
#define SUPPORT_CUDA_HAND_PROGRAM_H

#include "support/cuda/conv_arrays.h"

/* Arrays of the test. */
struct hand_parts {
    struct cuda_value *values;
    int n_values, weights; /* weights: which of the values these are */
    struct cuda_step *steps;
    int n_steps;
    struct cuda_derived *derived;
};

struct hand_program {
    struct der_ctx *ctx;
    struct cuda_backend cuda; /* for bf16, with the shared memory of compute capability 9.0 */
    struct cuda_program p;
};

/* All values but the weights are images as a convolution from as many channels into as many has them: c, not k, counts. */
void hand_program_init(struct hand_program *hand, const struct hand_parts *parts,
                       const struct conv_layer *layer, bool strips);
void hand_program_fini(struct hand_program *hand);

#endif

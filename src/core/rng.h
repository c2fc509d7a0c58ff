/*
 * Counter-based random numbers (Philox4x32-10, Salmon et al. 2011).
 *
 * A draw is a pure function of (seed, purpose, index): nothing is shared, so the result depends
 * neither on the number of threads nor on what was drawn before.
 */
#ifndef CORE_RNG_H
#define CORE_RNG_H

#include "core/philox.h"

#include <stdint.h>

/* What a draw is for. Values are part of the meaning of a seed: append, never renumber. */
enum rng_purpose {
    RNG_INIT_WEIGHTS = 1, /* index: stream of the tensor */
    RNG_INIT_HEAD = 2,
    RNG_INIT_MASK = 3,
    RNG_TEST = 4,          /* free for tests and benchmarks */
    RNG_SYNTH = 16,        /* procedural images; stream: split and use, index: image and counter */
    RNG_AUGMENT = 20,      /* stream: epoch, index: sample * 16 + block */
    RNG_SHUFFLE = 21,      /* stream: epoch, index: position / 2 */
    RNG_BALANCED = 22,     /* stream: step, index: sample */
    RNG_VALIDATION = 23,   /* index: sample */
    RNG_STAGE = 24,        /* seeds of a method's stages; stream: stage, index: step */
    RNG_MASK_SHUFFLE = 25, /* stream: extractor, index: mask and channel */
};

/* Blocks set aside for the augmentation of a sample: one, and one for every try at a region. */
enum { RNG_AUGMENT_BLOCKS = 16 };

/* Four independent 32-bit words. `stream` separates e.g. tensors, `index` counts within one. */
struct rng_block rng_at(uint64_t seed, enum rng_purpose purpose, uint32_t stream, uint64_t index);

/* Uniform in [0, 1) with 24 random bits: exactly representable in float. */
float rng_unit(uint32_t word);

/* dst[i] ~ N(0, std^2), by the Box-Muller transform in double. */
void rng_normal(float *dst, int64_t n, double std, uint64_t seed, enum rng_purpose purpose,
                uint32_t stream);

/* dst[i] ~ U[low, high). */
void rng_uniform(float *dst, int64_t n, double low, double high, uint64_t seed,
                 enum rng_purpose purpose, uint32_t stream);

#endif

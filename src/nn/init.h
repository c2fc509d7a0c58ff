/*
 * How parameters start: one function for every rule of enum param_init.
 */
#ifndef NN_INIT_H
#define NN_INIT_H

#include "nn/params.h"

/* Fills a tensor on the host. A draw depends on (seed, stream, index) alone: `stream` separates
 * modules, `index` the tensors of one. */
void init_fill(float *dst, struct shape shape, enum param_init init, uint64_t seed, uint32_t stream,
               int index);

#endif

/*
 * Ways to cut up convolutions of thin layers that leave sums for batch norm, one after the other.
 */
#ifndef SUPPORT_CUDA_THIN_TILES_H
#define SUPPORT_CUDA_THIN_TILES_H

#include "support/cuda/conv_arrays.h"

typedef void (*thin_trial)(const struct conv_layer *layer, const struct cuda_thin_tile *tile,
                           int parts);

/* A part for each box, or as many as the rule gives at most; and seven boxes to a part. */
void try_thin_parts(const struct conv_layer *layer, bool backwards,
                    const struct cuda_thin_tile *tile, thin_trial trial);

/* The same of every tile that fits. Returns how many there were. */
int try_thin_tiles(const struct conv_layer *layers, int n_layers, bool backwards, thin_trial trial);

#endif

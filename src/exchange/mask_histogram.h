/*
 * The mask parameters of an extractor in training as histograms: what lies above 0 stays.
 */
#ifndef EXCHANGE_MASK_HISTOGRAM_H
#define EXCHANGE_MASK_HISTOGRAM_H

#include "exchange/proto.h"
#include "model/resnet.h"

/* Adds one value a mask to a summary: masks/streamK, masks/layerK.B. */
NODISCARD enum der_status mask_histograms_add(struct proto *summary, const struct param_set *masks,
                                              const struct resnet_spec *spec);

/* Adds a histogram of n finite values, at least one, under a tag. */
void histogram_add(struct proto *summary, const char *tag, const float *values, int64_t n);

#endif

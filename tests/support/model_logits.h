/*
 * What a loaded model computes.
 */
#ifndef SUPPORT_MODEL_LOGITS_H
#define SUPPORT_MODEL_LOGITS_H

#include "store/model_file.h"

/* logits [n, classes] of images [n, channels, height, width], normalised; n is a multiple of `batch`. */
void model_logits(struct backend *be, struct model *model, const float *images, int n, int batch,
                  float *logits);

#endif

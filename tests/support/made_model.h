/*
 * A small model with two extractors of odd widths and a classifier with a bias, for tests of whoever uses one.
 */
#ifndef SUPPORT_MADE_MODEL_H
#define SUPPORT_MADE_MODEL_H

#include "store/model_file.h"

enum { MADE_EXTRACTORS = 2, MADE_CLASSES = 5, MADE_SIZE = 12 };

/* The names of its classes, in the order of learning: 3 in step 1, 2 in step 2. */
extern const char *const made_classes[MADE_CLASSES];

/* How pictures get in: 3 channels of MADE_SIZE x MADE_SIZE, AUGMENT_PLAIN. Tests may change it before. */
struct augment_spec made_input(void);

/* A model in memory with weights drawn from a seed; caller frees with model_free. */
struct model *made_model_new(struct backend *be, const struct augment_spec *input,
                             double temperature);

/* The same as a file. */
void made_model_write(struct der_ctx *ctx, const char *path, const struct augment_spec *input,
                      double temperature);

/* logits [MADE_CLASSES] of one normalised image, the long way: every extractor unfolded on the back end `ref`, the
 * classifier in double precision by a loop. */
void made_model_logits(const struct model *model, const float *image, double *logits);

#endif

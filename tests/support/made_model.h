/*
 * A small model made by hand: two pruned extractors of odd widths and different stems, three classes whose names
 * need care. Whatever fails here fails the running cmocka test.
 */
#ifndef SUPPORT_MADE_MODEL_H
#define SUPPORT_MADE_MODEL_H

#include "store/model_file.h"

enum { MADE_MODEL_CLASSES = 3, MADE_MODEL_SIDE = 8, MADE_MODEL_CHANNELS = 3 };

extern const char *const MADE_MODEL_NAMES[MADE_MODEL_CLASSES];

/* The widths of its extractors; `last` is the length of the features. */
struct resnet_spec made_model_spec(enum resnet_stem stem, int last);

void made_model_init(struct model *model, struct backend *be);
void made_model_fini(struct model *model);

/* Values that differ from parameter to parameter; variances are positive. At most 1024 a parameter. */
void made_model_fill(struct param_set *set, int salt);

#endif

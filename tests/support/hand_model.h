/*
 * A small model made by hand: two pruned extractors of odd widths and different stems, three classes whose names
 * need care. Whatever fails here fails the running cmocka test.
 */
#ifndef SUPPORT_HAND_MODEL_H
#define SUPPORT_HAND_MODEL_H

#include "store/model_file.h"

enum { HAND_MODEL_CLASSES = 3, HAND_MODEL_SIDE = 8, HAND_MODEL_CHANNELS = 3 };

extern const char *const HAND_MODEL_NAMES[HAND_MODEL_CLASSES];

/* The widths of its extractors; `last` is the length of the features. */
struct resnet_spec hand_model_spec(enum resnet_stem stem, int last);

void hand_model_init(struct model *model, struct backend *be);
void hand_model_fini(struct model *model);

/* Values that differ from parameter to parameter; variances are positive. At most 1024 a parameter. */
void hand_model_fill(struct param_set *set, int salt);

#endif

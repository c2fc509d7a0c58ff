/*
 * What a public model holds, for the other functions of the interface that take one.
 */
#ifndef API_API_MODEL_H
#define API_API_MODEL_H

#include <der/model.h>

#include "learn/pupil.h"
#include "predict/predictor.h"

struct der_model {
    struct der_ctx *ctx;
    struct backend *be;
    struct predictor *predictor; /* NULL: the model has learnt nothing yet */
    struct pupil pupil;          /* what it needs to learn on; without a model: not loaded yet */
    char *path;                  /* of the file that it was loaded from; NULL: none */
    char *text;                  /* the latest JSON that was handed out */
};

/* A model that has learnt nothing yet, on the back end of the options (may be NULL). */
NODISCARD enum der_status api_model_new(struct der_ctx *ctx,
                                        const struct der_model_options *options,
                                        struct der_model **out);

/* Makes sure that `pupil` is there, from beside the file that the model was loaded from. A missing file is
 * DER_STATE. A model that has learnt nothing yet needs none. */
NODISCARD enum der_status api_model_pupil(struct der_model *model);

/* Saves the pupil, under the lock of the model file. */
NODISCARD enum der_status api_model_save(struct der_model *model, const char *path);

/* What the model is; NULL: it has learnt nothing yet. */
const struct model *api_model(const struct der_model *model);

#endif

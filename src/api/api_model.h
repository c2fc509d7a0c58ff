/*
 * What a public model holds, for the other functions of the interface that take one.
 */
#ifndef API_API_MODEL_H
#define API_API_MODEL_H

#include <der/model.h>

#include "predict/predictor.h"

struct der_model {
    struct der_ctx *ctx;
    struct backend *be;
    struct predictor *predictor; /* NULL: the model has learnt nothing yet */
    char *text;                  /* the latest JSON that was handed out */
};

/* A model that has learnt nothing yet, on the back end of the options (may be NULL). */
NODISCARD enum der_status api_model_new(struct der_ctx *ctx,
                                        const struct der_model_options *options,
                                        struct der_model **out);

/* What the model is; NULL: it has learnt nothing yet. */
const struct model *api_model(const struct der_model *model);

#endif

/*
 * Model files: all that prediction needs, as docs/FORMATS.md describes it. One safetensors file with
 * torchvision's names under extractors.N., classifier.weight (and .bias, if it has one), and a description in JSON.
 *
 * A file is believed in nothing. The description is checked against its own rules, every tensor against the
 * networks it describes, and memory is taken only for what is there.
 */
#ifndef STORE_MODEL_FILE_H
#define STORE_MODEL_FILE_H

#include "core/arena.h"
#include "data/augment.h"
#include "io/safetensors.h"
#include "model/extractor.h"

enum { MODEL_MAX_STEPS = 128 };

/* What the metadata say. */
struct model_info {
    const char *const *classes; /* [n_classes] names in the order of learning */
    int n_classes;
    int steps[MODEL_MAX_STEPS]; /* [n_steps] classes that each step added */
    int n_steps;
    struct augment_spec input; /* how a picture becomes an image for the extractors: AUGMENT_PLAIN,
                                * AUGMENT_SQUASH or AUGMENT_SHORTER_SIDE */
    const char *network;       /* of full width, which is what a next step begins with */
    double width;              /* factor on its channels */
    double temperature;        /* divides the logits before the softmax */
    const char *version;       /* of the program that wrote the file */
    const char *preset;        /* of the settings; "": none */
    uint64_t seed;
};

struct model {
    struct der_ctx *ctx;
    struct arena texts; /* of a model that was loaded: its names */
    struct model_info info;
    struct extractor *extractors[MODEL_MAX_STEPS]; /* [n_extractors], in order of their columns */
    int n_extractors;
    struct param_set
        *classifier; /* "classifier.weight" [n_classes, features]; few have a "classifier.bias" */
};

/* Columns of the feature matrix. */
int64_t model_feature_dim(const struct model *model);

/* Writes a model as durable.h does; it may be put together from borrowed parts. `io` may be NULL. */
NODISCARD enum der_status model_write(const struct model *model, const struct io_calls *io,
                                      const char *path);

/* An empty model with the description of another, all texts copied. Caller frees with model_free. */
NODISCARD enum der_status model_new(const struct model *like, struct model **out);

/* The same with copies of its extractors and classifier, frozen, on the back end they are on. */
NODISCARD enum der_status model_copy(const struct model *model, struct model **out);

/* Loads a model onto a back end: extractors and classifier frozen. Whatever is wrong with the file is
 * DER_FORMAT with a sentence. `io` may be NULL. Caller frees with model_free. */
NODISCARD enum der_status model_load(struct backend *be, const struct io_calls *io,
                                     const char *path, struct model **out);
void model_free(struct model *model);

/* The steps that the model in a file has learnt, without loading it. */
NODISCARD enum der_status model_peek_steps(struct der_ctx *ctx, const struct io_calls *io,
                                           const char *path, int *n_steps);

#endif

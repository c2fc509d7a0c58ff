/*
 * Models: loading, looking into, predicting, testing, saving.
 *
 *     struct der_model *model;
 *     struct der_guess best[3];
 *     enum der_status status = der_model_load(ctx, "model.safetensors", NULL, &model);
 *     if (status == DER_OK)
 *         status = der_model_predict_file(model, "cat.jpg", 3, best);
 *     if (status == DER_OK)
 *         printf("%s, %.0f %%\n", best[0].name, 100.0 * best[0].probability);
 *
 * A model is used by one thread at a time; models of different contexts know nothing of each other. Texts that are
 * handed out are borrowed until the model is freed, unless it says otherwise.
 */
#ifndef DER_MODEL_H
#define DER_MODEL_H

#include <der/data.h>
#include <der/train.h>

struct der_model;

/* Zero or NULL means the default in parentheses. */
struct der_model_options {
    const char *backend;          /* "cpu", "ref" ... (the fastest there is) */
    enum der_precision precision; /* of convolutions (f32) */
};

/* Loads a model file, or the model of a run folder. `options` may be NULL. Caller frees with der_model_free. */
DER_API DER_NODISCARD enum der_status der_model_load(struct der_ctx *ctx, const char *path,
                                                     const struct der_model_options *options,
                                                     struct der_model **out);

/* Writes the model file: whole, or not at all; of a model that can learn on, the files beside it too
 * (der/learn.h). */
DER_API DER_NODISCARD enum der_status der_model_save(struct der_model *model, const char *path);
DER_API void der_model_free(struct der_model *model);

/* ---- what it is ------------------------------------------------------------------------------------ */

struct der_model_info {
    int n_classes, n_steps, n_extractors; /* 0: it has learnt nothing yet */
    int channels, height, width;          /* of the images that the extractors see */
    int64_t features;                     /* length of the feature vector */
    int64_t params;                       /* of the extractors */
    int64_t params_total;                 /* with the classifier */
    int64_t multiply_adds;                /* of the extractors, for one image */
    double temperature;                   /* divides the logits before the softmax */
    const char *transform;                /* of pictures: "plain", "squash", "shorter-side" */
    int resize;              /* side that pictures are resized to before the crop; 0: none */
    const float *mean, *std; /* [channels] normalisation, white being 1 */
    const char *network;     /* of full width, which a next step begins with */
    double width_factor;     /* on its channels */
    const char *preset;      /* of the settings; "": none */
    const char *version;     /* of the program that wrote it */
    uint64_t seed;
};

DER_API struct der_model_info der_model_info(const struct der_model *model);

/* The name of class `label`, in the order of learning; NULL when there is none. */
DER_API const char *der_model_class(const struct der_model *model, int label);

/* Classes that step `step` (from 0) added; 0 when there is no such step. */
DER_API int der_model_step_classes(const struct der_model *model, int step);

enum { DER_MAX_STAGES = 4, DER_MAX_BLOCKS = 8 };

/* A residual network with every width it has. */
struct der_extractor_info {
    const char *stem; /* "3x3", "7x7-pool", "3x3-pool" */
    int n_stages;
    int n_blocks[DER_MAX_STAGES];
    int streams[DER_MAX_STAGES];               /* channels of the residual stream */
    int inner[DER_MAX_STAGES][DER_MAX_BLOCKS]; /* channels between the convolutions of a block */
    int features;
    int64_t params;
    int64_t multiply_adds; /* for one image */
};

DER_API DER_NODISCARD enum der_status der_model_extractor(const struct der_model *model, int index,
                                                          struct der_extractor_info *out);

/* All of this as a JSON object, indented, with a newline at the end. Borrowed until the next call of a function
 * with this model that makes JSON. */
DER_API DER_NODISCARD enum der_status der_model_json(struct der_model *model, const char **text);

/* ---- predicting ------------------------------------------------------------------------------------- */

/* One guess. */
struct der_guess {
    int label; /* of the class, as der_model_class counts; -1: the model has no more classes */
    const char *name;  /* of the class; "" with label -1 */
    float probability; /* of softmax(logits / temperature) over all classes */
    float logit;
};

/* The `top` best classes of each of n pictures, best first, of equal ones the lower label first: guesses [n][top].
 * Pictures may have any size and 1 or 3 channels: they are converted and resized as the model's transform says; a
 * model whose transform is "plain" resizes pictures of another size to its own, whatever their aspect ratio. Nothing
 * is allocated once pictures of some size and number were met. Logits of one picture alone and in company may differ
 * in their last bits. */
DER_API DER_NODISCARD enum der_status der_model_predict(struct der_model *model,
                                                        const struct der_image *images, int n,
                                                        int top, struct der_guess *guesses);

/* The whole row of each: logits [n][n_classes]. */
DER_API DER_NODISCARD enum der_status der_model_logits(struct der_model *model,
                                                       const struct der_image *images, int n,
                                                       float *logits);

/* The same for a JPEG or PNG file, and for the bytes of one. A picture that cannot be used is DER_IO, DER_FORMAT
 * or DER_UNSUPPORTED, and the message names the file. */
DER_API DER_NODISCARD enum der_status der_model_predict_file(struct der_model *model,
                                                             const char *path, int top,
                                                             struct der_guess *guesses);
DER_API DER_NODISCARD enum der_status der_model_predict_encoded(struct der_model *model,
                                                                const void *bytes, size_t size,
                                                                int top, struct der_guess *guesses);

/* A prediction as one line of JSON, without newline: the given name, and the guesses; guesses with label -1 are
 * left out. With `logits` the guesses must be of all classes, and their logits are told in the order of labels, beside
 * the `top` best guesses. Bytes of `name` that are not UTF-8 become U+FFFD. Borrowed like the text of
 * der_model_json. */
DER_API DER_NODISCARD enum der_status der_model_prediction_json(struct der_model *model,
                                                                const char *name,
                                                                const struct der_guess *guesses,
                                                                int top, bool logits,
                                                                const char **text);

/* ---- testing ---------------------------------------------------------------------------------------- */

/* Counts of one class. */
struct der_class_score {
    int64_t n;          /* images */
    int64_t top1, top5; /* of them right, and among the best five */
};

/* Zero or NULL means the default in parentheses. */
struct der_evaluate_options {
    int batch;                      /* images at once (64; 16 of images above 64 x 64) */
    int loader_threads;             /* threads that prepare batches (1) */
    enum der_bad_images bad_images; /* what to do with images that do not decode (stop) */
    struct der_class_score *scores; /* [n_classes] of the model, filled in (not wanted) */
    void (*progress)(void *user, int64_t done, int64_t total); /* images, after every batch */
    bool (*cancelled)(void *user); /* true ends the test with DER_CANCELLED */
    void *user;                    /* argument of the two */
    const char *
        predictions; /* file to write: what every image was taken for, as docs/FORMATS.md has it (none) */
};

struct der_evaluation {
    enum der_split split;
    double top1, top5;      /* per cent of n */
    int64_t n;              /* images tested */
    int n_classes;          /* with an image among those */
    int unknown_classes;    /* of the data: the model has no such name */
    int64_t unknown_images; /* in them, not counted in n */
    int64_t bad_images;     /* that could not be used, not counted in n */
};

/* Tests the model. Classes of data and model are matched by name. Those of the data that the model does not know are
 * counted, told to the log and left out; data without a single class that it knows are DER_FORMAT. `options` may be
 * NULL. */
DER_API DER_NODISCARD enum der_status der_model_evaluate(struct der_model *model,
                                                         struct der_data *data,
                                                         enum der_split split,
                                                         const struct der_evaluate_options *options,
                                                         struct der_evaluation *out);

/* A test as a JSON object, indented, with a newline at the end; by step and by class where `scores` are given.
 * Borrowed like the text of der_model_json. */
DER_API DER_NODISCARD enum der_status der_model_evaluation_json(
    struct der_model *model, const struct der_evaluation *evaluation,
    const struct der_class_score *scores, const char **text);

#endif

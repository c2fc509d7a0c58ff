/*
 * Learning: a model is taught new classes, any number of times, days apart.
 *
 *     struct der_learn_report report;
 *     enum der_status status = der_data_open(ctx, "photos", NULL, &data);
 *     if (status == DER_OK)
 *         status = der_learn(ctx, "cats.safetensors", data, NULL, NULL, &report);
 *
 * A model that can learn on has two files beside it: cats.exemplars.safetensors, a few pictures of every class, and
 * cats.state.safetensors. Copy or move all three. To predict, the model alone is enough. A symbolic link to a model
 * stands for the file that it leads to, with the files beside that.
 */
#ifndef DER_LEARN_H
#define DER_LEARN_H

#include <der/model.h>

/* Zero or NULL means the default in parentheses. */
struct der_learn_options {
    const char *
        network; /* of extractors, when the model is new; later it stays (chosen from the pictures) */
    double width; /* factor on its channels, when the model is new (1) */
    int image_size; /* side of the images that extractors see, when the model is new (from the pictures) */
    const char *init; /* file of weights to begin with, when the model is new (at random); see
                       * der_import. `network` is then resnet18 unless it is given */
    int epochs;       /* of the new extractor (from the number of pictures) */
    int classifier_epochs; /* of the classifier that is trained anew (30, or `epochs` where that is less) */
    int batch;             /* pictures of a batch (from their number) */
    double lr;             /* learning rate of both (0.02; 0.05 with batches above 32) */
    int memory; /* pictures of every class that are kept to train on again, and at most as many to test with (as
                 * before; 20 when the model is new) */
    double
        validation; /* share of each class that is held out where the data have no test pictures; negative: none
                        * (0.2) */
    int64_t
        target_params; /* wanted parameters of the new extractor (as before; a third of the unpruned
                                     * ones when the model is new) */
    uint64_t seed;     /* of everything random */
    int loader_threads;             /* threads that prepare batches (1) */
    enum der_bad_images bad_images; /* what to do with pictures that do not decode (stop) */
    void (*progress)(void *user, const struct der_progress *progress);
    bool (*cancelled)(void *user); /* true ends it with DER_CANCELLED */
    void *user;                    /* argument of the two */
};

/* What came of it. Accuracies are per cent of held-out pictures, NAN where there are none. */
struct der_learn_report {
    int new_classes;        /* that the model has learnt */
    int joined_classes;     /* that it knew before and has got new pictures of */
    int n_classes;          /* that it knows now */
    int64_t n_pictures;     /* new ones that it was trained on */
    int64_t known_pictures; /* left out, because the model has kept the very same */
    int64_t bad_pictures;   /* left out, because they could not be read */
    int64_t held_out_old,
        held_out_new; /* pictures that it was tested with, of classes known before and of new ones */
    double old_before, old_after; /* accuracy on the former, before and after */
    double new_after;             /* accuracy on the latter */
    double all_after;             /* on both */
    int64_t params, params_total; /* of the extractors; with the classifier */
    double seconds;
};

/* A model without classes, to be taught by der_model_learn. `options` may be NULL. Caller frees with
 * der_model_free. */
DER_API DER_NODISCARD enum der_status der_model_new(struct der_ctx *ctx,
                                                    const struct der_model_options *options,
                                                    struct der_model **out);

/* Teaches a model every class of `data`. Classes are matched by name: pictures of one that it knows join it. Where
 * there is no new class the extractors stay, and only the classifier is trained anew. All pictures are read into
 * memory before anything is trained. On failure, and when it is cancelled, the model is what it was before.
 *
 * A model that was loaded needs the files beside it; one that is missing is DER_STATE, and the message names it.
 * `options` may be NULL. */
DER_API DER_NODISCARD enum der_status der_model_learn(struct der_model *model,
                                                      struct der_data *data,
                                                      const struct der_learn_options *options,
                                                      struct der_learn_report *report);

/* Teaches the model in a file, which is made if it is not there, and saves it: the old files stay until the new ones
 * are complete, whatever happens. Meanwhile the model is locked: a second process on it is DER_STATE. */
DER_API DER_NODISCARD enum der_status der_learn(struct der_ctx *ctx, const char *path,
                                                struct der_data *data,
                                                const struct der_model_options *model_options,
                                                const struct der_learn_options *options,
                                                struct der_learn_report *report);

#endif

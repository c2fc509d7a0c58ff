/*
 * A model that answers: pictures of any size in, a row of logits for each out.
 *
 *     picture ──> the model's transform ──> extractors, folded ──> features ──> classifier ──> logits
 *
 * Programs are compiled for a few batch sizes, each when it is first needed: one for single pictures, so that a
 * camera's frame does not pay for a batch, and larger ones whose last rows may stay unused. Once pictures of some
 * size were met, nothing is allocated any more.
 */
#ifndef PREDICT_PREDICTOR_H
#define PREDICT_PREDICTOR_H

#include "core/file.h"
#include "predict/guess.h"
#include "store/model_file.h"
#include "train/loop.h"

enum picture_kind { PICTURE_IMAGE, PICTURE_FILE, PICTURE_BYTES };

/* One picture, borrowed for the length of a call. */
struct picture {
    enum picture_kind kind;
    const char *name;        /* of a file: its path; else for messages, NULL: the number is told */
    int number;              /* of the picture for its owner */
    struct image_view image; /* PICTURE_IMAGE: 1 or 3 channels, any strides */
    struct file_bytes bytes; /* PICTURE_BYTES: an encoded JPEG or PNG image */
};

struct predictor;

/* Takes over the model, which must have classes, also when it fails. Models of neither 1 nor 3 channels are
 * refused: no picture would fit. The back end is borrowed. */
NODISCARD enum der_status predictor_new(struct backend *be, struct model *model,
                                        struct predictor **out);
void predictor_free(struct predictor *predictor);

/* Borrowed. The predictor's programs are bound to its extractors: nobody else may bind those. */
const struct model *predictor_model(const struct predictor *predictor);

/* Ends the predictor and hands the model to the caller, who frees it with model_free. */
struct model *predictor_release(struct predictor *predictor);

/* logits [n][n_classes]. A picture that cannot be used is named in the message. Logits that are not finite are
 * DER_NUMERIC. */
NODISCARD enum der_status predictor_logits(struct predictor *predictor,
                                           const struct picture *pictures, int n, float *logits);

/* The `top` best classes of each picture: guesses [n][top]. */
NODISCARD enum der_status predictor_guess(struct predictor *predictor,
                                          const struct picture *pictures, int n, int top,
                                          struct der_guess *guesses);

/* For evaluation: the program of a batch size with its ranks, and the transform that images go through. The
 * program is good until the next call with another size. */
NODISCARD enum der_status predictor_program(struct predictor *predictor, int batch,
                                            struct stage_program *out);
const struct augment_spec *predictor_input(const struct predictor *predictor);

/* Images of a full batch. */
int predictor_batch(const struct predictor *predictor);

#endif

/*
 * Intake: all pictures of a data set, decoded once, reduced to the size that a model works with, and held in
 * memory as bytes.
 *
 * Pictures that are kept with a model are kept as these bytes. Old and new pictures have thus gone through the same
 * reduction, and nothing but what they show tells them apart.
 */
#ifndef LEARN_INTAKE_H
#define LEARN_INTAKE_H

#include "data/loader.h"
#include "train/loop.h"

/* What pictures are brought to. */
struct intake_size {
    int channels;
    int side;      /* the shorter side is at most this */
    bool is_exact; /* it is this, smaller pictures are enlarged */
};

struct intake_options {
    struct intake_size size;
    enum bad_images bad_images;
    const struct train_hooks *hooks; /* asked whether to go on */
};

/* Reads with as many threads as the context has; what comes of it does not depend on them.
 *
 * *out has the classes of `from` under the same labels, and the pictures that could be used; the others are told to
 * the log and counted, or are the end of it. Memory is channels x height x width bytes a picture. Caller frees with
 * dataset_free. */
NODISCARD enum der_status intake(const struct dataset *from, const struct intake_options *options,
                                 struct dataset **out, int64_t *n_bad);

/* Sizes of some pictures to train on, spread over the set: what the first lesson chooses its image size by. */
struct intake_survey {
    int n;           /* pictures looked at */
    int shorter;     /* median of their shorter sides */
    bool is_uniform; /* all of them are squares of one size */
};
NODISCARD enum der_status intake_look(const struct dataset *from, struct intake_survey *out);

#endif

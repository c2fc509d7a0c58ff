/*
 * What a lesson is taught with: everything that nobody has said is chosen from the pictures. docs/METHODS.md has the
 * rules as a table.
 */
#ifndef LEARN_LESSON_PLAN_H
#define LEARN_LESSON_PLAN_H

#include "learn/intake.h"
#include "learn/pupil.h"

enum { LESSON_MEMORY = 20 }; /* pictures kept of a class where nobody has said how many */

struct lesson_plan {
    struct config config;
    struct resnet_spec spec;         /* of a full-width extractor */
    struct augment_spec train, test; /* mean and deviation are filled in by lesson_plan_colours */
    struct intake_size size;         /* of the pictures in memory */
};

/* Image size, network and transforms: of the first lesson from its pictures and options, otherwise the model's. Weights
 * to begin with must fit that network. */
NODISCARD enum der_status lesson_plan_images(const struct pupil *pupil, const struct dataset *data,
                                             const struct lesson_options *options,
                                             struct lesson_plan *plan);

/* The first lesson: the normalisation, from the pictures that were read. */
NODISCARD enum der_status lesson_plan_colours(const struct dataset *pictures,
                                              struct lesson_plan *plan);

/* Batch, epochs, memory and size, for a lesson of n_images. The whole configuration is checked. */
NODISCARD enum der_status lesson_plan_training(const struct pupil *pupil, int64_t n_images,
                                               const struct lesson_options *options,
                                               struct lesson_plan *plan);

#endif

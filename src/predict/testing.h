/*
 * Testing a model on a data set. The two know classes by name: what the model calls 3 may be 17 in the set.
 */
#ifndef PREDICT_TESTING_H
#define PREDICT_TESTING_H

#include "predict/predictor.h"
#include "train/evaluate.h"

struct testing_options {
    enum data_split split;
    int batch; /* 0: the predictor's */
    int loader_threads;
    enum bad_images bad_images;
    bool keeps_predictions;   /* in `counts` */
    struct train_hooks hooks; /* `tested` is told, `cancelled` asked */
};

struct testing {
    struct evaluation counts;    /* by the model's labels */
    int unknown_classes;         /* of the set: the model has no such name */
    int64_t unknown_images;      /* in them, left out */
    int64_t bad_images;          /* could not be read, left out */
    const char *unknown_example; /* one of the names; NULL: none */
};

/* A split without images, or without one class that the model knows, is DER_FORMAT. Free with testing_fini, also
 * after a failure. */
NODISCARD enum der_status testing_run(struct predictor *predictor, const struct dataset *set,
                                      const struct testing_options *options, struct testing *out);
void testing_fini(struct der_ctx *ctx, struct testing *testing);

#endif

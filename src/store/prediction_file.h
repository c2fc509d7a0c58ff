/*
 * Prediction files: what the model of a run took every test image for, after its latest step.
 */
#ifndef STORE_PREDICTION_FILE_H
#define STORE_PREDICTION_FILE_H

#include "core/arena.h"
#include "data/dataset.h"
#include "io/io_calls.h"
#include "metrics/prediction.h"

/* What a file says, and what is written to one. */
struct prediction_file {
    struct der_ctx *ctx;
    struct arena texts;         /* of a file that was read: its names */
    int step;                   /* steps learnt */
    enum data_split split;      /* where the samples are positions */
    const char *const *classes; /* [n_classes] names in the order of learning */
    int n_classes;
    struct prediction *predictions; /* [n] */
    int64_t n;
};

/* Writes as durable.h does; `io` may be NULL. */
NODISCARD enum der_status prediction_file_write(const struct prediction_file *file,
                                                const struct io_calls *io, const char *path);

/* Whatever is wrong with the file is DER_FORMAT; that the samples exist is the caller's to check. Free with
 * prediction_file_free. */
NODISCARD enum der_status prediction_file_read(struct der_ctx *ctx, const struct io_calls *io,
                                               const char *path, struct prediction_file **out);
void prediction_file_free(struct prediction_file *file);

#endif

/*
 * Exemplar files: which training images of every class are kept, best rank first.
 */
#ifndef STORE_EXEMPLAR_FILE_H
#define STORE_EXEMPLAR_FILE_H

#include "core/arena.h"
#include "data/exemplar.h"
#include "io/io_calls.h"

/* What a file says. */
struct exemplar_file {
    struct der_ctx *ctx;
    struct arena texts;
    int step;                   /* steps learnt when it was written */
    const char *const *classes; /* [memory->n_classes] names in the order of learning */
    struct exemplars *memory;   /* with room for the classes that the reader asked for */
};

/* Writes the lists as durable.h does. classes [memory->n_classes]; `io` may be NULL. */
NODISCARD enum der_status exemplar_file_write(const struct exemplars *memory,
                                              const char *const *classes, int step,
                                              const struct io_calls *io, const char *path);

/* Reads a file with at most `capacity` classes (from 1) whose samples lie below `n_samples`; none occurs
 * twice. Whatever is wrong with the file is DER_FORMAT. Free with exemplar_file_free. */
NODISCARD enum der_status exemplar_file_read(struct der_ctx *ctx, const struct io_calls *io,
                                             const char *path, int capacity, int64_t n_samples,
                                             struct exemplar_file **out);
void exemplar_file_free(struct exemplar_file *file);

#endif

/*
 * Basis files: what a model begins its next step with besides its pictures. That is the newest extractor before
 * it was pruned, which the next one starts from, which pictures it was trained on, and the settings that stay from
 * step to step.
 */
#ifndef STORE_BASIS_FILE_H
#define STORE_BASIS_FILE_H

#include "data/picture_set.h"
#include "io/io_calls.h"
#include "model/extractor.h"

struct basis {
    struct extractor *last_full; /* owned */
    struct picture_set trained;  /* all that it was ever trained on, kept or not */
    int memory;                  /* pictures kept of every class */
    int64_t target_params;       /* wanted size of an extractor; 0: the default */
};

void basis_fini(struct basis *basis);

/* Writes one as durable.h does. `model` is the fingerprint of the model that it belongs to; `io` may be NULL. */
NODISCARD enum der_status basis_write(const struct basis *basis, uint64_t model,
                                      const struct io_calls *io, const char *path);

/* Reads one whose extractor is a network of this description. Whatever is wrong with the file is DER_FORMAT.
 * Free with basis_fini. */
NODISCARD enum der_status basis_read(struct backend *be, const struct io_calls *io,
                                     const char *path, const struct resnet_spec *spec,
                                     struct basis *out);

#endif

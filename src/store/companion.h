/*
 * What files that belong to a model have in common: each names its model by a fingerprint of that file's bytes.
 */
#ifndef STORE_COMPANION_H
#define STORE_COMPANION_H

#include "store/model_text.h"

/* Adds the format and the fingerprint to a description. false: no memory. */
bool companion_describe(cJSON *object, uint64_t model);

/* The fingerprint in a description. */
NODISCARD enum der_status companion_model(struct der_ctx *ctx, const char *source,
                                          const cJSON *object, uint64_t *model);

/* The same from a file, by its description alone. */
NODISCARD enum der_status companion_peek(struct der_ctx *ctx, const struct io_calls *io,
                                         const char *path, uint64_t *model);

/* The fingerprint of a model file: 64-bit FNV-1a of its bytes. */
NODISCARD enum der_status companion_fingerprint(struct der_ctx *ctx, const struct io_calls *io,
                                                const char *path, uint64_t *model);

#endif

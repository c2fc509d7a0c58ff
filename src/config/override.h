/*
 * Changing settings of a preset by "key=value".
 *
 * What a protocol fixes is refused. A new number of epochs squeezes the preset's schedule, and where
 * the preset trains step 1 like every other step, step 1 follows what the others are given unless it
 * is given something itself. Within one config_apply the order of different keys does not matter.
 */
#ifndef CONFIG_OVERRIDE_H
#define CONFIG_OVERRIDE_H

#include "config/config.h"

/* Sets one value. On failure (DER_ARG with a sentence) nothing has changed. */
NODISCARD enum der_status config_set(struct der_ctx *ctx, struct config *config, const char *key,
                                     const char *value);

/* Sets n values "key=value", in an order of its own; of two for the same key the later one counts.
 * On failure nothing has changed. What values mean together is left to config_check. */
NODISCARD enum der_status config_apply(struct der_ctx *ctx, struct config *config,
                                       const char *const *assignments, int n);

/* Stores n values "key=value" and nothing that follows from them: no schedule is squeezed, no step follows another,
 * and what a protocol fixes is not refused. For comparing with a configuration that should have them already. On
 * failure nothing has changed. */
NODISCARD enum der_status config_store(struct der_ctx *ctx, struct config *config,
                                       const char *const *assignments, int n);

/* Told of each setting that differs, with both values as text. */
typedef void config_difference_fn(void *user, const char *key, const char *a, const char *b);

/* Returns how many differ; `tell` may be NULL. Without pruning those of masks do not count. */
int config_differences(const struct config *a, const struct config *b, config_difference_fn *tell,
                       void *user);

#endif

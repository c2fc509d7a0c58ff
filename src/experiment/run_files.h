/*
 * Names in a run folder: their paths, and whether there are any that matter.
 */
#ifndef EXPERIMENT_RUN_FILES_H
#define EXPERIMENT_RUN_FILES_H

#include "core/ctx.h"

/* folder/name; caller frees with mem_free, NULL when memory is short. */
char *run_files_join(struct der_ctx *ctx, const char *folder, const char *name);

/* Is there nothing but the lock and what a killed process left of files it was writing? */
NODISCARD enum der_status run_files_is_empty(struct der_ctx *ctx, const char *folder, bool *out);

#endif

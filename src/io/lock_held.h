/*
 * Does somebody hold the lock of a folder (lock.h)? For who only looks.
 */
#ifndef IO_LOCK_HELD_H
#define IO_LOCK_HELD_H

#include "core/ctx.h"

/* Looking takes a shared lock for a moment, so that lookers do not see each other; whoever takes the lock in that
 * moment tries again. A folder whose lock file is missing or cannot be opened is held by nobody. */
NODISCARD enum der_status lock_is_held(struct der_ctx *ctx, const char *folder, bool *held);

#endif

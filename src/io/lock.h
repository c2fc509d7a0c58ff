/*
 * A lock on a folder: one process at a time works on a run.
 *
 * It is a lock of the system (flock) on the file FOLDER/lock, so it ends with the process that holds
 * it, however that ends; the file stays and means nothing by itself. What it contains, the number of
 * the holder, is for messages only.
 */
#ifndef IO_LOCK_H
#define IO_LOCK_H

#include "core/ctx.h"

struct folder_lock;

/* Takes the lock, or fails at once: DER_STATE when somebody holds it, and the message says who. */
NODISCARD enum der_status folder_lock_take(struct der_ctx *ctx, const char *folder,
                                           struct folder_lock **out);

/* NULL is allowed. */
void folder_lock_release(struct folder_lock *lock);

#endif

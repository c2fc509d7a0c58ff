/*
 * Locks: one process at a time works on a run folder, or on a model.
 *
 * It is a lock of the system (flock) on a file of its own, so it ends with the process that holds
 * it, however that ends; the file stays and means nothing by itself. What it contains, the number of
 * the holder, is for messages only.
 */
#ifndef IO_LOCK_H
#define IO_LOCK_H

#include "core/ctx.h"

struct lock;

/* Takes the lock on the file `path`, which is made if it is not there, or fails at once: DER_STATE when
 * somebody holds it, and the message says that `subject` is in use, and by whom. */
NODISCARD enum der_status lock_take(struct der_ctx *ctx, const char *path, const char *subject,
                                    struct lock **out);

/* The lock on a folder: the file FOLDER/lock. */
NODISCARD enum der_status lock_take_folder(struct der_ctx *ctx, const char *folder,
                                           struct lock **out);

/* NULL is allowed. */
void lock_release(struct lock *lock);

#endif

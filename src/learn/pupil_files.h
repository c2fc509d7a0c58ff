/*
 * A pupil on the disk: the model file, and beside it its companions, the album and the basis. docs/FORMATS.md has
 * their names. A symbolic link is another name of the model: everything is where the file lies that it leads to, and
 * companions that are links themselves stay links too.
 *
 * The three are replaced as one. All are written whole beside their places (NAME.next), the companions with the
 * fingerprint of the new model; then the model takes its place, which is the moment that counts; then the companions
 * follow. Whenever a process is killed, there is one model in its place, and companions with its fingerprint either
 * in theirs or waiting beside them: readers look at both, and the next writer clears up.
 */
#ifndef LEARN_PUPIL_FILES_H
#define LEARN_PUPIL_FILES_H

#include "io/lock.h"
#include "learn/pupil.h"

/* Makes sure that no other process works on the model meanwhile: DER_STATE when one does. Caller gives the lock
 * back with lock_release. */
NODISCARD enum der_status pupil_lock(struct der_ctx *ctx, const char *path, struct lock **out);

/* Is there a model to go on with? */
bool pupil_exists(const char *path);

/* Is there room for a new one? Companions without their model are somebody's: DER_STATE names one. */
NODISCARD enum der_status pupil_check_room(struct der_ctx *ctx, const char *path);

/* Loads all three. A companion that is missing, or belongs to another model, is DER_STATE, and the message names it
 * and says what to do. `io`, here and below, may be NULL. Free with pupil_fini. */
NODISCARD enum der_status pupil_load(struct backend *be, const struct io_calls *io,
                                     const char *path, struct pupil *out);

/* Saves all three, in the place of what is there. The caller holds the lock. After a failure either the old ones are
 * there or the new ones. */
NODISCARD enum der_status pupil_save(const struct pupil *pupil, const struct io_calls *io,
                                     const char *path);

#endif

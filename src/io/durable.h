/*
 * Files that are replaced whole or not at all, and survive a power cut once they are.
 *
 * The new content goes to a temporary file in the same folder, is brought to the disk (fsync), takes
 * the place of the old file (rename), and the folder is brought to the disk. Until the rename
 * nothing touches the old file, so a full disk, an error or a kill at any moment leaves it as it
 * was.
 *
 * A symbolic link stays one: the file that it leads to is replaced. What has no content to replace, a pipe or a
 * terminal or /dev/null, is written into as it comes. Folders, disks and sockets are refused.
 *
 *     durable_open -> durable_write ... -> durable_commit (or durable_abort)
 */
#ifndef IO_DURABLE_H
#define IO_DURABLE_H

#include "io/io_calls.h"

struct durable;

/* Begins to write `path`. `io` may be NULL and must outlive the file. */
NODISCARD enum der_status durable_open(struct der_ctx *ctx, const struct io_calls *io,
                                       const char *path, struct durable **out);

/* Where the file is to be that `path` names: behind all symbolic links. One that leads nowhere is an error. Caller
 * frees with mem_free. */
NODISCARD enum der_status durable_place(struct der_ctx *ctx, const char *path, char **out);

/* Appends. After a failure the file can only be given up; durable_commit would refuse it. */
NODISCARD enum der_status durable_write(struct durable *file, const void *data, size_t size);

/* Puts the new file in the place of the old one. Whatever comes of it, `file` is gone and no
 * temporary file is left. After a failure the old file is as it was, with one exception: when the
 * last call of all fails, the fsync of the folder, the new file is in its place, whole, but might not
 * survive a power cut. */
NODISCARD enum der_status durable_commit(struct durable *file);

/* Gives up: the old file stays. NULL is allowed. */
void durable_abort(struct durable *file);

/* All of that for a file that is in memory. */
NODISCARD enum der_status durable_write_file(struct der_ctx *ctx, const struct io_calls *io,
                                             const char *path, const void *data, size_t size);

/* Makes a folder that survives a power cut, with those that it lies in. One that is there already will do. */
NODISCARD enum der_status durable_mkdir(struct der_ctx *ctx, const struct io_calls *io,
                                        const char *path);

/* Removes the temporary files that killed processes left in a folder, and logs each. The caller
 * holds the folder's lock: a file that is being written there would go as well. */
NODISCARD enum der_status durable_sweep(struct der_ctx *ctx, const char *folder);

/* Removes those of one file, whose lock the caller holds, and leaves the rest of its folder alone. */
NODISCARD enum der_status durable_sweep_file(struct der_ctx *ctx, const char *path);

/* Returns when the names in the folder of a file have reached the disk. `io` may be NULL. */
NODISCARD enum der_status durable_sync_names(struct der_ctx *ctx, const struct io_calls *io,
                                             const char *path);

#endif

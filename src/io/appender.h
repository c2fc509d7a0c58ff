/*
 * A text file that grows line by line, such as metrics.jsonl, and can go back to a length it had.
 *
 * A line is handed to the system whole, in one call; when that fails, the file is cut back to its
 * last whole line. A run's state records appender_length after appender_sync; a run that is resumed
 * opens the file with that length, and what was written after the state is cut off and comes again.
 */
#ifndef IO_APPENDER_H
#define IO_APPENDER_H

#include "io/io_calls.h"

struct appender;

/* Opens `path` with its first `length` bytes and nothing behind them; 0: an empty file, made if it
 * is not there. A file that is shorter, or has no line ending there, is DER_FORMAT. `io` may be NULL
 * and must outlive the appender. */
NODISCARD enum der_status appender_open(struct der_ctx *ctx, const struct io_calls *io,
                                        const char *path, int64_t length, struct appender **out);

/* Adds a line. `line` holds no newline. */
NODISCARD enum der_status appender_line(struct appender *appender, const char *line);

/* Adds a record of another kind, whole or not at all likewise. */
NODISCARD enum der_status appender_bytes(struct appender *appender, const void *data, size_t size);

/* Returns when all lines have reached the disk. */
NODISCARD enum der_status appender_sync(struct appender *appender);

/* Bytes of all lines. */
int64_t appender_length(const struct appender *appender);

/* Closes without syncing. NULL is allowed. */
void appender_close(struct appender *appender);

#endif

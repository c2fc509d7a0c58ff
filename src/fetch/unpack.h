/*
 * Unpacks the archive of a data set, tar with gzip, over libarchive.
 *
 * An archive may hold one folder with regular files in it, and nothing else: absolute paths, "..", links,
 * devices, folders within the folder and the same name twice are refused, so no path can lead
 * anywhere else. Limits on bytes, files and the ratio of packing keep out archives that unpack to
 * more than a disk holds.
 *
 * libarchive takes its memory from malloc, not from the context.
 */
#ifndef FETCH_UNPACK_H
#define FETCH_UNPACK_H

#include "fetch/watch.h"
#include "io/io_calls.h"

struct unpack_limits {
    int64_t bytes; /* of all files together */
    int files;
    int ratio; /* bytes unpacked for every packed one, beyond the first UNPACK_FREE_BYTES */
};

enum { UNPACK_FREE_BYTES = 1 << 20 };

struct unpack_request {
    const char *archive; /* path */
    const char *folder;  /* that the archive must hold, a name without slashes */
    const char *target;  /* an empty folder that takes its files */
    struct unpack_limits limits;
    const struct fetch_watch *watch;
};

/* Every file is brought to the disk. After a failure some of them may lie in the target. */
NODISCARD enum der_status unpack_run(struct der_ctx *ctx, const struct io_calls *io,
                                     const struct unpack_request *request);

/* What the path of an entry means. */
enum unpack_entry {
    UNPACK_FILE,   /* folder/NAME: *name points to NAME */
    UNPACK_FOLDER, /* the folder itself, or "." */
    UNPACK_REFUSED,
};
enum unpack_entry unpack_classify(const char *path, const char *folder, const char **name);

#endif

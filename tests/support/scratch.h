/*
 * Files for tests: a folder that goes away again, fixtures, and reading that goes wrong on request.
 * Whatever fails here fails the running cmocka test.
 */
#ifndef SUPPORT_SCRATCH_H
#define SUPPORT_SCRATCH_H

#include "core/file.h"

enum { SCRATCH_PATH_MAX = 1024 };

struct scratch {
    char root[SCRATCH_PATH_MAX / 4];
    char path[SCRATCH_PATH_MAX]; /* the latest answer of scratch_path */
};

void scratch_init(struct scratch *scratch);
void scratch_fini(struct scratch *scratch); /* removes all */

/* "root/name"; good until the next call. */
const char *scratch_path(struct scratch *scratch, const char *name);

/* Writes a file, making the folders on its way. */
void scratch_write(struct scratch *scratch, const char *name, const void *data, size_t size);
void scratch_text(struct scratch *scratch, const char *name, const char *text);
void scratch_mkdir(struct scratch *scratch, const char *name);

/* Copies tests/data/fixtures/<fixture> to a file. */
void scratch_copy(struct scratch *scratch, const char *name, const char *fixture);

/* tests/data/fixtures/<name>; static storage of the caller. */
void fixture_path(char path[SCRATCH_PATH_MAX], const char *name);
struct file_bytes fixture_read(struct der_ctx *ctx, const char *name);

/* Reading with faults: gives at most `most` bytes at a time, is interrupted every other time, and
 * fails with EIO at the fail_at-th call (from 1; 0: never). */
struct faulty_reads {
    size_t most;
    int fail_at;
    int n_calls;
};
struct file_io faulty_io(struct faulty_reads *reads);

#endif

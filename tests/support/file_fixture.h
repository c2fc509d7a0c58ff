/*
 * The fixture of tests that work on files: a context and a folder that goes away again.
 */
#ifndef SUPPORT_FILE_FIXTURE_H
#define SUPPORT_FILE_FIXTURE_H

#include "support/scratch.h"
#include "support/test_ctx.h"

struct file_fixture {
    struct der_ctx *ctx; /* of one thread */
    struct scratch scratch;
};

/* For cmocka: *state is a struct file_fixture. */
int file_fixture_set_up(void **state);
int file_fixture_tear_down(void **state);

#endif

/*
 * Which back ends a test runs on.
 *
 * By default all that every machine can use. DER_TEST_BACKENDS=cuda, as the tests labelled `cuda`
 * have it in their environment, asks for one that needs a GPU.
 */
#ifndef SUPPORT_TEST_BACKEND_H
#define SUPPORT_TEST_BACKEND_H

#include "graph/backend.h"

/* Ending with NULL, never empty. Skips the test when this build or machine has not what is asked
 * for; call it from a test, not from its set-up. */
const struct backend_ops *const *test_backends(void);

/* The first of them, for tests that need only one; never skips. */
const char *test_backend(void);

/* For the main of a program whose set-ups call test_backend(): false when that back end cannot be used here, and
 * what the program then does instead: one test, skipped. */
bool test_backend_is_here(void);
int test_backend_skip(void);

#endif

/*
 * Progress of long work on stderr: one line that rewrites itself on a terminal, one plain line an epoch
 * elsewhere.
 */
#ifndef CLI_PROGRESS_H
#define CLI_PROGRESS_H

#include <der/train.h>

/* A der_progress_fn; user is unused. */
void progress_show(void *user, const struct der_progress *progress);

#endif

/*
 * What the commands that train share: interrupts, the line of a finished step, counts.
 */
#ifndef CLI_RUNNING_H
#define CLI_RUNNING_H

#include <der/train.h>

/* From here on Ctrl-C and a request to terminate only make running_is_interrupted true. */
void running_catch_interrupts(void);
bool running_is_interrupted(void *user);

/* One line of a table of steps on stdout, with a header above the first. */
void running_show_step(bool *has_header, const struct der_step *step);

/* A number of parameters such as "900000", "900k" or "0.9M"; false when it is none from 1 on. */
bool running_count(const char *text, int64_t *out);

#endif

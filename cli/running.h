/*
 * What the commands that train share: interrupts, the line of a finished step, words that flags take.
 */
#ifndef CLI_RUNNING_H
#define CLI_RUNNING_H

#include <der/train.h>

/* From here on Ctrl-C and a request to terminate only make running_is_interrupted true. */
void running_catch_interrupts(void);
bool running_is_interrupted(void *user);

/* One line of a table of steps on stdout, with a header above the first. */
void running_show_step(bool *has_header, const struct der_step *step);

/* Which of n words it is; -1 and a message when it is none of them. */
int running_choose(const char *command, const char *flag, const char *word,
                   const char *const *words, int n);

/* A number of parameters such as "900000", "900k" or "0.9M"; false when it is none from 1 on. */
bool running_count(const char *text, int64_t *out);

/* "f32" ...; false and a message when it is none. */
bool running_precision(const char *command, const char *word, enum der_precision *out);

#endif

/*
 * What all commands of the program share: exit codes, and how it tells what is wrong.
 */
#ifndef CLI_H
#define CLI_H

#include <der/context.h>

/* Exit codes of the program; they are part of its interface, and exit_meanings in table.h says what they mean. */
enum exit_code {
    EXIT_OK = 0,
    EXIT_RUN = 1,    /* the work itself failed */
    EXIT_USAGE = 2,  /* the command line was not understood */
    EXIT_DATA = 3,   /* a file or data set is missing or malformed */
    EXIT_DEVICE = 4, /* the compute device is missing or failed */
};

/* One line on stderr: "der: " and the message. Returns `code`, for `return fail(...)`. */
enum exit_code fail(enum exit_code code, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The same with "warning: " before it, for der_ctx_options.log: errors and warnings are shown. */
void show_warning(void *user, enum der_log_level level, const char *text);

/* The message for a call of the library that failed; ctx may be NULL. The status decides the code. */
enum exit_code fail_status(const struct der_ctx *ctx, enum der_status status);

#endif

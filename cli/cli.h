/*
 * What the commands of the program share: the table of commands, exit codes, messages.
 */
#ifndef CLI_H
#define CLI_H

#include <der/context.h>

/* Exit codes of the program; they are part of its interface (man page, section EXIT STATUS). */
enum exit_code {
    EXIT_OK = 0,
    EXIT_RUN = 1,    /* the work itself failed */
    EXIT_USAGE = 2,  /* the command line was not understood */
    EXIT_DATA = 3,   /* a file or data set is missing or malformed */
    EXIT_DEVICE = 4, /* the compute device is missing or failed */
};

struct command {
    const char *name;
    const char *usage;   /* what follows the name, "" if nothing does */
    const char *summary; /* one line for the list of commands */
    const char *details; /* further lines for `der help COMMAND`, each ending in a newline */
    enum exit_code (*run)(int argc, char **argv); /* argv[0] is the command's name */
};

extern const struct command commands[];
extern const int n_commands;

/* NULL when there is none of that name. */
const struct command *command_find(const char *name);

/* The name of the command closest to a mistyped one; NULL when none is close. */
const char *command_suggest(const char *name);

/* One line on stderr: "der: " and the message. Returns `code`, for `return fail(...)`. */
enum exit_code fail(enum exit_code code, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The same with "warning: " before it, for der_ctx_options.log: errors and warnings are shown. */
void show_warning(void *user, enum der_log_level level, const char *text);

/* The message for a command that does not exist, with the closest one that does. */
enum exit_code fail_unknown_command(const char *name);

/* The message for arguments to a command that takes fewer. */
enum exit_code fail_unexpected_argument(const char *command, const char *argument);

/* The message for a call of the library that failed; ctx may be NULL. The status decides the code. */
enum exit_code fail_status(const struct der_ctx *ctx, enum der_status status);

enum exit_code cmd_data(int argc, char **argv);
enum exit_code cmd_eval(int argc, char **argv);
enum exit_code cmd_export(int argc, char **argv);
enum exit_code cmd_help(int argc, char **argv);
enum exit_code cmd_import(int argc, char **argv);
enum exit_code cmd_info(int argc, char **argv);
enum exit_code cmd_learn(int argc, char **argv);
enum exit_code cmd_nets(int argc, char **argv);
enum exit_code cmd_predict(int argc, char **argv);
enum exit_code cmd_presets(int argc, char **argv);
enum exit_code cmd_report(int argc, char **argv);
enum exit_code cmd_reproduce(int argc, char **argv);
enum exit_code cmd_train(int argc, char **argv);
enum exit_code cmd_version(int argc, char **argv);

#endif

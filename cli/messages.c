/*
 * What the program says when something is wrong: one line on stderr that starts with "der: ".
 */
#include "cli.h"

#include <stdarg.h>
#include <stdio.h>

enum exit_code fail(enum exit_code code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("der: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    return code;
}

enum exit_code fail_unknown_command(const char *name)
{
    const char *close = command_suggest(name);
    if (close)
        return fail(EXIT_USAGE, "unknown command '%s'; did you mean '%s'?", name, close);
    return fail(EXIT_USAGE, "unknown command '%s'; 'der help' lists the commands", name);
}

enum exit_code fail_unexpected_argument(const char *command, const char *argument)
{
    return fail(EXIT_USAGE, "unexpected argument '%s'; see 'der help %s'", argument, command);
}

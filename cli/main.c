/*
 * The program `der`: finds the command and runs it.
 *
 * It uses the public interface of the library and nothing else, so that whatever it does a
 * program of one's own can do.
 */
#include "options.h"

#include <der/suggest.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Output that never arrived, on a full disk say, must not look like success. */
static enum exit_code finish(enum exit_code code)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return code;
    enum exit_code write_code = fail(EXIT_RUN, "cannot write to standard output");
    return code != EXIT_OK ? code : write_code;
}

/* --help and --version are what people try first; they are the commands of the same names. */
static const char *command_name(const char *argument)
{
    if (options_is_help(argument))
        return "help";
    if (strcmp(argument, "--version") == 0)
        return "version";
    return argument;
}

static enum exit_code fail_option(const char *option)
{
    static const char *const options[] = {"--help", "--version"};
    const char *close = der_suggest(option, options, 2, sizeof *options);
    if (close)
        return fail(EXIT_USAGE, "unknown option '%s'; did you mean '%s'?", option, close);
    return fail(EXIT_USAGE, "unknown option '%s'; 'der help' lists the commands", option);
}

static enum exit_code dispatch(int argc, char **argv)
{
    if (argc < 2)
        return fail(EXIT_USAGE, "no command given; 'der help' lists them");

    const struct command *command = command_find(command_name(argv[1]));
    if (!command)
        return argv[1][0] == '-' ? fail_option(argv[1]) : fail_unknown_command(argv[1]);
    return command_run(command, argc - 1, argv + 1);
}

/* Compute threads that wait for each other spin by default. Where anything else runs on the machine that
 * makes training several times slower, and a short spin costs nothing measurable where nothing does. The
 * OpenMP runtime reads its environment before main, so the program starts itself once more. */
static void shorten_spinning(char **argv)
{
    if (getenv("GOMP_SPINCOUNT") || getenv("OMP_WAIT_POLICY"))
        return;
    if (setenv("GOMP_SPINCOUNT", "1000", 0) == 0)
        (void)execv("/proc/self/exe", argv); /* where that fails, all still works */
}

int main(int argc, char **argv)
{
    shorten_spinning(argv);
    return (int)finish(dispatch(argc, argv));
}

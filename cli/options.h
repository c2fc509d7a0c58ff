/*
 * Flags of a command, from one table: parsing, help, and the words of the man page's check.
 */
#ifndef CLI_OPTIONS_H
#define CLI_OPTIONS_H

#include "cli.h"

enum option_type { OPTION_TEXT, OPTION_INT, OPTION_NUMBER };

struct option {
    const char *name; /* without the two hyphens */
    enum option_type type;
    const char *argument; /* placeholder in the help: DIR, N */
    const char *help;     /* one line */
    void *target;         /* const char **, int * or double * */
};

/* Reads "--name value" and "--name=value". Anything else, an unknown flag, a missing or malformed value
 * is reported and EXIT_USAGE returned; EXIT_OK otherwise. */
enum exit_code options_parse(const struct option *options, int n, int argc, char **argv);

/* The table as help text. */
void options_print(const struct option *options, int n);

#endif

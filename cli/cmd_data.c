/*
 * `der data`: data sets before training.
 */
#include "cmd_data.h"

#include <der/suggest.h>

#include <stdio.h>
#include <string.h>

static const struct part {
    const char *name;
    enum exit_code (*run)(int argc, char **argv);
} parts[] = {
    {"get", data_get},
    {"check", data_check},
};

enum { N_PARTS = sizeof parts / sizeof parts[0] };

enum exit_code cmd_data(int argc, char **argv)
{
    if (argc < 2)
        return fail(EXIT_USAGE, "'der data' wants get or check; see 'der help data'");
    if (strcmp(argv[1], "--help") == 0) {
        char *help[] = {argv[0], argv[0]};
        return cmd_help(2, help);
    }
    for (int i = 0; i < N_PARTS; i++) {
        if (strcmp(argv[1], parts[i].name) != 0)
            continue;
        argv[1] = argv[0]; /* so that messages name the command */
        return parts[i].run(argc - 1, argv + 1);
    }
    const char *close = der_suggest(argv[1], &parts[0].name, N_PARTS, sizeof parts[0]);
    if (close)
        return fail(EXIT_USAGE, "'der data' does not know '%s'; did you mean '%s'?", argv[1],
                    close);
    return fail(EXIT_USAGE, "'der data' does not know '%s', want get or check", argv[1]);
}

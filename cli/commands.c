/*
 * The commands and exit codes of the table, and how a command of it is run.
 */
#include "table.h"

#include "help.h"
#include "options.h"

#include <der/suggest.h>

#include <stdlib.h>
#include <string.h>

enum { COMMANDS_MAX = 64 };

const struct command *const commands[] = {
    &command_completion, &command_data,    &command_eval,    &command_export,
    &command_help,       &command_import,  &command_info,    &command_learn,
    &command_nets,       &command_predict, &command_presets, &command_report,
    &command_reproduce,  &command_train,   &command_version, NULL,
};

const struct exit_meaning exit_meanings[] = {
    {EXIT_OK, "success"},
    {EXIT_RUN, "the run failed, or was interrupted"},
    {EXIT_USAGE, "the command line was not understood"},
    {EXIT_DATA, "a file or data set is missing or malformed"},
    {EXIT_DEVICE, "the compute device is missing or failed"},
};
const int n_exit_meanings = (int)(sizeof exit_meanings / sizeof exit_meanings[0]);

const char *command_word(const struct command *command)
{
    const char *space = strrchr(command->name, ' ');
    return space ? space + 1 : command->name;
}

static const struct command *find(const struct command *const *list, const char *word)
{
    for (int i = 0; list && list[i]; i++)
        if (strcmp(command_word(list[i]), word) == 0)
            return list[i];
    return NULL;
}

const struct command *command_find(const char *name)
{
    return find(commands, name);
}

const struct command *command_part(const struct command *command, const char *word)
{
    return find(command->parts, word);
}

static const char *suggest(const struct command *const *list, const char *word)
{
    const char *words[COMMANDS_MAX];
    int n = 0;
    for (; list[n] && n < COMMANDS_MAX; n++)
        words[n] = command_word(list[n]);
    return der_suggest(word, words, n, sizeof *words);
}

enum exit_code fail_unknown_command(const char *name)
{
    const char *close = suggest(commands, name);
    if (close)
        return fail(EXIT_USAGE, "unknown command '%s'; did you mean '%s'?", name, close);
    return fail(EXIT_USAGE, "unknown command '%s'; 'der help' lists the commands", name);
}

enum exit_code fail_unknown_part(const struct command *command, const char *word)
{
    const char *close = suggest(command->parts, word);
    if (close)
        return fail(EXIT_USAGE, "'der %s' does not know '%s'; did you mean '%s'?", command->name,
                    word, close);
    return fail(EXIT_USAGE, "'der %s' does not know '%s'; see 'der help %s'", command->name, word,
                command->name);
}

static enum exit_code run_part(const struct command *command, int argc, char **argv)
{
    if (argc < 2)
        return fail(EXIT_USAGE, "what 'der %s' is to do is missing; see 'der help %s'",
                    command->name, command->name);
    if (options_is_help(argv[1])) {
        help_command(command);
        return EXIT_OK;
    }
    const struct command *part = command_part(command, argv[1]);
    if (!part)
        return fail_unknown_part(command, argv[1]);
    return command_run(part, argc - 1, argv + 1);
}

enum exit_code command_run(const struct command *command, int argc, char **argv)
{
    if (command->parts)
        return run_part(command, argc, argv);
    void *request = calloc(1, command->request_size + 1);
    if (!request)
        return fail_status(NULL, DER_NOMEM);
    if (command->defaults)
        memcpy(request, command->defaults, command->request_size);
    bool wants_help;
    enum exit_code code = options_parse(command, argc, argv, request, &wants_help);
    if (code == EXIT_OK && wants_help)
        help_command(command);
    else if (code == EXIT_OK)
        code = command->run(request);
    free(request);
    return code;
}

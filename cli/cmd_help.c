/*
 * `der help`: the commands, one command, the settings; or the whole manual.
 */
#include "help.h"
#include "manual.h"
#include "options.h"

#include <string.h>

/* What the command line fills in. */
struct request {
    struct option_words words;
    const char *manual;
};

static const struct option options[] = {
    {.name = "COMMAND",
     .type = OPTION_WORDS,
     .kind = KIND_COMMAND,
     .help = "a command, such as `train` or `data get`; or `settings`",
     .at = AT(words)},
    {.name = "manual",
     .kind = KIND_FOLDER,
     .argument = "DIR",
     .help = "write the pages of the manual to DIR",
     .more = "They are those that are installed.",
     .at = AT(manual)},
};

static enum exit_code run(void *user)
{
    const struct request *request = user;
    char *const *words = request->words.word;
    int n = request->words.n;
    if (request->manual)
        return manual_write(request->manual);
    if (n == 1 && strcmp(words[0], "settings") == 0)
        return help_settings();
    if (n == 0) {
        help_overview();
        return EXIT_OK;
    }
    const struct command *command = command_find(words[0]);
    if (!command)
        return fail_unknown_command(words[0]);
    int used = 1;
    if (command->parts && n > used) {
        const struct command *part = command_part(command, words[used++]);
        if (!part)
            return fail_unknown_part(command, words[1]);
        command = part;
    }
    if (n > used)
        return fail(EXIT_USAGE, "unexpected argument '%s'; see 'der help help'", words[used]);
    help_command(command);
    return EXIT_OK;
}

const struct command command_help = {
    .name = "help",
    .usage = "[COMMAND]\nsettings\n--manual DIR",
    .summary = "list the commands, or describe one",
    .about =
        "Lists the commands and the exit codes; with a COMMAND, what it takes, as `der` COMMAND "
        "`--help` does; with `settings`, everything that `--set` can change.",
    TAKES(options),
    .run = run,
};

/*
 * `der completion`: the shells' scripts, and what they ask.
 */
#include "completion.h"
#include "options.h"
#include "shell_files.h"

#include <stdio.h>
#include <string.h>

/* What the command line fills in. */
struct request {
    const char *shell;
    struct option_words words;
};

static const char *const shells[] = {"bash", "zsh", "words", NULL};
enum { WORDS = 2 };

static const struct option options[] = {
    {.name = "SHELL",
     .type = OPTION_WORD,
     .choices = shells,
     .help = "`bash` or `zsh`: print the script; `words`: what the scripts ask",
     .required = true,
     .at = AT(shell)},
    {.name = "WORD",
     .type = OPTION_WORDS,
     .help = "of `words`: the command line up to the cursor, the program first",
     .at = AT(words)},
};

static void print_script(const char *shell)
{
    char name[16];
    (void)snprintf(name, sizeof name, "der.%s", shell);
    for (const struct shell_file *file = SHELL_FILES; file->name; file++)
        if (strcmp(file->name, name) == 0)
            (void)fwrite(file->data, 1, file->size, stdout);
}

static enum exit_code run(void *user)
{
    const struct request *r = user;
    int which = option_choose("SHELL", shells, r->shell);
    if (which < 0)
        return EXIT_USAGE;
    if (which == WORDS)
        return completion_print(r->words.word, r->words.n);
    if (r->words.n > 0)
        return fail(EXIT_USAGE, "unexpected argument '%s'; see 'der help completion'",
                    r->words.word[0]);
    print_script(r->shell);
    return EXIT_OK;
}

const struct command command_completion = {
    .name = "completion",
    .usage = "bash|zsh\nwords -- WORD...",
    .summary = "print the script that completes der's words in a shell",
    .about = "Prints a script with which bash or zsh completes commands, options and their values: "
             "presets, settings, "
             "back ends, networks, tables of the paper, files and folders. An installed copy has "
             "it where the shells "
             "look for it; without that, `source <(der completion bash)` in `~/.bashrc`, or "
             "`source <(der completion "
             "zsh)` behind `compinit` in `~/.zshrc`, will do.\n"
             "`der completion words --` WORD... is what the scripts ask: what may the last word "
             "be? The first line of "
             "the answer says which names of the file system will do besides (`words`: none, "
             "`files` or `folders`), each "
             "further line is a word, a tab and its meaning. A word that ends in = or : goes on "
             "without a space.",
    TAKES(options),
    .run = run,
};

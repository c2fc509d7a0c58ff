#include "manual.h"

#include "options.h"
#include "roff.h"

#include <der/settings.h>
#include <der/version.h>

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

static const char DESCRIPTION[] =
    "`der` trains image classifiers whose classes arrive over time, by the method of dynamically "
    "expandable representations. At every step the feature extractors it has are frozen, a new one "
    "is "
    "trained beside them and pruned to the channels that its learned masks keep, and the "
    "classifier is "
    "trained anew on a balanced set of new images and the few old ones that are kept.\n"
    "Every command has a page of its own, `der-train`(1) and so on; `der help` COMMAND, or `der` "
    "COMMAND `--help`, lists its options.";

static const char MESSAGES[] = "A failure is reported in one line on standard error that starts "
                               "with `der:`; what was mistyped "
                               "gets a suggestion. Progress goes to standard error too, results to "
                               "standard output; `--quiet` leaves "
                               "out everything but results, warnings and errors.";

static const struct {
    const char *name, *text;
} ENVIRONMENT[] = {
    {"DER_CACHE_DIR", "Folder for kernels that cuDNN compiles at run time, which takes seconds and "
                      "is then done only once for every shape of "
                      "a network, version and kind of GPU. Where it is not set, it is `der` in "
                      "`XDG_CACHE_HOME`, or else `~/.cache/der`; "
                      "where it is empty, nothing is kept. The folder has at most 2000 files and "
                      "256 MB, is safe to share between "
                      "programs that run at once, and may be deleted at any time. Results do not "
                      "depend on it. What is in it is run on the "
                      "GPU, so nobody else should be able to write there."},
    {"XDG_CACHE_HOME", "See `DER_CACHE_DIR`."},
    {"NO_COLOR",
     "If it is not empty, nothing is coloured. Colour is used on terminals alone, and never "
     "where `TERM` is `dumb`."},
    {"https_proxy, http_proxy, no_proxy", "Proxies of `der data get`."},
    {"OMP_WAIT_POLICY, GOMP_SPINCOUNT", "How compute threads wait for each other. Where neither is "
                                        "set, they spin for a short time only."},
};

/* Each is a sentence and the lines that are typed; a test runs them. */
static const struct {
    const char *text, *lines;
} EXAMPLES[] = {
    {"A protocol of the paper on CIFAR-100, interrupted and resumed, and a page of it:",
     "der data get cifar100 CIFAR\n"
     "der train --preset cifar100-b0-10 --data CIFAR --out run\n"
     "der train --out run --resume\n"
     "der report run -o report.html\n"},
    {"A model of one's own pictures, one folder a class, and what it says of a picture:",
     "der learn things.safetensors --new photos\n"
     "der predict things.safetensors picture.jpg --top 3\n"},
};

const char *manual_name(const struct command *command, char name[PAGE_NAME_MAX])
{
    (void)snprintf(name, PAGE_NAME_MAX, "der%s%s", command ? "-" : "",
                   command ? command->name : "");
    for (char *c = name; *c; c++)
        if (*c == ' ')
            *c = '-';
    return name;
}

/* What is typed has minus signs: "der\\-train". */
static void print_typed(FILE *file, const char *text)
{
    for (const char *c = text; *c; c++)
        (void)(*c == '-' ? fputs("\\-", file) : fputc(*c, file));
}

static void print_name(FILE *file, const struct command *command)
{
    char name[PAGE_NAME_MAX];
    print_typed(file, manual_name(command, name));
}

/* ---- sections that all pages have -------------------------------------------------------------------- */

static void print_head(FILE *file, const struct command *command, const char *summary)
{
    char name[PAGE_NAME_MAX];
    (void)manual_name(command, name);
    (void)fputs(".\\\" Written by `der help --manual` from the program's table; do not edit.\n",
                file);
    (void)fputs(".TH ", file);
    for (const char *c = name; *c; c++)
        (void)fputc(toupper((unsigned char)*c), file);
    fprintf(file, " 1 \"\" \"der %s\" \"User Commands\"\n.SH NAME\n", der_version());
    print_name(file, command);
    (void)fputs(" \\- ", file);
    roff_text(file, summary);
}

/* A tag is written; what belongs to it follows. */
static void print_tagged(FILE *file, const char *tag, const char *text)
{
    (void)fputs(".TP\n", file);
    roff_piece(file, 'B', tag, strlen(tag));
    (void)fputc('\n', file);
    roff_sentence(file, text);
}

static void print_exit_status(FILE *file)
{
    (void)fputs(".SH EXIT STATUS\n", file);
    for (int i = 0; i < n_exit_meanings; i++) {
        char code[16];
        (void)snprintf(code, sizeof code, "%d", (int)exit_meanings[i].code);
        print_tagged(file, code, exit_meanings[i].text);
    }
}

static void print_synopsis(FILE *file, const struct command *command)
{
    const char *line = command->usage;
    (void)fputs(".SH SYNOPSIS\n", file);
    for (;;) {
        size_t length = strcspn(line, "\n");
        fprintf(file, "\\fBder %s\\fR%s", command->name, length > 0 ? " " : "");
        roff_usage(file, line, length);
        (void)fputc('\n', file);
        if (!line[length])
            return;
        (void)fputs(".br\n", file);
        line += length + 1;
    }
}

/* ---- a command --------------------------------------------------------------------------------------- */

static void print_option(FILE *file, const struct option *option)
{
    char text[OPTION_TEXT_MAX];
    const char *argument = option_argument(option, text);
    (void)fputs(".TP\n", file);
    if (option->letter)
        fprintf(file, "\\fB\\-%c\\fR, ", option->letter);
    char name[OPTION_TEXT_MAX];
    (void)snprintf(name, sizeof name, "%s%s", option_is_word(option) ? "" : "--", option->name);
    roff_piece(file, option_is_word(option) ? 'I' : 'B', name, strlen(name));
    if (argument[0]) {
        (void)fputc(' ', file);
        roff_piece(file, 'I', argument, strlen(argument));
    }
    (void)fputc('\n', file);
    roff_sentence(file, option->help);
    if (option->more)
        roff_text(file, option->more);
}

static void print_parts(FILE *file, const struct command *command)
{
    (void)fputs(".SH COMMANDS\n", file);
    for (int i = 0; command->parts[i]; i++)
        print_tagged(file, command->parts[i]->name, command->parts[i]->summary);
}

/* A page, as a line of macros. */
static void print_reference(FILE *file, const struct command *command, const char *behind)
{
    (void)fputs(".BR ", file);
    print_name(file, command);
    fprintf(file, " (1)%s\n", behind);
}

/* The program, the command above and those below. */
static void print_see_also(FILE *file, const struct command *command)
{
    const struct command *above = NULL;
    for (int i = 0; commands[i]; i++)
        if (command_part(commands[i], command_word(command)) == command)
            above = commands[i];
    (void)fputs(".SH SEE ALSO\n", file);
    print_reference(file, NULL, above || command->parts ? "," : "");
    if (above)
        print_reference(file, above, "");
    for (int i = 0; command->parts && command->parts[i]; i++)
        print_reference(file, command->parts[i], command->parts[i + 1] ? "," : "");
}

static enum der_status print_presets(FILE *file, struct der_ctx *ctx)
{
    struct der_preset_info info;
    (void)fputs(".SH PRESETS\n", file);
    for (int i = 0; i < der_preset_count(); i++) {
        enum der_status status = der_preset_describe(ctx, i, &info);
        if (status != DER_OK)
            return status;
        print_tagged(file, info.name, info.summary);
    }
    return DER_OK;
}

static enum der_status print_settings(FILE *file, struct der_ctx *ctx)
{
    struct der_setting_info info;
    (void)fputs(".SH SETTINGS\n", file);
    for (int i = 0; i < der_setting_count(); i++) {
        enum der_status status = der_setting_describe(ctx, i, &info);
        if (status != DER_OK)
            return status;
        char takes[sizeof info.allowed + sizeof "it takes "];
        (void)snprintf(takes, sizeof takes, "it takes %s", info.allowed);
        print_tagged(file, info.key, info.help);
        roff_sentence(file, takes);
        if (info.fixed_by_preset)
            roff_text(file, "Only the preset `custom` leaves it free.");
    }
    return DER_OK;
}

static enum der_status print_lists(FILE *file, const struct command *command)
{
    struct der_ctx *ctx;
    if (!command->lists_settings)
        return DER_OK;
    enum der_status status = der_ctx_new(NULL, &ctx);
    if (status != DER_OK)
        return status;
    status = print_presets(file, ctx);
    if (status == DER_OK)
        status = print_settings(file, ctx);
    der_ctx_free(ctx);
    return status;
}

static enum der_status print_command(FILE *file, const struct command *command)
{
    print_head(file, command, command->summary);
    print_synopsis(file, command);
    (void)fputs(".SH DESCRIPTION\n", file);
    if (command->about)
        roff_text(file, command->about);
    else
        roff_sentence(file, command->summary);
    if (command->parts)
        print_parts(file, command);
    if (command->n_options > 0)
        (void)fputs(".SH OPTIONS\n", file);
    for (int i = 0; i < command->n_options; i++)
        print_option(file, &command->options[i]);
    enum der_status status = print_lists(file, command);
    print_exit_status(file);
    print_see_also(file, command);
    return status;
}

/* ---- the program ------------------------------------------------------------------------------------- */

/* A line of the list of commands, and those of its parts. */
static void print_command_entry(FILE *file, const struct command *command)
{
    if (!command->parts) {
        (void)fputs(".TP\n", file);
        print_reference(file, command, "");
        roff_sentence(file, command->summary);
    }
    for (int i = 0; command->parts && command->parts[i]; i++)
        print_command_entry(file, command->parts[i]);
}

static void print_examples(FILE *file)
{
    (void)fputs(".SH EXAMPLES\n", file);
    for (size_t i = 0; i < sizeof EXAMPLES / sizeof EXAMPLES[0]; i++) {
        if (i > 0)
            (void)fputs(".PP\n", file);
        roff_text(file, EXAMPLES[i].text);
        (void)fputs(".PP\n.RS\n.EX\n", file);
        print_typed(file, EXAMPLES[i].lines);
        (void)fputs(".EE\n.RE\n", file);
    }
}

static enum der_status print_program(FILE *file)
{
    print_head(file, NULL, "class-incremental learning");
    (void)fputs(".SH SYNOPSIS\n\\fBder\\fR \\fICOMMAND\\fR [\\fIARGUMENTS\\fR]\n.br\n"
                "\\fBder\\fR {\\fB\\-\\-help\\fR|\\fB\\-\\-version\\fR}\n.SH DESCRIPTION\n",
                file);
    roff_text(file, DESCRIPTION);
    (void)fputs(".SH COMMANDS\n", file);
    for (int i = 0; commands[i]; i++)
        print_command_entry(file, commands[i]);
    (void)fputs(".SH OPTIONS\n.TP\n\\fB\\-\\-help\\fR, \\fB\\-h\\fR\n", file);
    roff_text(file, "The same as the command `help`; behind a command, its help.");
    (void)fputs(".TP\n\\fB\\-\\-version\\fR\n", file);
    roff_text(file, "The same as the command `version`.");
    print_examples(file);
    print_exit_status(file);
    (void)fputs(".SH DIAGNOSTICS\n", file);
    roff_text(file, MESSAGES);
    (void)fputs(".SH ENVIRONMENT\n", file);
    for (size_t i = 0; i < sizeof ENVIRONMENT / sizeof ENVIRONMENT[0]; i++) {
        fprintf(file, ".TP\n\\fB%s\\fR\n", ENVIRONMENT[i].name);
        roff_text(file, ENVIRONMENT[i].text);
    }
    return DER_OK;
}

/* ---- files ------------------------------------------------------------------------------------------- */

static enum exit_code write_page(const char *folder, const struct command *command)
{
    enum { PATH_MAX_LENGTH = 4096 };
    char name[PAGE_NAME_MAX];
    char path[PATH_MAX_LENGTH];
    int length = snprintf(path, sizeof path, "%s/%s.1", folder, manual_name(command, name));
    FILE *file = length < (int)sizeof path ? fopen(path, "w") : NULL;
    if (!file)
        return fail(EXIT_DATA, "cannot write %s/%s.1: %s", folder, name, strerror(errno));
    enum der_status status = command ? print_command(file, command) : print_program(file);
    bool is_written = !ferror(file);
    if (fclose(file) != 0 || !is_written)
        return fail(EXIT_DATA, "cannot write %s: %s", path, strerror(errno));
    return status == DER_OK ? EXIT_OK : fail_status(NULL, status);
}

static enum exit_code write_pages(const char *folder, const struct command *const *list)
{
    enum exit_code code = EXIT_OK;
    for (int i = 0; list && list[i] && code == EXIT_OK; i++) {
        code = write_page(folder, list[i]);
        if (code == EXIT_OK)
            code = write_pages(folder, list[i]->parts);
    }
    return code;
}

enum exit_code manual_write(const char *folder)
{
    enum exit_code code = write_page(folder, NULL);
    return code == EXIT_OK ? write_pages(folder, commands) : code;
}

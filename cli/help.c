#include "help.h"

#include "manual.h"
#include "options.h"
#include "style.h"

#include <der/settings.h>

#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum { FLAG_COLUMN = 24 };

void help_text(const char *text)
{
    for (; *text; text++)
        (void)putchar(*text == '`' ? '\'' : *text);
}

/* A summary as a sentence. */
static void print_sentence(const char *text)
{
    (void)putchar(toupper((unsigned char)text[0]));
    help_text(text + 1);
    printf(".\n");
}

static void print_commands(const struct command *const *list)
{
    for (int i = 0; list[i]; i++)
        printf("  %-11s %s\n", command_word(list[i]), list[i]->summary);
}

void help_overview(void)
{
    style_heading("usage:");
    printf(" der COMMAND [ARGUMENTS]\n"
           "       der --help | --version\n"
           "\n"
           "Class-incremental learning: train a classifier whose classes arrive over time.\n"
           "\n");
    style_heading("Commands:\n");
    print_commands(commands);
    printf("\n'der help COMMAND' describes one, 'der help settings' lists what --set takes.\n\n");
    style_heading("Exit status:\n");
    for (int i = 0; i < n_exit_meanings; i++)
        printf("  %d  %s\n", (int)exit_meanings[i].code, exit_meanings[i].text);
}

static void print_usage(const struct command *command)
{
    const char *line = command->usage;
    style_heading("usage:");
    for (;;) {
        size_t length = strcspn(line, "\n");
        printf(" der %s%s%.*s\n", command->name, length > 0 ? " " : "", (int)length, line);
        if (!line[length])
            return;
        line += length + 1;
        printf("      ");
    }
}

/* "-o, --out FILE"; a word is its placeholder. */
static int print_name(const struct option *option)
{
    char text[OPTION_TEXT_MAX];
    const char *argument = option_argument(option, text);
    int width = 0;
    if (option->letter)
        width += printf("-%c, ", option->letter);
    width += printf("%s%s%s%s", option_is_word(option) ? "" : "--", option->name,
                    argument[0] ? " " : "", argument);
    return width;
}

static void print_option(const struct option *option)
{
    printf("  ");
    int width = print_name(option);
    if (width > FLAG_COLUMN)
        printf("\n  %*s ", FLAG_COLUMN, "");
    else
        printf("%*s ", FLAG_COLUMN - width, "");
    help_text(option->help);
    printf("\n");
}

void help_command(const struct command *command)
{
    print_usage(command);
    printf("\n");
    print_sentence(command->summary);
    if (command->parts || command->n_options > 0)
        printf("\n");
    if (command->parts) {
        print_commands(command->parts);
        printf("\n'der help %s %s' describes one of them.\n", command->name,
               command_word(command->parts[0]));
    }
    for (int i = 0; i < command->n_options; i++)
        print_option(&command->options[i]);
    char page[PAGE_NAME_MAX];
    printf("\n'man %s' says more.\n", manual_name(command, page));
}

enum exit_code help_settings(void)
{
    struct der_ctx *ctx;
    enum der_status status = der_ctx_new(NULL, &ctx);
    if (status != DER_OK)
        return fail_status(NULL, status);
    printf(
        "Settings of a run, for '--set KEY=VALUE'; 'der presets NAME' shows their values.\n"
        "Those with a star belong to the protocol: only the preset 'custom' leaves them free.\n\n");
    for (int i = 0; i < der_setting_count() && status == DER_OK; i++) {
        struct der_setting_info info;
        status = der_setting_describe(ctx, i, &info);
        if (status == DER_OK)
            printf("%c %-22s %s\n  %22s takes %s\n", info.fixed_by_preset ? '*' : ' ', info.key,
                   info.help, "", info.allowed);
    }
    enum exit_code code = status == DER_OK ? EXIT_OK : fail_status(ctx, status);
    der_ctx_free(ctx);
    return code;
}

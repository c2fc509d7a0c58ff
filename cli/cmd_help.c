/*
 * `der help`: the list of commands, or one command. All of the text comes from the table.
 */
#include "cli.h"

#include <stdio.h>

static void print_overview(void)
{
    printf("usage: der COMMAND [ARGUMENTS]\n"
           "       der --help | --version\n"
           "\n"
           "Class-incremental learning: train a classifier whose classes arrive over time.\n"
           "\n"
           "Commands:\n");
    for (int i = 0; i < n_commands; i++)
        printf("  %-10s %s\n", commands[i].name, commands[i].summary);
    printf("\n"
           "Exit status: 0 success, 1 the run failed, 2 wrong usage, 3 bad data,\n"
           "4 device missing or failed.\n");
}

enum exit_code cmd_help(int argc, char **argv)
{
    if (argc > 2)
        return fail_unexpected_argument("help", argv[2]);
    if (argc < 2) {
        print_overview();
        return EXIT_OK;
    }

    const struct command *command = command_find(argv[1]);
    if (!command)
        return fail_unknown_command(argv[1]);
    printf("usage: der %s%s%s\n\n", command->name, command->usage[0] ? " " : "", command->usage);
    printf("%s\n%s", command->summary, command->details);
    return EXIT_OK;
}

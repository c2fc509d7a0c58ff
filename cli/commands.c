/*
 * The table of commands, and finding one by a right or nearly right name.
 */
#include "cli.h"

#include <stddef.h>
#include <string.h>

const struct command commands[] = {
    {
        .name = "help",
        .usage = "[COMMAND]",
        .summary = "list the commands, or describe one",
        .details = "",
        .run = cmd_help,
    },
    {
        .name = "nets",
        .usage = "",
        .summary = "list the networks that can serve as extractors",
        .details = "",
        .run = cmd_nets,
    },
    {
        .name = "train",
        .usage = "--data DIR [OPTIONS]",
        .summary = "train a network on a data set and test it",
        .details = "\n'der train --help' lists the options.\n",
        .run = cmd_train,
    },
    {
        .name = "version",
        .usage = "",
        .summary = "show the version and what is built in",
        .details = "",
        .run = cmd_version,
    },
};

const int n_commands = (int)(sizeof commands / sizeof commands[0]);

static int min3(int a, int b, int c)
{
    int least = a < b ? a : b;
    return least < c ? least : c;
}

/* Levenshtein distance, row by row:
 *   d(i, j) = min(d(i-1, j) + 1, d(i, j-1) + 1, d(i-1, j-1) + [a_i != b_j]) */
int edit_distance(const char *a, const char *b)
{
    size_t n_a = strlen(a);
    size_t n_b = strlen(b);
    if (n_a > NAME_LENGTH_MAX || n_b > NAME_LENGTH_MAX)
        return NAME_LENGTH_MAX;

    int row[NAME_LENGTH_MAX + 1];
    for (size_t j = 0; j <= n_b; j++)
        row[j] = (int)j;
    for (size_t i = 1; i <= n_a; i++) {
        int diagonal = row[0];
        row[0] = (int)i;
        for (size_t j = 1; j <= n_b; j++) {
            int above = row[j];
            row[j] = min3(above + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1]));
            diagonal = above;
        }
    }
    return row[n_b];
}

const struct command *command_find(const char *name)
{
    for (int i = 0; i < n_commands; i++)
        if (strcmp(commands[i].name, name) == 0)
            return &commands[i];
    return NULL;
}

const char *command_suggest(const char *name)
{
    const char *best = NULL;
    int best_distance = SUGGEST_DISTANCE + 1;
    for (int i = 0; i < n_commands; i++) {
        int distance = edit_distance(name, commands[i].name);
        if (distance < best_distance) {
            best_distance = distance;
            best = commands[i].name;
        }
    }
    return best;
}

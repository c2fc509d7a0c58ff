/*
 * The table of commands, and finding one by a right or nearly right name.
 */
#include "cli.h"

#include <der/suggest.h>

#include <stddef.h>
#include <string.h>

const struct command commands[] = {
    {
        .name = "data",
        .usage = "get NAME DIR | get --list | check DIR [OPTIONS]",
        .summary = "download a data set, or look for what is wrong with one",
        .details = "\n'der data get --help' and 'der data check --help' list the options.\n",
        .run = cmd_data,
    },
    {
        .name = "eval",
        .usage = "MODEL --data DIR [OPTIONS]",
        .summary = "test a model on a data set",
        .details = "\n'der eval --help' lists the options.\n",
        .run = cmd_eval,
    },
    {
        .name = "export",
        .usage = "MODEL --onnx FILE [OPTIONS]",
        .summary = "write a model for other programs: ONNX",
        .details = "\n'der export --help' lists the options.\n",
        .run = cmd_export,
    },
    {
        .name = "help",
        .usage = "[COMMAND]",
        .summary = "list the commands, or describe one",
        .details = "",
        .run = cmd_help,
    },
    {
        .name = "import",
        .usage = "FILE [OPTIONS]",
        .summary = "check weights that others trained, to begin with",
        .details = "\n'der import --help' lists the options.\n",
        .run = cmd_import,
    },
    {
        .name = "info",
        .usage = "MODEL|RUN|--preset NAME [OPTIONS]",
        .summary = "describe a model, a run or a preset",
        .details = "\n'der info --help' lists the options.\n",
        .run = cmd_info,
    },
    {
        .name = "learn",
        .usage = "MODEL --new DIR [OPTIONS]",
        .summary = "add the classes of an image folder to a model",
        .details = "\n'der learn --help' lists the options.\n",
        .run = cmd_learn,
    },
    {
        .name = "nets",
        .usage = "",
        .summary = "list the networks that can serve as extractors",
        .details = "",
        .run = cmd_nets,
    },
    {
        .name = "predict",
        .usage = "MODEL IMAGE|DIR|-... [OPTIONS]",
        .summary = "name the classes of pictures",
        .details = "\n'der predict --help' lists the options.\n",
        .run = cmd_predict,
    },
    {
        .name = "presets",
        .usage = "[NAME] [OPTIONS]",
        .summary = "list the presets, or every setting of one",
        .details = "\n'der presets --help' lists the options.\n",
        .run = cmd_presets,
    },
    {
        .name = "report",
        .usage = "RUN... -o FILE [OPTIONS]",
        .summary = "show what runs came to: one page, or a table",
        .details = "\n'der report --help' lists the options.\n",
        .run = cmd_report,
    },
    {
        .name = "reproduce",
        .usage = "TABLE --data DIR --out DIR [OPTIONS]",
        .summary = "run a table of the paper again, beside its numbers",
        .details = "\n'der reproduce --help' lists the options.\n",
        .run = cmd_reproduce,
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

const struct command *command_find(const char *name)
{
    for (int i = 0; i < n_commands; i++)
        if (strcmp(commands[i].name, name) == 0)
            return &commands[i];
    return NULL;
}

const char *command_suggest(const char *name)
{
    return der_suggest(name, &commands[0].name, n_commands, sizeof commands[0]);
}

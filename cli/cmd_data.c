/*
 * `der data`: data sets before training.
 */
#include "table.h"

static const struct command *const parts[] = {&command_data_get, &command_data_check, NULL};

const struct command command_data = {
    .name = "data",
    .usage = "get NAME DIR [OPTIONS]\nget --list\ncheck DIR [OPTIONS]",
    .summary = "download a data set, or look for what is wrong with one",
    .parts = parts,
};

/*
 * The parts of `der data`. Each gets its own arguments behind argv[0], which is "data".
 */
#ifndef CLI_CMD_DATA_H
#define CLI_CMD_DATA_H

#include "cli.h"

enum exit_code data_get(int argc, char **argv);
enum exit_code data_check(int argc, char **argv);

#endif

/*
 * Files that a command is to write must not be those that it reads.
 */
#ifndef CLI_OUTPUTS_H
#define CLI_OUTPUTS_H

#include "cli.h"

/* Fails where `output` is the file `input`, or a file of the run in the folder `input`. `option` is what named it; an
 * output of NULL is fine. */
enum exit_code outputs_spare(const char *option, const char *output, const char *input);

#endif

/*
 * What `der help` prints, all of it from the table.
 */
#ifndef CLI_HELP_H
#define CLI_HELP_H

#include "table.h"

/* The list of commands. */
void help_overview(void);

/* One command: `der help COMMAND` and `der COMMAND --help`. */
void help_command(const struct command *command);

/* All settings: meaning, and what they take. */
enum exit_code help_settings(void);

/* A text of the table without its marks, for a terminal: what lay between backticks is quoted. */
void help_text(const char *text);

#endif

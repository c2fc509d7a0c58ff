/*
 * The manual, written from the table: der(1) and a page for every command.
 */
#ifndef CLI_MANUAL_H
#define CLI_MANUAL_H

#include "table.h"

enum { PAGE_NAME_MAX = 64 };

/* The name of a command's page, "der-data-get"; that of the program where `command` is NULL. */
const char *manual_name(const struct command *command, char name[PAGE_NAME_MAX]);

/* Writes all pages to files der.1, der-train.1 ... of a folder, which must be there. */
enum exit_code manual_write(const char *folder);

#endif

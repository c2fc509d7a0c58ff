/*
 * The scripts of cli/shell, which the build puts into the program (cmake/Embed.cmake).
 */
#ifndef CLI_SHELL_FILES_H
#define CLI_SHELL_FILES_H

#include <stddef.h>

/* One zero byte follows the data. */
struct shell_file {
    const char *name;
    const unsigned char *data;
    size_t size;
};
extern const struct shell_file SHELL_FILES[]; /* ends with a NULL name */

#endif

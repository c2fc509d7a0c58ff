/*
 * What may come next on a command line, for the shells' completion (cli/shell).
 */
#ifndef CLI_COMPLETION_H
#define CLI_COMPLETION_H

#include "table.h"

/* Prints what the last of n words, of which the first is the program, may be completed to. The first line says
 * which names of the file system will do besides: "words" (none), "files" or "folders". Each further line is a whole
 * word, a tab and what it stands for. A word that ends in = or : wants a value right behind it. */
enum exit_code completion_print(char *const *words, int n);

#endif

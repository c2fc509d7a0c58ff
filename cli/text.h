/*
 * Text of others on a terminal or in a table: names of classes and files may hold anything.
 */
#ifndef CLI_TEXT_H
#define CLI_TEXT_H

#include <stdio.h>

/* Writes the text with control characters, and bytes that are no UTF-8, as \n, \t, \xNN and so on; a backslash
 * becomes two. What a terminal gets thus does nothing to it, and a table keeps its lines and columns. */
void text_print(FILE *file, const char *text);

#endif

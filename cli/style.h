/*
 * Colour and emphasis, on terminals that want it and nowhere else.
 */
#ifndef CLI_STYLE_H
#define CLI_STYLE_H

#include <stdbool.h>
#include <stdio.h>

enum style { STYLE_HEADING, STYLE_ERROR, STYLE_WARNING };

/* A terminal whose lines can be written anew, for progress: not a file, a pipe, or TERM=dumb. */
bool style_is_terminal(FILE *file);

/* What is written between the two is emphasised, if `file` is a terminal and the environment has no NO_COLOR. */
void style_begin(FILE *file, enum style style);
void style_end(FILE *file);

/* A line of headings on stdout, its newline included in the format. */
void style_heading(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif

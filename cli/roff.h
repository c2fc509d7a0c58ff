/*
 * Texts of the table as a manual page has them (roff with the macros of man).
 */
#ifndef CLI_ROFF_H
#define CLI_ROFF_H

#include <stdio.h>

/* Paragraphs, each of short lines that end where a sentence does; what lies between backticks is bold. */
void roff_text(FILE *file, const char *text);

/* The same as a sentence: a capital letter first, a full stop last. */
void roff_sentence(FILE *file, const char *text);

/* A piece of a line as it is, in one font: 'B' (bold), 'I' (italic) or 'R'. */
void roff_piece(FILE *file, char font, const char *text, size_t length);

/* What a command takes: "MODEL --data DIR [OPTIONS]"; placeholders are italic, what is typed is bold. */
void roff_usage(FILE *file, const char *usage, size_t length);

#endif

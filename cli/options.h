/*
 * Flags and words of a command, from one table: parsing, help, and the man page's check.
 */
#ifndef CLI_OPTIONS_H
#define CLI_OPTIONS_H

#include "cli.h"

#include <stdbool.h>

enum option_type {
    OPTION_TEXT,
    OPTION_INT,
    OPTION_NUMBER,
    OPTION_FLAG,  /* --name alone */
    OPTION_TEXTS, /* may be given several times */
    OPTION_WORD,  /* no flag: a word by its place; rows are filled in their order */
    OPTION_WORDS, /* all words that are left */
};

enum { OPTION_TEXTS_MAX = 128 };

/* What OPTION_TEXTS collects, in the order of the command line. */
struct option_texts {
    const char *text[OPTION_TEXTS_MAX];
    int n;
};

/* What OPTION_WORDS collects: a part of the command line, moved together. Zero-initialise. */
struct option_words {
    char **word;
    int n;
};

struct option {
    const char *name; /* without the two hyphens; of a word: its placeholder */
    enum option_type type;
    const char *argument; /* placeholder in the help: DIR, N; "" for flags and words */
    const char *help;     /* one line */
    void *target;         /* const char **, int *, double *, bool *, struct option_texts *,
                           * struct option_words * */
};

/* Reads "--name value", "--name=value", "--name" of flags, and words; "-o" is short for "--out", and behind
 * "--" there are only words. Anything else, an unknown flag, a
 * missing or malformed value is reported and EXIT_USAGE returned; EXIT_OK otherwise. A word's target
 * must be NULL before. */
enum exit_code options_parse(const struct option *options, int n, int argc, char **argv);

/* The table as help text. */
void options_print(const struct option *options, int n);

#endif

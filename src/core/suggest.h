/*
 * "Did you mean ...?": the word of a table that a mistyped word is closest to.
 */
#ifndef CORE_SUGGEST_H
#define CORE_SUGGEST_H

#include <stddef.h>

enum {
    SUGGEST_WORD_MAX = 32, /* longer words resemble nothing */
    SUGGEST_DISTANCE = 2,  /* edits that still count as a typing mistake */
    SUGGEST_SHORT = 4,     /* letters of a word in which only one does */
};

/* Letters to insert, delete or replace, and neighbours to swap (Levenshtein, Damerau). SUGGEST_WORD_MAX + 1
 * when one of the words is longer than SUGGEST_WORD_MAX. */
int suggest_distance(const char *a, const char *b);

/* The closest word within SUGGEST_DISTANCE, the first of equals; NULL when none is close or nothing
 * of the word would be left. The words are members of a table: `first` points to that of row 0, the
 * next lies `stride` bytes behind it. */
const char *suggest_word(const char *word, const char *const *first, int n, size_t stride);

#endif

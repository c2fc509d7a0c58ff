/*
 * The words that a kind of value can be: lists of the library, asked when they are needed.
 */
#ifndef CLI_WORDS_H
#define CLI_WORDS_H

#include "table.h"

/* Is told every word, and what it stands for ("" where nothing is said about it). Both live as long as the call. */
typedef void words_visit(void *user, const char *word, const char *about);

/* All words of a kind; none where a kind has no list. `first` is the first word of the command line, whose rows
 * KIND_ROW has; of KIND_SETTING the keys are told. */
void words_of_kind(struct der_ctx *ctx, enum value_kind kind, const char *first, words_visit *visit,
                   void *user);

#endif

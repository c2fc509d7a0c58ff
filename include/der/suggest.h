/*
 * "Did you mean ...?" for programs that take words from people, as the library does for its own.
 */
#ifndef DER_SUGGEST_H
#define DER_SUGGEST_H

#include <der/export.h>
#include <stddef.h>

/* The word closest to a mistyped one; NULL when none is close. The words are members of a table of n
 * rows: `first` points to that of row 0, the next lies `stride` bytes behind it
 * (&table[0].name, sizeof table[0]). */
DER_API const char *der_suggest(const char *word, const char *const *first, int n, size_t stride);

#endif

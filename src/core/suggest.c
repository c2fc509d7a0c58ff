#include "core/suggest.h"

#include <string.h>

static int min3(int a, int b, int c)
{
    int least = a < b ? a : b;
    return least < c ? least : c;
}

/* Row by row: d(i, j) = min(d(i-1, j) + 1, d(i, j-1) + 1, d(i-1, j-1) + [a_i != b_j]) */
int suggest_distance(const char *a, const char *b)
{
    size_t n_a = strlen(a);
    size_t n_b = strlen(b);
    if (n_a > SUGGEST_WORD_MAX || n_b > SUGGEST_WORD_MAX)
        return SUGGEST_WORD_MAX + 1;

    int row[SUGGEST_WORD_MAX + 1];
    for (size_t j = 0; j <= n_b; j++)
        row[j] = (int)j;
    for (size_t i = 1; i <= n_a; i++) {
        int diagonal = row[0];
        row[0] = (int)i;
        for (size_t j = 1; j <= n_b; j++) {
            int above = row[j];
            row[j] = min3(above + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1]));
            diagonal = above;
        }
    }
    return row[n_b];
}

const char *suggest_word(const char *word, const char *const *first, int n, size_t stride)
{
    const char *best = NULL;
    int length = (int)strnlen(word, SUGGEST_WORD_MAX);
    int best_distance = SUGGEST_DISTANCE + 1;
    if (best_distance > length)
        best_distance = length; /* "xy" resembles nothing by replacing both letters */
    for (int i = 0; i < n; i++) {
        const char *candidate =
            *(const char *const *)(const void *)((const char *)first + (size_t)i * stride);
        int distance = suggest_distance(word, candidate);
        if (distance < best_distance) {
            best_distance = distance;
            best = candidate;
        }
    }
    return best;
}

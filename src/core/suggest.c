#include "core/suggest.h"

#include <string.h>

static int min3(int a, int b, int c)
{
    int least = a < b ? a : b;
    return least < c ? least : c;
}

/* Row by row: d(i, j) = min(d(i-1, j) + 1, d(i, j-1) + 1, d(i-1, j-1) + [a_i != b_j]), and
 * d(i-2, j-2) + 1 where two neighbours have changed places, the commonest slip of all. */
int suggest_distance(const char *a, const char *b)
{
    size_t n_a = strlen(a);
    size_t n_b = strlen(b);
    if (n_a > SUGGEST_WORD_MAX || n_b > SUGGEST_WORD_MAX)
        return SUGGEST_WORD_MAX + 1;

    int rows[3][SUGGEST_WORD_MAX + 1]; /* i, i - 1, i - 2, in turns */
    for (size_t j = 0; j <= n_b; j++)
        rows[0][j] = (int)j;
    for (size_t i = 1; i <= n_a; i++) {
        int *row = rows[i % 3];
        const int *above = rows[(i + 2) % 3];
        const int *before = rows[(i + 1) % 3];
        row[0] = (int)i;
        for (size_t j = 1; j <= n_b; j++) {
            row[j] = min3(above[j] + 1, row[j - 1] + 1, above[j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                before[j - 2] + 1 < row[j])
                row[j] = before[j - 2] + 1;
        }
    }
    return rows[n_a % 3][n_b];
}

const char *suggest_word(const char *word, const char *const *first, int n, size_t stride)
{
    const char *best = NULL;
    int length = (int)strnlen(word, SUGGEST_WORD_MAX);
    /* Of a short word two changes leave too little: "fish" is not "bash", and "xy" resembles nothing. */
    int best_distance = length <= SUGGEST_SHORT ? 2 : SUGGEST_DISTANCE + 1;
    if (best_distance > length)
        best_distance = length;
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

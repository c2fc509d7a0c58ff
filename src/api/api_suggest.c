#include <der/suggest.h>

#include "core/suggest.h"

const char *der_suggest(const char *word, const char *const *first, int n, size_t stride)
{
    return suggest_word(word, first, n, stride);
}

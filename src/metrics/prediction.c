#include "metrics/prediction.h"

#include <string.h>

void prediction_confusion(const struct prediction *predictions, int64_t n, const int *group_of,
                          int n_groups, int64_t *counts)
{
    size_t side = (size_t)n_groups;
    memset(counts, 0, side * side * sizeof *counts);
    for (int64_t i = 0; i < n; i++) {
        size_t row = (size_t)group_of[predictions[i].label];
        counts[row * side + (size_t)group_of[predictions[i].guess]]++;
    }
}

int prediction_worst(const struct prediction *predictions, int64_t n, int most, int64_t *worst)
{
    int found = 0;
    for (int64_t i = 0; i < n; i++) {
        const struct prediction *p = &predictions[i];
        if (p->guess == p->label)
            continue;
        int at = found;
        while (at > 0 && predictions[worst[at - 1]].confidence < p->confidence)
            at--;
        if (at == most)
            continue;
        int moved = (found < most ? found : most - 1) - at;
        memmove(worst + at + 1, worst + at, (size_t)moved * sizeof *worst);
        worst[at] = i;
        found += found < most;
    }
    return found;
}

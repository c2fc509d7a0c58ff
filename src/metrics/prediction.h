/*
 * What a model took every test image for, and what follows from that: who is taken for whom, and which
 * mistakes it is surest of.
 */
#ifndef METRICS_PREDICTION_H
#define METRICS_PREDICTION_H

#include <stdint.h>

/* What a model says of one image. */
struct prediction {
    int64_t sample;   /* position in the split */
    int32_t label;    /* its class */
    int32_t guess;    /* the class with the largest logit, the first of several */
    float confidence; /* probability of that class: softmax of the logits over the temperature */
};

/* counts [n_groups][n_groups]: images of group i taken for group j, where group_of [classes] says to which
 * group a class belongs. */
void prediction_confusion(const struct prediction *predictions, int64_t n, const int *group_of,
                          int n_groups, int64_t *counts);

/* The mistakes with the highest confidence, highest first, of equal ones the earlier; places in `predictions`
 * go to worst [most]. Returns how many there are. */
int prediction_worst(const struct prediction *predictions, int64_t n, int most, int64_t *worst);

#endif

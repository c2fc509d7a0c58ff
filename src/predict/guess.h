/*
 * From a row of logits to the best classes and how sure the model is of them.
 */
#ifndef PREDICT_GUESS_H
#define PREDICT_GUESS_H

#include <der/model.h>

/* The `top` best of n finite logits, best first; of equal ones the lower label comes first, as OP_RANK has it. Where
 * there are fewer classes the rest of `out` [top] has label -1. Names are left to the caller, as "". Takes no memory. */
void guess_top(const float *logits, int n, double temperature, int top, struct der_guess *out);

#endif

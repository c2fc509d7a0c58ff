/*
 * The weight of the sparsity loss, steered towards a wanted size.
 *
 * lambda_s decides how small an extractor gets, but how small depends on the data, the step and the
 * schedule. With a target the weight is corrected before every epoch of the soft phase, so that the
 * size the masks stand for follows a geometric path from where it began to the target.
 */
#ifndef METHOD_PRESSURE_H
#define METHOD_PRESSURE_H

#include <stdint.h>

struct pressure {
    double lambda_s; /* weight to use now */
    double initial;  /* weight it began with */
    int64_t target;  /* wanted parameters; 0: the weight never changes */
    int64_t start;   /* parameters at the first update */
    double error;    /* log(size / planned size) at the latest update */
};

struct pressure pressure_new(double lambda_s, int64_t target);

/* Begins with the least weight there is, from where it rises as far as the path asks. Without a target it stays. */
void pressure_begin_low(struct pressure *pressure);

/* Before epoch `epoch` of `soft_epochs`: `kept` parameters would stay if the masks were hard now. */
void pressure_update(struct pressure *pressure, int64_t kept, int epoch, int soft_epochs);

#endif

/*
 * How long a prediction takes: the extractors of a learner as they are, the same number of unpruned ones, and
 * one unpruned network alone, for one image and for a batch.
 */
#ifndef EXPERIMENT_LATENCY_H
#define EXPERIMENT_LATENCY_H

#include "json/json.h"
#include "method/learner.h"

enum { LATENCY_BATCHES = 2 }; /* 1 and 128 images */

/* Milliseconds per image, medians. */
struct latency_report {
    double now[LATENCY_BATCHES];
    double unpruned[LATENCY_BATCHES];
    double single[LATENCY_BATCHES];
};

/* Times the three alternately. */
NODISCARD enum der_status latency_measure(const struct learner *learner,
                                          struct latency_report *out);

/* NULL when memory is short. */
cJSON *latency_to_json(const struct latency_report *report);

#endif

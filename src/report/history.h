/*
 * metrics.jsonl as the page and the CSV show it: every step with its numbers, the epochs as columns.
 *
 * The result is JSON of a known shape. What comes from the file is checked for type, range and length on its way
 * there, so nobody behind this has to; members that this version does not know are left out.
 */
#ifndef REPORT_HISTORY_H
#define REPORT_HISTORY_H

#include "json/json.h"

enum { HISTORY_MAX_LOSSES = 8, HISTORY_MAX_STAGES = 8 };

struct history {
    cJSON *steps; /* objects as in the file */
    cJSON *
        epochs; /* {"step": [], "stage": [], "epoch": [], ..., "stages": [names], "loss": {name: []}}; null where
                    * an epoch has no such number */
    int n_epochs;
    cJSON *end; /* the object; NULL: the run has not ended */
};

/* A number of a step, and what it may be. */
struct history_number {
    const char *key;
    double low, high;
};
extern const struct history_number HISTORY_STEP_NUMBERS[];
extern const int N_HISTORY_STEP_NUMBERS;

/* Numbers of `latency_ms`: LATENCY_GROUPS[i] / LATENCY_BATCHES_KEYS[j]. */
enum { HISTORY_LATENCY_MODELS = 3, HISTORY_LATENCY_BATCHES = 2 };
extern const char *const HISTORY_LATENCY_MODEL[HISTORY_LATENCY_MODELS];
extern const char *const HISTORY_LATENCY_BATCH[HISTORY_LATENCY_BATCHES];

/* Reads the whole lines of a text; a last line without newline is still being written. `n_classes` bounds what
 * belongs to classes. Free with history_fini, also after a failure. */
NODISCARD enum der_status history_read(struct der_ctx *ctx, const char *source, const char *text,
                                       size_t length, int n_classes, struct history *out);
void history_fini(struct history *history);

#endif

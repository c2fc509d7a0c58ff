/*
 * What a run folder tells: how far the run came, with which settings, and what it measured.
 *
 * Nothing in it is believed. A last line without its newline is what a killed process leaves and does
 * not count; anything else that is not as docs/FORMATS.md has it is refused with a sentence that
 * names the file and the line, and the numbers at the end must agree with those of the steps.
 */
#ifndef EXPERIMENT_RUN_READER_H
#define EXPERIMENT_RUN_READER_H

#include "config/config.h"
#include "method/learner.h"

enum run_progress {
    RUN_ABSENT,  /* there is no folder, or nothing in it yet */
    RUN_PARTIAL, /* begun, and not at the end of its protocol */
    RUN_DONE     /* all steps, and the record of the end */
};

/* What was not measured is NAN. */
struct run_outcome {
    enum run_progress state;

    /* config.json, unless the run is absent. */
    struct config config;
    char data_kind[CONFIG_NAME];       /* "cifar100", "synth" ... */
    int64_t train_images, test_images; /* of the whole set */
    char data_checksum[CONFIG_NAME];   /* tells sets with as many images apart */
    int n_classes;
    char precision[CONFIG_NAME]; /* "f32" ... */
    int max_steps;               /* it was to end after so many steps; 0: with the protocol */
    bool has_init;               /* it began with weights of others */

    /* metrics.jsonl: the steps so far, in their order. */
    int n_steps;
    double top1[LEARNER_MAX_STEPS], top5[LEARNER_MAX_STEPS]; /* per cent */
    double params[LEARNER_MAX_STEPS];                        /* of the extractors */

    /* The end, of a run that is done or that ended after max_steps; the latter stays RUN_PARTIAL. */
    bool has_ended;
    double avg_top1, last_top1, avg_top5, last_top5; /* per cent */
    double avg_params;
    double bwt, fwt, bound; /* per cent */
};

/* Steps that a run whose configuration has been read will have in the end. */
int run_steps(const struct run_outcome *run);

/* Reads the run in the folder `path`. A folder that holds something, but no run, is DER_FORMAT. */
NODISCARD enum der_status run_read(struct der_ctx *ctx, const char *path, struct run_outcome *out);

/* Its two parts, from memory; `source` opens the messages. run_read_metrics completes an outcome whose
 * configuration has been read: the state becomes RUN_PARTIAL or RUN_DONE. */
NODISCARD enum der_status run_read_config(struct der_ctx *ctx, const char *source, const char *text,
                                          size_t length, struct run_outcome *out);
NODISCARD enum der_status run_read_metrics(struct der_ctx *ctx, const char *source,
                                           const char *text, size_t length,
                                           struct run_outcome *out);

/* The number, from 1, of a recorded step (from 0). */
int run_step_number(const struct run_outcome *run, int index);

#endif

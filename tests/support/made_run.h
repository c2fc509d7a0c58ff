/*
 * Run folders made by hand: what a run with given accuracies would have written.
 */
#ifndef SUPPORT_MADE_RUN_H
#define SUPPORT_MADE_RUN_H

#include "config/config.h"
#include "support/scratch.h"

/* The first line of metrics.jsonl. */
#define MADE_RUN_EPOCH                                                                             \
    "{\"event\":\"epoch\",\"step\":1,\"stage\":\"representation\",\"epoch\":1,\"epochs\":1,"       \
    "\"lr\":0.5,\"loss\":{}}"

struct made_run {
    struct config config;
    int n_classes;
    int train_images, test_images;
    int n_steps;               /* recorded; more than the protocol has are written all the same */
    const double *top1;        /* [n_steps] */
    double params;             /* of one extractor; step t has t of them */
    double bwt, fwt;           /* NAN: not measured */
    double bound;              /* of the classifier; 0: not measured */
    bool is_partial;           /* no end */
    int max_steps;             /* in config.json */
    const char *data_checksum; /* NULL: "0" */
    const char *init;          /* weights it began with; NULL: none */
};

/* The text of its config.json and of its metrics.jsonl; caller frees with mem_free. */
char *made_run_config(struct der_ctx *ctx, const struct made_run *run);
char *made_run_metrics(struct der_ctx *ctx, const struct made_run *run);

/* Both files in a folder of the scratch folder. */
void made_run_write(struct der_ctx *ctx, struct scratch *scratch, const char *folder,
                    const struct made_run *run);

#endif

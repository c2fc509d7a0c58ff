/*
 * A DER step in small, as the methods will build it: frozen extractors writing side by side into one
 * feature matrix, one trained extractor with masks joined behind them, main and auxiliary loss,
 * sparsity, SGD. Tests of the whole engine run on it.
 */
#ifndef SUPPORT_RIG_H
#define SUPPORT_RIG_H

#include "model/extractor.h"

struct rig_options {
    const char *backend;
    enum precision precision;
    struct backend_tuning tuning;
    const char *network; /* as resnet_names */
    double width;        /* width factor */
    int batch, size;     /* images a batch, pixels a side */
    int n_frozen;        /* frozen extractors */
    bool masks;
    bool fuse;
    float lr; /* 0: RIG_LR */
};

#define RIG_LR 0.05F

enum { RIG_MAX_FROZEN = 64, RIG_CLASSES_PER_STEP = 3 };

struct rig {
    struct der_ctx *ctx;
    struct backend *be;
    struct rig_options options;
    struct extractor *frozen[RIG_MAX_FROZEN];
    int n_frozen;
    struct extractor *trained;
    struct param_set *heads; /* main, auxiliary */
    struct param_set *masks; /* NULL without masks */
    struct program *program;
    struct sequence *sequence;
    struct buffer *image, *features, *labels, *scalars, *losses;
    int64_t feature_dim; /* columns of the matrix */
    int n_classes;
};

/* Everything up to the first step; on failure nothing is left behind. */
NODISCARD enum der_status rig_open(struct der_ctx *ctx, const struct rig_options *options,
                                   struct rig **out);
void rig_close(struct rig *rig);

/* Fills the batch with numbers that depend on `step` only, runs one iteration, and reads the losses:
 * main, auxiliary, sparsity. */
NODISCARD enum der_status rig_step(struct rig *rig, int step, float losses[3]);

/* Checksum over all learnt parameters, statistics and masks: equal bytes, equal sums. */
NODISCARD enum der_status rig_checksum(struct rig *rig, uint64_t *sum);

#endif

/*
 * Plain supervised training: one extractor, one linear head, cross-entropy. The least that the training loop
 * can be tried on, by its tests and beside PyTorch (bench/curve_main.c).
 */
#ifndef SUPPORT_SUPERVISED_H
#define SUPPORT_SUPERVISED_H

#include "train/assembly.h"
#include "train/evaluate.h"

struct supervised_options {
    struct resnet_spec spec;
    int n_classes;
    float momentum, decay;
    uint64_t seed;
};

struct supervised {
    struct backend *be;
    struct supervised_options options;
    struct extractor *extractor;
    struct param_set *head; /* "classifier.weight" [n_classes, features], no bias */
    struct buffer *scalars;
    struct desks desks;
    struct assembly_cache training; /* by batch size */
    struct assembly_cache testing;
    struct resident *resident; /* borrowed; NULL: batches come from the host */
    bool renews;               /* programs are compiled anew for every epoch */
};

/* Builds and initialises; nothing is compiled yet. */
NODISCARD enum der_status supervised_new(struct backend *be,
                                         const struct supervised_options *options,
                                         struct supervised **out);
void supervised_free(struct supervised *model);

/* Trains on `data` (mode LOADER_TRAIN). */
NODISCARD enum der_status supervised_train(struct supervised *model, const char *name,
                                           const struct schedule *schedule,
                                           const struct loader_options *data,
                                           const struct train_hooks *hooks);

/* Accuracy on `data` (mode LOADER_EVAL), with the batch norms folded. */
NODISCARD enum der_status supervised_test(struct supervised *model,
                                          const struct loader_options *data,
                                          const struct train_hooks *hooks, struct evaluation *out);

#endif

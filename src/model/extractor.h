/*
 * One feature extractor: a residual network with its parameters, and the folded programs that run it
 * once it is frozen.
 *
 * A folded program maps an image batch to the extractor's columns of the feature matrix. It is
 * compiled once per batch size and then serves every later step: when more extractors join and the
 * matrix grows, only the binding of its result changes. Where a back end trains with few bits there are
 * two: one whose features an iteration of training is made of, and a precise one for answers.
 */
#ifndef MODEL_EXTRACTOR_H
#define MODEL_EXTRACTOR_H

#include "model/resnet.h"

struct folded {
    int batch;
    bool is_precise; /* see graph.is_precise; always true where it makes no difference */
    struct program *program;
    int image;   /* external value [batch, in_channels, height, width] */
    int feature; /* external value [batch, feature_dim] */
};

/* Batch sizes in use: training, its tail, evaluation, single images; two programs for each. */
enum { EXTRACTOR_MAX_BATCHES = 8, EXTRACTOR_MAX_FOLDED = 2 * EXTRACTOR_MAX_BATCHES };

struct extractor {
    struct backend *be;
    struct resnet_spec spec;
    struct param_set *params;
    struct folded folded[EXTRACTOR_MAX_FOLDED];
    int n_folded;
};

/* Declares and allocates the parameters, all zero. */
NODISCARD enum der_status extractor_new(struct backend *be, const struct resnet_spec *spec,
                                        struct extractor **out);
void extractor_free(struct extractor *extractor);

/* Another one with the same network and values, on the same back end, frozen. */
NODISCARD enum der_status extractor_copy(const struct extractor *extractor, struct extractor **out);

/* Appends the folded network to a graph, for a back end or for who writes it down: fills in image and feature of
 * `folded`, whose batch is given. The caller frees `use` with param_use_fini, also after a failure. */
NODISCARD enum der_status extractor_describe(const struct extractor *extractor, struct graph *g,
                                             struct param_use *use, struct folded *folded);

/* The folded program for a batch size, for answers, compiled at the first call. Borrowed; it lives as long as
 * the extractor, or until extractor_trim. */
NODISCARD enum der_status extractor_folded(struct extractor *extractor, int batch,
                                           const struct folded **out);

struct folded_use {
    int batch;
    bool in_training; /* its features become part of an iteration of training */
    bool is_seldom;   /* a batch size that is seldom met, such as that of a tail */
};

/* The folded program for a use; those that need the same share one. */
NODISCARD enum der_status extractor_folded_for(struct extractor *extractor,
                                               const struct folded_use *use,
                                               const struct folded **out);

/* Drops the folded programs for all but n batch sizes. Steps differ in the size of their last batch, so
 * without this a long run would collect programs without end. Nothing may be in use. */
void extractor_trim(struct extractor *extractor, const int *batches, int n);

/* Says where a folded program reads images and writes features. */
NODISCARD enum der_status folded_bind(const struct folded *folded, struct span image,
                                      struct span feature);

#endif

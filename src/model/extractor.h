/*
 * One feature extractor: a residual network with its parameters, and the folded programs that run it
 * once it is frozen.
 *
 * A folded program maps an image batch to the extractor's columns of the feature matrix. It is
 * compiled once per batch size and then serves every later step: when more extractors join and the
 * matrix grows, only the binding of its result changes.
 */
#ifndef MODEL_EXTRACTOR_H
#define MODEL_EXTRACTOR_H

#include "model/resnet.h"

struct folded {
    int batch;
    struct program *program;
    int image;   /* external value [batch, in_channels, height, width] */
    int feature; /* external value [batch, feature_dim] */
};

enum {
    EXTRACTOR_MAX_FOLDED = 8
}; /* batch sizes in use: training, its tail, evaluation, single images */

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

/* The folded program for a batch size, compiled at the first call. Borrowed; it lives as long as the
 * extractor, or until extractor_trim. */
NODISCARD enum der_status extractor_folded(struct extractor *extractor, int batch,
                                           const struct folded **out);

/* The same for a batch size that is seldom met, such as that of a tail. */
NODISCARD enum der_status extractor_folded_seldom(struct extractor *extractor, int batch,
                                                  const struct folded **out);

/* Drops the folded programs for all but n batch sizes. Steps differ in the size of their last batch, so
 * without this a long run would collect programs without end. Nothing may be in use. */
void extractor_trim(struct extractor *extractor, const int *batches, int n);

/* Says where a folded program reads images and writes features. */
NODISCARD enum der_status folded_bind(const struct folded *folded, struct span image,
                                      struct span feature);

#endif

/*
 * What a stage runs for one batch size, put together: buffers, frozen extractors, and on top of their
 * features whatever graph the stage describes.
 *
 *     images ──> frozen extractors (folded) ──> columns of the feature matrix ─┐
 *        └─────────────────────────> the described graph <─────────────────────┘
 *
 * Stages differ only in that graph: training a new extractor, training a head, evaluating. A graph with losses
 * trains; one without gives answers, and all of it is precise (graph.is_precise).
 */
#ifndef TRAIN_ASSEMBLY_H
#define TRAIN_ASSEMBLY_H

#include "model/extractor.h"
#include "train/loop.h"

/* Where batches of one size lie. All stages of a step share it, because a frozen extractor's program is
 * bound to one place: images in, its columns of the matrix out. */
struct desk {
    int batch;
    struct buffer *image;  /* [batch, c, h, w] */
    struct buffer *labels; /* i32 [batch] */
    struct buffer *matrix; /* [batch, feature_dim] */
};

enum { DESKS_MAX = EXTRACTOR_MAX_BATCHES };

struct desks {
    struct backend *be;
    int channels, height, width; /* of the images */
    int64_t feature_dim;         /* columns of the matrix */
    int usual[2]; /* full batches of training and testing: programs for others are compiled
                                  * fast rather than made to run fast; 0: all are usual */
    struct desk item[DESKS_MAX];
    int n;
};

void desks_init(struct desks *desks, struct backend *be, const struct resnet_spec *spec,
                int64_t feature_dim);
void desks_fini(struct desks *desks);

enum { ASSEMBLY_MAX_SCALARS = STAGE_MAX_SCALARS, ASSEMBLY_MAX_USES = 4, ASSEMBLY_MAX_SIZES = 8 };

/* Values of the described graph. image, labels and matrix are declared before `describe` is called;
 * the rest it fills in, and everything is bound afterwards. */
struct assembly_io {
    int batch;
    int image;                        /* [batch, c, h, w] */
    int labels;                       /* i32 [batch] */
    int matrix;                       /* [batch, feature_dim] */
    int scalar[ASSEMBLY_MAX_SCALARS]; /* NO_VALUE until assembly_scalar declares it */
    int loss[STAGE_MAX_LOSSES]; /* exposed loss values; NO_VALUE: the graph has not this one */
    float known_loss[STAGE_MAX_LOSSES]; /* what a loss is that the graph has not */
    int n_losses;
    int rank;                                /* exposed by graph_rank, or NO_VALUE */
    int logits;                              /* exposed [batch, n_logits], or NO_VALUE */
    struct param_use use[ASSEMBLY_MAX_USES]; /* parameter sets attached by assembly_attach */
    int n_uses;
};

struct assembly_plan {
    struct backend *be;
    struct extractor *const *frozen; /* [n_frozen], in the order of their columns */
    int n_frozen;
    struct desks *desks;    /* columns of the matrix behind the frozen ones are the described
                                      * graph's */
    bool shows_gradients;   /* they can be read after a run, which nothing needs but tests */
    struct buffer *scalars; /* [ASSEMBLY_MAX_SCALARS], the stage's */
    void *self;             /* argument of describe */
    NODISCARD enum der_status (*describe)(void *self, struct graph *g, struct assembly_io *io);
};

struct assembly {
    struct program *program;
    struct sequence *sequence;
    struct desk desk;                      /* borrowed from the desks */
    struct buffer *losses, *rank, *logits; /* NULL where the graph has none */
    int n_logits;
    struct buffer *scalars; /* the stage's, NULL where the graph has none */
    bool trains;            /* the graph has losses */
};

/* Compiled assemblies by batch size. Zero-initialise. */
struct assembly_cache {
    struct mem *mem; /* set with the first item */
    struct assembly *item[ASSEMBLY_MAX_SIZES];
    int n;
};

/* The assembly for a batch size, put together at the first call. Borrowed from the cache. */
NODISCARD enum der_status assembly_get(struct assembly_cache *cache,
                                       const struct assembly_plan *plan, int batch,
                                       struct assembly **out);
void assembly_cache_fini(struct assembly_cache *cache);

/* The same as the loop wants it. */
struct stage_program assembly_program(const struct assembly *assembly);

/* For `describe`: declares scalar `which` once, and attaches a parameter set. */
NODISCARD enum der_status assembly_scalar(struct graph *g, struct assembly_io *io, int which,
                                          const char *name, int *value);
NODISCARD enum der_status assembly_attach(struct graph *g, struct assembly_io *io,
                                          struct param_set *set, bool trainable,
                                          struct param_use **use);

#endif

/*
 * What a back end is: memory, programs, running them.
 *
 * Describe once, compile, run many times. A program is a compiled graph; its external values are
 * bound to spans of buffers, and may be bound anew without compiling again (the feature matrix of
 * a frozen extractor grows with every step, its program does not change). A sequence is the list
 * of programs that one iteration runs: frozen extractors first, then the trained part.
 *
 * All data that enters or leaves is dense, row-major and f32 or i32, whatever a back end does
 * inside; parameters are stored that way too. A program that wants another layout or folded
 * weights keeps derived copies, and refreshes them when the version of their buffer has moved:
 * for frozen extractors that is never.
 */
#ifndef GRAPH_BACKEND_H
#define GRAPH_BACKEND_H

#include "graph/graph.h"

struct backend_ops;

/* First member of every back end's own struct. */
struct backend {
    const struct backend_ops *ops;
    struct der_ctx *ctx;
    bool is_coarse; /* values inside programs have fewer bits than f32, but in precise graphs */
};

/* Device memory. First member of every back end's own struct, if it needs one. */
struct buffer {
    struct backend *be;
    void *data; /* device address */
    size_t bytes;
    uint64_t version; /* moves whenever the content may have changed */
};

/* Where an external value lives. */
struct span {
    struct buffer *buffer;
    size_t offset; /* bytes from the start of the buffer; a multiple of 4 */
    int64_t pitch; /* elements from one row to the next of a matrix; 0: dense */
};

enum precision { PRECISION_F32, PRECISION_TF32, PRECISION_BF16 };

/* For measurements and tests: other ways to the same numbers. Zero is what is used. */
struct backend_tuning {
    int side_streams;     /* cuda: how many programs of a group run side by side */
    int thin_most;        /* cuda: channels up to which frozen layers have own kernels */
    bool weights_apart;   /* cuda: the update leaves weights in bf16 to a launch of their own */
    bool gradients_apart; /* cuda: gradients in bf16 are written out before the update reads them */
    bool statistics_apart; /* cuda: no convolution leaves sums for the batch norm behind it */
    bool slopes_apart;     /* cuda: nor for the gradient of batch norm */
    bool norm_in_passes;   /* cuda: batch norm reads small images twice, as it does large ones */
    bool zeros_stored; /* cuda: gradients of strided 1x1 convolutions have memory for their zeros */
    bool without_strips; /* cuda: no kernels of strip*.cu and sheet.cu; sums in another order */
    bool without_sheets; /* cuda: none of sheet.cu, nor the padding that they want */
    bool without_chains; /* cuda: folded networks of thin layers are launched layer by layer */
};

struct backend_options {
    int device; /* ordinal of the GPU; ignored by CPU back ends */
    /* Of convolutions; CPU back ends offer F32 only. BF16 is for training: programs that give answers run in
     * TF32 (graph.is_precise). */
    enum precision precision;
    bool deterministic; /* refuse algorithms that may differ from run to run */
    struct backend_tuning tuning;
};

/* What compiling found out. Counts are per run of the program. */
struct program_stats {
    int n_reorders_activation; /* layout changes of images inside the program */
    int n_reorders_weights;    /* layout changes of weights per refresh */
    int n_primitives;     /* cpu: what oneDNN had to make kernels for, layout changes included */
    size_t temp_bytes;    /* planned memory of temporaries and scratch */
    size_t derived_bytes; /* copies derived from parameters */
};

/* First member of every back end's own struct. Owns nothing of the graph after compiling. */
struct program {
    struct backend *be;
    struct program_stats stats;
};

enum { SEQUENCE_MAX = 256 };

/* Programs of equal `group` do not depend on each other and may run side by side; groups run in
 * ascending order. */
struct sequence_item {
    struct program *program;
    int group;
};

struct sequence {
    struct backend *be;
    struct sequence_item *items; /* [n_items], groups ascending */
    int n_items;
    void *captured; /* the back end's own, NULL until it has one */
};

struct backend_ops {
    const char *name;
    /* Memory of its own, and work that goes on after run() has returned: data are best held there, and results
     * looked at seldom. */
    bool is_device;
    /* Whether this machine has what it needs (a GPU and its driver); NULL: every machine has. */
    bool (*is_usable)(void);

    NODISCARD enum der_status (*open)(struct der_ctx *ctx, const struct backend_options *options,
                                      struct backend **out);
    void (*close)(struct backend *be);

    /* Zero-filled memory. */
    NODISCARD enum der_status (*buffer_new)(struct backend *be, size_t bytes, struct buffer **out);
    void (*buffer_free)(struct backend *be, struct buffer *buffer);
    NODISCARD enum der_status (*write)(struct backend *be, struct buffer *dst, size_t offset,
                                       const void *host, size_t bytes);
    NODISCARD enum der_status (*read)(struct backend *be, const struct buffer *src, size_t offset,
                                      void *host, size_t bytes);

    /* The graph may be freed afterwards. */
    NODISCARD enum der_status (*compile)(struct backend *be, const struct graph *g,
                                         struct program **out);
    void (*program_free)(struct backend *be, struct program *program);
    NODISCARD enum der_status (*bind)(struct backend *be, struct program *program, int value,
                                      struct span span);

    /* Runs all programs of a sequence. May return before the work is done; read and sync wait. */
    NODISCARD enum der_status (*run)(struct backend *be, struct sequence *sequence);
    /* Forgets what run() may have captured; called before a sequence is freed. */
    void (*sequence_drop)(struct backend *be, struct sequence *sequence);
    NODISCARD enum der_status (*sync)(struct backend *be);
};

/* ---- what callers use: argument checks, then the table ------------------------------------- */

/* name: "ref", "cpu", ...; options may be NULL. DER_UNSUPPORTED names what this build has. */
NODISCARD enum der_status backend_open(struct der_ctx *ctx, const char *name,
                                       const struct backend_options *options, struct backend **out);
void backend_close(struct backend *be);

NODISCARD enum der_status buffer_new(struct backend *be, size_t bytes, struct buffer **out);
void buffer_free(struct buffer *buffer);
NODISCARD enum der_status buffer_write(struct buffer *dst, size_t offset, const void *host,
                                       size_t bytes);
NODISCARD enum der_status buffer_read(const struct buffer *src, size_t offset, void *host,
                                      size_t bytes);

NODISCARD enum der_status program_compile(struct backend *be, const struct graph *g,
                                          struct program **out);
void program_free(struct program *program);
/* The span must hold the whole value; a pitch is allowed for matrices only. */
NODISCARD enum der_status program_bind(struct program *program, int value, struct span span);

NODISCARD enum der_status sequence_new(struct backend *be, const struct sequence_item *items,
                                       int n_items, struct sequence **out);
void sequence_free(struct sequence *sequence);
/* Every external value of every program must be bound. */
NODISCARD enum der_status sequence_run(struct sequence *sequence);

/* Back ends of this build, ending with NULL; the names `backend_open` takes. */
const struct backend_ops *const *backend_list(void);

bool backend_is_usable(const struct backend_ops *ops);

/* Name of the fastest back end of this build that this machine can use. */
const char *backend_default(void);

/* ---- helpers that back ends share ------------------------------------------------------------- */

/* External values of a compiled program, as every back end keeps them. */
struct slot {
    char *name; /* for messages; owned */
    struct shape shape;
    enum dtype dtype;
    bool is_external;
    bool written;     /* some node writes it */
    struct span span; /* buffer NULL until bound */
};

/* What a graph says about a value; the name is copied into the arena. */
NODISCARD enum der_status slot_init(struct der_ctx *ctx, struct arena *arena,
                                    const struct value *value, struct slot *out);

/* DER_STATE when an external value has no memory yet. */
NODISCARD enum der_status slot_require(struct der_ctx *ctx, const struct slot *slot);

/* Shape, range and alignment of a span for a slot. */
NODISCARD enum der_status slot_check(struct der_ctx *ctx, const struct slot *slot,
                                     struct span span);

#endif

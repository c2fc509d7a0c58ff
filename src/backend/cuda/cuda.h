/*
 * Inside the cuda back end: the back end, compiled programs, their steps.
 *
 * Compiling turns every node into one step. Images live inside a program as [n, h, w, channels] with
 * the channels in eights, in f32 or bf16; what the caller sees stays dense f32, so images of the
 * caller have a copy inside that is read in before their first use and written out after each
 * change. All memory of a program is one block with fixed addresses, which is what lets a whole
 * sequence be captured once and replayed.
 */
#ifndef CUDA_H
#define CUDA_H

#include "backend/cuda/cudnn_graph.h"
#include "graph/backend.h"

enum {
    CUDA_FEW_IMAGES = 64, /* of a batch: fewer do not fill a GPU whose blocks have a picture each */
    CUDA_THIN_MOST = 80   /* channels: up to here own kernels want sixteens, not tiles */
};

enum { CUDA_SIDE_STREAMS = 12 }; /* for programs that may run side by side */

/* Streams that the steps of one program are spread over; see cuda_lanes.c. */
enum cuda_lane { LANE_MAIN, LANE_BRANCH, LANE_SINK, N_LANES };

enum { CUDA_STAGES = 2, CUDA_STAGE_BYTES = 4 << 20 };

/* Pinned memory that data pass through on their way to the device, so that the host need not wait for it. */
struct cuda_stage {
    void *data;       /* CUDA_STAGE_BYTES */
    cudaEvent_t done; /* the copy out of it */
};

struct cuda_backend {
    struct backend base;
    struct cuda_libs libs;
    int device;
    size_t shared;            /* bytes of shared memory that a block can have */
    enum precision precision; /* of training */
    bool deterministic;
    int thin_most; /* channels: layers of folded networks that have no more are for own kernels */
    bool weights_apart, gradients_apart, statistics_apart, slopes_apart, norm_in_passes,
        zeros_stored;
    bool strips; /* kernels of strip.cu and strip_weights.cu are wanted, and the GPU can run them */
    bool sheets; /* those of sheet.cu likewise */
    bool chains; /* those of chain.cu are wanted */
    int n_side;  /* streams of `side` that are used */
    cudaStream_t stream;
    cudaStream_t side[CUDA_SIDE_STREAMS];
    cudaEvent_t fork, join[CUDA_SIDE_STREAMS];
    cudaStream_t
        lane[N_LANES]; /* beside `stream`, for a program that runs alone; [LANE_MAIN] unused */
    cudaEvent_t order;
    struct cuda_stage stage[CUDA_STAGES];
    int next_stage;
    struct dnn *dnn;
    cublasLtHandle_t gemm;
};

/* Where a value is, and how it is laid out. */
struct cuda_value {
    struct slot slot; /* name, shape, and for external values the binding */
    enum value_kind kind;
    int owner;      /* alias: value whose memory this is */
    int64_t col;    /* alias: first column within it */
    bool image;     /* channels last, padded */
    int64_t stored; /* images: channels with padding */
    /* Images: a gradient of which the pixels of even rows and columns alone are stored, the others being zeros. */
    bool sparse;
    size_t offset; /* into the program's block: temporaries, copies of the caller's images */
    char *data;    /* address of what kernels see, once resolved */
    char *outside; /* images of the caller: address of the original, once resolved */
    int64_t pitch; /* matrices: elements from one row to the next, once resolved */
    /* A gradient of weights that stays inside the program, as this convolution writes it in bf16, whatever it is
     * bound to; else NULL. */
    const struct cuda_conv *raw;
};

enum { DERIVED_SOURCES = 5 }; /* weights, gamma, beta, mean, var */

/* Weights as convolutions want them, perhaps with a batch norm folded in. */
struct cuda_derived {
    int source[DERIVED_SOURCES]; /* value ids; NO_VALUE past the first unless folded */
    struct cuda_weights shape;   /* sizes; pointers are filled in when addresses are known */
    bool inside;                 /* a source is computed by the program itself */
    bool kept;                   /* the update, which alone writes the source, writes this too */
    int position;                /* in the table */
    size_t offset;               /* of the weights in the program's block */
    size_t bias_offset;          /* folded */
};

/* Who computes a convolution, or a gradient of one. */
enum cuda_conv_way {
    CONV_BY_CUDNN, /* or by conv.cu where it has no engine */
    CONV_BY_STEM,  /* stem.cu: from the caller's picture */
    CONV_BY_STRIP, /* strip.cu and strip_weights.cu */
    CONV_BY_SHEET, /* sheet.cu */
    CONV_BY_CHAIN, /* chain.cu, with all others of the program but the first */
    CONV_BY_THIN   /* thin.cu and thin_weights.cu */
};

/* A convolution and everything round it. The step's scratch holds the gradient of weights as
 * [k, r, s, c], before it is written out (unless it stays raw), and cuDNN's workspace. */
struct cuda_conv {
    struct cuda_conv_shape shape;
    const struct dnn_plan *plan; /* NULL: own kernels */
    bool fused;                  /* CONV2D_AFFINE: the plan does all of it */
    enum cuda_conv_way way;
    int derived;                  /* index; -1 for CONV2D_D_WEIGHTS */
    enum cuda_type grad_type;     /* CONV2D_D_WEIGHTS: of the gradient as it is computed */
    const struct cuda_step *norm; /* batch norm in whose scratch it leaves partial sums; or NULL */
    int parts;                    /* of these sums */
};

struct cuda_gemm; /* cuda_gemm.c */
struct cuda_program;
struct cuda_step;

typedef enum der_status cuda_step_run(struct cuda_program *p, const struct cuda_step *step,
                                      cudaStream_t stream);

struct cuda_step {
    cuda_step_run *run;
    struct node node;       /* operand lists in the program's arena */
    struct cuda_conv *conv; /* convolutions; in the arena */
    struct cuda_gemm *gemm; /* matrix products; in the arena */
    size_t scratch;         /* offset into the program's block */
    size_t scratch_bytes;
    /* BATCHNORM, BATCHNORM_GRAD: the convolution, or gradient of one, that leaves partial sums in the scratch; or
     * NULL. */
    const struct cuda_step *summed_by;
    bool is_plain;   /* BATCHNORM_GRAD that has this: forwards there was no residual */
    size_t counters; /* index of the first of the step's counters */
    size_t table;    /* offset of the step's table among the program's tables */
    size_t table_bytes;
    int *keeps;  /* SGD: [parameters] derived weights that it writes too, -1: none; in the arena */
    int *import; /* [n_import] images of the caller to be read in before; in the arena */
    int *export; /* [n_export] and to be written out after */
    int n_import, n_export;
    enum cuda_lane lane;
    unsigned waits; /* bit set of the lanes that it waits for */
    int last_step; /* of other lanes: the step where the main lane waits, or n_steps; else its own */
};

struct cuda_program {
    struct program base;
    struct arena arena;
    struct cuda_value *values; /* [n_values] */
    int n_values;
    struct cuda_step *steps; /* [n_steps] */
    int n_steps;
    struct cuda_derived *derived; /* [n_derived] */
    int n_derived;
    int n_derived_outside; /* whose sources come from outside; first in the table */
    int64_t derived_rows;  /* the most that one of them has */
    size_t derived_table;  /* offset among the tables */
    bool derived_fresh;    /* derived_sum means something */
    uint64_t derived_sum;  /* versions of all sources, at the last refresh */
    char *block;           /* device memory: temporaries and scratch, derived weights, tables */
    size_t derived_offset, tables_offset, counters_offset;
    size_t derived_bytes, tables_bytes, n_counters;
    char *tables;             /* host side of the tables; in the arena */
    struct cuda_chain *chain; /* or NULL; without addresses, in the arena; see cuda_chain.c */
    enum precision precision;
    enum cuda_type type;  /* of images inside */
    bool folded;          /* all its convolutions are CONV2D_AFFINE */
    bool pads_few;        /* see cuda_pads_few */
    bool seldom;          /* kernels that have to be made at run time are not worth it */
    bool hides_gradients; /* see graph.hides_gradients */
    bool resolved;
    uint64_t epoch; /* moves whenever addresses have changed */
};

static inline struct cuda_backend *cuda_of(const struct cuda_program *p)
{
    return (struct cuda_backend *)p->base.be;
}

/* ---- cuda_error.c ------------------------------------------------------------------------------- */

/* Turns what a CUDA call returned into a status, with a sentence about what was tried and what helps. */
NODISCARD enum der_status cuda_check(struct der_ctx *ctx, cudaError_t error, const char *what);

/* ---- cuda_open.c -------------------------------------------------------------------------------- */

/* Makes the back end's device the thread's current one. */
NODISCARD enum der_status cuda_enter(const struct cuda_backend *cuda);

/* ---- cuda_memory.c ------------------------------------------------------------------------------ */

/* Zero-filled device memory; DER_NOMEM says how much was wanted and how much is free. */
NODISCARD enum der_status cuda_alloc(struct cuda_backend *cuda, size_t bytes, void **out);
NODISCARD enum der_status cuda_buffer_new(struct backend *be, size_t bytes, struct buffer **out);
void cuda_buffer_free(struct backend *be, struct buffer *buffer);
NODISCARD enum der_status cuda_write(struct backend *be, struct buffer *dst, size_t offset,
                                     const void *host, size_t bytes);
NODISCARD enum der_status cuda_read(struct backend *be, const struct buffer *src, size_t offset,
                                    void *host, size_t bytes);
NODISCARD enum der_status cuda_sync(struct backend *be);

/* ---- cuda_plan.c -------------------------------------------------------------------------------- */

NODISCARD enum der_status cuda_compile(struct backend *be, const struct graph *g,
                                       struct program **out);
void cuda_program_free(struct backend *be, struct program *program);
/* What a value takes inside the program, where it has memory there. */
size_t cuda_value_bytes(const struct cuda_program *p, const struct cuda_value *value);

/* ---- cuda_layout.c ------------------------------------------------------------------------------ */

/* Which values are images; the other arrays of rank 4 are weights. image: [n_values]. */
void cuda_layout_choose(const struct graph *g, bool *image);
bool cuda_is_conv(enum op op);
/* Whether an image is the gradient of a strided 1x1 convolution's data, three quarters of which are zeros, and all that
 * reads it is a gradient of batch norm that adds it to another one. */
bool cuda_is_sparse(const struct graph *g, int value);
/* Whether images inside the program have no fewer channels than own kernels want. The caller's picture has few and keeps
 * them, so that nothing may meet it element by element: true where all that is done with images of the caller is to
 * convolve them. */
bool cuda_pads_few(const struct graph *g, const bool *image);
/* Channels with padding; is_thin: for own kernels. In bf16 cuDNN computes whole tiles of 16, 32 or a multiple of 64
 * channels so much faster that the zeros cost nothing; our own kernels want sixteens (docs/KERNELS.md). */
int64_t cuda_padded(enum cuda_type type, bool is_thin, int64_t channels);
/* An image of a folded network is for own kernels when they are worth it for all convolutions between images of
 * its size: one that cuDNN does better wants its padding on both sides. */
bool cuda_is_thin(const struct graph *g, int value, int64_t most);
/* It is for the kernels of strip.cu and sheet.cu when they, or cuDNN without any padding, serve all of those. */
bool cuda_is_narrow(const struct graph *g, int value);
int64_t cuda_narrow_channels(const struct shape *image);

/* ---- cuda_run.c --------------------------------------------------------------------------------- */

NODISCARD enum der_status cuda_bind(struct backend *be, struct program *program, int value,
                                    struct span span);
/* Addresses, tables and matrix products for the current bindings. */
NODISCARD enum der_status cuda_resolve(struct cuda_program *p);
/* All steps of a program on one stream. */
NODISCARD enum der_status cuda_enqueue(struct cuda_program *p, cudaStream_t stream);
/* Steps [first, end) on the back end's stream and its lanes; the last ones wait for all lanes. */
NODISCARD enum der_status cuda_enqueue_lanes(struct cuda_program *p, int first, int end);

/* ---- cuda_lanes.c ------------------------------------------------------------------------------- */

/* The graph's nodes in the order in which they are to run. nodes: [n_nodes]. */
void cuda_lanes_order(const struct graph *g, struct node *nodes);
/* Lanes, what waits for what, and how long memory has to stay. */
void cuda_lanes_plan(struct cuda_program *p);

/* ---- cuda_capture.c ----------------------------------------------------------------------------- */

NODISCARD enum der_status cuda_run(struct backend *be, struct sequence *sequence);
void cuda_sequence_drop(struct backend *be, struct sequence *sequence);

/* ---- cuda_steps.c: steps that are neither convolution nor matrix product ---------------------------- */

NODISCARD enum der_status cuda_step_init(struct cuda_program *p, struct cuda_step *step);
/* Of a BATCHNORM_GRAD. */
struct cuda_bn_grad cuda_bn_grad_of(const struct cuda_program *p, const struct cuda_step *step);
/* Fills in the step's table for the current addresses. */
void cuda_step_table(struct cuda_program *p, struct cuda_step *step);

/* ---- cuda_conv.c -------------------------------------------------------------------------------- */

NODISCARD enum der_status cuda_conv_init(struct cuda_program *p, struct cuda_step *step);
/* Has the plans of all convolutions of a graph made, before the steps ask for them one by one. */
NODISCARD enum der_status cuda_conv_prefetch(struct cuda_program *p, const struct graph *g);
/* True when a convolution reads the caller's picture itself, so that no copy inside is needed. */
bool cuda_conv_reads_outside(const struct cuda_program *p, const struct node *node);
/* The result of a gradient of weights by cuDNN or strip_weights.cu stays raw. Before memory is planned. */
void cuda_conv_stay_raw(struct cuda_program *p, struct cuda_step *step);
/* Of a gradient of weights as it is computed: [k, r, s, c] with padding. */
size_t cuda_conv_raw_bytes(const struct cuda_conv *conv);
/* Parts, at most `most`, of the sums for batch norm that the step can leave; 0: it can leave none. */
int cuda_conv_parts(const struct cuda_program *p, const struct cuda_step *step, int most);

/* ---- cuda_thin.c: what the kernels for thin layers serve, and how they cut it up --------------------- */

/* True where they are to compute a pass of a convolution in bf16, rather than cuDNN. */
bool cuda_thin_serves(const struct cuda_conv_shape *shape, enum dnn_pass pass);
/* shared: bytes of shared memory that a block can have. */
struct cuda_thin_tile cuda_thin_tile_of(const struct cuda_conv_shape *shape, bool backwards,
                                        size_t shared);
struct cuda_thin_grad_tile cuda_thin_grad_tile_of(const struct cuda_conv_shape *shape,
                                                  size_t shared);

/* ---- cuda_strip.c: what the kernels of strip.cu and strip_weights.cu serve ------------------------------ */

/* True where they are to compute a pass of a convolution, on a GPU that can run them. */
bool cuda_strip_serves(const struct cuda_conv_shape *shape, enum dnn_pass pass);
/* Blocks that are to share the pixels of a gradient of weights. */
int cuda_strip_splits(const struct cuda_conv_shape *shape);
/* Whether a GPU can. */
NODISCARD enum der_status cuda_strip_runs_on(struct der_ctx *ctx, int device, bool *out);

/* ---- cuda_sheet.c: what the kernels of sheet.cu serve, and how they cut it up --------------------------- */

/* True where they are to compute a pass of a convolution, on a GPU that can run them. */
bool cuda_sheet_serves(const struct cuda_conv_shape *shape, enum dnn_pass pass);
/* What thin.cu does as well with the same sixteens of channels, or better. */
bool cuda_sheet_leaves_to_thin(const struct cuda_conv_shape *shape);
struct cuda_sheet_tile cuda_sheet_tile_of(const struct cuda_conv_shape *shape);

/* ---- cuda_derive.c ------------------------------------------------------------------------------ */

/* Index of the derived weights of a convolution; earlier ones are shared where they agree. */
NODISCARD enum der_status cuda_derived_find(struct cuda_program *p, const struct cuda_step *step,
                                            int *out);
/* Orders the table, once all are known. */
void cuda_derived_finish(struct cuda_program *p);
/* What a derived weight is, for the current addresses. */
struct cuda_weights cuda_derived_row(const struct cuda_program *p, int index);
void cuda_derived_table(struct cuda_program *p);
/* Launches: all whose sources come from outside, or a single one. */
NODISCARD enum der_status cuda_derived_refresh(struct cuda_program *p, cudaStream_t stream);
NODISCARD enum der_status cuda_derived_refresh_one(struct cuda_program *p, int index,
                                                   cudaStream_t stream);
/* True when a source has changed since the versions were noted. */
bool cuda_derived_is_stale(const struct cuda_program *p);
/* All are up to date with the present versions. */
void cuda_derived_note(struct cuda_program *p);

/* ---- cuda_update.c ------------------------------------------------------------------------------ */

/* Finds the derived weights that updates can write, and the gradients that they can read as they are computed. */
NODISCARD enum der_status cuda_update_plan(struct cuda_program *p);
/* Whether a step writes to a value that has memory of its own. */
bool cuda_writes(const struct cuda_program *p, int step, int value);
/* The only step that writes a value; -1 when none does, or several. */
int cuda_only_writer(const struct cuda_program *p, int value);

/* ---- cuda_statistics.c -------------------------------------------------------------------------- */

/* Finds the convolutions that leave the sums of the batch norm behind them, and gradients of convolutions that leave those
 * of its gradient. Before lanes and memory are planned. */
void cuda_statistics_plan(struct cuda_program *p);
/* The step that first writes to the scratch of step i: itself, or the convolution that leaves its sums there. */
int cuda_statistics_first(const struct cuda_program *p, int i);

/* ---- cuda_chain.c: folded networks as one launch ----------------------------------------------------- */

/* For a graph in our order: where everything lies in the `shared` bytes that a block can have, but for addresses outside;
 * *is_worth_it: it is such a network, and fits well. */
NODISCARD enum der_status cuda_chain_make(const struct graph *g, size_t shared,
                                          struct cuda_chain *chain, bool *is_worth_it);
/* Finds out whether the program is to be run so. Before values have layouts. */
NODISCARD enum der_status cuda_chain_plan(struct cuda_program *p, const struct graph *g);
/* Step i is done by the launch. */
bool cuda_chain_has(const struct cuda_program *p, int i);
/* The last step does what all of them did. After lanes, before memory is planned. */
void cuda_chain_finish(struct cuda_program *p);

/* ---- cuda_gemm.c -------------------------------------------------------------------------------- */

NODISCARD enum der_status cuda_gemm_init(struct cuda_program *p, struct cuda_step *step);
/* Chooses an algorithm for the current pitches. */
NODISCARD enum der_status cuda_gemm_resolve(struct cuda_program *p, struct cuda_step *step);

/* ---- operands of a step, while it runs ---------------------------------------------------------- */

static inline struct cuda_value *step_in(const struct cuda_program *p, const struct cuda_step *step,
                                         int position)
{
    int id = node_in(&step->node, position);
    return id == NO_VALUE ? NULL : &p->values[id];
}

static inline struct cuda_value *step_out(const struct cuda_program *p,
                                          const struct cuda_step *step, int position)
{
    int id = node_out(&step->node, position);
    return id == NO_VALUE ? NULL : &p->values[id];
}

static inline void *value_data(const struct cuda_value *value)
{
    return value ? value->data : NULL;
}

static inline enum cuda_type value_type(const struct cuda_program *p,
                                        const struct cuda_value *value)
{
    if (value->slot.dtype == DTYPE_I32)
        return CUDA_I32;
    return value->image ? p->type : CUDA_F32;
}

/* Any value by rows: pixels of an image, rows of a matrix, all of anything else as one. */
struct cuda_rows value_rows(const struct cuda_program *p, const struct cuda_value *value);

static inline char *step_scratch(const struct cuda_program *p, const struct cuda_step *step)
{
    return p->block + step->scratch;
}

static inline unsigned *step_counters(const struct cuda_program *p, const struct cuda_step *step)
{
    return (unsigned *)(void *)(p->block + p->counters_offset) + step->counters;
}

static inline bool cuda_is_power_of_two(int64_t n)
{
    return n > 0 && (n & (n - 1)) == 0;
}

/* Of a power of two. */
static inline int cuda_log2(int64_t power)
{
    int log = 0;
    for (; power > 1; power /= 2)
        log++;
    return log;
}

static inline size_t cuda_aligned(size_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

#endif

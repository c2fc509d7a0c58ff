/*
 * Inside the cpu back end: the back end, compiled programs, their steps.
 *
 * Compiling turns every node into one step: a function and what it needs, with operands named by
 * value id. Before a run each value's address is looked up once, so that binding anew costs
 * nothing but that. Temporaries, and scratch that lives for one step, share one block.
 */
#ifndef CPU_H
#define CPU_H

#include "backend/cpu/cpu_direct.h"
#include "backend/cpu/cpu_kernels.h"
#include "backend/cpu/cpu_winograd.h"
#include "backend/cpu/dnnl_shim.h"
#include "graph/backend.h"

struct cpu_backend {
    struct backend base;
    struct shim *shim;
    uint64_t *modes; /* [threads of the context]; see cpu_denormals_begin */
};

/* Where a value is, and how it is laid out. */
struct cpu_value {
    struct slot slot; /* name, shape, and for external values the binding */
    enum value_kind kind;
    int owner;                  /* alias: value whose memory this is */
    int64_t col;                /* alias: first column within it */
    int64_t block;              /* images: layout, see cpu_kernels.h; else 1 */
    size_t offset;              /* temporaries: into the program's block */
    float *data;                /* address, once resolved */
    int64_t pitch;              /* matrices: elements from one row to the next, once resolved */
    struct cpu_matrix dense_of; /* where a pitched matrix is, while a dense copy serves */
};

/* Who computes a convolution. */
enum cpu_conv_kind { CONV_BY_DNNL, CONV_BY_WINOGRAD, CONV_BY_DIRECT };

enum { DERIVED_SOURCES = 5 }; /* weights, gamma, beta, mean, var */

/* Weights in the layout of a primitive, perhaps with a batch norm folded in. Refreshed when one of
 * the buffers that they come from has moved on. */
struct cpu_derived {
    int source[DERIVED_SOURCES]; /* value ids; NO_VALUE past the first unless folded */
    uint64_t version[DERIVED_SOURCES];
    bool fresh; /* version[] means something */
    bool folded;
    float eps;                    /* folded: of the batch norm */
    int64_t k, c;                 /* channels, some rounded up to full blocks */
    enum cpu_conv_kind kind;      /* whose layout */
    const struct shim_conv *conv; /* CONV_BY_DNNL; borrowed from the step it was made for */
    struct shim_reorder *reorder; /* canonical to that; NULL: canonical, or an own kernel's */
    bool backward;                /* CONV_BY_WINOGRAD: of the gradient towards src */
    size_t offset;                /* of the weights in the derived block */
    size_t bias_offset;           /* folded: [k] */
};

/* A convolution and everything round it. Offsets count from the start of the step's scratch, which
 * begins with that of the primitive. */
struct cpu_conv {
    enum cpu_conv_kind kind;
    struct shim_conv *primitive; /* CONV_BY_DNNL */
    struct conv_info info;       /* of any kind */
    bool sum, relu;              /* CONV2D_AFFINE */
    struct conv_geometry
        geometry; /* channels rounded up to full blocks where the kernel wants it */
    struct shim_reorder *src_reorder; /* NULL where the value already has the layout */
    struct shim_reorder *dst_reorder;
    struct shim_reorder *residual_reorder;
    struct shim_reorder *weights_reorder; /* CONV2D_D_WEIGHTS: to canonical */
    int derived;                          /* index, -1: the parameter itself serves */
    bool padded;                          /* geometry has more channels than the parameter */
    size_t src_stage, dst_stage;          /* images in the primitive's layout */
    size_t weights_stage;                 /* CONV2D_D_WEIGHTS: in the primitive's layout */
    size_t canonical_stage;               /* weights, canonical, folded or with all channels */
};

struct cpu_program;
struct cpu_step;

struct cpu_step {
    enum der_status (*run)(struct cpu_program *p, const struct cpu_step *step);
    struct node node;      /* operand lists in the program's arena */
    struct cpu_conv *conv; /* convolutions only; owned */
    size_t scratch;        /* offset into the program's block */
    size_t scratch_bytes;
    size_t dense;               /* within scratch: room for pitched operands made dense */
    float **pointers;           /* [n_in + n_out] for ops with many operands; in the arena */
    int64_t *sizes;             /* likewise */
    struct cpu_sgd_span *spans; /* SGD; in the arena */
};

struct cpu_program {
    struct program base;
    struct arena arena;
    struct cpu_value *values; /* [n_values] */
    int n_values;
    struct cpu_step *steps; /* [n_steps] */
    int n_steps;
    struct cpu_derived *derived; /* [n_derived] */
    int n_derived;
    size_t derived_bytes;
    char *block; /* temporaries and scratch */
    char *derived_block;
    bool resolved; /* addresses are those of the current bindings */
    bool
        own; /* nothing but own kernels: the same bits with any number of threads, and no failures */
    int threads;
};

static inline struct cpu_backend *cpu_backend_of(struct cpu_program *p)
{
    return (struct cpu_backend *)p->base.be;
}

/* "oneDNN 2.6.3, 2 threads" for --version. */
const char *cpu_backend_describe(char *text, size_t size, int threads);

/* cpu_threads.c: the OpenMP thread count for the calls between enter and leave. */
int cpu_threads_enter(int threads);
void cpu_threads_leave(int saved);
/* Is the caller inside a parallel region, where OpenMP gives one thread however many are asked for? */
bool cpu_threads_are_denied(int threads);

/* cpu_denormals.c: between begin and end, denormal numbers are zeros on this thread and on those that OpenMP
 * would give it. modes, [threads], keeps what they had. */
void cpu_denormals_begin(uint64_t *modes, int threads);
void cpu_denormals_end(const uint64_t *modes, int threads);
/* What this thread does with them; 0: what IEEE 754 says. */
uint64_t cpu_denormals_mode(void);

/* cpu_layout.c: a layout for every value. block: [n_values]. */
NODISCARD enum der_status cpu_layout_choose(struct cpu_backend *be, const struct graph *g,
                                            int64_t *block);

/* cpu_plan.c */
NODISCARD enum der_status cpu_compile(struct backend *be, const struct graph *g,
                                      struct program **out);
void cpu_program_free(struct backend *be, struct program *program);

/* cpu_run.c */
NODISCARD enum der_status cpu_bind(struct backend *be, struct program *program, int value,
                                   struct span span);
NODISCARD enum der_status cpu_run(struct backend *be, struct sequence *sequence);

/* cpu_steps.c: fills in run, scratch_bytes and the operand arrays of a step that is no
 * convolution; its operands are set. */
NODISCARD enum der_status cpu_step_init(struct cpu_program *p, struct cpu_step *step);

/* cpu_conv.c: fills in a step that is a convolution. */
NODISCARD enum der_status cpu_conv_init(struct cpu_program *p, struct cpu_step *step);
void cpu_conv_free(struct cpu_program *p, struct cpu_conv *conv);

/* cpu_conv_rule.c */
/* src and dst are value ids; the rest follows from the shapes of any convolution node. */
struct conv_operands {
    int src, weights, dst; /* or their gradients; NO_VALUE where the node has none */
};
struct conv_operands cpu_conv_operands(const struct node *node);
bool cpu_is_conv(enum op op);
enum conv_pass cpu_conv_pass(enum op op);
struct conv_geometry cpu_conv_geometry(struct shape src, struct shape weights, struct shape dst,
                                       const struct conv_attr *attr);
/* Layouts that a convolution is fastest in. */
NODISCARD enum der_status cpu_conv_prefers(struct cpu_backend *be, enum conv_pass pass,
                                           const struct conv_geometry *geometry, int64_t *src_block,
                                           int64_t *dst_block);
/* True when cpu_winograd() does better than anything in oneDNN. */
bool cpu_conv_wants_winograd(const struct conv_spec *spec);
/* True when cpu_direct() does. */
bool cpu_conv_wants_direct(const struct conv_spec *spec);
/* Algorithms worth trying for images of the given blocks, best first; returns how many. */
enum { CONV_MAX_CHOICES = 4 };
int cpu_conv_choices(const struct conv_spec *spec, struct conv_spec choices[CONV_MAX_CHOICES]);

/* cpu_derive.c */
/* Index of the derived weights for a step whose primitive exists; -1: it needs none. Earlier ones
 * are shared where they agree. */
NODISCARD enum der_status cpu_derived_find(struct cpu_program *p, const struct cpu_step *step,
                                           int *out);
/* Brings weights up to date. stage: room for canonical weights of full blocks. */
NODISCARD enum der_status cpu_derived_refresh(struct cpu_program *p, struct cpu_derived *derived,
                                              float *stage, void *scratch);
/* Bytes of canonical weights with full blocks of channels. */
size_t cpu_canonical_bytes(const struct conv_geometry *geometry);

/* cpu_linear.c */
NODISCARD enum der_status cpu_linear(struct cpu_program *p, const struct cpu_step *step);
NODISCARD enum der_status cpu_linear_d_src(struct cpu_program *p, const struct cpu_step *step);
NODISCARD enum der_status cpu_linear_d_weights(struct cpu_program *p, const struct cpu_step *step);

/* ---- operands of a step, while it runs ---------------------------------------------------------- */

static inline struct cpu_value *step_in(const struct cpu_program *p, const struct cpu_step *step,
                                        int position)
{
    int id = node_in(&step->node, position);
    return id == NO_VALUE ? NULL : &p->values[id];
}

static inline struct cpu_value *step_out(const struct cpu_program *p, const struct cpu_step *step,
                                         int position)
{
    int id = node_out(&step->node, position);
    return id == NO_VALUE ? NULL : &p->values[id];
}

static inline float *value_data(const struct cpu_value *value)
{
    return value ? value->data : NULL;
}

/* An image, or a dense matrix as an image of one pixel. */
static inline struct cpu_image value_image(const struct cpu_value *value)
{
    const struct shape *shape = &value->slot.shape;
    return (struct cpu_image){.n = shape->dim[0],
                              .c = shape->rank > 1 ? shape->dim[1] : 1,
                              .spatial = shape_spatial(*shape),
                              .block = value->block};
}

/* Absent operands have no data. */
static inline struct cpu_matrix value_matrix(const struct cpu_value *value)
{
    if (!value)
        return (struct cpu_matrix){0};
    const struct shape *shape = &value->slot.shape;
    return (struct cpu_matrix){.data = value->data,
                               .rows = shape->dim[0],
                               .cols = shape->rank > 1 ? shape->dim[1] : 1,
                               .pitch = value->pitch};
}

static inline float *step_scratch(const struct cpu_program *p, const struct cpu_step *step)
{
    return step->scratch_bytes ? (float *)(void *)(p->block + step->scratch) : NULL;
}

/* Floats that a value occupies in its layout. */
static inline int64_t value_floats(const struct cpu_value *value)
{
    if (value->slot.shape.rank != 4)
        return shape_count(value->slot.shape);
    return cpu_image_floats(value_image(value));
}

static inline size_t cpu_aligned(size_t bytes)
{
    return (bytes + MEM_ALIGNMENT - 1) / MEM_ALIGNMENT * MEM_ALIGNMENT;
}

#endif

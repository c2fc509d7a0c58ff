/*
 * A graph: values and the nodes that compute them, in the order they run.
 *
 * Built once, then given to a back end to be compiled. Node i only reads what nodes before i,
 * or the outside, have written. The builder functions below check every shape, so that a back
 * end receives only graphs that make sense.
 *
 *     graph_new -> inputs, parameters -> ops -> graph_fuse -> graph_backward -> graph_sgd
 */
#ifndef GRAPH_GRAPH_H
#define GRAPH_GRAPH_H

#include "core/arena.h"
#include "core/ctx.h"
#include "graph/op.h"
#include "graph/tensor.h"

enum { NO_VALUE = -1 };

enum value_kind {
    VALUE_TEMP,     /* lives inside the program; the back end gives it memory */
    VALUE_EXTERNAL, /* memory of the caller, bound after compiling */
    VALUE_ALIAS,    /* columns of another value (JOIN) */
};

struct value {
    const char *name; /* for messages; in the arena */
    struct shape shape;
    enum dtype dtype;
    enum value_kind kind;
    bool trainable;     /* external parameter that wants a gradient */
    int producer;       /* node that writes it first; -1 for what comes from outside */
    int grad;           /* value holding its gradient after graph_backward, or NO_VALUE */
    int alias_of;       /* VALUE_ALIAS: the value whose memory this is */
    int64_t alias_col;  /* VALUE_ALIAS: first column within it */
    int64_t grad_first; /* columns that have a gradient; [0, all) but for JOIN's result */
    int64_t grad_count; /* 0: all of them */
};

struct node {
    enum op op;
    int n_in, n_out;
    int *in;  /* [n_in] value ids, NO_VALUE where absent; in the arena */
    int *out; /* [n_out] likewise */
    union op_attr attr;
};

struct graph {
    struct der_ctx *ctx;
    struct arena arena;   /* names, operand lists, attribute tables */
    struct value *values; /* [n_values] */
    int n_values, value_capacity;
    struct node *nodes; /* [n_nodes], in execution order */
    int n_nodes, node_capacity;
    bool runs_seldom; /* a hint, set by the caller: better compiled fast than made to run fast */
    /* Set by the caller: only updates read gradients of parameters, so that a back end need not write them where
     * they are bound. */
    bool hides_gradients;
    bool
        is_precise; /* set by the caller: results are answers (features, predictions), not a step of
                       * training; values inside are f32 whatever the back end's precision */
};

NODISCARD enum der_status graph_new(struct der_ctx *ctx, struct graph **out);
void graph_free(struct graph *g);

/* ---- values from outside --------------------------------------------------------------- */

/* Data, states, scalars, results read back: anything without a gradient. */
NODISCARD enum der_status graph_input(struct graph *g, const char *name, enum dtype dtype,
                                      struct shape shape, int *out);

/* A parameter; it gets a gradient when `trainable`. */
NODISCARD enum der_status graph_param(struct graph *g, const char *name, struct shape shape,
                                      bool trainable, int *out);

/* Lets the caller see a temporary: it becomes external and must be bound. Only values that a
 * node produces, and before compiling. */
NODISCARD enum der_status graph_expose(struct graph *g, int value);

/* ---- forward ops: operands, options, result last -------------------------------------------- */

NODISCARD enum der_status graph_conv2d(struct graph *g, int src, int weights, int stride, int pad,
                                       int *dst);

struct batchnorm_params {
    int gamma, beta, running_mean, running_var; /* value ids, each [c] */
};

/* `training` chooses batch statistics (and updates the running ones) or the running ones. */
NODISCARD enum der_status graph_batchnorm(struct graph *g, int src,
                                          const struct batchnorm_params *params, bool training,
                                          int *dst);
NODISCARD enum der_status graph_relu(struct graph *g, int src, int *dst);
NODISCARD enum der_status graph_add(struct graph *g, int a, int b, int *dst);
NODISCARD enum der_status graph_scale_channel(struct graph *g, int src, int m, int *dst);
NODISCARD enum der_status graph_scale(struct graph *g, int src, int factor, int *dst);
NODISCARD enum der_status graph_maxpool(struct graph *g, int src, int kernel, int stride, int pad,
                                        int *dst);
NODISCARD enum der_status graph_avgpool(struct graph *g, int src, int *dst);
/* `part` must come from graph_avgpool and not be exposed; `matrix` must be an input. */
NODISCARD enum der_status graph_join(struct graph *g, int part, int matrix, int64_t col, int *dst);
/* bias may be NO_VALUE. */
NODISCARD enum der_status graph_linear(struct graph *g, int src, int weights, int bias, int *dst);
NODISCARD enum der_status graph_l2norm(struct graph *g, int src, int *dst);

/* ---- losses and what is measured beside them ------------------------------------------------- */

struct xent_options {
    int64_t first, count; /* columns of the logits; count 0: all from `first` on */
    int64_t label_shift;
    bool clamp_low;
    float temperature; /* 0 means 1 */
};

/* options may be NULL: all columns, labels as they are, temperature 1. The loss value is exposed
 * to be read back; every loss that is added takes part in graph_backward. */
NODISCARD enum der_status graph_softmax_xent(struct graph *g, int logits, int labels, int weight,
                                             const struct xent_options *options, int *loss);

struct distill_options {
    int64_t first, count, teacher_first; /* count is required */
    float temperature;                   /* 0 means 1 */
};
NODISCARD enum der_status graph_distill(struct graph *g, int logits, int teacher, int weight,
                                        const struct distill_options *options, int *loss);
/* teacher may be NO_VALUE when n_old is 0. */
NODISCARD enum der_status graph_bce(struct graph *g, int logits, int labels, int teacher,
                                    int64_t n_old, int weight, int *loss);
NODISCARD enum der_status graph_cosine_loss(struct graph *g, int a, int b, int weight, int *loss);
NODISCARD enum der_status graph_margin_loss(struct graph *g, int scores, int labels, int weight,
                                            int64_t n_old, int top_k, float margin, int *loss);
/* Columns [first, first + count); count 0: all from `first` on. `rank` is exposed. */
NODISCARD enum der_status graph_rank(struct graph *g, int logits, int labels, int64_t first,
                                     int64_t count, int *rank);

/* ---- masks -------------------------------------------------------------------------------- */

NODISCARD enum der_status graph_mask_gate(struct graph *g, int s, const int *e, int n,
                                          enum mask_gradient gradient, float s_max, int *m);
/* Layers and least ([n] or NULL) are copied. loss is exposed. */
NODISCARD enum der_status graph_mask_sparsity(struct graph *g, int weight, const int *m, int n,
                                              const struct sparsity_layer *layers, int n_layers,
                                              const int *least, int *loss);

/* ---- feeding and keeping (FEED, TALLY) -------------------------------------------------------- */

struct feed_inputs {
    int pixels, levels, order, clock;
    int table; /* lines of numbers, one an iteration, or NO_VALUE */
    int64_t table_width;
};

struct feed_outputs {
    int image, labels, now; /* external, to be bound; now is NO_VALUE without a table */
};
NODISCARD enum der_status graph_feed(struct graph *g, const struct feed_inputs *in,
                                     const struct feed_attr *attr, struct feed_outputs *out);

struct tally_item {
    int src, table; /* vectors of one type */
    bool by_row;    /* src has a line for every row of the batch, else one for the iteration */
};

enum { TALLY_MAX = 4 };
NODISCARD enum der_status graph_tally(struct graph *g, int clock, const struct tally_item *items,
                                      int n, int rows);

/* ---- gradients and updates ------------------------------------------------------------------ */

/* Rewrites the forward graph: mask, residual and ReLU into the batch norm before them, and frozen
 * convolution + batch norm (+ residual) (+ ReLU) into one CONV2D_AFFINE. Call before
 * graph_backward; results are the same within rounding. Value ids stay valid but those of fused
 * intermediates, which no longer have a producer. */
NODISCARD enum der_status graph_fuse(struct graph *g);

/* Appends the gradient of the weighted sum of all losses towards every trainable parameter that
 * they reach. values[p].grad then names an external value to be bound; a trainable parameter that
 * no loss depends on is an error. Call once. */
NODISCARD enum der_status graph_backward(struct graph *g);

/* Appends one SGD node over `n` parameters that have gradients. velocity[i] receives a new external
 * value of the parameter's shape. */
NODISCARD enum der_status graph_sgd(struct graph *g, const int *params, int n, int lr,
                                    const struct sgd_attr *attr, int *velocity);

/* ---- for back ends and rewrites --------------------------------------------------------------- */

/* Appends a value or a node without checks beyond memory. */
NODISCARD enum der_status graph_add_value(struct graph *g, const char *name, enum dtype dtype,
                                          struct shape shape, enum value_kind kind, int *out);
NODISCARD enum der_status graph_add_node(struct graph *g, enum op op, const int *in, int n_in,
                                         const int *out, int n_out, const union op_attr *attr);

/* The operand at `position`, NO_VALUE when it is absent. */
static inline int node_in(const struct node *node, int position)
{
    return position < node->n_in ? node->in[position] : NO_VALUE;
}

static inline int node_out(const struct node *node, int position)
{
    return position < node->n_out ? node->out[position] : NO_VALUE;
}

/* Copies a node and all it points to, so that it outlives its graph; false when memory is short. */
bool node_copy(struct arena *arena, const struct node *from, struct node *to);

/* The value whose memory `value` uses: itself but for aliases. */
int graph_storage_of(const struct graph *g, int value);
/* The column of that memory where it begins. */
int64_t graph_column_of(const struct graph *g, int value);

/* True when the node reads, or reads and overwrites, that input. */
bool node_overwrites_input(const struct node *node, int position);

#endif

/*
 * Parameters of one module (an extractor, a head, a set of masks): names, shapes, and flat spans.
 *
 * What is learnt lies in one flat buffer, running statistics in another; while a module is trained,
 * gradients and velocities mirror the first. The optimiser, checkpoints and a later all-reduce are
 * thus loops over spans. A frozen module has no gradient and no velocity.
 *
 *     param_set_new -> param_set_add ... -> param_set_allocate -> init -> params_attach -> params_bind
 */
#ifndef NN_PARAMS_H
#define NN_PARAMS_H

#include "graph/backend.h"

enum param_role {
    PARAM_LEARNT, /* weights, gamma, beta, mask values */
    PARAM_STATE,  /* running mean and variance: kept, never trained */
};

/* How a parameter starts. */
enum param_init {
    INIT_ZERO,
    INIT_ONE,
    INIT_KAIMING_FAN_OUT, /* convolutions: N(0, 2 / (k * k * c_out)) */
    INIT_LINEAR_UNIFORM,  /* U(-1/sqrt(d), 1/sqrt(d)), PyTorch's Linear default */
    INIT_LINEAR_NORMAL,   /* N(0, 1/d), Kaiming normal with linear gain */
    INIT_STANDARD_NORMAL, /* N(0, 1) */
    INIT_UNIFORM_0_2,     /* U(0, 2) */
};

struct param {
    char *name; /* torchvision's, such as "layer1.0.conv1.weight" */
    struct shape shape;
    enum param_role role;
    enum param_init init;
    size_t offset; /* floats from the start of its buffer */
};

struct param_set {
    struct der_ctx *ctx;
    struct backend *be;  /* set by param_set_allocate */
    struct param *items; /* [n] */
    int n, capacity;
    size_t learnt_floats;    /* length of values, grads and velocities, gaps included */
    size_t state_floats;     /* length of states */
    struct buffer *values;   /* learnt parameters */
    struct buffer *states;   /* running statistics */
    struct buffer *grads;    /* NULL when frozen */
    struct buffer *velocity; /* NULL when frozen */
};

NODISCARD enum der_status param_set_new(struct der_ctx *ctx, struct param_set **out);
void param_set_free(struct param_set *set);

/* Adds a parameter; *index receives its number. Only before allocating. */
NODISCARD enum der_status param_set_add(struct param_set *set, const char *name, struct shape shape,
                                        enum param_role role, enum param_init init, int *index);

/* Number of the parameter with that name, or -1. */
int param_set_find(const struct param_set *set, const char *name);

/* Learnt scalars: what papers call "parameters" (running statistics do not count). */
int64_t param_set_count(const struct param_set *set);

/* Takes memory for values and states, zero-filled. */
NODISCARD enum der_status param_set_allocate(struct param_set *set, struct backend *be);

/* Takes (or drops) memory for gradients and velocities. Thawing starts with zero velocity. */
NODISCARD enum der_status param_set_thaw(struct param_set *set);
void param_set_freeze(struct param_set *set);

/* Sets all velocities to zero. */
NODISCARD enum der_status param_set_rest(struct param_set *set);

/* Fills every parameter as its `init` says. `stream` separates modules under one seed. */
NODISCARD enum der_status param_set_init(struct param_set *set, uint64_t seed, uint32_t stream);

/* Copies one parameter from or to the host, dense and row-major. */
NODISCARD enum der_status param_write(struct param_set *set, int index, const float *host);
NODISCARD enum der_status param_read(const struct param_set *set, int index, float *host);
/* The same for its gradient, where the graph that computes it does not hide it (graph.hides_gradients). */
NODISCARD enum der_status param_read_grad(const struct param_set *set, int index, float *host);
/* The same for the velocity of what is learnt, while the set is in training. */
NODISCARD enum der_status param_write_velocity(struct param_set *set, int index, const float *host);
NODISCARD enum der_status param_read_velocity(const struct param_set *set, int index, float *host);

/* Copies values and states from another set of the same names and shapes. */
NODISCARD enum der_status param_set_copy(struct param_set *dst, const struct param_set *src);

/* The parameters of a set as one graph sees them. */
struct param_use {
    struct param_set *set;
    int *value;    /* [set->n] value ids in the graph */
    int *grad;     /* [set->n] their gradients; NO_VALUE where there is none */
    int *velocity; /* [set->n] likewise; filled by params_sgd */
};

/* Declares every parameter of the set in the graph. Free with param_use_fini. */
NODISCARD enum der_status params_attach(struct param_set *set, struct graph *g, bool trainable,
                                        struct param_use *use);
void param_use_fini(struct param_use *use);

/* dst = src W^T + b: W is the set's first parameter, b its second if it has one. */
NODISCARD enum der_status params_linear(const struct param_use *use, struct graph *g, int src,
                                        int *dst);

/* After graph_backward: notes the gradients of the set's parameters. */
void params_note_grads(struct param_use *use, const struct graph *g);

/* Appends the update of all sets in `uses` as one SGD node (call params_note_grads before). */
NODISCARD enum der_status params_sgd(struct param_use *const *uses, int n_uses, struct graph *g,
                                     int lr, const struct sgd_attr *attr);

/* Binds values, states, gradients and velocities of a compiled program. */
NODISCARD enum der_status params_bind(const struct param_use *use, struct program *program);

#endif

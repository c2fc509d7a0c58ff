/*
 * What the representation stage of a step minimises, as a graph:
 *
 *     u = [Phi_1(x), ..., Phi_{t-1}(x), F_t(x)]
 *     L = L_CE(H_t(u), y) + lambda_a L_CE(H_a(F_t(x)), y_a) + lambda_s L_S(m),   m = sigmoid(s e)
 *
 * forward, backward and update. Weights and masks are updated by one SGD each. Once hard masks have been cut out
 * (cut.h) F_t is the network that they leave, and L_S a number.
 */
#ifndef METHOD_OBJECTIVE_H
#define METHOD_OBJECTIVE_H

#include "config/config.h"
#include "train/assembly.h"

/* What changes from iteration to iteration. */
enum {
    OBJECTIVE_LR,
    OBJECTIVE_ONE, /* weight of the main loss */
    OBJECTIVE_LAMBDA_A,
    OBJECTIVE_LAMBDA_S,
    OBJECTIVE_S,
    OBJECTIVE_SCALARS
};

struct objective {
    const struct config *config;
    struct extractor *extractor; /* F_t: full width, or what is left of it */
    struct extractor *whole;     /* F_t before it was cut, frozen; NULL: it has not been */
    struct param_set *head;      /* H_t [classes, columns of u] */
    struct param_set *auxiliary; /* H_a [new classes + 1, columns of F_t], or NULL */
    struct param_set *masks;     /* e, or NULL */
    bool has_least;
    int least[RESNET_MAX_MASKS]; /* channels of every mask that L_S leaves open, if it does */
    int n_old;                   /* classes of earlier steps: label 0 of H_a */
};

/* Names of the losses, in the order of assembly_io.loss; returns how many. */
int objective_losses(const struct objective *objective, const char *names[STAGE_MAX_LOSSES]);

/* Appends it to a graph; the new features take the last columns of io->matrix. `self` is a struct
 * objective: this is a `describe` of an assembly plan. */
NODISCARD enum der_status objective_describe(void *self, struct graph *g, struct assembly_io *io);

#endif

/*
 * What the representation stage of a step minimises, as a graph:
 *
 *     u = [Phi_1(x), ..., Phi_{t-1}(x), F_t(x)]
 *     L = L_CE(H_t(u), y) + lambda_a L_CE(H_a(F_t(x)), y_a) + lambda_s L_S(m),   m = sigmoid(s e)
 *
 * forward, backward and update. Weights and masks are updated by one SGD each. Once hard masks have been cut out
 * (cut.h) F_t is the network that they leave, and L_S a number.
 *
 * A network that is trained on, not beside others, may have a teacher: itself as it was before the step, Phi_{t-1} with
 * the head H_{t-1}. Then u = F_t(x) alone, and with softmax_T over the classes that the teacher knows
 *
 *     L = w L_CE(H_t(u), y) + lambda_d L_KD,
 *     L_KD = -sum softmax_T(H_{t-1}(Phi_{t-1}(x))) log softmax_T(H_t(u))
 */
#ifndef METHOD_OBJECTIVE_H
#define METHOD_OBJECTIVE_H

#include "config/config.h"
#include "train/assembly.h"

/* What changes from iteration to iteration. */
enum {
    OBJECTIVE_LR,
    OBJECTIVE_MAIN, /* w: 1 but where distillation shares it */
    OBJECTIVE_LAMBDA_A,
    OBJECTIVE_LAMBDA_S,
    OBJECTIVE_S,
    OBJECTIVE_LAMBDA_D,
    OBJECTIVE_SCALARS
};

struct objective {
    const struct config *config;
    struct extractor *extractor; /* F_t: full width, or what is left of it */
    struct extractor *whole;     /* F_t before it was cut, frozen; NULL: it has not been */
    struct param_set *head;      /* H_t [classes, columns of u] */
    struct param_set *auxiliary; /* H_a [new classes + 1, columns of F_t], or NULL */
    struct param_set *masks;     /* e, or NULL */
    struct param_set *teacher; /* H_{t-1}, which reads the frozen features; borrowed; NULL: none */
    bool has_least;
    int least[RESNET_MAX_MASKS]; /* channels of every mask that L_S leaves open, if it does */
    int n_old;                   /* classes of earlier steps: label 0 of H_a */
};

/* Names of the losses, in the order of assembly_io.loss; returns how many. */
int objective_losses(const struct objective *objective, const char *names[STAGE_MAX_LOSSES]);

/* Appends it to a graph; the new features take the last columns of io->matrix, unless a teacher has all of them. `self` is a struct
 * objective: this is a `describe` of an assembly plan. */
NODISCARD enum der_status objective_describe(void *self, struct graph *g, struct assembly_io *io);

#endif

/*
 * The cases every back end has to pass: for each op, shapes and options that are awkward on
 * purpose (odd sizes, channels that fill no vector register, single samples, pitches).
 */
#ifndef SUPPORT_CASES_H
#define SUPPORT_CASES_H

#include "support/opcase.h"

/* Receives cases one by one. A case is borrowed for the length of the call. */
struct case_sink {
    void (*visit)(void *user, const struct op_case *c);
    void *user;
    uint32_t n_visited; /* so far; numbers the cases */
};

/* Hands over one case. */
void case_emit(struct case_sink *sink, struct op_case c);

/* All cases of an op. JOIN has none: it is about memory that two values share, so that its tests
 * need more than one node. */
void cases_of(enum op op, struct case_sink *sink);

/* ---- by group, one file each --------------------------------------------------------------- */

void cases_conv(enum op op, struct case_sink *sink);
void cases_batchnorm(enum op op, struct case_sink *sink);
void cases_batchnorm_grad(enum op op, struct case_sink *sink);
void cases_pointwise(enum op op, struct case_sink *sink);
void cases_pool(enum op op, struct case_sink *sink);
void cases_linear(enum op op, struct case_sink *sink);
void cases_l2norm(enum op op, struct case_sink *sink);
void cases_logits_loss(enum op op, struct case_sink *sink);
void cases_pair_loss(enum op op, struct case_sink *sink);
void cases_mask(enum op op, struct case_sink *sink);
void cases_sgd(enum op op, struct case_sink *sink);
void cases_feed(enum op op, struct case_sink *sink);

#endif

/*
 * Heads: linear maps from features to logits, each a matrix in a set of its own. Those that are trained have no bias.
 */
#ifndef METHOD_HEAD_H
#define METHOD_HEAD_H

#include "nn/params.h"

/* A trainable head [rows, cols], filled as `init` says. Caller frees with param_set_free. */
NODISCARD enum der_status head_new(struct backend *be, const char *name, int64_t rows, int64_t cols,
                                   enum param_init init, uint64_t seed, uint32_t stream,
                                   struct param_set **out);

/* Starts anew, uniform in +-1/sqrt(cols); the velocity lives on. */
NODISCARD enum der_status head_reset(struct param_set *head, uint64_t seed, uint32_t stream);

/* Copies the rows and columns that both have: H_t begins as H_{t-1}. */
NODISCARD enum der_status head_inherit(struct param_set *head, const struct param_set *from);

/* Aligns the rows from n_old on with those before: gamma = mean |w_old| / mean |w_new| scales them. Nothing happens where
 * either mean is 0. */
NODISCARD enum der_status head_align(struct param_set *head, int64_t n_old);

/* *out: a frozen head whose rows from n_old on are scale times those, with a bias that is `offset` for them and 0 for the
 * others. */
NODISCARD enum der_status head_correct(const struct param_set *head, int64_t n_old, double scale,
                                       double offset, struct param_set **out);

/* *out: the head without the columns that are not listed, in training, with its velocities if it has any.
 * cols [n_cols] ascending. */
NODISCARD enum der_status head_select(const struct param_set *head, const int32_t *cols,
                                      int64_t n_cols, struct param_set **out);

#endif

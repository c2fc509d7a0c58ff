/*
 * The closed set of operations, and what each one means.
 *
 * This file is the contract between whoever builds a graph and whoever runs it: every back end
 * implements every op exactly as written here. `?` marks an operand that may be absent (id -1),
 * `!` an input that the op also overwrites, `...` a variable number of operands.
 * Images are [n, c, h, w], matrices [n, d]; f32 unless marked i32. A scalar is an f32 [1]
 * external, so that what changes from iteration to iteration (learning rate, loss weights, s)
 * is data and never part of a compiled program.
 *
 * Convolution
 *   CONV2D             src, weights[k,c,r,s]                  -> dst
 *   CONV2D_D_SRC       d_dst, weights                         -> d_src
 *   CONV2D_D_WEIGHTS   src, d_dst                             -> d_weights
 *   CONV2D_AFFINE      src, weights, gamma, beta, mean, var, residual?   -> dst
 *       dst = relu?(conv(src, weights) * a + b + residual), a = gamma / sqrt(var + eps),
 *       b = beta - mean * a. Inference only: it has no gradient.
 *
 * Batch normalisation, with everything that usually follows it
 *   BATCHNORM          src, gamma, beta, running_mean!, running_var!, mask?, residual?
 *                                                             -> dst, mean[c], inv_std[c]
 *       x^ = (src - mean) * inv_std;  z = mask * (gamma * x^ + beta) + residual;
 *       dst = relu ? max(z, 0) : z.
 *       training: mean and biased variance of this batch; running = (1 - momentum) * running
 *       + momentum * batch, with the unbiased variance n/(n-1). Otherwise the running values
 *       serve as mean and variance and stay as they are.
 *       src is [n, c, h, w] or [n, c].
 *   BATCHNORM_GRAD     d_dst, d_dst2?, src, dst?, gamma, beta, mean, inv_std, mask?
 *                                       -> d_src?, d_gamma?, d_beta?, d_mask?, d_residual?
 *       g = d_dst + d_dst2, set to 0 where relu and dst <= 0; dst is present exactly when relu.
 *       d_residual = g; d_gamma' = sum g x^, d_beta' = sum g over n, h, w;
 *       d_gamma = mask d_gamma', d_beta = mask d_beta', d_mask = gamma d_gamma' + beta d_beta';
 *       training: d_src = gamma mask inv_std (g - (d_beta' + x^ d_gamma') / count),
 *       otherwise d_src = gamma mask inv_std g.
 *
 * Pointwise
 *   RELU               src -> dst                 RELU_GRAD  d_dst, dst -> d_src
 *   ADD                a, ... -> dst              (one or more, equal shapes; one is a copy)
 *   SCALE_CHANNEL      src, m[c] -> dst           dst = src * m, per channel (dimension 1)
 *   SCALE_CHANNEL_GRAD d_dst, src, m -> d_src?, d_m?
 *   SCALE              src, factor[1] -> dst      SCALE_GRAD d_dst, src, factor -> d_src?, d_factor?
 *
 * Pooling
 *   MAXPOOL            src -> dst, index(i32)     index: h * w position of the first maximum
 *   MAXPOOL_GRAD       d_dst, index -> d_src      overlapping windows add up
 *   AVGPOOL            src[n,c,h,w] -> dst[n,c]   over all of h, w
 *   AVGPOOL_GRAD       d_dst[n,c] -> d_src[n,c,h,w]
 *
 * Matrices
 *   JOIN               part[n,d], matrix![n,D] -> dst[n,D]
 *       The matrix once `part` stands in its columns [col, col + d). Costs nothing: `part` is
 *       stored there from the start, and dst is the matrix. Its gradient is that of `part`
 *       alone, [n, d]: the other columns belong to frozen extractors.
 *   LINEAR             src[n,d], weights[k,d], bias?[k] -> dst[n,k]
 *   LINEAR_D_SRC       d_dst, weights -> d_src[n, count]    columns [first, first + count) of d
 *   LINEAR_D_WEIGHTS   src, d_dst -> d_weights?, d_bias?
 *   L2NORM             src[n,d] -> dst, inv_norm[n]         dst = src / max(|src|, eps), by row
 *   L2NORM_GRAD        d_dst, dst, inv_norm -> d_src        d_dst / eps for rows shorter than eps
 *
 * Losses: the unweighted value, and at once the gradient times `weight`
 *   SOFTMAX_XENT       logits[n,c], labels i32[n], weight[1] -> loss[1], d_logits?
 *       t = label - label_shift, raised to 0 when clamp_low; rows with t outside [0, count) do
 *       not take part. Cross-entropy of softmax(logits[first .. first+count) / temperature)
 *       with target t, mean over the rows that take part (0 if none does).
 *   DISTILL            logits[n,c], teacher[n,ct], weight -> loss, d_logits?
 *       p = softmax(teacher[teacher_first ..] / T), q = softmax(logits[first ..] / T), both over
 *       `count` columns: mean over rows of -sum p log q. The teacher gets no gradient.
 *   BCE                logits[n,c], labels i32[n], teacher?[n,ct], weight -> loss, d_logits?
 *       Sigmoid cross-entropy, mean over all n * c entries; the target of column j is
 *       sigmoid(teacher_j) for j < n_old, else 1 when j is the label and 0 when not.
 *   COSINE_LOSS        a[n,d], b[n,d], weight -> loss, d_a?   mean of 1 - cos(a, b); b fixed;
 *       lengths below 1e-12 count as that
 *   MARGIN_LOSS        scores[n,c], labels i32[n], weight -> loss, d_scores?
 *       For rows with 0 <= label < n_old: max(0, margin - score_label + score_j) for the top_k
 *       highest columns j >= n_old; mean over those rows and their top_k terms (0 if no row).
 *   RANK               logits[n,c], labels i32[n] -> rank i32[n]
 *       How many columns of [first, first + count) beat the label's: a larger logit, or an
 *       equal one further left. Top-k accuracy counts rank < k. A label outside [0, c), or one
 *       with a NaN logit, has rank `count`: it is never among the top.
 *
 * Channel masks (one op serves all masks of an extractor)
 *   MASK_GATE          s[1], e... -> m...
 *       m = max(sigmoid(s e), 1e-20): a soft mask is never 0, for a ReLU behind a 0 would keep the
 *       task's gradient from a channel that is off, and it could not come back.
 *       s = infinity means hard masks: m = 1 where e > 0, else 0, and the
 *       largest e (the first of equals) counts as > 0, so that no mask is empty.
 *   MASK_GATE_GRAD     s[1], e..., d_m... -> d_e...
 *       exact: d_e = d_m sigmoid(e) (1 - sigmoid(e)), the compensated gradient in closed form;
 *       hat: d_m * y (1 - y) s_max (cosh(clip(s e, 50)) + 1) / (cosh(e) + 1), y = sigmoid(s e)
 *       computed in double and rounded to float. 0 when s is infinite: hard masks do not move.
 *   MASK_SPARSITY      weight[1], m... -> loss[1], d_m?...
 *       L_S = (1 / W) sum_l K_l n_in(l) n_out(l), n = sum of the mask; d_m times `weight`, 0 for a mask of which no more
 *       than `least` channels are open (m > 1/2, whatever s is).
 *
 * Update
 *   SGD                lr[1], (p!, g, v!)...
 *       v = momentum v + (g + decay p), rounded to float;  p = clamp(p - lr gain v, low, high).
 *
 * Iterations that follow each other without the caller: data that the back end holds, counted by a clock
 * (i32[CLOCK_WORDS], see graph/feed_math.h). All operands are vectors; they have no gradient.
 *   FEED               pixels i32[...], levels[c * 256], order i32[2 m], table?[r k], clock
 *                                       -> image[batch c oh ow], labels i32[batch], now?[k]
 *       pixels: the bytes of images [c, h, w] one behind the other, four to a word. Row i of the batch is
 *       item clock.row + i of the order, the last one past its end: a sample and its label. Its image is
 *       cut, flipped and brightened as (seed, epoch, sample) draw, and every byte becomes the number that
 *       levels [c, 256] has for it: exactly what data/augment.h gives. now = row clock.iteration of the
 *       table, the last one past its end.
 *   TALLY              clock!, (src, table!)...
 *       Keeps numbers of an iteration: src k, of any type, is copied behind what earlier iterations put
 *       into table k, at clock.row or, where by_row has no bit k, clock.iteration times its width;
 *       numbers past the end of a table are dropped. Then clock.row += rows, clock.iteration += 1.
 */
#ifndef GRAPH_OP_H
#define GRAPH_OP_H

#include "graph/feed_math.h"

#include <stdbool.h>
#include <stdint.h>

/* The smallest value of a soft mask (MASK_GATE). */
#define MASK_SOFT_FLOOR 1e-20

/* One row per op: constant, name in messages. */
#define OP_LIST(X)                                                                                 \
    X(OP_CONV2D, "conv2d")                                                                         \
    X(OP_CONV2D_D_SRC, "conv2d_d_src")                                                             \
    X(OP_CONV2D_D_WEIGHTS, "conv2d_d_weights")                                                     \
    X(OP_CONV2D_AFFINE, "conv2d_affine")                                                           \
    X(OP_BATCHNORM, "batchnorm")                                                                   \
    X(OP_BATCHNORM_GRAD, "batchnorm_grad")                                                         \
    X(OP_RELU, "relu")                                                                             \
    X(OP_RELU_GRAD, "relu_grad")                                                                   \
    X(OP_ADD, "add")                                                                               \
    X(OP_SCALE_CHANNEL, "scale_channel")                                                           \
    X(OP_SCALE_CHANNEL_GRAD, "scale_channel_grad")                                                 \
    X(OP_SCALE, "scale")                                                                           \
    X(OP_SCALE_GRAD, "scale_grad")                                                                 \
    X(OP_MAXPOOL, "maxpool")                                                                       \
    X(OP_MAXPOOL_GRAD, "maxpool_grad")                                                             \
    X(OP_AVGPOOL, "avgpool")                                                                       \
    X(OP_AVGPOOL_GRAD, "avgpool_grad")                                                             \
    X(OP_JOIN, "join")                                                                             \
    X(OP_LINEAR, "linear")                                                                         \
    X(OP_LINEAR_D_SRC, "linear_d_src")                                                             \
    X(OP_LINEAR_D_WEIGHTS, "linear_d_weights")                                                     \
    X(OP_L2NORM, "l2norm")                                                                         \
    X(OP_L2NORM_GRAD, "l2norm_grad")                                                               \
    X(OP_SOFTMAX_XENT, "softmax_xent")                                                             \
    X(OP_DISTILL, "distill")                                                                       \
    X(OP_BCE, "bce")                                                                               \
    X(OP_COSINE_LOSS, "cosine_loss")                                                               \
    X(OP_MARGIN_LOSS, "margin_loss")                                                               \
    X(OP_RANK, "rank")                                                                             \
    X(OP_MASK_GATE, "mask_gate")                                                                   \
    X(OP_MASK_GATE_GRAD, "mask_gate_grad")                                                         \
    X(OP_MASK_SPARSITY, "mask_sparsity")                                                           \
    X(OP_SGD, "sgd")                                                                               \
    X(OP_FEED, "feed")                                                                             \
    X(OP_TALLY, "tally")

enum op {
#define OP_ENUM(constant, name) constant,
    OP_LIST(OP_ENUM)
#undef OP_ENUM
        OP_COUNT
};

/* Operand positions, so that no back end counts commas. */
enum { CONV_SRC, CONV_WEIGHTS };
enum { CONV_D_SRC_D_DST, CONV_D_SRC_WEIGHTS };
enum { CONV_D_WEIGHTS_SRC, CONV_D_WEIGHTS_D_DST };
enum {
    AFFINE_SRC,
    AFFINE_WEIGHTS,
    AFFINE_GAMMA,
    AFFINE_BETA,
    AFFINE_MEAN,
    AFFINE_VAR,
    AFFINE_RESIDUAL,
    AFFINE_N_IN
};
enum { BN_SRC, BN_GAMMA, BN_BETA, BN_RUNNING_MEAN, BN_RUNNING_VAR, BN_MASK, BN_RESIDUAL, BN_N_IN };
enum { BN_DST, BN_MEAN, BN_INV_STD, BN_N_OUT };
enum {
    BNG_D_DST,
    BNG_D_DST2,
    BNG_SRC,
    BNG_DST,
    BNG_GAMMA,
    BNG_BETA,
    BNG_MEAN,
    BNG_INV_STD,
    BNG_MASK,
    BNG_N_IN
};
enum { BNG_D_SRC, BNG_D_GAMMA, BNG_D_BETA, BNG_D_MASK, BNG_D_RESIDUAL, BNG_N_OUT };
enum { LOSS_LOGITS, LOSS_LABELS, LOSS_WEIGHT }; /* SOFTMAX_XENT, MARGIN_LOSS, RANK */
enum { PAIR_LOSS_LOGITS, PAIR_LOSS_TEACHER, PAIR_LOSS_WEIGHT }; /* DISTILL, COSINE_LOSS */
enum { BCE_LOGITS, BCE_LABELS, BCE_TEACHER, BCE_WEIGHT };
enum { LOSS_VALUE, LOSS_D_LOGITS }; /* outputs of every loss */

enum { FEED_PIXELS, FEED_TABLE_LEVELS, FEED_ORDER, FEED_TABLE, FEED_CLOCK, FEED_N_IN };
enum { FEED_IMAGE, FEED_LABELS, FEED_NOW, FEED_N_OUT };
enum { TALLY_CLOCK, TALLY_FIRST }; /* then src, table, src, table, ... */

enum mask_gradient { MASK_GRADIENT_EXACT, MASK_GRADIENT_HAT };

/* A convolution as the sparsity loss sees it. */
struct sparsity_layer {
    int in_mask;     /* index among the m operands, -1: the image itself */
    int out_mask;    /* index among the m operands */
    int kernel_area; /* K_l: 9 or 1, 49 for the ImageNet stem */
    int in_channels; /* n_in when in_mask is -1 */
};

struct conv_attr {
    int stride, pad;
    float eps; /* CONV2D_AFFINE only */
    bool relu; /* CONV2D_AFFINE only */
};

struct norm_attr {
    float eps;
    float momentum; /* weight of the new batch in the running statistics */
    bool training;
    bool relu;
};

struct pool_attr {
    int kernel, stride, pad;
};

struct column_attr {
    int64_t first, count;
};

struct loss_attr {
    int64_t first, count;  /* columns of the logits that take part */
    int64_t teacher_first; /* DISTILL: first column of the teacher */
    int64_t label_shift;   /* SOFTMAX_XENT: t = label - label_shift */
    bool clamp_low;        /* SOFTMAX_XENT: negative t become 0 ("any old class") */
    float temperature;     /* SOFTMAX_XENT, DISTILL */
    int64_t n_old;         /* BCE, MARGIN_LOSS */
    int top_k;             /* MARGIN_LOSS */
    float margin;          /* MARGIN_LOSS */
};

struct mask_attr {
    enum mask_gradient gradient; /* MASK_GATE and its gradient */
    float s_max;                 /* hat gradient */
};

struct sparsity_attr {
    const struct sparsity_layer *layers; /* [n_layers], in the graph's arena */
    int n_layers;
    double total;     /* W: the same sum with all masks at 1 */
    const int *least; /* [masks] in the graph's arena; NULL: all masks have their gradient always */
};

struct sgd_attr {
    float momentum, decay;
    float gain;      /* multiplies lr; 1 for weights */
    float low, high; /* clamp of p; -INFINITY and INFINITY for weights */
};

struct tally_attr {
    int rows;        /* of the batch */
    unsigned by_row; /* bit k: src k has `rows` lines, else one for the iteration */
};

/* What distinguishes one use of an op from another. */
union op_attr {
    struct conv_attr conv;
    struct norm_attr norm;
    struct pool_attr pool;
    struct column_attr columns; /* JOIN (first), LINEAR_D_SRC */
    struct loss_attr loss;
    struct mask_attr mask;
    struct sparsity_attr sparsity;
    struct sgd_attr sgd;
    struct feed_attr feed;
    struct tally_attr tally;
    float eps; /* L2NORM */
};

/* Name of an op as messages show it. Static storage. */
const char *op_name(enum op op);

#endif

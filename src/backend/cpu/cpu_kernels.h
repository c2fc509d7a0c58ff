/*
 * The loops the cpu back end runs itself: everything but convolutions and matrix products.
 *
 * They are plain C over OpenMP with fixed partitions, so that results depend neither on timing
 * nor on the number of threads. graph/op.h says what each of them computes. Images come in
 * whatever layout the convolutions asked for; all layouts in use are one family:
 *
 *     [n][ceil(c / block)][spatial][block]
 *
 * block 1 is NCHW, 8 and 16 are oneDNN's nChw8c and nChw16c (channels past c are zeros and must
 * stay zeros), block == c is NHWC. An [n, c] matrix without pitch is an image of spatial 1 and
 * block 1. Matrices are row-major with a pitch.
 *
 * Scratch belongs to the caller, is aligned to MEM_ALIGNMENT and need not be initialised.
 * Unless it says otherwise, an output may be the very array of an input of equal size and
 * layout; arrays never overlap in part.
 */
#ifndef CPU_KERNELS_H
#define CPU_KERNELS_H

#include "graph/op.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Sizes and layout of an image; several arrays of one call share it. */
struct cpu_image {
    int64_t n, c, spatial;
    int64_t block; /* 1, 8, 16 or c */
};

/* Floats that an image occupies, padding included. */
int64_t cpu_image_floats(struct cpu_image image);

/* Scratch of the kernels that sum over images: batch norm in both directions and
 * SCALE_CHANNEL_GRAD. */
int64_t cpu_bn_scratch_floats(struct cpu_image image);

struct cpu_matrix {
    float *data; /* NULL where an operand is absent */
    int64_t rows, cols;
    int64_t pitch; /* floats from one row to the next */
};

/* ---- cpu_norm.c, cpu_norm_grad.c: batch norm with mask, residual and ReLU --------------------- */

struct cpu_bn {
    struct cpu_image image; /* of src, dst, residual and their gradients */
    const float *src;
    const float *gamma, *beta;         /* [c] */
    float *running_mean, *running_var; /* [c]; written in training */
    const float *mask;                 /* [c] or NULL */
    const float *residual;             /* or NULL */
    float *dst;                        /* may be src or residual */
    float *mean, *inv_std;             /* [c] */
    float eps, momentum;
    bool training, relu;
    float *scratch; /* cpu_bn_scratch_floats() */
};

struct cpu_bn_grad {
    struct cpu_image image;
    const float *d_dst, *d_dst2; /* d_dst2 may be NULL */
    const float *src, *dst;      /* dst: NULL without ReLU */
    const float *gamma, *beta, *mean, *inv_std;
    const float *mask;                                     /* or NULL */
    float *d_src, *d_gamma, *d_beta, *d_mask, *d_residual; /* each may be NULL */
    bool training, relu;
    float *scratch; /* cpu_bn_scratch_floats() */
};

void cpu_bn(const struct cpu_bn *bn, int threads);
/* d_src may be the array of any image operand, d_residual that of d_dst, d_dst2 or dst; they
 * must not be each other's. */
void cpu_bn_grad(const struct cpu_bn_grad *bn, int threads);

/* ---- cpu_pointwise.c: element by element, and between layouts --------------------------------- */

/* The flat ones are layout-blind: `count` includes padding, and f(0) = 0 keeps it zero. */
void cpu_relu(float *dst, const float *src, int64_t count, int threads);
void cpu_relu_grad(float *d_src, const float *d_dst, const float *dst, int64_t count, int threads);
/* dst = src[0] + src[1] + ..., summed in that order; n >= 1. dst may be any of them. */
void cpu_add(float *dst, float *const *src, int n, int64_t count, int threads);
void cpu_scale(float *dst, const float *src, const float *factor, int64_t count, int threads);

struct cpu_scale_grad {
    int64_t count;
    const float *d_dst, *src; /* [count] */
    const float *factor;      /* [1] */
    float *d_src;             /* [count] or NULL */
    float *d_factor;          /* [1] or NULL */
    float *scratch;           /* CPU_FLAT_SCRATCH_FLOATS; unused when d_factor is NULL */
};
enum { CPU_FLAT_SCRATCH_FLOATS = 512 };
void cpu_scale_grad(const struct cpu_scale_grad *args, int threads);

struct cpu_scale_channel {
    struct cpu_image image;
    const float *src;
    const float *m; /* [c] */
    float *dst;
};
void cpu_scale_channel(const struct cpu_scale_channel *args, int threads);

struct cpu_scale_channel_grad {
    struct cpu_image image;
    const float *d_dst, *src;
    const float *m; /* [c] */
    float *d_src;   /* or NULL */
    float *d_m;     /* [c] or NULL */
    float *scratch; /* cpu_bn_scratch_floats(); unused when d_m is NULL */
};
void cpu_scale_channel_grad(const struct cpu_scale_channel_grad *args, int threads);

/* Copies an image of layout `image.block` into layout `dst_block`, padding with zeros. dst must
 * not be src. */
void cpu_reorder(float *dst, int64_t dst_block, const float *src, struct cpu_image image,
                 int threads);

/* ---- cpu_pool.c ------------------------------------------------------------------------------- */

struct cpu_pool_shape {
    int64_t n, c;
    int64_t h, w;         /* of src */
    int64_t out_h, out_w; /* of dst */
    int64_t block;        /* layout of src, dst, index and the gradients alike */
    struct pool_attr attr;
};

struct cpu_maxpool {
    struct cpu_pool_shape shape;
    const float *src;
    float *dst;     /* must not be src */
    int32_t *index; /* laid out like dst; or NULL */
};
void cpu_maxpool(const struct cpu_maxpool *args, int threads);

struct cpu_maxpool_grad {
    struct cpu_pool_shape shape;
    const float *d_dst;
    const int32_t *index;
    float *d_src; /* must not be d_dst */
};
void cpu_maxpool_grad(const struct cpu_maxpool_grad *args, int threads);

/* dst and d_dst are [n, c]. */
void cpu_avgpool(struct cpu_matrix dst, const float *src, struct cpu_image image, int threads);
void cpu_avgpool_grad(float *d_src, struct cpu_matrix d_dst, struct cpu_image image, int threads);

/* ---- cpu_matrix.c ----------------------------------------------------------------------------- */

/* inv_norm [rows] = 1 / max(|src|, eps). */
void cpu_l2norm(struct cpu_matrix dst, float *inv_norm, struct cpu_matrix src, float eps);
/* eps as in the forward op: rows that it held up have a constant divisor. */
void cpu_l2norm_grad(struct cpu_matrix d_src, struct cpu_matrix d_dst, struct cpu_matrix dst,
                     const float *inv_norm, float eps);
/* Every row of dst += bias [cols]. */
void cpu_bias_add(struct cpu_matrix dst, const float *bias);
/* d_bias [cols] = sum of the rows of d_dst. */
void cpu_bias_grad(float *d_bias, struct cpu_matrix d_dst);

/* ---- cpu_loss.c ------------------------------------------------------------------------------- */

struct cpu_loss {
    struct cpu_matrix logits;  /* scores of MARGIN_LOSS, a of COSINE_LOSS */
    struct cpu_matrix teacher; /* DISTILL, BCE (may be absent); b of COSINE_LOSS */
    const int32_t *labels;     /* [rows]; SOFTMAX_XENT, BCE, MARGIN_LOSS */
    const float *weight;       /* [1] */
    struct loss_attr attr;
    float *loss;                /* [1] */
    struct cpu_matrix d_logits; /* may be absent; every entry is written */
};
void cpu_softmax_xent(const struct cpu_loss *args);
void cpu_distill(const struct cpu_loss *args);
void cpu_bce(const struct cpu_loss *args);
void cpu_cosine_loss(const struct cpu_loss *args);
void cpu_margin_loss(const struct cpu_loss *args); /* d_logits must not be logits */

/* rank [rows]; uses first and count. */
void cpu_rank(int32_t *rank, struct cpu_matrix logits, const int32_t *labels,
              const struct loss_attr *attr);

/* ---- cpu_mask.c: all masks of an extractor at once --------------------------------------------- */

struct cpu_mask_gate {
    int n;                /* masks */
    const int64_t *sizes; /* [n] channels of each */
    const float *s;       /* [1] */
    float *const *e;      /* [n][sizes] */
    float *const *m;      /* [n][sizes], written */
};
void cpu_mask_gate(const struct cpu_mask_gate *args);

struct cpu_mask_gate_grad {
    int n;
    const int64_t *sizes;
    const float *s;
    float *const *e;
    float *const *d_m;
    float *const *d_e; /* written */
    struct mask_attr attr;
};
void cpu_mask_gate_grad(const struct cpu_mask_gate_grad *args);

struct cpu_mask_sparsity {
    int n;
    const int64_t *sizes;
    const float *weight; /* [1] */
    float *const *m;
    float *const *d_m; /* written; NULL, or NULL entries: not wanted */
    float *loss;       /* [1] */
    struct sparsity_attr attr;
    float *scratch; /* 4 * n floats */
};
void cpu_mask_sparsity(const struct cpu_mask_sparsity *args);

/* ---- cpu_sgd.c -------------------------------------------------------------------------------- */

struct cpu_sgd_span {
    float *p;
    const float *g;
    float *v;
    int64_t count;
};
void cpu_sgd(const struct cpu_sgd_span *spans, int n, const float *lr, const struct sgd_attr *attr,
             int threads);

#endif

/*
 * The kernels of the cuda back end: raw pointers, sizes and a stream in, a launch out.
 *
 * This and what FEED is made of (graph/feed_math.h) are the only headers of the project that nvcc reads;
 * everything around the kernels is C.
 * graph/op.h says what each of them computes. Sums have a fixed order, whatever the scheduler
 * does: blocks write partial sums, and the block that finishes last, or every block that wants them,
 * adds them up.
 *
 * Images lie as [n, h, w, stored] with the channels rounded up to CUDA_CHANNELS; channels past the
 * real ones are zeros and must stay zeros. To a kernel that works channel by channel an image is a
 * matrix of n * h * w rows. Every function returns what the launch returned.
 */
#ifndef CUDA_KERNELS_H
#define CUDA_KERNELS_H

#include "graph/feed_math.h"

#include <cuda_runtime_api.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { CUDA_CHANNELS = 8 }; /* tensor cores want channels in eights; 16 bytes of bf16 */

enum cuda_type { CUDA_F32, CUDA_BF16, CUDA_I32 };

/* A matrix, an image by pixels, or a vector as one row. */
struct cuda_rows {
    void *data; /* NULL where an operand is absent */
    int64_t rows;
    int64_t cols;   /* numbers that count */
    int64_t stored; /* columns that have memory and are written; past cols they are zeros */
    int64_t pitch;  /* elements from one row to the next */
    enum cuda_type type;
};

/* ---- norm.cu, norm_grad.cu ------------------------------------------------------------------ */

struct cuda_bn {
    struct cuda_rows src, residual, dst; /* residual may be absent */
    const float *gamma, *beta;           /* [cols] */
    float *running_mean, *running_var;   /* [cols]; written in training */
    const float *mask;                   /* [cols] or NULL */
    float *mean, *inv_std;               /* [cols], each may be NULL */
    float eps, momentum;
    bool training, relu;
    void *scratch; /* cuda_bn_scratch() bytes */
    /* Partial sums that lie in `scratch` already, as cuda_strip_summed() and cuda_thin_summed() leave them; 0: none. */
    int summed;
    bool in_passes; /* small images are read twice, as large ones are */
};
cudaError_t cuda_bn(const struct cuda_bn *bn, cudaStream_t stream);

struct cuda_bn_grad {
    struct cuda_rows d_dst, d_dst2, src, dst; /* d_dst2 may be absent; dst: present with relu */
    struct cuda_rows d_src, d_residual;       /* each may be absent */
    /* Of d_dst2 the pixels of even rows and columns alone may be stored, the others being zeros, where images have an even
     * number of rows and 2^log_w columns; 0: all are. */
    int log_w;
    const float *gamma, *beta, *mean, *inv_std;
    const float *mask;                /* or NULL */
    float *d_gamma, *d_beta, *d_mask; /* each may be NULL */
    bool training, relu;
    void *scratch;
    /* Partial sums that lie in `scratch` already, as cuda_strip_d_src_summed() and cuda_thin_d_src_summed() leave them; 0: none. d_dst is
     * then what it has written, which d_residual, if there is one, is too; d_dst2 and dst are not read. */
    int summed;
    bool in_passes; /* as above */
};
/* d_src may be the array of any image operand, d_residual that of d_dst, d_dst2 or dst, but not of a d_dst2 without zeros;
 * they must not be each other's. */
cudaError_t cuda_bn_grad(const struct cuda_bn_grad *bn, cudaStream_t stream);

size_t cuda_bn_scratch(int64_t stored);
/* Of images in bf16, which so many blocks sum up. */
size_t cuda_bn_sums(int64_t stored, int64_t parts);

/* ---- pointwise.cu: element by element, operands of equal rows and columns ---------------------- */

enum { CUDA_ADD_MAX = 8 };

cudaError_t cuda_relu(struct cuda_rows dst, struct cuda_rows src, cudaStream_t stream);
cudaError_t cuda_relu_grad(struct cuda_rows d_src, struct cuda_rows d_dst, struct cuda_rows dst,
                           cudaStream_t stream);
/* dst = src[0] + ... + src[n - 1], 1 <= n <= CUDA_ADD_MAX; dst may be any of them. */
cudaError_t cuda_add(struct cuda_rows dst, const struct cuda_rows *src, int n, cudaStream_t stream);
cudaError_t cuda_scale(struct cuda_rows dst, struct cuda_rows src, const float *factor,
                       cudaStream_t stream);
/* d_src may be absent, d_factor NULL. */
cudaError_t cuda_scale_grad(struct cuda_rows d_src, float *d_factor, struct cuda_rows d_dst,
                            struct cuda_rows src, const float *factor, cudaStream_t stream);
cudaError_t cuda_scale_channel(struct cuda_rows dst, struct cuda_rows src, const float *m,
                               cudaStream_t stream);
cudaError_t cuda_scale_channel_grad(struct cuda_rows d_src, float *d_m, struct cuda_rows d_dst,
                                    struct cuda_rows src, const float *m, cudaStream_t stream);
/* dst = relu?(src + bias + residual): what follows a convolution that no engine fuses. */
cudaError_t cuda_epilogue(struct cuda_rows dst, struct cuda_rows src, const float *bias,
                          struct cuda_rows residual, bool relu, cudaStream_t stream);

/* ---- pool.cu -------------------------------------------------------------------------------- */

struct cuda_pool {
    int64_t n, h, w, out_h, out_w;
    int64_t src_stored,
        dst_stored; /* channels, padding included: images of two sizes may have two */
    int kernel, stride, pad;
    enum cuda_type type;
};
/* index [n, out_h, out_w, dst_stored] may be NULL. */
cudaError_t cuda_maxpool(const struct cuda_pool *pool, void *dst, int32_t *index, const void *src,
                         cudaStream_t stream);
cudaError_t cuda_maxpool_grad(const struct cuda_pool *pool, void *d_src, const void *d_dst,
                              const int32_t *index, cudaStream_t stream);
/* dst [n, c] f32 of any pitch; src an image of dst.rows * area pixels. */
cudaError_t cuda_avgpool(struct cuda_rows dst, struct cuda_rows src, int64_t area,
                         cudaStream_t stream);
cudaError_t cuda_avgpool_grad(struct cuda_rows d_src, struct cuda_rows d_dst, int64_t area,
                              cudaStream_t stream);

/* ---- matrix.cu: f32 of any pitch ---------------------------------------------------------------- */

cudaError_t cuda_l2norm(struct cuda_rows dst, float *inv_norm, struct cuda_rows src, float eps,
                        cudaStream_t stream);
cudaError_t cuda_l2norm_grad(struct cuda_rows d_src, struct cuda_rows d_dst, struct cuda_rows dst,
                             const float *inv_norm, float eps, cudaStream_t stream);
/* d_bias [cols] = sum of the rows. */
cudaError_t cuda_bias_grad(float *d_bias, struct cuda_rows d_dst, cudaStream_t stream);

/* Every row of dst = bias [cols]. */
cudaError_t cuda_bias_rows(struct cuda_rows dst, const float *bias, cudaStream_t stream);

/* ---- loss.cu -------------------------------------------------------------------------------- */

struct cuda_loss {
    struct cuda_rows logits;  /* scores of MARGIN_LOSS, a of COSINE_LOSS */
    struct cuda_rows teacher; /* DISTILL, BCE (may be absent); b of COSINE_LOSS */
    const int32_t *labels;    /* [rows] or NULL */
    const float *weight;      /* [1] */
    int64_t first, count, teacher_first, label_shift, n_old;
    int top_k;
    bool clamp_low;
    float temperature, margin;
    float *loss;               /* [1] */
    struct cuda_rows d_logits; /* may be absent; every entry is written */
    double *partial;           /* [rows] scratch */
    unsigned *counter;         /* one zero, left as zero */
};
cudaError_t cuda_softmax_xent(const struct cuda_loss *loss, cudaStream_t stream);
cudaError_t cuda_distill(const struct cuda_loss *loss, cudaStream_t stream);
cudaError_t cuda_bce(const struct cuda_loss *loss, cudaStream_t stream);
cudaError_t cuda_cosine_loss(const struct cuda_loss *loss, cudaStream_t stream);
cudaError_t cuda_margin_loss(const struct cuda_loss *loss, cudaStream_t stream);
cudaError_t cuda_rank(int32_t *rank, struct cuda_rows logits, const int32_t *labels, int64_t first,
                      int64_t count, cudaStream_t stream);

/* ---- mask.cu: all masks of an extractor at once; tables in device memory ------------------------- */

struct cuda_mask {
    const float *e;   /* gate: input; sparsity: the mask itself */
    const float *d_m; /* gate gradient: input */
    float *out;       /* m, d_e or d_m; may be NULL */
    int64_t n;
    int least; /* sparsity: with no more open channels there is no gradient; -1: there always is */
};

struct cuda_sparsity_layer {
    int in_mask, out_mask, kernel_area, in_channels;
};

cudaError_t cuda_mask_gate(const struct cuda_mask *masks, int n, const float *s, double floor,
                           cudaStream_t stream);
/* hat: with s_max, else exact. */
cudaError_t cuda_mask_gate_grad(const struct cuda_mask *masks, int n, const float *s, bool hat,
                                float s_max, cudaStream_t stream);
cudaError_t cuda_mask_sparsity(const struct cuda_mask *masks, int n,
                               const struct cuda_sparsity_layer *layers, int n_layers, double total,
                               const float *weight, float *loss, cudaStream_t stream);

/* ---- sgd.cu: all parameters in one launch --------------------------------------------------------- */

struct cuda_sgd_span {
    float *p;
    const float *g; /* NULL with `raw` */
    float *v;
    int64_t count;
    int64_t cols;                      /* of one row */
    int64_t p_pitch, g_pitch, v_pitch; /* from row to row; all equal to cols when dense */
    int64_t first_block;               /* blocks of all spans before it */
    int64_t per_block;                 /* numbers that a block takes */
    /* Weights [k, c, area] in bf16 as [k, area, c_stored]: where they are written too, and where their gradients
     * are; each may be NULL. */
    void *copy;
    const void *raw;
    int64_t c, area, c_stored;
};

struct cuda_sgd {
    const struct cuda_sgd_span *spans; /* [n], in device memory */
    int n;
    int64_t n_blocks; /* of all spans */
    const float *lr;
    float momentum, decay, gain, low, high;
};
cudaError_t cuda_sgd(const struct cuda_sgd *args, cudaStream_t stream);
/* Numbers of a span that a block takes; area: 0 for one without copy and raw gradients. 0: it can have neither. */
int64_t cuda_sgd_per_block(int64_t area);

/* ---- feed.cu: FEED and TALLY ---------------------------------------------------------------------- */

struct cuda_feed {
    struct feed_attr attr;
    const uint8_t *pixels;
    const float *levels;  /* [channels, FEED_LEVELS] */
    const int32_t *order; /* [n_items, FEED_ITEM_WORDS] */
    int64_t n_items;
    const float *table; /* [n_lines, width] */
    int64_t n_lines, width;
    const int32_t *clock;
    float *image;
    int32_t *labels;
    float *now; /* [width]; NULL: there is no table */
};
cudaError_t cuda_feed(const struct cuda_feed *feed, cudaStream_t stream);

struct cuda_tally_pair {
    const uint32_t *src;
    uint32_t *table;
    int64_t src_words, table_words;
};

enum { CUDA_TALLY_MAX = 4 };

struct cuda_tally {
    struct cuda_tally_pair pair[CUDA_TALLY_MAX];
    int n;
    int rows;
    unsigned by_row;
    int32_t *clock;
};
cudaError_t cuda_tally(const struct cuda_tally *tally, cudaStream_t stream);

/* ---- layout.cu: between what the caller sees and what the kernels want ---------------------------- */

struct cuda_image {
    int64_t n, c, area;  /* area = h * w */
    int64_t stored;      /* channels inside */
    enum cuda_type type; /* inside */
};
/* [n, c, h, w] f32 (or i32) to [n, h, w, stored], zeros past c, and back. */
cudaError_t cuda_import_image(void *dst, const void *src, const struct cuda_image *image,
                              cudaStream_t stream);
cudaError_t cuda_export_image(void *dst, const void *src, const struct cuda_image *image,
                              cudaStream_t stream);

/* Weights [k, c, area] f32 to [k_stored, area, c_stored], zeros past the end; with gamma a batch norm
 * is folded in: row k times gamma / sqrt(var + eps), and bias [k_stored] = beta - mean * that. */
struct cuda_weights {
    const float *src;
    void *dst;
    const float *gamma, *beta, *mean, *var; /* NULL: nothing is folded */
    float *bias;
    int64_t k, c, area, k_stored, c_stored;
    float eps;
};
/* weights: [n] in device memory; most_rows: the largest k_stored among them. */
cudaError_t cuda_derive_weights(const struct cuda_weights *weights, int n, int64_t most_rows,
                                enum cuda_type type, cudaStream_t stream);
/* The way back, for gradients: src of `type`, dst [k, c, area] f32; only k, c, area, c_stored count. */
cudaError_t cuda_export_weights(float *dst, const void *src, enum cuda_type type,
                                const struct cuda_weights *weights, cudaStream_t stream);

/* ---- conv.cu: any convolution, plainly; for what no engine of cuDNN serves ------------------------- */

struct cuda_conv_shape {
    int64_t n, c, h, w, k, r, s, out_h, out_w; /* c and k with padding */
    int64_t stride, pad;
    enum cuda_type type; /* of images and weights; sums are f32, f64 for f32 images */
};
/* Images as above, weights [k, r, s, c]; d_weights is f32. */
cudaError_t cuda_conv(const struct cuda_conv_shape *shape, void *dst, const void *src,
                      const void *weights, cudaStream_t stream);
cudaError_t cuda_conv_d_src(const struct cuda_conv_shape *shape, void *d_src, const void *d_dst,
                            const void *weights, cudaStream_t stream);
cudaError_t cuda_conv_d_weights(const struct cuda_conv_shape *shape, float *d_weights,
                                const void *src, const void *d_dst, cudaStream_t stream);

/* ---- thin.cu, thin_weights.cu: 3x3 and 1x1 on tensor cores in bf16, channels in sixteens -------------- */

/* How the work is cut up; results do not depend on it but for the order of sums. */
struct cuda_thin_tile {
    int rows;    /* of 16 pixels that a warp has: 1, 2 or 4 */
    int warps;   /* of a block, at most 8; rows * warps a power of two */
    int columns; /* result channels of a block: 16, 32, 48, 64 or 80; at most 32 with 4 rows */
    int chunk;   /* source channels at a time, in sixteens */
    int stages;  /* chunks in shared memory, 2 to 4; 1 where there is one chunk */
};

struct cuda_thin_grad_tile {
    int pixels; /* of a box: a power of two from 64 to 512 */
    int chunk;  /* channels of the source that a block has, in sixteens; divides all of them */
    int blocks; /* that share the pixels, at most */
};

/* Bytes of shared memory that a launch takes; 0: there is no such kernel. */
size_t cuda_thin_shared(const struct cuda_conv_shape *shape, bool backwards, bool residual,
                        const struct cuda_thin_tile *tile);
size_t cuda_thin_grad_shared(const struct cuda_conv_shape *shape,
                             const struct cuda_thin_grad_tile *tile);

struct cuda_thin {
    void *dst;
    const void *src, *weights;
    const float *bias;    /* [k] or NULL */
    const void *residual; /* as dst, or NULL */
    bool relu;
};
/* dst = relu?(conv + bias + residual), rounded once. */
cudaError_t cuda_thin(const struct cuda_conv_shape *shape, const struct cuda_thin_tile *tile,
                      const struct cuda_thin *thin, cudaStream_t stream);
/* Boxes that the work is cut into: the most parts of sums for batch norm that a launch can leave; 0: there is no kernel that
 * leaves any. */
int cuda_thin_boxes(const struct cuda_conv_shape *shape, bool backwards,
                    const struct cuda_thin_tile *tile);
/* dst = conv; and partial sums of dst as it is rounded, of so many parts, in cuda_bn_sums() bytes. Operands other than src
 * and weights have to be absent. */
cudaError_t cuda_thin_summed(const struct cuda_conv_shape *shape, const struct cuda_thin_tile *tile,
                             const struct cuda_thin *thin, int parts, void *sums,
                             cudaStream_t stream);
cudaError_t cuda_thin_d_src(const struct cuda_conv_shape *shape, const struct cuda_thin_tile *tile,
                            void *d_src, const void *d_dst, const void *weights,
                            cudaStream_t stream);
/* As cuda_strip_d_src_summed(), of bn->summed parts. */
cudaError_t cuda_thin_d_src_summed(const struct cuda_conv_shape *shape,
                                   const struct cuda_thin_tile *tile, const void *d_dst,
                                   const void *weights, const struct cuda_bn_grad *bn,
                                   cudaStream_t stream);
/* d_weights [k, c, area] in f32, as the caller sees it; of `sizes` only sizes count. */
cudaError_t cuda_thin_d_weights(const struct cuda_conv_shape *shape,
                                const struct cuda_thin_grad_tile *tile, float *d_weights,
                                const struct cuda_weights *sizes, const void *src,
                                const void *d_dst, void *scratch, cudaStream_t stream);
size_t cuda_thin_scratch(const struct cuda_conv_shape *shape,
                         const struct cuda_thin_grad_tile *tile);

/* ---- strip.cu: 3x3 of square pictures on tensor cores in bf16, on GPUs of compute capability 9.0 alone ----- */

/* Whether there is a kernel; a few shapes have one. */
bool cuda_strip_exists(const struct cuda_conv_shape *shape, bool backwards);
/* As cuda_thin() and cuda_thin_d_src(), images and weights at multiples of 16 bytes. */
cudaError_t cuda_strip(const struct cuda_conv_shape *shape, const struct cuda_thin *operands,
                       cudaStream_t stream);
/* Whether there is a kernel that leaves sums for batch norm too, or, backwards, for the gradient of batch norm. */
bool cuda_strip_sums(const struct cuda_conv_shape *shape, bool backwards);
/* dst = conv; and partial sums of dst as it is rounded, one part for each picture, in cuda_bn_sums() bytes. Operands
 * other than src and weights have to be absent. */
cudaError_t cuda_strip_summed(const struct cuda_conv_shape *shape, const struct cuda_thin *operands,
                              void *sums, cudaStream_t stream);
cudaError_t cuda_strip_d_src(const struct cuda_conv_shape *shape, void *d_src, const void *d_dst,
                             const void *weights, cudaStream_t stream);
/* What reaches batch norm from the gradient of the data, bn->d_dst = (d_src + d_dst2) where its ReLU was open, rounded after
 * each step; and the partial sums that its gradient begins with, one part for each picture, in bn->scratch. Where there is
 * a ReLU without bn->dst, there was no residual, and cuda_bn() tells from src where it was open. */
cudaError_t cuda_strip_d_src_summed(const struct cuda_conv_shape *shape, const void *d_dst,
                                    const void *weights, const struct cuda_bn_grad *bn,
                                    cudaStream_t stream);

/* ---- strip_weights.cu: the gradient of weights, 3x3 and strided 1x1, in bf16, on the same GPUs -------------- */

/* Whether there is a kernel: 3x3 has no stride, 1x1 one of 2; results have sides in fours, and channels come in 64s, those of
 * results of 1x1 in 128s. */
bool cuda_strip_grad_exists(const struct cuda_conv_shape *shape);
/* Blocks that cover all channels once; there has to be a kernel. */
int cuda_strip_grad_tiles(const struct cuda_conv_shape *shape);
/* d_weights [k, r, s, c] in bf16, rounded once. splits: blocks, at most 256, that share the pixels of the same channels;
 * results do not depend on it but for the order of sums. Arrays at multiples of 16 bytes. */
cudaError_t cuda_strip_d_weights(const struct cuda_conv_shape *shape, int splits, void *d_weights,
                                 const void *src, const void *d_dst, void *scratch,
                                 cudaStream_t stream);
size_t cuda_strip_grad_scratch(const struct cuda_conv_shape *shape, int splits);

/* ---- sheet.cu: 3x3 and 1x1 with results of 4x4, 8x8 or 16x16, the same otherwise, channels in sixteens ----- */

/* How the work is cut up; results do not depend on it. */
struct cuda_sheet_tile {
    int pictures; /* of a block; of 4x4 eights of them */
    int columns;  /* result channels of a block: 32, 48, 64, 80, 96, 112 or 128 */
    int sheets; /* of 64 pixels that four warps have: 1 or, up to 80 columns, 2; a block has 4 at most */
    int slots; /* taps whose weights are in shared memory at a time, 2 to 9 */
};

/* Bytes of shared memory that a launch takes; 0: there is no such kernel. */
size_t cuda_sheet_shared(const struct cuda_conv_shape *shape, const struct cuda_sheet_tile *tile);
/* As cuda_strip(). */
cudaError_t cuda_sheet(const struct cuda_conv_shape *shape, const struct cuda_sheet_tile *tile,
                       const struct cuda_thin *operands, cudaStream_t stream);

/* ---- chain.cu: a folded network of thin layers in one launch, in bf16, channels in sixteens ------------ */

enum { CUDA_CHAIN_MOST = 48 }; /* layers */

/* dst = relu?(conv + bias + residual) of one picture; images and weights at offsets into shared memory. Results have
 * 2^log_w by 2^log_h pixels, the source `stride` times as many in both directions. */
struct cuda_chain_layer {
    const void *weights; /* [k, taps, c] */
    const float *bias;   /* [k] */
    int src_at, dst_at, weights_at;
    int residual_at; /* -1: none; may be dst_at */
    int16_t c, k;
    int8_t log_w, log_h;
    int8_t stride; /* 1 or 2 */
    int8_t taps;   /* 9: 3x3 with a border of zeros; 1 */
    /* How warps share the work: so many times 16 pixels, and 16 result channels, at a time. 1, 2 or 4 by 1; 1 or 2 by 2. */
    int8_t rows, columns;
    bool relu;
    bool is_early; /* the weights come while the layer before is computed */
};

struct cuda_chain {
    const void *src; /* [n, pixels, c of the first layer] */
    int pixels;
    int n;                     /* layers */
    int zeros_at;              /* into shared memory */
    struct cuda_rows features; /* mean over the pixels of the last result; f32 */
    size_t shared;             /* bytes of shared memory, all in all */
    struct cuda_chain_layer layers[CUDA_CHAIN_MOST];
};

/* Bytes of shared memory that an image, the weights of a layer and the zeros take, all at multiples of 16. */
size_t cuda_chain_image(int64_t pixels, int channels);
size_t cuda_chain_weights(int k, int taps, int c);
size_t cuda_chain_zeros(void);
/* Of n pictures. */
cudaError_t cuda_chain(const struct cuda_chain *chain, int64_t n, cudaStream_t stream);

/* ---- stem.cu: the first convolution, 3x3, stride 1, in bf16, from the caller's own picture --------- */

struct cuda_stem {
    const float *image; /* [n, c, h, w] */
    int64_t n, c, h, w;
    int64_t k; /* with padding */
};
bool cuda_stem_serves(int64_t c, int64_t k_stored);
/* dst [n, h, w, k] = relu?(conv + bias), weights [k, 3, 3, 8] in bf16; bias [k] may be NULL. */
cudaError_t cuda_stem(const struct cuda_stem *stem, void *dst, const void *weights,
                      const float *bias, bool relu, cudaStream_t stream);
/* d_weights [k, c, 3, 3] in f32, as the caller sees it; `k` without padding. */
cudaError_t cuda_stem_d_weights(const struct cuda_stem *stem, float *d_weights, int64_t k,
                                const void *d_dst, void *scratch, cudaStream_t stream);
size_t cuda_stem_scratch(const struct cuda_stem *stem);

#ifdef __cplusplus
}
#endif

#endif

/*
 * oneDNN as the cpu back end sees it: convolutions, layout changes, matrix products.
 *
 * The C API of oneDNN changed between 2.x and 3.x (descriptors by value, then behind pointers;
 * Winograd convolutions on x64, then none). Everything above this header is the same for both;
 * dnnl_shim.c holds what the versions share, dnnl_v2.c and dnnl_v3.c what they do not.
 * Primitives remember the number of OpenMP threads they were created under and must run under it.
 */
#ifndef DNNL_SHIM_H
#define DNNL_SHIM_H

#include "core/ctx.h"

struct shim; /* engine and stream */
struct shim_conv;
struct shim_reorder;

NODISCARD enum der_status shim_open(struct der_ctx *ctx, struct shim **out);
void shim_close(struct shim *shim);

/* DER_NOMEM when the system has no room for the kernels that oneDNN makes as it runs. oneDNN does not look whether it got
 * memory for them, and crashes. Those of primitives are looked after here; those of products are made by the first
 * product of a shape, within a step, so whoever plans steps asks before. */
NODISCARD enum der_status shim_check_room(struct shim *shim);

/* "2.6.3": of the library that is loaded, which may be newer than the headers. */
void shim_version(char *text, size_t size);

/* True when this version of oneDNN has Winograd convolutions at all. */
bool shim_has_winograd(void);

/* ---- convolutions ----------------------------------------------------------------------------- */

enum conv_pass { CONV_FORWARD, CONV_FOLDED, CONV_BACK_SRC, CONV_BACK_WEIGHTS };

/* Let the library choose a layout; see cpu_kernels.h for what the other numbers mean. */
enum { BLOCK_ANY = 0 };

struct conv_geometry {
    int64_t n;
    int64_t c, h, w;         /* of src */
    int64_t k, out_h, out_w; /* of dst */
    int64_t r, s;            /* of the kernel */
    int64_t stride, pad;
};

struct conv_spec {
    enum conv_pass pass;
    struct conv_geometry geometry;
    int64_t src_block, dst_block; /* of src or d_src, of dst or d_dst; BLOCK_ANY asks */
    bool winograd;                /* that algorithm or nothing */
    bool nhwc;      /* describe images of one block as NHWC, which other kernels take */
    bool sum, relu; /* CONV_FOLDED: dst = relu?(conv + bias + sum? dst) */
};

struct conv_info {
    int64_t src_block, dst_block; /* what was chosen; -1: none of the family */
    size_t weights_bytes;         /* in the layout this primitive wants */
    size_t scratch_bytes;
    bool canonical_weights; /* that layout is [k, c, r, s], row-major */
};

/* The layouts that oneDNN answers with, without making a primitive; 1 where it has no answer. */
NODISCARD enum der_status shim_conv_layouts(struct shim *shim, const struct conv_spec *spec,
                                            int64_t *src_block, int64_t *dst_block);

/* DER_OK with *out NULL when the library has no such kernel. */
NODISCARD enum der_status shim_conv_new(struct shim *shim, const struct conv_spec *spec,
                                        struct shim_conv **out);
void shim_conv_free(struct shim_conv *conv);
const struct conv_info *shim_conv_info(const struct shim_conv *conv);
/* True when weights derived for one serve the other too. */
bool shim_conv_same_weights(const struct shim_conv *a, const struct shim_conv *b);

/* What a convolution works on; which of them it writes depends on the pass. */
struct conv_args {
    void *src, *weights, *dst;
    void *bias;    /* CONV_FOLDED */
    void *scratch; /* scratch_bytes */
};
NODISCARD enum der_status shim_conv_run(struct shim_conv *conv, const struct conv_args *args);

/* ---- layout changes --------------------------------------------------------------------------- */

/* Canonical weights into those of `conv`, or back. */
NODISCARD enum der_status shim_reorder_weights(struct shim *shim, const struct shim_conv *conv,
                                               bool to_canonical, struct shim_reorder **out);
/* dim: n, c, h, w. */
NODISCARD enum der_status shim_reorder_image(struct shim *shim, const int64_t dim[4],
                                             int64_t from_block, int64_t to_block,
                                             struct shim_reorder **out);
void shim_reorder_free(struct shim_reorder *reorder);
size_t shim_reorder_scratch_bytes(const struct shim_reorder *reorder);
NODISCARD enum der_status shim_reorder_run(struct shim_reorder *reorder, void *from, void *to,
                                           void *scratch);

/* ---- matrix products -------------------------------------------------------------------------- */

struct shim_gemm {
    bool transpose_a, transpose_b;
    int64_t m, n, k;
    const float *a, *b;
    float *c;
    int64_t pitch_a, pitch_b, pitch_c; /* elements from one row to the next */
};

/* c [m, n] = op(a) [m, k] op(b) [k, n], all row-major. */
NODISCARD enum der_status shim_gemm(struct shim *shim, const struct shim_gemm *gemm);

#endif

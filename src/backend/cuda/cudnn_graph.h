/*
 * Convolutions by cuDNN's graph API: from shapes to execution plans.
 *
 * A plan is made from the first engine that cuDNN's heuristics propose and that the numbers asked for
 * allow; nothing is chosen by timing, so that the same machine always takes the same kernels. Plans
 * are kept by what they compute: extractors of one shape share them. As many threads as the context has make
 * the plans of a program; which ones they are does not depend on it, nor on whether the context has a folder in which
 * plans of earlier processes are kept (cudnn_keep.h).
 */
#ifndef CUDNN_GRAPH_H
#define CUDNN_GRAPH_H

#include "backend/cuda/cuda_libs.h"
#include "backend/cuda/kernels.h"

enum dnn_pass { DNN_FORWARD, DNN_D_SRC, DNN_D_WEIGHTS };

struct dnn_conv {
    enum dnn_pass pass;
    struct cuda_conv_shape shape;
    enum cuda_type d_weights_type; /* DNN_D_WEIGHTS: of the result */
    bool tensor_cores;             /* f32 images may be rounded to TF32 */
    bool deterministic;
    bool bias, residual, relu; /* DNN_FORWARD: what is fused behind it */
    bool compiled;             /* asks for a kernel made at run time, as fused ones are */
};

struct dnn;

struct dnn_plan {
    size_t workspace;     /* bytes */
    int64_t engine;       /* cuDNN's number for it */
    unsigned notes;       /* bit set of cudnnBackendNumericalNote_t */
    bool is_compiled_now; /* its kernel is made at run time, which takes a while */
};

/* Where plans came from so far. */
struct dnn_counts {
    int compiled; /* their kernels were compiled */
    int recalled; /* they were kept by an earlier process */
};

/* Operands by role; those that a pass does not have are NULL. */
struct dnn_pointers {
    void *image;   /* src or d_src */
    void *weights; /* or d_weights */
    void *result;  /* dst or d_dst */
    const float *bias;
    void *residual;
    void *workspace;
};

NODISCARD enum der_status dnn_open(struct der_ctx *ctx, const struct cuda_libs *libs,
                                   struct dnn **out);
void dnn_close(struct dnn *dnn);

/* *plan is NULL when no engine serves. Borrowed; lives as long as dnn. */
NODISCARD enum der_status dnn_find(struct dnn *dnn, const struct dnn_conv *conv,
                                   const struct dnn_plan **plan);

/* Makes plans ahead, several at a time: a help, not a promise. */
void dnn_prefetch(struct dnn *dnn, const struct dnn_conv *convs, int n);

/* Plans of up to `max` engines in the order of the heuristics, for those who want to compare. */
NODISCARD enum der_status dnn_find_all(struct dnn *dnn, const struct dnn_conv *conv, int max,
                                       const struct dnn_plan **plans, int *n);

struct dnn_counts dnn_count(const struct dnn *dnn);

NODISCARD enum der_status dnn_run(struct dnn *dnn, const struct dnn_plan *plan,
                                  const struct dnn_pointers *pointers, cudaStream_t stream);

#endif

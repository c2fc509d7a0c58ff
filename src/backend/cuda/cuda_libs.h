/*
 * cuDNN and cuBLASLt, found when a back end is opened and not when the program starts: a build with
 * CUDA runs on machines that have neither.
 */
#ifndef CUDA_LIBS_H
#define CUDA_LIBS_H

#include "core/ctx.h"

#include <cublasLt.h>
#include <cudnn_graph.h>

#define CUDNN_FUNCTIONS(X)                                                                         \
    X(cudnnCreate)                                                                                 \
    X(cudnnDestroy)                                                                                \
    X(cudnnSetStream)                                                                              \
    X(cudnnGetVersion)                                                                             \
    X(cudnnGetErrorString)                                                                         \
    X(cudnnGetLastErrorString)                                                                     \
    X(cudnnBackendCreateDescriptor)                                                                \
    X(cudnnBackendDestroyDescriptor)                                                               \
    X(cudnnBackendSetAttribute)                                                                    \
    X(cudnnBackendGetAttribute)                                                                    \
    X(cudnnBackendFinalize)                                                                        \
    X(cudnnBackendExecute)

#define CUBLASLT_FUNCTIONS(X)                                                                      \
    X(cublasLtCreate)                                                                              \
    X(cublasLtDestroy)                                                                             \
    X(cublasLtMatmul)                                                                              \
    X(cublasLtMatmulDescInit_internal)                                                             \
    X(cublasLtMatmulDescSetAttribute)                                                              \
    X(cublasLtMatrixLayoutInit_internal)                                                           \
    X(cublasLtMatmulPreferenceInit_internal)                                                       \
    X(cublasLtMatmulPreferenceSetAttribute)                                                        \
    X(cublasLtMatmulAlgoGetHeuristic)

/* The functions by their own names. */
struct cuda_libs {
#define CUDA_LIBS_MEMBER(name) __typeof__(name) *name;
    CUDNN_FUNCTIONS(CUDA_LIBS_MEMBER)
    CUBLASLT_FUNCTIONS(CUDA_LIBS_MEMBER)
#undef CUDA_LIBS_MEMBER
};

/* DER_UNSUPPORTED names the library that is missing. Nothing to close: loaded libraries stay. */
NODISCARD enum der_status cuda_libs_load(struct der_ctx *ctx, struct cuda_libs *libs);

#endif

/*
 * A convolution in cuDNN's words: descriptors, built one upon the other.
 */
#ifndef CUDNN_DESCRIBE_H
#define CUDNN_DESCRIBE_H

#include "backend/cuda/cudnn_graph.h"

/* Tensors are known by these numbers, in plans and when they run. */
enum { ID_IMAGE = 1, ID_WEIGHTS, ID_RESULT, ID_BIAS, ID_RESIDUAL, ID_VIRTUAL };

enum { MAX_DESCRIPTORS = 24 };

/* Descriptors of the graph that plans were made from. */
struct dnn_parts {
    cudnnBackendDescriptor_t all[MAX_DESCRIPTORS];
    int n;
    struct dnn_parts *next;
};

/* The first failure sticks; calls after it do nothing. */
struct dnn_builder {
    const struct cuda_libs *libs;
    cudnnHandle_t handle;
    struct dnn_parts *parts; /* every descriptor that was made */
    cudnnStatus_t status;
};

cudnnBackendDescriptor_t dnn_add(struct dnn_builder *b, cudnnBackendDescriptorType_t type);
void dnn_set(struct dnn_builder *b, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
             cudnnBackendAttributeType_t type, int64_t n, const void *value);
void dnn_set_descriptor(struct dnn_builder *b, cudnnBackendDescriptor_t d,
                        cudnnBackendAttributeName_t name, cudnnBackendDescriptor_t value);
void dnn_finalize(struct dnn_builder *b, cudnnBackendDescriptor_t d);

/* The operation graph of a convolution and what is fused behind it. */
cudnnBackendDescriptor_t dnn_describe(struct dnn_builder *b, const struct dnn_conv *conv);

#endif

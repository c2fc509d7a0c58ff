/*
 * From a convolution to execution plans. A workshop belongs to one thread: several of them make plans at once,
 * since most of the time goes into kernels that cuDNN compiles at run time.
 */
#ifndef CUDNN_BUILD_H
#define CUDNN_BUILD_H

#include "backend/cuda/cudnn_describe.h"

enum { MAX_CONFIGS = 32 };

struct plan {
    struct dnn_plan base;
    struct dnn_conv conv;
    cudnnBackendDescriptor_t handle;
    cudnnBackendDescriptor_t config; /* lives as long as the plan, and so does the graph */
    struct plan *next;
};

/* What was made so far; plans and parts are the owner's to free. */
struct workshop {
    struct mem *mem;
    const struct cuda_libs *libs;
    cudnnHandle_t handle;
    struct plan *plans;
    struct dnn_parts *parts;
    bool is_short; /* of memory: nothing more is made */
};

/* Plans of up to `max` engines in the order of the heuristics; returns how many. None where no engine serves or
 * memory is short. Says nothing to a context, so that it may run in any thread. */
int workshop_make(struct workshop *shop, const struct dnn_conv *conv, int max, struct plan **plans);

/* Frees what is in the shop, but not its handle. */
void workshop_clear(struct workshop *shop);

#endif

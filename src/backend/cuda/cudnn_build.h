/*
 * From a convolution to execution plans. A workshop belongs to one thread: several of them make plans at once,
 * since most of the time goes into kernels that cuDNN compiles at run time. Those of an earlier process need not be
 * compiled again where plans are kept (cudnn_keep.h).
 */
#ifndef CUDNN_BUILD_H
#define CUDNN_BUILD_H

#include "backend/cuda/cudnn_describe.h"
#include "backend/cuda/cudnn_keep.h"

enum { MAX_CONFIGS = 32 };

struct plan {
    struct dnn_plan base;
    struct dnn_conv conv;
    cudnnBackendDescriptor_t handle;
    cudnnBackendDescriptor_t
        config; /* lives as long as the plan, and so does the graph; NULL: kept */
    char *text; /* to be kept; NULL: it is not worth it, or is already */
    size_t text_size;
    struct plan *next;
};

/* What was made so far; plans and parts are the owner's to free. */
struct workshop {
    struct mem *mem;
    const struct cuda_libs *libs;
    const struct dnn_keep *keep; /* NULL: there is none */
    cudnnHandle_t handle;
    struct plan *plans;
    struct dnn_parts *parts;
    struct dnn_counts counts;
    bool is_short;   /* of memory: nothing more is made */
    bool had_mishap; /* an engine was passed over that may serve the next time */
};

/* Plans of up to `max` engines in the order of the heuristics; returns how many. None where no engine serves or
 * memory is short. Says nothing to a context, so that it may run in any thread. */
int workshop_make(struct workshop *shop, const struct dnn_conv *conv, int max, struct plan **plans);

/* The plan of the first engine: one that was kept, or a new one, with its text if it is worth keeping. NULL as above. */
struct plan *workshop_find(struct workshop *shop, const struct dnn_conv *conv);

/* Frees what is in the shop, but not its handle. */
void workshop_clear(struct workshop *shop);

#endif

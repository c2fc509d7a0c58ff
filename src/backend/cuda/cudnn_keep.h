/*
 * Plans of convolutions that outlive the process, in the folder that the context has for such things.
 *
 * What cuDNN compiles at run time takes seconds, and is the same every time: the heuristics of one version of cuDNN
 * propose the same engines for a convolution on a GPU. So a plan is kept under everything that it depends on, and what
 * is found under that is the plan that would be made: which engine is taken does not depend on whether there is a folder.
 * A plan that had its turn because something went wrong with a better one is therefore not kept.
 */
#ifndef CUDNN_KEEP_H
#define CUDNN_KEEP_H

#include "backend/cuda/cudnn_graph.h"
#include "core/file.h"

/* To be raised with every change of how convolutions are described to cuDNN (cudnn_describe.c) and of which engines are
 * taken (cudnn_build.c): plans that were kept before are then not found any more. */
enum { DNN_RECIPE = 1 };

enum { DNN_KEY_CHARS = 1024 };

/* What plans depend on besides the convolution. */
struct dnn_machine {
    size_t cudnn;        /* version */
    int driver, runtime; /* versions of CUDA */
    char gpu[256];       /* its name */
    int major, minor;    /* compute capability */
    int multiprocessors; /* of the GPU, or of the part of it that we have */
};

struct dnn_keep;

/* *out is NULL when the context has no folder. */
NODISCARD enum der_status dnn_keep_open(struct der_ctx *ctx, const struct cuda_libs *libs,
                                        struct dnn_keep **out);
void dnn_keep_close(struct dnn_keep *keep); /* NULL is allowed */

/* As plan_cache_find: NULL is always an answer, and several threads may ask. */
const char *dnn_keep_find(const struct dnn_keep *keep, const struct dnn_conv *conv,
                          struct file_bytes *file, size_t *size);

/* Only for the thread that has the context. A folder that cannot be written to is logged once and then left alone. */
void dnn_keep_store(struct dnn_keep *keep, const struct dnn_conv *conv, const char *text,
                    size_t size);

/* Everything that a plan depends on, in words. */
void dnn_key(char key[DNN_KEY_CHARS], const struct dnn_machine *machine,
             const struct dnn_conv *conv);

/* What the current device is. */
NODISCARD enum der_status dnn_machine_ask(struct der_ctx *ctx, const struct cuda_libs *libs,
                                          struct dnn_machine *out);

#endif

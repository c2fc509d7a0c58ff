/*
 * Exchange with other programs: models as ONNX files, and weights that others have trained.
 */
#ifndef DER_EXCHANGE_H
#define DER_EXCHANGE_H

#include <der/context.h>

#include <stdbool.h>

/* Zero means the default. */
struct der_onnx_options {
    bool
        pixels; /* the graph takes bytes, uint8 [N, channels, height, width], and normalises them itself;
                  * otherwise it takes floats that are normalised as the model's description says */
};

/* Writes a model file, as training leaves it, as an ONNX file: batch norm folded, any number of images at a time,
 * outputs "logits" and "probabilities", names of the classes in the metadata. `options` may be NULL. An old file
 * at `path` is replaced whole or not at all. */
DER_API DER_NODISCARD enum der_status der_export_onnx(struct der_ctx *ctx, const char *model,
                                                      const char *path,
                                                      const struct der_onnx_options *options);

/* Zero or NULL means the default in parentheses. */
struct der_import_options {
    const char *network; /* that the weights are for ("resnet18") */
    double width;        /* factor on its channels (1) */
    int channels;        /* of its images (3) */
    const char *prefix;  /* of the names of the tensors (found out) */
    const char *out; /* file to write the weights to, as der_train_options.init wants them (none) */
};

struct der_import_result {
    char prefix[128];      /* of the names of the tensors */
    int n_used, n_ignored; /* tensors: the network's, and all others */
    int64_t params;        /* of the network */
};

/* Looks for the weights of a residual network with torchvision's names in a safetensors file: are they all there,
 * with the right shapes, and nothing of another network? Floats of 16, 32 and 64 bits are read. Training can
 * begin with the file itself; what `out` gets is float32, without prefix, without what is not needed. */
DER_API DER_NODISCARD enum der_status der_import(struct der_ctx *ctx, const char *path,
                                                 const struct der_import_options *options,
                                                 struct der_import_result *result);

#endif

/*
 * Models as ONNX files: what other programs need to run a model, in one file.
 *
 * The graph is the one that der itself runs for prediction, node for node: the extractors as extractor_describe
 * gives them, batch norm folded into the convolutions, their features side by side, the classifier. What the
 * file looks like is written down in docs/FORMATS.md.
 */
#ifndef EXCHANGE_ONNX_FILE_H
#define EXCHANGE_ONNX_FILE_H

#include "store/model_file.h"

struct onnx_options {
    bool pixels;               /* the graph takes bytes from 0 to 255 and normalises them itself */
    const struct io_calls *io; /* may be NULL */
};

/* Writes the file as durable.h does; same model and options, same bytes. A model that needs more than the 2 GB
 * that the format allows is DER_UNSUPPORTED. */
NODISCARD enum der_status onnx_write(const struct model *model, const struct onnx_options *options,
                                     const char *path);

#endif

/*
 * What the parts of the ONNX writer share: a graph is collected first (onnx_graph.c), as the bytes of its nodes
 * and a list of the constants they use, and then written (onnx_file.c), the constants computed one by one on
 * their way to the disk. A model thus never lies in memory twice.
 */
#ifndef EXCHANGE_ONNX_PARTS_H
#define EXCHANGE_ONNX_PARTS_H

#include "exchange/onnx_file.h"
#include "exchange/proto.h"

/* Numbers of fields and constants of onnx.proto that are used. */
enum onnx_field {
    MODEL_IR_VERSION = 1,
    MODEL_PRODUCER_NAME = 2,
    MODEL_PRODUCER_VERSION = 3,
    MODEL_GRAPH = 7,
    MODEL_OPSET_IMPORT = 8,
    MODEL_METADATA_PROPS = 14,
    OPSET_DOMAIN = 1,
    OPSET_VERSION = 2,
    ENTRY_KEY = 1,
    ENTRY_VALUE = 2,
    GRAPH_NODE = 1,
    GRAPH_NAME = 2,
    GRAPH_INITIALIZER = 5,
    GRAPH_INPUT = 11,
    GRAPH_OUTPUT = 12,
    NODE_INPUT = 1,
    NODE_OUTPUT = 2,
    NODE_NAME = 3,
    NODE_OP_TYPE = 4,
    NODE_ATTRIBUTE = 5,
    ATTRIBUTE_NAME = 1,
    ATTRIBUTE_I = 3,
    ATTRIBUTE_INTS = 8,
    ATTRIBUTE_TYPE = 20,
    TENSOR_DIMS = 1,
    TENSOR_DATA_TYPE = 2,
    TENSOR_NAME = 8,
    TENSOR_RAW_DATA = 9,
    VALUE_NAME = 1,
    VALUE_TYPE = 2,
    TYPE_TENSOR = 1,
    TENSOR_TYPE_ELEM = 1,
    TENSOR_TYPE_SHAPE = 2,
    SHAPE_DIM = 1,
    DIM_VALUE = 1,
    DIM_PARAM = 2,
};
enum { ONNX_FLOAT = 1, ONNX_UINT8 = 2, ONNX_ATTRIBUTE_INT = 2, ONNX_ATTRIBUTE_INTS = 7 };

/* A constant of the graph, and where its numbers come from. */
enum onnx_source {
    ONNX_GIVEN, /* `given` */
    ONNX_PARAM, /* a parameter as it is */
    ONNX_FOLDED, /* weights times a, with a = gamma / sqrt(var + eps) of the batch norm behind them */
    ONNX_SHIFT   /* beta - mean * a: the bias that goes with them */
};

struct onnx_constant {
    const char *name;
    struct shape shape;
    enum onnx_source source;
    const float *given;          /* [shape] */
    const struct param_set *set; /* of the parameters below */
    int weights;                 /* ONNX_PARAM, ONNX_FOLDED */
    int gamma, beta, mean, var;  /* ONNX_FOLDED, ONNX_SHIFT */
    float eps;
};

struct onnx_graph {
    struct der_ctx *ctx;
    struct arena arena; /* names and given numbers */
    struct proto nodes; /* fields GRAPH_NODE */
    struct onnx_constant *constants;
    int n_constants, capacity;
};

#define ONNX_INPUT "image"
#define ONNX_LOGITS "logits"
#define ONNX_PROBABILITIES "probabilities"

/* Collects the graph of a model. Free with onnx_graph_fini, also after a failure. */
NODISCARD enum der_status onnx_collect(const struct model *model,
                                       const struct onnx_options *options, struct onnx_graph *out);
void onnx_graph_fini(struct onnx_graph *graph);

/* The numbers of a constant: dst [shape]. */
NODISCARD enum der_status onnx_compute(struct der_ctx *ctx, const struct onnx_constant *constant,
                                       float *dst);

#endif

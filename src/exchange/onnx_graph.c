/*
 * A model as nodes of ONNX's operators (opset 13).
 */
#include "exchange/onnx_parts.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { MAX_INPUTS = 4, FIRST_CAPACITY = 64, WHITE = 255 };

/* ---- pieces ---------------------------------------------------------------------------------------- */

struct attribute {
    const char *name;
    int64_t ints[4];
    int n; /* 0: one number, ints[0]; otherwise a list */
};

/* One node: `inputs` ends with NULL. */
struct node_text {
    const char *op;
    const char *inputs[MAX_INPUTS + 1];
    const char *output; /* its name too */
    struct attribute attributes[4];
    int n_attributes;
};

static void write_attribute(struct proto *p, const struct attribute *a)
{
    size_t place = proto_open(p, NODE_ATTRIBUTE);
    proto_text(p, ATTRIBUTE_NAME, a->name);
    if (a->n == 0)
        proto_int(p, ATTRIBUTE_I, a->ints[0]);
    for (int i = 0; i < a->n; i++)
        proto_int(p, ATTRIBUTE_INTS, a->ints[i]);
    proto_int(p, ATTRIBUTE_TYPE, a->n == 0 ? ONNX_ATTRIBUTE_INT : ONNX_ATTRIBUTE_INTS);
    proto_close(p, place);
}

/* What follows the inputs of a node. */
static void finish_node(struct proto *p, const struct node_text *node, size_t place)
{
    proto_text(p, NODE_OUTPUT, node->output);
    proto_text(p, NODE_NAME, node->output);
    proto_text(p, NODE_OP_TYPE, node->op);
    for (int i = 0; i < node->n_attributes; i++)
        write_attribute(p, &node->attributes[i]);
    proto_close(p, place);
}

static void add_node(struct onnx_graph *graph, const struct node_text *node)
{
    struct proto *p = &graph->nodes;
    size_t place = proto_open(p, GRAPH_NODE);
    for (const char *const *input = node->inputs; *input; input++)
        proto_text(p, NODE_INPUT, *input);
    finish_node(p, node, place);
}

static enum der_status add_constant(struct onnx_graph *graph, const struct onnx_constant *constant)
{
    if (graph->n_constants == graph->capacity) {
        int capacity = graph->capacity > 0 ? 2 * graph->capacity : FIRST_CAPACITY;
        struct onnx_constant *constants =
            mem_realloc(&graph->ctx->mem, graph->constants, (size_t)capacity, sizeof *constants);
        if (!constants)
            return ctx_nomem(graph->ctx);
        graph->constants = constants;
        graph->capacity = capacity;
    }
    graph->constants[graph->n_constants++] = *constant;
    return DER_OK;
}

/* Numbers that are made here, copied; `shape` says how many. */
static enum der_status add_given(struct onnx_graph *graph, const char *name, struct shape shape,
                                 const float *values)
{
    size_t n = (size_t)shape_count(shape);
    float *copy = arena_zalloc(&graph->arena, n, sizeof *copy);
    if (!copy)
        return ctx_nomem(graph->ctx);
    for (size_t i = 0; i < n; i++)
        copy[i] = values[i];
    return add_constant(
        graph,
        &(struct onnx_constant){.name = name, .shape = shape, .source = ONNX_GIVEN, .given = copy});
}

/* ---- extractors ------------------------------------------------------------------------------------ */

/* An extractor on its way into the graph. */
struct walk {
    struct onnx_graph *graph;
    const struct graph *g;
    const struct param_use *use;
    int number;         /* of the extractor */
    const char **names; /* [g->n_values] of what is computed so far; NULL: nothing yet */
};

/* "extractors.N." and the rest; NULL when memory is short. */
static const char *name_of(const struct walk *w, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static const char *name_of(const struct walk *w, const char *format, ...)
{
    char rest[256];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(rest, sizeof rest, format, arguments);
    va_end(arguments);
    return arena_printf(&w->graph->arena, "extractors.%d.%s", w->number, rest);
}

/* The parameter that a value of the graph is. */
static int param_of(const struct walk *w, int value)
{
    for (int i = 0; i < w->use->set->n; i++)
        if (w->use->value[i] == value)
            return i;
    return -1;
}

static enum der_status add_folded(const struct walk *w, const struct node *node,
                                  const char *weights, const char *bias)
{
    const struct param_set *set = w->use->set;
    struct onnx_constant constant = {.name = weights,
                                     .source = ONNX_FOLDED,
                                     .set = set,
                                     .weights = param_of(w, node->in[AFFINE_WEIGHTS]),
                                     .gamma = param_of(w, node->in[AFFINE_GAMMA]),
                                     .beta = param_of(w, node->in[AFFINE_BETA]),
                                     .mean = param_of(w, node->in[AFFINE_MEAN]),
                                     .var = param_of(w, node->in[AFFINE_VAR]),
                                     .eps = node->attr.conv.eps};
    constant.shape = set->items[constant.weights].shape;
    TRY(add_constant(w->graph, &constant));
    constant.name = bias;
    constant.source = ONNX_SHIFT;
    constant.shape = shape_1d(constant.shape.dim[0]);
    return add_constant(w->graph, &constant);
}

/* A step behind a convolution: another operator on its result. *name moves on. */
static enum der_status follow(const struct walk *w, const char *op, const char *end,
                              const char *other, const char **name)
{
    const char *output = arena_printf(&w->graph->arena, "%s.%s", *name, end);
    if (!output)
        return ctx_nomem(w->graph->ctx);
    add_node(w->graph, &(struct node_text){.op = op, .inputs = {*name, other}, .output = output});
    *name = output;
    return DER_OK;
}

/* Conv, then the sum with a residual and the ReLU where there are any. */
static enum der_status walk_affine(struct walk *w, const struct node *node)
{
    const struct value *values = w->g->values;
    const struct conv_attr *conv = &node->attr.conv;
    const struct shape *kernel = &values[node->in[AFFINE_WEIGHTS]].shape;
    int residual = node_in(node, AFFINE_RESIDUAL);
    const char *stored = values[node->in[AFFINE_WEIGHTS]].name; /* "layer1.0.conv1.weight" */
    int length = (int)strlen(stored) - (int)strlen(".weight");
    const char *weights = name_of(w, "%s", stored);
    const char *bias = name_of(w, "%.*s.bias", length, stored);
    const char *name = name_of(w, "%.*s", length, stored);
    if (!weights || !bias || !name)
        return ctx_nomem(w->graph->ctx);
    TRY(add_folded(w, node, weights, bias));
    add_node(w->graph, &(struct node_text){
                           .op = "Conv",
                           .inputs = {w->names[node->in[AFFINE_SRC]], weights, bias},
                           .output = name,
                           .attributes = {{"kernel_shape", {kernel->dim[2], kernel->dim[3]}, 2},
                                          {"pads", {conv->pad, conv->pad, conv->pad, conv->pad}, 4},
                                          {"strides", {conv->stride, conv->stride}, 2}},
                           .n_attributes = 3});
    if (residual != NO_VALUE)
        TRY(follow(w, "Add", "sum", w->names[residual], &name));
    if (conv->relu)
        TRY(follow(w, "Relu", "relu", NULL, &name));
    w->names[node->out[0]] = name;
    return DER_OK;
}

static enum der_status walk_maxpool(struct walk *w, const struct node *node)
{
    const struct pool_attr *pool = &node->attr.pool;
    const char *name = name_of(w, "maxpool");
    if (!name)
        return ctx_nomem(w->graph->ctx);
    add_node(w->graph, &(struct node_text){
                           .op = "MaxPool",
                           .inputs = {w->names[node->in[0]]},
                           .output = name,
                           .attributes = {{"kernel_shape", {pool->kernel, pool->kernel}, 2},
                                          {"pads", {pool->pad, pool->pad, pool->pad, pool->pad}, 4},
                                          {"strides", {pool->stride, pool->stride}, 2}},
                           .n_attributes = 3});
    w->names[node->out[0]] = name;
    return DER_OK;
}

static enum der_status walk_avgpool(struct walk *w, const struct node *node)
{
    const char *name = name_of(w, "avgpool");
    const char *flat = name_of(w, "features");
    if (!name || !flat)
        return ctx_nomem(w->graph->ctx);
    add_node(w->graph, &(struct node_text){.op = "GlobalAveragePool",
                                           .inputs = {w->names[node->in[0]]},
                                           .output = name});
    add_node(w->graph, &(struct node_text){.op = "Flatten",
                                           .inputs = {name},
                                           .output = flat,
                                           .attributes = {{"axis", {1}, 0}},
                                           .n_attributes = 1});
    w->names[node->out[0]] = flat;
    return DER_OK;
}

static enum der_status walk_nodes(struct walk *w)
{
    for (int i = 0; i < w->g->n_nodes; i++) {
        const struct node *node = &w->g->nodes[i];
        switch (node->op) {
        case OP_CONV2D_AFFINE:
            TRY(walk_affine(w, node));
            break;
        case OP_MAXPOOL:
            TRY(walk_maxpool(w, node));
            break;
        case OP_AVGPOOL:
            TRY(walk_avgpool(w, node));
            break;
        default:
            return ctx_fail(w->graph->ctx, DER_UNSUPPORTED,
                            "operation %s has no counterpart among the exported ones",
                            op_name(node->op));
        }
    }
    return DER_OK;
}

/* `image` is the name of what the extractor reads, *features that of what it gives. */
static enum der_status add_extractor(struct onnx_graph *graph, const struct extractor *extractor,
                                     int number, const char *image, const char **features)
{
    struct folded folded = {.batch = 1}; /* the file's first dimension is open all the same */
    struct param_use use = {0};
    struct graph *g;
    TRY(graph_new(graph->ctx, &g));
    enum der_status status = extractor_describe(extractor, g, &use, &folded);
    struct walk walk = {.graph = graph, .g = g, .use = &use, .number = number};
    if (status == DER_OK) {
        walk.names = arena_zalloc(&g->arena, (size_t)g->n_values, sizeof *walk.names);
        status = walk.names ? DER_OK : ctx_nomem(graph->ctx);
    }
    if (status == DER_OK) {
        walk.names[folded.image] = image;
        status = walk_nodes(&walk);
        *features = walk.names[folded.feature];
    }
    param_use_fini(&use);
    graph_free(g);
    return status;
}

/* ---- before and behind them ------------------------------------------------------------------------ */

/* (x - 255 mean) / (255 std), which is (x / 255 - mean) / std. Padding comes after it, so that none of it can
 * be folded into the first convolution. */
static enum der_status add_normalisation(struct onnx_graph *graph, const struct augment_spec *input,
                                         const char **image)
{
    struct shape shape = shape_4d(1, input->channels, 1, 1);
    float mean[AUGMENT_CHANNELS_MAX];
    float std[AUGMENT_CHANNELS_MAX];
    for (int c = 0; c < input->channels; c++) {
        mean[c] = (float)((double)WHITE * (double)input->mean[c]);
        std[c] = (float)((double)WHITE * (double)input->std[c]);
    }
    TRY(add_given(graph, "input.mean", shape, mean));
    TRY(add_given(graph, "input.std", shape, std));
    add_node(graph, &(struct node_text){.op = "Cast",
                                        .inputs = {ONNX_INPUT},
                                        .output = "input.float",
                                        .attributes = {{"to", {ONNX_FLOAT}, 0}},
                                        .n_attributes = 1});
    add_node(graph, &(struct node_text){.op = "Sub",
                                        .inputs = {"input.float", "input.mean"},
                                        .output = "input.centred"});
    add_node(graph, &(struct node_text){.op = "Div",
                                        .inputs = {"input.centred", "input.std"},
                                        .output = "input.normalised"});
    *image = "input.normalised";
    return DER_OK;
}

/* The features of all extractors side by side; of one alone they are what they are. */
static void add_concat(struct onnx_graph *graph, const char *const *parts, int n,
                       const char **features)
{
    struct proto *p = &graph->nodes;
    *features = parts[0];
    if (n == 1)
        return;
    *features = "features";
    size_t place = proto_open(p, GRAPH_NODE);
    for (int i = 0; i < n; i++)
        proto_text(p, NODE_INPUT, parts[i]);
    finish_node(p,
                &(struct node_text){.op = "Concat",
                                    .output = *features,
                                    .attributes = {{"axis", {1}, 0}},
                                    .n_attributes = 1},
                place);
}

static enum der_status add_classifier(struct onnx_graph *graph, const struct model *model,
                                      const char *features)
{
    const struct param_set *head = model->classifier;
    float temperature = (float)model->info.temperature;
    TRY(add_constant(graph, &(struct onnx_constant){.name = "classifier.weight",
                                                    .shape = head->items[0].shape,
                                                    .source = ONNX_PARAM,
                                                    .set = head}));
    const char *bias = head->n > 1 ? "classifier.bias" : NULL;
    if (bias)
        TRY(add_constant(graph, &(struct onnx_constant){.name = bias,
                                                        .shape = head->items[1].shape,
                                                        .source = ONNX_PARAM,
                                                        .set = head,
                                                        .weights = 1}));
    TRY(add_given(graph, "temperature", shape_1d(1), &temperature));
    add_node(graph, &(struct node_text){.op = "Gemm",
                                        .inputs = {features, "classifier.weight", bias},
                                        .output = ONNX_LOGITS,
                                        .attributes = {{"transB", {1}, 0}},
                                        .n_attributes = 1});
    add_node(graph, &(struct node_text){.op = "Div",
                                        .inputs = {ONNX_LOGITS, "temperature"},
                                        .output = "logits.cooled"});
    add_node(graph, &(struct node_text){.op = "Softmax",
                                        .inputs = {"logits.cooled"},
                                        .output = ONNX_PROBABILITIES,
                                        .attributes = {{"axis", {1}, 0}},
                                        .n_attributes = 1});
    return proto_check(&graph->nodes, graph->ctx);
}

enum der_status onnx_collect(const struct model *model, const struct onnx_options *options,
                             struct onnx_graph *out)
{
    const char *image = ONNX_INPUT;
    const char *parts[MODEL_MAX_STEPS];
    const char *features;
    *out = (struct onnx_graph){.ctx = model->ctx};
    arena_init(&out->arena, &model->ctx->mem);
    proto_init(&out->nodes, &model->ctx->mem);
    if (options->pixels)
        TRY(add_normalisation(out, &model->info.input, &image));
    for (int i = 0; i < model->n_extractors; i++)
        TRY(add_extractor(out, model->extractors[i], i, image, &parts[i]));
    add_concat(out, parts, model->n_extractors, &features);
    return add_classifier(out, model, features);
}

void onnx_graph_fini(struct onnx_graph *graph)
{
    if (!graph->ctx)
        return;
    mem_free(&graph->ctx->mem, graph->constants);
    proto_fini(&graph->nodes);
    arena_fini(&graph->arena);
}

#include "exchange/onnx_parts.h"

#include "io/durable.h"
#include "store/model_text.h"

#include <der/version.h>

/* Version 13 of the operators is the first in which Softmax has its present meaning; the version of the file
 * format is the one that came with it, so that every later reader knows both. */
enum { IR_VERSION = 7, OPSET = 13 };

static const size_t LARGEST_FILE = INT32_MAX; /* of protocol buffers */

/* A file is, in this order: `head`, the nodes, the constants, `tail`, `end`. */
struct onnx_parts {
    struct der_ctx *ctx;
    struct onnx_graph graph;
    struct proto head;     /* of the model, up to the announcement of its graph */
    struct proto tail;     /* of the graph, behind the constants */
    struct proto end;      /* of the model, behind its graph */
    struct proto constant; /* all of one but its numbers */
};

/* ---- what stands around nodes and constants -------------------------------------------------------- */

/* A tensor with any number of rows; `dims` ends with 0. */
static void write_value(struct proto *p, int field, const char *name, int type, const int64_t *dims)
{
    size_t value = proto_open(p, field);
    proto_text(p, VALUE_NAME, name);
    size_t any_type = proto_open(p, VALUE_TYPE);
    size_t tensor = proto_open(p, TYPE_TENSOR);
    proto_int(p, TENSOR_TYPE_ELEM, type);
    size_t shape = proto_open(p, TENSOR_TYPE_SHAPE);
    size_t rows = proto_open(p, SHAPE_DIM);
    proto_text(p, DIM_PARAM, "N");
    proto_close(p, rows);
    for (; *dims > 0; dims++) {
        size_t dim = proto_open(p, SHAPE_DIM);
        proto_int(p, DIM_VALUE, *dims);
        proto_close(p, dim);
    }
    proto_close(p, shape);
    proto_close(p, tensor);
    proto_close(p, any_type);
    proto_close(p, value);
}

static void write_tail(struct proto *p, const struct model *model, bool pixels)
{
    const struct augment_spec *input = &model->info.input;
    const int64_t image[] = {input->channels, input->height, input->width, 0};
    const int64_t classes[] = {model->info.n_classes, 0};
    write_value(p, GRAPH_INPUT, ONNX_INPUT, pixels ? ONNX_UINT8 : ONNX_FLOAT, image);
    write_value(p, GRAPH_OUTPUT, ONNX_LOGITS, ONNX_FLOAT, classes);
    write_value(p, GRAPH_OUTPUT, ONNX_PROBABILITIES, ONNX_FLOAT, classes);
}

static void write_entry(struct proto *p, const char *key, const char *value)
{
    size_t entry = proto_open(p, MODEL_METADATA_PROPS);
    proto_text(p, ENTRY_KEY, key);
    proto_text(p, ENTRY_VALUE, value);
    proto_close(p, entry);
}

/* Every member of the description that a model file has, as an entry of its own. */
static enum der_status write_metadata(struct proto *p, const struct model *model)
{
    const cJSON *member;
    enum der_status status = DER_OK;
    cJSON *description = text_from_model(model);
    if (!description)
        return ctx_nomem(model->ctx);
    cJSON_ArrayForEach(member, description)
    {
        char *text = NULL;
        if (status == DER_OK)
            status = json_print(model->ctx, member, false, &text);
        if (status == DER_OK)
            write_entry(p, member->string, text);
        mem_free(&model->ctx->mem, text);
    }
    json_free(description);
    return status;
}

static enum der_status write_end(struct proto *p, const struct model *model)
{
    size_t opset = proto_open(p, MODEL_OPSET_IMPORT);
    proto_text(p, OPSET_DOMAIN, ""); /* ONNX's own operators */
    proto_int(p, OPSET_VERSION, OPSET);
    proto_close(p, opset);
    TRY(write_metadata(p, model));
    return proto_check(p, model->ctx);
}

/* ---- constants ------------------------------------------------------------------------------------- */

static size_t bytes_of(const struct onnx_constant *constant)
{
    return (size_t)shape_count(constant->shape) * sizeof(float);
}

/* The field of a constant up to its numbers, into parts->constant. */
static enum der_status announce(struct onnx_parts *parts, const struct onnx_constant *constant)
{
    struct proto *p = &parts->constant;
    struct proto body;
    proto_init(&body, &parts->ctx->mem);
    for (int i = 0; i < constant->shape.rank; i++)
        proto_int(&body, TENSOR_DIMS, constant->shape.dim[i]);
    proto_int(&body, TENSOR_DATA_TYPE, ONNX_FLOAT);
    proto_text(&body, TENSOR_NAME, constant->name);
    proto_announce(&body, TENSOR_RAW_DATA, bytes_of(constant));
    proto_clear(p);
    proto_announce(p, GRAPH_INITIALIZER, body.size + bytes_of(constant));
    proto_append(p, &body);
    proto_fini(&body);
    return proto_check(p, parts->ctx);
}

static enum der_status write_constant(struct onnx_parts *parts,
                                      const struct onnx_constant *constant, struct durable *file)
{
    struct mem *mem = &parts->ctx->mem;
    TRY(announce(parts, constant));
    TRY(durable_write(file, parts->constant.data, parts->constant.size));
    float *numbers = mem_alloc(mem, bytes_of(constant), 1);
    if (!numbers)
        return ctx_nomem(parts->ctx);
    enum der_status status = onnx_compute(parts->ctx, constant, numbers);
    if (status == DER_OK)
        status = durable_write(file, numbers, bytes_of(constant));
    mem_free(mem, numbers);
    return status;
}

/* ---- the file -------------------------------------------------------------------------------------- */

/* Everything but the numbers, so that all lengths are known before the first byte is written. */
static enum der_status prepare(struct onnx_parts *parts, const struct model *model,
                               const struct onnx_options *options)
{
    TRY(onnx_collect(model, options, &parts->graph));
    proto_text(&parts->tail, GRAPH_NAME, "der");
    write_tail(&parts->tail, model, options->pixels);
    TRY(proto_check(&parts->tail, parts->ctx));
    TRY(write_end(&parts->end, model));
    size_t size = parts->graph.nodes.size + parts->tail.size;
    for (int i = 0; i < parts->graph.n_constants; i++) {
        TRY(announce(parts, &parts->graph.constants[i]));
        size += parts->constant.size + bytes_of(&parts->graph.constants[i]);
    }
    proto_int(&parts->head, MODEL_IR_VERSION, IR_VERSION);
    proto_text(&parts->head, MODEL_PRODUCER_NAME, "der");
    proto_text(&parts->head, MODEL_PRODUCER_VERSION, der_version());
    proto_announce(&parts->head, MODEL_GRAPH, size);
    TRY(proto_check(&parts->head, parts->ctx));
    size += parts->head.size + parts->end.size;
    if (size > LARGEST_FILE)
        return ctx_fail(parts->ctx, DER_UNSUPPORTED,
                        "the model would take %.1f GB as an ONNX file, which can have 2 at most",
                        (double)size / 1e9);
    return DER_OK;
}

static enum der_status write_parts(struct onnx_parts *parts, struct durable *file)
{
    TRY(durable_write(file, parts->head.data, parts->head.size));
    TRY(durable_write(file, parts->graph.nodes.data, parts->graph.nodes.size));
    for (int i = 0; i < parts->graph.n_constants; i++)
        TRY(write_constant(parts, &parts->graph.constants[i], file));
    TRY(durable_write(file, parts->tail.data, parts->tail.size));
    return durable_write(file, parts->end.data, parts->end.size);
}

static enum der_status write_file(struct onnx_parts *parts, const struct io_calls *io,
                                  const char *path)
{
    struct durable *file;
    TRY(durable_open(parts->ctx, io, path, &file));
    enum der_status status = write_parts(parts, file);
    if (status != DER_OK) {
        durable_abort(file);
        return status;
    }
    return durable_commit(file);
}

enum der_status onnx_write(const struct model *model, const struct onnx_options *options,
                           const char *path)
{
    struct onnx_parts parts = {.ctx = model->ctx};
    struct proto *const protos[] = {&parts.head, &parts.tail, &parts.end, &parts.constant};
    for (int i = 0; i < 4; i++)
        proto_init(protos[i], &model->ctx->mem);
    enum der_status status = prepare(&parts, model, options);
    if (status == DER_OK)
        status = write_file(&parts, options->io, path);
    for (int i = 0; i < 4; i++)
        proto_fini(protos[i]);
    onnx_graph_fini(&parts.graph);
    return status;
}

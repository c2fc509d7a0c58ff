/*
 * ONNX files without ONNX: the structure of the graph, the numbers in it, and what is told when writing fails.
 * That other programs read them is tests/e2e's.
 */
#include "exchange/onnx_parts.h"

#include "support/faulty_calls.h"
#include "support/hand_model.h"
#include "support/proto_reader.h"
#include "support/scratch.h"
#include "support/test_backend.h"
#include "support/test_ctx.h"

#include <errno.h>
#include <math.h>
#include <string.h>

struct fixture {
    struct der_ctx *ctx;
    struct backend *be;
    struct scratch scratch;
    struct model model;
    struct file_bytes bytes; /* the latest of read_file */
};

static int set_up(void **state)
{
    static struct fixture f;
    f = (struct fixture){.ctx = test_ctx_new(1)};
    assert_ok(f.ctx, backend_open(f.ctx, test_backend(), NULL, &f.be));
    scratch_init(&f.scratch);
    hand_model_init(&f.model, f.be);
    *state = &f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    file_bytes_free(&f->ctx->mem, &f->bytes);
    hand_model_fini(&f->model);
    scratch_fini(&f->scratch);
    backend_close(f->be);
    test_ctx_free(f->ctx);
    return 0;
}

static struct proto_reader read_file(struct fixture *f, const char *name)
{
    struct fault fault;
    if (file_read(&f->ctx->mem, NULL, scratch_path(&f->scratch, name), 1 << 24, &f->bytes,
                  &fault) != DER_OK)
        fail_msg("%s", fault.text);
    return proto_reader_of(f->bytes.data, f->bytes.size);
}

static struct proto_reader write_model(struct fixture *f, bool pixels)
{
    struct onnx_options options = {.pixels = pixels};
    assert_ok(f->ctx, onnx_write(&f->model, &options, scratch_path(&f->scratch, "m.onnx")));
    return read_file(f, "m.onnx");
}

static int count_ops(struct proto_reader graph, const char *op)
{
    struct proto_field node;
    int n = 0;
    for (int i = 0; proto_find(graph, GRAPH_NODE, i, &node); i++)
        n += proto_is_text(proto_content(node.content, NODE_OP_TYPE), op);
    return n;
}

static bool same_text(struct proto_reader a, struct proto_reader b)
{
    return a.left == b.left && memcmp(a.at, b.at, a.left) == 0;
}

/* Is the name given by the input, by a constant, or by one of the first n nodes? */
static bool is_known(struct proto_reader graph, struct proto_reader name, int n)
{
    struct proto_field field;
    if (same_text(proto_content(proto_content(graph, GRAPH_INPUT), VALUE_NAME), name))
        return true;
    for (int i = 0; proto_find(graph, GRAPH_INITIALIZER, i, &field); i++)
        if (same_text(proto_content(field.content, TENSOR_NAME), name))
            return true;
    for (int i = 0; i < n && proto_find(graph, GRAPH_NODE, i, &field); i++)
        if (same_text(proto_content(field.content, NODE_OUTPUT), name))
            return true;
    return false;
}

static void assert_in_order(struct proto_reader graph)
{
    struct proto_field node;
    struct proto_field field;
    for (int i = 0; proto_find(graph, GRAPH_NODE, i, &node); i++) {
        for (int k = 0; proto_find(node.content, NODE_INPUT, k, &field); k++)
            assert_true(is_known(graph, field.content, i));
        assert_false(is_known(graph, proto_content(node.content, NODE_OUTPUT), i));
    }
    for (int i = 0; proto_find(graph, GRAPH_OUTPUT, i, &field); i++)
        assert_true(is_known(graph, proto_content(field.content, VALUE_NAME),
                             proto_count(graph, GRAPH_NODE)));
}

/* The made model has a block and two blocks a network, one of them with a shortcut. */
static void test_the_graph_is_the_folded_network(void **state)
{
    struct fixture *f = *state;
    struct proto_reader graph = proto_content(write_model(f, false), MODEL_GRAPH);
    static const struct {
        const char *op;
        int n;
    } expected[] = {
        {"Conv", 2 * 8}, {"Add", 2 * 3}, {"Relu", 2 * 7}, {"MaxPool", 1}, {"GlobalAveragePool", 2},
        {"Flatten", 2},  {"Concat", 1},  {"Gemm", 1},     {"Div", 1},     {"Softmax", 1}};
    int n_nodes = 0;
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
        assert_int_equal(count_ops(graph, expected[i].op), expected[i].n);
        n_nodes += expected[i].n;
    }
    assert_int_equal(proto_count(graph, GRAPH_NODE), n_nodes);
    assert_int_equal(proto_count(graph, GRAPH_INITIALIZER), 2 * 2 * 8 + 2);
    assert_int_equal(proto_count(graph, GRAPH_OUTPUT), 2);
    assert_in_order(graph);
}

static void assert_value(struct proto_reader value, const char *name, uint64_t type,
                         const uint64_t *dims, int n)
{
    struct proto_reader tensor = proto_content(proto_content(value, VALUE_TYPE), TYPE_TENSOR);
    struct proto_reader shape = proto_content(tensor, TENSOR_TYPE_SHAPE);
    struct proto_field dim;
    assert_true(proto_is_text(proto_content(value, VALUE_NAME), name));
    assert_int_equal(proto_value(tensor, TENSOR_TYPE_ELEM), type);
    assert_int_equal(proto_count(shape, SHAPE_DIM), n + 1);
    assert_true(proto_find(shape, SHAPE_DIM, 0, &dim));
    assert_true(proto_is_text(proto_content(dim.content, DIM_PARAM), "N"));
    for (int i = 0; i < n; i++) {
        assert_true(proto_find(shape, SHAPE_DIM, i + 1, &dim));
        assert_int_equal(proto_value(dim.content, DIM_VALUE), dims[i]);
    }
}

static void test_any_number_of_images_may_come(void **state)
{
    struct fixture *f = *state;
    static const uint64_t image[] = {HAND_MODEL_CHANNELS, HAND_MODEL_SIDE, HAND_MODEL_SIDE};
    static const uint64_t classes[] = {HAND_MODEL_CLASSES};
    struct proto_field output;
    for (int pixels = 0; pixels < 2; pixels++) {
        struct proto_reader graph = proto_content(write_model(f, pixels), MODEL_GRAPH);
        assert_value(proto_content(graph, GRAPH_INPUT), "image", pixels ? ONNX_UINT8 : ONNX_FLOAT,
                     image, 3);
        assert_true(proto_find(graph, GRAPH_OUTPUT, 0, &output));
        assert_value(output.content, "logits", ONNX_FLOAT, classes, 1);
        assert_true(proto_find(graph, GRAPH_OUTPUT, 1, &output));
        assert_value(output.content, "probabilities", ONNX_FLOAT, classes, 1);
        assert_int_equal(count_ops(graph, "Cast"), pixels);
        assert_int_equal(count_ops(graph, "Sub"), pixels);
        assert_in_order(graph);
    }
}

/* The numbers of a constant; copied, for they lie anywhere. */
static int read_constant(struct proto_reader graph, const char *name, float *values, int most)
{
    struct proto_field field;
    for (int i = 0; proto_find(graph, GRAPH_INITIALIZER, i, &field); i++) {
        if (!proto_is_text(proto_content(field.content, TENSOR_NAME), name))
            continue;
        struct proto_reader raw = proto_content(field.content, TENSOR_RAW_DATA);
        int n = (int)(raw.left / sizeof *values);
        assert_true(n <= most);
        memcpy(values, raw.at, (size_t)n * sizeof *values);
        return n;
    }
    fail_msg("no constant %s", name);
    return 0;
}

static void read_param(const struct param_set *set, const char *name, float *values)
{
    int index = param_set_find(set, name);
    assert_true(index >= 0);
    assert_ok(set->ctx, param_read(set, index, values));
}

static void test_batch_norm_is_folded(void **state)
{
    struct fixture *f = *state;
    enum { OUT = 6, ROW = 7 * 9 }; /* layer2.1.conv2 of extractor 1 */
    const struct param_set *set = f->model.extractors[1]->params;
    struct proto_reader graph = proto_content(write_model(f, false), MODEL_GRAPH);
    float w[1024];
    float gamma[8];
    float beta[8];
    float mean[8];
    float var[8];
    float folded[1024];
    float bias[8];
    read_param(set, "layer2.1.conv2.weight", w);
    read_param(set, "layer2.1.bn2.weight", gamma);
    read_param(set, "layer2.1.bn2.bias", beta);
    read_param(set, "layer2.1.bn2.running_mean", mean);
    read_param(set, "layer2.1.bn2.running_var", var);
    assert_int_equal(read_constant(graph, "extractors.1.layer2.1.conv2.weight", folded, 1024),
                     OUT * ROW);
    assert_int_equal(read_constant(graph, "extractors.1.layer2.1.conv2.bias", bias, 8), OUT);
    for (int k = 0; k < OUT; k++) {
        double a = (double)gamma[k] / sqrt((double)var[k] + (double)1e-5F);
        assert_float_equal(bias[k], (float)(beta[k] - mean[k] * a), 1e-6);
        for (int i = 0; i < ROW; i++)
            assert_float_equal(folded[k * ROW + i], (float)(w[k * ROW + i] * a), 1e-6);
    }
}

static void test_other_constants_are_what_the_model_says(void **state)
{
    struct fixture *f = *state;
    float values[64];
    float expected[64];
    struct proto_reader graph = proto_content(write_model(f, true), MODEL_GRAPH);
    assert_int_equal(read_constant(graph, "classifier.weight", values, 64), 30);
    read_param(f->model.classifier, "classifier.weight", expected);
    assert_memory_equal(values, expected, 30 * sizeof *values);
    assert_int_equal(read_constant(graph, "temperature", values, 64), 1);
    assert_float_equal(values[0], 5.0F, 0.0F);
    assert_int_equal(read_constant(graph, "input.mean", values, 64), 3);
    assert_float_equal(values[2], 85.0F, 1e-5F);
    assert_int_equal(read_constant(graph, "input.std", values, 64), 3);
    assert_float_equal(values[0], 255.0F * 0.2675F, 1e-4F);
}

static void test_the_metadata_are_the_description(void **state)
{
    struct fixture *f = *state;
    static const struct {
        const char *key, *value;
    } expected[] = {{"classes", "[\"cat\",\"caf\xc3\xa9\",\"a \\\"b\\\"\"]"},
                    {"temperature", "5"},
                    {"image", "{\"channels\":3,\"height\":8,\"width\":8}"}};
    struct proto_reader model = write_model(f, false);
    assert_int_equal(proto_count(model, MODEL_METADATA_PROPS), 9);
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
        struct proto_field entry;
        bool is_found = false;
        for (int k = 0; proto_find(model, MODEL_METADATA_PROPS, k, &entry); k++)
            if (proto_is_text(proto_content(entry.content, ENTRY_KEY), expected[i].key))
                is_found =
                    proto_is_text(proto_content(entry.content, ENTRY_VALUE), expected[i].value);
        assert_true(is_found);
    }
}

static void test_the_same_model_gives_the_same_bytes(void **state)
{
    struct fixture *f = *state;
    struct onnx_options options = {.pixels = false};
    struct file_bytes first = {0};
    struct fault fault;
    (void)write_model(f, false);
    assert_int_equal(
        file_read(&f->ctx->mem, NULL, scratch_path(&f->scratch, "m.onnx"), 1 << 24, &first, &fault),
        DER_OK);
    assert_ok(f->ctx, onnx_write(&f->model, &options, scratch_path(&f->scratch, "again")));
    (void)read_file(f, "again");
    assert_int_equal(first.size, f->bytes.size);
    assert_memory_equal(first.data, f->bytes.data, first.size);
    file_bytes_free(&f->ctx->mem, &first);
}

/* Sixteen times as wide as the published network is some 11 GB; nothing of that size is ever taken. */
static void test_what_the_format_cannot_hold_is_refused(void **state)
{
    struct fixture *f = *state;
    struct onnx_options options = {.pixels = false};
    struct extractor wide = {.be = f->be};
    struct model model = f->model;
    model.extractors[1] = &wide;
    assert_ok(f->ctx, resnet_spec_init(f->ctx, &wide.spec, "resnet18", 3, HAND_MODEL_SIDE,
                                       HAND_MODEL_SIDE, 16.0));
    assert_ok(f->ctx, param_set_new(f->ctx, &wide.params));
    assert_ok(f->ctx, resnet_declare(&wide.spec, wide.params));
    assert_int_equal(onnx_write(&model, &options, scratch_path(&f->scratch, "m.onnx")),
                     DER_UNSUPPORTED);
    assert_non_null(strstr(der_ctx_error(f->ctx), "would take 11.4 GB as an ONNX file"));
    param_set_free(wide.params);
}

static void test_every_failed_allocation_is_told(void **state)
{
    struct fixture *f = *state;
    struct onnx_options options = {.pixels = true};
    for (unsigned n = 1;; n++) {
        atomic_store(&f->ctx->mem.fail_at, atomic_load(&f->ctx->mem.n_allocs) + n);
        enum der_status status =
            onnx_write(&f->model, &options, scratch_path(&f->scratch, "m.onnx"));
        atomic_store(&f->ctx->mem.fail_at, 0);
        if (status == DER_OK) {
            assert_true(n > 50);
            return;
        }
        assert_int_equal(status, DER_NOMEM);
    }
}

/* durable_test.c proves the rest: here, that a failed write is noticed and nothing half-written is left. */
static void test_whichever_call_fails_the_old_file_stays_or_the_new_one_is_whole(void **state)
{
    struct fixture *f = *state;
    size_t whole = write_model(f, false).left;
    for (int k = 1;; k++) {
        struct faulty_calls calls = {.fail_at = k, .error = ENOSPC, .is_full = true};
        const struct io_calls io = faulty_calls(&calls);
        struct onnx_options options = {.io = &io};
        scratch_text(&f->scratch, "m.onnx", "old");
        enum der_status status =
            onnx_write(&f->model, &options, scratch_path(&f->scratch, "m.onnx"));
        size_t size = read_file(f, "m.onnx").left;
        assert_true(size == whole || (status != DER_OK && size == 3));
        if (!calls.failed_call) {
            assert_ok(f->ctx, status);
            assert_true(k > 40);
            return;
        }
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_the_graph_is_the_folded_network),
        TEST(test_any_number_of_images_may_come),
        TEST(test_batch_norm_is_folded),
        TEST(test_other_constants_are_what_the_model_says),
        TEST(test_the_metadata_are_the_description),
        TEST(test_the_same_model_gives_the_same_bytes),
        TEST(test_what_the_format_cannot_hold_is_refused),
        TEST(test_every_failed_allocation_is_told),
        TEST(test_whichever_call_fails_the_old_file_stays_or_the_new_one_is_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

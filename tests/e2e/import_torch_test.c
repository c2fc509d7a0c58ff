/*
 * Weights that PyTorch and safetensors' own library have written, with torchvision's names, give the features in
 * der that they give in PyTorch. Skipped without these programs (tools/fetch_exchange.sh, python3-torch).
 */
#include "store/weights_file.h"
#include "support/run_program.h"
#include "support/scratch.h"
#include "support/test_backend.h"
#include "support/test_ctx.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { BATCH = 4, SIDE = 40, FLOATS = BATCH * 3 * SIDE * SIDE, FEATURES = 512 };

/* Features are means of sums over 512 x 9 products; PyTorch adds them up in another order. */
static const double TOLERANCE = 1e-4;

static void read_floats(struct der_ctx *ctx, const char *path, float *values, size_t n)
{
    struct file_bytes bytes = {0};
    struct fault fault;
    if (file_read(&ctx->mem, NULL, path, 1 << 24, &bytes, &fault) != DER_OK)
        fail_msg("%s", fault.text);
    assert_int_equal(bytes.size, n * sizeof *values);
    memcpy(values, bytes.data, bytes.size);
    file_bytes_free(&ctx->mem, &bytes);
}

static void compute(struct extractor *extractor, const float *images, float *features)
{
    struct backend *be = extractor->be;
    const struct folded *folded;
    struct buffer *image;
    struct buffer *matrix;
    struct sequence *sequence;
    assert_ok(be->ctx, extractor_folded(extractor, BATCH, &folded));
    assert_ok(be->ctx, buffer_new(be, FLOATS * sizeof *images, &image));
    assert_ok(be->ctx, buffer_new(be, BATCH * FEATURES * sizeof *features, &matrix));
    assert_ok(be->ctx, buffer_write(image, 0, images, FLOATS * sizeof *images));
    assert_ok(be->ctx,
              folded_bind(folded, (struct span){image, 0, 0}, (struct span){matrix, 0, 0}));
    struct sequence_item item = {folded->program, 0};
    assert_ok(be->ctx, sequence_new(be, &item, 1, &sequence));
    assert_ok(be->ctx, sequence_run(sequence));
    assert_ok(be->ctx, buffer_read(matrix, 0, features, BATCH * FEATURES * sizeof *features));
    sequence_free(sequence);
    buffer_free(image);
    buffer_free(matrix);
}

static void compare(struct der_ctx *ctx, struct scratch *scratch, const char *network,
                    const char *prefix)
{
    static float images[FLOATS];
    static float want[BATCH * FEATURES];
    static float found[BATCH * FEATURES];
    struct backend *be;
    struct extractor *extractor;
    struct resnet_spec spec;
    struct weights_match match;
    double largest = 0.0;
    double difference = 0.0;
    assert_ok(ctx, backend_open(ctx, test_backend(), NULL, &be));
    assert_ok(ctx, resnet_spec_init(ctx, &spec, network, 3, SIDE, SIDE, 1.0));
    assert_ok(ctx, extractor_new(be, &spec, &extractor));
    struct weights_options options = {.path = scratch_path(scratch, "weights.safetensors")};
    assert_ok(ctx, weights_load(&options, extractor, &match));
    assert_string_equal(match.prefix, prefix);
    assert_int_equal(match.n_used, 100);
    assert_int_equal(match.n_ignored, 22); /* 20 counters, weight and bias of the head */
    read_floats(ctx, scratch_path(scratch, "images"), images, FLOATS);
    read_floats(ctx, scratch_path(scratch, "features"), want, BATCH * FEATURES);
    compute(extractor, images, found);
    for (int i = 0; i < BATCH * FEATURES; i++) {
        largest = fmax(largest, fabs((double)want[i]));
        difference = fmax(difference, fabs((double)want[i] - (double)found[i]));
    }
    print_message("%s: features up to %.3g, largest difference %.3g\n", network, largest,
                  difference);
    assert_true(largest > 0.1 && difference < TOLERANCE);
    extractor_free(extractor);
    backend_close(be);
}

static void check_network(const char *network, const char *dtype, const char *prefix)
{
    struct scratch scratch;
    struct der_ctx *ctx;
    if (!python_has(EXCHANGE_PYTHON, "torch, safetensors")) {
        skip();
        return;
    }
    ctx = test_ctx_new(2);
    scratch_init(&scratch);
    const char *const make[] = {EXCHANGE_PYTHON, "-B",    DER_TESTS_DIR "/e2e/make_weights.py",
                                scratch.root,    network, dtype,
                                prefix,          NULL};
    assert_int_equal(run_program(make), 0);
    compare(ctx, &scratch, network, prefix);
    scratch_fini(&scratch);
    test_ctx_free(ctx);
}

static void test_resnet18(void **state)
{
    (void)state;
    check_network("resnet18", "float32", "");
}

static void test_resnet18_cifar_in_half_precision_behind_a_prefix(void **state)
{
    (void)state;
    check_network("resnet18-cifar", "float16", "backbone.");
}

static void test_resnet18_3x3_in_bfloat16(void **state)
{
    (void)state;
    check_network("resnet18-3x3", "bfloat16", "model.");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_resnet18),
        cmocka_unit_test(test_resnet18_cifar_in_half_precision_behind_a_prefix),
        cmocka_unit_test(test_resnet18_3x3_in_bfloat16),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

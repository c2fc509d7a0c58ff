/*
 * Exchange as programs outside the library see it: defaults, and what is missing or wrong.
 */
#include <der/exchange.h>

#include "store/weights_file.h"
#include "support/file_fixture.h"
#include "support/hand_model.h"
#include "support/test_backend.h"

#include <stdio.h>
#include <string.h>

/* Where files of one test lie; scratch_path answers once at a time. */
static const char *place(struct file_fixture *f, const char *name, char path[SCRATCH_PATH_MAX])
{
    (void)snprintf(path, SCRATCH_PATH_MAX, "%s", scratch_path(&f->scratch, name));
    return path;
}

static void test_a_model_file_becomes_an_onnx_file(void **state)
{
    struct file_fixture *f = *state;
    char from[SCRATCH_PATH_MAX];
    char to[SCRATCH_PATH_MAX];
    struct backend *be;
    struct model model;
    struct file_bytes bytes[2] = {{0}};
    struct fault fault;
    assert_ok(f->ctx, backend_open(f->ctx, test_backend(), NULL, &be));
    hand_model_init(&model, be);
    assert_ok(f->ctx, model_write(&model, NULL, place(f, "model", from)));
    hand_model_fini(&model);
    backend_close(be);
    for (int pixels = 0; pixels < 2; pixels++) {
        struct der_onnx_options options = {.pixels = true};
        assert_ok(f->ctx,
                  der_export_onnx(f->ctx, from, place(f, "m.onnx", to), pixels ? &options : NULL));
        assert_int_equal(file_read(&f->ctx->mem, NULL, to, 1 << 24, &bytes[pixels], &fault),
                         DER_OK);
    }
    assert_true(bytes[1].size > bytes[0].size);
    for (int i = 0; i < 2; i++)
        file_bytes_free(&f->ctx->mem, &bytes[i]);
}

static void test_an_export_without_files_is_refused(void **state)
{
    struct file_fixture *f = *state;
    char path[SCRATCH_PATH_MAX];
    assert_int_equal(der_export_onnx(f->ctx, NULL, "x", NULL), DER_ARG);
    assert_int_equal(der_export_onnx(f->ctx, "x", NULL, NULL), DER_ARG);
    assert_int_equal(der_export_onnx(f->ctx, place(f, "absent", path), path, NULL), DER_IO);
    scratch_text(&f->scratch, "text", "no model at all");
    assert_int_equal(der_export_onnx(f->ctx, place(f, "text", path), path, NULL), DER_FORMAT);
}

static void test_weights_are_found_and_written(void **state)
{
    struct file_fixture *f = *state;
    char from[SCRATCH_PATH_MAX];
    char to[SCRATCH_PATH_MAX];
    struct backend *be;
    struct extractor *extractor;
    struct resnet_spec spec;
    struct der_import_result result;
    struct der_import_options options = {.network = "resnet32", .width = 0.1, .channels = 1};
    assert_ok(f->ctx, backend_open(f->ctx, test_backend(), NULL, &be));
    assert_ok(f->ctx, resnet_spec_init(f->ctx, &spec, "resnet32", 1, 32, 32, 0.1));
    assert_ok(f->ctx, extractor_new(be, &spec, &extractor));
    assert_ok(f->ctx, weights_write(extractor, NULL, place(f, "w", from)));
    extractor_free(extractor);
    backend_close(be);
    options.out = place(f, "out", to);
    assert_ok(f->ctx, der_import(f->ctx, from, &options, &result));
    assert_string_equal(result.prefix, "");
    assert_int_equal(result.params, resnet_count_params(&spec));
    assert_int_equal(result.n_ignored, 0);
    options.out = NULL;
    assert_ok(f->ctx, der_import(f->ctx, to, &options, &result));
    options.channels = 0; /* three, by default */
    assert_int_equal(der_import(f->ctx, to, &options, &result), DER_FORMAT);
    assert_non_null(strstr(der_ctx_error(f->ctx), "is for images of 1 channels, not of 3"));
    assert_int_equal(der_import(f->ctx, to, NULL, &result), DER_FORMAT);
    assert_non_null(strstr(der_ctx_error(f->ctx), "the network with one of 7 x 7"));
    assert_int_equal(result.n_used, 0);
}

static void test_impossible_imports_are_refused(void **state)
{
    struct file_fixture *f = *state;
    struct der_import_result result;
    struct der_import_options options = {.network = "resnet50"};
    assert_int_equal(der_import(f->ctx, NULL, NULL, &result), DER_ARG);
    assert_int_equal(der_import(f->ctx, "x", &options, &result), DER_ARG);
    options = (struct der_import_options){.channels = -1};
    assert_int_equal(der_import(f->ctx, "x", &options, &result), DER_ARG);
    options = (struct der_import_options){.width = -1.0};
    assert_int_equal(der_import(f->ctx, "x", &options, &result), DER_ARG);
    assert_int_equal(der_import(f->ctx, scratch_path(&f->scratch, "absent"), NULL, &result),
                     DER_IO);
}

int main(void)
{
#define CASE(name)                                                                                 \
    cmocka_unit_test_setup_teardown(name, file_fixture_set_up, file_fixture_tear_down)
    const struct CMUnitTest tests[] = {
        CASE(test_a_model_file_becomes_an_onnx_file),
        CASE(test_an_export_without_files_is_refused),
        CASE(test_weights_are_found_and_written),
        CASE(test_impossible_imports_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

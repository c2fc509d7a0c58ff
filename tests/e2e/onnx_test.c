/*
 * ONNX files of trained and pruned models of several networks: ONNX's own checker accepts them, and onnxruntime
 * computes der's logits for the whole test set, one image at a time and many. Skipped without these programs
 * (tools/fetch_exchange.sh).
 */
/* labels: first */
#include "config/override.h"
#include "config/preset.h"
#include "exchange/onnx_file.h"
#include "experiment/experiment.h"
#include "support/model_logits.h"
#include "support/run_program.h"
#include "support/scratch.h"
#include "support/test_backend.h"
#include "support/test_ctx.h"

#include <stdio.h>
#include <string.h>

enum { PER_CLASS = 60, CLASSES = 6, IMAGES = CLASSES * PER_CLASS, BATCH = 60, SIDE = 24 };

#define DATA "synth:classes=6,train=20,test=60,size=24,seed=1"

/* Long enough for the running statistics to follow: without them the numbers of a deep network grow from layer
 * to layer, and 1e-4 is below their last digit. */
static void train(struct der_ctx *ctx, const char *network, const char *width, const char *readout,
                  const char *out)
{
    const char *const settings[] = {readout,
                                    strcmp(readout, "readout=corrected") == 0 ? "second_stage=false"
                                                                              : "second_stage=true",
                                    network,
                                    width,
                                    "step_classes=2",
                                    "order=seed:1",
                                    "batch=16",
                                    "epochs=20",
                                    "memory=20",
                                    "lr=0.05",
                                    "mask_gain=20",
                                    "classifier_epochs=2"};
    struct experiment_options options = {.data = DATA, .out = out, .loader_threads = 1};
    struct experiment_summary summary;
    assert_ok(ctx, config_from_preset(ctx, "custom", METHOD_DER, &options.config));
    assert_ok(ctx,
              config_apply(ctx, &options.config, settings, sizeof settings / sizeof settings[0]));
    assert_ok(ctx, experiment_run(ctx, &options, &summary));
    assert_int_equal(summary.n_classes, CLASSES);
}

/* Is any layer narrower than that of the full network? */
static bool is_pruned(const struct model *model)
{
    struct resnet_spec full;
    const struct resnet_spec *spec = &model->extractors[0]->spec;
    assert_ok(model->ctx, resnet_spec_init(model->ctx, &full, model->info.network,
                                           spec->in_channels, SIDE, SIDE, model->info.width));
    return resnet_count_params(spec) < resnet_count_params(&full);
}

/* pixels [IMAGES, 3, SIDE, SIDE] as they are, and normalised as the model wants them. */
static void read_images(struct model *model, struct scratch *scratch, float *images)
{
    struct dataset *set;
    size_t plane = (size_t)SIDE * SIDE;
    assert_ok(model->ctx, dataset_open(model->ctx, DATA, &set));
    const struct data_part *part = &set->part[DATA_TEST];
    assert_int_equal(part->n, IMAGES);
    for (size_t i = 0; i < IMAGES * 3 * plane; i++) {
        size_t c = i / plane % 3;
        images[i] = ((float)part->pixels[i] / 255.0F - model->info.input.mean[c]) /
                    model->info.input.std[c];
    }
    scratch_write(scratch, "pixels", part->pixels, IMAGES * 3 * plane);
    scratch_write(scratch, "images", images, IMAGES * 3 * plane * sizeof *images);
    dataset_free(set);
}

static void export_model(struct der_ctx *ctx, const char *network, const char *width,
                         const char *readout, struct scratch *scratch)
{
    static float images[IMAGES * 3 * SIDE * SIDE];
    static float logits[IMAGES * CLASSES];
    struct backend *be;
    struct model *model;
    struct onnx_options options = {.pixels = false};
    train(ctx, network, width, readout, scratch_path(scratch, "run"));
    assert_ok(ctx, backend_open(ctx, test_backend(), NULL, &be));
    assert_ok(ctx, model_load(be, NULL, scratch_path(scratch, "run/model.safetensors"), &model));
    assert_int_equal(model->n_extractors, 3);
    assert_true(is_pruned(model));
    read_images(model, scratch, images);
    model_logits(be, model, images, IMAGES, BATCH, logits);
    scratch_write(scratch, "logits", logits, sizeof logits);
    assert_ok(ctx, onnx_write(model, &options, scratch_path(scratch, "floats.onnx")));
    options.pixels = true;
    assert_ok(ctx, onnx_write(model, &options, scratch_path(scratch, "pixels.onnx")));
    model_free(model);
    backend_close(be);
}

static void check_network(const char *network, const char *width, const char *readout)
{
    struct der_ctx *ctx = test_ctx_new(2);
    struct scratch scratch;
    int status = 0;
    bool has_onnx = python_has(EXCHANGE_PYTHON, "onnx, onnxruntime, numpy");
    scratch_init(&scratch);
    export_model(ctx, network, width, readout, &scratch);
    test_ctx_free(ctx);
    const char *const check[] = {EXCHANGE_PYTHON, "-B", DER_TESTS_DIR "/e2e/check_onnx.py",
                                 scratch.root, NULL};
    if (has_onnx)
        status = run_program(check);
    scratch_fini(&scratch);
    assert_int_equal(status, 0);
    if (!has_onnx)
        skip();
}

static void test_resnet18_cifar(void **state)
{
    (void)state;
    check_network("network=resnet18-cifar", "width=0.12", "readout=trained");
}

static void test_resnet32(void **state)
{
    (void)state;
    check_network("network=resnet32", "width=0.5", "readout=trained");
}

static void test_resnet18_with_the_stem_for_imagenet(void **state)
{
    (void)state;
    check_network("network=resnet18", "width=0.2", "readout=trained");
}

static void test_resnet18_3x3(void **state)
{
    (void)state;
    check_network("network=resnet18-3x3", "width=0.12", "readout=trained");
}

/* Whose classifier has a bias. */
static void test_a_corrected_classifier(void **state)
{
    (void)state;
    check_network("network=resnet18-cifar", "width=0.12", "readout=corrected");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_resnet18_cifar),
        cmocka_unit_test(test_resnet32),
        cmocka_unit_test(test_resnet18_with_the_stem_for_imagenet),
        cmocka_unit_test(test_resnet18_3x3),
        cmocka_unit_test(test_a_corrected_classifier),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

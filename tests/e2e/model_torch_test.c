/*
 * A model file that a run has left: it is loaded again, and PyTorch computes the same logits from it with the
 * recipe of docs/FORMATS.md. The second part is skipped where /usr/bin/python3 has no PyTorch.
 */
#include "config/override.h"
#include "config/preset.h"
#include "core/rng.h"
#include "experiment/experiment.h"
#include "store/model_file.h"
#include "support/model_logits.h"
#include "support/run_program.h"
#include "support/scratch.h"
#include "support/test_backend.h"
#include "support/test_ctx.h"

#include <stdio.h>

enum { IMAGES = 1000, BATCH = 100, SIZE = 16, FLOATS = 3 * SIZE * SIZE, CLASSES = 4 };

static const char PYTHON[] = "/usr/bin/python3";

static const char *const SETTINGS[] = {
    "step_classes=2", "order=seed:1", "network=resnet18-cifar", "width=0.12", "batch=16",
    "epochs=6",       "memory=20",    "classifier_epochs=4",    "lr=0.05",    "mask_gain=20"};

static void train(struct der_ctx *ctx, const char *out)
{
    struct experiment_options options = {
        .data = "synth:classes=4,train=40,test=20,size=16,seed=1", .out = out, .loader_threads = 1};
    struct experiment_summary summary;
    assert_ok(ctx, config_from_preset(ctx, "custom", METHOD_DER, &options.config));
    assert_ok(ctx,
              config_apply(ctx, &options.config, SETTINGS, sizeof SETTINGS / sizeof SETTINGS[0]));
    assert_ok(ctx, experiment_run(ctx, &options, &summary));
    assert_int_equal(summary.n_classes, CLASSES);
}

static void write_floats(struct scratch *scratch, const char *name, const float *values, size_t n)
{
    scratch_write(scratch, name, values, n * sizeof *values);
}

static void test_pytorch_computes_the_same_logits(void **state)
{
    (void)state;
    static float images[IMAGES * FLOATS];
    static float logits[IMAGES * CLASSES];
    struct der_ctx *ctx = test_ctx_new(2);
    struct scratch scratch;
    struct backend *be;
    struct model *model;
    char path[4][SCRATCH_PATH_MAX];
    static const char *const names[4] = {"run", "run/model.safetensors", "images", "logits"};
    scratch_init(&scratch);
    for (int i = 0; i < 4; i++)
        (void)snprintf(path[i], sizeof path[i], "%s", scratch_path(&scratch, names[i]));
    train(ctx, path[0]);
    assert_ok(ctx, backend_open(ctx, test_backend(), NULL, &be));
    assert_ok(ctx, model_load(be, NULL, path[1], &model));
    assert_int_equal(model->n_extractors, 2);
    assert_int_equal(model->info.n_classes, CLASSES);
    rng_normal(images, IMAGES * FLOATS, 1.0, 7, RNG_TEST, 0);
    model_logits(be, model, images, IMAGES, BATCH, logits);
    write_floats(&scratch, "images", images, IMAGES * FLOATS);
    write_floats(&scratch, "logits", logits, IMAGES * CLASSES);
    model_free(model);
    backend_close(be);
    test_ctx_free(ctx);

    const char *const check[] = {PYTHON,
                                 "-B",
                                 DER_TESTS_DIR "/e2e/check_model.py",
                                 DER_TESTS_DIR "/../docs/FORMATS.md",
                                 path[1],
                                 path[2],
                                 path[3],
                                 NULL};
    bool has_torch = python_has(PYTHON, "torch, numpy");
    int status = has_torch ? run_program(check) : 0;
    scratch_fini(&scratch);
    assert_int_equal(status, 0);
    if (!has_torch)
        skip();
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_pytorch_computes_the_same_logits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * What the methods are for, measured on the procedural set with fixed seeds: DER forgets less than
 * fine-tuning, more pressure leaves fewer parameters, and learned masks are worth having.
 *
 * Whole experiments through the same door as `der train`; only the release build runs them.
 */
/* labels: first */
#include "config/override.h"
#include "config/preset.h"
#include "experiment/experiment.h"
#include "support/test_backend.h"
#include "support/test_ctx.h"

enum { THREADS = 1 }; /* for kernels this small two threads wait more than they work */

/* A narrow ResNet-18 on 16 x 16 images: six classes in three steps, two exemplars of each in the end.
 * Few iterations, so the masks have to move faster than in a published run. */
static const char *const BASE[] = {"step_classes=2", "order=seed:1",  "network=resnet18-cifar",
                                   "width=0.12",     "memory=12",     "batch=32",
                                   "lr=0.02",        "mask_gain=50",  "epochs=30",
                                   "seed=1",         "per_class=100", "classifier_epochs=15"};

static struct experiment_summary learn(enum method method, int max_steps, const char *const *extra,
                                       int n_extra)
{
    struct der_ctx *ctx = test_ctx_new(THREADS);
    struct experiment_options options = {.data = "synth:classes=6,train=100,test=40,size=16,seed=1",
                                         .backend = test_backend(),
                                         .loader_threads = 1,
                                         .max_steps = max_steps};
    struct experiment_summary summary;
    assert_ok(ctx, config_from_preset(ctx, "custom", method, &options.config));
    assert_ok(ctx, config_apply(ctx, &options.config, BASE, sizeof BASE / sizeof BASE[0]));
    assert_ok(ctx, config_apply(ctx, &options.config, extra, n_extra));
    assert_ok(ctx, experiment_run(ctx, &options, &summary));
    test_ctx_free(ctx);
    return summary;
}

static void test_der_beats_fine_tuning_by_ten_points(void **state)
{
    (void)state;
    struct experiment_summary der = learn(METHOD_DER, 0, NULL, 0);
    struct experiment_summary finetune = learn(METHOD_FINETUNE, 0, NULL, 0);
    print_message("DER %.2f %%, fine-tuning %.2f %%\n", der.last.top1, finetune.last.top1);
    assert_true(der.last.top1 >= finetune.last.top1 + 10.0);
    /* Three pruned extractors are smaller than the one that fine-tuning trains. */
    assert_true(der.last.params < finetune.last.params);
}

static void test_kept_parameters_fall_with_lambda_s(void **state)
{
    (void)state;
    static const char *const lambdas[] = {"lambda_s=0.2", "lambda_s=0.75", "lambda_s=2"};
    int64_t previous = INT64_MAX;
    for (int i = 0; i < 3; i++) {
        struct experiment_summary run = learn(METHOD_DER, 1, &lambdas[i], 1);
        print_message("%s: %lld parameters, %.2f %%\n", lambdas[i], (long long)run.last.params,
                      run.last.top1);
        assert_true(run.last.params < previous);
        previous = run.last.params;
    }
}

static void test_learned_masks_beat_random_ones_by_three_points(void **state)
{
    (void)state;
    static const char *const seeds[] = {"seed=1", "seed=2", "seed=3"};
    double gain = 0.0;
    for (int i = 0; i < 3; i++) {
        const char *extra[] = {seeds[i], "mask_choice=random"};
        struct experiment_summary learned = learn(METHOD_DER, 1, extra, 1);
        struct experiment_summary random = learn(METHOD_DER, 1, extra, 2);
        print_message("%s: learned %.2f %%, random %.2f %%\n", seeds[i], learned.last.top1,
                      random.last.top1);
        assert_int_equal(learned.last.params, random.last.params);
        gain += (learned.last.top1 - random.last.top1) / 3.0;
    }
    assert_true(gain >= 3.0);
}

/* The bound of the classifier is not below the classifier, and transfer has numbers. */
static void test_measurements_on_request_are_there(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(THREADS);
    struct experiment_options options = {.data = "synth:classes=6,train=100,test=40,size=16,seed=1",
                                         .backend = test_backend(),
                                         .loader_threads = 1,
                                         .max_steps = 2,
                                         .measure = MEASURE_REPRESENTATION | MEASURE_TRANSFER |
                                                    MEASURE_LATENCY};
    struct experiment_summary summary;
    static const char *const quick[] = {"epochs=10", "classifier_epochs=10"};
    assert_ok(ctx, config_from_preset(ctx, "custom", METHOD_DER, &options.config));
    assert_ok(ctx, config_apply(ctx, &options.config, BASE, sizeof BASE / sizeof BASE[0]));
    assert_ok(ctx, config_apply(ctx, &options.config, quick, 2));
    assert_ok(ctx, experiment_run(ctx, &options, &summary));
    print_message("bound %.2f, average %.2f, bwt %.2f, fwt %.2f\n", summary.bound,
                  summary.last.avg_top1, summary.bwt, summary.fwt);
    assert_true(summary.bound >= summary.last.avg_top1);
    assert_true(summary.bwt > -100.0 && summary.bwt < 100.0);
    assert_true(summary.fwt > -100.0 && summary.fwt < 100.0);
    test_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_der_beats_fine_tuning_by_ten_points),
        cmocka_unit_test(test_kept_parameters_fall_with_lambda_s),
        cmocka_unit_test(test_learned_masks_beat_random_ones_by_three_points),
        cmocka_unit_test(test_measurements_on_request_are_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

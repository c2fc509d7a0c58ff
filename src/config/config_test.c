/*
 * Rules over a whole configuration: hard phase, steps, transforms, combinations.
 */
#include "config/config.h"

#include "config/override.h"
#include "config/preset.h"
#include "data/augment.h"

#include "support/test_ctx.h"

#include <stdio.h>
#include <string.h>

static struct config from(struct der_ctx *ctx, const char *preset)
{
    struct config config;
    assert_ok(ctx, config_from_preset(ctx, preset, METHOD_DER, &config));
    return config;
}

static void test_masks_harden_at_the_first_drop_past_25_percent(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    struct config cifar = from(ctx, "cifar100-b50-10");
    struct config imagenet = from(ctx, "imagenet100-b0-10");
    struct config fashion = from(ctx, "fashion-mnist-5");
    assert_int_equal(config_hard_epoch(&cifar, &cifar.representation), 110);
    assert_int_equal(config_hard_epoch(&cifar, &cifar.first), 60);
    assert_int_equal(config_hard_epoch(&imagenet, &imagenet.representation), 40);
    assert_int_equal(config_hard_epoch(&fashion, &fashion.representation), 26);
    assert_ok(ctx, config_set(ctx, &cifar, "epochs", "30"));
    assert_int_equal(config_hard_epoch(&cifar, &cifar.representation), 19);
    /* 25 of 100 is not past 25 %, 26 is. */
    struct schedule s = {.lr = 1, .epochs = 100, .n_drops = 2, .drop = {25, 90}, .factor = 0.1};
    assert_int_equal(config_hard_epoch(&cifar, &s), 90);
    s.drop[0] = 26;
    assert_int_equal(config_hard_epoch(&cifar, &s), 26);
    s.n_drops = 0;
    assert_int_equal(config_hard_epoch(&cifar, &s), 100);
    test_ctx_free(ctx);
}

static void test_masks_harden_behind_a_share_of_the_epochs_if_that_is_earlier(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    struct config c = from(ctx, "cifar100-b50-2-rn32");
    assert_true(c.hard_share == 0.35);
    assert_int_equal(config_hard_epoch(&c, &c.representation), 60); /* 59.5 of 170 */
    assert_int_equal(config_hard_epoch(&c, &c.first), 60); /* the drop; 70 of 200 is later */
    assert_ok(ctx, config_set(ctx, &c, "epochs", "30"));
    assert_int_equal(config_hard_epoch(&c, &c.representation), 11);
    assert_ok(ctx, config_set(ctx, &c, "hard_share", "1"));
    assert_int_equal(config_hard_epoch(&c, &c.representation), 19);
    assert_ok(ctx, config_set(ctx, &c, "hard_epoch", "25"));
    assert_ok(ctx, config_set(ctx, &c, "hard_share", "0.1"));
    assert_int_equal(config_hard_epoch(&c, &c.representation), 25);
    test_ctx_free(ctx);
}

static void test_a_chosen_hard_epoch_is_kept_within_the_schedule(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    struct config c = from(ctx, "cifar100-b50-10");
    assert_ok(ctx, config_set(ctx, &c, "hard_epoch", "180"));
    assert_int_equal(config_hard_epoch(&c, &c.first), 180);
    assert_int_equal(config_hard_epoch(&c, &c.representation), 170);
    assert_ok(ctx, config_set(ctx, &c, "hard_epoch", "0"));
    assert_int_equal(config_hard_epoch(&c, &c.representation), 0);
    test_ctx_free(ctx);
}

/* Steps of a split, and what they add up to. */
static void assert_steps(const struct config *config, int n_classes, int n_steps, int first,
                         int last)
{
    int sum = 0;
    assert_int_equal(config_steps(config, n_classes), n_steps);
    for (int t = 0; t < n_steps; t++) {
        assert_true(config_step_classes(config, n_classes, t) > 0);
        sum += config_step_classes(config, n_classes, t);
    }
    assert_int_equal(sum, n_classes);
    assert_int_equal(config_step_classes(config, n_classes, n_steps), 0);
    assert_int_equal(config_step_classes(config, n_classes, n_steps + 7), 0);
    if (n_steps > 0) {
        assert_int_equal(config_step_classes(config, n_classes, 0), first);
        assert_int_equal(config_step_classes(config, n_classes, n_steps - 1), last);
    }
}

static void test_classes_fall_into_steps(void **state)
{
    (void)state;
    assert_steps(&(struct config){.base_classes = 50, .step_classes = 25}, 100, 3, 50, 25);
    assert_steps(&(struct config){.base_classes = 10, .step_classes = 10}, 100, 10, 10, 10);
    assert_steps(&(struct config){.step_classes = 2}, 10, 5, 2, 2);
    assert_steps(&(struct config){.step_classes = 3}, 10, 4, 3, 1);
    assert_steps(&(struct config){.base_classes = 4}, 10, 2, 4, 6);
    assert_steps(&(struct config){0}, 10, 1, 10, 10);
    assert_steps(&(struct config){.base_classes = 20, .step_classes = 5}, 10, 1, 10, 10);
    assert_steps(&(struct config){.base_classes = 10, .step_classes = 5}, 10, 1, 10, 10);
    assert_steps(&(struct config){.step_classes = 2}, 0, 0, 0, 0);
}

static void test_transforms_are_named_for_both_splits(void **state)
{
    (void)state;
    static const char *const known[] = {"cifar100", "cifar10", "imagenet", "imagenet-shorter-side"};
    struct der_ctx *ctx = test_ctx_new(1);
    struct config c = from(ctx, "custom");
    assert_null(config_augment(&c, true));
    assert_null(config_augment(&c, false));
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        assert_ok(ctx, config_set(ctx, &c, "augment", known[i]));
        const struct augment_spec *train = augment_preset(config_augment(&c, true));
        const struct augment_spec *test = augment_preset(config_augment(&c, false));
        assert_non_null(train);
        assert_non_null(test);
        assert_true(train->flip);
        assert_false(test->flip);
    }
    assert_string_equal(config_augment(&c, false), "imagenet-test-shorter-side");
    c = from(ctx, "imagenet100-b0-10");
    assert_int_equal(augment_preset(config_augment(&c, false))->geometry, AUGMENT_SQUASH);
    test_ctx_free(ctx);
}

/* The assignments are fine one by one, together they are not; the message has these words. */
static void assert_clash(struct der_ctx *ctx, const char *preset, const char *const *assignments,
                         int n, const char *words)
{
    struct config c = from(ctx, preset);
    assert_ok(ctx, config_check(ctx, &c));
    assert_ok(ctx, config_apply(ctx, &c, assignments, n));
    assert_int_equal(config_check(ctx, &c), DER_ARG);
    if (!strstr(ctx->error, words))
        fail_msg("'%s' is not in: %s", words, ctx->error);
}

static void test_settings_that_contradict_each_other_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *preset, *assignments[3];
        int n;
        const char *words;
    } cases[] = {
        {"cifar100-b0-10", {"expand=false", "auxiliary=false"}, 2, "prune=true needs expand=true"},
        {"cifar100-b0-10", {"expand=false", "prune=false"}, 2, "auxiliary=true needs expand=true"},
        {"cifar100-b0-10", {"method=finetune", "expand=true"}, 2, "one extractor"},
        {"cifar100-b0-10", {"method=wa", "expand=true"}, 2, "one extractor"},
        {"cifar100-b0-10", {"method=joint", "second_stage=true"}, 2, "joint training has all"},
        {"cifar100-b0-10", {"distill=shared"}, 1, "distill=shared needs expand=false"},
        {"cifar100-b0-10", {"method=joint", "distill=added"}, 2, "distill=added and method=joint"},
        {"cifar100-b0-10", {"method=joint", "readout=means"}, 2, "joint training has all"},
        {"cifar100-b0-10", {"method=wa", "second_stage=true"}, 2, "readout=aligned and second"},
        {"cifar100-b0-10", {"readout=means"}, 1, "readout=means and second_stage=true"},
        {"custom", {"method=bic", "memory=0"}, 2, "readout=corrected goes by kept images"},
        {"cifar100-b0-10", {"method=bic", "second_stage=true"}, 2, "readout=corrected and second"},
        {"custom", {"method=icarl", "memory=0"}, 2, "readout=means goes by kept images"},
        {"cifar100-b0-10", {"hard_epoch=171"}, 1, "hard_epoch=171 lies past"},
        {"cifar100-b0-10", {"drops=5,130"}, 1, "drops has epoch 5"},
        {"cifar100-b0-10", {"drops=110,170"}, 1, "drops has epoch 170"},
        {"cifar100-b50-10", {"first_drops=60,200"}, 1, "first_drops has epoch 200"},
        {"cifar100-b0-10", {"classifier_drops=30"}, 1, "classifier_drops has epoch 30"},
        {"cifar100-b0-10", {"drops=none", "warmup_epochs=171"}, 2, "warmup_epochs=171 do not fit"},
        {"fashion-mnist-5", {"order=1"}, 1, "order=1 is one of the paper's for 100 classes"},
        {"imagenet1000-b0-10", {"order=3"}, 1, "this set has 1000"},
        {"custom", {"memory=0"}, 1, "memory=0"},
        {"custom", {"classes=10", "base_classes=11"}, 2, "base_classes=11 is more than classes=10"},
    };
    struct der_ctx *ctx = test_ctx_new(1);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_clash(ctx, cases[i].preset, cases[i].assignments, cases[i].n, cases[i].words);
    test_ctx_free(ctx);
}

/* What is kept of a class when step 3 begins: 4 classes are known, and 2 when step 2 does. */
static void test_a_memory_that_leaves_a_class_nothing_is_refused(void **state)
{
    (void)state;
    static const char *const total[] = {"base_classes=2", "step_classes=2", "memory_mode=total",
                                        "memory=3"};
    struct der_ctx *ctx = test_ctx_new(1);
    struct config c = from(ctx, "custom");
    assert_ok(ctx, config_apply(ctx, &c, total, 4));
    assert_ok(ctx, config_check(ctx, &c));
    assert_int_equal(config_check_memory(ctx, &c, 6, 3), DER_ARG);
    assert_non_null(strstr(ctx->error, "memory=3"));
    assert_non_null(strstr(ctx->error, "4 classes"));
    assert_ok(ctx, config_check_memory(ctx, &c, 6, 2)); /* a run that stops before */
    assert_ok(ctx, config_check_memory(ctx, &c, 6, 1));
    assert_ok(ctx, config_set(ctx, &c, "memory", "4"));
    assert_ok(ctx, config_check_memory(ctx, &c, 6, 3));
    assert_ok(ctx, config_set(ctx, &c, "memory", "1"));
    assert_ok(ctx, config_set(ctx, &c, "memory_mode", "per-class"));
    assert_ok(ctx, config_check_memory(ctx, &c, 6, 3));
    assert_ok(ctx, config_set(ctx, &c, "memory_mode", "total"));
    assert_ok(ctx, config_set(ctx, &c, "second_stage", "false"));
    assert_ok(ctx, config_check_memory(ctx, &c, 6, 3));
    test_ctx_free(ctx);
}

/* Means of exemplars classify the classes of the last step too. */
static void test_means_need_an_image_of_every_class(void **state)
{
    (void)state;
    static const char *const total[] = {"base_classes=2", "step_classes=2", "memory_mode=total",
                                        "memory=5", "method=icarl"};
    struct der_ctx *ctx = test_ctx_new(1);
    struct config c = from(ctx, "custom");
    assert_ok(ctx, config_apply(ctx, &c, total, 5));
    assert_ok(ctx, config_check(ctx, &c));
    assert_int_equal(config_check_memory(ctx, &c, 6, 3), DER_ARG);
    assert_non_null(strstr(ctx->error, "memory=5"));
    assert_non_null(strstr(ctx->error, "6 classes of step 3"));
    assert_ok(ctx, config_check_memory(ctx, &c, 6, 2));
    assert_ok(ctx, config_set(ctx, &c, "memory", "6"));
    assert_ok(ctx, config_check_memory(ctx, &c, 6, 3));
    test_ctx_free(ctx);
}

/* One of every known class to train on, one set aside. */
static void test_a_correction_needs_two_images_of_every_known_class(void **state)
{
    (void)state;
    static const char *const total[] = {"base_classes=2", "step_classes=2", "memory_mode=total",
                                        "memory=7", "method=bic"};
    struct der_ctx *ctx = test_ctx_new(1);
    struct config c = from(ctx, "custom");
    assert_ok(ctx, config_apply(ctx, &c, total, 5));
    assert_ok(ctx, config_check(ctx, &c));
    assert_int_equal(config_check_memory(ctx, &c, 6, 3), DER_ARG);
    assert_non_null(strstr(ctx->error, "known before step 3"));
    assert_non_null(strstr(ctx->error, "keep 8 or more"));
    assert_ok(ctx, config_check_memory(ctx, &c, 6, 2));
    assert_ok(ctx, config_set(ctx, &c, "memory", "8"));
    assert_ok(ctx, config_check_memory(ctx, &c, 6, 3));
    assert_ok(ctx, config_set(ctx, &c, "memory_mode", "per-class"));
    assert_ok(ctx, config_set(ctx, &c, "memory", "1"));
    assert_int_equal(config_check_memory(ctx, &c, 6, 3), DER_ARG);
    assert_non_null(strstr(ctx->error, "keep 2 or more"));
    assert_ok(ctx, config_check_memory(ctx, &c, 2, 1)); /* nothing is known before a single step */
    test_ctx_free(ctx);
}

static void test_the_ablations_are_accepted(void **state)
{
    (void)state;
    static const struct {
        const char *assignments[4];
        int n;
    } cases[] = {
        {{"expand=false", "auxiliary=false", "prune=false"}, 3},
        {{"auxiliary=false"}, 1},
        {{"prune=false"}, 1},
        {{"method=finetune"}, 1},
        {{"method=icarl"}, 1},
        {{"method=wa"}, 1},
        {{"method=bic"}, 1},
        {{"method=finetune", "distill=shared"}, 2}, /* and the second stage */
        {{"method=wa", "classifier_init=fresh", "readout=means", "distill=none"}, 4},
        {{"second_stage=false", "readout=aligned", "classifier_positive=true"}, 3},
        {{"second_stage=false", "readout=means"}, 2},
        {{"second_stage=false", "readout=corrected", "correction_share=0.2"}, 3},
        {{"method=joint", "joint_steps=last"}, 2},
        {{"classifier_init=inherit", "reset_after_warmup=false"}, 2},
        {{"mask_init=uniform", "mask_gain=10", "s_max=100", "hard_epoch=100"}, 4},
        {{"target_params=0.9M", "lambda_s=0", "lambda_a=0"}, 3},
        {{"prune=false", "target_params=0.9M"}, 2}, /* a preset's size does not matter then */
        {{"epochs=1", "classifier_epochs=1"}, 2},
    };
    struct der_ctx *ctx = test_ctx_new(1);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct config c = from(ctx, "cifar100-b0-10");
        assert_ok(ctx, config_apply(ctx, &c, cases[i].assignments, cases[i].n));
        assert_ok(ctx, config_check(ctx, &c));
    }
    test_ctx_free(ctx);
}

/* A schedule of any length stays one. */
static void test_every_number_of_epochs_gives_a_valid_schedule(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    for (int p = 0; p < n_presets; p++) {
        for (int epochs = 1; epochs <= 220; epochs++) {
            char text[3][32];
            const char *assignments[3];
            static const char *const keys[] = {"epochs", "first_epochs", "classifier_epochs"};
            for (int k = 0; k < 3; k++) {
                (void)snprintf(text[k], sizeof text[k], "%s=%d", keys[k], epochs);
                assignments[k] = text[k];
            }
            struct config c = from(ctx, preset_table[p].name);
            assert_ok(ctx, config_apply(ctx, &c, assignments, 3));
            assert_ok(ctx, config_check(ctx, &c));
            assert_int_equal(c.representation.epochs, epochs);
            assert_int_equal(c.first.epochs, epochs);
            assert_int_equal(c.classifier.epochs, epochs);
            int hard = config_hard_epoch(&c, &c.representation);
            assert_true(hard * 100 > epochs * 25 && hard <= epochs);
        }
    }
    test_ctx_free(ctx);
}

/* config_check does not trust a struct that was filled by hand. */
static void test_values_out_of_range_are_found_in_the_struct(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    struct config c = from(ctx, "custom");
    c.momentum = 1.0;
    assert_int_equal(config_check(ctx, &c), DER_ARG);
    assert_non_null(strstr(ctx->error, "momentum=1 "));
    c = from(ctx, "custom");
    c.mask_init = (enum mask_init)7;
    assert_int_equal(config_check(ctx, &c), DER_ARG);
    assert_non_null(strstr(ctx->error, "mask_init"));
    c = from(ctx, "custom");
    c.seed = UINT64_C(1) << 60;
    assert_int_equal(config_check(ctx, &c), DER_ARG);
    c = from(ctx, "custom");
    c.first.n_drops = SCHEDULE_MAX_DROPS + 1;
    assert_int_equal(config_check(ctx, &c), DER_ARG);
    test_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_masks_harden_at_the_first_drop_past_25_percent),
        cmocka_unit_test(test_masks_harden_behind_a_share_of_the_epochs_if_that_is_earlier),
        cmocka_unit_test(test_a_chosen_hard_epoch_is_kept_within_the_schedule),
        cmocka_unit_test(test_classes_fall_into_steps),
        cmocka_unit_test(test_transforms_are_named_for_both_splits),
        cmocka_unit_test(test_settings_that_contradict_each_other_are_refused),
        cmocka_unit_test(test_a_memory_that_leaves_a_class_nothing_is_refused),
        cmocka_unit_test(test_means_need_an_image_of_every_class),
        cmocka_unit_test(test_a_correction_needs_two_images_of_every_known_class),
        cmocka_unit_test(test_the_ablations_are_accepted),
        cmocka_unit_test(test_every_number_of_epochs_gives_a_valid_schedule),
        cmocka_unit_test(test_values_out_of_range_are_found_in_the_struct),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * Overrides: what they change, what they may not change, and that their order does not matter.
 */
#include "config/override.h"

#include "config/preset.h"
#include "config/setting.h"

#include "support/test_ctx.h"

#include <string.h>

static struct config from(struct der_ctx *ctx, const char *preset)
{
    struct config config;
    assert_ok(ctx, config_from_preset(ctx, preset, METHOD_DER, &config));
    return config;
}

/* The setting has this text. */
static void assert_value(struct der_ctx *ctx, const struct config *config, const char *key,
                         const char *want)
{
    const struct setting *setting;
    char text[SETTING_TEXT_MAX];
    assert_ok(ctx, setting_find(ctx, key, &setting));
    setting_format(setting, config, text);
    if (strcmp(text, want) != 0)
        fail_msg("%s is %s, want %s", key, text, want);
}

static void assert_all_values(struct der_ctx *ctx, const struct config *config,
                              const char *const (*pairs)[2], int n)
{
    for (int i = 0; i < n; i++)
        assert_value(ctx, config, pairs[i][0], pairs[i][1]);
}

static void test_epochs_squeeze_the_shape_of_the_preset(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    struct config c = from(ctx, "cifar100-b0-10");
    static const char *const want[][2] = {{"epochs", "30"},          {"warmup_epochs", "2"},
                                          {"drops", "19,23"},        {"lr", "0.1"},
                                          {"first_epochs", "30"},    {"first_warmup_epochs", "2"},
                                          {"first_drops", "19,23"},  {"classifier_epochs", "30"},
                                          {"classifier_drops", "15"}};
    assert_ok(ctx, config_set(ctx, &c, "epochs", "30"));
    assert_all_values(ctx, &c, want, 9);
    /* From the preset's shape every time, not from what was squeezed before. */
    assert_ok(ctx, config_set(ctx, &c, "epochs", "3"));
    assert_ok(ctx, config_set(ctx, &c, "epochs", "170"));
    assert_value(ctx, &c, "drops", "110,130");
    assert_value(ctx, &c, "warmup_epochs", "10");
    assert_ok(ctx, config_set(ctx, &c, "classifier_epochs", "10"));
    assert_value(ctx, &c, "classifier_drops", "5");
    test_ctx_free(ctx);
}

static void test_a_first_step_with_its_own_schedule_keeps_it(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    struct config c = from(ctx, "cifar100-b50-10");
    assert_ok(ctx, config_set(ctx, &c, "epochs", "17"));
    assert_ok(ctx, config_set(ctx, &c, "lr", "0.05"));
    assert_value(ctx, &c, "drops", "11,13");
    assert_value(ctx, &c, "first_epochs", "200");
    assert_value(ctx, &c, "first_lr", "0.1");
    assert_value(ctx, &c, "first_drops", "60,120,160");
    assert_ok(ctx, config_set(ctx, &c, "first_epochs", "20"));
    assert_value(ctx, &c, "first_drops", "6,12,16");
    assert_value(ctx, &c, "first_warmup_epochs", "0");
    assert_value(ctx, &c, "epochs", "17");
    test_ctx_free(ctx);
}

static void test_a_first_step_like_the_others_follows_them(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    struct config c = from(ctx, "imagenet1000-b0-10");
    static const char *const assignments[] = {"lr=0.2", "drops=50,60", "warmup_epochs=4",
                                              "drop_factor=0.2"};
    static const char *const want[][2] = {
        {"first_lr", "0.2"},          {"first_drops", "50,60"}, {"first_warmup_epochs", "4"},
        {"first_drop_factor", "0.2"}, {"first_epochs", "130"},  {"classifier_lr", "0.1"}};
    assert_ok(ctx, config_apply(ctx, &c, assignments, 4));
    assert_all_values(ctx, &c, want, 6);
    assert_ok(ctx, config_set(ctx, &c, "first_lr", "0.3"));
    assert_value(ctx, &c, "lr", "0.2");
    test_ctx_free(ctx);
}

/* All orders of a list, by Heap's method; each must give the same configuration. */
static void assert_order_does_not_matter(struct der_ctx *ctx, const char *preset,
                                         const char **assignments, int n)
{
    struct config first = from(ctx, preset);
    int count[8] = {0};
    assert_true(n <= 8);
    assert_ok(ctx, config_apply(ctx, &first, assignments, n));
    for (int i = 1; i < n;) {
        if (count[i] >= i) {
            count[i++] = 0;
            continue;
        }
        int other = i % 2 ? count[i] : 0;
        const char *moved = assignments[i];
        assignments[i] = assignments[other];
        assignments[other] = moved;
        struct config again = from(ctx, preset);
        assert_ok(ctx, config_apply(ctx, &again, assignments, n));
        assert_int_equal(config_differences(&first, &again, NULL, NULL), 0);
        count[i]++;
        i = 1;
    }
}

static void test_the_order_of_overrides_does_not_matter(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    const char *b0[] = {"epochs=30", "drops=12,20",    "first_epochs=40",
                        "lr=0.2",    "first_drops=35", "warmup_epochs=3"};
    assert_order_does_not_matter(ctx, "cifar100-b0-10", b0, 6);
    const char *b50[] = {"first_warmup_epochs=2", "epochs=30", "first_epochs=40", "first_lr=0.05",
                         "drops=none"};
    assert_order_does_not_matter(ctx, "cifar100-b50-5", b50, 5);
    const char *method[] = {"auxiliary=true", "method=finetune", "second_stage=false",
                            "expand=true"};
    assert_order_does_not_matter(ctx, "custom", method, 4);
    test_ctx_free(ctx);
}

/* One of the orders spelt out, so that "the same" is also right. */
static void test_what_sets_one_field_wins_over_what_sets_many(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    struct config c = from(ctx, "cifar100-b0-10");
    static const char *const assignments[] = {
        "first_drops=35", "first_epochs=40", "drops=12,20",     "epochs=30",
        "auxiliary=true", "method=finetune", "drop_factor=0.3", "lr=0.2"};
    static const char *const want[][2] = {{"epochs", "30"},       {"drops", "12,20"},
                                          {"warmup_epochs", "2"}, {"lr", "0.2"},
                                          {"drop_factor", "0.3"}, {"first_epochs", "40"},
                                          {"first_drops", "35"},  {"first_warmup_epochs", "2"},
                                          {"first_lr", "0.2"},    {"first_drop_factor", "0.3"},
                                          {"auxiliary", "true"},  {"prune", "false"},
                                          {"expand", "false"}};
    assert_ok(ctx, config_apply(ctx, &c, assignments, 8));
    assert_all_values(ctx, &c, want, 13);
    test_ctx_free(ctx);
}

static void test_of_two_values_for_one_key_the_later_counts(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    struct config c = from(ctx, "custom");
    static const char *const assignments[] = {"lr=0.2", "batch=64", "lr=0.3"};
    assert_ok(ctx, config_apply(ctx, &c, assignments, 3));
    assert_value(ctx, &c, "lr", "0.3");
    test_ctx_free(ctx);
}

/* Every key can be set in `custom`, and only what belongs to the protocol is refused elsewhere. */
static void test_protocols_fix_what_they_must_and_custom_nothing(void **state)
{
    (void)state;
    static const char *const fixed[] = {"classes",     "base_classes", "step_classes",
                                        "memory_mode", "memory",       "first_classes"};
    struct der_ctx *ctx = test_ctx_new(1);
    for (int p = 0; p < n_presets; p++) {
        struct config c = from(ctx, preset_table[p].name);
        int n_refused = 0;
        for (int i = 0; i < n_settings; i++) {
            const char *key = setting_table[i].key;
            bool protocol = false;
            char text[SETTING_TEXT_MAX];
            for (size_t k = 0; k < sizeof fixed / sizeof fixed[0]; k++)
                protocol = protocol || strcmp(key, fixed[k]) == 0;
            setting_format(&setting_table[i], &c, text);
            enum der_status status = config_set(ctx, &c, key, text);
            bool refused = strcmp(key, "preset") == 0 ||
                           (protocol && strcmp(preset_table[p].name, "custom") != 0);
            assert_int_equal(status, refused ? DER_ARG : DER_OK);
            if (protocol && refused) {
                assert_non_null(strstr(ctx->error, key));
                assert_non_null(strstr(ctx->error, preset_table[p].name));
                assert_non_null(strstr(ctx->error, "'custom' leaves it free"));
            }
            n_refused += refused;
        }
        assert_int_equal(n_refused, strcmp(preset_table[p].name, "custom") == 0 ? 1 : 7);
    }
    test_ctx_free(ctx);
}

static void test_custom_takes_a_protocol_of_ones_own(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    struct config c = from(ctx, "custom");
    static const char *const assignments[] = {"base_classes=4", "step_classes=3", "memory=7",
                                              "memory_mode=per-class"};
    assert_ok(ctx, config_apply(ctx, &c, assignments, 4));
    assert_ok(ctx, config_check(ctx, &c));
    assert_int_equal(c.memory_mode, MEMORY_PER_CLASS);
    assert_int_equal(c.memory, 7);
    assert_int_equal(config_steps(&c, 10), 3);
    test_ctx_free(ctx);
}

static void test_a_failed_override_changes_nothing(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    struct config c = from(ctx, "cifar100-b0-10");
    struct config before = c;
    static const char *const bad[][2] = {{"epochs=30", "batch=one"},
                                         {"epochs=30", "lamda_s=1"},
                                         {"epochs=30", "memory=5000"},
                                         {"epochs=30", "batch"},
                                         {"epochs=30", "=5"}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(config_apply(ctx, &c, bad[i], 2), DER_ARG);
        assert_true(strlen(ctx->error) > 0);
        assert_int_equal(config_differences(&c, &before, NULL, NULL), 0);
    }
    assert_int_equal(config_set(ctx, &c, "epochs", "0"), DER_ARG);
    assert_int_equal(config_differences(&c, &before, NULL, NULL), 0);
    test_ctx_free(ctx);
}

/* Collects what config_differences tells. */
struct told {
    int n;
    char key[4][32], a[4][32], b[4][32];
};

static void collect(void *user, const char *key, const char *a, const char *b)
{
    struct told *told = user;
    assert_true(told->n < 4);
    strncat(told->key[told->n], key, 31);
    strncat(told->a[told->n], a, 31);
    strncat(told->b[told->n], b, 31);
    told->n++;
}

static void test_stored_values_have_no_consequences(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    struct config c = from(ctx, "cifar100-b0-10");
    const char *given[] = {"epochs=30", "step_classes=5", "method=joint"};
    static const char *const want[][2] = {{"epochs", "30"},        {"drops", "110,130"},
                                          {"first_epochs", "170"}, {"step_classes", "5"},
                                          {"method", "joint"},     {"expand", "true"}};
    assert_ok(ctx, config_store(ctx, &c, given, 3));
    assert_all_values(ctx, &c, want, 6);
    given[0] = "epochs=31";
    given[2] = "method=other";
    assert_int_equal(config_store(ctx, &c, given, 3), DER_ARG);
    assert_value(ctx, &c, "epochs", "30");
    test_ctx_free(ctx);
}

static void test_differences_are_told_with_both_values(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    struct config a = from(ctx, "cifar100-b50-2");
    struct config b = a;
    struct told told = {0};
    assert_int_equal(config_differences(&a, &b, collect, &told), 0);
    assert_ok(ctx, config_set(ctx, &b, "lambda_s", "0.5"));
    assert_ok(ctx, config_set(ctx, &b, "drops", "none"));
    assert_int_equal(config_differences(&a, &b, collect, &told), 2);
    assert_int_equal(told.n, 2);
    assert_string_equal(told.key[0], "drops");
    assert_string_equal(told.a[0], "110,130");
    assert_string_equal(told.b[0], "none");
    assert_string_equal(told.key[1], "lambda_s");
    assert_string_equal(told.a[1], "0.25");
    assert_string_equal(told.b[1], "0.5");
    test_ctx_free(ctx);
}

/* Sizes of masks are as nothing to runs that have none. */
static void test_settings_of_masks_do_not_count_without_pruning(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    struct config a = from(ctx, "cifar100-b50-2");
    struct config b = a;
    assert_ok(ctx, config_set(ctx, &b, "mask_gain", "3"));
    assert_ok(ctx, config_set(ctx, &b, "first_target_params", "1k"));
    assert_int_equal(config_differences(&a, &b, NULL, NULL), 2);
    assert_ok(ctx, config_set(ctx, &b, "prune", "false"));
    assert_int_equal(config_differences(&a, &b, NULL, NULL), 3);
    assert_ok(ctx, config_set(ctx, &a, "prune", "false"));
    assert_int_equal(config_differences(&a, &b, NULL, NULL), 0);
    assert_ok(ctx, config_set(ctx, &b, "lr", "0.2"));
    assert_true(config_differences(&a, &b, NULL, NULL) > 0);
    test_ctx_free(ctx);
}

static void test_a_size_is_one_for_every_step_but_a_first_one_of_its_own(void **state)
{
    (void)state;
    static const char *const both[] = {"first_target_params=2k", "target_params=1k"};
    struct der_ctx *ctx = test_ctx_new(1);
    struct config c = from(ctx, "cifar100-b50-2");
    assert_ok(ctx, config_apply(ctx, &c, both, 2));
    assert_int_equal(c.target_params, 1000);
    assert_int_equal(c.first_target_params, 2000);
    assert_ok(ctx, config_set(ctx, &c, "target_params", "3k"));
    assert_int_equal(c.first_target_params, 0);
    test_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_epochs_squeeze_the_shape_of_the_preset),
        cmocka_unit_test(test_a_first_step_with_its_own_schedule_keeps_it),
        cmocka_unit_test(test_a_first_step_like_the_others_follows_them),
        cmocka_unit_test(test_the_order_of_overrides_does_not_matter),
        cmocka_unit_test(test_what_sets_one_field_wins_over_what_sets_many),
        cmocka_unit_test(test_of_two_values_for_one_key_the_later_counts),
        cmocka_unit_test(test_protocols_fix_what_they_must_and_custom_nothing),
        cmocka_unit_test(test_custom_takes_a_protocol_of_ones_own),
        cmocka_unit_test(test_a_failed_override_changes_nothing),
        cmocka_unit_test(test_stored_values_have_no_consequences),
        cmocka_unit_test(test_differences_are_told_with_both_values),
        cmocka_unit_test(test_settings_of_masks_do_not_count_without_pruning),
        cmocka_unit_test(test_a_size_is_one_for_every_step_but_a_first_one_of_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * Settings through the public interface, as a program uses them.
 */
#include <der/der.h>

#include "config/setting.h"

#include "support/test_ctx.h"

#include <string.h>

static int index_of(struct der_ctx *ctx, const char *key)
{
    for (int i = 0; i < der_setting_count(); i++) {
        struct der_setting_info info;
        assert_ok(ctx, der_setting_describe(ctx, i, &info));
        if (strcmp(info.key, key) == 0)
            return i;
    }
    fail_msg("no setting %s", key);
    return -1;
}

static void test_presets_are_listed(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    struct der_preset_info info;
    for (int i = 0; i < der_preset_count(); i++) {
        assert_ok(ctx, der_preset_describe(ctx, i, &info));
        assert_true(strlen(info.name) > 0 && strlen(info.summary) > 0);
    }
    assert_string_equal(info.name, "custom");
    assert_int_equal(der_preset_describe(ctx, -1, &info), DER_ARG);
    assert_int_equal(der_preset_describe(ctx, der_preset_count(), &info), DER_ARG);
    test_ctx_free(ctx);
}

static void test_settings_say_what_they_take(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    struct der_setting_info info;
    assert_ok(ctx, der_setting_describe(ctx, index_of(ctx, "width"), &info));
    assert_string_equal(info.allowed, "a number above 0, at most 16");
    assert_false(info.fixed_by_preset);
    assert_ok(ctx, der_setting_describe(ctx, index_of(ctx, "memory"), &info));
    assert_true(info.fixed_by_preset);
    assert_int_equal(der_setting_describe(ctx, -1, &info), DER_ARG);
    assert_int_equal(der_setting_describe(ctx, der_setting_count(), &info), DER_ARG);
    test_ctx_free(ctx);
}

static void test_settings_list_their_choices(void **state)
{
    (void)state;
    assert_string_equal(der_setting_choice("method", 0), "der");
    assert_string_equal(der_setting_choice("method", 2), "joint");
    assert_string_equal(der_setting_choice("method", 5), "bic");
    assert_null(der_setting_choice("method", 6));
    assert_null(der_setting_choice("method", -1));
    assert_string_equal(der_setting_choice("prune", 1), "false");
    assert_string_equal(der_setting_choice("augment", 1), "cifar100");
    assert_null(der_setting_choice("width", 0));
    assert_null(der_setting_choice("order", 0));
    assert_null(der_setting_choice("nothing", 0));
}

static void test_mistyped_choices_get_a_suggestion(void **state)
{
    (void)state;
    static const char *const mistyped[] = {"memory_mode=totl"};
    struct der_ctx *ctx = test_ctx_new(1);
    struct der_settings *settings;
    assert_int_equal(der_settings_new(ctx, "custom", "jiont", NULL, 0, &settings), DER_ARG);
    assert_non_null(strstr(der_ctx_error(ctx), "did you mean 'joint'? method takes one of der"));
    assert_int_equal(der_settings_new(ctx, "custom", NULL, mistyped, 1, &settings), DER_ARG);
    assert_non_null(strstr(der_ctx_error(ctx), "did you mean 'total'?"));
    assert_int_equal(der_settings_new(ctx, "custom", "forget", NULL, 0, &settings), DER_ARG);
    assert_null(strstr(der_ctx_error(ctx), "did you mean"));
    test_ctx_free(ctx);
}

static void test_settings_are_resolved(void **state)
{
    (void)state;
    static const char *const assignments[] = {"drops=15", "epochs=20"};
    struct der_ctx *ctx = test_ctx_new(1);
    struct der_settings *settings;
    assert_ok(ctx, der_settings_new(ctx, "cifar100-b0-10", "finetune", assignments, 2, &settings));
    assert_string_equal(der_settings_value(settings, index_of(ctx, "epochs")), "20");
    assert_string_equal(der_settings_value(settings, index_of(ctx, "drops")), "15");
    assert_string_equal(der_settings_value(settings, index_of(ctx, "prune")), "false");
    assert_string_equal(der_settings_value(settings, -1), "");
    assert_string_equal(der_settings_value(settings, der_setting_count()), "");
    const char *text;
    const char *again;
    assert_ok(ctx, der_settings_json(settings, &text));
    assert_non_null(strstr(text, "\"method\":\t\"finetune\""));
    assert_ok(ctx, der_settings_json(settings, &again));
    assert_ptr_equal(text, again);
    der_settings_free(settings);
    der_settings_free(NULL);
    test_ctx_free(ctx);
}

static void test_mistakes_are_refused_and_leave_nothing(void **state)
{
    (void)state;
    static const struct {
        const char *preset, *method, *assignment, *words;
    } cases[] = {
        {"cifar100-b0-11", NULL, "lr=1", "did you mean 'cifar100-b0-10'"},
        {"custom", "derr", "lr=1", "method=derr"},
        {"custom", NULL, "lamda_s=1", "did you mean 'lambda_s'"},
        {"cifar100-b0-10", NULL, "memory=1", "'custom' leaves it free"},
        {"cifar100-b0-10", NULL, "expand=false", "prune=true needs expand=true"},
    };
    struct der_ctx *ctx = test_ctx_new(1);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct der_settings *settings;
        assert_int_equal(der_settings_new(ctx, cases[i].preset, cases[i].method,
                                          &cases[i].assignment, 1, &settings),
                         DER_ARG);
        assert_null(settings);
        assert_non_null(strstr(der_ctx_error(ctx), cases[i].words));
    }
    test_ctx_free(ctx);
}

static void test_every_allocation_may_fail(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    int n_failures = 0;
    for (uint64_t n = 1;; n++) {
        struct der_settings *settings;
        const char *text = NULL;
        ctx->mem.fail_at = ctx->mem.n_allocs + n;
        enum der_status status = der_settings_new(ctx, "custom", NULL, NULL, 0, &settings);
        if (status == DER_OK)
            status = der_settings_json(settings, &text);
        der_settings_free(settings);
        assert_int_equal(ctx->mem.n_live, 0);
        if (status == DER_OK)
            break;
        assert_int_equal(status, DER_NOMEM);
        n_failures++;
    }
    assert_int_equal(n_failures, 2);
    ctx->mem.fail_at = 0;
    test_ctx_free(ctx);
}

/* The table of settings cannot see the networks; here both meet. */
static void test_networks_are_those_that_exist(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    const char *const *choices = setting_table[index_of(ctx, "network")].choices;
    for (int i = 0; i < der_network_count(); i++) {
        struct der_network_info info;
        assert_ok(ctx, der_network_describe(ctx, i, 3, &info));
        assert_non_null(choices[i]);
        assert_string_equal(choices[i], info.name);
    }
    assert_null(choices[der_network_count()]);
    test_ctx_free(ctx);
}

static void test_words_of_a_table_are_suggested(void **state)
{
    (void)state;
    static const struct {
        int number;
        const char *name;
    } rows[] = {{1, "train"}, {2, "presets"}};
    assert_string_equal(der_suggest("preset", &rows[0].name, 2, sizeof rows[0]), "presets");
    assert_null(der_suggest("predict", &rows[0].name, 2, sizeof rows[0]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_presets_are_listed),
        cmocka_unit_test(test_settings_say_what_they_take),
        cmocka_unit_test(test_settings_list_their_choices),
        cmocka_unit_test(test_mistyped_choices_get_a_suggestion),
        cmocka_unit_test(test_settings_are_resolved),
        cmocka_unit_test(test_mistakes_are_refused_and_leave_nothing),
        cmocka_unit_test(test_every_allocation_may_fail),
        cmocka_unit_test(test_networks_are_those_that_exist),
        cmocka_unit_test(test_words_of_a_table_are_suggested),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * The table of settings: every row readable, writable and bounded.
 */
#include "config/preset.h"
#include "config/setting.h"

#include "support/test_ctx.h"

#include <stdio.h>
#include <string.h>

static struct config some_config(void)
{
    struct config config;
    preset_fill(&preset_table[0], METHOD_DER, &config);
    return config;
}

static const struct setting *find(struct der_ctx *ctx, const char *key)
{
    const struct setting *setting;
    assert_ok(ctx, setting_find(ctx, key, &setting));
    return setting;
}

/* The text is refused, the message says which key, which value and what is allowed, and nothing
 * changes. */
static void assert_refused(struct der_ctx *ctx, const char *key, const char *text)
{
    const struct setting *setting = find(ctx, key);
    struct config config = some_config();
    char allowed[256];
    char before[SETTING_TEXT_MAX];
    char after[SETTING_TEXT_MAX];
    char assignment[128];
    setting_format(setting, &config, before);
    if (setting_store(ctx, setting, text, &config) != DER_ARG)
        fail_msg("%s=%s was accepted", key, text);
    (void)snprintf(assignment, sizeof assignment, "%s=%.60s", key, text);
    setting_allowed(setting, allowed, sizeof allowed);
    assert_non_null(strstr(ctx->error, assignment));
    assert_non_null(strstr(ctx->error, allowed));
    setting_format(setting, &config, after);
    assert_string_equal(before, after);
}

static void assert_stored(struct der_ctx *ctx, const char *key, const char *text, const char *want)
{
    const struct setting *setting = find(ctx, key);
    struct config config = some_config();
    char met[SETTING_TEXT_MAX];
    assert_ok(ctx, setting_store(ctx, setting, text, &config));
    setting_format(setting, &config, met);
    assert_string_equal(met, want);
}

static void test_keys_are_unique_and_have_help(void **state)
{
    (void)state;
    for (int i = 0; i < n_settings; i++) {
        assert_true(strlen(setting_table[i].help) > 0);
        assert_true(setting_table[i].at.size > 0);
        for (int k = 0; k < i; k++)
            assert_string_not_equal(setting_table[i].key, setting_table[k].key);
    }
}

/* A field that no row knows would be missing from the record of a run. One that is smaller than the
 * padding of a double escapes this. */
static void test_the_settings_cover_the_whole_struct(void **state)
{
    (void)state;
    static uint8_t covered[sizeof(struct config)];
    for (int i = 0; i < n_settings; i++)
        memset(covered + setting_table[i].at.offset, 1, setting_table[i].at.size);
    size_t run = 0;
    for (size_t i = 0; i < sizeof covered; i++) {
        run = covered[i] ? 0 : run + 1;
        assert_true(run < sizeof(double));
    }
}

static void test_every_value_reads_back_as_written(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    for (int p = 0; p < n_presets; p++) {
        struct config config;
        preset_fill(&preset_table[p], METHOD_DER, &config);
        for (int i = 0; i < n_settings; i++) {
            char text[SETTING_TEXT_MAX];
            setting_format(&setting_table[i], &config, text);
            assert_stored(ctx, setting_table[i].key, text, text);
        }
    }
    test_ctx_free(ctx);
}

static void number_just(double value, char text[64])
{
    (void)snprintf(text, 64, "%.17g", value);
}

/* Of every number: the bounds themselves (or a little inside), and what lies past them. */
static void test_every_number_is_bounded_on_both_sides(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    int n_numbers = 0;
    for (int i = 0; i < n_settings; i++) {
        const struct setting *s = &setting_table[i];
        if (s->type > SETTING_DOUBLE)
            continue;
        n_numbers++;
        double step = s->type == SETTING_DOUBLE ? 1e-3 : 1.0;
        char text[64];
        struct config config = some_config();
        number_just(s->min + (s->is_above_min ? step : 0.0), text);
        if (s->type != SETTING_DOUBLE)
            (void)snprintf(text, sizeof text, "%.0f", s->min);
        assert_ok(ctx, setting_store(ctx, s, text, &config));
        number_just(s->max - (s->is_below_max ? step : 0.0), text);
        assert_ok(ctx, setting_store(ctx, s, text, &config));
        number_just(s->is_above_min ? s->min : s->min - step, text);
        assert_refused(ctx, s->key, text);
        number_just(s->is_below_max ? s->max : s->max + step, text);
        if (s->type != SETTING_DOUBLE)
            (void)snprintf(text, sizeof text, "%.0f", s->max + 1);
        assert_refused(ctx, s->key, text);
        assert_refused(ctx, s->key, "");
        assert_refused(ctx, s->key, "many");
        assert_refused(ctx, s->key, "nan");
        assert_refused(ctx, s->key, "inf");
        assert_refused(ctx, s->key, " 5");
        assert_refused(ctx, s->key, "5 ");
        assert_refused(ctx, s->key, "0x5");
        assert_refused(ctx, s->key, "1e999");
    }
    assert_true(n_numbers > 30);
    test_ctx_free(ctx);
}

static void test_words_are_those_of_the_list_and_no_others(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    for (int i = 0; i < n_settings; i++) {
        const struct setting *s = &setting_table[i];
        for (int k = 0; s->choices && s->choices[k]; k++)
            assert_stored(ctx, s->key, s->choices[k], s->choices[k]);
        if (s->choices || s->type == SETTING_BOOL) {
            assert_refused(ctx, s->key, "perhaps");
            assert_refused(ctx, s->key, "1");
            assert_refused(ctx, s->key, "");
        }
        if (s->type == SETTING_BOOL) {
            assert_stored(ctx, s->key, "true", "true");
            assert_stored(ctx, s->key, "false", "false");
        }
    }
    test_ctx_free(ctx);
}

/* The words stand in the order of the enum. */
static void test_words_mean_the_right_value(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    struct config c = some_config();
    assert_ok(ctx, setting_store(ctx, find(ctx, "method"), "finetune", &c));
    assert_int_equal(c.method, METHOD_FINETUNE);
    assert_ok(ctx, setting_store(ctx, find(ctx, "method"), "joint", &c));
    assert_int_equal(c.method, METHOD_JOINT);
    assert_ok(ctx, setting_store(ctx, find(ctx, "memory_mode"), "per-class", &c));
    assert_int_equal(c.memory_mode, MEMORY_PER_CLASS);
    assert_ok(ctx, setting_store(ctx, find(ctx, "memory_mode"), "total", &c));
    assert_int_equal(c.memory_mode, MEMORY_FIXED_TOTAL);
    assert_ok(ctx, setting_store(ctx, find(ctx, "classifier_init"), "inherit", &c));
    assert_int_equal(c.classifier_init, CLASSIFIER_INHERIT);
    assert_ok(ctx, setting_store(ctx, find(ctx, "mask_init"), "uniform", &c));
    assert_int_equal(c.mask_init, MASK_INIT_UNIFORM);
    assert_ok(ctx, setting_store(ctx, find(ctx, "mask_init"), "constant", &c));
    assert_int_equal(c.mask_init, MASK_INIT_CONSTANT);
    assert_ok(ctx, setting_store(ctx, find(ctx, "mask_gradient"), "hat", &c));
    assert_int_equal(c.mask_gradient, MASK_GRADIENT_HAT);
    assert_ok(ctx, setting_store(ctx, find(ctx, "joint_steps"), "last", &c));
    assert_true(c.joint_last);
    test_ctx_free(ctx);
}

static void test_counts_may_be_written_short(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    assert_stored(ctx, "target_params", "0", "0");
    assert_stored(ctx, "target_params", "900000", "900000");
    assert_stored(ctx, "target_params", "0.9M", "900000");
    assert_stored(ctx, "target_params", "900k", "900000");
    assert_stored(ctx, "target_params", "1.47M", "1470000");
    assert_stored(ctx, "target_params", "2G", "2000000000");
    assert_refused(ctx, "target_params", "0.9");
    assert_refused(ctx, "target_params", "0.9T");
    assert_refused(ctx, "target_params", "M");
    assert_refused(ctx, "target_params", "-1k");
    assert_refused(ctx, "target_params", "9e300G");
    assert_refused(ctx, "batch", "1k");
    test_ctx_free(ctx);
}

static void test_lists_of_epochs_ascend(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    assert_stored(ctx, "drops", "110,130", "110,130");
    assert_stored(ctx, "first_drops", "none", "none");
    assert_stored(ctx, "classifier_drops", "0", "0");
    assert_stored(ctx, "drops", "1,2,3,4,5,6,7,8", "1,2,3,4,5,6,7,8");
    static const char *const bad[] = {
        "",   ",",    "110,",    "110,110", "130,110", "1,2,3,4,5,6,7,8,9",
        "-1", "1 ,2", "110;130", "9999999", "none,1",  "1.5"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_refused(ctx, "drops", bad[i]);
    test_ctx_free(ctx);
}

static void test_texts_fit_and_have_no_control_characters(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    char path[CONFIG_PATH + 1];
    memset(path, 'x', sizeof path);
    path[CONFIG_PATH] = '\0';
    assert_refused(ctx, "order", path);
    path[CONFIG_PATH - 1] = '\0';
    assert_stored(ctx, "order", path, path);
    assert_stored(ctx, "order", "seed:7", "seed:7");
    assert_refused(ctx, "order", "");
    assert_refused(ctx, "order", "a\nb");
    assert_refused(ctx, "order", "caf\xe9");
    assert_stored(ctx, "order", "caf\xc3\xa9", "caf\xc3\xa9");
    test_ctx_free(ctx);
}

static void test_seeds_keep_all_their_digits(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    assert_stored(ctx, "seed", "999999999999999", "999999999999999");
    assert_refused(ctx, "seed", "1000000000000000");
    assert_refused(ctx, "seed", "99999999999999999999");
    test_ctx_free(ctx);
}

/* A number that is rounded to a bound which is not allowed is not allowed either. */
static void test_numbers_have_fifteen_digits(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    assert_stored(ctx, "momentum", "0.9999999999999", "0.9999999999999");
    assert_refused(ctx, "momentum", "0.9999999999999999");
    assert_stored(ctx, "lr", "0.123456789012345678", "0.123456789012346");
    assert_stored(ctx, "decay", "-0", "0");
    test_ctx_free(ctx);
}

static void test_unknown_keys_get_a_suggestion(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    const struct setting *setting;
    assert_int_equal(setting_find(ctx, "lamda_s", &setting), DER_ARG);
    assert_null(setting);
    assert_string_equal(ctx->error, "unknown setting 'lamda_s'; did you mean 'lambda_s'?");
    assert_int_equal(setting_find(ctx, "frobnicate", &setting), DER_ARG);
    assert_null(strstr(ctx->error, "did you mean"));
    test_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_keys_are_unique_and_have_help),
        cmocka_unit_test(test_the_settings_cover_the_whole_struct),
        cmocka_unit_test(test_every_value_reads_back_as_written),
        cmocka_unit_test(test_every_number_is_bounded_on_both_sides),
        cmocka_unit_test(test_words_are_those_of_the_list_and_no_others),
        cmocka_unit_test(test_words_mean_the_right_value),
        cmocka_unit_test(test_counts_may_be_written_short),
        cmocka_unit_test(test_lists_of_epochs_ascend),
        cmocka_unit_test(test_texts_fit_and_have_no_control_characters),
        cmocka_unit_test(test_seeds_keep_all_their_digits),
        cmocka_unit_test(test_numbers_have_fifteen_digits),
        cmocka_unit_test(test_unknown_keys_get_a_suggestion),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

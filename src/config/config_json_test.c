/*
 * Configurations as JSON: there and back, and what is not taken back.
 */
#include "config/config_json.h"

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

/* Through text and back. */
static struct config round_trip(struct der_ctx *ctx, const struct config *config)
{
    cJSON *object;
    cJSON *parsed;
    char *text;
    struct config read;
    assert_ok(ctx, config_to_json(ctx, config, &object));
    assert_int_equal(cJSON_GetArraySize(object), n_settings);
    assert_ok(ctx, json_print(ctx, object, true, &text));
    assert_ok(ctx, json_parse(ctx, "test", text, strlen(text), &parsed));
    assert_ok(ctx, config_from_json(ctx, "test", parsed, &read));
    mem_free(&ctx->mem, text);
    json_free(object);
    json_free(parsed);
    return read;
}

static void test_every_preset_survives_the_round_trip(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    for (int p = 0; p < n_presets; p++) {
        for (int method = METHOD_DER; method <= METHOD_WA; method++) {
            struct config config;
            preset_fill(&preset_table[p], (enum method)method, &config);
            struct config read = round_trip(ctx, &config);
            assert_int_equal(config_differences(&config, &read, NULL, NULL), 0);
        }
    }
    test_ctx_free(ctx);
}

static void test_awkward_values_survive_the_round_trip(void **state)
{
    (void)state;
    static const char *const assignments[] = {
        "seed=999999999999999",      "lr=0.012345678901234567", "decay=1e-300",     "drops=none",
        "order=a \"b\"\\c/\xc3\xa4", "target_params=1e-3G",     "joint_steps=last", "hard_epoch=7"};
    struct der_ctx *ctx = test_ctx_new(1);
    struct config config = from(ctx, "custom");
    assert_ok(ctx, config_apply(ctx, &config, assignments, 8));
    struct config read = round_trip(ctx, &config);
    assert_int_equal(config_differences(&config, &read, NULL, NULL), 0);
    assert_true(read.seed == 999999999999999u);
    assert_true(read.representation.lr == 0.0123456789012346); /* 15 digits are kept */
    assert_true(read.decay == 1e-300);
    assert_int_equal(read.representation.n_drops, 0);
    assert_int_equal(read.target_params, 1000000);
    test_ctx_free(ctx);
}

static void test_values_have_the_types_readers_expect(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    struct config config = from(ctx, "cifar100-b50-10");
    cJSON *object;
    char *text;
    assert_ok(ctx, config_to_json(ctx, &config, &object));
    assert_ok(ctx, json_print(ctx, object, false, &text));
    static const char *const parts[] = {"{\"preset\":\"cifar100-b50-10\",\"method\":\"der\",",
                                        "\"memory_mode\":\"per-class\",\"memory\":20,",
                                        "\"drops\":[110,130],",
                                        "\"first_drops\":[60,120,160],",
                                        "\"decay\":0.0005,",
                                        "\"prune\":true,",
                                        "\"joint_steps\":\"every\"}"};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (!strstr(text, parts[i]))
            fail_msg("%s is not in %s", parts[i], text);
    mem_free(&ctx->mem, text);
    json_free(object);
    test_ctx_free(ctx);
}

/* The object of a preset with one member replaced (value NULL: removed) is refused with these words,
 * and the target stays as it was. */
static void assert_refused(const char *preset, const char *key, const char *value,
                           const char *words)
{
    struct der_ctx *ctx = test_ctx_new(1);
    struct config config = from(ctx, preset);
    cJSON *object;
    assert_ok(ctx, config_to_json(ctx, &config, &object));
    cJSON_DeleteItemFromObjectCaseSensitive(object, key);
    if (value)
        assert_true(cJSON_AddItemToObject(object, key, cJSON_Parse(value)));
    struct config target = from(ctx, "fashion-mnist-5");
    struct config before = target;
    assert_int_equal(config_from_json(ctx, "run/config.json", object, &target), DER_FORMAT);
    assert_int_equal(config_differences(&target, &before, NULL, NULL), 0);
    assert_int_equal(strncmp(ctx->error, "run/config.json: ", 17), 0);
    if (!strstr(ctx->error, words))
        fail_msg("'%s' is not in: %s", words, ctx->error);
    json_free(object);
    test_ctx_free(ctx);
}

static void test_bad_members_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *key, *value, *words;
    } cases[] = {
        {"lr", NULL, "'lr' is missing"},
        {"lr", "\"0.1\"", "'lr' has the wrong type"},
        {"lr", "null", "'lr' has the wrong type"},
        {"lr", "-0.1", "lr=-0.1"},
        {"lr", "1e999", "lr=inf is refused"},
        {"batch", "128.5", "batch=128.5"},
        {"batch", "1e300", "batch="},
        {"seed", "9007199254740993", "seed="},
        {"prune", "1", "'prune' has the wrong type"},
        {"method", "\"magic\"", "method=magic"},
        {"method", "2", "'method' has the wrong type"},
        {"drops", "\"110,130\"", "'drops' has the wrong type"},
        {"drops", "[130, 110]", "drops=130,110"},
        {"drops", "[1,2,3,4,5,6,7,8,9]", "drops=1,2,3"},
        {"drops", "[110, \"130\"]", "'drops' has the wrong type"},
        {"drops", "[110, 1.5]", "drops=110,1.5"},
        {"drops", "[110, 170]", "drops has epoch 170"},
        {"network", "\"\"", "network="},
        {"preset", "\"cifar100-b0-11\"", "did you mean"},
        {"lamda_s", "1", "unknown setting 'lamda_s'; did you mean 'lambda_s'?"},
        {"expand", "false", "prune=true needs expand=true"},
        {"memory", "5000", "memory=5000, but the protocol of preset cifar100-b0-10 has 2000"},
        {"memory_mode", "\"per-class\"", "but the protocol"},
        {"base_classes", "50", "but the protocol"},
        {"classes", "10", "but the protocol"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_refused("cifar100-b0-10", cases[i].key, cases[i].value, cases[i].words);
}

/* Runs that were made before there was such a setting can be read. */
static void test_a_record_may_be_older_than_a_setting(void **state)
{
    (void)state;
    static const char *const young[] = {"mask_inherit",
                                        "mask_least",
                                        "hard_share",
                                        "first_target_params",
                                        "distill",
                                        "distill_temperature",
                                        "readout",
                                        "classifier_positive",
                                        "temperature_features"};
    struct der_ctx *ctx = test_ctx_new(1);
    struct config config = from(ctx, "cifar100-b0-10");
    struct config read = config;
    cJSON *object;
    assert_ok(ctx, config_set(ctx, &config, "first_target_params", "5k"));
    assert_ok(ctx, config_set(ctx, &config, "mask_least", "0.5"));
    assert_ok(ctx, config_set(ctx, &config, "hard_share", "0.3"));
    assert_ok(ctx, config_set(ctx, &config, "temperature_features", "64"));
    assert_true(config.mask_inherit > 0.0);
    assert_ok(ctx, config_to_json(ctx, &config, &object));
    for (size_t i = 0; i < sizeof young / sizeof *young; i++)
        cJSON_DeleteItemFromObjectCaseSensitive(object, young[i]);
    read.first_target_params = 7;
    assert_ok(ctx, config_from_json(ctx, "run/config.json", object, &read));
    assert_true(read.mask_inherit == 0.0 && read.mask_least == 0.0 && read.hard_share == 0.0);
    assert_int_equal(read.first_target_params, 0);
    assert_int_equal(read.temperature_features, 0);
    assert_int_equal(config_differences(&config, &read, NULL, NULL),
                     5); /* none of the comparators' */
    json_free(object);
    test_ctx_free(ctx);
}

static void test_what_is_no_such_object_is_refused(void **state)
{
    (void)state;
    static const char *const texts[] = {"[]", "3", "\"x\"", "null", "{}", "{\"lr\":0.1}"};
    struct der_ctx *ctx = test_ctx_new(1);
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        cJSON *value;
        struct config config;
        assert_ok(ctx, json_parse(ctx, "test", texts[i], strlen(texts[i]), &value));
        assert_int_equal(config_from_json(ctx, "test", value, &config), DER_FORMAT);
        json_free(value);
    }
    test_ctx_free(ctx);
}

static void test_a_setting_that_is_there_twice_is_refused(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    struct config config = from(ctx, "custom");
    cJSON *object;
    assert_ok(ctx, config_to_json(ctx, &config, &object));
    assert_true(cJSON_AddItemToObject(object, "lr", cJSON_CreateNumber(0.3)));
    assert_int_equal(config_from_json(ctx, "test", object, &config), DER_FORMAT);
    assert_string_equal(ctx->error, "test: setting 'lr' is there twice");
    json_free(object);
    test_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_preset_survives_the_round_trip),
        cmocka_unit_test(test_awkward_values_survive_the_round_trip),
        cmocka_unit_test(test_values_have_the_types_readers_expect),
        cmocka_unit_test(test_bad_members_are_refused),
        cmocka_unit_test(test_a_record_may_be_older_than_a_setting),
        cmocka_unit_test(test_what_is_no_such_object_is_refused),
        cmocka_unit_test(test_a_setting_that_is_there_twice_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

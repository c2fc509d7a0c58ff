/*
 * Every preset: what the specification says in so many words, and all its settings against the
 * committed table tests/data/presets.txt.
 *
 * DER_UPDATE=1 in the environment writes the table anew; its difference is then to be read line by
 * line against the paper.
 */
#include "config/preset.h"

#include "config/setting.h"
#include "core/file.h"

#include "support/test_ctx.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TABLE_MAX = 65536 };

static struct config from(struct der_ctx *ctx, const char *preset)
{
    struct config config;
    assert_ok(ctx, config_from_preset(ctx, preset, METHOD_DER, &config));
    return config;
}

/* The protocols as the issue, the paper and its code have them, typed here a second time. */
static const struct {
    const char *name;
    int classes, n_steps, base, step;
    enum memory_mode mode;
    int memory;
    const char *network;
    double lambda_s, temperature;
    int batch, epochs, first_epochs, first_classes;
} PROTOCOLS[] = {
    {"cifar100-b0-5", 100, 5, 20, 20, MEMORY_FIXED_TOTAL, 2000, "resnet18-cifar", .75, 5, 128, 170,
     170, 0},
    {"cifar100-b0-10", 100, 10, 10, 10, MEMORY_FIXED_TOTAL, 2000, "resnet18-cifar", .75, 5, 128,
     170, 170, 0},
    {"cifar100-b0-20", 100, 20, 5, 5, MEMORY_FIXED_TOTAL, 2000, "resnet18-cifar", .75, 5, 128, 170,
     170, 0},
    {"cifar100-b0-50", 100, 50, 2, 2, MEMORY_FIXED_TOTAL, 2000, "resnet18-cifar", .75, 5, 128, 170,
     170, 0},
    {"cifar100-b50-2", 100, 3, 50, 25, MEMORY_PER_CLASS, 20, "resnet18-cifar", .25, 5, 128, 170,
     200, 0},
    {"cifar100-b50-5", 100, 6, 50, 10, MEMORY_PER_CLASS, 20, "resnet18-cifar", .25, 5, 128, 170,
     200, 0},
    {"cifar100-b50-10", 100, 11, 50, 5, MEMORY_PER_CLASS, 20, "resnet18-cifar", .25, 5, 128, 170,
     200, 0},
    {"cifar100-b0-5-rn32", 100, 5, 20, 20, MEMORY_FIXED_TOTAL, 2000, "resnet32", .75, 5, 128, 170,
     170, 0},
    {"cifar100-b0-10-rn32", 100, 10, 10, 10, MEMORY_FIXED_TOTAL, 2000, "resnet32", .75, 5, 128, 170,
     170, 0},
    {"cifar100-b0-20-rn32", 100, 20, 5, 5, MEMORY_FIXED_TOTAL, 2000, "resnet32", .75, 5, 128, 170,
     170, 0},
    {"cifar100-b0-50-rn32", 100, 50, 2, 2, MEMORY_FIXED_TOTAL, 2000, "resnet32", .75, 5, 128, 170,
     170, 0},
    {"cifar100-b50-2-rn32", 100, 3, 50, 25, MEMORY_PER_CLASS, 20, "resnet32", .25, 5, 128, 170, 200,
     0},
    {"cifar100-b50-5-rn32", 100, 6, 50, 10, MEMORY_PER_CLASS, 20, "resnet32", .25, 5, 128, 170, 200,
     0},
    {"cifar100-b50-10-rn32", 100, 11, 50, 5, MEMORY_PER_CLASS, 20, "resnet32", .25, 5, 128, 170,
     200, 0},
    {"imagenet100-b0-10", 100, 10, 10, 10, MEMORY_FIXED_TOTAL, 2000, "resnet18", .75, 1, 256, 130,
     130, 100},
    {"imagenet100-b50-10", 100, 11, 50, 5, MEMORY_PER_CLASS, 20, "resnet18-3x3", .5, 1, 256, 130,
     200, 100},
    {"imagenet1000-b0-10", 1000, 10, 100, 100, MEMORY_FIXED_TOTAL, 20000, "resnet18", .75, 1, 256,
     130, 130, 0},
    {"fashion-mnist-5", 10, 5, 2, 2, MEMORY_FIXED_TOTAL, 100, "resnet32", .75, 5, 128, 40, 40, 0},
};

enum { N_PROTOCOLS = sizeof PROTOCOLS / sizeof PROTOCOLS[0] };

static void test_protocols_are_the_papers(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    assert_int_equal(n_presets, N_PROTOCOLS + 1); /* and `custom` */
    for (int i = 0; i < N_PROTOCOLS; i++) {
        struct config c = from(ctx, PROTOCOLS[i].name);
        assert_string_equal(c.preset, PROTOCOLS[i].name);
        assert_int_equal(c.classes, PROTOCOLS[i].classes);
        assert_int_equal(config_steps(&c, c.classes), PROTOCOLS[i].n_steps);
        assert_int_equal(config_step_classes(&c, c.classes, 0), PROTOCOLS[i].base);
        for (int t = 1; t < PROTOCOLS[i].n_steps; t++)
            assert_int_equal(config_step_classes(&c, c.classes, t), PROTOCOLS[i].step);
        assert_int_equal(c.memory_mode, PROTOCOLS[i].mode);
        assert_int_equal(c.memory, PROTOCOLS[i].memory);
        assert_string_equal(c.network, PROTOCOLS[i].network);
        assert_true(c.lambda_s == PROTOCOLS[i].lambda_s);
        assert_true(c.temperature == PROTOCOLS[i].temperature);
        assert_int_equal(c.batch, PROTOCOLS[i].batch);
        assert_int_equal(c.representation.epochs, PROTOCOLS[i].epochs);
        assert_int_equal(c.first.epochs, PROTOCOLS[i].first_epochs);
        assert_int_equal(c.first_classes, PROTOCOLS[i].first_classes);
        assert_ok(ctx, config_check(ctx, &c));
    }
    test_ctx_free(ctx);
}

/* Parameters in millions, the mean over the steps, of the paper's rows with pruning. */
static const struct {
    const char *name;
    double mean;
} SIZES[] = {
    {"cifar100-b0-5", 2.89},       {"cifar100-b0-10", 4.96},       {"cifar100-b0-20", 7.21},
    {"cifar100-b0-50", 10.15},     {"cifar100-b50-2", 3.90},       {"cifar100-b50-5", 6.13},
    {"cifar100-b50-10", 8.79},     {"cifar100-b0-5-rn32", 0.42},   {"cifar100-b0-10-rn32", 0.52},
    {"cifar100-b0-20-rn32", 0.45}, {"cifar100-b0-50-rn32", 0.70},  {"cifar100-b50-2-rn32", 0.32},
    {"cifar100-b50-5-rn32", 0.59}, {"cifar100-b50-10-rn32", 0.61}, {"imagenet100-b0-10", 7.67},
    {"imagenet100-b50-10", 8.87},  {"imagenet1000-b0-10", 14.52},
};

static void test_wanted_sizes_come_to_the_papers(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    for (size_t i = 0; i < sizeof SIZES / sizeof SIZES[0]; i++) {
        struct config c = from(ctx, SIZES[i].name);
        int n_steps = config_steps(&c, c.classes);
        double first =
            (double)(c.first_target_params > 0 ? c.first_target_params : c.target_params);
        double mean = (first + (double)c.target_params * (n_steps - 1) / 2.0) / 1e6;
        if (!(mean > SIZES[i].mean * 0.975 && mean < SIZES[i].mean + 0.0005))
            fail_msg("%s: %.3f million parameters, not %.2f", SIZES[i].name, mean, SIZES[i].mean);
    }
    test_ctx_free(ctx);
}

/* After the last step of every published protocol each class has 20 exemplars. */
static void test_both_memory_modes_end_with_twenty_a_class(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    for (int i = 0; i < N_PROTOCOLS; i++) {
        struct config c = from(ctx, PROTOCOLS[i].name);
        if (c.classes >= 100)
            assert_int_equal(exemplar_quota(c.memory_mode, c.memory, c.classes), 20);
    }
    struct config b0 = from(ctx, "cifar100-b0-10");
    struct config b50 = from(ctx, "cifar100-b50-10");
    assert_int_equal(exemplar_quota(b0.memory_mode, b0.memory, 10), 200);
    assert_int_equal(exemplar_quota(b0.memory_mode, b0.memory, 30), 66);
    assert_int_equal(exemplar_quota(b50.memory_mode, b50.memory, 50), 20);
    test_ctx_free(ctx);
}

static void assert_rates(const struct schedule *schedule, const double (*rates)[2], int n)
{
    for (int i = 0; i < n; i++) {
        double met = schedule_lr(schedule, (int)rates[i][0]);
        if (met < rates[i][1] * (1 - 1e-12) || met > rates[i][1] * (1 + 1e-12))
            fail_msg("epoch %g runs at %.17g, want %g", rates[i][0], met, rates[i][1]);
    }
}

/* Around every change of the rate, epochs counted from 0. */
static void test_rates_are_the_papers(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    static const double cifar[][2] = {{0, .01},   {4, .05},   {9, .1},     {10, .1},   {109, .1},
                                      {110, .01}, {129, .01}, {130, .001}, {169, .001}};
    static const double half[][2] = {{0, .1},     {59, .1},    {60, .01},    {119, .01},
                                     {120, .001}, {159, .001}, {160, .0001}, {199, .0001}};
    static const double imagenet[][2] = {{0, .01},   {9, .1},     {39, .1},   {40, .01},
                                         {69, .01},  {70, .001},  {89, .001}, {90, 1e-4},
                                         {99, 1e-4}, {100, 1e-5}, {129, 1e-5}};
    static const double classifier[][2] = {{0, .1}, {14, .1}, {15, .01}, {29, .01}};
    for (int i = 0; i < n_presets; i++) {
        const char *name = preset_table[i].name;
        struct config c = from(ctx, name);
        bool is_imagenet = strncmp(name, "imagenet", 8) == 0;
        if (is_imagenet)
            assert_rates(&c.representation, imagenet, 11);
        else if (strcmp(name, "fashion-mnist-5") != 0)
            assert_rates(&c.representation, cifar, 9);
        if (strstr(name, "-b50-"))
            assert_rates(&c.first, half, 8);
        else if (is_imagenet)
            assert_rates(&c.first, imagenet, 11);
        assert_int_equal(c.classifier.epochs, 30);
        assert_rates(&c.classifier, classifier, 4);
    }
    test_ctx_free(ctx);
}

static void test_orders_are_the_protocols(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    for (int i = 0; i < n_presets; i++) {
        struct config c = from(ctx, preset_table[i].name);
        bool is_cifar = strncmp(c.preset, "cifar100", 8) == 0;
        assert_string_equal(c.order, is_cifar ? "1" : "seed:1993");
    }
    test_ctx_free(ctx);
}

static void test_custom_is_one_step_of_any_set(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    struct config c = from(ctx, "custom");
    assert_int_equal(c.classes, 0);
    assert_int_equal(config_steps(&c, 37), 1);
    assert_int_equal(config_step_classes(&c, 37, 0), 37);
    assert_int_equal(c.memory_mode, MEMORY_FIXED_TOTAL);
    assert_int_equal(c.memory, 2000);
    test_ctx_free(ctx);
}

static void test_methods_are_switches(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    static const struct {
        enum method method;
        bool der, second_stage;
        enum distill distill;
        enum readout readout;
    } want[] = {{METHOD_DER, true, true, DISTILL_NONE, READOUT_TRAINED},
                {METHOD_FINETUNE, false, true, DISTILL_NONE, READOUT_TRAINED},
                {METHOD_JOINT, false, false, DISTILL_NONE, READOUT_TRAINED},
                {METHOD_ICARL, false, false, DISTILL_ADDED, READOUT_MEANS},
                {METHOD_WA, false, false, DISTILL_SHARED, READOUT_ALIGNED},
                {METHOD_BIC, false, false, DISTILL_SHARED, READOUT_CORRECTED}};
    for (int p = 0; p < n_presets; p++) {
        for (size_t i = 0; i < sizeof want / sizeof want[0]; i++) {
            struct config c;
            assert_ok(ctx, config_from_preset(ctx, preset_table[p].name, want[i].method, &c));
            assert_int_equal(c.method, want[i].method);
            assert_int_equal(c.expand, want[i].der);
            assert_int_equal(c.auxiliary, want[i].der);
            assert_int_equal(c.prune, want[i].der);
            assert_int_equal(c.second_stage, want[i].second_stage);
            assert_int_equal(c.distill, want[i].distill);
            assert_int_equal(c.readout, want[i].readout);
            assert_int_equal(c.classifier_positive, want[i].method == METHOD_WA);
            assert_int_equal(c.classifier_init == CLASSIFIER_INHERIT, c.distill != DISTILL_NONE);
            assert_int_equal(c.reset_after_warmup, c.distill == DISTILL_NONE);
            assert_ok(ctx, config_check(ctx, &c));
        }
    }
    test_ctx_free(ctx);
}

static void test_step_one_shares_its_schedule_unless_it_is_half_of_the_classes(void **state)
{
    (void)state;
    for (int p = 0; p < n_presets; p++) {
        struct config c;
        preset_fill(&preset_table[p], METHOD_DER, &c);
        bool same = c.first.epochs == c.representation.epochs;
        assert_int_equal(preset_shares_schedule(&preset_table[p]), same);
        assert_int_equal(same, strstr(c.preset, "-b50-") == NULL);
    }
}

static void test_unknown_presets_get_a_suggestion(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    const struct preset *preset;
    assert_int_equal(preset_find(ctx, "cifar100-b0-10-rn23", &preset), DER_ARG);
    assert_null(preset);
    assert_string_equal(
        ctx->error, "unknown preset 'cifar100-b0-10-rn23'; did you mean 'cifar100-b0-10-rn32'?");
    assert_int_equal(preset_find(ctx, "mnist", &preset), DER_ARG);
    assert_non_null(strstr(ctx->error, "'der presets' lists them"));
    test_ctx_free(ctx);
}

/* ---- the committed table --------------------------------------------------------------------- */

struct table {
    char text[TABLE_MAX];
    size_t used;
};

static void add(struct table *table, const char *format, const char *word)
{
    int n = snprintf(table->text + table->used, TABLE_MAX - table->used, format, word);
    assert_true(n >= 0 && (size_t)n < TABLE_MAX - table->used);
    table->used += (size_t)n;
}

/* The presets in which a setting has the value it has in preset `p`, if p is the first of them. */
static void add_value(struct table *table, const struct setting *setting,
                      const struct config *configs, int p)
{
    char value[SETTING_TEXT_MAX];
    char other[SETTING_TEXT_MAX];
    bool same[64];
    int n_same = 0;
    assert_true(n_presets <= 64);
    setting_format(setting, &configs[p], value);
    for (int i = 0; i < n_presets; i++) {
        setting_format(setting, &configs[i], other);
        same[i] = strcmp(value, other) == 0;
        if (same[i] && i < p)
            return;
        n_same += same[i];
    }
    add(table, "%s", setting->key);
    add(table, " = %s\n", value);
    if (n_same == n_presets)
        return;
    for (int i = 0; i < n_presets; i++)
        if (same[i])
            add(table, "    %s\n", configs[i].preset);
}

/* By setting: each value, and the presets that have it unless all do. */
static void make_table(struct table *table)
{
    struct config configs[64];
    assert_true(n_presets <= 64);
    table->used = 0;
    for (int p = 0; p < n_presets; p++)
        preset_fill(&preset_table[p], METHOD_DER, &configs[p]);
    for (int i = 0; i < n_settings; i++) {
        if (setting_table[i].owner == OWNER_PRESET)
            continue;
        for (int p = 0; p < n_presets; p++)
            add_value(table, &setting_table[i], configs, p);
    }
}

static void test_every_setting_of_every_preset_is_as_committed(void **state)
{
    (void)state;
    static struct table table;
    const char *path = DER_TESTS_DIR "/data/presets.txt";
    make_table(&table);
    if (getenv("DER_UPDATE")) {
        FILE *file = fopen(path, "w");
        assert_non_null(file);
        assert_int_equal(fwrite(table.text, 1, table.used, file), table.used);
        assert_int_equal(fclose(file), 0);
    }
    struct der_ctx *ctx = test_ctx_new(1);
    struct file_bytes bytes = {0};
    struct fault fault;
    assert_int_equal(file_read(&ctx->mem, NULL, path, TABLE_MAX, &bytes, &fault), DER_OK);
    assert_string_equal(table.text, (const char *)bytes.data);
    file_bytes_free(&ctx->mem, &bytes);
    test_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_protocols_are_the_papers),
        cmocka_unit_test(test_wanted_sizes_come_to_the_papers),
        cmocka_unit_test(test_both_memory_modes_end_with_twenty_a_class),
        cmocka_unit_test(test_rates_are_the_papers),
        cmocka_unit_test(test_orders_are_the_protocols),
        cmocka_unit_test(test_custom_is_one_step_of_any_set),
        cmocka_unit_test(test_methods_are_switches),
        cmocka_unit_test(test_step_one_shares_its_schedule_unless_it_is_half_of_the_classes),
        cmocka_unit_test(test_unknown_presets_get_a_suggestion),
        cmocka_unit_test(test_every_setting_of_every_preset_is_as_committed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * Runs and settings looked into.
 */
#include <der/der.h>

#include "config/preset.h"
#include "json/json.h"
#include "support/made_run.h"
#include "support/test_ctx.h"

#include <fcntl.h>
#include <math.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

struct fixture {
    struct der_ctx *ctx;
    struct scratch scratch;
    struct made_run run;
};

static const double ACCURACY[] = {60.0, 40.0, 30.5};

static int set_up(void **state)
{
    static struct fixture f;
    f = (struct fixture){.ctx = test_ctx_new(1),
                         .run = {.n_classes = 6,
                                 .train_images = 60,
                                 .test_images = 30,
                                 .n_steps = 3,
                                 .top1 = ACCURACY,
                                 .params = 1000.0,
                                 .bwt = -1.5,
                                 .fwt = 0.25}};
    scratch_init(&f.scratch);
    assert_ok(f.ctx, config_from_preset(f.ctx, "custom", METHOD_DER, &f.run.config));
    f.run.config.step_classes = 2;
    *state = &f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    scratch_fini(&f->scratch);
    test_ctx_free(f->ctx);
    return 0;
}

static struct der_run *open_run(struct fixture *f)
{
    struct der_run *run;
    made_run_write(f->ctx, &f->scratch, "run", &f->run);
    assert_ok(f->ctx, der_run_open(f->ctx, scratch_path(&f->scratch, "run"), &run));
    return run;
}

static void test_a_finished_run_tells_its_numbers(void **state)
{
    struct fixture *f = *state;
    struct der_run *run = open_run(f);
    struct der_run_info info = der_run_info(run);
    struct der_run_step step;
    assert_int_equal(info.state, DER_RUN_DONE);
    assert_true(info.has_ended && !info.is_running && !info.has_model);
    assert_string_equal(info.preset, "custom");
    assert_string_equal(info.method, "der");
    assert_int_equal(info.steps_done, 3);
    assert_int_equal(info.n_steps, 3);
    assert_int_equal(info.n_classes, 6);
    assert_true(info.last_top1 == 30.5 && info.bwt == -1.5 && info.fwt == 0.25);
    assert_true(fabs(info.avg_top1 - 130.5 / 3) < 1e-12);
    assert_string_equal(info.phase, "");
    assert_ok(f->ctx, der_run_step(run, 1, &step));
    assert_int_equal(step.step, 2);
    assert_true(step.top1 == 40.0 && step.params == 2000);
    assert_int_equal(der_run_step(run, 3, &step), DER_ARG);
    assert_int_equal(der_setting_count() > 10, 1);
    assert_string_equal(der_settings_value(der_run_settings(run), 0), "custom");
    der_run_free(run);
}

/* Its one record is that of the last step, and all are done then. */
static void test_joint_training_at_the_end_has_done_all_steps(void **state)
{
    struct fixture *f = *state;
    struct der_run_step step;
    preset_use_method(&f->run.config, METHOD_JOINT);
    f->run.config.joint_last = true;
    f->run.n_steps = 1;
    struct der_run *run = open_run(f);
    struct der_run_info info = der_run_info(run);
    assert_int_equal(info.n_steps, 3);
    assert_int_equal(info.steps_done, 3);
    assert_true(info.last_top1 == 60.0 && info.avg_top1 == 60.0);
    assert_ok(f->ctx, der_run_step(run, 1, &step));
    assert_true(step.step == 2 && isnan(step.top1) && isnan(step.top5) && step.params == 0);
    assert_ok(f->ctx, der_run_step(run, 2, &step));
    assert_true(step.step == 3 && step.top1 == 60.0 && step.params == 1000);
    assert_int_equal(der_run_step(run, 3, &step), DER_ARG);
    der_run_free(run);
    f->run.n_steps = 0;
    f->run.is_partial = true;
    run = open_run(f);
    info = der_run_info(run);
    assert_true(info.steps_done == 0 && info.n_steps == 3);
    der_run_free(run);
}

static void test_a_run_as_json(void **state)
{
    struct fixture *f = *state;
    const char *text;
    cJSON *root;
    f->run.n_steps = 2;
    f->run.is_partial = true;
    struct der_run *run = open_run(f);
    assert_ok(f->ctx, der_run_json(run, &text));
    assert_ok(f->ctx, json_parse(f->ctx, "text", text, strlen(text), &root));
    assert_string_equal(cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(root, "state")),
                        "partial");
    assert_true(cJSON_IsFalse(cJSON_GetObjectItemCaseSensitive(root, "ended")));
    assert_true(cJSON_IsNull(cJSON_GetObjectItemCaseSensitive(root, "bwt")));
    assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(root, "steps")), 2);
    const cJSON *settings = cJSON_GetObjectItemCaseSensitive(root, "settings");
    assert_int_equal(cJSON_GetArraySize(settings), der_setting_count());
    json_free(root);
    der_run_free(run);
}

static void test_a_run_that_is_worked_on_is_seen(void **state)
{
    struct fixture *f = *state;
    f->run.is_partial = true;
    made_run_write(f->ctx, &f->scratch, "run", &f->run);
    scratch_text(&f->scratch, "run/lock", "1\n");
    int fd = open(scratch_path(&f->scratch, "run/lock"), O_RDWR);
    assert_true(fd >= 0 && flock(fd, LOCK_EX) == 0);
    struct der_run *run = open_run(f);
    assert_true(der_run_info(run).is_running);
    assert_int_equal(der_run_info(run).state, DER_RUN_PARTIAL);
    der_run_free(run);
    assert_int_equal(close(fd), 0);
    run = open_run(f);
    assert_false(der_run_info(run).is_running);
    der_run_free(run);
}

static void test_a_folder_without_a_run_is_refused(void **state)
{
    struct fixture *f = *state;
    struct der_run *run;
    assert_int_equal(der_run_open(f->ctx, f->scratch.root, &run), DER_FORMAT);
    assert_null(run);
    assert_int_equal(der_run_open(f->ctx, "/nowhere/at/all", &run), DER_FORMAT);
    assert_non_null(strstr(der_ctx_error(f->ctx), "there is no run in /nowhere/at/all"));
    der_run_free(NULL);
}

static void replace_text(struct fixture *f, const char *from, const char *to)
{
    char *text = made_run_config(f->ctx, &f->run);
    char *at = strstr(text, from);
    assert_non_null(at);
    assert_int_equal(strlen(from), strlen(to));
    memcpy(at, to, strlen(to));
    scratch_text(&f->scratch, "run/config.json", text);
    mem_free(&f->ctx->mem, text);
}

static void test_a_run_tells_how_it_was_started(void **state)
{
    struct fixture *f = *state;
    struct der_run_start start;
    assert_ok(f->ctx, der_run_start(f->ctx, scratch_path(&f->scratch, "none"), &start));
    assert_false(start.has_run);
    made_run_write(f->ctx, &f->scratch, "run", &f->run);
    assert_ok(f->ctx, der_run_start(f->ctx, scratch_path(&f->scratch, "run"), &start));
    assert_true(start.has_run);
    assert_string_equal(start.device, "cpu");
    assert_int_equal(start.precision, DER_PRECISION_F32);
    assert_int_equal(start.threads, 1);
    assert_false(start.deterministic);
    assert_int_equal(start.measure, 0);
    assert_int_equal(start.bad_images, DER_BAD_IMAGES_STOP);
    replace_text(f, "\"f32\"", "\"f33\"");
    assert_int_equal(der_run_start(f->ctx, scratch_path(&f->scratch, "run"), &start), DER_FORMAT);
    assert_non_null(strstr(der_ctx_error(f->ctx), "must be f32, tf32 or bf16, not f33"));
    replace_text(f, "\"stop\",\n\t\"measure\":\t\"\"", "\"\",\n\t\"measure\":\t\"stop\"");
    assert_int_equal(der_run_start(f->ctx, scratch_path(&f->scratch, "run"), &start), DER_FORMAT);
    assert_non_null(strstr(der_ctx_error(f->ctx), "'measure' cannot be 'stop'"));
    scratch_text(&f->scratch, "run/config.json", "{");
    assert_int_equal(der_run_start(f->ctx, scratch_path(&f->scratch, "run"), &start), DER_FORMAT);
    assert_false(start.has_run);
}

static enum der_status resume_with(struct fixture *f, const struct der_settings_given *given)
{
    struct der_settings *settings;
    const char *path = scratch_path(&f->scratch, "run");
    enum der_status status = der_settings_resume(f->ctx, path, given, &settings);
    assert_true((settings != NULL) == (status == DER_OK));
    der_settings_free(settings);
    return status;
}

static void test_settings_to_go_on_with_are_completed_by_the_runs(void **state)
{
    struct fixture *f = *state;
    const char *assignments[] = {"lr=0.25", "drops=7,9"};
    struct der_settings_given given = {.assignments = assignments, .n_assignments = 2};
    struct der_settings *settings;
    const char *json;
    f->run.config.representation.lr = 0.25;
    f->run.config.representation.epochs = 10;
    f->run.config.representation.warmup_epochs =
        0; /* drops that a new run of the preset could not have */
    f->run.config.representation.n_drops = 2;
    f->run.config.representation.drop[0] = 7;
    f->run.config.representation.drop[1] = 9;
    made_run_write(f->ctx, &f->scratch, "run", &f->run);
    assert_ok(f->ctx,
              der_settings_resume(f->ctx, scratch_path(&f->scratch, "run"), &given, &settings));
    assert_ok(f->ctx, der_settings_json(settings, &json));
    assert_non_null(strstr(json, "\"epochs\":\t10,"));
    der_settings_free(settings);
    given = (struct der_settings_given){.preset = "custom", .method = "der"};
    assert_ok(f->ctx, resume_with(f, &given));
    given.method = "finetune";
    assert_int_equal(resume_with(f, &given), DER_ARG);
    assert_non_null(
        strstr(der_ctx_error(f->ctx), "other settings: method=der, not finetune. Give"));
    given = (struct der_settings_given){.preset = "costum"};
    assert_int_equal(resume_with(f, &given), DER_ARG);
    assert_non_null(strstr(der_ctx_error(f->ctx), "did you mean 'custom'?"));
    given = (struct der_settings_given){.assignments = assignments, .n_assignments = 1};
    assignments[0] = "lamda_s=1";
    assert_int_equal(resume_with(f, &given), DER_ARG);
    assert_non_null(strstr(der_ctx_error(f->ctx), "lambda_s"));
}

static void test_settings_of_a_run_that_is_to_begin_are_those_of_a_new_one(void **state)
{
    struct fixture *f = *state;
    const char *assignments[] = {"seed=7"};
    const struct der_settings_given given = {.assignments = assignments, .n_assignments = 1};
    struct der_settings *settings;
    const char *json;
    assert_ok(f->ctx,
              der_settings_resume(f->ctx, scratch_path(&f->scratch, "none"), &given, &settings));
    assert_ok(f->ctx, der_settings_json(settings, &json));
    assert_non_null(strstr(json, "\"seed\":\t7,"));
    assert_non_null(strstr(json, "\"preset\":\t\"custom\","));
    der_settings_free(settings);
}

/* What does not fit into the sentence is left out whole. */
static void test_settings_that_differ_are_told_whole_or_not_at_all(void **state)
{
    struct fixture *f = *state;
    char order[CONFIG_PATH] = "order=";
    const char *assignments[] = {order, "seed=7"};
    const struct der_settings_given given = {.assignments = assignments, .n_assignments = 2};
    made_run_write(f->ctx, &f->scratch, "run", &f->run);
    memset(order + strlen(order), 'x', 200);
    assert_int_equal(resume_with(f, &given), DER_ARG);
    assert_non_null(strstr(der_ctx_error(f->ctx), "xxx; seed=1993, not 7. Give the same"));
    memset(order + strlen(order), 'x', 40);
    assert_int_equal(resume_with(f, &given), DER_ARG);
    assert_non_null(strstr(der_ctx_error(f->ctx), "settings: order; seed=1993, not 7. Give"));
}

static void test_failed_allocations_of_a_run_are_told(void **state)
{
    struct fixture *f = *state;
    enum der_status status = DER_NOMEM;
    der_run_free(open_run(f));
    uint64_t live = der_ctx_memory(f->ctx).n_live;
    for (uint64_t n = 1; status != DER_OK; n++) {
        struct der_run *run;
        const char *text;
        atomic_store(&f->ctx->mem.fail_at, atomic_load(&f->ctx->mem.n_allocs) + n);
        status = der_run_open(f->ctx, scratch_path(&f->scratch, "run"), &run);
        if (status == DER_OK)
            status = der_run_json(run, &text);
        assert_true(status == DER_OK || status == DER_NOMEM);
        der_run_free(run);
        assert_int_equal(der_ctx_memory(f->ctx).n_live, live);
        assert_true(n < 1000);
    }
    atomic_store(&f->ctx->mem.fail_at, 0);
}

/* ---- settings ------------------------------------------------------------------------------------ */

static struct der_settings *preset(struct fixture *f, const char *name)
{
    struct der_settings *settings;
    assert_ok(f->ctx, der_settings_new(f->ctx, name, NULL, NULL, 0, &settings));
    return settings;
}

/* Published: 0.56 G multiply-adds of ResNet-18 on CIFAR, 1.81 G on ImageNet, 69 M of the 32-layer network. */
static void test_plans_have_the_networks_published_sizes(void **state)
{
    struct fixture *f = *state;
    static const struct {
        const char *name;
        int n_steps, first, next, memory, layers, channels, height;
        int64_t params, low, high;
    } cases[] = {
        {"cifar100-b0-10", 10, 10, 10, 2000, 20, 3, 32, 11168832, 555000000, 556000000},
        {"cifar100-b50-5", 6, 50, 10, 20, 20, 3, 32, 11168832, 555000000, 556000000},
        {"cifar100-b0-10-rn32", 10, 10, 10, 2000, 33, 3, 32, 466256, 68000000, 70000000},
        {"imagenet100-b0-10", 10, 10, 10, 2000, 20, 3, 224, 11176512, 1810000000, 1820000000},
        {"fashion-mnist-5", 5, 2, 2, -1, -1, 1, 28, -1, 1, INT64_MAX},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct der_settings *settings = preset(f, cases[i].name);
        struct der_plan_info plan;
        struct der_layer_info layer;
        int64_t params = 0;
        int64_t multiply_adds = 0;
        assert_ok(f->ctx, der_settings_plan(settings, &plan));
        assert_int_equal(plan.n_steps, cases[i].n_steps);
        assert_int_equal(der_settings_step_classes(settings, 0), cases[i].first);
        assert_int_equal(der_settings_step_classes(settings, 1), cases[i].next);
        assert_int_equal(der_settings_step_classes(settings, plan.n_steps), 0);
        assert_int_equal(plan.channels, cases[i].channels);
        assert_int_equal(plan.height, cases[i].height);
        assert_false(plan.image_is_assumed);
        if (cases[i].memory >= 0) {
            assert_int_equal(plan.memory, cases[i].memory);
            assert_int_equal(plan.memory_is_per_class, plan.memory == 20);
            assert_int_equal(plan.n_layers, cases[i].layers);
            assert_int_equal(plan.params, cases[i].params);
        }
        assert_true(plan.multiply_adds > cases[i].low && plan.multiply_adds < cases[i].high);
        for (int k = 0; k < plan.n_layers; k++) {
            assert_ok(f->ctx, der_settings_layer(settings, k, &layer));
            params += layer.params;
            multiply_adds += layer.multiply_adds;
        }
        assert_int_equal(params, plan.params);
        assert_int_equal(multiply_adds, plan.multiply_adds);
        assert_int_equal(der_settings_layer(settings, plan.n_layers, &layer), DER_ARG);
        der_settings_free(settings);
    }
}

static void test_a_plan_as_json(void **state)
{
    struct fixture *f = *state;
    const char *text;
    cJSON *root;
    struct der_settings *settings = preset(f, "custom");
    struct der_plan_info plan;
    assert_ok(f->ctx, der_settings_plan(settings, &plan));
    assert_true(plan.image_is_assumed);
    assert_int_equal(plan.n_steps, 0);
    assert_int_equal(der_settings_step_classes(settings, 0), 0);
    assert_ok(f->ctx, der_settings_plan_json(settings, &text));
    assert_ok(f->ctx, der_settings_plan_json(settings, &text)); /* twice is no leak */
    assert_ok(f->ctx, json_parse(f->ctx, "text", text, strlen(text), &root));
    const cJSON *network = cJSON_GetObjectItemCaseSensitive(root, "network");
    assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(network, "layers")),
                     plan.n_layers);
    assert_true(cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(
        cJSON_GetObjectItemCaseSensitive(root, "image"), "assumed")));
    json_free(root);
    der_settings_free(settings);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_a_finished_run_tells_its_numbers),
        TEST(test_joint_training_at_the_end_has_done_all_steps),
        TEST(test_a_run_as_json),
        TEST(test_a_run_that_is_worked_on_is_seen),
        TEST(test_a_folder_without_a_run_is_refused),
        TEST(test_a_run_tells_how_it_was_started),
        TEST(test_settings_to_go_on_with_are_completed_by_the_runs),
        TEST(test_settings_of_a_run_that_is_to_begin_are_those_of_a_new_one),
        TEST(test_settings_that_differ_are_told_whole_or_not_at_all),
        TEST(test_failed_allocations_of_a_run_are_told),
        TEST(test_plans_have_the_networks_published_sizes),
        TEST(test_a_plan_as_json),
    };
#undef TEST
    return cmocka_run_group_tests(tests, NULL, NULL);
}

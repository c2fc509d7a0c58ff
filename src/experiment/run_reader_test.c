/* What a run folder may hold, and what is refused. */
#include "experiment/run_reader.h"

#include "config/preset.h"
#include "experiment/run_files.h"
#include "support/made_run.h"
#include "support/test_ctx.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { STEPS = 3, CLASSES = 100 };

static const double ACCURACY[STEPS] = {61.5, 40.0, 30.25};

struct fixture {
    struct der_ctx *ctx;
    struct scratch scratch;
    struct made_run run; /* cifar100-b50-2, done */
};

static int setup(void **state)
{
    static struct fixture f;
    f = (struct fixture){.ctx = test_ctx_new(1)};
    scratch_init(&f.scratch);
    f.run = (struct made_run){.n_classes = CLASSES,
                              .train_images = 400,
                              .test_images = 200,
                              .n_steps = STEPS,
                              .top1 = ACCURACY,
                              .params = 1000,
                              .bwt = NAN,
                              .fwt = NAN};
    assert_ok(f.ctx, config_from_preset(f.ctx, "cifar100-b50-2", METHOD_DER, &f.run.config));
    *state = &f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    scratch_fini(&f->scratch);
    test_ctx_free(f->ctx);
    return 0;
}

static enum der_status read_run(struct fixture *f, struct run_outcome *outcome)
{
    return run_read(f->ctx, scratch_path(&f->scratch, "run"), outcome);
}

static void test_a_folder_that_is_not_there_or_empty_is_absent(void **state)
{
    struct fixture *f = *state;
    struct run_outcome outcome;
    assert_ok(f->ctx, read_run(f, &outcome));
    assert_int_equal(outcome.state, RUN_ABSENT);
    scratch_text(&f->scratch, "run/lock", "17\n");
    scratch_text(&f->scratch, "run/.config.json.17-0.tmp", "{");
    assert_ok(f->ctx, read_run(f, &outcome));
    assert_int_equal(outcome.state, RUN_ABSENT);
}

static void test_something_else_in_its_place_is_refused(void **state)
{
    struct fixture *f = *state;
    struct run_outcome outcome;
    scratch_text(&f->scratch, "run/thesis.tex", "x");
    assert_int_equal(read_run(f, &outcome), DER_FORMAT);
    assert_non_null(strstr(der_ctx_error(f->ctx), "no config.json"));
    scratch_text(&f->scratch, "file", "x");
    assert_int_not_equal(run_read(f->ctx, scratch_path(&f->scratch, "file"), &outcome), DER_OK);
    scratch_mkdir(&f->scratch, "other/config.json");
    assert_int_equal(run_read(f->ctx, scratch_path(&f->scratch, "other"), &outcome), DER_IO);
}

static void test_a_finished_run_gives_its_numbers(void **state)
{
    struct fixture *f = *state;
    struct run_outcome outcome;
    f->run.bwt = -1.5;
    f->run.fwt = 0.25;
    made_run_write(f->ctx, &f->scratch, "run", &f->run);
    assert_ok(f->ctx, read_run(f, &outcome));
    assert_int_equal(outcome.state, RUN_DONE);
    assert_string_equal(outcome.config.preset, "cifar100-b50-2");
    assert_string_equal(outcome.data_kind, "synth");
    assert_string_equal(outcome.precision, "f32");
    assert_int_equal(outcome.train_images, 400);
    assert_int_equal(outcome.test_images, 200);
    assert_int_equal(outcome.n_classes, CLASSES);
    assert_int_equal(outcome.n_steps, STEPS);
    assert_true(outcome.top1[1] == 40.0 && outcome.params[2] == 3000.0);
    assert_true(fabs(outcome.avg_top1 - 131.75 / 3) < 1e-12);
    assert_true(outcome.last_top1 == 30.25);
    assert_true(outcome.avg_params == 2000.0);
    assert_true(outcome.bwt == -1.5 && outcome.fwt == 0.25);
    assert_true(isnan(outcome.bound));
}

static void test_joint_training_at_the_end_has_one_step(void **state)
{
    struct fixture *f = *state;
    struct run_outcome outcome;
    f->run.config.method = METHOD_JOINT;
    preset_use_method(&f->run.config, METHOD_JOINT);
    f->run.config.joint_last = true;
    f->run.n_steps = 1;
    made_run_write(f->ctx, &f->scratch, "run", &f->run);
    assert_ok(f->ctx, read_run(f, &outcome));
    assert_int_equal(outcome.state, RUN_DONE);
    assert_int_equal(outcome.n_steps, 1);
    assert_true(outcome.avg_top1 == ACCURACY[0]);
}

/* What --max-steps cut short has an end and all its numbers, but is no whole protocol. */
static void test_a_run_that_was_to_end_early_is_partial_and_has_ended(void **state)
{
    struct fixture *f = *state;
    struct run_outcome outcome;
    f->run.max_steps = f->run.n_steps = STEPS - 1;
    made_run_write(f->ctx, &f->scratch, "run", &f->run);
    assert_ok(f->ctx, read_run(f, &outcome));
    assert_int_equal(outcome.state, RUN_PARTIAL);
    assert_true(outcome.has_ended);
    assert_int_equal(outcome.n_steps, STEPS - 1);
    assert_int_equal(run_steps(&outcome), STEPS - 1);
    assert_true(outcome.last_top1 == 40.0);
    f->run.max_steps = STEPS; /* then an end after two steps is none */
    made_run_write(f->ctx, &f->scratch, "run", &f->run);
    assert_int_equal(read_run(f, &outcome), DER_FORMAT);
    assert_non_null(strstr(der_ctx_error(f->ctx), "ends with 2 steps, its protocol has 3"));
}

/* However a process was killed: lines that are whole count, the rest does not. */
static void test_every_truncation_is_a_run_that_was_begun(void **state)
{
    struct fixture *f = *state;
    struct run_outcome outcome;
    char *config = made_run_config(f->ctx, &f->run);
    char *metrics = made_run_metrics(f->ctx, &f->run);
    size_t length = strlen(metrics);
    assert_ok(f->ctx, run_read_config(f->ctx, "c", config, strlen(config), &outcome));
    int lines = 0;
    for (size_t n = 0; n <= length; n++) {
        lines += n > 0 && metrics[n - 1] == '\n';
        /* A copy of that size, so that reading past it would be noticed. */
        char *cut = mem_alloc(&f->ctx->mem, n, 1);
        memcpy(cut, metrics, n);
        assert_ok(f->ctx, run_read_metrics(f->ctx, "m", cut, n, &outcome));
        assert_int_equal(outcome.state, n == length ? RUN_DONE : RUN_PARTIAL);
        int steps = lines > 0 ? lines - 1 : 0;
        assert_int_equal(outcome.n_steps, steps < STEPS ? steps : STEPS);
        mem_free(&f->ctx->mem, cut);
    }
    mem_free(&f->ctx->mem, config);
    mem_free(&f->ctx->mem, metrics);
}

static void test_a_run_without_metrics_was_begun(void **state)
{
    struct fixture *f = *state;
    struct run_outcome outcome;
    made_run_write(f->ctx, &f->scratch, "run", &f->run);
    assert_int_equal(unlink(scratch_path(&f->scratch, "run/metrics.jsonl")), 0);
    assert_ok(f->ctx, read_run(f, &outcome));
    assert_int_equal(outcome.state, RUN_PARTIAL);
}

/* A text with one part replaced; caller frees. */
static char *replaced(struct der_ctx *ctx, const char *text, const char *from, const char *to)
{
    const char *at = strstr(text, from);
    size_t size = strlen(text) + strlen(to) + 1;
    char *result = mem_zalloc(&ctx->mem, size, 1);
    assert_non_null(at);
    (void)snprintf(result, size, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    return result;
}

struct damage {
    const char *from, *to;
    const char *sentence; /* part of it */
};

static void check_refused(struct der_ctx *ctx, const struct damage *damage, enum der_status status)
{
    if (status != DER_FORMAT || !strstr(der_ctx_error(ctx), damage->sentence))
        fail_msg("'%s' for '%s': %s, '%s'", damage->to, damage->from, der_status_name(status),
                 der_ctx_error(ctx));
}

static void test_damaged_metrics_are_refused_with_line_and_fault(void **state)
{
    struct fixture *f = *state;
    static const struct damage damages[] = {
        {"{\"event\":\"epoch\"", "{\"event\"\"epoch\"", "m: line 1 is not JSON"},
        {"\"event\":\"step\",", "", "line 2: 'event' is missing"},
        {"\"event\":\"step\"", "\"event\":3", "line 2: 'event' must be a text"},
        {MADE_RUN_EPOCH, "[]", "line 1: 'event' is missing"},
        {MADE_RUN_EPOCH, "", "line 1 is not JSON"},
        {"\"step\":2", "\"step\":3", "line 3: step 3 where step 2 belongs"},
        {"\"step\":2", "\"step\":1", "line 3: step 1 where step 2 belongs"},
        {"\"top1\":40", "\"top1\":140", "line 3: 'top1' must lie between 0 and 100"},
        {"\"top1\":40", "\"top1\":-1", "'top1' must lie between 0 and 100"},
        {"\"top1\":40", "\"top1\":1e999", "line 3"},
        {"\"top1\":40,", "", "line 3: 'top1' is missing"},
        {"\"params\":1000", "\"params\":\"few\"", "line 2: 'params' must be a number"},
        {"\"params\":1000", "\"params\":-1", "'params' must lie between 0"},
        {"\"steps\":3", "\"steps\":4", "line 5: 'steps' is 4, want 3"},
        {"\"event\":\"step\",\"step\":3", "\"event\":\"epoch\",\"step\":3",
         "line 5: the run ends with 2 steps, its protocol has 3"},
        {"\"last_top1\":30.25", "\"last_top1\":30.5", "'last_top1' is 30.5, but the steps give"},
        {"\"avg_params\":2000", "\"avg_params\":2001", "'avg_params' is 2001"},
        {"\"top1\":61.5", "\"top1\":61.6", "'avg_top1' is 43.9167, but the steps give 43.95"},
        {",\"avg_top1\"", ",\"avg\"", "line 5: 'avg_top1' is missing"},
        {"{\"event\":\"end\"", "{\"event\":\"step\",\"step\":4}\n{\"event\":\"end\"",
         "line 5: a step after the last one"},
    };
    struct run_outcome outcome;
    char *config = made_run_config(f->ctx, &f->run);
    char *metrics = made_run_metrics(f->ctx, &f->run);
    assert_ok(f->ctx, run_read_config(f->ctx, "c", config, strlen(config), &outcome));
    for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) {
        char *text = replaced(f->ctx, metrics, damages[i].from, damages[i].to);
        check_refused(f->ctx, &damages[i],
                      run_read_metrics(f->ctx, "m", text, strlen(text), &outcome));
        mem_free(&f->ctx->mem, text);
    }
    char twice[4096];
    (void)snprintf(twice, sizeof twice, "%s{\"event\":\"epoch\"}\n", metrics);
    assert_int_equal(run_read_metrics(f->ctx, "m", twice, strlen(twice), &outcome), DER_FORMAT);
    assert_non_null(strstr(der_ctx_error(f->ctx), "line 6: something follows the end"));
    mem_free(&f->ctx->mem, config);
    mem_free(&f->ctx->mem, metrics);
}

static void test_damaged_configurations_are_refused(void **state)
{
    struct fixture *f = *state;
    static const struct damage damages[] = {
        {"\"format\":\t1", "\"format\":\t2", "has format 2; this program reads format 1"},
        {"\"format\":\t1,", "", "'format' is missing"},
        {"\"settings\":", "\"setting\":", "'settings' is missing"},
        {"\"memory\":\t20", "\"memory\":\t2000", "memory=2000, but the protocol"},
        {"\"lambda_a\":", "\"lambda_b\":", "lambda_b"},
        {"\"max_steps\":\t0", "\"max_steps\":\t-1", "'max_steps'"},
        {"\"precision\":\t\"f32\"", "\"precision\":\t32", "'precision' must be a text"},
        {"\"synth\"", "\"synthsynthsynthsynthsynthsynthsynthsynthsynthsynthsynthsynthsynth\"",
         "'data_kind' is longer than"},
        {"\"train_images\":\t400", "\"train_images\":\t-1", "'train_images' must be a whole"},
        {"[0, ", "[", "'class_order' has 99 classes, want 100"},
        {"{", "", "c: line"},
    };
    struct run_outcome outcome;
    char *config = made_run_config(f->ctx, &f->run);
    for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) {
        char *text = replaced(f->ctx, config, damages[i].from, damages[i].to);
        check_refused(f->ctx, &damages[i],
                      run_read_config(f->ctx, "c", text, strlen(text), &outcome));
        assert_int_equal(outcome.state, RUN_ABSENT);
        mem_free(&f->ctx->mem, text);
    }
    mem_free(&f->ctx->mem, config);
}

static void test_running_out_of_memory_leaves_nothing_behind(void **state)
{
    struct fixture *f = *state;
    struct run_outcome outcome;
    made_run_write(f->ctx, &f->scratch, "run", &f->run);
    enum der_status status = DER_NOMEM;
    for (uint64_t n = 1; status == DER_NOMEM; n++) {
        uint64_t live = der_ctx_memory(f->ctx).n_live;
        f->ctx->mem.fail_at = f->ctx->mem.n_allocs + n;
        status = read_run(f, &outcome);
        f->ctx->mem.fail_at = 0;
        assert_int_equal(der_ctx_memory(f->ctx).n_live, live);
        assert_true(n > 1 || status == DER_NOMEM);
    }
    assert_ok(f->ctx, status);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_a_folder_that_is_not_there_or_empty_is_absent),
        TEST(test_something_else_in_its_place_is_refused),
        TEST(test_a_finished_run_gives_its_numbers),
        TEST(test_joint_training_at_the_end_has_one_step),
        TEST(test_a_run_that_was_to_end_early_is_partial_and_has_ended),
        TEST(test_every_truncation_is_a_run_that_was_begun),
        TEST(test_a_run_without_metrics_was_begun),
        TEST(test_damaged_metrics_are_refused_with_line_and_fault),
        TEST(test_damaged_configurations_are_refused),
        TEST(test_running_out_of_memory_leaves_nothing_behind),
    };
#undef TEST
    return cmocka_run_group_tests(tests, NULL, NULL);
}

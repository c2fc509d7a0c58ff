/*
 * Saving a run: whatever system call fails, and whenever the process is killed, the folder holds one state, and
 * a model, exemplars and predictions that belong to it.
 */
#include "experiment/run_folder.h"

#include "support/save_trial.h"
#include "support/scratch.h"
#include "support/test_ctx.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { STEPS = 3, COLS = 2 };

static const char *const NAMES[STEPS] = {"cat", "dog", "owl"};

/* What a run has after `step` steps, one class each; every number depends on the step. */
struct content {
    struct model model;
    struct exemplars *memory;
    struct prediction prediction;
    struct prediction_file predictions;
    struct incremental *metrics;
    struct param_set *full;
    struct run_state state;
    double measured[STEPS * STEPS + STEPS];
};

struct fixture {
    struct der_ctx *ctx;
    struct backend *be;
    struct scratch scratch;
    struct io_calls quick; /* does not wait for the disk: for what is not under test */
    char path[SCRATCH_PATH_MAX];
    cJSON *config;
};

static int no_fsync(void *user, int fd)
{
    (void)user;
    (void)fd;
    return 0;
}

static int set_up(void **state)
{
    static struct fixture f;
    f = (struct fixture){.ctx = test_ctx_new(1), .config = cJSON_CreateObject()};
    assert_ok(f.ctx, backend_open(f.ctx, "ref", NULL, &f.be));
    scratch_init(&f.scratch);
    (void)snprintf(f.path, sizeof f.path, "%s", scratch_path(&f.scratch, "run"));
    f.quick = *io_calls_plain();
    f.quick.fsync = no_fsync;
    assert_non_null(cJSON_AddStringToObject(f.config, "settings", "all of them"));
    *state = &f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    json_free(f->config);
    scratch_fini(&f->scratch);
    backend_close(f->be);
    test_ctx_free(f->ctx);
    return 0;
}

/* ---- content ------------------------------------------------------------------------------------- */

static struct param_set *new_set(struct fixture *f, int64_t rows, float value)
{
    struct param_set *set;
    float values[STEPS * COLS];
    int index;
    assert_ok(f->ctx, param_set_new(f->ctx, &set));
    assert_ok(f->ctx, param_set_add(set, "classifier.weight", shape_2d(rows, COLS), PARAM_LEARNT,
                                    INIT_ZERO, &index));
    assert_ok(f->ctx, param_set_allocate(set, f->be));
    assert_ok(f->ctx, param_set_thaw(set));
    for (int i = 0; i < STEPS * COLS; i++)
        values[i] = value;
    assert_ok(f->ctx, param_write(set, 0, values));
    return set;
}

static void make_model(struct fixture *f, struct content *c, int step)
{
    struct resnet_spec spec = {.in_channels = 1,
                               .height = 4,
                               .width = 4,
                               .n_stages = 1,
                               .n_blocks = {1},
                               .stream = {COLS},
                               .inner = {{1}}};
    c->model = (struct model){
        .ctx = f->ctx,
        .info = {.classes = NAMES,
                 .n_classes = step,
                 .n_steps = step,
                 .steps = {1, 1, 1},
                 .input = {.channels = 1, .height = 4, .width = 4, .mean = {0.5F}, .std = {0.5F}},
                 .network = "resnet32",
                 .width = 1.0,
                 .temperature = 1.0,
                 .version = "0",
                 .preset = ""},
        .n_extractors = 1,
        .classifier = new_set(f, step, (float)step)};
    assert_ok(f->ctx, extractor_new(f->be, &spec, &c->model.extractors[0]));
}

static void make_content(struct fixture *f, struct content *c, int step)
{
    *c = (struct content){.full = new_set(f, 1, 10.0F * (float)step)};
    make_model(f, c, step);
    assert_ok(f->ctx, exemplars_new(f->ctx, STEPS, &c->memory));
    assert_ok(f->ctx, incremental_new(f->ctx, &c->metrics));
    for (int k = 0; k < step; k++) {
        const int64_t sample = 100 * step + k;
        const int64_t counts[STEPS] = {10, 10, 10};
        struct incremental_step test = {
            .n_classes = k + 1, .n = counts, .top1 = counts, .top5 = counts};
        assert_ok(f->ctx, exemplars_add(c->memory, &sample, 1));
        assert_ok(f->ctx, incremental_add(c->metrics, &test));
    }
    c->prediction = (struct prediction){.sample = 1000 * step, .confidence = 0.5F};
    c->predictions = (struct prediction_file){.ctx = f->ctx,
                                              .step = step,
                                              .split = DATA_TEST,
                                              .classes = NAMES,
                                              .n_classes = step,
                                              .predictions = &c->prediction,
                                              .n = 1};
    c->state = (struct run_state){.step = step,
                                  .n_steps = STEPS,
                                  .metrics = c->metrics,
                                  .representation = c->measured,
                                  .reference = c->measured + STEPS * STEPS,
                                  .bound_sum = step};
    c->state.point = (struct stage_point){.phase = step == STEPS ? PHASE_FINISHED : PHASE_BETWEEN,
                                          .modules = {{"full.", c->full, true}},
                                          .n_modules = 1};
}

static void free_content(struct content *c)
{
    extractor_free(c->model.extractors[0]);
    param_set_free(c->model.classifier);
    param_set_free(c->full);
    exemplars_free(c->memory);
    incremental_free(c->metrics);
}

static cJSON *line(int step)
{
    cJSON *object = cJSON_CreateObject();
    assert_non_null(cJSON_AddNumberToObject(object, "step", step));
    return object;
}

/* A step as a run ends it: a line, then the save. */
static enum der_status save_step(struct fixture *f, struct run_folder *folder, struct content *c)
{
    TRY(run_folder_record(folder, f->ctx, line(c->state.step)));
    return run_folder_save_step(folder, &c->model, c->memory, &c->predictions, &c->state);
}

static void begin(struct fixture *f, int step)
{
    struct run_folder *folder;
    struct content content;
    make_content(f, &content, step);
    assert_ok(f->ctx, run_folder_create(f->ctx, &f->quick, f->path, f->config, &folder));
    assert_ok(f->ctx, save_step(f, folder, &content));
    run_folder_close(folder);
    free_content(&content);
}

static int count_lines(struct fixture *f)
{
    struct file_bytes bytes = {0};
    struct fault fault;
    int n = 0;
    assert_int_equal(file_read(&f->ctx->mem, NULL, scratch_path(&f->scratch, "run/metrics.jsonl"),
                               1 << 20, &bytes, &fault),
                     DER_OK);
    for (size_t i = 0; i < bytes.size; i++)
        n += bytes.data[i] == '\n';
    file_bytes_free(&f->ctx->mem, &bytes);
    return n;
}

/* Opens the folder as a resumed run does, checks that all of it is of one step, and says of which. */
static int assert_coherent(struct fixture *f)
{
    struct run_folder *folder;
    struct state_file *state;
    struct model *model;
    struct exemplar_file *exemplars;
    struct prediction_file *predictions;
    float value[COLS];
    assert_ok(f->ctx, run_folder_reopen(f->ctx, &f->quick, f->path, &folder, &state));
    assert_non_null(state);
    int step = state->state.metrics->n_steps;
    struct param_set *full = new_set(f, 1, 0.0F);
    assert_true(state->state.bound_sum == step);
    assert_ok(f->ctx, state_restore(state, "full.", full, true));
    assert_ok(f->ctx, state_check_done(state));
    assert_ok(f->ctx, param_read(full, 0, value));
    assert_true(value[0] == 10.0F * (float)step);
    assert_ok(f->ctx, run_folder_load_model(folder, f->be, &model));
    assert_int_equal(model->info.n_steps, step);
    assert_ok(f->ctx, run_folder_load_exemplars(folder, STEPS, 1000, &exemplars));
    assert_int_equal(exemplars->step, step);
    assert_int_equal(exemplars->memory->lists[0].samples[0], 100 * step);
    assert_ok(f->ctx, prediction_file_read(f->ctx, NULL,
                                           scratch_path(&f->scratch, "run/predictions.safetensors"),
                                           &predictions));
    assert_int_equal(predictions->step, step);
    assert_int_equal(predictions->predictions[0].sample, 1000 * step);
    assert_int_equal(count_lines(f), step);
    prediction_file_free(predictions);
    exemplar_file_free(exemplars);
    model_free(model);
    param_set_free(full);
    state_close(state);
    run_folder_close(folder);
    return step;
}

/* ---- tests ----------------------------------------------------------------------------------------- */

static void test_a_saved_step_comes_back(void **state)
{
    struct fixture *f = *state;
    begin(f, 1);
    assert_int_equal(assert_coherent(f), 1);
}

/* Step 2 on a folder with step 1, with the n-th call of the save going wrong. */
static enum der_status try_step_2(void *self, struct faulty_calls *faults, int n)
{
    struct fixture *f = self;
    struct run_folder *folder;
    struct state_file *state;
    struct content content;
    const struct io_calls io = faulty_calls(faults);
    make_content(f, &content, 2);
    assert_ok(f->ctx, run_folder_reopen(f->ctx, &io, f->path, &folder, &state));
    state_close(state);
    faults->fail_at = faults->n_calls + n;
    enum der_status status = save_step(f, folder, &content);
    faults->fail_at = 0;
    run_folder_close(folder);
    free_content(&content);
    return status;
}

static void start_again(void *self)
{
    struct fixture *f = self;
    scratch_fini(&f->scratch);
    scratch_init(&f->scratch);
    (void)snprintf(f->path, sizeof f->path, "%s", scratch_path(&f->scratch, "run"));
    begin(f, 1);
}

static int check(void *self)
{
    return assert_coherent(self);
}

static struct save_trial trial_of(struct fixture *f)
{
    return (struct save_trial){f, start_again, try_step_2, check, NULL};
}

static void test_whichever_call_of_a_save_fails_one_whole_state_loads(void **state)
{
    const struct save_trial trial = trial_of(*state);
    struct save_outcome outcome = save_trial_fail_each(&trial);
    assert_true(outcome.n_calls >= 30); /* four files of several calls each, and the renames */
    assert_true(outcome.n_old > 15);
}

static void test_a_full_disk_leaves_the_last_state(void **state)
{
    struct fixture *f = *state;
    const struct save_trial trial = trial_of(f);
    save_trial_fill_disk(&trial);
    assert_non_null(strstr(f->ctx->error, "No space left on device"));
}

static void test_a_kill_before_any_call_of_a_save_leaves_one_whole_state(void **state)
{
    const struct save_trial trial = trial_of(*state);
    struct save_outcome outcome = save_trial_kill_each(&trial);
    assert_true(outcome.n_old > 15 && outcome.n_new > 3);
}

static void test_a_run_without_a_state_begins_anew(void **state)
{
    struct fixture *f = *state;
    struct run_folder *folder;
    struct state_file *file;
    bool has_run;
    assert_ok(f->ctx, run_folder_has_run(f->ctx, f->path, &has_run));
    assert_false(has_run);
    assert_ok(f->ctx, run_folder_create(f->ctx, NULL, f->path, f->config, &folder));
    assert_ok(f->ctx, run_folder_record(folder, f->ctx, line(1)));
    run_folder_close(folder);
    assert_ok(f->ctx, run_folder_has_run(f->ctx, f->path, &has_run));
    assert_true(has_run);
    assert_ok(f->ctx, run_folder_reopen(f->ctx, NULL, f->path, &folder, &file));
    assert_null(file);
    assert_int_equal(count_lines(f), 0);
    run_folder_close(folder);
}

static bool holds_run(struct fixture *f)
{
    bool has_run;
    assert_ok(f->ctx, run_folder_has_run(f->ctx, f->path, &has_run));
    return has_run;
}

static void test_a_run_that_could_not_begin_is_taken_away(void **state)
{
    struct fixture *f = *state;
    struct run_folder *folder;
    struct state_file *file;
    run_folder_withdraw(NULL);
    assert_ok(f->ctx, run_folder_create(f->ctx, NULL, f->path, f->config, &folder));
    run_folder_withdraw(folder);
    run_folder_close(folder);
    assert_false(holds_run(f));
    assert_int_equal(access(scratch_path(&f->scratch, "run/metrics.jsonl"), F_OK), -1);
    /* Not one that has something to show, or was there before. */
    assert_ok(f->ctx, run_folder_create(f->ctx, NULL, f->path, f->config, &folder));
    assert_ok(f->ctx, run_folder_record(folder, f->ctx, line(1)));
    run_folder_withdraw(folder);
    run_folder_close(folder);
    assert_true(holds_run(f));
    assert_ok(f->ctx, run_folder_reopen(f->ctx, NULL, f->path, &folder, &file));
    run_folder_withdraw(folder);
    run_folder_close(folder);
    assert_true(holds_run(f));
}

static void test_lines_behind_the_state_are_cut_off(void **state)
{
    struct fixture *f = *state;
    struct run_folder *folder;
    struct state_file *file;
    begin(f, 1);
    assert_ok(f->ctx, run_folder_reopen(f->ctx, NULL, f->path, &folder, &file));
    for (int i = 0; i < 5; i++)
        assert_ok(f->ctx, run_folder_record(folder, f->ctx, line(2)));
    state_close(file);
    run_folder_close(folder);
    assert_int_equal(count_lines(f), 6);
    assert_int_equal(assert_coherent(f), 1);
}

static void assert_refused(struct fixture *f, enum der_status status, const char *sentence)
{
    struct run_folder *folder;
    struct state_file *file;
    assert_int_equal(run_folder_reopen(f->ctx, NULL, f->path, &folder, &file), status);
    assert_null(folder);
    assert_null(file);
    if (!strstr(f->ctx->error, sentence))
        fail_msg("'%s' does not say '%s'", f->ctx->error, sentence);
}

static void test_files_that_do_not_belong_together_are_refused(void **state)
{
    struct fixture *f = *state;
    begin(f, 1);
    scratch_text(&f->scratch, "run/metrics.jsonl", "");
    assert_refused(f, DER_FORMAT, "has 0 lines, fewer than the 1 that the state knows");
    scratch_text(&f->scratch, "run/config.json", "{\"settings\": \"others\"}\n");
    assert_refused(f, DER_FORMAT, "state.safetensors does not belong to");
    scratch_text(&f->scratch, "run/state.safetensors", "rubbish!");
    assert_refused(f, DER_FORMAT, "state.safetensors");
}

static void test_a_second_opening_is_refused(void **state)
{
    struct fixture *f = *state;
    struct run_folder *folder;
    struct state_file *file;
    begin(f, 1);
    assert_ok(f->ctx, run_folder_reopen(f->ctx, NULL, f->path, &folder, &file));
    assert_refused(f, DER_STATE, "in use by");
    state_close(file);
    run_folder_close(folder);
}

static void test_a_folder_with_a_run_is_not_taken_for_another(void **state)
{
    struct fixture *f = *state;
    struct run_folder *folder;
    begin(f, 1);
    assert_int_equal(run_folder_create(f->ctx, NULL, f->path, f->config, &folder), DER_ARG);
    assert_null(folder);
    assert_non_null(strstr(f->ctx->error, "holds a run already; resume it"));
    assert_int_equal(assert_coherent(f), 1);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_a_saved_step_comes_back),
        TEST(test_whichever_call_of_a_save_fails_one_whole_state_loads),
        TEST(test_a_full_disk_leaves_the_last_state),
        TEST(test_a_kill_before_any_call_of_a_save_leaves_one_whole_state),
        TEST(test_a_run_without_a_state_begins_anew),
        TEST(test_a_run_that_could_not_begin_is_taken_away),
        TEST(test_lines_behind_the_state_are_cut_off),
        TEST(test_files_that_do_not_belong_together_are_refused),
        TEST(test_a_second_opening_is_refused),
        TEST(test_a_folder_with_a_run_is_not_taken_for_another),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

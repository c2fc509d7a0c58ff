/*
 * State and exemplar files: exact numbers go through them, and hand-made faults are refused with a sentence.
 */
#include "store/state_file.h"

#include "store/exemplar_file.h"
#include "store/model_text.h"
#include "store/tensor_list.h"
#include "support/scratch.h"
#include "support/test_ctx.h"

#include <stdio.h>
#include <string.h>

enum { STEPS = 2, ROWS = 2, COLS = 3, N = ROWS * COLS };

struct fixture {
    struct der_ctx *ctx;
    struct backend *be;
    struct scratch scratch;
    char path[SCRATCH_PATH_MAX];
    struct param_set *head;
    struct incremental *metrics;
    double measured[STEPS * STEPS + STEPS];
    struct run_state state;
};

static struct param_set *new_head(struct fixture *f)
{
    struct param_set *head;
    int index;
    assert_ok(f->ctx, param_set_new(f->ctx, &head));
    assert_ok(f->ctx, param_set_add(head, "classifier.weight", shape_2d(ROWS, COLS), PARAM_LEARNT,
                                    INIT_ZERO, &index));
    assert_ok(f->ctx, param_set_allocate(head, f->be));
    assert_ok(f->ctx, param_set_thaw(head));
    return head;
}

static const float VALUES[N] = {0.1F, -0.0F, 1e-40F, 3.4e38F, 1.0F / 3.0F, -7.0F};
static const float VELOCITIES[N] = {1e-30F, 2.5F, -1.0F / 7.0F, 0.0F, 4.0F, 5.0F};

static int set_up(void **state)
{
    static struct fixture f;
    const int64_t n[] = {40, 41};
    const int64_t top1[] = {30, 20};
    const int64_t top5[] = {40, 39};
    struct incremental_step step = {.n_classes = 2,
                                    .n = n,
                                    .top1 = top1,
                                    .top5 = top5,
                                    .parameters = INT64_C(1) << 60,
                                    .parameters_with_classifier = (INT64_C(1) << 60) + 1};
    f = (struct fixture){.ctx = test_ctx_new(1)};
    assert_ok(f.ctx, backend_open(f.ctx, "ref", NULL, &f.be));
    scratch_init(&f.scratch);
    (void)snprintf(f.path, sizeof f.path, "%s", scratch_path(&f.scratch, "state"));
    assert_ok(f.ctx, incremental_new(f.ctx, &f.metrics));
    assert_ok(f.ctx, incremental_add(f.metrics, &step));
    f.head = new_head(&f);
    assert_ok(f.ctx, param_write(f.head, 0, VALUES));
    assert_ok(f.ctx, buffer_write(f.head->velocity, 0, VELOCITIES, sizeof VELOCITIES));
    for (int i = 0; i < STEPS * STEPS + STEPS; i++)
        f.measured[i] = 100.0 / (3.0 + i);
    f.state = (struct run_state){.step = 1,
                                 .n_steps = STEPS,
                                 .metrics_lines = 12345678901,
                                 .run = UINT64_C(0xfedcba9876543210),
                                 .metrics = f.metrics,
                                 .representation = f.measured,
                                 .reference = f.measured + STEPS * STEPS,
                                 .bound_sum = 0.1 + 0.2,
                                 .reference_own = 1.0 / 3.0};
    f.state.point = (struct stage_point){.phase = PHASE_REPRESENTATION,
                                         .epoch = 7,
                                         .lambda_s = 0.75 * (1.0 + 1e-16 * 3.0),
                                         .size_error = -1.0 / 3.0,
                                         .start_params = (INT64_C(1) << 53) + 1,
                                         .modules = {{"head.", f.head, true}},
                                         .n_modules = 1};
    *state = &f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    param_set_free(f->head);
    incremental_free(f->metrics);
    scratch_fini(&f->scratch);
    backend_close(f->be);
    test_ctx_free(f->ctx);
    return 0;
}

static void test_all_numbers_come_back_exactly(void **state)
{
    struct fixture *f = *state;
    struct state_file *file;
    assert_ok(f->ctx, state_write(f->ctx, NULL, f->path, &f->state));
    assert_ok(f->ctx, state_open(f->ctx, NULL, f->path, &file));
    const struct run_state *is = &file->state;
    const struct stage_point *want = &f->state.point;
    assert_int_equal(is->point.phase, PHASE_REPRESENTATION);
    assert_int_equal(is->point.epoch, 7);
    assert_true(is->point.lambda_s == want->lambda_s);
    assert_true(is->point.size_error == want->size_error);
    assert_true(is->point.start_params == want->start_params);
    assert_int_equal(is->step, 1);
    assert_int_equal(is->n_steps, STEPS);
    assert_true(is->metrics_lines == f->state.metrics_lines && is->run == f->state.run);
    assert_true(is->bound_sum == 0.1 + 0.2 && is->reference_own == 1.0 / 3.0);
    assert_memory_equal(is->representation, f->measured, STEPS * STEPS * sizeof(double));
    assert_memory_equal(is->reference, f->measured + STEPS * STEPS, STEPS * sizeof(double));
    assert_int_equal(is->metrics->n_steps, 1);
    assert_true(is->metrics->steps[0].parameters == f->metrics->steps[0].parameters);
    assert_memory_equal(is->metrics->steps[0].n, f->metrics->steps[0].n, 6 * sizeof(int64_t));
    state_close(file);
}

static void test_values_and_velocities_come_back_bit_for_bit(void **state)
{
    struct fixture *f = *state;
    struct state_file *file;
    float values[N];
    float velocities[N];
    assert_ok(f->ctx, state_write(f->ctx, NULL, f->path, &f->state));
    assert_ok(f->ctx, state_open(f->ctx, NULL, f->path, &file));
    struct param_set *head = new_head(f);
    assert_ok(f->ctx, state_restore(file, "head.", head, true));
    assert_ok(f->ctx, state_check_done(file));
    assert_ok(f->ctx, param_read(head, 0, values));
    assert_ok(f->ctx, buffer_read(head->velocity, 0, velocities, sizeof velocities));
    assert_memory_equal(values, VALUES, sizeof VALUES);
    assert_memory_equal(velocities, VELOCITIES, sizeof VELOCITIES);
    param_set_free(head);
    state_close(file);
}

static void test_the_network_of_a_second_stage_comes_back(void **state)
{
    struct fixture *f = *state;
    struct state_file *file;
    const struct resnet_spec newest = {.stem = RESNET_STEM_3X3_POOL,
                                       .n_stages = 2,
                                       .n_blocks = {1, 2},
                                       .stream = {3, 4},
                                       .inner = {{5}, {6, 7}}};
    f->state.point.phase = PHASE_CLASSIFIER;
    f->state.point.newest = newest;
    assert_ok(f->ctx, state_write(f->ctx, NULL, f->path, &f->state));
    assert_ok(f->ctx, state_open(f->ctx, NULL, f->path, &file));
    assert_memory_equal(&file->state.point.newest, &newest, sizeof newest);
    state_close(file);
}

static void test_a_module_of_another_shape_is_refused(void **state)
{
    struct fixture *f = *state;
    struct state_file *file;
    assert_ok(f->ctx, state_write(f->ctx, NULL, f->path, &f->state));
    assert_ok(f->ctx, state_open(f->ctx, NULL, f->path, &file));
    assert_int_equal(state_restore(file, "masks.", f->head, true), DER_FORMAT);
    assert_non_null(strstr(f->ctx->error, "no tensor 'masks.classifier.weight'"));
    assert_int_equal(state_check_done(file), DER_FORMAT);
    assert_non_null(strstr(f->ctx->error, "a state like this has"));
    state_close(file);
}

/* Replaces text of the same length in a file. */
static void change(struct fixture *f, const char *from, const char *to)
{
    struct file_bytes bytes = {0};
    struct fault fault;
    size_t n = strlen(from);
    size_t at = 0;
    assert_int_equal(strlen(to), n);
    assert_int_equal(file_read(&f->ctx->mem, NULL, f->path, 1 << 20, &bytes, &fault), DER_OK);
    while (at + n <= bytes.size && memcmp(bytes.data + at, from, n) != 0)
        at++;
    assert_true(at + n <= bytes.size);
    memcpy(bytes.data + at, to, n);
    scratch_write(&f->scratch, "state", bytes.data, bytes.size);
    file_bytes_free(&f->ctx->mem, &bytes);
}

static void assert_says(const struct fixture *f, const char *sentence)
{
    if (!strstr(f->ctx->error, sentence))
        fail_msg("'%s' does not say '%s'", f->ctx->error, sentence);
}

static void test_every_fault_of_a_state_is_told(void **state)
{
    struct fixture *f = *state;
    static const struct {
        const char *from, *to, *sentence;
    } faults[] = {
        {"format\\\":1", "format\\\":3", "reads format 1"},
        {"fedcba9876543210", "fedcba987654321x", "'run' must be 16 hexadecimal digits"},
        {"\\\"representation\\\"", "\\\"representations\"", "state"},
        {"\\\"phase\\\"", "\\\"phrase\"", "state"},
        {"\\\"step\\\":1", "\\\"step\\\":2", "'step' must be a whole number from 0 to 1"},
        {"\\\"steps\\\":2", "\\\"steps\\\":0", "'steps' must be a whole number from 1 to 128"},
        {"\\\"epoch\\\":7", "\\\"epoch\\\":0", "'epoch' must be a whole number from 1"},
        {"\"tests.counts\"", "\"tests.kounts\"", "tests.counts"},
        {"\"tests.parameters\"", "\"tests.parametres\"", "no tensor 'tests.parameters'"},
        {"\"metrics_lines\"", "\"metrics_line_\"", "no tensor 'metrics_lines'"},
        {"\"pressure.start\"", "\"pressure.stort\"", "no tensor 'pressure.start'"},
        {"measured.bound_sum", "measured.bound.sum", "no tensor 'measured.bound_sum'"},
    };
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        struct state_file *file;
        assert_ok(f->ctx, state_write(f->ctx, NULL, f->path, &f->state));
        change(f, faults[i].from, faults[i].to);
        assert_int_equal(state_open(f->ctx, NULL, f->path, &file), DER_FORMAT);
        assert_null(file);
        assert_says(f, faults[i].sentence);
    }
}

static void test_impossible_numbers_of_a_state_are_told(void **state)
{
    struct fixture *f = *state;
    struct state_file *file;
    f->state.metrics_lines = -1;
    assert_ok(f->ctx, state_write(f->ctx, NULL, f->path, &f->state));
    assert_int_equal(state_open(f->ctx, NULL, f->path, &file), DER_FORMAT);
    assert_says(f, "'metrics_lines' cannot be -1");
    f->state.metrics_lines = 0;
    f->measured[1] = 1e300 * 1e300;
    assert_ok(f->ctx, state_write(f->ctx, NULL, f->path, &f->state));
    assert_int_equal(state_open(f->ctx, NULL, f->path, &file), DER_FORMAT);
    assert_says(f, "'measured.representation' holds a value that is not finite");
    f->measured[1] = 0.0;
    f->state.step = 0;
    assert_ok(f->ctx, state_write(f->ctx, NULL, f->path, &f->state));
    assert_int_equal(state_open(f->ctx, NULL, f->path, &file), DER_FORMAT);
    assert_says(f, "1 tests after 0 steps");
    f->state.step = 1;
    ((int64_t *)f->metrics->steps[0].n)[1] = INT64_MAX;
    assert_ok(f->ctx, state_write(f->ctx, NULL, f->path, &f->state));
    assert_int_equal(state_open(f->ctx, NULL, f->path, &file), DER_FORMAT);
    assert_says(f, "'tests.counts' cannot have 9223372036854775807 images");
    ((int64_t *)f->metrics->steps[0].n)[1] = 41;
    ((int64_t *)f->metrics->steps[0].top1)[0] = 41; /* of 40 images */
    assert_ok(f->ctx, state_write(f->ctx, NULL, f->path, &f->state));
    assert_int_equal(state_open(f->ctx, NULL, f->path, &file), DER_FORMAT);
    assert_says(f, "40 images cannot have 41 first");
}

static void test_every_failed_allocation_of_a_state_is_survived(void **state)
{
    struct fixture *f = *state;
    struct mem *mem = &f->ctx->mem;
    assert_ok(f->ctx, state_write(f->ctx, NULL, f->path, &f->state));
    for (int n = 1;; n++) {
        struct state_file *file;
        atomic_store(&mem->fail_at, atomic_load(&mem->n_allocs) + (unsigned)n);
        enum der_status status = state_open(f->ctx, NULL, f->path, &file);
        atomic_store(&mem->fail_at, 0);
        state_close(file);
        if (status == DER_OK) {
            assert_true(n > 5);
            break;
        }
        assert_int_equal(status, DER_NOMEM);
    }
}

/* ---- exemplars ------------------------------------------------------------------------------------- */

static const char *const NAMES[] = {"cat", "dog", "owl"};

static void write_exemplars(struct fixture *f, const int64_t *samples, const int *counts)
{
    struct exemplars *memory;
    assert_ok(f->ctx, exemplars_new(f->ctx, 3, &memory));
    for (int k = 0; k < 3; k++) {
        assert_ok(f->ctx, exemplars_add(memory, samples, counts[k]));
        samples += counts[k];
    }
    assert_ok(f->ctx, exemplar_file_write(memory, NAMES, 2, NULL, f->path));
    exemplars_free(memory);
}

static void test_exemplars_come_back_in_their_order(void **state)
{
    struct fixture *f = *state;
    const int64_t samples[] = {9, 2, 5, 99};
    const int counts[] = {3, 0, 1};
    struct exemplar_file *file;
    int step;
    write_exemplars(f, samples, counts);
    assert_ok(f->ctx, text_peek_step(f->ctx, NULL, f->path, &step));
    assert_int_equal(step, 2);
    assert_ok(f->ctx, exemplar_file_read(f->ctx, NULL, f->path, 5, 100, &file));
    assert_int_equal(file->step, 2);
    assert_int_equal(file->memory->n_classes, 3);
    assert_int_equal(file->memory->capacity, 5);
    for (int k = 0; k < 3; k++) {
        assert_int_equal(file->memory->lists[k].n, counts[k]);
        assert_string_equal(file->classes[k], NAMES[k]);
    }
    assert_memory_equal(file->memory->lists[0].samples, samples, 3 * sizeof *samples);
    assert_int_equal(file->memory->lists[2].samples[0], 99);
    exemplar_file_free(file);
}

static void assert_refused(struct fixture *f, int capacity, int64_t n_samples, const char *sentence)
{
    struct exemplar_file *file;
    assert_int_equal(exemplar_file_read(f->ctx, NULL, f->path, capacity, n_samples, &file),
                     DER_FORMAT);
    assert_null(file);
    assert_says(f, sentence);
}

static void test_every_fault_of_exemplars_is_told(void **state)
{
    struct fixture *f = *state;
    const int64_t samples[] = {9, 2, 9, 99};
    const int64_t negative[] = {9, 2, -1, 99};
    const int counts[] = {2, 0, 2};
    write_exemplars(f, samples, counts);
    assert_refused(f, 3, 100, "sample 9 occurs twice");
    assert_refused(f, 3, 99, "sample 99 does not exist; the data set has 99 training images");
    assert_refused(f, 2, 100, "3 counts for 3 classes; there can be 2");
    write_exemplars(f, negative, counts);
    assert_refused(f, 3, 100, "sample -1 does not exist");
    write_exemplars(f, samples, counts);
    change(f, "\\\"dog\\\"", "\\\"cat\\\"");
    assert_refused(f, 3, 100, "class 'cat' occurs twice");
    write_exemplars(f, samples, counts);
    change(f, "\"counts\"", "\"kounts\"");
    assert_refused(f, 3, 100, "no vector 'counts' of type I64");
    assert_ok(f->ctx, state_write(f->ctx, NULL, f->path, &f->state));
    assert_refused(f, 3, 100, "no member");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_all_numbers_come_back_exactly),
        TEST(test_values_and_velocities_come_back_bit_for_bit),
        TEST(test_the_network_of_a_second_stage_comes_back),
        TEST(test_a_module_of_another_shape_is_refused),
        TEST(test_every_fault_of_a_state_is_told),
        TEST(test_impossible_numbers_of_a_state_are_told),
        TEST(test_every_failed_allocation_of_a_state_is_survived),
        TEST(test_exemplars_come_back_in_their_order),
        TEST(test_every_fault_of_exemplars_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * Prediction files: what is written comes back, and hand-made faults are refused with a sentence.
 */
#include "store/prediction_file.h"

#include "store/model_text.h"
#include "support/file_fixture.h"

#include <math.h>
#include <string.h>

static const char *const NAMES[] = {"cat", "</script>", "owl"};

static struct prediction_file example(struct der_ctx *ctx, struct prediction rows[3])
{
    rows[0] = (struct prediction){.sample = 7, .label = 0, .guess = 2, .confidence = 0.75F};
    rows[1] = (struct prediction){.sample = 3, .label = 1, .guess = 1, .confidence = 1.0F};
    rows[2] = (struct prediction){.sample = INT64_C(1) << 40, .label = 2, .guess = 0};
    return (struct prediction_file){.ctx = ctx,
                                    .step = 2,
                                    .split = DATA_TRAIN,
                                    .classes = NAMES,
                                    .n_classes = 3,
                                    .predictions = rows,
                                    .n = 3};
}

static const char *path_of(struct file_fixture *f)
{
    return scratch_path(&f->scratch, "predictions.safetensors");
}

static void test_predictions_come_back(void **state)
{
    struct file_fixture *f = *state;
    struct prediction rows[3];
    struct prediction_file written = example(f->ctx, rows);
    struct prediction_file *read;
    int step;
    assert_ok(f->ctx, prediction_file_write(&written, NULL, path_of(f)));
    assert_ok(f->ctx, text_peek_step(f->ctx, NULL, path_of(f), &step));
    assert_int_equal(step, 2);
    assert_ok(f->ctx, prediction_file_read(f->ctx, NULL, path_of(f), &read));
    assert_int_equal(read->step, 2);
    assert_int_equal(read->split, DATA_TRAIN);
    assert_int_equal(read->n_classes, 3);
    assert_string_equal(read->classes[1], "</script>");
    assert_int_equal(read->n, 3);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(read->predictions[i].sample, rows[i].sample);
        assert_int_equal(read->predictions[i].label, rows[i].label);
        assert_int_equal(read->predictions[i].guess, rows[i].guess);
        assert_true(read->predictions[i].confidence == rows[i].confidence);
    }
    prediction_file_free(read);
}

static void test_no_predictions_are_fine(void **state)
{
    struct file_fixture *f = *state;
    struct prediction rows[3];
    struct prediction_file written = example(f->ctx, rows);
    struct prediction_file *read;
    written.n = 0;
    assert_ok(f->ctx, prediction_file_write(&written, NULL, path_of(f)));
    assert_ok(f->ctx, prediction_file_read(f->ctx, NULL, path_of(f), &read));
    assert_int_equal(read->n, 0);
    prediction_file_free(read);
}

static void assert_refused(struct file_fixture *f, const struct prediction_file *file,
                           const char *sentence)
{
    struct prediction_file *read;
    assert_ok(f->ctx, prediction_file_write(file, NULL, path_of(f)));
    assert_int_equal(prediction_file_read(f->ctx, NULL, path_of(f), &read), DER_FORMAT);
    assert_null(read);
    if (!strstr(f->ctx->error, sentence))
        fail_msg("'%s' does not say '%s'", f->ctx->error, sentence);
}

static void test_impossible_numbers_are_told(void **state)
{
    struct file_fixture *f = *state;
    struct prediction rows[3];
    struct prediction_file file = example(f->ctx, rows);
    rows[1].sample = -1;
    assert_refused(f, &file, "image 1 has position -1");
    file = example(f->ctx, rows);
    rows[2].guess = 3;
    assert_refused(f, &file, "image 2: class 2 or 3 is not one of 3");
    file = example(f->ctx, rows);
    rows[0].label = -1;
    assert_refused(f, &file, "image 0: class -1 or 2 is not one of 3");
    file = example(f->ctx, rows);
    rows[0].confidence = 1.5F;
    assert_refused(f, &file, "image 0: 1.5 is no probability");
    rows[0].confidence = NAN;
    assert_refused(f, &file, "confidence");
    file = example(f->ctx, rows);
    file.step = 0;
    assert_refused(f, &file, "'step' must be a whole number from 1");
    file = example(f->ctx, rows);
    file.n_classes = 0;
    assert_refused(f, &file, "there are no classes");
}

static void test_every_failed_allocation_is_survived(void **state)
{
    struct file_fixture *f = *state;
    struct prediction rows[3];
    struct prediction_file written = example(f->ctx, rows);
    struct prediction_file *read = NULL;
    assert_ok(f->ctx, prediction_file_write(&written, NULL, path_of(f)));
    enum der_status status = DER_NOMEM;
    for (uint64_t n = 1; status != DER_OK; n++) {
        assert_int_equal(status, DER_NOMEM);
        f->ctx->mem.fail_at = f->ctx->mem.n_allocs + n;
        status = prediction_file_write(&written, NULL, path_of(f));
        if (status == DER_OK) {
            f->ctx->mem.fail_at = f->ctx->mem.n_allocs + n;
            status = prediction_file_read(f->ctx, NULL, path_of(f), &read);
        }
        f->ctx->mem.fail_at = 0;
    }
    prediction_file_free(read);
}

int main(void)
{
#define TEST(name)                                                                                 \
    cmocka_unit_test_setup_teardown(name, file_fixture_set_up, file_fixture_tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_predictions_come_back),
        TEST(test_no_predictions_are_fine),
        TEST(test_impossible_numbers_are_told),
        TEST(test_every_failed_allocation_is_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

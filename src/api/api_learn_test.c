/* The public face of learning: a model in memory and a model in a file, taught twice. */
#include <der/der.h>

#include "support/file_fixture.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { SIDE = 8 };

/* Grey pictures, dark or light ones by class, no two alike. */
static struct der_data *new_data(struct der_ctx *ctx, const char *const *names, int n_classes,
                                 int n)
{
    struct der_data *data;
    assert_ok(ctx, der_data_new(ctx, &data));
    for (int c = 0; c < n_classes; c++) {
        for (int i = 0; i < n; i++) {
            uint8_t pixels[3 * SIDE * SIDE];
            for (int k = 0; k < 3 * SIDE * SIDE; k++)
                pixels[k] = (uint8_t)(names[c][0] % 8 * 30 + (k * (i + 3) + 7 * i) % 31);
            struct der_image image = {
                .pixels = pixels, .channels = 3, .height = SIDE, .width = SIDE};
            assert_ok(ctx, der_data_add(data, DER_SPLIT_TRAIN, names[c], &image));
        }
    }
    return data;
}

static struct der_learn_options options(void)
{
    return (struct der_learn_options){.network = "resnet32",
                                      .width = 0.125,
                                      .epochs = 2,
                                      .classifier_epochs = 2,
                                      .memory = 3,
                                      .seed = 1};
}

static const struct der_model_options ON_REF = {.backend = "ref"};

static void test_a_model_in_memory_learns_predicts_and_is_saved(void **state)
{
    struct file_fixture *f = *state;
    static const char *const first[] = {"cat", "dog"};
    static const char *const second[] = {"owl"};
    struct der_learn_options o = options();
    struct der_learn_report report;
    struct der_model *model;
    struct der_guess guess;
    uint8_t pixels[3 * SIDE * SIDE] = {0};
    const struct der_image image = {.pixels = pixels, .channels = 3, .height = SIDE, .width = SIDE};
    struct der_data *data = new_data(f->ctx, first, 2, 8);
    char path[SCRATCH_PATH_MAX];
    (void)snprintf(path, sizeof path, "%s", scratch_path(&f->scratch, "pets.safetensors"));
    assert_ok(f->ctx, der_model_new(f->ctx, &ON_REF, &model));
    assert_int_equal(der_model_predict(model, &image, 1, 1, &guess), DER_STATE);
    assert_int_equal(der_model_save(model, path), DER_STATE);
    assert_ok(f->ctx, der_model_learn(model, data, &o, &report));
    assert_int_equal(report.new_classes, 2);
    assert_int_equal(report.n_classes, 2);
    assert_int_equal(report.n_pictures, 12);
    assert_int_equal(report.held_out_new, 4);
    assert_true(isnan(report.old_before) && report.new_after >= 0.0);
    assert_true(report.params > 0 && report.params_total > report.params);
    assert_ok(f->ctx, der_model_predict(model, &image, 1, 1, &guess));
    assert_ok(f->ctx, der_model_save(model, path));
    der_model_free(model);
    der_data_free(data);

    /* Days later. */
    data = new_data(f->ctx, second, 1, 6);
    assert_ok(f->ctx, der_model_load(f->ctx, path, &ON_REF, &model));
    assert_ok(f->ctx, der_model_learn(model, data, &o, &report));
    assert_int_equal(report.new_classes, 1);
    assert_int_equal(report.n_classes, 3);
    assert_int_equal(report.held_out_old, 4);
    assert_true(report.old_before >= 0.0);
    assert_int_equal(der_model_info(model).n_classes, 3);
    assert_string_equal(der_model_class(model, 2), "owl");
    /* Saved elsewhere it still can learn on. */
    (void)snprintf(path, sizeof path, "%s", scratch_path(&f->scratch, "copy.safetensors"));
    assert_ok(f->ctx, der_model_save(model, path));
    assert_int_equal(access(scratch_path(&f->scratch, "copy.exemplars.safetensors"), F_OK), 0);
    assert_int_equal(access(scratch_path(&f->scratch, "copy.state.safetensors"), F_OK), 0);
    der_model_free(model);
    der_data_free(data);
}

static bool stop(void *user)
{
    (void)user;
    return true;
}

static void test_a_model_in_a_file_is_taught_and_stays_when_that_fails(void **state)
{
    struct file_fixture *f = *state;
    static const char *const first[] = {"cat", "dog"};
    static const char *const second[] = {"owl", "cat"};
    struct der_learn_options o = options();
    struct der_learn_report report;
    struct der_model *model;
    char path[SCRATCH_PATH_MAX];
    (void)snprintf(path, sizeof path, "%s", scratch_path(&f->scratch, "pets.safetensors"));
    struct der_data *data = new_data(f->ctx, first, 2, 8);
    assert_ok(f->ctx, der_learn(f->ctx, path, data, &ON_REF, &o, &report));
    der_data_free(data);
    data = new_data(f->ctx, second, 2, 12);
    o.cancelled = stop;
    assert_int_equal(der_learn(f->ctx, path, data, &ON_REF, &o, &report), DER_CANCELLED);
    o.cancelled = NULL;
    o.image_size = 2 * SIDE;
    assert_int_equal(der_learn(f->ctx, path, data, &ON_REF, &o, &report), DER_ARG);
    assert_ok(f->ctx, der_model_load(f->ctx, path, &ON_REF, &model));
    assert_int_equal(der_model_info(model).n_classes, 2);
    o.image_size = 0;
    assert_ok(f->ctx, der_learn(f->ctx, path, data, &ON_REF, &o, &report));
    assert_int_equal(report.new_classes, 1);
    assert_int_equal(report.joined_classes, 1);
    assert_true(report.known_pictures > 0);
    /* The model that was loaded before does not know of it, and says so. */
    assert_int_equal(der_model_learn(model, data, &o, &report), DER_STATE);
    assert_non_null(strstr(der_ctx_error(f->ctx), "has changed since it was loaded"));
    der_model_free(model);
    der_data_free(data);
}

static void test_a_model_without_companions_predicts_but_does_not_learn(void **state)
{
    struct file_fixture *f = *state;
    static const char *const first[] = {"cat", "dog"};
    struct der_learn_options o = options();
    struct der_learn_report report;
    struct der_model *model;
    char path[SCRATCH_PATH_MAX];
    (void)snprintf(path, sizeof path, "%s", scratch_path(&f->scratch, "pets.safetensors"));
    struct der_data *data = new_data(f->ctx, first, 2, 8);
    assert_ok(f->ctx, der_learn(f->ctx, path, data, &ON_REF, &o, &report));
    assert_int_equal(unlink(scratch_path(&f->scratch, "pets.state.safetensors")), 0);
    assert_ok(f->ctx, der_model_load(f->ctx, path, &ON_REF, &model));
    assert_int_equal(der_model_learn(model, data, &o, &report), DER_STATE);
    assert_non_null(strstr(der_ctx_error(f->ctx), "pets.state.safetensors is missing"));
    assert_int_equal(der_model_info(model).n_classes, 2);
    /* It is saved as what it is. */
    assert_ok(f->ctx, der_model_save(model, scratch_path(&f->scratch, "copy.safetensors")));
    assert_int_equal(access(scratch_path(&f->scratch, "copy.state.safetensors"), F_OK), -1);
    der_model_free(model);
    der_data_free(data);
}

static void test_wrong_options_are_refused(void **state)
{
    struct file_fixture *f = *state;
    static const char *const first[] = {"cat", "dog"};
    struct der_learn_report report;
    struct der_model *model;
    struct der_data *data = new_data(f->ctx, first, 2, 4);
    assert_ok(f->ctx, der_model_new(f->ctx, &ON_REF, &model));
    struct der_learn_options o = options();
    o.epochs = -1;
    assert_int_equal(der_model_learn(model, data, &o, &report), DER_ARG);
    o = options();
    o.validation = 1.0;
    assert_int_equal(der_model_learn(model, data, &o, &report), DER_ARG);
    o.validation = NAN;
    assert_int_equal(der_model_learn(model, data, &o, &report), DER_ARG);
    o = options();
    o.network = "resnet33";
    assert_int_equal(der_model_learn(model, data, &o, &report), DER_ARG);
    assert_int_equal(der_model_info(model).n_classes, 0);
    der_model_free(model);
    der_data_free(data);
}

int main(void)
{
#define TEST(name)                                                                                 \
    cmocka_unit_test_setup_teardown(name, file_fixture_set_up, file_fixture_tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_a_model_in_memory_learns_predicts_and_is_saved),
        TEST(test_a_model_in_a_file_is_taught_and_stays_when_that_fails),
        TEST(test_a_model_without_companions_predicts_but_does_not_learn),
        TEST(test_wrong_options_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

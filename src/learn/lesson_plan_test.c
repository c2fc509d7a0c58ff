/* Defaults of a lesson: what docs/METHODS.md says, typed a second time. */
#include "learn/lesson_plan.h"

#include "data/collection.h"
#include "support/test_ctx.h"

#include <math.h>

enum { MOST_BYTES = 3 * 300 * 400 };

struct fixture {
    struct der_ctx *ctx;
    struct pupil pupil;
    struct dataset *set;
    struct lesson_options options;
    struct lesson_plan plan;
};

static int set_up(void **state)
{
    static struct fixture f;
    f = (struct fixture){.ctx = test_ctx_new(1)};
    assert_ok(f.ctx, backend_open(f.ctx, "ref", NULL, &f.pupil.be));
    *state = &f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    dataset_free(f->set);
    backend_close(f->pupil.be);
    test_ctx_free(f->ctx);
    return 0;
}

/* A set that seems to have n pictures: all are the same one, whose bytes nobody reads here. */
static void use_pictures(struct fixture *f, int64_t n, int height, int width)
{
    static uint8_t bytes[MOST_BYTES];
    int32_t label;
    dataset_free(f->set);
    f->set = NULL;
    assert_ok(f->ctx, collection_new(f->ctx, "memory", "pictures", 3, &f->set));
    assert_ok(f->ctx, collection_class(f->set, "cat", &label));
    assert_ok(f->ctx, collection_grow(f->set, DATA_TRAIN, n));
    for (int64_t i = 0; i < n; i++) {
        f->set->part[DATA_TRAIN].items[i] = (struct data_item){
            .place = DATA_IN_MEMORY, .image = collection_view(bytes, 3, height, width)};
        f->set->part[DATA_TRAIN].labels[i] = 0;
    }
    assert_ok(f->ctx, lesson_plan_images(&f->pupil, f->set, &f->options, &f->plan));
}

static void assert_images(struct fixture *f, int side, int resize, const char *network)
{
    assert_int_equal(f->plan.test.geometry, AUGMENT_SHORTER_SIDE);
    assert_int_equal(f->plan.test.height, side);
    assert_int_equal(f->plan.test.width, side);
    assert_int_equal(f->plan.test.resize, resize);
    assert_int_equal(f->plan.size.side, resize);
    assert_string_equal(f->plan.config.network, network);
    assert_int_equal(f->plan.spec.height, side);
    bool is_thumbnail = side == resize;
    assert_int_equal(f->plan.size.is_exact, is_thumbnail);
    assert_int_equal(f->plan.train.geometry,
                     is_thumbnail ? AUGMENT_PAD_CROP : AUGMENT_RESIZED_CROP);
    assert_int_equal(f->plan.train.flip, !is_thumbnail);
}

static void test_image_size_and_network_follow_the_pictures(void **state)
{
    struct fixture *f = *state;
    use_pictures(f, 100, 32, 32);
    assert_images(f, 32, 32, "resnet32");
    assert_int_equal(f->plan.train.pad, 4);
    use_pictures(f, 20000, 28, 28);
    assert_images(f, 28, 28, "resnet18-cifar");
    use_pictures(f, 100, 300, 400);
    assert_images(f, 48, 55, "resnet32");
    use_pictures(f, 5001, 300, 400);
    assert_images(f, 128, 146, "resnet18");
    use_pictures(f, 50001, 300, 400);
    assert_images(f, 224, 256, "resnet18");
    use_pictures(f, 100, 40, 80); /* no larger than the pictures, in steps of 16 */
    assert_images(f, 32, 37, "resnet32");
    use_pictures(f, 100, 10, 20); /* but no smaller than 32 */
    assert_images(f, 32, 37, "resnet32");
    use_pictures(f, 5001, 100, 120);
    assert_images(f, 96, 110, "resnet18");
}

static void test_what_is_asked_for_comes_first(void **state)
{
    struct fixture *f = *state;
    f->options = (struct lesson_options){.network = "resnet18", .width = 0.5, .image_size = 48};
    use_pictures(f, 100, 32, 32);
    assert_images(f, 48, 55, "resnet18");
    assert_true(f->plan.config.width == 0.5);
    f->options = (struct lesson_options){.epochs = 7,
                                         .classifier_epochs = 3,
                                         .batch = 4,
                                         .memory = 5,
                                         .target_params = 1234,
                                         .seed = 9};
    assert_ok(f->ctx, lesson_plan_training(&f->pupil, 100, &f->options, &f->plan));
    const struct config *config = &f->plan.config;
    assert_int_equal(config->representation.epochs, 7);
    assert_int_equal(config->first.epochs, 7);
    assert_int_equal(config->classifier.epochs, 3);
    assert_int_equal(config->batch, 4);
    assert_true(fabs(config->representation.lr - 0.005) < 1e-12);
    assert_int_equal(config->memory, 5);
    assert_int_equal(config->target_params, 1234);
    assert_int_equal(config->seed, 9);
    f->options.lr = 0.03;
    assert_ok(f->ctx, lesson_plan_training(&f->pupil, 100, &f->options, &f->plan));
    assert_true(config->representation.lr == 0.03 && config->first.lr == 0.03 &&
                config->classifier.lr == 0.03);
}

static void test_batch_and_epochs_follow_the_number_of_pictures(void **state)
{
    struct fixture *f = *state;
    static const struct {
        int64_t n;
        int batch, epochs, tuning;
        double lr;
    } cases[] = {{1, 16, 100, 30, 0.02},    {240, 16, 100, 30, 0.02},   {255, 16, 94, 30, 0.02},
                 {256, 32, 93, 30, 0.02},   {1000, 64, 24, 24, 0.05},   {1023, 64, 23, 23, 0.05},
                 {1024, 128, 23, 23, 0.05}, {100000, 128, 20, 20, 0.05}};
    use_pictures(f, 10, 32, 32);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct lesson_plan plan = f->plan;
        assert_ok(f->ctx, lesson_plan_training(&f->pupil, cases[i].n, &f->options, &plan));
        assert_int_equal(plan.config.batch, cases[i].batch);
        assert_int_equal(plan.config.representation.epochs, cases[i].epochs);
        assert_int_equal(plan.config.classifier.epochs, cases[i].tuning);
        assert_true(fabs(plan.config.first.lr - cases[i].lr) < 1e-12);
        assert_true(plan.config.classifier.lr == plan.config.first.lr);
        assert_int_equal(plan.config.memory, 20);
        assert_int_equal(plan.config.memory_mode, MEMORY_PER_CLASS);
        assert_int_equal(plan.config.target_params, resnet_count_params(&plan.spec) / 3);
    }
}

static void test_memory_and_size_stay_from_lesson_to_lesson(void **state)
{
    struct fixture *f = *state;
    use_pictures(f, 10, 32, 32);
    f->pupil.basis = (struct basis){.memory = 33, .target_params = 4444};
    assert_ok(f->ctx, lesson_plan_training(&f->pupil, 100, &f->options, &f->plan));
    assert_int_equal(f->plan.config.memory, 33);
    assert_int_equal(f->plan.config.target_params, 4444);
}

static void test_settings_out_of_range_are_refused(void **state)
{
    struct fixture *f = *state;
    use_pictures(f, 10, 32, 32);
    f->options.epochs = 100000000;
    assert_int_equal(lesson_plan_training(&f->pupil, 100, &f->options, &f->plan), DER_ARG);
    f->options = (struct lesson_options){.memory = 1000000001};
    assert_int_equal(lesson_plan_training(&f->pupil, 100, &f->options, &f->plan), DER_ARG);
    f->options = (struct lesson_options){.network = "resnet33"};
    assert_int_equal(lesson_plan_images(&f->pupil, f->set, &f->options, &f->plan), DER_ARG);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_image_size_and_network_follow_the_pictures),
        TEST(test_what_is_asked_for_comes_first),
        TEST(test_batch_and_epochs_follow_the_number_of_pictures),
        TEST(test_memory_and_size_stay_from_lesson_to_lesson),
        TEST(test_settings_out_of_range_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

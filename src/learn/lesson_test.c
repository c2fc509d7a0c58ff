/*
 * Lessons: every case that docs/METHODS.md defines, on pictures so small and networks so thin that only the
 * bookkeeping matters. That lessons teach is shown by tests/e2e.
 */
#include "learn/pupil.h"

#include "core/rng.h"
#include "data/collection.h"
#include "store/weights_file.h"
#include "support/scratch.h"
#include "support/test_ctx.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { SIDE = 8, BYTES = 3 * SIDE * SIDE, MEMORY = 4 };

struct fixture {
    struct der_ctx *ctx;
    struct backend *be;
    struct dataset *data;
    struct pupil pupil;
    struct lesson_options options;
    struct lesson_report report;
    int n_warnings;
    int next; /* number of the next picture: all differ */
};

static void count_warning(void *user, enum der_log_level level, const char *text)
{
    struct fixture *f = user;
    (void)text;
    f->n_warnings += level == DER_LOG_WARNING;
}

static int set_up(void **state)
{
    static struct fixture f;
    f = (struct fixture){.options = {.network = "resnet32",
                                     .width = 0.0625,
                                     .epochs = 2,
                                     .classifier_epochs = 2,
                                     .memory = MEMORY,
                                     .seed = 3,
                                     .loader_threads = 1}};
    struct der_ctx_options options = {.threads = 1, .log = count_warning, .log_user = &f};
    assert_int_equal(der_ctx_new(&options, &f.ctx), DER_OK);
    assert_ok(f.ctx, backend_open(f.ctx, "ref", NULL, &f.be));
    assert_ok(f.ctx, collection_new(f.ctx, "memory", "the data", 3, &f.data));
    f.pupil.be = f.be;
    *state = &f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    pupil_fini(&f->pupil);
    dataset_free(f->data);
    backend_close(f->be);
    test_ctx_free(f->ctx);
    return 0;
}

/* Noise around a level of the class, no two pictures alike. */
static void paint(struct fixture *f, const char *name, uint8_t bytes[BYTES])
{
    int number = f->next++;
    for (int i = 0; i < BYTES; i++) {
        struct rng_block block = rng_at(1, RNG_TEST, (uint32_t)number, (uint64_t)i);
        bytes[i] = (uint8_t)((block.word[0] & 63) + (unsigned)name[0] % 4 * 48);
    }
}

static void add_to(struct fixture *f, enum data_split split, const char *name, int n)
{
    int32_t label;
    assert_ok(f->ctx, collection_class(f->data, name, &label));
    for (int i = 0; i < n; i++) {
        uint8_t bytes[BYTES];
        paint(f, name, bytes);
        struct image_view picture = collection_view(bytes, 3, SIDE, SIDE);
        assert_ok(f->ctx, collection_add(f->data, split, label, &picture));
    }
}

static void add(struct fixture *f, const char *name, int n)
{
    add_to(f, DATA_TRAIN, name, n);
}

static void new_data(struct fixture *f)
{
    dataset_free(f->data);
    assert_ok(f->ctx, collection_new(f->ctx, "memory", "the data", 3, &f->data));
}

static enum der_status try_lesson(struct fixture *f)
{
    struct pupil taught;
    TRY(pupil_teach(&f->pupil, f->data, &f->options, &f->report, &taught));
    pupil_fini(&f->pupil);
    f->pupil = taught;
    return DER_OK;
}

static void teach(struct fixture *f)
{
    assert_ok(f->ctx, try_lesson(f));
}

static void assert_refused(struct fixture *f, enum der_status status, const char *sentence)
{
    assert_int_equal(try_lesson(f), status);
    if (!strstr(f->ctx->error, sentence))
        fail_msg("'%s' does not say '%s'", f->ctx->error, sentence);
}

static int count(const struct fixture *f, enum data_split split, int label)
{
    const struct data_part *part = &f->pupil.album->part[split];
    int n = 0;
    for (int64_t i = 0; i < part->n; i++)
        n += part->labels[i] == label;
    return n;
}

/* A first lesson of two classes with ten pictures each. */
static void begin(struct fixture *f)
{
    add(f, "apple", 10);
    add(f, "book", 10);
    teach(f);
    new_data(f);
}

/* ---- tests --------------------------------------------------------------------------------------- */

static void test_a_first_lesson_makes_a_model_that_can_learn_on(void **state)
{
    struct fixture *f = *state;
    begin(f);
    const struct model_info *info = &f->pupil.model->info;
    assert_int_equal(info->n_classes, 2);
    assert_string_equal(info->classes[1], "book");
    assert_int_equal(info->n_steps, 1);
    assert_int_equal(info->input.height, SIDE); /* thumbnails stay as they are */
    assert_int_equal(info->input.resize, SIDE);
    assert_int_equal(f->report.n_new, 2);
    assert_int_equal(f->report.n_taken, 16);
    assert_int_equal(f->report.n_held_new, 4); /* a fifth */
    assert_int_equal(f->report.n_held_old, 0);
    assert_true(isnan(f->report.old_before) && isnan(f->report.old_after));
    assert_true(!isnan(f->report.new_after));
    for (int k = 0; k < 2; k++) {
        assert_int_equal(count(f, DATA_TRAIN, k), MEMORY);
        assert_int_equal(count(f, DATA_TEST, k), 2);
    }
    int64_t full = resnet_count_params(&f->pupil.basis.last_full->spec);
    assert_true(f->report.params < full); /* pruned */
}

static void test_one_class_alone_cannot_be_a_first_lesson(void **state)
{
    struct fixture *f = *state;
    add(f, "apple", 10);
    assert_refused(f, DER_ARG, "has one class, 'apple'; a first lesson needs two");
    assert_null(f->pupil.model);
}

/* The classifier is of the second stage, whose temperature follows the features. */
static void check_temperature(const struct model *model)
{
    double features = 0.0;
    for (int i = 0; i < model->n_extractors; i++)
        features += resnet_feature_dim(&model->extractors[i]->spec);
    features /= model->n_extractors;
    assert_true(fabs(model->info.temperature - 5.0 * sqrt(features / 512.0)) < 1e-9);
}

static void test_one_single_new_class_is_learnt(void **state)
{
    struct fixture *f = *state;
    begin(f);
    add(f, "crane", 6);
    teach(f);
    const struct model *model = f->pupil.model;
    assert_int_equal(model->info.n_classes, 3);
    assert_int_equal(model->info.n_steps, 2);
    assert_int_equal(model->info.steps[1], 1);
    assert_int_equal(model->n_extractors, 2);
    assert_int_equal(f->report.n_new, 1);
    assert_int_equal(f->report.n_held_old, 4);
    assert_int_equal(f->report.n_held_new, 1);
    assert_true(!isnan(f->report.old_before) && !isnan(f->report.old_after));
    check_temperature(model);
    assert_int_equal(count(f, DATA_TRAIN, 0), MEMORY);
    assert_int_equal(count(f, DATA_TRAIN, 2), MEMORY);
}

/* Reads the first weight of the first extractor. */
static float first_weight(struct fixture *f)
{
    const struct param_set *set = f->pupil.model->extractors[0]->params;
    float values[1024];
    assert_true(shape_count(set->items[0].shape) <= 1024);
    assert_ok(f->ctx, param_read(set, 0, values));
    return values[0];
}

static void test_pictures_join_a_known_class_beside_a_new_one(void **state)
{
    struct fixture *f = *state;
    begin(f);
    add(f, "book", 10);
    add(f, "crane", 10);
    teach(f);
    assert_int_equal(f->report.n_new, 1);
    assert_int_equal(f->report.n_joined, 1);
    assert_int_equal(f->report.n_taken, 16);
    assert_int_equal(f->report.n_held_old, 6); /* 2 + 2 from before, 2 more books */
    assert_int_equal(f->pupil.model->info.n_classes, 3);
    assert_int_equal(count(f, DATA_TRAIN, 1), MEMORY);
    assert_int_equal(count(f, DATA_TEST, 1), MEMORY);
}

static void test_known_classes_alone_train_the_classifier_and_nothing_else(void **state)
{
    struct fixture *f = *state;
    begin(f);
    float weight = first_weight(f);
    int64_t params = f->report.params;
    add(f, "apple", 20);
    teach(f);
    assert_int_equal(f->report.n_new, 0);
    assert_int_equal(f->report.n_joined, 1);
    assert_int_equal(f->pupil.model->n_extractors, 1);
    assert_int_equal(f->pupil.model->info.n_steps, 1);
    assert_true(first_weight(f) == weight);
    assert_int_equal(f->report.params, params);
    check_temperature(f->pupil.model);
    assert_true(!isnan(f->report.old_before) && !isnan(f->report.old_after));
    assert_true(isnan(f->report.new_after));
    /* And it goes on from there. */
    new_data(f);
    add(f, "crane", 5);
    teach(f);
    assert_int_equal(f->pupil.model->n_extractors, 2);
}

/* The memory of a class that was joined is ranked among old and new pictures. */
static void test_joined_pictures_compete_for_the_memory(void **state)
{
    struct fixture *f = *state;
    add(f, "apple", 1);
    add(f, "book", 10);
    teach(f);
    assert_int_equal(count(f, DATA_TRAIN, 0), 1);
    new_data(f);
    add(f, "apple", 3);
    teach(f);
    assert_int_equal(count(f, DATA_TRAIN, 0), 4);
    assert_int_equal(count(f, DATA_TRAIN, 1), MEMORY);
}

static void test_classes_may_have_very_different_sizes(void **state)
{
    struct fixture *f = *state;
    begin(f);
    add(f, "crane", 1);
    add(f, "drum", 40);
    teach(f);
    assert_int_equal(count(f, DATA_TRAIN, 2), 1); /* fewer than the quota: all of them */
    assert_int_equal(count(f, DATA_TEST, 2), 0);  /* none can be spared */
    assert_int_equal(count(f, DATA_TRAIN, 3), MEMORY);
    assert_int_equal(count(f, DATA_TEST, 3), MEMORY); /* of the 8 that it was tested with */
    assert_int_equal(f->report.n_held_new, 8);
}

static enum der_status note_iterations(void *user, const struct train_progress *progress)
{
    *(int64_t *)user = progress->n_iterations; /* of the second stage, which comes last */
    return DER_OK;
}

/* The second stage repeats rare pictures, but a large memory alone does not make it long. */
static void test_keeping_everything_does_not_take_longer(void **state)
{
    struct fixture *f = *state;
    int64_t iterations = 0;
    f->options.memory = 1000000;
    f->options.batch = 8;
    f->options.hooks.epoch_done = note_iterations;
    f->options.hooks.user = &iterations;
    begin(f);
    add(f, "crane", 40);
    teach(f);
    assert_int_equal(iterations, 3 * 32 / 8);
    f->options.hooks = (struct train_hooks){0};
}

static void test_test_pictures_of_the_data_are_used_when_there_are_some(void **state)
{
    struct fixture *f = *state;
    add(f, "apple", 10);
    add(f, "book", 10);
    add_to(f, DATA_TEST, "apple", 3);
    teach(f);
    assert_int_equal(f->report.n_taken, 20);
    assert_int_equal(f->report.n_held_new, 3);
    assert_int_equal(count(f, DATA_TEST, 0), 3);
    assert_int_equal(count(f, DATA_TEST, 1), 0);
}

static void test_nothing_needs_to_be_held_out(void **state)
{
    struct fixture *f = *state;
    f->options.validation = -1.0;
    begin(f);
    assert_int_equal(f->report.n_taken, 20);
    assert_int_equal(f->report.n_held_new, 0);
    assert_true(isnan(f->report.all_after));
    assert_int_equal(f->pupil.album->part[DATA_TEST].n, 0);
    add(f, "crane", 4);
    teach(f);
    assert_true(isnan(f->report.old_before));
}

/* A folder that has grown: what the model has kept is not learnt twice, and what was held out never. */
static void test_pictures_that_the_model_has_are_left_out(void **state)
{
    struct fixture *f = *state;
    add(f, "apple", 10);
    add(f, "book", 10);
    teach(f);
    add(f, "book", 5);
    teach(f);
    assert_int_equal(f->report.n_known, 2 * MEMORY + 4);
    assert_int_equal(f->report.n_joined, 2);
    new_data(f);
    int32_t label;
    assert_ok(f->ctx, collection_class(f->data, "apple", &label));
    struct image_view kept = dataset_view(f->pupil.album, DATA_TRAIN, 0);
    assert_ok(f->ctx, collection_add(f->data, DATA_TRAIN, label, &kept));
    assert_refused(f, DER_FORMAT, "nothing new");
}

/* Whether a picture that the pupil was trained on is among those that it is tested with. */
static bool is_tested_with_trained(const struct fixture *f)
{
    const struct data_part *held = &f->pupil.album->part[DATA_TEST];
    for (int64_t i = 0; i < held->n; i++)
        if (picture_set_has(&f->pupil.basis.trained, &held->items[i].image))
            return true;
    return false;
}

/* A folder that is given again and again: whatever was trained on, kept or not, is never tested with. */
static void test_pictures_that_were_trained_on_are_never_held_out(void **state)
{
    struct fixture *f = *state;
    f->options.memory = 3;
    add(f, "apple", 20);
    add(f, "book", 20);
    teach(f);
    assert_int_equal(f->pupil.basis.trained.n, 32);
    for (int lesson = 0; lesson < 3; lesson++) {
        assert_int_equal(f->report.n_held_old + f->report.n_held_new, lesson == 0 ? 8 : 6);
        f->options.seed++;
        add(f, "apple", 1);
        teach(f);
        assert_false(is_tested_with_trained(f));
    }
}

/* The same with test pictures of the data's own, all of them known: none of the others takes their place. */
static void test_a_folder_with_tests_is_tested_with_these_when_it_is_given_again(void **state)
{
    struct fixture *f = *state;
    add(f, "apple", 10);
    add(f, "book", 10);
    add_to(f, DATA_TEST, "apple", 3);
    add_to(f, DATA_TEST, "book", 3);
    teach(f);
    add(f, "apple", 10);
    teach(f);
    assert_int_equal(f->report.n_held_old, 6);
    assert_int_equal(f->report.n_taken, 30 - 2 * MEMORY);
    assert_false(is_tested_with_trained(f));
}

static void test_what_a_model_is_cannot_be_changed_later(void **state)
{
    struct fixture *f = *state;
    begin(f);
    add(f, "crane", 4);
    f->options.network = "resnet18";
    assert_refused(f, DER_ARG, "has network resnet32");
    f->options.network = NULL;
    f->options.width = 0.5;
    assert_refused(f, DER_ARG, "width 0.0625");
    f->options.width = 0.0;
    f->options.image_size = 16;
    assert_refused(f, DER_ARG, "sees images of 8 x 8");
    f->options.image_size = 0;
    teach(f); /* nothing said: as before */
    assert_int_equal(f->pupil.model->info.n_classes, 3);
}

static bool always(void *user)
{
    (void)user;
    return true;
}

static bool after_some(void *user)
{
    int *left = user;
    return --*left < 0;
}

/* An extractor that fits the networks of this fixture, with weights that no lesson comes to by itself. */
static struct extractor *foreign_extractor(struct fixture *f)
{
    struct resnet_spec spec;
    struct extractor *extractor;
    assert_ok(f->ctx, resnet_spec_init(f->ctx, &spec, "resnet32", 3, SIDE, SIDE, f->options.width));
    assert_ok(f->ctx, extractor_new(f->be, &spec, &extractor));
    assert_ok(f->ctx, param_set_init(extractor->params, 77, 1));
    return extractor;
}

static void write_weights(struct fixture *f, const char *path)
{
    struct extractor *extractor = foreign_extractor(f);
    assert_ok(f->ctx, weights_write(extractor, NULL, path));
    extractor_free(extractor);
}

/* Squared distance of the first convolution, before it was pruned, from that of the foreign extractor. */
static double distance(struct fixture *f)
{
    float ours[64], others[64]; /* one channel: 3 x 3 x 3 */
    struct extractor *extractor = foreign_extractor(f);
    const struct param_set *params = f->pupil.basis.last_full->params;
    assert_true(shape_count(params->items[0].shape) <= 64);
    assert_ok(f->ctx, param_read(params, 0, ours));
    assert_ok(f->ctx, param_read(extractor->params, 0, others));
    double sum = 0.0;
    for (int64_t i = 0; i < shape_count(params->items[0].shape); i++)
        sum += ((double)ours[i] - (double)others[i]) * ((double)ours[i] - (double)others[i]);
    extractor_free(extractor);
    return sum;
}

/* Data of two classes, and a file of weights; the path is the scratch folder's. */
static const char *two_classes_and_weights(struct fixture *f, struct scratch *scratch)
{
    scratch_init(scratch);
    const char *path = scratch_path(scratch, "weights.safetensors");
    write_weights(f, path);
    add(f, "apple", 10);
    add(f, "book", 10);
    return path;
}

static void test_a_new_model_may_begin_with_weights_of_others(void **state)
{
    struct fixture *f = *state;
    struct scratch scratch;
    const char *path = two_classes_and_weights(f, &scratch);
    teach(f);
    double from_random = distance(f);
    pupil_fini(&f->pupil);
    f->options.init = path;
    teach(f);
    double from_weights = distance(f);
    if (!(4.0 * from_weights < from_random)) /* two epochs do not lead far away */
        fail_msg("%g from the weights it began with, %g otherwise", from_weights, from_random);

    new_data(f);
    add(f, "crane", 10);
    assert_refused(f, DER_ARG, "can only be asked for when a model is new");
    f->options.init = NULL;
    teach(f);
    scratch_fini(&scratch);
}

static void test_weights_that_do_not_fit_are_refused_before_pictures_are_read(void **state)
{
    struct fixture *f = *state;
    struct scratch scratch;
    const char *path = two_classes_and_weights(f, &scratch);
    f->options.init = path;
    f->options.width = 0.125;
    assert_refused(f, DER_FORMAT, "tensor 'conv1.weight' is F32");
    f->options.network = NULL; /* resnet18, whose first convolution is larger */
    assert_refused(f, DER_FORMAT,
                   "begins with a convolution of 3 x 3, the network with one of 7 x 7");
    f->options.init = "nowhere.safetensors";
    assert_refused(f, DER_IO, "nowhere.safetensors");
    assert_null(f->pupil.model);
    scratch_fini(&scratch);
}

static void test_a_lesson_that_is_broken_off_leaves_the_pupil(void **state)
{
    struct fixture *f = *state;
    begin(f);
    const struct model *model = f->pupil.model;
    float weight = first_weight(f);
    add(f, "crane", 8);
    f->options.hooks.cancelled = always;
    assert_refused(f, DER_CANCELLED, "while reading");
    int left = 12;
    f->options.hooks.cancelled = after_some;
    f->options.hooks.user = &left;
    assert_refused(f, DER_CANCELLED, "");
    assert_ptr_equal(f->pupil.model, model);
    assert_int_equal(model->n_extractors, 1);
    assert_true(first_weight(f) == weight);
    f->options.hooks.cancelled = NULL;
    teach(f);
}

/* ---- pictures in files --------------------------------------------------------------------------- */

static void list_files(struct fixture *f, struct scratch *scratch)
{
    scratch_copy(scratch, "apple/1.png", "augment/a.png");
    scratch_copy(scratch, "apple/2.jpg", "augment/c.jpg");
    scratch_copy(scratch, "book/1.png", "augment/b.png");
    scratch_copy(scratch, "book/2.jpg", "augment/d.jpg");
    scratch_text(scratch, "book/3.jpg", "not a picture");
    dataset_free(f->data);
    f->data = NULL;
    assert_ok(f->ctx, dataset_open(f->ctx, scratch->root, &f->data));
}

static void test_pictures_that_cannot_be_read_are_left_out_and_told(void **state)
{
    struct fixture *f = *state;
    struct scratch scratch;
    scratch_init(&scratch);
    f->options.image_size = 16;
    list_files(f, &scratch);
    f->options.bad_images = BAD_IMAGES_STOP;
    assert_refused(f, DER_FORMAT, "book/3.jpg");
    f->options.bad_images = BAD_IMAGES_SKIP;
    teach(f);
    assert_int_equal(f->report.n_bad, 1);
    assert_int_equal(f->report.n_taken, 4);
    assert_int_equal(f->n_warnings, 1);
    /* All pictures have gone through one reduction: no shorter side above that of the test transform. */
    assert_int_equal(f->pupil.model->info.input.resize, 18);
    for (int64_t i = 0; i < f->pupil.album->part[DATA_TRAIN].n; i++) {
        struct image_view view = dataset_view(f->pupil.album, DATA_TRAIN, i);
        assert_int_equal(view.height < view.width ? view.height : view.width, 18);
    }
    scratch_fini(&scratch);
}

static void test_a_class_without_a_readable_picture_is_an_error(void **state)
{
    struct fixture *f = *state;
    struct scratch scratch;
    scratch_init(&scratch);
    scratch_text(&scratch, "crane/1.jpg", "not a picture");
    f->options.image_size = 16;
    list_files(f, &scratch);
    f->options.bad_images = BAD_IMAGES_SKIP;
    assert_refused(f, DER_FORMAT, "class 'crane'");
    assert_null(f->pupil.model);
    scratch_fini(&scratch);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_a_first_lesson_makes_a_model_that_can_learn_on),
        TEST(test_one_class_alone_cannot_be_a_first_lesson),
        TEST(test_one_single_new_class_is_learnt),
        TEST(test_pictures_join_a_known_class_beside_a_new_one),
        TEST(test_known_classes_alone_train_the_classifier_and_nothing_else),
        TEST(test_joined_pictures_compete_for_the_memory),
        TEST(test_classes_may_have_very_different_sizes),
        TEST(test_keeping_everything_does_not_take_longer),
        TEST(test_test_pictures_of_the_data_are_used_when_there_are_some),
        TEST(test_nothing_needs_to_be_held_out),
        TEST(test_pictures_that_the_model_has_are_left_out),
        TEST(test_pictures_that_were_trained_on_are_never_held_out),
        TEST(test_a_folder_with_tests_is_tested_with_these_when_it_is_given_again),
        TEST(test_what_a_model_is_cannot_be_changed_later),
        TEST(test_a_new_model_may_begin_with_weights_of_others),
        TEST(test_weights_that_do_not_fit_are_refused_before_pictures_are_read),
        TEST(test_a_lesson_that_is_broken_off_leaves_the_pupil),
        TEST(test_pictures_that_cannot_be_read_are_left_out_and_told),
        TEST(test_a_class_without_a_readable_picture_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Intake: pictures of any origin are reduced to one size, once, and the test transform leaves them alone then. */
/* labels: tsan */
#include "learn/intake.h"

#include "data/collection.h"
#include "data/row.h"
#include "support/scratch.h"
#include "support/test_ctx.h"

#include "der_build.h"

#include <stdio.h>
#include <string.h>

enum { HEIGHT = 30, WIDTH = 50, BYTES = 3 * HEIGHT * WIDTH };

struct fixture {
    struct der_ctx *ctx;
    struct dataset *set;
    uint8_t bytes[BYTES];
    int n_lent, n_back;
};

static int set_up(void **state)
{
    static struct fixture f;
    int32_t label;
    f = (struct fixture){.ctx = test_ctx_new(1)};
    for (int i = 0; i < BYTES; i++)
        f.bytes[i] = (uint8_t)(i * 11 + i / 150 * 3);
    assert_ok(f.ctx, collection_new(f.ctx, "memory", "pictures", 3, &f.set));
    assert_ok(f.ctx, collection_class(f.set, "cat", &label));
    *state = &f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    dataset_free(f->set);
    test_ctx_free(f->ctx);
    return 0;
}

static void add(struct fixture *f, int channels, int height, int width)
{
    struct image_view view = collection_view(f->bytes, channels, height, width);
    assert_ok(f->ctx, collection_add(f->set, DATA_TRAIN, 0, &view));
}

static struct dataset *take(struct fixture *f, int channels, int side, bool is_exact)
{
    const struct intake_options options = {
        .size = {.channels = channels, .side = side, .is_exact = is_exact}};
    struct dataset *taken;
    int64_t n_bad;
    assert_ok(f->ctx, intake(f->set, &options, &taken, &n_bad));
    assert_int_equal(n_bad, 0);
    return taken;
}

static void assert_size(const struct dataset *set, int64_t index, int height, int width)
{
    struct image_view view = dataset_view(set, DATA_TRAIN, index);
    assert_int_equal(view.channels, set->channels);
    assert_int_equal(view.height, height);
    assert_int_equal(view.width, width);
}

static void test_large_pictures_are_reduced_and_small_ones_stay(void **state)
{
    struct fixture *f = *state;
    add(f, 3, HEIGHT, WIDTH);
    add(f, 3, 40, 20);
    add(f, 3, 12, 15);
    struct dataset *taken = take(f, 3, 16, false);
    assert_size(taken, 0, 16, 26);
    assert_size(taken, 1, 32, 16);
    assert_size(taken, 2, 12, 15);
    assert_memory_equal(dataset_view(taken, DATA_TRAIN, 2).data, f->bytes, 3 * 12 * 15);
    assert_string_equal(taken->class_names[0], "cat");
    dataset_free(taken);
    taken = take(f, 3, 16, true);
    assert_size(taken, 2, 16, 20);
    dataset_free(taken);
}

/* What is very narrow would become longer than any picture may be that is kept. */
static void test_pictures_that_become_too_long_are_bad(void **state)
{
    struct fixture *f = *state;
    static const uint8_t line[5000];
    const struct intake_options options = {.size = {.channels = 1, .side = 16, .is_exact = true},
                                           .bad_images = BAD_IMAGES_SKIP};
    struct image_view narrow = collection_view(line, 1, 1, 5000);
    struct dataset *taken;
    int64_t n_bad;
    f->set->channels = 1;
    assert_ok(f->ctx, collection_add(f->set, DATA_TRAIN, 0, &narrow));
    add(f, 1, 16, 16);
    assert_ok(f->ctx, intake(f->set, &options, &taken, &n_bad));
    assert_int_equal(n_bad, 1);
    assert_int_equal(taken->part[DATA_TRAIN].n, 1);
    assert_size(taken, 0, 16, 16);
    dataset_free(taken);
}

static void test_channels_become_those_of_the_model(void **state)
{
    struct fixture *f = *state;
    add(f, 3, 8, 8);
    add(f, 1, 8, 8);
    struct dataset *taken = take(f, 1, 16, false);
    assert_size(taken, 0, 8, 8);
    assert_memory_equal(dataset_view(taken, DATA_TRAIN, 1).data, f->bytes, 64);
    dataset_free(taken);
    taken = take(f, 3, 16, false);
    struct image_view grey = dataset_view(taken, DATA_TRAIN, 1);
    for (int i = 0; i < 64; i++)
        for (int c = 0; c < 3; c++)
            assert_int_equal(grey.data[3 * i + c], f->bytes[i]);
    dataset_free(taken);
}

/* A row of the test transform, made from a set's first picture. */
static void make_row(struct fixture *f, const struct dataset *set, float *row)
{
    struct row_source source = {.set = set, .split = DATA_TRAIN};
    struct row_tools tools;
    const struct augment_spec spec = {.geometry = AUGMENT_SHORTER_SIDE,
                                      .channels = 3,
                                      .height = 14,
                                      .width = 14,
                                      .resize = 16,
                                      .std = {1, 1, 1}};
    assert_ok(f->ctx, augment_init(f->ctx, &spec, &source.augment));
    row_tools_init(&tools, &f->ctx->mem, NULL);
    assert_int_equal(row_make(&source, &tools, 0, row), DER_OK);
    row_tools_fini(&tools);
}

/* What is kept looks to the model exactly as the picture did. */
static void test_the_test_transform_sees_what_it_saw_before(void **state)
{
    struct fixture *f = *state;
    float before[3 * 14 * 14];
    float after[3 * 14 * 14];
    add(f, 3, HEIGHT, WIDTH);
    struct dataset *taken = take(f, 3, 16, false);
    make_row(f, f->set, before);
    make_row(f, taken, after);
    assert_memory_equal(before, after, sizeof before);
    dataset_free(taken);
}

static bool lend(void *user, enum data_split split, int64_t index, struct image_view *image)
{
    struct fixture *f = user;
    (void)split;
    if (index == 1)
        return false;
    f->n_lent++;
    *image = collection_view(f->bytes, 3, HEIGHT, WIDTH);
    return true;
}

static void take_back(void *user, const struct image_view *image)
{
    struct fixture *f = user;
    assert_ptr_equal(image->data, f->bytes);
    f->n_back++;
}

static void test_pictures_of_a_source_are_given_back(void **state)
{
    struct fixture *f = *state;
    struct intake_options options = {.size = {.channels = 3, .side = 16}};
    struct dataset *taken;
    int64_t n_bad;
    assert_ok(f->ctx, collection_grow(f->set, DATA_TRAIN, 3));
    for (int i = 0; i < 3; i++) {
        f->set->part[DATA_TRAIN].items[i] = (struct data_item){.place = DATA_FROM_SOURCE};
        f->set->part[DATA_TRAIN].labels[i] = 0;
    }
    f->set->source = (struct data_source){.read = lend, .done = take_back, .user = f};
    assert_int_equal(intake(f->set, &options, &taken, &n_bad), DER_IO);
    assert_null(taken);
    assert_non_null(strstr(f->ctx->error, "image 2 of pictures cannot be had"));
    options.bad_images = BAD_IMAGES_SKIP;
    assert_ok(f->ctx, intake(f->set, &options, &taken, &n_bad));
    assert_int_equal(n_bad, 1);
    assert_int_equal(taken->part[DATA_TRAIN].n, 2);
    assert_int_equal(f->n_lent, f->n_back);
    assert_int_equal(f->n_lent, 3);
    dataset_free(taken);
}

static void test_a_look_tells_thumbnails_from_photographs(void **state)
{
    struct fixture *f = *state;
    struct intake_survey survey;
    assert_ok(f->ctx, intake_look(f->set, &survey));
    assert_int_equal(survey.n, 0);
    assert_false(survey.is_uniform);
    add(f, 3, 20, 20);
    add(f, 3, 20, 20);
    assert_ok(f->ctx, intake_look(f->set, &survey));
    assert_true(survey.is_uniform);
    assert_int_equal(survey.shorter, 20);
    add(f, 3, HEIGHT, WIDTH);
    assert_ok(f->ctx, intake_look(f->set, &survey));
    assert_false(survey.is_uniform);
    assert_int_equal(survey.n, 3);
}

static void test_files_are_taken_as_decoded_and_resized(void **state)
{
    struct fixture *f = *state;
    struct intake_survey survey;
    struct scratch scratch;
    if (!DER_HAVE_JPEG || !DER_HAVE_PNG)
        skip();
    scratch_init(&scratch);
    scratch_copy(&scratch, "cat/1.png", "augment/a.png");
    scratch_copy(&scratch, "cat/2.jpg", "augment/c.jpg");
    dataset_free(f->set);
    f->set = NULL;
    assert_ok(f->ctx, dataset_open(f->ctx, scratch.root, &f->set));
    assert_ok(f->ctx, intake_look(f->set, &survey));
    assert_int_equal(survey.n, 2);
    assert_true(survey.shorter > 16);
    struct dataset *taken = take(f, 3, 16, false);
    float before[3 * 14 * 14];
    float after[3 * 14 * 14];
    make_row(f, f->set, before); /* the PNG: nothing is decoded at a fraction of its size */
    make_row(f, taken, after);
    assert_memory_equal(before, after, sizeof before);
    dataset_free(taken);
    scratch_fini(&scratch);
}

enum { MANY = 150, BAD_EVERY = 40 };

/* More pictures than are read at a time, of different sizes, some of which are not there. */
static void add_many(struct fixture *f)
{
    static char path[] = "/nowhere/at/all.png";
    for (int i = 0; i < MANY; i++)
        add(f, 3, 17 + i % 7, 20 + i % 11);
    for (int i = BAD_EVERY; i < MANY; i += BAD_EVERY)
        f->set->part[DATA_TRAIN].items[i] = (struct data_item){.place = DATA_IN_FILE, .file = path};
}

static void assert_same_pictures(const struct dataset *a, const struct dataset *b)
{
    assert_int_equal(a->part[DATA_TRAIN].n, b->part[DATA_TRAIN].n);
    for (int64_t i = 0; i < a->part[DATA_TRAIN].n; i++) {
        struct image_view view = dataset_view(a, DATA_TRAIN, i);
        assert_size(b, i, view.height, view.width);
        assert_memory_equal(view.data, dataset_view(b, DATA_TRAIN, i).data,
                            (size_t)(3 * view.height * view.width));
    }
}

static void test_the_number_of_threads_changes_nothing(void **state)
{
    struct fixture *f = *state;
    struct intake_options options = {.size = {.channels = 3, .side = 16},
                                     .bad_images = BAD_IMAGES_SKIP};
    struct dataset *alone = NULL;
    add_many(f);
    for (int threads = 1; threads <= 5; threads += 2) {
        struct dataset *taken;
        int64_t n_bad;
        f->ctx->threads = threads;
        assert_ok(f->ctx, intake(f->set, &options, &taken, &n_bad));
        assert_int_equal(n_bad, (MANY - 1) / BAD_EVERY);
        assert_int_equal(taken->part[DATA_TRAIN].n, MANY - n_bad);
        if (!alone)
            alone = taken;
        assert_same_pictures(alone, taken);
        if (taken != alone)
            dataset_free(taken);
    }
    dataset_free(alone);
}

static bool say_yes(void *user)
{
    (void)user;
    return true;
}

static void test_bad_pictures_and_requests_end_it_with_any_threads(void **state)
{
    struct fixture *f = *state;
    const struct train_hooks impatient = {.cancelled = say_yes};
    struct intake_options options = {.size = {.channels = 3, .side = 16}};
    add_many(f);
    for (int threads = 1; threads <= 5; threads += 2) {
        struct dataset *taken;
        int64_t n_bad;
        f->ctx->threads = threads;
        options.hooks = NULL;
        assert_int_equal(intake(f->set, &options, &taken, &n_bad), DER_IO);
        assert_null(taken);
        assert_non_null(strstr(f->ctx->error, "/nowhere/at/all.png"));
        options.hooks = &impatient;
        assert_int_equal(intake(f->set, &options, &taken, &n_bad), DER_CANCELLED);
        assert_null(taken);
    }
}

static void test_lack_of_memory_leaves_nothing(void **state)
{
    struct fixture *f = *state;
    const struct intake_options options = {.size = {.channels = 3, .side = 16},
                                           .bad_images = BAD_IMAGES_SKIP};
    int n_failed = 0;
    add(f, 3, HEIGHT, WIDTH);
    uint64_t live = der_ctx_memory(f->ctx).n_live;
    for (uint64_t k = 1;; k++) {
        struct dataset *taken;
        int64_t n_bad;
        atomic_store(&f->ctx->mem.fail_at, atomic_load(&f->ctx->mem.n_allocs) + k);
        enum der_status status = intake(f->set, &options, &taken, &n_bad);
        atomic_store(&f->ctx->mem.fail_at, 0);
        dataset_free(taken);
        assert_int_equal(der_ctx_memory(f->ctx).n_live, live);
        if (status == DER_OK)
            break;
        assert_int_equal(status, DER_NOMEM);
        n_failed++;
    }
    assert_true(n_failed > 5);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_large_pictures_are_reduced_and_small_ones_stay),
        TEST(test_pictures_that_become_too_long_are_bad),
        TEST(test_channels_become_those_of_the_model),
        TEST(test_the_test_transform_sees_what_it_saw_before),
        TEST(test_pictures_of_a_source_are_given_back),
        TEST(test_a_look_tells_thumbnails_from_photographs),
        TEST(test_files_are_taken_as_decoded_and_resized),
        TEST(test_the_number_of_threads_changes_nothing),
        TEST(test_bad_pictures_and_requests_end_it_with_any_threads),
        TEST(test_lack_of_memory_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

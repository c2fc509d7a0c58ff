/*
 * Tests on data whose classes have other numbers, other names, and images that do not decode.
 */
#include "predict/testing.h"

#include "core/rng.h"
#include "support/made_model.h"
#include "support/test_backend.h"
#include "support/test_ctx.h"

#include <string.h>

enum { N = 40, SIDE = 9, BYTES = 3 * SIDE * SIDE, SET_CLASSES = 5 };

/* In another order than the model has them, one of them unknown to it, and one of its own missing. */
static const char *const NAMES[SET_CLASSES] = {"dog", "zebra", "cat", "cow", "caf\xc3\xa9"};
static char PATH[] = "the set";
static const int LABELS[SET_CLASSES] = {3, -1, 0, 4, 1};

struct fixture {
    struct der_ctx *ctx;
    struct backend *be;
    struct predictor *predictor;
    struct dataset set;
    uint8_t bytes[N][BYTES];
    struct data_item items[N];
    int32_t labels[N];
    struct testing testing;
};

static int set_up(void **state)
{
    static struct fixture f;
    struct augment_spec input = made_input();
    f = (struct fixture){.ctx = test_ctx_new(1)};
    assert_ok(f.ctx, backend_open(f.ctx, test_backend(), NULL, &f.be));
    assert_ok(f.ctx, predictor_new(f.be, made_model_new(f.be, &input, 1.0), &f.predictor));
    f.set = (struct dataset){.ctx = f.ctx,
                             .kind = "memory",
                             .path = PATH,
                             .channels = 3,
                             .n_classes = SET_CLASSES,
                             .class_names = (char **)(uintptr_t)NAMES};
    f.set.part[DATA_TEST] = (struct data_part){.n = N, .labels = f.labels, .items = f.items};
    for (int i = 0; i < N; i++) {
        for (int k = 0; k < BYTES; k++)
            f.bytes[i][k] = (uint8_t)rng_at(2, RNG_TEST, (uint32_t)i, (uint64_t)k).word[0];
        f.labels[i] = i % SET_CLASSES;
        f.items[i] = (struct data_item){.place = DATA_IN_MEMORY,
                                        .image = {.data = f.bytes[i],
                                                  .channels = 3,
                                                  .height = SIDE,
                                                  .width = SIDE,
                                                  .channel_stride = SIDE * SIDE,
                                                  .row_stride = SIDE,
                                                  .pixel_stride = 1}};
    }
    *state = &f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    testing_fini(f->ctx, &f->testing);
    predictor_free(f->predictor);
    backend_close(f->be);
    test_ctx_free(f->ctx);
    return 0;
}

static enum der_status run(struct fixture *f, const struct testing_options *options)
{
    testing_fini(f->ctx, &f->testing);
    return testing_run(f->predictor, &f->set, options, &f->testing);
}

/* What a test should count, from predictions one by one; images below `skip` are left out. */
static void count(struct fixture *f, int skip, struct der_class_score *scores)
{
    memset(scores, 0, MADE_CLASSES * sizeof *scores);
    for (int i = skip; i < N; i++) {
        struct picture picture = {.kind = PICTURE_IMAGE, .image = f->items[i].image};
        struct der_guess guesses[MADE_CLASSES];
        int label = LABELS[f->labels[i]];
        if (label < 0)
            continue;
        assert_ok(f->ctx, predictor_guess(f->predictor, &picture, 1, MADE_CLASSES, guesses));
        scores[label].n++;
        scores[label].top1 += guesses[0].label == label;
        for (int k = 0; k < 5; k++)
            scores[label].top5 += guesses[k].label == label;
    }
}

static void assert_counts(struct fixture *f, int skip)
{
    struct der_class_score want[MADE_CLASSES];
    int64_t right = 0;
    count(f, skip, want);
    assert_int_equal(f->testing.counts.n_classes, MADE_CLASSES);
    for (int c = 0; c < MADE_CLASSES; c++) {
        assert_int_equal(f->testing.counts.n[c], want[c].n);
        assert_int_equal(f->testing.counts.top1[c], want[c].top1);
        assert_int_equal(f->testing.counts.top5[c], want[c].top5);
        right += want[c].top1;
    }
    assert_true(right > 0 && right < N); /* the counts tell something */
}

static void test_classes_are_matched_by_name(void **state)
{
    struct fixture *f = *state;
    struct testing_options options = {.split = DATA_TEST};
    for (options.batch = 0; options.batch <= 7; options.batch += 7) {
        assert_ok(f->ctx, run(f, &options));
        assert_counts(f, 0);
        assert_int_equal(f->testing.unknown_classes, 1);
        assert_int_equal(f->testing.unknown_images, N / SET_CLASSES);
        assert_string_equal(f->testing.unknown_example, "zebra");
        assert_int_equal(f->testing.bad_images, 0);
        assert_int_equal(f->testing.counts.n[2], 0); /* of which the data have none */
    }
}

static void test_images_that_cannot_be_read_stop_or_are_counted(void **state)
{
    struct fixture *f = *state;
    struct testing_options options = {.split = DATA_TEST, .batch = 7};
    f->items[0] = (struct data_item){.place = DATA_IN_FILE, .file = "/nowhere/at/all.png"};
    assert_int_equal(run(f, &options), DER_IO);
    assert_non_null(strstr(der_ctx_error(f->ctx), "/nowhere/at/all.png"));
    options.bad_images = BAD_IMAGES_SKIP;
    assert_ok(f->ctx, run(f, &options));
    assert_int_equal(f->testing.bad_images, 1);
    assert_counts(f, 1);
}

static void test_data_without_a_known_class_are_refused(void **state)
{
    struct fixture *f = *state;
    struct testing_options options = {.split = DATA_TEST};
    static const char *const strangers[2] = {"Cat", "zebra"};
    f->set.class_names = (char **)(uintptr_t)strangers;
    f->set.n_classes = 2;
    for (int i = 0; i < N; i++)
        f->labels[i] = i % 2;
    assert_int_equal(run(f, &options), DER_FORMAT);
    assert_string_equal(der_ctx_error(f->ctx),
                        "the model knows none of the 2 classes of the set: they are called 'Cat' "
                        "and so on, its own 'cat' and so on");
}

static void test_a_split_without_images_is_refused(void **state)
{
    struct fixture *f = *state;
    struct testing_options options = {.split = DATA_TRAIN};
    assert_int_equal(run(f, &options), DER_FORMAT);
    assert_string_equal(der_ctx_error(f->ctx),
                        "the set has no training images of classes that the model knows");
}

/* How a test was told of. */
struct told {
    int64_t done, n;
    int times;
};

static void take_down(void *user, int64_t done, int64_t n)
{
    struct told *told = user;
    assert_true(done > told->done);
    *told = (struct told){done, n, told->times + 1};
}

static void test_it_tells_how_far_it_is(void **state)
{
    struct fixture *f = *state;
    const int known = N - N / SET_CLASSES;
    struct told told = {0};
    struct testing_options options = {
        .split = DATA_TEST, .batch = 7, .hooks = {.tested = take_down, .user = &told}};
    assert_ok(f->ctx, run(f, &options));
    assert_int_equal(told.done, known);
    assert_int_equal(told.n, known);
    assert_int_equal(told.times, (known + 6) / 7);
}

static bool say_yes(void *user)
{
    (void)user;
    return true;
}

static void test_it_can_be_cancelled(void **state)
{
    struct fixture *f = *state;
    struct testing_options options = {.split = DATA_TEST, .hooks = {.cancelled = say_yes}};
    assert_int_equal(run(f, &options), DER_CANCELLED);
}

static void test_every_failed_allocation_is_told_and_survived(void **state)
{
    struct fixture *f = *state;
    struct testing_options options = {.split = DATA_TEST, .batch = 8};
    enum der_status status = DER_NOMEM;
    uint64_t live = 0;
    assert_ok(f->ctx, run(f, &options)); /* programs stay; what a test takes is given back */
    testing_fini(f->ctx, &f->testing);
    live = der_ctx_memory(f->ctx).n_live;
    for (uint64_t n = 1; status != DER_OK; n++) {
        atomic_store(&f->ctx->mem.fail_at, atomic_load(&f->ctx->mem.n_allocs) + n);
        status = run(f, &options);
        atomic_store(&f->ctx->mem.fail_at, 0);
        assert_true(status == DER_OK || status == DER_NOMEM);
        testing_fini(f->ctx, &f->testing);
        assert_int_equal(der_ctx_memory(f->ctx).n_live, live);
        assert_true(n < 1000);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_classes_are_matched_by_name),
        TEST(test_images_that_cannot_be_read_stop_or_are_counted),
        TEST(test_data_without_a_known_class_are_refused),
        TEST(test_a_split_without_images_is_refused),
        TEST(test_it_tells_how_far_it_is),
        TEST(test_it_can_be_cancelled),
        TEST(test_every_failed_allocation_is_told_and_survived),
    };
#undef TEST
    return cmocka_run_group_tests(tests, NULL, NULL);
}

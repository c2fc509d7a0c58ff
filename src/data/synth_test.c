#include "data/dataset.h"

#include "support/test_ctx.h"

#include <string.h>

static int set_up(void **state)
{
    *state = test_ctx_new(1);
    return 0;
}

static int tear_down(void **state)
{
    test_ctx_free(*state);
    return 0;
}

static struct dataset *make(struct der_ctx *ctx, const char *description)
{
    struct dataset *set;
    assert_ok(ctx, dataset_open(ctx, description, &set));
    return set;
}

/* 32-bit FNV-1a */
static uint32_t checksum(const uint8_t *bytes, size_t n)
{
    uint32_t sum = 2166136261u;
    for (size_t i = 0; i < n; i++)
        sum = (sum ^ bytes[i]) * 16777619u;
    return sum;
}

static void test_counts_and_labels_are_as_asked(void **state)
{
    struct dataset *set = make(*state, "synth:classes=3,train=4,test=2,size=16,seed=5");
    assert_string_equal(set->kind, "synth");
    assert_int_equal(set->n_classes, 3);
    assert_int_equal(set->channels, 3);
    assert_int_equal(set->height, 16);
    assert_int_equal(set->width, 16);
    assert_int_equal(set->part[DATA_TRAIN].n, 12);
    assert_int_equal(set->part[DATA_TEST].n, 6);
    for (int i = 0; i < 12; i++)
        assert_int_equal(set->part[DATA_TRAIN].labels[i], i % 3);
    struct image_view view = dataset_view(set, DATA_TEST, 5);
    assert_ptr_equal(view.data, set->part[DATA_TEST].pixels + 5 * 3 * 16 * 16);
    assert_int_equal(view.channel_stride, 16 * 16);
    assert_int_equal(view.row_stride, 16);
    assert_int_equal(view.pixel_stride, 1);
    dataset_free(set);
}

/* Images are part of the meaning of a seed: results elsewhere depend on them. */
static void test_images_never_change(void **state)
{
    struct dataset *set = make(*state, "synth:classes=3,train=4,test=2,size=16,seed=5");
    assert_int_equal(checksum(set->part[DATA_TRAIN].pixels, 12 * 768), 0x40bda537u);
    dataset_free(set);
    set = make(*state, "synth:classes=3,train=4,test=0,size=16,seed=5,channels=1");
    assert_int_equal(checksum(set->part[DATA_TRAIN].pixels, 12 * 256), 0x8d38e5a6u);
    assert_int_equal(set->part[DATA_TEST].n, 0);
    dataset_free(set);
}

static void test_image_depends_on_seed_split_and_index_alone(void **state)
{
    struct dataset *few = make(*state, "synth:classes=3,train=2,test=2,seed=5");
    struct dataset *many = make(*state, "synth:classes=3,train=7,test=2,seed=5");
    struct dataset *other = make(*state, "synth:classes=3,train=2,test=2,seed=6");
    size_t bytes = 6 * 3072;
    assert_memory_equal(few->part[DATA_TRAIN].pixels, many->part[DATA_TRAIN].pixels, bytes);
    assert_memory_not_equal(few->part[DATA_TRAIN].pixels, other->part[DATA_TRAIN].pixels, bytes);
    assert_memory_not_equal(few->part[DATA_TRAIN].pixels, few->part[DATA_TEST].pixels, bytes);
    dataset_free(few);
    dataset_free(many);
    dataset_free(other);
}

/* A classifier of mean images is linear; on images that are learnable but not trivial it fails. */
static void test_mean_images_tell_little(void **state)
{
    struct dataset *set = make(*state, "synth:classes=10,train=100,test=50,seed=1");
    enum { CLASSES = 10, PIXELS = 3072 };
    static double mean[CLASSES][PIXELS];
    memset(mean, 0, sizeof mean);
    for (int64_t i = 0; i < set->part[DATA_TRAIN].n; i++)
        for (int k = 0; k < PIXELS; k++)
            mean[set->part[DATA_TRAIN].labels[i]][k] +=
                set->part[DATA_TRAIN].pixels[i * PIXELS + k] / 100.0;
    int n_right = 0;
    for (int64_t i = 0; i < set->part[DATA_TEST].n; i++) {
        int best = 0;
        double least = 1e30;
        for (int c = 0; c < CLASSES; c++) {
            double distance = 0;
            for (int k = 0; k < PIXELS; k++) {
                double d = mean[c][k] - set->part[DATA_TEST].pixels[i * PIXELS + k];
                distance += d * d;
            }
            if (distance < least) {
                least = distance;
                best = c;
            }
        }
        n_right += best == set->part[DATA_TEST].labels[i];
    }
    assert_in_range(n_right, 0, 500 / 4); /* chance is one in ten */
    dataset_free(set);
}

static void test_every_class_has_its_own_name(void **state)
{
    struct dataset *set = make(*state, "synth:classes=192,train=1,test=0,size=8");
    for (int i = 0; i < set->n_classes; i++)
        for (int k = 0; k < i; k++)
            assert_string_not_equal(set->class_names[i], set->class_names[k]);
    assert_string_equal(set->class_names[0], "disc-0-light-dark-coarse");
    dataset_free(set);
}

static void test_defaults_need_no_words(void **state)
{
    struct dataset *set = make(*state, "synth");
    assert_int_equal(set->part[DATA_TRAIN].n, 1000);
    assert_int_equal(set->part[DATA_TEST].n, 200);
    assert_int_equal(set->height, 32);
    dataset_free(set);
}

static void test_bad_descriptions_are_refused(void **state)
{
    static const char *const bad[][2] = {
        {"synth:classes=1", "want 2..192"},
        {"synth:classes=193", "want 2..192"},
        {"synth:size=7", "want 8..512"},
        {"synth:size=513", "want 8..512"},
        {"synth:train=0", "train is '0'"},
        {"synth:train=-4", "train is '-4'"},
        {"synth:train=4x", "train is '4x'"},
        {"synth:train=99999999999999999999", "want 1..1048576"},
        {"synth:train=", "train is ''"},
        {"synth:train", "'train' is unknown"},
        {"synth:channels=2", "want 1 or 3"},
        {"synth:colour=2", "'colour=2' is unknown"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct der_ctx *ctx = *state;
        struct dataset *set;
        assert_int_equal(dataset_open(ctx, bad[i][0], &set), DER_ARG);
        assert_null(set);
        if (!strstr(ctx->error, bad[i][1]))
            fail_msg("\"%s\" does not say \"%s\"", ctx->error, bad[i][1]);
    }
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(test_counts_and_labels_are_as_asked),
        CASE(test_images_never_change),
        CASE(test_image_depends_on_seed_split_and_index_alone),
        CASE(test_mean_images_tell_little),
        CASE(test_every_class_has_its_own_name),
        CASE(test_defaults_need_no_words),
        CASE(test_bad_descriptions_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

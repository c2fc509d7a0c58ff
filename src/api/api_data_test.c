/*
 * Data of the public interface: opened, added to, or asked for.
 */
#include <der/der.h>

#include "api/api_data.h"
#include "support/test_ctx.h"

#include <string.h>

static const char SYNTH[] = "synth:classes=3,train=4,test=2,size=8,seed=1";

static const uint8_t PIXELS[4 * 3 * 3] = {1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12,
                                          13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24};

static struct der_image picture(int channels, int height, int width)
{
    return (struct der_image){
        .pixels = PIXELS, .channels = channels, .height = height, .width = width};
}

static void test_a_set_is_opened_and_told(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    struct der_data *data;
    assert_ok(ctx, der_data_open(ctx, SYNTH, NULL, &data));
    struct der_data_info info = der_data_info(data);
    assert_string_equal(info.kind, "synth");
    assert_int_equal(info.n_classes, 3);
    assert_int_equal(info.n_train, 12);
    assert_int_equal(info.n_test, 6);
    assert_int_equal(info.channels, 3);
    assert_int_equal(info.height, 8);
    assert_non_null(der_data_class(data, 2));
    assert_null(der_data_class(data, 3));
    assert_null(der_data_class(data, -1));
    struct der_image image = picture(3, 2, 2);
    assert_int_equal(der_data_add(data, DER_SPLIT_TRAIN, "x", &image), DER_STATE);
    der_data_free(data);
    assert_int_equal(der_data_open(ctx, "/nowhere/at/all", NULL, &data), DER_IO);
    assert_null(data);
    der_data_free(NULL);
    test_ctx_free(ctx);
}

static void test_pictures_are_copied_and_classes_numbered(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    struct der_data *data;
    uint8_t own[12];
    memcpy(own, PIXELS, sizeof own);
    struct der_image image = {.pixels = own, .channels = 3, .height = 2, .width = 2};
    assert_ok(ctx, der_data_new(ctx, &data));
    assert_int_equal(der_data_info(data).n_classes, 0);
    assert_ok(ctx, der_data_add(data, DER_SPLIT_TRAIN, "cat", &image));
    assert_ok(ctx, der_data_add(data, DER_SPLIT_TEST, "dog", &image));
    assert_ok(ctx, der_data_add(data, DER_SPLIT_TRAIN, "cat", &image));
    /* Upside down: the first row is the last of the memory. */
    image = (struct der_image){.pixels = own + 6,
                               .channels = 3,
                               .height = 2,
                               .width = 2,
                               .channel_stride = 1,
                               .row_stride = -6,
                               .pixel_stride = 3};
    assert_ok(ctx, der_data_add(data, DER_SPLIT_TRAIN, "dog", &image));
    memset(own, 0, sizeof own);
    struct der_data_info info = der_data_info(data);
    assert_int_equal(info.n_classes, 2);
    assert_string_equal(der_data_class(data, 0), "cat");
    assert_string_equal(der_data_class(data, 1), "dog");
    assert_int_equal(info.n_train, 3);
    assert_int_equal(info.n_test, 1);
    assert_true(info.channels == 3 && info.height == 2 && info.width == 2);
    const struct data_part *part = &data->set->part[DATA_TRAIN];
    assert_int_equal(part->labels[2], 1);
    struct image_view view = dataset_view(data->set, DATA_TRAIN, 0);
    /* The green of the pixel in the second row and column, and of the same in the turned copy. */
    assert_int_equal(view.data[view.channel_stride + view.row_stride + view.pixel_stride], 11);
    view = dataset_view(data->set, DATA_TRAIN, 2);
    assert_int_equal(view.data[view.channel_stride + view.row_stride + view.pixel_stride], 5);
    image = picture(1, 3, 2);
    assert_ok(ctx, der_data_add(data, DER_SPLIT_TRAIN, "dog", &image));
    info = der_data_info(data);
    assert_true(info.channels == 3 && info.height == 0 && info.width == 0); /* they differ */
    der_data_free(data);
    test_ctx_free(ctx);
}

static void test_one_picture_in_colour_makes_a_set_of_colour(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    struct der_data *data;
    struct der_image grey = picture(1, 2, 3);
    struct der_image colour = picture(3, 2, 3);
    assert_ok(ctx, der_data_new(ctx, &data));
    assert_ok(ctx, der_data_add(data, DER_SPLIT_TRAIN, "x", &grey));
    assert_int_equal(der_data_info(data).channels, 1);
    assert_ok(ctx, der_data_add(data, DER_SPLIT_TRAIN, "x", &colour));
    assert_int_equal(der_data_info(data).channels, 3);
    assert_ok(ctx, der_data_add(data, DER_SPLIT_TRAIN, "x", &grey));
    assert_int_equal(der_data_info(data).channels, 3);
    assert_int_equal(der_data_info(data).width, 3);
    der_data_free(data);
    test_ctx_free(ctx);
}

static void test_what_is_no_picture_or_name_is_refused(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    struct der_data *data;
    assert_ok(ctx, der_data_new(ctx, &data));
    const struct {
        struct der_image image;
        const char *name;
        const char *message;
    } cases[] = {{picture(2, 2, 2), "x", "neither 1 nor 3 channels"},
                 {picture(3, 0, 2), "x", "has a size"},
                 {picture(3, 2, -1), "x", "has a size"},
                 {picture(3, 65536, 1), "x", "has a size"},
                 {picture(3, 60000, 60000), "x", "has a size"},
                 {{.channels = 3, .height = 1, .width = 1}, "x", "has no pixels"},
                 {picture(3, 2, 2), "", "must be UTF-8 and not empty"},
                 {picture(3, 2, 2), NULL, "must be UTF-8 and not empty"},
                 {picture(3, 2, 2), "\xff", "must be UTF-8 and not empty"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(der_data_add(data, DER_SPLIT_TRAIN, cases[i].name, &cases[i].image),
                         DER_ARG);
        assert_non_null(strstr(der_ctx_error(ctx), cases[i].message));
    }
    assert_int_equal(der_data_info(data).n_train, 0);
    der_data_free(data);
    test_ctx_free(ctx);
}

static void test_a_failed_addition_changes_nothing(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    struct der_image image = picture(3, 2, 2);
    enum der_status status = DER_NOMEM;
    for (uint64_t n = 1; status != DER_OK; n++) {
        struct der_data *data = NULL;
        atomic_store(&ctx->mem.fail_at, atomic_load(&ctx->mem.n_allocs) + n);
        status = der_data_new(ctx, &data);
        for (int i = 0; i < 40 && status == DER_OK; i++) { /* far enough to grow twice */
            char name[3] = {(char)('a' + i % 20), (char)('a' + i / 20), '\0'};
            struct der_data_info before = der_data_info(data);
            status = der_data_add(data, DER_SPLIT_TRAIN, name, &image);
            struct der_data_info after = der_data_info(data);
            bool added = status == DER_OK;
            assert_int_equal(after.n_train, before.n_train + added);
            assert_int_equal(after.n_classes, before.n_classes + added);
        }
        atomic_store(&ctx->mem.fail_at, 0);
        assert_true(status == DER_OK || status == DER_NOMEM);
        if (data)
            assert_ok(ctx, der_data_add(data, DER_SPLIT_TRAIN, "zz", &image));
        der_data_free(data);
        assert_true(n < 500);
    }
    test_ctx_free(ctx);
}

/* ---- a source ------------------------------------------------------------------------------------ */

struct owner {
    int n_read, n_done, bad_label;
};

static int label_of(void *user, enum der_split split, int64_t index)
{
    const struct owner *owner = user;
    return owner->bad_label ? owner->bad_label : (int)(index + (split == DER_SPLIT_TEST)) % 2;
}

static bool read_picture(void *user, enum der_split split, int64_t index, struct der_image *image)
{
    struct owner *owner = user;
    if (split == DER_SPLIT_TEST && index == 1)
        return false;
    owner->n_read++;
    *image = picture(index == 2 ? 7 : 1, 2, 3); /* one that is none */
    return true;
}

static void done_with(void *user, struct der_image *image)
{
    struct owner *owner = user;
    assert_ptr_equal(image->pixels, PIXELS);
    owner->n_done++;
}

static void test_a_source_is_asked_for_its_pictures(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    struct owner owner = {0};
    const char *const names[] = {"a", "b"};
    struct der_source source = {.n_train = 4,
                                .n_test = 3,
                                .class_names = names,
                                .n_classes = 2,
                                .label = label_of,
                                .read = read_picture,
                                .done = done_with,
                                .user = &owner};
    struct der_data *data;
    assert_ok(ctx, der_data_from_source(ctx, &source, &data));
    struct der_data_info info = der_data_info(data);
    assert_string_equal(info.kind, "source");
    assert_true(info.n_train == 4 && info.n_test == 3 && info.n_classes == 2);
    assert_int_equal(data->set->part[DATA_TEST].labels[0], 1);
    const struct data_source *inner = &data->set->source;
    struct image_view view = {0};
    assert_true(inner->read(inner->user, DATA_TRAIN, 0, &view));
    assert_true(view.channels == 1 && view.height == 2 && view.width == 3 && view.row_stride == 3);
    inner->done(inner->user, &view);
    assert_false(inner->read(inner->user, DATA_TEST, 1, &view));  /* cannot be had */
    assert_false(inner->read(inner->user, DATA_TRAIN, 2, &view)); /* of 7 channels */
    assert_int_equal(owner.n_read, 2);
    assert_int_equal(owner.n_done, 2);
    der_data_free(data);

    enum der_status status = DER_NOMEM;
    for (uint64_t n = 1; status != DER_OK; n++) {
        atomic_store(&ctx->mem.fail_at, atomic_load(&ctx->mem.n_allocs) + n);
        status = der_data_from_source(ctx, &source, &data);
        assert_true(status == DER_OK || status == DER_NOMEM);
        der_data_free(data);
        assert_true(n < 100);
    }
    atomic_store(&ctx->mem.fail_at, 0);
    test_ctx_free(ctx);
}

static void test_a_source_that_is_none_is_refused(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    struct owner owner = {.bad_label = 2};
    const char *names[] = {"a", "b"};
    struct der_source source = {.n_train = 4,
                                .class_names = names,
                                .n_classes = 2,
                                .label = label_of,
                                .read = read_picture,
                                .user = &owner};
    struct der_data *data;
    assert_int_equal(der_data_from_source(ctx, &source, &data), DER_ARG);
    assert_string_equal(der_ctx_error(ctx), "training picture 0 has label 2; there are 2 classes");
    owner.bad_label = 0;
    names[1] = "a";
    assert_int_equal(der_data_from_source(ctx, &source, &data), DER_ARG);
    assert_string_equal(der_ctx_error(ctx), "class 'a' appears twice");
    names[1] = "b";
    source.read = NULL;
    assert_int_equal(der_data_from_source(ctx, &source, &data), DER_ARG);
    assert_null(data);
    test_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_set_is_opened_and_told),
        cmocka_unit_test(test_pictures_are_copied_and_classes_numbered),
        cmocka_unit_test(test_one_picture_in_colour_makes_a_set_of_colour),
        cmocka_unit_test(test_what_is_no_picture_or_name_is_refused),
        cmocka_unit_test(test_a_failed_addition_changes_nothing),
        cmocka_unit_test(test_a_source_is_asked_for_its_pictures),
        cmocka_unit_test(test_a_source_that_is_none_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

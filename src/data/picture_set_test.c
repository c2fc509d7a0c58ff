#include "data/picture_set.h"

#include "data/collection.h"
#include "support/test_ctx.h"

/* A set of two pictures to train on and one to test with, all of the same bytes but for the first. */
static struct dataset *three_pictures(struct der_ctx *ctx)
{
    struct dataset *data;
    int32_t label;
    assert_ok(ctx, collection_new(ctx, "memory", "data", 1, &data));
    assert_ok(ctx, collection_class(data, "a", &label));
    for (uint8_t i = 0; i < 3; i++) {
        const uint8_t bytes[4] = {i, 2, 3, 4};
        struct image_view picture = collection_view(bytes, 1, 2, 2);
        assert_ok(ctx, collection_add(data, i < 2 ? DATA_TRAIN : DATA_TEST, label, &picture));
    }
    return data;
}

static void test_a_picture_is_known_by_its_size_and_bytes(void **state)
{
    struct der_ctx *ctx = *state;
    struct dataset *data = three_pictures(ctx);
    struct picture_set set;
    assert_ok(ctx, picture_set_of(ctx, data, &set));
    assert_int_equal(set.n, 3);
    const uint8_t known[4] = {2, 2, 3, 4};
    const uint8_t other[4] = {3, 2, 3, 4};
    struct image_view picture = collection_view(known, 1, 2, 2);
    assert_true(picture_set_has(&set, &picture));
    picture = collection_view(known, 1, 1, 4);
    assert_false(picture_set_has(&set, &picture));
    picture = collection_view(other, 1, 2, 2);
    assert_false(picture_set_has(&set, &picture));
    picture_set_fini(&set);
    picture_set_fini(&set);
    assert_false(picture_set_has(&set, &picture));
    dataset_free(data);
}

static void test_pictures_join_a_set_once(void **state)
{
    struct der_ctx *ctx = *state;
    struct dataset *data = three_pictures(ctx);
    struct view_item items[] = {{.sample = 1}, {.sample = 1}};
    const struct data_view view = {.ctx = ctx, .n = 2, .items = items};
    struct picture_set empty = {0};
    struct picture_set one;
    struct picture_set still_one;
    assert_ok(ctx, picture_set_of(ctx, NULL, &empty));
    assert_int_equal(empty.n, 0);
    assert_ok(ctx, picture_set_with(ctx, &empty, data, DATA_TRAIN, &view, &one));
    assert_int_equal(one.n, 1);
    assert_ok(ctx, picture_set_with(ctx, &one, data, DATA_TRAIN, &view, &still_one));
    assert_int_equal(still_one.n, 1);
    assert_true(picture_set_has(&still_one, &data->part[DATA_TRAIN].items[1].image));
    assert_false(picture_set_has(&still_one, &data->part[DATA_TRAIN].items[0].image));
    picture_set_fini(&empty);
    picture_set_fini(&one);
    picture_set_fini(&still_one);
    dataset_free(data);
}

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

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_a_picture_is_known_by_its_size_and_bytes),
        TEST(test_pictures_join_a_set_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

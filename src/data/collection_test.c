#include "data/collection.h"

#include "support/test_ctx.h"

#include <stdio.h>
#include <string.h>

enum { N = 100, SIDE = 4 };

static struct image_view picture(uint8_t bytes[3 * SIDE * SIDE], int seed, int height)
{
    for (int i = 0; i < 3 * SIDE * SIDE; i++)
        bytes[i] = (uint8_t)(i * 7 + seed);
    return collection_view(bytes, 3, height, SIDE);
}

static void add(struct dataset *set, enum data_split split, const char *name, int seed, int height)
{
    uint8_t bytes[3 * SIDE * SIDE];
    struct image_view view = picture(bytes, seed, height);
    int32_t label;
    assert_ok(set->ctx, collection_class(set, name, &label));
    assert_ok(set->ctx, collection_add(set, split, label, &view));
}

static void test_pictures_and_classes_are_copied_and_kept_in_order(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    struct dataset *set;
    char name[16];
    assert_ok(ctx, collection_new(ctx, "memory", "a set", 3, &set));
    for (int i = 0; i < N; i++) {
        snprintf(name, sizeof name, "class %d", i % 40);
        add(set, i % 2 ? DATA_TEST : DATA_TRAIN, name, i, SIDE);
    }
    assert_int_equal(set->n_classes, 40);
    assert_string_equal(set->class_names[39], "class 39");
    assert_int_equal(dataset_find_class(set, "class 17"), 17);
    assert_int_equal(dataset_find_class(set, "class"), -1);
    for (int i = 0; i < N; i++) {
        enum data_split split = i % 2 ? DATA_TEST : DATA_TRAIN;
        uint8_t bytes[3 * SIDE * SIDE];
        (void)picture(bytes, i, SIDE);
        struct image_view view = dataset_view(set, split, i / 2);
        assert_int_equal(set->part[split].labels[i / 2], i % 40);
        assert_int_equal(view.row_stride, 3 * SIDE);
        assert_memory_equal(view.data, bytes, sizeof bytes);
    }
    dataset_free(set);
    test_ctx_free(ctx);
}

static void test_a_set_has_a_size_as_long_as_its_pictures_have_it(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    struct dataset *set;
    assert_ok(ctx, collection_new(ctx, "memory", "a set", 3, &set));
    assert_false(dataset_is_uniform(set, DATA_TRAIN));
    add(set, DATA_TRAIN, "cat", 1, SIDE);
    add(set, DATA_TRAIN, "dog", 2, SIDE);
    assert_true(dataset_is_uniform(set, DATA_TRAIN));
    assert_int_equal(set->height, SIDE);
    add(set, DATA_TEST, "cat", 3, SIDE - 1);
    assert_false(dataset_is_uniform(set, DATA_TRAIN));
    assert_int_equal(set->height, 0);
    dataset_free(set);
    test_ctx_free(ctx);
}

static void test_lack_of_memory_leaves_a_whole_set(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    uint64_t live = der_ctx_memory(ctx).n_live;
    int n_failed = 0;
    for (uint64_t k = 1;; k++) {
        uint8_t bytes[3 * SIDE * SIDE];
        struct image_view view = picture(bytes, 1, SIDE);
        struct dataset *set;
        int32_t label;
        atomic_store(&ctx->mem.fail_at, atomic_load(&ctx->mem.n_allocs) + k);
        enum der_status status = collection_new(ctx, "memory", "a set", 3, &set);
        for (int i = 0; i < 40 && status == DER_OK; i++) {
            status = collection_class(set, i % 2 ? "cat" : "dog", &label);
            if (status == DER_OK)
                status = collection_add(set, DATA_TRAIN, label, &view);
        }
        atomic_store(&ctx->mem.fail_at, 0);
        for (int64_t i = 0; set && i < set->part[DATA_TRAIN].n; i++)
            assert_memory_equal(dataset_view(set, DATA_TRAIN, i).data, bytes, sizeof bytes);
        dataset_free(set);
        assert_int_equal(der_ctx_memory(ctx).n_live, live);
        if (status == DER_OK)
            break;
        assert_int_equal(status, DER_NOMEM);
        n_failed++;
    }
    assert_true(n_failed > 5);
    test_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pictures_and_classes_are_copied_and_kept_in_order),
        cmocka_unit_test(test_a_set_has_a_size_as_long_as_its_pictures_have_it),
        cmocka_unit_test(test_lack_of_memory_leaves_a_whole_set),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

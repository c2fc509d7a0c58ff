/* Exemplars: quotas, herding against a plain reference, nested prefixes. */
#include "data/exemplar.h"

#include "support/case_file.h"
#include "support/test_ctx.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void test_quotas_are_the_papers(void **state)
{
    (void)state;
    static const int b0_10[] = {200, 100, 66, 50, 40, 33, 28, 25, 22, 20};
    static const int b0_5[] = {100, 50, 33, 25, 20};
    for (int t = 0; t < 10; t++)
        assert_int_equal(exemplar_quota(MEMORY_FIXED_TOTAL, 2000, 10 * (t + 1)), b0_10[t]);
    for (int t = 0; t < 5; t++)
        assert_int_equal(exemplar_quota(MEMORY_FIXED_TOTAL, 2000, 20 * (t + 1)), b0_5[t]);
    assert_int_equal(exemplar_quota(MEMORY_FIXED_TOTAL, 2000, 2), 1000);
    assert_int_equal(exemplar_quota(MEMORY_PER_CLASS, 20, 50), 20);
    assert_int_equal(exemplar_quota(MEMORY_PER_CLASS, 20, 100), 20);
}

/* The formula of gen_augment_fixtures.py. */
static float *make_features(int n, int d, uint32_t seed, int copies)
{
    float *features = malloc((size_t)n * (size_t)d * sizeof *features);
    assert_non_null(features);
    for (int row = 0; row < n; row++) {
        uint32_t i = (uint32_t)(row >= n - copies ? row - (n - copies) : row);
        for (uint32_t k = 0; k < (uint32_t)d; k++) {
            uint32_t mixed = (i * 73856093u) ^ (k * 19349663u) ^ (seed * 83492791u);
            mixed *= 2654435761u;
            mixed ^= mixed >> 15;
            mixed *= 2246822519u;
            features[(size_t)row * (size_t)d + k] = (float)((mixed >> 8) + 1) * 0x1p-24f;
        }
    }
    return features;
}

static void test_herding_ranks_as_the_reference_does(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    struct case_file file = case_open("herding");
    int64_t numbers[6];
    while (case_next(&file, numbers, 6)) {
        int n = (int)numbers[0];
        int m = (int)numbers[4];
        float *features = make_features(n, (int)numbers[1], (uint32_t)numbers[2], (int)numbers[3]);
        int32_t ranks[64];
        int n_ranked;
        assert_true(m <= 64);
        assert_ok(ctx, exemplar_herd(ctx, features, n, (int)numbers[1], m, ranks, &n_ranked));
        assert_int_equal(n_ranked, numbers[5]);
        size_t bytes = (size_t)n_ranked * sizeof *ranks;
        assert_memory_equal(ranks, case_data(&file, bytes), bytes);
        free(features);
    }
    case_close(&file);
    test_ctx_free(ctx);
}

/* All images alike: the first is always best, no second one is ever ranked. */
static void test_equal_features_give_the_lowest_index(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    float features[5][2];
    for (int i = 0; i < 5; i++) {
        features[i][0] = 3;
        features[i][1] = 4;
    }
    int32_t ranks[5];
    int n_ranked;
    assert_ok(ctx, exemplar_herd(ctx, features[0], 5, 2, 5, ranks, &n_ranked));
    assert_int_equal(n_ranked, 1);
    assert_int_equal(ranks[0], 0);
    test_ctx_free(ctx);
}

static void test_zero_features_do_no_harm(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    float features[3][2] = {{0, 0}, {1, 0}, {0, 1}};
    int32_t ranks[3];
    int n_ranked;
    assert_ok(ctx, exemplar_herd(ctx, features[0], 3, 2, 2, ranks, &n_ranked));
    assert_int_equal(n_ranked, 2);
    assert_int_equal(ranks[0], 1);
    test_ctx_free(ctx);
}

static void test_features_that_are_no_numbers_are_refused(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    float features[2][2] = {{1, 0}, {0, NAN}};
    int32_t ranks[2];
    int n_ranked;
    assert_int_equal(exemplar_herd(ctx, features[0], 2, 2, 1, ranks, &n_ranked), DER_NUMERIC);
    features[1][1] = INFINITY;
    assert_int_equal(exemplar_herd(ctx, features[0], 2, 2, 1, ranks, &n_ranked), DER_NUMERIC);
    assert_ok(ctx, exemplar_herd(ctx, features[0], 2, 2, 0, ranks, &n_ranked));
    assert_int_equal(n_ranked, 0);
    test_ctx_free(ctx);
}

static void test_lists_shrink_to_prefixes(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    struct exemplars *memory;
    struct data_view *view;
    assert_ok(ctx, exemplars_new(ctx, 3, &memory));
    assert_ok(ctx, exemplars_add(memory, (int64_t[]){9, 4, 7}, 3));
    assert_ok(ctx, exemplars_add(memory, (int64_t[]){20}, 1));
    exemplars_truncate(memory, 2);
    assert_ok(ctx, exemplars_add(memory, NULL, 0));
    assert_ok(ctx, exemplars_view(memory, &view));
    static const struct view_item want[] = {{9, 0}, {4, 0}, {20, 1}};
    assert_int_equal(view->n, 3);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(view->items[i].sample, want[i].sample);
        assert_int_equal(view->items[i].label, want[i].label);
    }
    view_free(view);
    /* A quota that grows again brings nothing back. */
    exemplars_truncate(memory, 10);
    assert_int_equal(memory->lists[0].n, 2);
    exemplars_free(memory);
    test_ctx_free(ctx);
}

static enum der_status make_all(struct der_ctx *ctx)
{
    struct exemplars *memory = NULL;
    struct data_view *view = NULL;
    float features[2][2] = {{1, 0}, {0, 1}};
    int32_t ranks[2];
    int n_ranked;
    enum der_status status = exemplar_herd(ctx, features[0], 2, 2, 2, ranks, &n_ranked);
    if (status == DER_OK)
        status = exemplars_new(ctx, 2, &memory);
    if (status == DER_OK)
        status = exemplars_add(memory, (int64_t[]){1, 2}, 2);
    if (status == DER_OK)
        status = exemplars_view(memory, &view);
    view_free(view);
    exemplars_free(memory);
    return status;
}

static void test_memory_failures_leave_nothing(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    enum der_status status = DER_NOMEM;
    for (uint64_t n = 1; status == DER_NOMEM; n++) {
        atomic_store(&ctx->mem.fail_at, atomic_load(&ctx->mem.n_allocs) + n);
        status = make_all(ctx);
        assert_int_equal(der_ctx_memory(ctx).n_live, 0);
        assert_true(n < 20);
    }
    assert_int_equal(status, DER_OK);
    test_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_quotas_are_the_papers),
        cmocka_unit_test(test_herding_ranks_as_the_reference_does),
        cmocka_unit_test(test_equal_features_give_the_lowest_index),
        cmocka_unit_test(test_zero_features_do_no_harm),
        cmocka_unit_test(test_features_that_are_no_numbers_are_refused),
        cmocka_unit_test(test_lists_shrink_to_prefixes),
        cmocka_unit_test(test_memory_failures_leave_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

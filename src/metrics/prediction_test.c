/*
 * Confusion and the surest mistakes, by hand.
 */
#include "metrics/prediction.h"

#include "support/test_ctx.h"

static const struct prediction SOME[] = {
    {10, 0, 0, 0.9F}, {11, 0, 2, 0.5F}, {12, 1, 0, 0.8F}, {13, 2, 2, 0.4F},
    {14, 2, 1, 0.8F}, {15, 2, 0, 1.0F}, {16, 3, 2, 0.6F},
};
enum { N = sizeof SOME / sizeof SOME[0] };

static void test_confusion_counts_groups(void **state)
{
    (void)state;
    const int group_of[] = {0, 0, 1, 1};
    const int64_t want[] = {2, 1, 2, 2};
    int64_t counts[4] = {7, 7, 7, 7};
    prediction_confusion(SOME, N, group_of, 2, counts);
    assert_memory_equal(counts, want, sizeof want);
}

static void test_confusion_counts_classes(void **state)
{
    (void)state;
    const int group_of[] = {0, 1, 2, 3};
    const int64_t want[] = {1, 0, 1, 0, 1, 0, 0, 0, 1, 1, 1, 0, 0, 0, 1, 0};
    int64_t counts[16];
    prediction_confusion(SOME, N, group_of, 4, counts);
    assert_memory_equal(counts, want, sizeof want);
}

static void test_worst_are_the_surest_mistakes_in_order(void **state)
{
    (void)state;
    const int64_t want[] = {5, 2, 4, 6, 1};
    for (int most = 0; most <= 7; most++) {
        int64_t worst[8];
        int n = most < 5 ? most : 5;
        worst[most] = -7; /* behind the end */
        assert_int_equal(prediction_worst(SOME, N, most, worst), n);
        assert_memory_equal(worst, want, (size_t)n * sizeof *worst);
        assert_int_equal(worst[most], -7);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_confusion_counts_groups),
        cmocka_unit_test(test_confusion_counts_classes),
        cmocka_unit_test(test_worst_are_the_surest_mistakes_in_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

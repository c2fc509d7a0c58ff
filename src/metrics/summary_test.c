/* Means, deviations and percentiles of lists that can be worked out by hand. */
#include "metrics/summary.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

/* Few roundings of values below 100. */
#define assert_close(actual, expected) assert_true(fabs((actual) - (expected)) < 1e-12)

static void assert_text(double mean, double std, const char *expected)
{
    char text[SUMMARY_TEXT_MAX];
    summary_format(mean, std, text, sizeof text);
    assert_string_equal(text, expected);
}

static void test_deviation_is_that_of_a_sample(void **state)
{
    (void)state;
    /* Mean 5, squares 9 + 1 + 1 + 1 + 0 + 0 + 4 + 16 = 32, over 7 and not over 8. */
    static const double values[] = {2, 4, 4, 4, 5, 5, 7, 9};
    struct summary s = summary_of(values, 8);
    assert_int_equal(s.n, 8);
    assert_close(s.mean, 5.0);
    assert_close(s.std, sqrt(32.0 / 7.0));
    s = summary_of((const double[]){74, 76}, 2);
    assert_close(s.mean, 75.0);
    assert_close(s.std, sqrt(2.0));
}

static void test_deviation_survives_a_large_mean(void **state)
{
    (void)state;
    struct summary s = summary_of((const double[]){1e9 + 1, 1e9 + 2, 1e9 + 3}, 3);
    assert_close(s.mean, 1e9 + 2);
    assert_close(s.std, 1.0);
}

static void test_one_value_has_no_deviation(void **state)
{
    (void)state;
    struct summary s = summary_of((const double[]){74.64}, 1);
    assert_close(s.mean, 74.64);
    assert_true(isnan(s.std));
    s = summary_of(NULL, 0);
    assert_true(isnan(s.mean));
    assert_true(isnan(s.std));
}

static void test_text_has_two_decimals_and_shows_what_is_known(void **state)
{
    (void)state;
    assert_text(74.64, 0.28, "74.64 +- 0.28");
    assert_text(74.635999, 0.0, "74.64 +- 0.00");
    assert_text(80.4, NAN, "80.40");
    assert_text(NAN, NAN, "-");
    assert_text(NAN, 1.0, "-");
    assert_text(-16.27, NAN, "-16.27");
    char small[6];
    summary_format(74.64, 0.28, small, sizeof small);
    assert_string_equal(small, "74.64");
}

static void test_sorting_is_ascending(void **state)
{
    (void)state;
    double values[] = {3, -1, 2, 2, 1e300, -1e300};
    summary_sort(values, 6);
    static const double expected[] = {-1e300, -1, 2, 2, 3, 1e300};
    assert_memory_equal(values, expected, sizeof expected);
    summary_sort(NULL, 0);
}

static void test_percentiles_are_interpolated(void **state)
{
    (void)state;
    static const double v[] = {10, 20, 40, 80, NAN}; /* four, and what must not be read */
    assert_close(summary_percentile(v, 4, 0.0), 10.0);
    assert_close(summary_percentile(v, 4, 100.0), 80.0);
    assert_close(summary_percentile(v, 4, 25.0), 17.5); /* position 0.75 */
    assert_close(summary_percentile(v, 4, 50.0), 30.0); /* position 1.5 */
    assert_close(summary_percentile(v, 4, 90.0), 68.0); /* position 2.7 */
    assert_close(summary_percentile(v, 1, 99.0), 10.0);
    assert_true(isnan(summary_percentile(NULL, 0, 50.0)));
}

static void test_median_is_the_middle(void **state)
{
    (void)state;
    assert_close(summary_median((const double[]){1, 2, 100}, 3), 2.0);
    assert_close(summary_median((const double[]){1, 2, 4, 100}, 4), 3.0);
    assert_close(summary_median((const double[]){7}, 1), 7.0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_deviation_is_that_of_a_sample),
        cmocka_unit_test(test_deviation_survives_a_large_mean),
        cmocka_unit_test(test_one_value_has_no_deviation),
        cmocka_unit_test(test_text_has_two_decimals_and_shows_what_is_known),
        cmocka_unit_test(test_sorting_is_ascending),
        cmocka_unit_test(test_percentiles_are_interpolated),
        cmocka_unit_test(test_median_is_the_middle),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

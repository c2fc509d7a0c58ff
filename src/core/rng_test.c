/*
 * The generator against the published known answers, and the shape of what is drawn from it.
 */
#include "core/rng.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void assert_words(struct rng_block block, const uint32_t expected[4])
{
    for (int i = 0; i < 4; i++)
        assert_int_equal(block.word[i], expected[i]);
}

/* The three vectors that the authors of Philox distribute for philox4x32-10. */
static void test_blocks_equal_the_published_answers(void **state)
{
    (void)state;
    assert_words(rng_at(0, (enum rng_purpose)0, 0, 0),
                 (const uint32_t[]){0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
    assert_words(rng_at(UINT64_MAX, (enum rng_purpose)0xffffffff, 0xffffffff, UINT64_MAX),
                 (const uint32_t[]){0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
    assert_words(rng_at(UINT64_C(0x299f31d0a4093822), (enum rng_purpose)0x03707344, 0x13198a2e,
                        UINT64_C(0x85a308d3243f6a88)),
                 (const uint32_t[]){0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

static void test_unit_stays_below_one(void **state)
{
    (void)state;
    assert_true(rng_unit(UINT32_MAX) < 1.0f);
    assert_true(rng_unit(0) == 0.0f);
}

enum { N = 100000 };

static void moments(const float *x, double *mean, double *std)
{
    double sum = 0.0;
    double squares = 0.0;
    for (int i = 0; i < N; i++) {
        sum += (double)x[i];
        squares += (double)x[i] * (double)x[i];
    }
    *mean = sum / N;
    *std = sqrt(squares / N - *mean * *mean);
}

/* Sampling errors are std / sqrt(N) = 0.006 for the mean and std / sqrt(2 N) for the deviation; five
 * of them are allowed, and the seed is fixed. */
static void test_normal_has_its_moments(void **state)
{
    (void)state;
    static float x[N];
    double mean;
    double std;
    rng_normal(x, N, 2.0, 7, RNG_TEST, 0);
    moments(x, &mean, &std);
    assert_true(fabs(mean) < 0.032);
    assert_true(fabs(std - 2.0) < 0.023);
}

static void test_uniform_fills_its_interval(void **state)
{
    (void)state;
    static float x[N];
    double mean;
    double std;
    rng_uniform(x, N, -1.0, 3.0, 7, RNG_TEST, 1);
    moments(x, &mean, &std);
    assert_true(fabs(mean - 1.0) < 0.02);
    assert_true(fabs(std - 4.0 / sqrt(12.0)) < 0.02);
    for (int i = 0; i < N; i++)
        assert_true(x[i] >= -1.0f && x[i] < 3.0f);
}

/* A prefix must not depend on how much is drawn: networks of different widths share draws. */
static void test_draws_do_not_depend_on_the_count(void **state)
{
    (void)state;
    float few[7];
    float many[20];
    rng_normal(few, 7, 1.0, 3, RNG_TEST, 2);
    rng_normal(many, 20, 1.0, 3, RNG_TEST, 2);
    assert_memory_equal(few, many, sizeof few);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_blocks_equal_the_published_answers),
        cmocka_unit_test(test_unit_stays_below_one),
        cmocka_unit_test(test_normal_has_its_moments),
        cmocka_unit_test(test_uniform_fills_its_interval),
        cmocka_unit_test(test_draws_do_not_depend_on_the_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

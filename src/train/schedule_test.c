/*
 * Learning rates, epoch by epoch, as the paper's settings have them.
 */
#include "train/schedule.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void assert_rate(const struct schedule *schedule, int epoch, double expected)
{
    assert_true(fabs(schedule_lr(schedule, epoch) - expected) < 1e-12);
}

static void test_cifar_schedule_is_the_papers(void **state)
{
    (void)state;
    struct schedule s = schedule_cifar();
    assert_int_equal(s.epochs, 170);
    for (int e = 0; e < 10; e++)
        assert_rate(&s, e, 0.01 * (e + 1));
    assert_rate(&s, 10, 0.1);
    assert_rate(&s, 109, 0.1);
    assert_rate(&s, 110, 0.01);
    assert_rate(&s, 129, 0.01);
    assert_rate(&s, 130, 0.001);
    assert_rate(&s, 169, 0.001);
}

static void test_scaling_keeps_the_shape(void **state)
{
    (void)state;
    struct schedule full = schedule_cifar();
    struct schedule s = schedule_scaled(&full, 30);
    assert_int_equal(s.epochs, 30);
    assert_int_equal(s.warmup_epochs, 2);
    assert_int_equal(s.n_drops, 2);
    assert_int_equal(s.drop[0], 19);
    assert_int_equal(s.drop[1], 23);
    s = schedule_scaled(&full, 3);
    assert_int_equal(s.n_drops, 1);
    assert_int_equal(s.drop[0], 2);
}

static void test_bad_schedules_are_refused(void **state)
{
    (void)state;
    struct der_ctx ctx = {.threads = 1};
    struct schedule good = schedule_cifar();
    assert_int_equal(schedule_check(&ctx, &good), DER_OK);
    struct schedule s = good;
    s.drop[0] = 5;
    assert_int_equal(schedule_check(&ctx, &s), DER_ARG);
    s = good;
    s.drop[1] = 110;
    assert_int_equal(schedule_check(&ctx, &s), DER_ARG);
    s = good;
    s.lr = NAN;
    assert_int_equal(schedule_check(&ctx, &s), DER_ARG);
    s = good;
    s.warmup_epochs = 171;
    assert_int_equal(schedule_check(&ctx, &s), DER_ARG);
    s = good;
    s.n_drops = SCHEDULE_MAX_DROPS + 1;
    assert_int_equal(schedule_check(&ctx, &s), DER_ARG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cifar_schedule_is_the_papers),
        cmocka_unit_test(test_scaling_keeps_the_shape),
        cmocka_unit_test(test_bad_schedules_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

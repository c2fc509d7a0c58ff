/* The controller of the sparsity weight: bounds, the planned path, and a simulated extractor. */
#include "method/pressure.h"

#include "support/test_ctx.h"

#include <math.h>

enum { START = 1000000, TARGET = 100000, SOFT_EPOCHS = 100 };

static void test_without_a_target_the_weight_stays(void **state)
{
    (void)state;
    struct pressure pressure = pressure_new(0.75, 0);
    for (int epoch = 0; epoch < SOFT_EPOCHS; epoch++) {
        pressure_update(&pressure, START >> (epoch % 8), epoch, SOFT_EPOCHS);
        assert_true(pressure.lambda_s == 0.75);
    }
}

/* Size on the path after `epoch` epochs: it ends at 80 % of the soft phase. */
static int64_t planned(int epoch)
{
    double share = fmin(1.0, epoch / (0.8 * SOFT_EPOCHS));
    return (int64_t)lround(START * pow((double)TARGET / START, share));
}

static void test_on_the_path_the_weight_stays(void **state)
{
    (void)state;
    struct pressure pressure = pressure_new(0.75, TARGET);
    pressure_update(&pressure, START, 0, SOFT_EPOCHS);
    double begun = pressure.lambda_s;
    for (int epoch = 1; epoch < SOFT_EPOCHS; epoch++)
        pressure_update(&pressure, planned(epoch), epoch, SOFT_EPOCHS);
    assert_true(fabs(pressure.lambda_s / begun - 1.0) <
                1e-2); /* sizes are rounded to whole numbers, and a change weighs ten times */
}

static void test_too_large_presses_harder_and_too_small_less(void **state)
{
    (void)state;
    struct pressure large = pressure_new(0.75, TARGET);
    pressure_update(&large, START, 0, SOFT_EPOCHS);
    struct pressure small = large;
    double begun = large.lambda_s;
    pressure_update(&large, planned(1) * 101 / 100, 1, SOFT_EPOCHS);
    pressure_update(&small, planned(1) * 99 / 100, 1, SOFT_EPOCHS);
    assert_true(fabs(large.lambda_s / begun - 1.1157) < 1e-3); /* 1.01^11 */
    assert_true(fabs(small.lambda_s / begun - 0.8953) < 1e-3); /* 0.99^11 */
}

static void test_an_epoch_at_most_doubles_and_all_of_them_give_a_hundred(void **state)
{
    (void)state;
    struct pressure up = pressure_new(0.5, TARGET);
    struct pressure down = pressure_new(0.5, TARGET);
    pressure_update(&up, START, 0, SOFT_EPOCHS);
    pressure_update(&down, START, 0, SOFT_EPOCHS);
    for (int epoch = 1; epoch < SOFT_EPOCHS; epoch++) {
        double before_up = up.lambda_s;
        double before_down = down.lambda_s;
        pressure_update(&up, 10 * (int64_t)START, epoch, SOFT_EPOCHS);
        pressure_update(&down, 1, epoch, SOFT_EPOCHS);
        assert_true(up.lambda_s >= before_up && up.lambda_s <= 2.0 * before_up);
        assert_true(down.lambda_s <= before_down && down.lambda_s >= 0.5 * before_down);
    }
    assert_true(fabs(up.lambda_s - 50.0) < 1e-9);
    assert_true(fabs(down.lambda_s - 0.005) < 1e-12);
}

static void test_a_low_beginning_is_within_the_bounds_and_rises(void **state)
{
    (void)state;
    struct pressure pressure = pressure_new(0.5, TARGET);
    pressure_begin_low(&pressure);
    assert_true(fabs(pressure.lambda_s - 0.005) < 1e-12);
    for (int epoch = 0; epoch < 20; epoch++)
        pressure_update(&pressure, START, epoch, SOFT_EPOCHS);
    assert_true(pressure.lambda_s > 0.5);
    struct pressure fixed = pressure_new(0.5, 0);
    pressure_begin_low(&fixed);
    assert_true(fixed.lambda_s == 0.5);
}

/* Masks in one line: the sparsity loss moves the logarithm of the size down, the task loss moves it up, and
 * both act through a velocity. Returns the size at the end over TARGET. */
static double simulate(double strength, double recovery, int64_t target)
{
    struct pressure pressure = pressure_new(0.75, target);
    double size = START;
    double velocity = 0.0;
    for (int epoch = 0; epoch < SOFT_EPOCHS; epoch++) {
        pressure_update(&pressure, (int64_t)size, epoch, SOFT_EPOCHS);
        velocity = 0.5 * velocity + 0.5 * (recovery - strength * pressure.lambda_s);
        size = fmin(size * exp(velocity), 2.0 * START);
    }
    return size / TARGET;
}

/* A fixed weight ends anywhere between a billionth and twenty times the target, depending on what lambda_s
 * does to these masks. The controller overshoots where masks do not come back, but stays within this
 * factor, and masks_fit does the rest. */
static void test_the_size_comes_near_whatever_the_masks_answer(void **state)
{
    (void)state;
    static const double strengths[] = {0.003, 0.01, 0.03, 0.1, 0.3};
    static const double recoveries[] = {0.0, 0.01, 0.05};
    double smallest = INFINITY;
    double largest = 0.0;
    for (int i = 0; i < 5; i++)
        for (int j = 0; j < 3; j++) {
            double ratio = simulate(strengths[i], recoveries[j], TARGET);
            double fixed = simulate(strengths[i], recoveries[j], 0);
            smallest = fmin(smallest, fixed);
            largest = fmax(largest, fixed);
            if (!(ratio > 1 / 2.5 && ratio < 2.5))
                fail_msg("strength %g, recovery %g: %.3f of the target", strengths[i],
                         recoveries[j], ratio);
        }
    assert_true(smallest < 1e-8 && largest > 15.0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_without_a_target_the_weight_stays),
        cmocka_unit_test(test_on_the_path_the_weight_stays),
        cmocka_unit_test(test_too_large_presses_harder_and_too_small_less),
        cmocka_unit_test(test_an_epoch_at_most_doubles_and_all_of_them_give_a_hundred),
        cmocka_unit_test(test_a_low_beginning_is_within_the_bounds_and_rises),
        cmocka_unit_test(test_the_size_comes_near_whatever_the_masks_answer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

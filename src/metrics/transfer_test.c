/* Backward and forward transfer of matrices small enough to add up by hand. */
#include "metrics/transfer.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

/* What must not be read. */
#define X ((double)NAN)

/* A handful of sums of two-digit numbers: only the last bits may differ. */
#define assert_close(actual, expected) assert_true(fabs((actual) - (expected)) < 1e-12)

static const double THREE[] = {
    90, X,  X,  /* after step 1 */
    84, 80, X,  /* after step 2 */
    87, 86, 70, /* after step 3 */
};

static void test_backward_transfer_by_hand(void **state)
{
    (void)state;
    /* i = 2: 1/2 ((84 - 90) + 0)            = -3
     * i = 3: 1/3 ((87 - 90) + (86 - 80) + 0) = 1
     * BWT  = 1/2 (-3 + 1)                    = -1 */
    assert_close(transfer_backward(THREE, 3), -1.0);
    /* T = 2: 1/1 (1/2 ((95 - 90) + 0)) = 2.5 */
    assert_close(transfer_backward((const double[]){90, X, 95, 80}, 2), 2.5);
}

static void test_forward_transfer_by_hand(void **state)
{
    (void)state;
    /* 1/2 ((80 - 77) + (70 - 72)) = 0.5; the first step has no reference. */
    assert_close(transfer_forward(THREE, (const double[]){X, 77, 72}, 3), 0.5);
    /* T = 2: 80 - 81.25 = -1.25 */
    assert_close(transfer_forward((const double[]){90, X, 95, 80}, (const double[]){X, 81.25}, 2),
                 -1.25);
}

static void test_later_steps_divide_by_more_groups(void **state)
{
    (void)state;
    /* Every old group loses 12 against its first value:
     * 1/3 (12/2 + 24/3 + 36/4) = (6 + 8 + 9) / 3 */
    static const double a[] = {
        60, X,  X,  X,  /* after step 1 */
        48, 70, X,  X,  /* after step 2 */
        48, 58, 80, X,  /* after step 3 */
        48, 58, 68, 90, /* after step 4 */
    };
    assert_close(transfer_backward(a, 4), -23.0 / 3.0);
}

static void test_a_representation_that_stays_transfers_nothing(void **state)
{
    (void)state;
    static const double a[] = {60, X, X, 60, 70, X, 60, 70, 80};
    assert_close(transfer_backward(a, 3), 0.0);
    assert_close(transfer_forward(a, (const double[]){60, 70, 80}, 3), 0.0);
}

static void test_one_step_has_no_transfer(void **state)
{
    (void)state;
    assert_true(isnan(transfer_backward((const double[]){90}, 1)));
    assert_true(isnan(transfer_forward((const double[]){90}, (const double[]){80}, 1)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_backward_transfer_by_hand),
        cmocka_unit_test(test_forward_transfer_by_hand),
        cmocka_unit_test(test_later_steps_divide_by_more_groups),
        cmocka_unit_test(test_a_representation_that_stays_transfers_nothing),
        cmocka_unit_test(test_one_step_has_no_transfer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

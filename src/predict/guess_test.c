/*
 * The best classes of a row: order, ties, temperature.
 */
#include "predict/guess.h"

#include "core/rng.h"
#include "support/test_ctx.h"

#include <math.h>

enum { MOST = 200 };

static void test_the_best_come_first_and_ties_by_label(void **state)
{
    (void)state;
    for (int n = 1; n <= MOST; n += 1 + n / 3) {
        for (int top = 1; top <= n; top += 1 + top / 2) {
            float logits[MOST];
            struct der_guess guesses[MOST];
            for (int i = 0; i < n; i++) /* few levels, many ties */
                logits[i] = (float)(rng_at(5, RNG_TEST, (uint32_t)n, (uint64_t)i).word[0] % 7);
            guess_top(logits, n, 1.0, top, guesses);
            for (int k = 0; k < top; k++) {
                int better = 0;
                int label = guesses[k].label;
                assert_true(label >= 0 && label < n && guesses[k].logit == logits[label]);
                for (int i = 0; i < n; i++)
                    better +=
                        logits[i] > logits[label] || (logits[i] == logits[label] && i < label);
                assert_int_equal(better, k);
            }
        }
    }
}

static void test_probabilities_are_a_softmax_over_all_classes(void **state)
{
    (void)state;
    const float logits[4] = {1.0F, -2.0F, 0.5F, 1.0F};
    const double temperatures[] = {0.5, 1.0, 5.0};
    for (int t = 0; t < 3; t++) {
        struct der_guess guesses[4];
        double sum = 0.0;
        double all = 0.0;
        for (int i = 0; i < 4; i++)
            sum += exp((double)logits[i] / temperatures[t]);
        guess_top(logits, 4, temperatures[t], 4, guesses);
        for (int k = 0; k < 4; k++) {
            double want = exp((double)logits[guesses[k].label] / temperatures[t]) / sum;
            assert_float_equal(guesses[k].probability, want, 1e-6); /* a float's rounding */
            all += (double)guesses[k].probability;
        }
        assert_float_equal(all, 1.0, 1e-6);
        float best = guesses[0].probability;
        guess_top(logits, 4, temperatures[t], 1, guesses);
        assert_true(guesses[0].probability ==
                    best); /* of all classes, however many are asked for */
    }
}

static void test_large_logits_do_not_overflow(void **state)
{
    (void)state;
    const float logits[3] = {3e38F, -3e38F, 2.9e38F};
    struct der_guess guesses[3];
    guess_top(logits, 3, 1e-3, 3, guesses);
    assert_int_equal(guesses[0].label, 0);
    assert_true(guesses[0].probability == 1.0F && guesses[2].probability == 0.0F);
}

static void test_more_than_there_are_is_told(void **state)
{
    (void)state;
    const float logits[2] = {1.0F, 2.0F};
    struct der_guess guesses[4];
    guess_top(logits, 2, 1.0, 4, guesses);
    assert_int_equal(guesses[0].label, 1);
    assert_int_equal(guesses[1].label, 0);
    for (int i = 2; i < 4; i++) {
        assert_int_equal(guesses[i].label, -1);
        assert_string_equal(guesses[i].name, "");
        assert_true(guesses[i].probability == 0.0F);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_best_come_first_and_ties_by_label),
        cmocka_unit_test(test_probabilities_are_a_softmax_over_all_classes),
        cmocka_unit_test(test_large_logits_do_not_overflow),
        cmocka_unit_test(test_more_than_there_are_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

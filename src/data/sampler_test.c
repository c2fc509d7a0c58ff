/* The order of an epoch: a permutation, a pure function of seed and epoch, cut with its tail. */
#include "data/sampler.h"

#include "support/case_file.h"
#include "support/test_ctx.h"

#include <string.h>

enum { N = 1001 };

static void test_an_epoch_visits_every_item_once(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    for (int64_t n = 1; n <= 12; n++) {
        struct sampler sampler;
        assert_ok(ctx, sampler_init(ctx, n, 4, true, &sampler));
        sampler_epoch(&sampler, 5, 3);
        bool seen[12] = {false};
        for (int64_t i = 0; i < n; i++) {
            assert_in_range(sampler.order[i], 0, n - 1);
            assert_false(seen[sampler.order[i]]);
            seen[sampler.order[i]] = true;
        }
        sampler_fini(&sampler);
    }
    test_ctx_free(ctx);
}

static void test_order_depends_on_seed_and_epoch_alone(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    struct sampler a;
    struct sampler b;
    assert_ok(ctx, sampler_init(ctx, N, 128, true, &a));
    assert_ok(ctx, sampler_init(ctx, N, 7, true, &b));
    sampler_epoch(&a, 1, 0);
    sampler_epoch(&a, 1, 8);
    sampler_epoch(&b, 1, 8);
    assert_memory_equal(a.order, b.order, N * sizeof *a.order);
    sampler_epoch(&b, 1, 9);
    assert_memory_not_equal(a.order, b.order, N * sizeof *a.order);
    sampler_epoch(&b, 2, 8);
    assert_memory_not_equal(a.order, b.order, N * sizeof *a.order);
    sampler_fini(&a);
    sampler_fini(&b);
    test_ctx_free(ctx);
}

/* A seed means the same order for ever: resumed runs rely on it, and so does whoever repeats one. */
static void test_order_is_what_the_documentation_says(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    struct case_file file = case_open("shuffles");
    int64_t numbers[3];
    while (case_next(&file, numbers, 3)) {
        struct sampler sampler;
        assert_ok(ctx, sampler_init(ctx, numbers[2], 4, true, &sampler));
        sampler_epoch(&sampler, (uint64_t)numbers[0], (uint32_t)numbers[1]);
        for (int64_t i = 0; i < numbers[2]; i++) {
            int32_t want;
            memcpy(&want, case_data(&file, sizeof want), sizeof want);
            assert_int_equal(sampler.order[i], want);
        }
        sampler_fini(&sampler);
    }
    case_close(&file);
    test_ctx_free(ctx);
}

/* Every position is equally likely for every item: chi-square over 9 degrees of freedom stays
 * below 40 (p < 1e-5), for a fixed set of seeds. */
static void test_positions_are_uniform(void **state)
{
    (void)state;
    enum { ITEMS = 10, EPOCHS = 2000 };
    struct der_ctx *ctx = test_ctx_new(1);
    struct sampler sampler;
    assert_ok(ctx, sampler_init(ctx, ITEMS, 4, true, &sampler));
    int counts[ITEMS][ITEMS] = {{0}};
    for (uint32_t epoch = 0; epoch < EPOCHS; epoch++) {
        sampler_epoch(&sampler, 11, epoch);
        for (int i = 0; i < ITEMS; i++)
            counts[sampler.order[i]][i]++;
    }
    for (int item = 0; item < ITEMS; item++) {
        double chi_square = 0;
        for (int i = 0; i < ITEMS; i++) {
            double off = counts[item][i] - (double)EPOCHS / ITEMS;
            chi_square += off * off / ((double)EPOCHS / ITEMS);
        }
        assert_true(chi_square < 40.0);
    }
    sampler_fini(&sampler);
    test_ctx_free(ctx);
}

static void test_tail_is_kept_unless_it_is_one_training_image(void **state)
{
    (void)state;
    static const struct {
        int64_t n;
        int batch;
        int64_t training, evaluation;
        int last; /* rows of the last batch in evaluation */
    } cases[] = {
        {5000, 128, 40, 40, 8}, {256, 128, 2, 2, 128}, {257, 128, 2, 3, 1}, {258, 128, 3, 3, 2},
        {1, 128, 0, 1, 1},      {0, 128, 0, 0, 0},     {3, 1, 3, 3, 1},     {100, 128, 1, 1, 100},
    };
    struct der_ctx *ctx = test_ctx_new(1);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sampler sampler;
        assert_ok(ctx, sampler_init(ctx, cases[i].n, cases[i].batch, true, &sampler));
        assert_int_equal(sampler_batches(&sampler), cases[i].training);
        sampler_fini(&sampler);
        assert_ok(ctx, sampler_init(ctx, cases[i].n, cases[i].batch, false, &sampler));
        assert_int_equal(sampler_batches(&sampler), cases[i].evaluation);
        if (cases[i].evaluation > 0) {
            int n;
            const int64_t *items = sampler_batch(&sampler, cases[i].evaluation - 1, &n);
            assert_int_equal(n, cases[i].last);
            assert_int_equal(items[n - 1], cases[i].n - 1);
        }
        sampler_fini(&sampler);
    }
    test_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_epoch_visits_every_item_once),
        cmocka_unit_test(test_order_depends_on_seed_and_epoch_alone),
        cmocka_unit_test(test_order_is_what_the_documentation_says),
        cmocka_unit_test(test_positions_are_uniform),
        cmocka_unit_test(test_tail_is_kept_unless_it_is_one_training_image),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Images set aside: how many of a class, and where they lie in its list. */
#include "method/aside.h"

#include "support/test_ctx.h"

enum { MOST = 300, FIRST_ASIDE = 1000 };

static const double SHARES[] = {0.001, 0.1, 0.29, 0.5};

static void test_a_share_of_the_images_at_least_one_and_never_all(void **state)
{
    (void)state;
    assert_int_equal(aside_count(0.1, 0), 0);
    assert_int_equal(aside_count(0.1, 1), 0);
    assert_int_equal(aside_count(0.1, 2), 1);
    assert_int_equal(aside_count(0.1, 19), 1);
    assert_int_equal(aside_count(0.1, 20), 2);
    assert_int_equal(aside_count(0.29, 100), 29); /* 0.29 * 100 is less */
    assert_int_equal(aside_count(0.5, 2), 1);
    assert_int_equal(aside_count(0.5, 3), 1);
    assert_int_equal(aside_count(0.5, 20), 10);
}

static void test_as_many_places_as_images_whatever_the_length(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof SHARES / sizeof SHARES[0]; i++) {
        int n_places = 0;
        for (int n = 0; n < MOST; n++) {
            assert_int_equal(n_places, aside_count(SHARES[i], n));
            n_places += aside_is_place(SHARES[i], n);
        }
    }
}

/* A list of n ranked images, 0, 1, ..., and n_aside others, FIRST_ASIDE and so on. */
static int weave(struct der_ctx *ctx, double share, int quota, int n, int n_aside,
                 int64_t samples[MOST])
{
    struct data_view *aside;
    for (int i = 0; i < n; i++)
        samples[i] = i;
    assert_ok(ctx, view_new(ctx, n_aside, &aside));
    for (int i = 0; i < n_aside; i++)
        aside->items[i].sample = FIRST_ASIDE + i;
    const int length = aside_weave(aside, share, quota, samples, n);
    view_free(aside);
    return length;
}

static void test_both_keep_their_order_in_a_list(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    for (size_t i = 0; i < sizeof SHARES / sizeof SHARES[0]; i++)
        for (int quota = 0; quota < 60; quota++) {
            int64_t samples[MOST];
            int64_t next[2] = {0, FIRST_ASIDE};
            assert_int_equal(weave(ctx, SHARES[i], quota, 80, 40, samples), quota);
            for (int place = 0; place < quota; place++)
                assert_int_equal(samples[place], next[aside_is_place(SHARES[i], place)]++);
        }
    test_ctx_free(ctx);
}

static void test_a_list_ends_where_either_has_run_out(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    int64_t samples[MOST];
    assert_int_equal(weave(ctx, 0.1, 50, 10, 5, samples), 11); /* one of the five is needed */
    assert_int_equal(samples[10], 9);
    assert_int_equal(weave(ctx, 0.1, 50, 100, 2, samples), 29); /* the thirtieth would be a third */
    assert_int_equal(weave(ctx, 0.1, 50, 100, 0, samples), 1);
    assert_int_equal(samples[0], 0);
    assert_int_equal(weave(ctx, 0.1, 50, 0, 5, samples), 0);
    test_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_share_of_the_images_at_least_one_and_never_all),
        cmocka_unit_test(test_as_many_places_as_images_whatever_the_length),
        cmocka_unit_test(test_both_keep_their_order_in_a_list),
        cmocka_unit_test(test_a_list_ends_where_either_has_run_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

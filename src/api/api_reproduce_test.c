/* The public face of a table that is run again. */
#include <der/reproduce.h>

#include "support/scratch.h"
#include "support/test_ctx.h"

#include <math.h>
#include <string.h>

struct fixture {
    struct der_ctx *ctx;
    struct scratch scratch;
    struct der_reproduction *r; /* T4, its last row, orders 2 and 3 */
};

static int setup(void **state)
{
    static struct fixture f;
    static const char *const rows[] = {"der-wop"};
    static const int orders[] = {2, 3};
    f = (struct fixture){.ctx = test_ctx_new(1)};
    scratch_init(&f.scratch);
    struct der_reproduce_options options = {.table = "T4",
                                            .rows = rows,
                                            .n_rows = 1,
                                            .orders = orders,
                                            .n_orders = 2,
                                            .out = scratch_path(&f.scratch, "out")};
    assert_ok(f.ctx, der_reproduction_new(f.ctx, &options, &f.r));
    *state = &f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    der_reproduction_free(f->r);
    scratch_fini(&f->scratch);
    test_ctx_free(f->ctx);
    return 0;
}

static void test_items_are_the_runs_that_were_asked_for(void **state)
{
    struct fixture *f = *state;
    struct der_reproduction_item item;
    assert_int_equal(der_reproduction_item_count(f->r), 2);
    for (int i = 0; i < 2; i++) {
        assert_ok(f->ctx, der_reproduction_item(f->r, i, &item));
        assert_string_equal(item.row, "expansion and auxiliary loss");
        assert_int_equal(item.order, 2 + i);
        assert_int_equal(item.state, DER_RUN_ABSENT);
        assert_non_null(strstr(item.folder, "/out/cifar100-b0-10.der.prune=false.order"));
    }
    assert_int_equal(der_reproduction_item(f->r, 2, &item), DER_ARG);
    assert_non_null(strstr(der_ctx_error(f->ctx), "there is no run 2; there are 2"));
    assert_int_equal(der_reproduction_item(f->r, -1, &item), DER_ARG);
}

static void test_rows_are_all_of_the_table(void **state)
{
    struct fixture *f = *state;
    struct der_reproduction_row row;
    assert_int_equal(der_reproduction_row_count(f->r), 3);
    assert_ok(f->ctx, der_reproduction_row(f->r, 2, &row));
    assert_string_equal(row.label, "expansion and auxiliary loss");
    assert_string_equal(row.preset, "cifar100-b0-10");
    assert_int_equal(row.n_runs, 0);
    assert_true(isnan(row.avg_top1.mean) && isnan(row.params.mean));
    assert_true(row.paper_avg_top1.mean > 70.0 && row.paper_avg_top1.mean < 80.0);
    assert_true(isnan(row.paper_bwt));
    assert_int_equal(der_reproduction_row(f->r, 3, &row), DER_ARG);
    assert_int_equal(der_reproduction_row(f->r, -1, &row), DER_ARG);
}

static void test_the_text_can_be_asked_for_twice(void **state)
{
    struct fixture *f = *state;
    const char *text;
    assert_ok(f->ctx, der_reproduction_text(f->r, &text));
    assert_ok(f->ctx, der_reproduction_text(f->r, &text));
    assert_ptr_equal(strstr(text, "T4: "), text);
}

static void test_an_unknown_table_gives_nothing(void **state)
{
    struct fixture *f = *state;
    struct der_reproduction *other;
    struct der_reproduce_options options = {.table = "T0", .out = "x"};
    assert_int_equal(der_reproduction_new(f->ctx, &options, &other), DER_ARG);
    assert_null(other);
    der_reproduction_free(other);
}

/* The options of der_train go the same way. */
static void test_numbers_that_mean_nothing_are_refused(void **state)
{
    struct fixture *f = *state;
    static const struct {
        struct der_train_options train;
        const char *text;
    } wrong[] = {
        {{.loader_threads = -5}, "max_steps and loader_threads are not negative, not 0 and -5"},
        {{.precision = (enum der_precision)9}, "9 is no precision"},
        {{.bad_images = (enum der_bad_images)7}, "7 is none of enum der_bad_images"},
        {{.measure = 0xff00}, "0xff00 has bits that enum der_measure has not"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct der_reproduction *other;
        struct der_reproduce_options options = {.table = "T4", .out = "x", .train = wrong[i].train};
        assert_int_equal(der_reproduction_new(f->ctx, &options, &other), DER_ARG);
        assert_non_null(strstr(der_ctx_error(f->ctx), wrong[i].text));
        struct der_train_options train = wrong[i].train;
        struct der_train_result result;
        train.resume = true;
        assert_int_equal(der_train(f->ctx, &train, &result), DER_ARG);
        assert_non_null(strstr(der_ctx_error(f->ctx), wrong[i].text));
    }
}

static void test_tables_and_rows_are_listed(void **state)
{
    struct fixture *f = *state;
    struct der_paper_table table;
    struct der_paper_row row;
    int n = der_paper_table_count();
    for (int i = 0; i < n; i++) {
        assert_ok(f->ctx, der_paper_table_describe(f->ctx, i, &table));
        assert_true(strlen(table.name) > 0 && strlen(table.title) > 0 && table.n_rows > 0);
        for (int k = 0; k < table.n_rows; k++)
            assert_ok(f->ctx, der_paper_row_describe(f->ctx, i, k, &row));
        assert_int_equal(der_paper_row_describe(f->ctx, i, table.n_rows, &row), DER_ARG);
        assert_non_null(strstr(der_ctx_error(f->ctx), table.name));
    }
    assert_string_equal(table.name, "bound");
    assert_ok(f->ctx, der_paper_row_describe(f->ctx, 0, 0, &row));
    assert_string_equal(row.label, "joint, 5 steps");
    assert_string_equal(row.name, "joint");
    assert_int_equal(der_paper_row_describe(f->ctx, 0, -1, &row), DER_ARG);
    assert_int_equal(der_paper_table_describe(f->ctx, -1, &table), DER_ARG);
    assert_int_equal(der_paper_row_describe(f->ctx, n, 0, &row), DER_ARG);
    assert_non_null(strstr(der_ctx_error(f->ctx), "there is no table"));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_items_are_the_runs_that_were_asked_for),
        TEST(test_rows_are_all_of_the_table),
        TEST(test_the_text_can_be_asked_for_twice),
        TEST(test_an_unknown_table_gives_nothing),
        TEST(test_numbers_that_mean_nothing_are_refused),
        TEST(test_tables_and_rows_are_listed),
    };
#undef TEST
    return cmocka_run_group_tests(tests, NULL, NULL);
}

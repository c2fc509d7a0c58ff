/* Class orders: numpy's shuffle, the paper's tables, files and what is wrong with them. */
#include "data/order.h"

#include "support/case_file.h"
#include "support/test_ctx.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void assert_is_permutation(const struct class_order *order)
{
    for (int k = 0; k < order->n; k++) {
        assert_in_range(order->class_of[k], 0, order->n - 1);
        assert_int_equal(order->label_of[order->class_of[k]], k);
    }
}

static void test_seeded_orders_are_numpys(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    struct case_file file = case_open("orders");
    int64_t numbers[2];
    while (case_next(&file, numbers, 2)) {
        int n = (int)numbers[1];
        const uint8_t *want = case_data(&file, 2 * (size_t)n);
        char name[32];
        snprintf(name, sizeof name, "seed:%lld", (long long)numbers[0]);
        struct class_order *order;
        assert_ok(ctx, order_new(ctx, name, n, &order));
        assert_is_permutation(order);
        for (int k = 0; k < n; k++)
            assert_int_equal(order->class_of[k], want[2 * k] + 256 * want[2 * k + 1]);
        order_free(order);
    }
    case_close(&file);
    test_ctx_free(ctx);
}

static void test_seed_1993_begins_as_everybody_knows_it(void **state)
{
    (void)state;
    static const int32_t want[] = {68, 56, 78, 8, 23, 84, 90, 65, 74, 76};
    struct der_ctx *ctx = test_ctx_new(1);
    struct class_order *order;
    assert_ok(ctx, order_new(ctx, "seed:1993", 100, &order));
    assert_memory_equal(order->class_of, want, sizeof want);
    assert_int_equal(order->class_of[99], 33);
    order_free(order);
    test_ctx_free(ctx);
}

static void test_paper_orders_are_permutations(void **state)
{
    (void)state;
    static const int32_t begin[3][3] = {{87, 0, 52}, {58, 30, 93}, {71, 54, 45}};
    static const int32_t end[3] = {39, 61, 11};
    static const char *const names[3] = {"1", "2", "3"};
    struct der_ctx *ctx = test_ctx_new(1);
    for (int i = 0; i < 3; i++) {
        struct class_order *order;
        assert_ok(ctx, order_new(ctx, names[i], 100, &order));
        assert_is_permutation(order);
        assert_memory_equal(order->class_of, begin[i], sizeof begin[i]);
        assert_int_equal(order->class_of[99], end[i]);
        order_free(order);
    }
    test_ctx_free(ctx);
}

struct refusal {
    const char *name; /* of the order, or the text of a file */
    int n_classes;
    const char *expected; /* within the message */
};

static void test_names_that_make_no_sense_are_refused(void **state)
{
    (void)state;
    static const struct refusal cases[] = {
        {"1", 10, "is for 100 classes, the data have 10"},
        {"seed:", 10, "want seed:N"},
        {"seed:-1", 10, "want seed:N"},
        {"seed:4294967296", 10, "want seed:N"},
        {"seed:99999999999999999999999", 10, "want seed:N"},
        {"seed:7x", 10, "want seed:N"},
        {"4", 100, "none of 1, 2, 3"},
        {"no/such/file", 10, "no/such/file"},
        {".", 10, "none of 1, 2, 3"},
    };
    struct der_ctx *ctx = test_ctx_new(1);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct class_order *order;
        assert_int_not_equal(order_new(ctx, cases[i].name, cases[i].n_classes, &order), DER_OK);
        assert_null(order);
        if (!strstr(der_ctx_error(ctx), cases[i].expected))
            fail_msg("'%s' says: %s", cases[i].name, der_ctx_error(ctx));
    }
    test_ctx_free(ctx);
}

static void test_texts_that_are_no_permutation_are_refused(void **state)
{
    (void)state;
    static const struct refusal cases[] = {
        {"0 1 2 1", 4, "class 1 appears twice, as entry 2 and 4"},
        {"0 1 4 2", 4, "entry 3 is class 4, want 0 to 3"},
        {"0 1 2", 4, "3 classes, want 4"},
        {"0 1\n2 3 0", 4, "line 2: more than 4 classes"},
        {"0\n1\n-2 3", 4, "line 3: '-2' is not a class number"},
        {"0,1,[2],3", 4, "'[2]'"},
        {"0,1,2,3.0", 4, "'3.0'"},
        {"0 1 2 1234567890", 4, "'1234567890'"},
        {"", 4, "0 classes, want 4"},
        {" \n,, ", 1, "0 classes, want 1"},
        {"\x01\xff", 1, "'\?\?' is not"},
    };
    struct der_ctx *ctx = test_ctx_new(1);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct class_order *order;
        assert_int_equal(order_parse(ctx, "x.txt", cases[i].name, strlen(cases[i].name),
                                     cases[i].n_classes, &order),
                         DER_FORMAT);
        assert_null(order);
        if (!strstr(der_ctx_error(ctx), cases[i].expected) || !strstr(der_ctx_error(ctx), "x.txt"))
            fail_msg("'%s' says: %s", cases[i].name, der_ctx_error(ctx));
    }
    test_ctx_free(ctx);
}

static void test_a_file_is_read_with_any_separators(void **state)
{
    (void)state;
    static const int32_t want[] = {4, 0, 2, 3, 1};
    struct der_ctx *ctx = test_ctx_new(1);
    char path[] = "/tmp/der-order-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    static const char text[] = "4, 0\r\n2\t3,\n\n1";
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
    struct class_order *order;
    assert_ok(ctx, order_new(ctx, path, 5, &order));
    assert_memory_equal(order->class_of, want, sizeof want);
    order_free(order);
    unlink(path);
    test_ctx_free(ctx);
}

static void test_an_array_is_checked(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    struct class_order *order;
    assert_ok(ctx, order_from_array(ctx, "array", (int32_t[]){2, 0, 1}, 3, &order));
    assert_is_permutation(order);
    order_free(order);
    assert_int_equal(order_from_array(ctx, "array", (int32_t[]){2, 0, -1}, 3, &order), DER_FORMAT);
    test_ctx_free(ctx);
}

static void test_memory_failures_leave_nothing(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    enum der_status status = DER_NOMEM;
    for (uint64_t n = 1; status == DER_NOMEM; n++) {
        struct class_order *order;
        atomic_store(&ctx->mem.fail_at, atomic_load(&ctx->mem.n_allocs) + n);
        status = order_new(ctx, "seed:1", 10, &order);
        if (status == DER_OK)
            order_free(order);
        assert_int_equal(der_ctx_memory(ctx).n_live, 0);
        assert_true(n < 10);
    }
    assert_int_equal(status, DER_OK);
    test_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_seeded_orders_are_numpys),
        cmocka_unit_test(test_seed_1993_begins_as_everybody_knows_it),
        cmocka_unit_test(test_paper_orders_are_permutations),
        cmocka_unit_test(test_names_that_make_no_sense_are_refused),
        cmocka_unit_test(test_texts_that_are_no_permutation_are_refused),
        cmocka_unit_test(test_a_file_is_read_with_any_separators),
        cmocka_unit_test(test_an_array_is_checked),
        cmocka_unit_test(test_memory_failures_leave_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * The list of networks as programs outside the library see it.
 */
#include <der/network.h>

#include "support/test_ctx.h"

#include <string.h>

static void test_every_network_describes_itself(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    bool seen = false;
    assert_true(der_network_count() >= 4);
    for (int i = 0; i < der_network_count(); i++) {
        struct der_network_info info;
        assert_ok(ctx, der_network_describe(ctx, i, 3, &info));
        assert_true(info.parameters > 0 && info.features > 0);
        if (strcmp(info.name, "resnet18-cifar") != 0)
            continue;
        seen = true;
        assert_int_equal(info.parameters, 11168832);
        assert_int_equal(info.features, 512);
        assert_int_equal(info.maskable_channels, 2880);
    }
    assert_true(seen);
    test_ctx_free(ctx);
}

static void test_networks_that_do_not_exist_are_refused(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    struct der_network_info info;
    assert_int_equal(der_network_describe(ctx, -1, 3, &info), DER_ARG);
    assert_int_equal(der_network_describe(ctx, der_network_count(), 3, &info), DER_ARG);
    assert_int_equal(der_network_describe(ctx, 0, 0, &info), DER_ARG);
    assert_null(info.name);
    test_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_network_describes_itself),
        cmocka_unit_test(test_networks_that_do_not_exist_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#include "core/fnv.h"

#include "support/test_ctx.h"

static void test_fnv_has_its_published_values(void **state)
{
    (void)state;
    assert_true(fnv_bytes(FNV_START, "", 0) == UINT64_C(0xcbf29ce484222325));
    assert_true(fnv_bytes(FNV_START, "a", 1) == UINT64_C(0xaf63dc4c8601ec8c));
    assert_true(fnv_bytes(FNV_START, "foobar", 6) == UINT64_C(0x85944171f73967e8));
    assert_true(fnv_bytes(fnv_bytes(FNV_START, "foo", 3), "bar", 3) ==
                UINT64_C(0x85944171f73967e8));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_fnv_has_its_published_values)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

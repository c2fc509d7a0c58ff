/*
 * Status codes and the record of the build.
 */
#include <der/der.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const enum der_status all[] = {
#define STATUS_VALUE(constant, value, name, text) constant,
    DER_STATUS_LIST(STATUS_VALUE)
#undef STATUS_VALUE
};

enum { N_ALL = (int)(sizeof all / sizeof all[0]) };

static void test_success_is_zero_and_failures_are_negative(void **state)
{
    (void)state;
    assert_int_equal(DER_OK, 0);
    for (int i = 1; i < N_ALL; i++)
        assert_true((int)all[i] < 0);
}

static void test_every_status_has_its_own_name_and_a_text(void **state)
{
    (void)state;
    for (int i = 0; i < N_ALL; i++) {
        assert_string_not_equal(der_status_name(all[i]), "unknown");
        assert_true(strlen(der_status_text(all[i])) > 0);
        for (int j = 0; j < i; j++)
            assert_string_not_equal(der_status_name(all[i]), der_status_name(all[j]));
    }
    assert_string_equal(der_status_name(DER_NOMEM), "nomem");
    assert_string_equal(der_status_text(DER_NOMEM), "out of memory");
}

static void test_a_value_that_is_no_status_is_called_unknown(void **state)
{
    (void)state;
    assert_string_equal(der_status_name((enum der_status)(-99)), "unknown");
    assert_string_equal(der_status_text((enum der_status)(-99)), "unknown status");
}

static void test_library_and_header_agree_on_the_version(void **state)
{
    (void)state;
    char text[32];
    snprintf(text, sizeof text, "%d.%d.%d", DER_VERSION_MAJOR, DER_VERSION_MINOR,
             DER_VERSION_PATCH);
    assert_string_equal(der_version(), text);
}

static void test_build_record_is_complete(void **state)
{
    (void)state;
    const struct der_build_info *info = der_build_info();
    assert_ptr_equal(info->version, der_version());
    assert_true(strlen(info->compiler) > 0 && strlen(info->build_type) > 0);
    assert_non_null(info->back_ends);
    assert_non_null(info->formats);
    assert_non_null(info->dnnl);
    assert_non_null(info->openmp);
    assert_non_null(info->cuda);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_success_is_zero_and_failures_are_negative),
        cmocka_unit_test(test_every_status_has_its_own_name_and_a_text),
        cmocka_unit_test(test_a_value_that_is_no_status_is_called_unknown),
        cmocka_unit_test(test_library_and_header_agree_on_the_version),
        cmocka_unit_test(test_build_record_is_complete),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

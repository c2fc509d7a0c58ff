/*
 * Numbers in texts: what is read and what is not, and points where a locale has something else. That all of it
 * works in such a locale is seen from outside, by tests/install.
 */
#include "core/decimal.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void test_numbers_are_read_up_to_what_follows(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        double value;
        const char *end;
    } cases[] = {{"0.25", 0.25, ""},   {"-3", -3.0, ""},   {"+1.5e-3k", 1.5e-3, "k"},
                 {"2.", 2.0, ""},      {".5M", 0.5, "M"},  {"1.2.3", 1.2, ".3"},
                 {"1,5", 1.0, ",5"},   {"7e", 7.0, "e"},   {"0x10", 0.0, "x10"},
                 {"1e308", 1e308, ""}, {"5 ", 5.0, " "},   {"1-2", 1.0, "-2"},
                 {"0.1", 0.1, ""},     {"3.e1", 30.0, ""}, {"0.5.", 0.5, "."}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double value = NAN;
        const char *end = NULL;
        assert_true(decimal_read(cases[i].text, &value, &end));
        assert_true(value == cases[i].value);
        assert_string_equal(end, cases[i].end);
    }
}

static void test_what_is_no_number_is_not_read(void **state)
{
    (void)state;
    static const char *const texts[] = {"",  " 1", "inf", "nan",   "x",      ".",
                                        "-", "e5", "+.e", "1e309", "-1e400", ",5"};
    char many[DECIMAL_TEXT_MAX + 1];
    memset(many, '1', DECIMAL_TEXT_MAX);
    many[DECIMAL_TEXT_MAX] = '\0';
    double value;
    const char *end;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        assert_false(decimal_read(texts[i], &value, &end));
    assert_false(decimal_read(many, &value, &end));
    assert_true(decimal_read(many + 1, &value, &end));
    assert_string_equal(end, "");
}

static void test_points_replace_what_a_locale_writes(void **state)
{
    (void)state;
    static const struct {
        const char *text, *want;
    } cases[] = {{"0,5", "0.5"},
                 {"0.5", "0.5"},
                 {"-1,25e+20", "-1.25e+20"},
                 {"3\xd9\xab"
                  "75",
                  "3.75"},
                 {"12", "12"},
                 {"1e-05", "1e-05"},
                 {"inf", "inf"},
                 {"-inf", "-inf"},
                 {"nan", "nan"},
                 {"", ""}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[DECIMAL_TEXT_MAX];
        (void)snprintf(text, sizeof text, "%s", cases[i].text);
        decimal_point(text);
        assert_string_equal(text, cases[i].want);
    }
}

static void test_numbers_are_written_with_so_many_digits(void **state)
{
    (void)state;
    char text[DECIMAL_TEXT_MAX];
    decimal_write(0.1, 15, text);
    assert_string_equal(text, "0.1");
    decimal_write(1.0 / 3.0, 3, text);
    assert_string_equal(text, "0.333");
    decimal_write(-0x1p53, 16, text);
    assert_string_equal(text, "-9007199254740992");
    decimal_write(-1.7976931348623157e308, 17, text);
    assert_string_equal(text, "-1.7976931348623157e+308");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers_are_read_up_to_what_follows),
        cmocka_unit_test(test_what_is_no_number_is_not_read),
        cmocka_unit_test(test_points_replace_what_a_locale_writes),
        cmocka_unit_test(test_numbers_are_written_with_so_many_digits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#include "core/utf8.h"

#include "support/test_ctx.h"

#include <string.h>

static bool valid(const char *text)
{
    return utf8_is_valid(text, strlen(text));
}

static void test_the_ends_of_every_length_pass(void **state)
{
    (void)state;
    assert_true(valid(""));
    assert_true(utf8_is_valid("\0", 1));
    assert_true(valid("\x7f\xc2\x80\xdf\xbf\xe0\xa0\x80\xed\x9f\xbf\xee\x80\x80\xef\xbf\xbf"
                      "\xf0\x90\x80\x80\xf4\x8f\xbf\xbf"));
}

static void test_overlong_forms_surrogates_and_more_are_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "\x80",         "\xc0\x80",         "\xc1\xbf",         "\xe0\x9f\xbf",     "\xed\xa0\x80",
        "\xed\xbf\xbf", "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff",
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_false(valid(bad[i]));
}

static void test_a_cut_or_broken_sequence_is_refused(void **state)
{
    (void)state;
    assert_false(valid("a\xc3"));
    assert_false(valid("\xe2\x82"));
    assert_false(valid("\xf0\x9f\x98"));
    assert_false(valid("\xe2\x28\xac"));
    assert_false(valid("\xe2\x82\x28"));
    assert_false(valid("\xf0\x9f\x98z"));
    /* The byte behind the given length is not looked at. */
    assert_false(utf8_is_valid("\xc3\xa9", 1));
}

static void test_characters_are_as_long_as_they_are(void **state)
{
    (void)state;
    static const char *const texts[] = {"", "a", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80"};
    for (size_t n = 0; n < sizeof texts / sizeof texts[0]; n++) {
        assert_int_equal(utf8_character(texts[n], strlen(texts[n])), n);
        for (size_t cut = 0; cut < n; cut++)
            assert_int_equal(utf8_character(texts[n], cut), 0);
    }
    assert_int_equal(utf8_character("\xc3\xa9 and more", 11), 2);
    assert_int_equal(utf8_character("\xa9", 1), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_ends_of_every_length_pass),
        cmocka_unit_test(test_overlong_forms_surrogates_and_more_are_refused),
        cmocka_unit_test(test_characters_are_as_long_as_they_are),
        cmocka_unit_test(test_a_cut_or_broken_sequence_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

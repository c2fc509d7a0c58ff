#include "fetch/range_header.h"

#include "support/test_ctx.h"

#include <string.h>

static void test_ranges_are_read(void **state)
{
    (void)state;
    struct content_range r;
    assert_true(content_range_parse("bytes 0-9/10", &r));
    assert_true(r.first == 0 && r.last == 9 && r.size == 10);
    assert_true(content_range_parse("  Bytes\t 5-9/*  ", &r));
    assert_true(r.first == 5 && r.last == 9 && r.size == -1);
    assert_true(content_range_parse(
        "bytes 9223372036854775806-9223372036854775806/9223372036854775807", &r));
    assert_true(r.last == INT64_MAX - 1 && r.size == INT64_MAX);
}

static void test_anything_else_is_no_range(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",
        "bytes",
        "bytes ",
        "bytes */10",
        "bytes=0-9/10",
        "lines 0-9/10",
        "bytes -9/10",
        "bytes 0-/10",
        "bytes 0-9",
        "bytes 0-9/",
        "bytes 0-9/10x",
        "bytes 9-0/10",
        "bytes 0-10/10",
        "bytes -1-9/10",
        "bytes 0-9/9223372036854775808",
        "bytes 0-9/99999999999999999999999999",
        "bytes 0x1-9/10",
    };
    struct content_range r;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (content_range_parse(bad[i], &r))
            fail_msg("'%s' was taken for a range", bad[i]);
}

static void test_strong_tags_are_copied(void **state)
{
    (void)state;
    char tag[ETAG_MAX];
    assert_true(etag_copy(" \"abc-1\" ", tag));
    assert_string_equal(tag, "\"abc-1\"");
    assert_true(etag_copy("\"\"", tag));
    assert_string_equal(tag, "\"\"");
    static const char *const bad[] = {"",        "abc",         "W/\"abc\"",        "\"abc",
                                      "\"a b\"", "\"a\" \"b\"", "\"a\r\nHost: x\"", "\"",
                                      "a\"b\"",  "\"a\"b"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (etag_copy(bad[i], tag))
            fail_msg("'%s' was taken for a tag", bad[i]);
}

static void test_a_tag_fits_or_is_none(void **state)
{
    (void)state;
    char tag[ETAG_MAX];
    char text[ETAG_MAX + 8];
    for (size_t length = ETAG_MAX - 3; length < ETAG_MAX + 4; length++) {
        memset(text, 'x', length);
        text[0] = '"';
        text[length - 1] = '"';
        text[length] = '\0';
        assert_int_equal(etag_copy(text, tag), length < ETAG_MAX);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranges_are_read),
        cmocka_unit_test(test_anything_else_is_no_range),
        cmocka_unit_test(test_strong_tags_are_copied),
        cmocka_unit_test(test_a_tag_fits_or_is_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

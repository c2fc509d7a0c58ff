/*
 * Data in a page: what comes out of the script element is what went in, and nothing ends that element early.
 */
#include "report/page.h"

#include "core/utf8.h"
#include "report/base64.h"
#include "support/file_fixture.h"

#include <string.h>

static const char OPENING[] = "<script type=\"application/json\" id=\"data\">";
static const char HOSTILE[] = "</script><script>alert(1)</script> <!-- & 'quotes' \"double\" "
                              "\xe2\x80\xa8 \xe2\x80\xa9 \xc3\xa9 \\";

/* The page of a document with this title; caller frees. */
static char *write_page_of(struct file_fixture *f, const char *title)
{
    struct file_bytes bytes = {0};
    struct fault fault;
    int64_t n;
    cJSON *document = cJSON_CreateObject();
    assert_non_null(cJSON_AddStringToObject(document, "title", title));
    assert_ok(f->ctx,
              page_write(f->ctx, NULL, scratch_path(&f->scratch, "page.html"), document, &n));
    json_free(document);
    assert_int_equal(file_read(&f->ctx->mem, NULL, scratch_path(&f->scratch, "page.html"), 1 << 20,
                               &bytes, &fault),
                     DER_OK);
    assert_int_equal(bytes.size, n);
    return (char *)bytes.data;
}

static char *write_page(struct file_fixture *f)
{
    return write_page_of(f, HOSTILE);
}

static int count(const char *text, const char *part)
{
    int n = 0;
    for (const char *at = strstr(text, part); at; at = strstr(at + 1, part))
        n++;
    return n;
}

static void test_data_comes_back_and_stays_data(void **state)
{
    struct file_fixture *f = *state;
    char *page = write_page(f);
    const char *data = strstr(page, OPENING) + strlen(OPENING);
    const char *end = strstr(data, "</script");
    cJSON *back;
    assert_ok(f->ctx, json_parse(f->ctx, "page", data, (size_t)(end - data), &back));
    assert_string_equal(cJSON_GetObjectItem(back, "title")->valuestring, HOSTILE);
    json_free(back);
    for (const char *at = data; at < end; at++)
        assert_null(memchr("<>&'", *at, 4));
    assert_int_equal(count(page, "<script"), 2);
    assert_int_equal(count(page, "</script"), 2);
    const char *separator = strstr(data, "\xe2\x80\xa8");
    assert_true(!separator || separator > end);
    mem_free(&f->ctx->mem, page);
}

static void test_the_title_is_text(void **state)
{
    struct file_fixture *f = *state;
    char *page = write_page(f);
    const char *title = strstr(page, "<title>") + strlen("<title>");
    assert_memory_equal(title, "&#60;/script&#62;&#60;script&#62;alert(1)", 40);
    mem_free(&f->ctx->mem, page);
}

static void test_names_that_are_no_utf8_make_no_page_that_is_none(void **state)
{
    struct file_fixture *f = *state;
    char *page = write_page_of(f, "caf\xe9 \xe2\x80");
    assert_true(utf8_is_valid(page, strlen(page)));
    static const char shown[] = "caf\xef\xbf\xbd \xef\xbf\xbd\xef\xbf\xbd";
    const char *title = strstr(page, shown);
    assert_non_null(title);
    assert_non_null(strstr(title + 1, shown)); /* among the data */
    mem_free(&f->ctx->mem, page);
}

static void test_every_part_is_in_the_page(void **state)
{
    struct file_fixture *f = *state;
    char *page = write_page(f);
    int n = 0;
    for (const struct page_file *file = PAGE_FILES; file->name; file++, n++)
        if (strcmp(file->name, "page.html") != 0)
            assert_non_null(strstr(page, (const char *)file->data));
    assert_true(n > 3);
    assert_null(strstr(page, "<!--put"));
    assert_non_null(strstr(page, "</html>"));
    mem_free(&f->ctx->mem, page);
}

static void test_base64_is_the_rfc(void **state)
{
    struct file_fixture *f = *state;
    static const char *const pairs[][2] = {{"", ""},
                                           {"f", "Zg=="},
                                           {"fo", "Zm8="},
                                           {"foo", "Zm9v"},
                                           {"foob", "Zm9vYg=="},
                                           {"fooba", "Zm9vYmE="},
                                           {"foobar", "Zm9vYmFy"},
                                           {"\xff\xfe\xfd", "//79"}};
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        struct text text = {.mem = &f->ctx->mem};
        char *out;
        base64_put(&text, (const uint8_t *)pairs[i][0], strlen(pairs[i][0]));
        assert_ok(f->ctx, text_finish(f->ctx, &text, &out));
        assert_string_equal(out, pairs[i][1]);
        mem_free(&f->ctx->mem, out);
    }
}

int main(void)
{
#define TEST(name)                                                                                 \
    cmocka_unit_test_setup_teardown(name, file_fixture_set_up, file_fixture_tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_data_comes_back_and_stays_data),
        TEST(test_the_title_is_text),
        TEST(test_names_that_are_no_utf8_make_no_page_that_is_none),
        TEST(test_every_part_is_in_the_page),
        TEST(test_base64_is_the_rfc),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

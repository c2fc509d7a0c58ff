#include "json/json.h"
#include "support/test_ctx.h"

#include <string.h>

static enum der_status parse(struct der_ctx *ctx, const char *text, cJSON **out)
{
    return json_parse(ctx, "test.json", text, strlen(text), out);
}

static void test_members_are_read_by_type(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    cJSON *root;
    const char *text;
    int64_t number;
    double real;
    const cJSON *inner;
    assert_ok(
        ctx,
        parse(ctx, " {\"a\": \"x\\u00e9\", \"n\": 7, \"r\": 0.5, \"o\": {}, \"l\": []}\n", &root));
    assert_ok(ctx, json_get_text(ctx, "t", root, "a", &text));
    assert_string_equal(text, "x\xc3\xa9");
    assert_ok(ctx, json_get_int(ctx, "t", root, "n", 0, 7, &number));
    assert_int_equal(number, 7);
    assert_ok(ctx, json_get_number(ctx, "t", root, "r", &real));
    assert_true(real == 0.5);
    assert_ok(ctx, json_get_object(ctx, "t", root, "o", &inner));
    assert_ok(ctx, json_get_array(ctx, "t", root, "l", &inner));
    assert_int_equal(json_get_int(ctx, "t", root, "n", 0, 6, &number), DER_FORMAT);
    assert_int_equal(json_get_int(ctx, "t", root, "r", 0, 6, &number), DER_FORMAT);
    assert_int_equal(json_get_text(ctx, "t", root, "n", &text), DER_FORMAT);
    assert_string_equal(der_ctx_error(ctx), "t: 'n' must be a text");
    assert_int_equal(json_get_text(ctx, "t", root, "b", &text), DER_FORMAT);
    assert_string_equal(der_ctx_error(ctx), "t: 'b' is missing");
    json_free(root);
    test_ctx_free(ctx);
}

static void test_a_malformed_text_names_its_line(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    cJSON *root;
    assert_int_equal(parse(ctx, "{\n\"a\": 1,\n\"b\": oops}", &root), DER_FORMAT);
    assert_string_equal(der_ctx_error(ctx), "test.json: line 3 is not JSON");
    assert_null(root);
    assert_int_equal(parse(ctx, "", &root), DER_FORMAT);
    assert_int_equal(parse(ctx, "{} {}", &root), DER_FORMAT);
    assert_non_null(strstr(der_ctx_error(ctx), "follows"));
    test_ctx_free(ctx);
}

static void test_zero_characters_are_refused(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    cJSON *root;
    const char *text;
    assert_int_equal(parse(ctx, "{\n\"a\": \"x\\u0000y\"}", &root), DER_FORMAT);
    assert_string_equal(der_ctx_error(ctx), "test.json: line 2 holds a zero character");
    assert_int_equal(parse(ctx, "\"\\\\\\u0000\"", &root), DER_FORMAT);
    assert_int_equal(json_parse(ctx, "t", "\"a\0b\"", 5, &root), DER_FORMAT);
    assert_null(root);
    /* An escaped backslash in front of letters that only look like one. */
    assert_ok(ctx, parse(ctx, "{\"a\": \"\\\\u0000\"}", &root));
    assert_ok(ctx, json_get_text(ctx, "t", root, "a", &text));
    assert_string_equal(text, "\\u0000");
    json_free(root);
    assert_int_equal(parse(ctx, "\"\\u000", &root), DER_FORMAT);
    test_ctx_free(ctx);
}

static void test_doubles_survive_printing(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    const double value = 100.0 / 3.0;
    cJSON *object = cJSON_CreateObject();
    char *text;
    cJSON *again;
    double read;
    cJSON_AddNumberToObject(object, "v", value);
    assert_ok(ctx, json_print(ctx, object, false, &text));
    assert_null(strchr(text, '\n'));
    assert_ok(ctx, parse(ctx, text, &again));
    assert_ok(ctx, json_get_number(ctx, "t", again, "v", &read));
    assert_true(read == value);
    mem_free(&ctx->mem, text);
    json_free(again);
    json_free(object);
    test_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_members_are_read_by_type),
        cmocka_unit_test(test_a_malformed_text_names_its_line),
        cmocka_unit_test(test_zero_characters_are_refused),
        cmocka_unit_test(test_doubles_survive_printing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * What a caller of the safetensors writer may get wrong: each is refused, and no file appears.
 */
#include "io/safetensors.h"

#include "support/file_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct safetensors_tensor LONGS = {"longs", SAFETENSORS_I64, 1, {2}, 0, 0};
static const struct safetensors_tensor SCALAR = {"scalar", SAFETENSORS_I64, 0, {0}, 0, 0};

static void assert_declare_refused(struct file_fixture *f, struct safetensors_tensor tensor,
                                   const char *message)
{
    struct safetensors_writer *w;
    assert_ok(f->ctx, safetensors_writer_new(f->ctx, NULL, scratch_path(&f->scratch, "bad"), &w));
    assert_ok(f->ctx, safetensors_declare(
                          w, &(struct safetensors_tensor){
                                 .name = "a", .rank = 1, .dim = {3}, .dtype = SAFETENSORS_U8}));
    assert_int_equal(safetensors_declare(w, &tensor), DER_ARG);
    assert_non_null(strstr(der_ctx_error(f->ctx), message));
    safetensors_abort(w);
    safetensors_abort(NULL);
    assert_int_equal(access(scratch_path(&f->scratch, "bad"), F_OK), -1);
}

static void test_impossible_declarations_are_refused(void **state)
{
    struct file_fixture *f = *state;
    const struct safetensors_tensor good = {"x", SAFETENSORS_U8, 1, {1}, 0, 0};
    struct safetensors_tensor t = good;
    t.name = "__metadata__";
    assert_declare_refused(f, t, "cannot be called '__metadata__'");
    t.name = "";
    assert_declare_refused(f, t, "cannot be called ''");
    t.name = "a\nb";
    assert_declare_refused(f, t, "cannot be called");
    t.name = "caf\xe9";
    assert_declare_refused(f, t, "cannot be called");
    t = good;
    t.dim[0] = -1;
    assert_declare_refused(f, t, "'x' has an impossible shape");
    t.dim[0] = INT64_MAX;
    t.dim[1] = 4;
    t.rank = 2;
    assert_declare_refused(f, t, "'x' has an impossible shape");
    t.rank = SAFETENSORS_MAX_RANK + 1;
    assert_declare_refused(f, t, "'x' has an impossible shape");
    t = good;
    t.dtype = SAFETENSORS_F32;
    assert_declare_refused(f, t, "'x' of type F32 would begin at byte 3; wider types");
}

static void test_names_and_keys_that_occur_twice_are_refused(void **state)
{
    struct file_fixture *f = *state;
    struct safetensors_writer *w;
    assert_ok(f->ctx, safetensors_writer_new(f->ctx, NULL, scratch_path(&f->scratch, "a"), &w));
    assert_ok(f->ctx, safetensors_describe(w, "k", "1"));
    assert_int_equal(safetensors_describe(w, "k", "2"), DER_ARG);
    assert_non_null(strstr(der_ctx_error(f->ctx), "metadata 'k' is there already"));
    assert_int_equal(safetensors_describe(w, "l", "\xff"), DER_ARG);
    assert_non_null(strstr(der_ctx_error(f->ctx), "metadata 'l' is not UTF-8 text"));
    assert_ok(f->ctx, safetensors_declare(w, &LONGS));
    assert_ok(f->ctx, safetensors_declare(w, &LONGS));
    assert_int_equal(safetensors_commit(w), DER_FORMAT);
    assert_non_null(strstr(der_ctx_error(f->ctx), "tensor 'longs' is there twice"));
    assert_int_equal(access(scratch_path(&f->scratch, "a"), F_OK), -1);
}

static void test_data_in_another_order_or_amount_is_refused(void **state)
{
    struct file_fixture *f = *state;
    static const struct {
        const char *name;
        size_t size;
        const char *message;
    } puts[] = {
        {"scalar", 8, "tensor 'scalar' was put, the next one is 'longs'"},
        {"longs", 17, "tensor 'longs' has 16 bytes, 1 more were put"},
        {"longs", 15, "tensor 'longs' is not complete"},
        {"longs", 16, "tensor 'scalar' is not complete"},
    };
    char data[17] = {0};
    for (int i = 0; i < 4; i++) {
        struct safetensors_writer *w;
        assert_ok(f->ctx, safetensors_writer_new(f->ctx, NULL, scratch_path(&f->scratch, "a"), &w));
        assert_ok(f->ctx, safetensors_declare(w, &LONGS));
        assert_ok(f->ctx, safetensors_declare(w, &SCALAR));
        enum der_status status = safetensors_put(w, puts[i].name, data, puts[i].size);
        if (status == DER_OK)
            status = safetensors_commit(w);
        else
            safetensors_abort(w);
        assert_int_equal(status, DER_ARG);
        assert_non_null(strstr(der_ctx_error(f->ctx), puts[i].message));
        assert_int_equal(access(scratch_path(&f->scratch, "a"), F_OK), -1);
    }
    struct safetensors_writer *w;
    assert_ok(f->ctx, safetensors_writer_new(f->ctx, NULL, scratch_path(&f->scratch, "a"), &w));
    assert_ok(f->ctx, safetensors_declare(w, &SCALAR));
    assert_ok(f->ctx, safetensors_put(w, "scalar", data, 8));
    assert_int_equal(safetensors_put(w, "scalar", data, 1), DER_ARG);
    assert_non_null(strstr(der_ctx_error(f->ctx), "all tensors are complete, 'scalar' is more"));
    safetensors_abort(w);
}

static void test_a_header_that_could_not_be_read_again_is_refused(void **state)
{
    struct file_fixture *f = *state;
    struct safetensors_writer *w;
    char *text = malloc(SAFETENSORS_MAX_HEADER + 1);
    assert_non_null(text);
    memset(text, 'x', SAFETENSORS_MAX_HEADER);
    text[SAFETENSORS_MAX_HEADER] = '\0';
    assert_ok(f->ctx, safetensors_writer_new(f->ctx, NULL, scratch_path(&f->scratch, "a"), &w));
    assert_ok(f->ctx, safetensors_describe(w, "long", text));
    free(text);
    assert_int_equal(safetensors_commit(w), DER_ARG);
    assert_non_null(strstr(der_ctx_error(f->ctx), "bytes could not be read again"));
    assert_int_equal(access(scratch_path(&f->scratch, "a"), F_OK), -1);
}

int main(void)
{
#define CASE(name)                                                                                 \
    cmocka_unit_test_setup_teardown(name, file_fixture_set_up, file_fixture_tear_down)
    const struct CMUnitTest tests[] = {
        CASE(test_impossible_declarations_are_refused),
        CASE(test_names_and_keys_that_occur_twice_are_refused),
        CASE(test_data_in_another_order_or_amount_is_refused),
        CASE(test_a_header_that_could_not_be_read_again_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

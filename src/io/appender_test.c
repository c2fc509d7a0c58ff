#include "io/appender.h"

#include "support/faulty_calls.h"
#include "support/file_fixture.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static void assert_content(struct file_fixture *f, const char *expected)
{
    struct file_bytes bytes = {0};
    struct fault fault;
    if (file_read(&f->ctx->mem, NULL, scratch_path(&f->scratch, "m"), 1 << 20, &bytes, &fault) !=
        DER_OK)
        fail_msg("%s", fault.text);
    assert_string_equal((const char *)bytes.data, expected);
    file_bytes_free(&f->ctx->mem, &bytes);
}

static enum der_status open_at(struct file_fixture *f, const struct io_calls *io, int64_t length,
                               struct appender **out)
{
    return appender_open(f->ctx, io, scratch_path(&f->scratch, "m"), length, out);
}

static void test_lines_are_added_and_counted(void **state)
{
    struct file_fixture *f = *state;
    struct appender *a;
    assert_ok(f->ctx, open_at(f, NULL, 0, &a));
    assert_int_equal(appender_length(a), 0);
    assert_ok(f->ctx, appender_line(a, "{\"a\":1}"));
    assert_ok(f->ctx, appender_line(a, ""));
    assert_content(f, "{\"a\":1}\n\n");
    assert_ok(f->ctx, appender_sync(a));
    assert_int_equal(appender_length(a), 9);
    appender_close(a);
    appender_close(NULL);
}

static void test_resuming_goes_back_to_the_recorded_length(void **state)
{
    struct file_fixture *f = *state;
    struct appender *a;
    scratch_text(&f->scratch, "m", "one\ntwo\nthree\nhalf a li");
    assert_ok(f->ctx, open_at(f, NULL, 8, &a));
    assert_content(f, "one\ntwo\n");
    assert_ok(f->ctx, appender_line(a, "3"));
    assert_int_equal(appender_length(a), 10);
    assert_content(f, "one\ntwo\n3\n");
    appender_close(a);
    assert_ok(f->ctx, open_at(f, NULL, 0, &a));
    assert_content(f, "");
    appender_close(a);
}

static void test_a_file_that_does_not_fit_the_length_is_refused_untouched(void **state)
{
    struct file_fixture *f = *state;
    struct appender *a;
    scratch_text(&f->scratch, "m", "one\ntwo\n");
    assert_int_equal(open_at(f, NULL, 9, &a), DER_FORMAT);
    assert_non_null(strstr(der_ctx_error(f->ctx), "/m has 8 bytes, fewer than the 9 expected"));
    assert_int_equal(open_at(f, NULL, 5, &a), DER_FORMAT);
    assert_non_null(strstr(der_ctx_error(f->ctx), "/m: no line ends at byte 5"));
    assert_int_equal(open_at(f, NULL, -1, &a), DER_ARG);
    assert_null(a);
    assert_content(f, "one\ntwo\n");
}

static void test_absent_files_folders_and_pipes_are_refused(void **state)
{
    struct file_fixture *f = *state;
    struct appender *a;
    assert_int_equal(open_at(f, NULL, 4, &a), DER_IO);
    assert_non_null(strstr(der_ctx_error(f->ctx), "No such file"));
    assert_int_equal(appender_open(f->ctx, NULL, f->scratch.root, 0, &a), DER_IO);
    assert_int_equal(mkfifo(scratch_path(&f->scratch, "m"), 0600), 0);
    assert_int_equal(open_at(f, NULL, 0, &a), DER_IO);
    assert_non_null(strstr(der_ctx_error(f->ctx), "not a regular file"));
}

static void test_a_line_goes_out_in_one_call(void **state)
{
    struct file_fixture *f = *state;
    struct faulty_calls calls = {0};
    struct io_calls io = faulty_calls(&calls);
    char line[5000];
    struct appender *a;
    memset(line, 'x', sizeof line - 1);
    line[sizeof line - 1] = '\0';
    assert_ok(f->ctx, open_at(f, &io, 0, &a));
    int before = calls.n_calls;
    assert_ok(f->ctx, appender_line(a, line));
    assert_int_equal(calls.n_calls, before + 1);
    assert_int_equal(appender_length(a), sizeof line);
    appender_close(a);
}

static void test_short_and_interrupted_calls_are_put_together(void **state)
{
    struct file_fixture *f = *state;
    struct faulty_calls calls = {.most = 2, .interrupts = true};
    struct io_calls io = faulty_calls(&calls);
    struct appender *a;
    scratch_text(&f->scratch, "m", "one\ntwo");
    assert_ok(f->ctx, open_at(f, &io, 4, &a));
    assert_ok(f->ctx, appender_line(a, "second"));
    assert_ok(f->ctx, appender_sync(a));
    appender_close(a);
    assert_content(f, "one\nsecond\n");
}

static enum der_status two_lines(struct file_fixture *f, const struct io_calls *io)
{
    struct appender *a;
    TRY(open_at(f, io, 4, &a));
    enum der_status status = appender_line(a, "second");
    if (status == DER_OK)
        status = appender_sync(a);
    if (status == DER_OK)
        status = appender_line(a, "third");
    appender_close(a);
    return status;
}

static void test_whichever_call_fails_whole_lines_remain(void **state)
{
    struct file_fixture *f = *state;
    static const char *const allowed[] = {"one\nrest", "one\n", "one\nsecond\n",
                                          "one\nsecond\nthird\n"};
    int n_failed = 0;
    for (int k = 1;; k++) {
        struct faulty_calls calls = {.fail_at = k, .error = ENOSPC, .most = 3, .is_full = true};
        struct io_calls io = faulty_calls(&calls);
        scratch_text(&f->scratch, "m", "one\nrest");
        enum der_status status = two_lines(f, &io);
        struct file_bytes bytes = {0};
        struct fault fault;
        assert_int_equal(
            file_read(&f->ctx->mem, NULL, scratch_path(&f->scratch, "m"), 100, &bytes, &fault),
            DER_OK);
        bool is_whole = false;
        for (int i = 0; i < 4; i++)
            is_whole = is_whole || strcmp((const char *)bytes.data, allowed[i]) == 0;
        assert_true(is_whole);
        file_bytes_free(&f->ctx->mem, &bytes);
        if (!calls.failed_call)
            break;
        if (status == DER_OK) {
            assert_string_equal(calls.failed_call, "close");
            continue;
        }
        assert_int_equal(status, DER_IO);
        assert_non_null(strstr(der_ctx_error(f->ctx), "/m: No space left on device"));
        n_failed++;
    }
    /* open twice, stat, read, truncate, fsync twice; three writes, fsync, two writes */
    assert_int_equal(n_failed, 2 + 1 + 1 + 1 + 2 + 3 + 1 + 2);
}

static void test_lack_of_memory_is_told(void **state)
{
    struct file_fixture *f = *state;
    struct mem *mem = &f->ctx->mem;
    int n_failed = 0;
    for (uint64_t k = 1;; k++) {
        scratch_text(&f->scratch, "m", "one\n");
        atomic_store(&mem->fail_at, atomic_load(&mem->n_allocs) + k);
        enum der_status status = two_lines(f, NULL);
        bool has_failed = atomic_load(&mem->n_allocs) >= atomic_load(&mem->fail_at);
        atomic_store(&mem->fail_at, 0);
        if (!has_failed)
            break;
        assert_int_equal(status, DER_NOMEM);
        assert_content(f, "one\n");
        n_failed++;
    }
    assert_int_equal(n_failed, 4);
    assert_content(f, "one\nsecond\nthird\n");
}

int main(void)
{
#define CASE(name)                                                                                 \
    cmocka_unit_test_setup_teardown(name, file_fixture_set_up, file_fixture_tear_down)
    const struct CMUnitTest tests[] = {
        CASE(test_lines_are_added_and_counted),
        CASE(test_resuming_goes_back_to_the_recorded_length),
        CASE(test_a_file_that_does_not_fit_the_length_is_refused_untouched),
        CASE(test_absent_files_folders_and_pipes_are_refused),
        CASE(test_a_line_goes_out_in_one_call),
        CASE(test_short_and_interrupted_calls_are_put_together),
        CASE(test_whichever_call_fails_whole_lines_remain),
        CASE(test_lack_of_memory_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

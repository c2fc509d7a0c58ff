#include "core/file.h"

#include "support/scratch.h"
#include "support/test_ctx.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct fixture {
    struct der_ctx *ctx;
    struct scratch scratch;
    struct file_bytes bytes;
    struct fault fault;
};

static int set_up(void **state)
{
    static struct fixture f;
    f = (struct fixture){.ctx = test_ctx_new(1)};
    scratch_init(&f.scratch);
    *state = &f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    file_bytes_free(&f->ctx->mem, &f->bytes);
    scratch_fini(&f->scratch);
    test_ctx_free(f->ctx);
    return 0;
}

static enum der_status read_it(struct fixture *f, const char *name, const struct file_io *io,
                               size_t max_bytes)
{
    return file_read(&f->ctx->mem, io, scratch_path(&f->scratch, name), max_bytes, &f->bytes,
                     &f->fault);
}

static void test_content_is_read_and_ended_by_zero(void **state)
{
    struct fixture *f = *state;
    scratch_write(&f->scratch, "a", "one\0two", 7);
    assert_int_equal(read_it(f, "a", NULL, 100), DER_OK);
    assert_int_equal(f->bytes.size, 7);
    assert_memory_equal(f->bytes.data, "one\0two", 8);
}

static void test_buffer_is_reused(void **state)
{
    struct fixture *f = *state;
    scratch_text(&f->scratch, "long", "a long text");
    scratch_text(&f->scratch, "short", "short");
    assert_int_equal(read_it(f, "long", NULL, 100), DER_OK);
    const uint8_t *block = f->bytes.data;
    assert_int_equal(read_it(f, "short", NULL, 100), DER_OK);
    assert_ptr_equal(f->bytes.data, block);
    assert_string_equal((const char *)f->bytes.data, "short");
}

static void test_short_and_interrupted_reads_are_put_together(void **state)
{
    struct fixture *f = *state;
    struct faulty_reads reads = {.most = 3};
    struct file_io io = faulty_io(&reads);
    scratch_text(&f->scratch, "a", "0123456789");
    assert_int_equal(read_it(f, "a", &io, 100), DER_OK);
    assert_string_equal((const char *)f->bytes.data, "0123456789");
    assert_true(reads.n_calls > 4);
}

static void test_read_error_names_file_and_cause(void **state)
{
    struct fixture *f = *state;
    struct faulty_reads reads = {.most = 3, .fail_at = 3};
    struct file_io io = faulty_io(&reads);
    scratch_text(&f->scratch, "a", "0123456789");
    assert_int_equal(read_it(f, "a", &io, 100), DER_IO);
    assert_non_null(strstr(f->fault.text, f->scratch.path));
    assert_non_null(strstr(f->fault.text, "Input/output error"));
}

static ssize_t nothing(void *user, int fd, void *dst, size_t n)
{
    (void)user;
    (void)fd;
    (void)dst;
    (void)n;
    return 0;
}

static ssize_t no_end(void *user, int fd, void *dst, size_t n)
{
    (void)user;
    (void)fd;
    memset(dst, 'x', n);
    return (ssize_t)n;
}

static void test_file_that_changes_its_size_is_an_error(void **state)
{
    struct fixture *f = *state;
    struct file_io shrunk = {.read = nothing};
    struct file_io grown = {.read = no_end};
    scratch_text(&f->scratch, "a", "text");
    assert_int_equal(read_it(f, "a", &shrunk, 100), DER_IO);
    assert_non_null(strstr(f->fault.text, "ends before 4 bytes"));
    assert_int_equal(read_it(f, "a", &grown, 100), DER_IO);
    assert_non_null(strstr(f->fault.text, "goes on after 4 bytes"));
}

static void test_limit_folder_pipe_and_absence_are_errors(void **state)
{
    struct fixture *f = *state;
    scratch_text(&f->scratch, "a", "12345");
    assert_int_equal(read_it(f, "a", NULL, 4), DER_FORMAT);
    assert_non_null(strstr(f->fault.text, "5 bytes, at most 4"));
    assert_int_equal(read_it(f, "a", NULL, 5), DER_OK);
    assert_int_equal(read_it(f, ".", NULL, 5), DER_IO);
    assert_non_null(strstr(f->fault.text, "folder"));
    assert_int_equal(mkfifo(scratch_path(&f->scratch, "pipe"), 0600), 0);
    assert_int_equal(read_it(f, "pipe", NULL, 5), DER_IO);
    assert_non_null(strstr(f->fault.text, "special file"));
    assert_int_equal(read_it(f, "absent", NULL, 5), DER_IO);
    assert_non_null(strstr(f->fault.text, "No such file"));
}

static void test_no_permission_is_an_error(void **state)
{
    struct fixture *f = *state;
    scratch_text(&f->scratch, "a", "text");
    assert_int_equal(chmod(scratch_path(&f->scratch, "a"), 0), 0);
    /* The superuser may read anything, so become nobody for a moment. */
    bool super = geteuid() == 0;
    if (super) {
        assert_int_equal(chmod(f->scratch.root, 0755), 0);
        assert_int_equal(seteuid(65534), 0);
    }
    enum der_status status = read_it(f, "a", NULL, 100);
    if (super)
        assert_int_equal(seteuid(0), 0);
    assert_int_equal(status, DER_IO);
    assert_non_null(strstr(f->fault.text, "Permission denied"));
}

static void test_lack_of_memory_is_told(void **state)
{
    struct fixture *f = *state;
    scratch_text(&f->scratch, "a", "text");
    atomic_store(&f->ctx->mem.fail_at, atomic_load(&f->ctx->mem.n_allocs) + 1);
    assert_int_equal(read_it(f, "a", NULL, 100), DER_NOMEM);
    assert_int_equal(read_it(f, "a", NULL, 100), DER_OK);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(test_content_is_read_and_ended_by_zero),
        CASE(test_buffer_is_reused),
        CASE(test_short_and_interrupted_reads_are_put_together),
        CASE(test_read_error_names_file_and_cause),
        CASE(test_file_that_changes_its_size_is_an_error),
        CASE(test_limit_folder_pipe_and_absence_are_errors),
        CASE(test_no_permission_is_an_error),
        CASE(test_lack_of_memory_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#include "io/lock.h"

#include "support/file_fixture.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* Another process that holds the lock until it is killed. */
static pid_t start_holder(struct file_fixture *f)
{
    int ready[2];
    char byte;
    assert_int_equal(pipe(ready), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct lock *lock;
        bool holds = lock_take_folder(f->ctx, f->scratch.root, &lock) == DER_OK;
        ssize_t n = write(ready[1], holds ? "y" : "n", 1);
        (void)n;
        for (;;)
            (void)pause();
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    (void)close(ready[0]);
    (void)close(ready[1]);
    assert_int_equal(byte, 'y');
    return child;
}

static void test_a_second_process_is_refused_and_told_by_whom(void **state)
{
    struct file_fixture *f = *state;
    struct lock *lock;
    char expected[SCRATCH_PATH_MAX];
    pid_t holder = start_holder(f);
    enum der_status status = lock_take_folder(f->ctx, f->scratch.root, &lock);
    (void)kill(holder, SIGKILL);
    (void)waitpid(holder, NULL, 0);
    assert_int_equal(status, DER_STATE);
    assert_null(lock);
    (void)snprintf(expected, sizeof expected, "%s is in use by process %ld", f->scratch.root,
                   (long)holder);
    assert_string_equal(der_ctx_error(f->ctx), expected);
}

static void test_a_killed_process_holds_nothing(void **state)
{
    struct file_fixture *f = *state;
    struct lock *lock;
    pid_t holder = start_holder(f);
    assert_int_equal(kill(holder, SIGKILL), 0);
    assert_int_equal(waitpid(holder, NULL, 0), holder);
    assert_ok(f->ctx, lock_take_folder(f->ctx, f->scratch.root, &lock));
    lock_release(lock);
}

static void test_a_released_lock_can_be_taken_again(void **state)
{
    struct file_fixture *f = *state;
    struct lock *one;
    struct lock *two;
    assert_ok(f->ctx, lock_take_folder(f->ctx, f->scratch.root, &one));
    assert_int_equal(lock_take_folder(f->ctx, f->scratch.root, &two), DER_STATE);
    assert_null(two);
    lock_release(one);
    lock_release(NULL);
    assert_ok(f->ctx, lock_take_folder(f->ctx, f->scratch.root, &two));
    lock_release(two);
}

static void test_the_file_names_the_holder_whatever_it_said_before(void **state)
{
    struct file_fixture *f = *state;
    struct lock *lock;
    struct file_bytes bytes = {0};
    struct fault fault;
    char expected[64];
    scratch_text(&f->scratch, "lock", "no number at all, and a long one at that\n");
    assert_ok(f->ctx, lock_take_folder(f->ctx, f->scratch.root, &lock));
    assert_int_equal(
        file_read(&f->ctx->mem, NULL, scratch_path(&f->scratch, "lock"), 100, &bytes, &fault),
        DER_OK);
    (void)snprintf(expected, sizeof expected, "%ld\n", (long)getpid());
    assert_string_equal((const char *)bytes.data, expected);
    file_bytes_free(&f->ctx->mem, &bytes);
    lock_release(lock);
}

static void test_a_holder_without_a_name_is_another_process(void **state)
{
    struct file_fixture *f = *state;
    struct lock *one;
    struct lock *two;
    assert_ok(f->ctx, lock_take_folder(f->ctx, f->scratch.root, &one));
    scratch_text(&f->scratch, "lock", "");
    assert_int_equal(lock_take_folder(f->ctx, f->scratch.root, &two), DER_STATE);
    assert_non_null(strstr(der_ctx_error(f->ctx), "in use by another process"));
    scratch_text(&f->scratch, "lock", "12x\n");
    assert_int_equal(lock_take_folder(f->ctx, f->scratch.root, &two), DER_STATE);
    assert_non_null(strstr(der_ctx_error(f->ctx), "in use by another process"));
    lock_release(one);
}

static void test_an_absent_folder_is_an_error(void **state)
{
    struct file_fixture *f = *state;
    struct lock *lock;
    assert_int_equal(lock_take_folder(f->ctx, scratch_path(&f->scratch, "absent"), &lock), DER_IO);
    assert_non_null(strstr(der_ctx_error(f->ctx), "absent/lock: No such file"));
}

static void test_lack_of_memory_is_told_and_holds_nothing(void **state)
{
    struct file_fixture *f = *state;
    struct mem *mem = &f->ctx->mem;
    struct lock *lock;
    for (uint64_t k = 1; k <= 2; k++) {
        atomic_store(&mem->fail_at, atomic_load(&mem->n_allocs) + k);
        assert_int_equal(lock_take_folder(f->ctx, f->scratch.root, &lock), DER_NOMEM);
        atomic_store(&mem->fail_at, 0);
    }
    assert_ok(f->ctx, lock_take_folder(f->ctx, f->scratch.root, &lock));
    lock_release(lock);
}

int main(void)
{
#define CASE(name)                                                                                 \
    cmocka_unit_test_setup_teardown(name, file_fixture_set_up, file_fixture_tear_down)
    const struct CMUnitTest tests[] = {
        CASE(test_a_second_process_is_refused_and_told_by_whom),
        CASE(test_a_killed_process_holds_nothing),
        CASE(test_a_released_lock_can_be_taken_again),
        CASE(test_the_file_names_the_holder_whatever_it_said_before),
        CASE(test_a_holder_without_a_name_is_another_process),
        CASE(test_an_absent_folder_is_an_error),
        CASE(test_lack_of_memory_is_told_and_holds_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

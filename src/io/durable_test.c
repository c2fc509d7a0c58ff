#include "io/durable.h"

#include "support/faulty_calls.h"
#include "support/file_fixture.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define OLD "the old content"
#define NEW "the new content, which is longer"

static void assert_content(struct file_fixture *f, const char *name, const char *expected)
{
    struct file_bytes bytes = {0};
    struct fault fault;
    if (file_read(&f->ctx->mem, NULL, scratch_path(&f->scratch, name), 1 << 20, &bytes, &fault) !=
        DER_OK)
        fail_msg("%s", fault.text);
    assert_string_equal((const char *)bytes.data, expected);
    assert_int_equal(bytes.size, strlen(expected));
    file_bytes_free(&f->ctx->mem, &bytes);
}

/* Files in the scratch folder. */
static int count_files(const struct file_fixture *f)
{
    int n = 0;
    DIR *dir = opendir(f->scratch.root);
    assert_non_null(dir);
    const struct dirent *entry;
    while ((entry = readdir(dir)))
        n += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    (void)closedir(dir);
    return n;
}

/* Writes NEW to the file "state" in three pieces. */
static enum der_status save(struct file_fixture *f, const struct io_calls *io)
{
    struct durable *file;
    TRY(durable_open(f->ctx, io, scratch_path(&f->scratch, "state"), &file));
    const size_t cuts[] = {0, 4, 4, sizeof NEW - 1};
    for (int i = 0; i < 3; i++) {
        enum der_status status = durable_write(file, NEW + cuts[i], cuts[i + 1] - cuts[i]);
        if (status != DER_OK) {
            durable_abort(file);
            return status;
        }
    }
    return durable_commit(file);
}

static void test_pieces_become_a_file(void **state)
{
    struct file_fixture *f = *state;
    assert_ok(f->ctx, save(f, NULL));
    assert_content(f, "state", NEW);
    assert_int_equal(count_files(f), 1);
}

static void test_old_file_is_there_until_the_commit(void **state)
{
    struct file_fixture *f = *state;
    struct durable *file;
    scratch_text(&f->scratch, "state", OLD);
    assert_ok(f->ctx, durable_open(f->ctx, NULL, scratch_path(&f->scratch, "state"), &file));
    assert_ok(f->ctx, durable_write(file, NEW, strlen(NEW)));
    assert_content(f, "state", OLD);
    assert_int_equal(count_files(f), 2);
    assert_ok(f->ctx, durable_commit(file));
    assert_content(f, "state", NEW);
    assert_int_equal(count_files(f), 1);
}

static void test_giving_up_leaves_the_old_file_alone(void **state)
{
    struct file_fixture *f = *state;
    struct durable *file;
    scratch_text(&f->scratch, "state", OLD);
    assert_ok(f->ctx, durable_open(f->ctx, NULL, scratch_path(&f->scratch, "state"), &file));
    assert_ok(f->ctx, durable_write(file, NEW, strlen(NEW)));
    durable_abort(file);
    durable_abort(NULL);
    assert_content(f, "state", OLD);
    assert_int_equal(count_files(f), 1);
}

static void test_short_and_interrupted_calls_are_put_together(void **state)
{
    struct file_fixture *f = *state;
    struct faulty_calls calls = {.most = 3, .interrupts = true};
    struct io_calls io = faulty_calls(&calls);
    assert_ok(f->ctx, save(f, &io));
    assert_content(f, "state", NEW);
    assert_int_equal(count_files(f), 1);
    assert_true(calls.n_calls > 20);
}

/* The file that a power cut could take, but which is whole: see durable_commit. */
static bool is_in_place(const struct faulty_calls *calls, const struct file_fixture *f)
{
    return strcmp(calls->failed_call, "fsync") == 0 &&
           strstr(der_ctx_error(f->ctx), "cannot sync the folder of");
}

static void test_whichever_call_fails_the_old_file_survives(void **state)
{
    struct file_fixture *f = *state;
    static const struct {
        int error;
        const char *text;
    } errors[] = {{ENOSPC, "No space left on device"}, {EIO, "Input/output error"}};
    for (int e = 0; e < 2; e++) {
        int n_failed = 0;
        int n_in_place = 0;
        for (int k = 1;; k++) {
            struct faulty_calls calls = {
                .fail_at = k, .error = errors[e].error, .most = 7, .is_full = true};
            struct io_calls io = faulty_calls(&calls);
            scratch_text(&f->scratch, "state", OLD);
            enum der_status status = save(f, &io);
            assert_int_equal(count_files(f), 1);
            if (!calls.failed_call) {
                assert_ok(f->ctx, status);
                break;
            }
            if (status == DER_OK) {
                /* Only closing the folder at the end says nothing. */
                assert_string_equal(calls.failed_call, "close");
                assert_content(f, "state", NEW);
                continue;
            }
            n_failed++;
            n_in_place += is_in_place(&calls, f);
            assert_int_equal(status, DER_IO);
            assert_content(f, "state", is_in_place(&calls, f) ? NEW : OLD);
            assert_non_null(strstr(der_ctx_error(f->ctx), errors[e].text));
            assert_non_null(strstr(der_ctx_error(f->ctx), "/state: "));
        }
        assert_int_equal(n_in_place, 1);
        /* open twice, writes of 4 and 28 bytes in pieces of 7, fsync twice, close, rename */
        assert_int_equal(n_failed, 2 + 1 + 4 + 2 + 1 + 1);
    }
}

static void test_a_full_disk_is_told_in_one_sentence(void **state)
{
    struct file_fixture *f = *state;
    struct faulty_calls calls = {.fail_at = 3, .error = ENOSPC};
    struct io_calls io = faulty_calls(&calls);
    char expected[SCRATCH_PATH_MAX];
    assert_int_equal(save(f, &io), DER_IO);
    assert_string_equal(calls.failed_call, "write");
    (void)snprintf(expected, sizeof expected, "cannot write %s: No space left on device",
                   scratch_path(&f->scratch, "state"));
    assert_string_equal(der_ctx_error(f->ctx), expected);
    assert_int_equal(count_files(f), 0);
}

static void test_a_real_limit_on_file_size_is_met(void **state)
{
    struct file_fixture *f = *state;
    struct rlimit limit;
    scratch_text(&f->scratch, "state", OLD);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    struct rlimit low = {.rlim_cur = 16, .rlim_max = limit.rlim_max};
    void (*before)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
    enum der_status status = save(f, NULL);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    (void)signal(SIGXFSZ, before);
    assert_int_equal(status, DER_IO);
    assert_non_null(strstr(der_ctx_error(f->ctx), "File too large"));
    assert_content(f, "state", OLD);
    assert_int_equal(count_files(f), 1);
}

static void test_a_file_that_is_not_whole_is_never_put_in_place(void **state)
{
    struct file_fixture *f = *state;
    struct faulty_calls calls = {.fail_at = 3, .error = ENOSPC};
    struct io_calls io = faulty_calls(&calls);
    struct durable *file;
    scratch_text(&f->scratch, "state", OLD);
    assert_ok(f->ctx, durable_open(f->ctx, &io, scratch_path(&f->scratch, "state"), &file));
    assert_int_equal(durable_write(file, NEW, 5), DER_IO);
    assert_ok(f->ctx, durable_write(file, NEW, 5));
    assert_int_equal(durable_commit(file), DER_STATE);
    assert_content(f, "state", OLD);
    assert_int_equal(count_files(f), 1);
}

static void test_two_writers_in_one_process_do_not_meet(void **state)
{
    struct file_fixture *f = *state;
    struct durable *one;
    struct durable *two;
    assert_ok(f->ctx, durable_open(f->ctx, NULL, scratch_path(&f->scratch, "state"), &one));
    assert_ok(f->ctx, durable_open(f->ctx, NULL, scratch_path(&f->scratch, "state"), &two));
    assert_ok(f->ctx, durable_write(one, "one", 3));
    assert_ok(f->ctx, durable_write(two, "two", 3));
    assert_ok(f->ctx, durable_commit(two));
    assert_content(f, "state", "two");
    assert_ok(f->ctx, durable_commit(one));
    assert_content(f, "state", "one");
    assert_int_equal(count_files(f), 1);
}

static void test_impossible_places_are_refused(void **state)
{
    struct file_fixture *f = *state;
    struct durable *file;
    assert_int_equal(durable_open(f->ctx, NULL, "", &file), DER_ARG);
    assert_int_equal(durable_open(f->ctx, NULL, scratch_path(&f->scratch, "x/"), &file), DER_ARG);
    assert_int_equal(durable_open(f->ctx, NULL, scratch_path(&f->scratch, "x/y"), &file), DER_IO);
    assert_non_null(strstr(der_ctx_error(f->ctx), "x/y: No such file"));
    assert_null(file);
    scratch_mkdir(&f->scratch, "folder");
    assert_int_equal(durable_write_file(f->ctx, NULL, scratch_path(&f->scratch, "folder"), OLD, 3),
                     DER_IO);
    assert_non_null(strstr(der_ctx_error(f->ctx), "folder: Is a directory"));
    assert_int_equal(count_files(f), 1);
}

static mode_t kind_of(struct file_fixture *f, const char *name)
{
    struct stat info;
    assert_int_equal(lstat(scratch_path(&f->scratch, name), &info), 0);
    return info.st_mode & S_IFMT;
}

static void test_a_link_stays_and_its_file_is_replaced(void **state)
{
    struct file_fixture *f = *state;
    assert_ok(f->ctx, durable_mkdir(f->ctx, NULL, scratch_path(&f->scratch, "there")));
    scratch_text(&f->scratch, "there/file", OLD);
    assert_int_equal(symlink("there/file", scratch_path(&f->scratch, "state")), 0);
    assert_ok(f->ctx, save(f, NULL));
    assert_int_equal(kind_of(f, "state"), S_IFLNK);
    assert_content(f, "there/file", NEW);
    assert_int_equal(count_files(f), 2);
    assert_int_equal(unlink(scratch_path(&f->scratch, "there/file")), 0);
    assert_int_equal(save(f, NULL), DER_IO);
    assert_non_null(strstr(der_ctx_error(f->ctx), "cannot follow the link"));
    assert_int_equal(kind_of(f, "state"), S_IFLNK);
}

static void test_a_pipe_is_written_into(void **state)
{
    struct file_fixture *f = *state;
    char text[sizeof NEW] = {0};
    assert_int_equal(mkfifo(scratch_path(&f->scratch, "state"), 0600), 0);
    int fd = open(scratch_path(&f->scratch, "state"), O_RDONLY | O_NONBLOCK);
    assert_true(fd >= 0);
    assert_ok(f->ctx, save(f, NULL));
    assert_int_equal(read(fd, text, sizeof text), strlen(NEW));
    assert_string_equal(text, NEW);
    struct durable *file;
    assert_ok(f->ctx, durable_open(f->ctx, NULL, scratch_path(&f->scratch, "state"), &file));
    durable_abort(file);
    assert_int_equal(kind_of(f, "state"), S_IFIFO);
    assert_int_equal(count_files(f), 1);
    (void)close(fd);
    assert_int_equal(save(f, NULL), DER_IO); /* nobody reads, and nobody waits */
    assert_int_equal(kind_of(f, "state"), S_IFIFO);
    assert_ok(f->ctx, durable_write_file(f->ctx, NULL, "/dev/null", NEW, strlen(NEW)));
    struct stat info;
    assert_int_equal(stat("/dev/null", &info), 0);
    assert_true(S_ISCHR(info.st_mode));
}

static void test_names_may_be_as_long_as_the_system_allows(void **state)
{
    struct file_fixture *f = *state;
    char name[256] = {0};
    memset(name, 'n', 255);
    assert_ok(f->ctx,
              durable_write_file(f->ctx, NULL, scratch_path(&f->scratch, name), NEW, strlen(NEW)));
    assert_content(f, name, NEW);
    assert_int_equal(count_files(f), 1);
}

static void test_names_without_a_folder_lie_in_the_working_folder(void **state)
{
    struct file_fixture *f = *state;
    char before[SCRATCH_PATH_MAX];
    assert_non_null(getcwd(before, sizeof before));
    assert_int_equal(chdir(f->scratch.root), 0);
    enum der_status status = durable_write_file(f->ctx, NULL, "plain", NEW, strlen(NEW));
    assert_int_equal(chdir(before), 0);
    assert_ok(f->ctx, status);
    assert_content(f, "plain", NEW);
}

static void test_a_folder_is_made_once_and_its_parent_synced(void **state)
{
    struct file_fixture *f = *state;
    struct faulty_calls calls = {.interrupts = true};
    struct io_calls io = faulty_calls(&calls);
    assert_ok(f->ctx, durable_mkdir(f->ctx, &io, scratch_path(&f->scratch, "run//")));
    assert_ok(f->ctx, durable_mkdir(f->ctx, NULL, scratch_path(&f->scratch, "run")));
    scratch_text(&f->scratch, "run/file", OLD);
    assert_int_equal(durable_mkdir(f->ctx, NULL, scratch_path(&f->scratch, "run/file")), DER_IO);
    assert_non_null(strstr(der_ctx_error(f->ctx), "cannot make folder"));
    assert_non_null(strstr(der_ctx_error(f->ctx), "run/file: File exists"));
    assert_int_equal(durable_mkdir(f->ctx, NULL, scratch_path(&f->scratch, "run/file/a")), DER_IO);
    static const char *const failing[] = {"open", "mkdir", "fsync"};
    for (int k = 1; k <= 3; k++) {
        calls = (struct faulty_calls){.fail_at = k, .error = EIO};
        assert_int_equal(durable_mkdir(f->ctx, &io, scratch_path(&f->scratch, "other")), DER_IO);
        assert_string_equal(calls.failed_call, failing[k - 1]);
        assert_non_null(strstr(der_ctx_error(f->ctx), "other: Input/output error"));
    }
}

static void test_a_folder_is_made_with_those_it_lies_in(void **state)
{
    struct file_fixture *f = *state;
    struct faulty_calls calls = {.fail_at = 6, .error = EIO};
    struct io_calls io = faulty_calls(&calls);
    assert_int_equal(durable_mkdir(f->ctx, &io, scratch_path(&f->scratch, "a/b//c/")), DER_IO);
    assert_string_equal(calls.failed_call, "mkdir");
    assert_non_null(strstr(der_ctx_error(f->ctx), "a/b: Input/output error"));
    assert_ok(f->ctx, durable_mkdir(f->ctx, NULL, scratch_path(&f->scratch, "a/b//c/")));
    scratch_text(&f->scratch, "a/b/c/file", OLD);
    assert_ok(f->ctx, durable_mkdir(f->ctx, NULL, scratch_path(&f->scratch, "a/b/c")));
}

/* A process that is killed while it writes. */
static void leave_temporary(struct file_fixture *f)
{
    int ready[2];
    char byte;
    assert_int_equal(pipe(ready), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct durable *file;
        bool is_open =
            durable_open(f->ctx, NULL, scratch_path(&f->scratch, "state"), &file) == DER_OK &&
            durable_write(file, NEW, strlen(NEW)) == DER_OK;
        ssize_t n = write(ready[1], is_open ? "y" : "n", 1);
        (void)n;
        for (;;)
            (void)pause();
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    (void)close(ready[0]);
    (void)close(ready[1]);
    assert_int_equal(byte, 'y');
}

static void test_what_a_killed_process_left_is_swept(void **state)
{
    struct file_fixture *f = *state;
    scratch_text(&f->scratch, "state", OLD);
    leave_temporary(f);
    assert_int_equal(count_files(f), 2);
    assert_content(f, "state", OLD);
    assert_ok(f->ctx, durable_sweep(f->ctx, f->scratch.root));
    assert_int_equal(count_files(f), 1);
    assert_content(f, "state", OLD);
}

static void test_sweeping_takes_nothing_else(void **state)
{
    struct file_fixture *f = *state;
    static const char *const names[] = {
        "state",         ".state.12-0.tmp~", "state.12-0.tmp", ".12-0.tmp",       "..12-0.tmp",
        ".state.-0.tmp", ".state.12-.tmp",   ".state.12.tmp",  ".statex12-0.tmp", ".tmp",
    };
    const int n = sizeof names / sizeof names[0];
    for (int i = 0; i < n; i++)
        scratch_text(&f->scratch, names[i], OLD);
    scratch_mkdir(&f->scratch, ".folder.12-0.tmp");
    scratch_text(&f->scratch, ".a.b.12-0.tmp", OLD);
    assert_ok(f->ctx, durable_sweep(f->ctx, f->scratch.root));
    assert_int_equal(count_files(f), n + 1);
    assert_int_equal(access(scratch_path(&f->scratch, ".a.b.12-0.tmp"), F_OK), -1);
    assert_int_equal(durable_sweep(f->ctx, scratch_path(&f->scratch, "absent")), DER_IO);
}

static void test_sweeping_for_one_file_leaves_those_of_others(void **state)
{
    struct file_fixture *f = *state;
    static const char *const names[] = {".cats.12-0.tmp", ".cats.next.12-0.tmp", ".cat.12-0.tmp",
                                        ".catsx.12-0.tmp", "cats"};
    const int n = sizeof names / sizeof names[0];
    for (int i = 0; i < n; i++)
        scratch_text(&f->scratch, names[i], OLD);
    assert_ok(f->ctx, durable_sweep_file(f->ctx, scratch_path(&f->scratch, "cats")));
    assert_int_equal(count_files(f), n - 1);
    assert_int_equal(access(scratch_path(&f->scratch, names[0]), F_OK), -1);
    assert_int_equal(durable_sweep_file(f->ctx, scratch_path(&f->scratch, "absent/cats")), DER_IO);
}

static void test_lack_of_memory_leaves_everything_as_it_was(void **state)
{
    struct file_fixture *f = *state;
    struct mem *mem = &f->ctx->mem;
    scratch_text(&f->scratch, "state", OLD);
    int n_failed = 0;
    for (uint64_t k = 1;; k++) {
        atomic_store(&mem->fail_at, atomic_load(&mem->n_allocs) + k);
        enum der_status status = save(f, NULL);
        bool has_failed = atomic_load(&mem->n_allocs) >= atomic_load(&mem->fail_at);
        atomic_store(&mem->fail_at, 0);
        assert_int_equal(count_files(f), 1);
        if (!has_failed)
            break;
        assert_int_equal(status, DER_NOMEM);
        assert_content(f, "state", OLD);
        n_failed++;
    }
    assert_int_equal(n_failed, 4);
    assert_content(f, "state", NEW);
}

int main(void)
{
#define CASE(name)                                                                                 \
    cmocka_unit_test_setup_teardown(name, file_fixture_set_up, file_fixture_tear_down)
    const struct CMUnitTest tests[] = {
        CASE(test_pieces_become_a_file),
        CASE(test_old_file_is_there_until_the_commit),
        CASE(test_giving_up_leaves_the_old_file_alone),
        CASE(test_short_and_interrupted_calls_are_put_together),
        CASE(test_whichever_call_fails_the_old_file_survives),
        CASE(test_a_full_disk_is_told_in_one_sentence),
        CASE(test_a_real_limit_on_file_size_is_met),
        CASE(test_a_file_that_is_not_whole_is_never_put_in_place),
        CASE(test_two_writers_in_one_process_do_not_meet),
        CASE(test_impossible_places_are_refused),
        CASE(test_a_link_stays_and_its_file_is_replaced),
        CASE(test_a_pipe_is_written_into),
        CASE(test_names_may_be_as_long_as_the_system_allows),
        CASE(test_names_without_a_folder_lie_in_the_working_folder),
        CASE(test_a_folder_is_made_once_and_its_parent_synced),
        CASE(test_a_folder_is_made_with_those_it_lies_in),
        CASE(test_what_a_killed_process_left_is_swept),
        CASE(test_sweeping_for_one_file_leaves_those_of_others),
        CASE(test_sweeping_takes_nothing_else),
        CASE(test_lack_of_memory_leaves_everything_as_it_was),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#include "fetch/unpack.h"

#include "support/faulty_calls.h"
#include "support/file_fixture.h"
#include "support/tar_file.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define N_OF(array) (sizeof(array) / sizeof *(array))

static const struct fetch_watch no_watch = {0};

struct rig {
    struct file_fixture *f;
    char archive[SCRATCH_PATH_MAX];
    char target[SCRATCH_PATH_MAX];
    struct unpack_request request;
};

static void rig_init(struct rig *r, struct file_fixture *f)
{
    static int n_targets;
    char name[32];
    r->f = f;
    (void)snprintf(name, sizeof name, "target-%d", n_targets++);
    (void)snprintf(r->archive, sizeof r->archive, "%s", scratch_path(&f->scratch, "set.tar.gz"));
    scratch_mkdir(&f->scratch, name);
    (void)snprintf(r->target, sizeof r->target, "%s", scratch_path(&f->scratch, name));
    r->request = (struct unpack_request){
        .archive = r->archive,
        .folder = "set",
        .target = r->target,
        .limits = {.bytes = 64 << 20, .files = 8, .ratio = 100},
        .watch = &no_watch,
    };
}

static enum der_status run(struct rig *r)
{
    return unpack_run(r->f->ctx, NULL, &r->request);
}

static int count_files(const char *folder)
{
    int n = 0;
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    for (const struct dirent *entry; (entry = readdir(dir));)
        n += entry->d_name[0] != '.';
    (void)closedir(dir);
    return n;
}

static void expect_text(const struct rig *r, const char *name, const char *want)
{
    char path[2 * SCRATCH_PATH_MAX];
    char text[64] = "";
    (void)snprintf(path, sizeof path, "%s/%s", r->target, name);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    size_t n = fread(text, 1, sizeof text - 1, file);
    (void)fclose(file);
    assert_int_equal(n, strlen(want));
    assert_string_equal(text, want);
}

static void test_files_of_the_folder_are_unpacked(void **state)
{
    static const struct tar_entry entries[] = {
        {TAR_FOLDER, "./", NULL, 0},         {TAR_FOLDER, "set/", NULL, 0},
        {TAR_FILE, "set/a.bin", "first", 0}, {TAR_FILE, "./set/b.txt", "second", 0},
        {TAR_FILE, "set/empty", "", 0},
    };
    struct rig r;
    rig_init(&r, *state);
    tar_write(r.archive, entries, N_OF(entries));
    assert_ok(r.f->ctx, run(&r));
    assert_int_equal(count_files(r.target), 3);
    expect_text(&r, "a.bin", "first");
    expect_text(&r, "b.txt", "second");
    expect_text(&r, "empty", "");
}

/* One entry that must not be, behind one that may. */
static void expect_refusal(struct file_fixture *f, const struct tar_entry *entry, const char *part)
{
    const struct tar_entry entries[] = {{TAR_FILE, "set/a.bin", "first", 0}, *entry};
    struct rig r;
    rig_init(&r, f);
    tar_write(r.archive, entries, 2);
    enum der_status status = run(&r);
    if (status != DER_FORMAT || !strstr(f->ctx->error, part))
        fail_msg("%s: status %d, \"%s\"", entry->path, (int)status, f->ctx->error);
    assert_int_equal(count_files(r.target), 1);
}

static void test_no_path_leaves_the_folder(void **state)
{
    struct file_fixture *f = *state;
    static const struct tar_entry evil[] = {
        {TAR_FILE, "../evil", "x", 0},
        {TAR_FILE, "set/../../evil", "x", 0},
        {TAR_FILE, "set/..", "x", 0},
        {TAR_FILE, "/tmp/der-evil", "x", 0},
        {TAR_FILE, "evil", "x", 0},
        {TAR_FILE, "setevil", "x", 0},
        {TAR_FILE, "setevil/a", "x", 0},
        {TAR_FILE, "other/a", "x", 0},
        {TAR_FILE, "set/in/deep", "x", 0},
        {TAR_FILE, "set//b", "x", 0},
        {TAR_FILE, "set/line\nbreak", "x", 0},
        {TAR_FOLDER, "set/in", NULL, 0},
        {TAR_FOLDER, "../set", NULL, 0},
        {TAR_FOLDER, "/", NULL, 0},
        {TAR_FIFO, "set/pipe", NULL, 0},
        {TAR_FILE, "set", "x", 0},
    };
    for (size_t i = 0; i < N_OF(evil); i++)
        expect_refusal(f, &evil[i], "want files in set/ and nothing else");
    assert_int_not_equal(access(scratch_path(&f->scratch, "evil"), F_OK), 0);
    assert_int_not_equal(access("/tmp/der-evil", F_OK), 0);
}

static void test_links_are_refused(void **state)
{
    struct file_fixture *f = *state;
    static const struct tar_entry links[] = {
        {TAR_SYMLINK, "set/link", "/etc", 0},
        {TAR_SYMLINK, "set/link", "a.bin", 0},
        {TAR_SYMLINK, "set", "/tmp", 0},
        {TAR_HARDLINK, "set/link", "/etc/passwd", 0},
        {TAR_HARDLINK, "set/link", "set/a.bin", 0},
    };
    for (size_t i = 0; i < N_OF(links); i++)
        expect_refusal(f, &links[i], "a link");
}

/* What a link was planted for: a file that is written through it. */
static void test_nothing_is_written_through_a_link(void **state)
{
    struct file_fixture *f = *state;
    char outside[SCRATCH_PATH_MAX];
    char planted[2 * SCRATCH_PATH_MAX];
    const struct tar_entry entries[] = {{TAR_FILE, "set/a.bin", "overwritten", 0}};
    struct rig r;
    rig_init(&r, f);
    scratch_text(&f->scratch, "outside", "untouched");
    (void)snprintf(outside, sizeof outside, "%s", scratch_path(&f->scratch, "outside"));
    (void)snprintf(planted, sizeof planted, "%s/a.bin", r.target);
    assert_int_equal(symlink(outside, planted), 0);
    tar_write(r.archive, entries, 1);
    assert_int_equal(run(&r), DER_FORMAT);
    assert_non_null(strstr(f->ctx->error, "twice"));
    expect_text(&r, "a.bin", "untouched");
}

static void test_the_same_name_twice_is_refused(void **state)
{
    struct file_fixture *f = *state;
    const struct tar_entry again = {TAR_FILE, "./set/a.bin", "second", 0};
    expect_refusal(f, &again, "twice");
}

static void test_a_bomb_is_stopped_by_its_ratio(void **state)
{
    const struct tar_entry entries[] = {{TAR_FILE, "set/zeros", NULL, 48 << 20}};
    struct rig r;
    rig_init(&r, *state);
    tar_write(r.archive, entries, 1);
    assert_int_equal(run(&r), DER_FORMAT);
    assert_non_null(strstr(r.f->ctx->error, "more than 100 times"));
    r.request.limits.ratio = 100000;
    rig_init(&r, *state);
    r.request.limits.ratio = 100000;
    assert_ok(r.f->ctx, run(&r)); /* the limit it was, and nothing else */
}

static void test_bytes_and_files_are_limited(void **state)
{
    struct tar_entry entries[9];
    char names[9][16];
    struct rig r;
    for (int i = 0; i < 9; i++) {
        (void)snprintf(names[i], sizeof names[i], "set/%d", i);
        entries[i] = (struct tar_entry){TAR_FILE, names[i], "0123456789", 0};
    }
    rig_init(&r, *state);
    tar_write(r.archive, entries, 9);
    assert_int_equal(run(&r), DER_FORMAT);
    assert_non_null(strstr(r.f->ctx->error, "more than 8 files"));
    rig_init(&r, *state);
    tar_write(r.archive, entries, 8);
    r.request.limits.bytes = 79;
    assert_int_equal(run(&r), DER_FORMAT);
    assert_non_null(strstr(r.f->ctx->error, "more than 79 bytes"));
    rig_init(&r, *state);
    r.request.limits.bytes = 80;
    assert_ok(r.f->ctx, run(&r));
}

static void test_every_truncation_is_noticed(void **state)
{
    struct file_fixture *f = *state;
    static const struct tar_entry entries[] = {{TAR_FILE, "set/a.bin", "some text to pack", 0},
                                               {TAR_FILE, "set/b.bin", "some more text", 0}};
    struct rig r;
    rig_init(&r, f);
    tar_write(r.archive, entries, 2);
    struct file_bytes whole = {0};
    struct fault fault;
    assert_int_equal(file_read(&f->ctx->mem, NULL, r.archive, 1 << 20, &whole, &fault), DER_OK);
    for (size_t size = 0; size < whole.size; size++) {
        scratch_write(&f->scratch, "set.tar.gz", whole.data, size);
        rig_init(&r, f);
        enum der_status status = run(&r);
        /* The last eight bytes, a checksum of gzip's own, may be read or not. */
        if (status != DER_FORMAT && size + 8 < whole.size)
            fail_msg("cut to %zu of %zu bytes: status %d", size, whole.size, (int)status);
    }
    file_bytes_free(&f->ctx->mem, &whole);
}

static void test_what_is_no_archive_is_refused(void **state)
{
    struct file_fixture *f = *state;
    struct rig r;
    rig_init(&r, f);
    scratch_text(&f->scratch, "set.tar.gz", "<html>404, but politely</html>");
    assert_int_equal(run(&r), DER_FORMAT);
    assert_non_null(strstr(f->ctx->error, "cannot be unpacked"));
    tar_write(r.archive, NULL, 0);
    assert_int_equal(run(&r), DER_FORMAT);
    assert_non_null(strstr(f->ctx->error, "holds no files"));
    r.request.archive = scratch_path(&f->scratch, "nowhere");
    assert_int_equal(run(&r), DER_IO);
}

static void test_every_failing_call_is_told(void **state)
{
    struct file_fixture *f = *state;
    static const struct tar_entry entries[] = {{TAR_FILE, "set/a.bin", "first", 0},
                                               {TAR_FILE, "set/b.bin", "second", 0}};
    struct rig r;
    rig_init(&r, f);
    tar_write(r.archive, entries, 2);
    int n_failed = 0;
    for (int at = 1;; at++) {
        struct faulty_calls calls = {.fail_at = at, .error = ENOSPC};
        struct io_calls io = faulty_calls(&calls);
        rig_init(&r, f);
        enum der_status status = unpack_run(f->ctx, &io, &r.request);
        if (!calls.failed_call) {
            assert_ok(f->ctx, status);
            break;
        }
        assert_int_equal(status, DER_IO);
        assert_non_null(strstr(f->ctx->error, "No space left on device"));
        n_failed++;
    }
    assert_true(n_failed >= 8); /* open, write, fsync, close of two files */
}

static bool always(void *user)
{
    (void)user;
    return true;
}

static void test_unpacking_can_be_stopped(void **state)
{
    static const struct tar_entry entries[] = {{TAR_FILE, "set/a.bin", "first", 0}};
    const struct fetch_watch watch = {.cancelled = always};
    struct rig r;
    rig_init(&r, *state);
    tar_write(r.archive, entries, 1);
    r.request.watch = &watch;
    assert_int_equal(run(&r), DER_CANCELLED);
}

#define CASE(name)                                                                                 \
    cmocka_unit_test_setup_teardown(name, file_fixture_set_up, file_fixture_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_files_of_the_folder_are_unpacked),
        CASE(test_no_path_leaves_the_folder),
        CASE(test_links_are_refused),
        CASE(test_nothing_is_written_through_a_link),
        CASE(test_the_same_name_twice_is_refused),
        CASE(test_a_bomb_is_stopped_by_its_ratio),
        CASE(test_bytes_and_files_are_limited),
        CASE(test_every_truncation_is_noticed),
        CASE(test_what_is_no_archive_is_refused),
        CASE(test_every_failing_call_is_told),
        CASE(test_unpacking_can_be_stopped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

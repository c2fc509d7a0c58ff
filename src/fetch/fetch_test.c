/*
 * Downloads against a local server that stalls, cuts and lies. The published addresses are not used.
 */
/* labels: first */
#include "fetch/fetch.h"

#include "core/clock.h"
#include "fetch/checksum.h"
#include "support/faulty_calls.h"
#include "support/file_fixture.h"
#include "support/tar_file.h"
#include "support/web_server.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

enum { DATA_BYTES = 200000 };

#define N_OF(array) (sizeof(array) / sizeof *(array))

struct rig {
    struct der_ctx *ctx;
    struct scratch scratch;
    struct web_server server;
    struct offer offer; /* one file, data.bin; or an archive */
    struct fetch_options options;
    char sum[CHECKSUM_TEXT_MAX];
    char address[WEB_URL_MAX];
    char folder[SCRATCH_PATH_MAX];
    int64_t stop_at; /* bytes at which downloading is cancelled; 0: never */
    int64_t seen;    /* bytes at the latest progress */
    int64_t n_ticks[3];
    double rate; /* the largest seen */
    int n_looks; /* at what was unpacked */
};

/* ---- the rig --------------------------------------------------------------------------------- */

static void see_progress(void *user, const struct fetch_progress *progress)
{
    struct rig *r = user;
    r->n_ticks[progress->stage]++;
    assert_true(progress->done >= 0);
    if (progress->total > 0)
        assert_true(progress->done <= progress->total);
    if (progress->stage == FETCH_DOWNLOADING)
        r->seen = progress->done;
    if (progress->bytes_per_second > r->rate)
        r->rate = progress->bytes_per_second;
}

static bool is_enough(void *user)
{
    struct rig *r = user;
    return r->stop_at > 0 && r->seen >= r->stop_at;
}

static void use_file(struct rig *r, const char *name, int64_t size)
{
    char path[64];
    struct checksum sum;
    (void)snprintf(path, sizeof path, "www/%s", name);
    int fd = open(scratch_path(&r->scratch, path), O_RDONLY);
    assert_true(fd >= 0);
    assert_ok(r->ctx, checksum_of_file(r->ctx, io_calls_plain(), fd, name, CHECKSUM_SHA256, NULL,
                                       NULL, &sum));
    (void)close(fd);
    checksum_text(&sum, r->sum);
    r->offer = (struct offer){
        .name = "test",
        .files = {{.name = name, .size = size, .sha256 = r->sum}},
        .n_files = 1,
    };
}

static int set_up(void **state)
{
    static struct rig rig;
    static uint8_t data[DATA_BYTES];
    struct rig *r = &rig;
    uint32_t x = 1;
    for (int i = 0; i < DATA_BYTES; i++) {
        x = x * 1664525u + 1013904223u;
        data[i] = (uint8_t)(x >> 24);
    }
    *r = (struct rig){.ctx = test_ctx_new(1)};
    scratch_init(&r->scratch);
    scratch_write(&r->scratch, "www/data.bin", data, sizeof data);
    (void)snprintf(r->folder, sizeof r->folder, "%s", scratch_path(&r->scratch, "here"));
    use_file(r, "data.bin", DATA_BYTES);
    r->options = (struct fetch_options){
        .stall_seconds = 1,
        .retries = 3,
        .watch = {.progress = see_progress, .cancelled = is_enough, .user = r},
    };
    *state = r;
    /* Only a system without python3 may go without the server. */
    if (!web_server_start(&r->server, scratch_path(&r->scratch, "www")))
        r->server.port = 0;
    return 0;
}

static int tear_down(void **state)
{
    struct rig *r = *state;
    web_server_stop(&r->server);
    scratch_fini(&r->scratch);
    test_ctx_free(r->ctx);
    return 0;
}

static enum der_status get(struct rig *r, const char *mode)
{
    if (r->server.port == 0)
        skip(); /* there is no python3 */
    (void)snprintf(r->address, sizeof r->address, "%s/", web_server_url(&r->server, mode));
    r->offer.address = r->address;
    return fetch_run(r->ctx, &r->offer, r->folder, &r->options);
}

static struct file_bytes read_file(struct rig *r, const char *name)
{
    struct file_bytes bytes = {0};
    struct fault fault;
    if (file_read(&r->ctx->mem, NULL, scratch_path(&r->scratch, name), 1 << 24, &bytes, &fault) !=
        DER_OK)
        fail_msg("%s", fault.text);
    return bytes;
}

static bool exists(struct rig *r, const char *name)
{
    return access(scratch_path(&r->scratch, name), F_OK) == 0;
}

static void expect_file(struct rig *r)
{
    struct file_bytes is = read_file(r, "here/data.bin");
    struct file_bytes want = read_file(r, "www/data.bin");
    assert_int_equal(is.size, want.size);
    assert_memory_equal(is.data, want.data, want.size);
    file_bytes_free(&r->ctx->mem, &is);
    file_bytes_free(&r->ctx->mem, &want);
    assert_false(exists(r, "here/data.bin.part"));
}

/* Writes the first `size` bytes of the file as the part of an earlier download. */
static void plant_part(struct rig *r, size_t size)
{
    struct file_bytes want = read_file(r, "www/data.bin");
    scratch_write(&r->scratch, "here/data.bin.part", want.data, size);
    file_bytes_free(&r->ctx->mem, &want);
}

/* How many requests the server saw, and the latest line of its log. */
static int requests(struct rig *r, char last[128])
{
    last[0] = '\0';
    if (!exists(r, "www/log"))
        return 0;
    struct file_bytes log = read_file(r, "www/log");
    int n = 0;
    const char *start = (const char *)log.data;
    for (const char *at = start; *at; at++) {
        if (*at != '\n')
            continue;
        n++;
        (void)snprintf(last, 128, "%.*s", (int)(at - start), start);
        start = at + 1;
    }
    file_bytes_free(&r->ctx->mem, &log);
    return n;
}

static void expect_failure(struct rig *r, enum der_status status, enum der_status wanted,
                           const char *part)
{
    if (status != wanted || !strstr(r->ctx->error, part))
        fail_msg("status %d and \"%s\", want %d and \"%s\"", (int)status, r->ctx->error,
                 (int)wanted, part);
    assert_false(exists(r, "here/data.bin"));
}

/* ---- servers that can be coped with ---------------------------------------------------------- */

static void test_servers_that_cut_stall_and_change_their_files(void **state)
{
    struct rig *r = *state;
    static const struct {
        const char *mode;
        int n_requests;
        int n_checks; /* more than one: pieced together of two files, which only the checksum told */
    } cases[] = {
        {"plain", 1, 1},          {"untagged", 1, 1},  {"cut", 3, 1},     {"norange", 2, 1},
        {"stall", 2, 1},          {"unsized", 2, 1},   {"changed", 2, 1}, {"changed-rude", 3, 1},
        {"changed-untold", 3, 2}, {"elsewhere", 3, 1}, {"busy", 3, 1},    {"moved", 2, 1},
    };
    for (size_t i = 0; i < N_OF(cases); i++) {
        char last[128];
        (void)unlink(scratch_path(&r->scratch, "www/log"));
        (void)unlink(scratch_path(&r->scratch, "here/data.bin"));
        r->n_ticks[FETCH_CHECKING] = 0;
        enum der_status status = get(r, cases[i].mode);
        if (status != DER_OK)
            fail_msg("%s: %s", cases[i].mode, r->ctx->error);
        expect_file(r);
        int n = requests(r, last);
        if (n != cases[i].n_requests)
            fail_msg("%s: %d requests, want %d", cases[i].mode, n, cases[i].n_requests);
        if (r->n_ticks[FETCH_CHECKING] != cases[i].n_checks)
            fail_msg("%s: checked %d times, want %d", cases[i].mode,
                     (int)r->n_ticks[FETCH_CHECKING], cases[i].n_checks);
    }
    assert_true(r->rate > 0.0);
}

static void test_a_cut_download_goes_on_where_it_stopped(void **state)
{
    struct rig *r = *state;
    char last[128];
    char want[128];
    plant_part(r, 123456);
    assert_ok(r->ctx, get(r, "plain"));
    expect_file(r);
    assert_int_equal(requests(r, last), 1);
    (void)snprintf(want, sizeof want, "/plain/data.bin bytes=123456-");
    assert_string_equal(last, want);
}

/* ---- servers that cannot --------------------------------------------------------------------- */

static void test_servers_that_lie_are_told_apart(void **state)
{
    struct rig *r = *state;
    static const struct {
        const char *mode;
        enum der_status status;
        const char *part;
    } cases[] = {
        {"wrong", DER_FORMAT, "is not the wanted file: its SHA-256 is "},
        {"toolong", DER_FORMAT, "has 400000 bytes, want 200000"},
        {"tooshort", DER_FORMAT, "has 100000 bytes, want 200000"},
        {"endless", DER_FORMAT, "sends more than 200000 bytes"},
        {"nowhere", DER_IO, "the server answers with error 404"},
        {"error", DER_IO, "the server answers with error 500"},
        {"loop", DER_IO, "redirects"},
        {"tofile", DER_IO, "rotocol"},
        {"nonsense", DER_IO, "HTTP/0.9"},
    };
    for (size_t i = 0; i < N_OF(cases); i++)
        expect_failure(r, get(r, cases[i].mode), cases[i].status, cases[i].part);
}

static void test_a_silent_server_is_given_up(void **state)
{
    struct rig *r = *state;
    double start = clock_seconds();
    r->options.retries = 1;
    expect_failure(r, get(r, "silent"), DER_IO, "after 0 of 200000 bytes");
    assert_true(clock_seconds() - start < 20.0); /* two seconds; the server waits 30 each time */
}

static void test_errors_that_may_pass_are_tried_again_and_no_others(void **state)
{
    struct rig *r = *state;
    char last[128];
    (void)get(r, "error");
    assert_int_equal(requests(r, last), 4); /* once, and three retries */
    (void)unlink(scratch_path(&r->scratch, "www/log"));
    (void)get(r, "nowhere");
    assert_int_equal(requests(r, last), 1);
}

static void test_an_address_that_nobody_serves_is_told_at_once(void **state)
{
    struct rig *r = *state;
    r->options.pause_seconds = 60.0;
    r->options.url = "http://127.0.0.1:1/data.bin";
    expect_failure(r, get(r, "plain"), DER_IO, "onnect");
    r->options.url = "ftp://127.0.0.1/data.bin";
    expect_failure(r, get(r, "plain"), DER_IO, "rotocol");
    r->options.url = "no address at all";
    expect_failure(r, get(r, "plain"), DER_IO, "no address at all");
}

/* Without a size only the checksum can tell. */
static void test_lies_about_a_file_of_unknown_size(void **state)
{
    struct rig *r = *state;
    char own[128];
    (void)snprintf(own, sizeof own, "sha256:%s", r->sum);
    r->options.checksum = own;
    expect_failure(r, get(r, "tooshort"), DER_FORMAT, "is not the wanted file");
    expect_failure(r, get(r, "toolong"), DER_IO, "after 200000 bytes");
    assert_ok(r->ctx, get(r, "cut"));
    expect_file(r);
}

/* ---- parts of earlier downloads -------------------------------------------------------------- */

static void test_a_part_of_something_else_is_thrown_away(void **state)
{
    struct rig *r = *state;
    static const size_t sizes[] = {1, 100000, DATA_BYTES - 1, DATA_BYTES, DATA_BYTES + 1};
    static uint8_t zeros[DATA_BYTES + 1];
    for (size_t i = 0; i < N_OF(sizes); i++) {
        (void)unlink(scratch_path(&r->scratch, "here/data.bin"));
        scratch_write(&r->scratch, "here/data.bin.part", zeros, sizes[i]);
        assert_ok(r->ctx, get(r, "plain"));
        expect_file(r);
    }
}

/* Where the size is not known the server says that it has nothing more (416). */
static void test_a_part_that_is_too_long_is_thrown_away(void **state)
{
    struct rig *r = *state;
    static const uint8_t zeros[DATA_BYTES + 1];
    char own[128];
    (void)snprintf(own, sizeof own, "sha256:%s", r->sum);
    r->options.checksum = own;
    scratch_write(&r->scratch, "here/data.bin.part", zeros, sizeof zeros);
    assert_ok(r->ctx, get(r, "plain"));
    expect_file(r);
}

static void test_a_file_address_goes_on_too(void **state)
{
    struct rig *r = *state;
    static const uint8_t zeros[DATA_BYTES + 1];
    char own[128];
    char url[SCRATCH_PATH_MAX];
    (void)snprintf(url, sizeof url, "file://%s", scratch_path(&r->scratch, "www/data.bin"));
    (void)snprintf(own, sizeof own, "sha256:%s", r->sum);
    r->options.url = url;
    plant_part(r, 1000);
    assert_ok(r->ctx, get(r, "plain"));
    expect_file(r);
    (void)unlink(scratch_path(&r->scratch, "here/data.bin"));
    r->options.checksum = own;
    scratch_write(&r->scratch, "here/data.bin.part", zeros, sizeof zeros);
    assert_ok(r->ctx, get(r, "plain"));
    expect_file(r);
}

static void test_a_part_that_is_whole_needs_no_server(void **state)
{
    struct rig *r = *state;
    char last[128];
    char own[128];
    plant_part(r, DATA_BYTES);
    assert_ok(r->ctx, get(r, "error"));
    expect_file(r);
    /* The same where the size is not known. */
    (void)unlink(scratch_path(&r->scratch, "here/data.bin"));
    plant_part(r, DATA_BYTES);
    (void)snprintf(own, sizeof own, "sha256:%s", r->sum);
    r->options.checksum = own;
    assert_ok(r->ctx, get(r, "error"));
    expect_file(r);
    assert_int_equal(requests(r, last), 0);
}

static void test_a_download_that_is_stopped_goes_on(void **state)
{
    struct rig *r = *state;
    char last[128];
    r->stop_at = 20000;
    expect_failure(r, get(r, "trickle"), DER_CANCELLED, "the same command goes on from there");
    struct file_bytes part = read_file(r, "here/data.bin.part");
    size_t had = part.size;
    file_bytes_free(&r->ctx->mem, &part);
    assert_true(had >= 20000 && had < DATA_BYTES);
    r->stop_at = 0;
    assert_ok(r->ctx, get(r, "plain"));
    expect_file(r);
    char want[128];
    (void)requests(r, last);
    (void)snprintf(want, sizeof want, "/plain/data.bin bytes=%zu-", had);
    assert_string_equal(last, want);
}

static void test_one_process_at_a_time_downloads(void **state)
{
    struct rig *r = *state;
    plant_part(r, 10);
    int fd = open(scratch_path(&r->scratch, "here/data.bin.part"), O_RDWR);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    expect_failure(r, get(r, "plain"), DER_STATE, "by another process");
    (void)close(fd);
    assert_ok(r->ctx, get(r, "plain"));
}

/* ---- files that are there -------------------------------------------------------------------- */

static void test_a_file_that_is_there_is_kept(void **state)
{
    struct rig *r = *state;
    char last[128];
    assert_ok(r->ctx, get(r, "plain"));
    assert_ok(r->ctx, get(r, "plain"));
    assert_int_equal(requests(r, last), 1);
}

static void test_a_file_of_the_user_is_not_written_over(void **state)
{
    struct rig *r = *state;
    scratch_text(&r->scratch, "here/data.bin", "mine");
    assert_int_equal(get(r, "plain"), DER_STATE);
    assert_non_null(strstr(r->ctx->error, "move it away"));
    struct file_bytes is = read_file(r, "here/data.bin");
    assert_string_equal((char *)is.data, "mine");
    file_bytes_free(&r->ctx->mem, &is);
}

/* ---- the disk -------------------------------------------------------------------------------- */

static void test_a_full_disk_leaves_a_part_to_go_on_with(void **state)
{
    struct rig *r = *state;
    struct faulty_calls calls = {0};
    struct io_calls io = faulty_calls(&calls);
    r->options.io = &io;
    enum der_status status = DER_OK;
    /* Behind a few calls that open the file there are many that write to it. */
    for (int at = 12; !calls.failed_call || strcmp(calls.failed_call, "write") != 0; at++) {
        calls =
            (struct faulty_calls){.fail_at = at, .error = ENOSPC, .is_full = true, .most = 10000};
        (void)unlink(scratch_path(&r->scratch, "here/data.bin.part"));
        status = get(r, "plain");
    }
    expect_failure(r, status, DER_IO, "No space left on device; what came so far is kept");
    struct file_bytes part = read_file(r, "here/data.bin.part");
    assert_true(part.size > 0);
    file_bytes_free(&r->ctx->mem, &part);
    r->options.io = NULL;
    assert_ok(r->ctx, get(r, "plain"));
    expect_file(r);
}

static void test_a_disk_that_is_too_small_is_told_before(void **state)
{
    struct rig *r = *state;
    char last[128];
    r->offer.files[0].size = INT64_C(1) << 60;
    expect_failure(r, get(r, "plain"), DER_IO, "MB are free");
    assert_int_equal(requests(r, last), 0);
}

static void test_whichever_call_fails_the_next_download_is_whole(void **state)
{
    struct rig *r = *state;
    for (int at = 1;; at++) {
        struct faulty_calls calls = {.fail_at = at, .error = EIO, .interrupts = true};
        struct io_calls io = faulty_calls(&calls);
        (void)unlink(scratch_path(&r->scratch, "here/data.bin"));
        (void)unlink(scratch_path(&r->scratch, "here/data.bin.part"));
        (void)rmdir(r->folder);
        r->options.io = &io;
        enum der_status status = get(r, "plain");
        r->options.io = NULL;
        if (!calls.failed_call) {
            assert_ok(r->ctx, status);
            break;
        }
        if (status == DER_OK)
            expect_file(r); /* of a call whose failure means nothing */
        else
            assert_non_null(strstr(r->ctx->error, "Input/output error"));
        assert_ok(r->ctx, get(r, "plain"));
        expect_file(r);
    }
}

static void test_every_allocation_can_fail(void **state)
{
    struct rig *r = *state;
    struct mem *mem = &r->ctx->mem;
    for (uint64_t at = 1;; at++) {
        (void)unlink(scratch_path(&r->scratch, "here/data.bin"));
        uint64_t live = atomic_load(&mem->n_live);
        uint64_t target = atomic_load(&mem->n_allocs) + at;
        atomic_store(&mem->fail_at, target);
        enum der_status status = get(r, "plain");
        atomic_store(&mem->fail_at, 0);
        assert_int_equal(atomic_load(&mem->n_live), live);
        if (atomic_load(&mem->n_allocs) < target) {
            assert_ok(r->ctx, status);
            break;
        }
        assert_int_equal(status, DER_NOMEM);
    }
    expect_file(r);
}

/* ---- archives -------------------------------------------------------------------------------- */

static void use_archive(struct rig *r, const struct tar_entry *entries, size_t n)
{
    tar_write(scratch_path(&r->scratch, "www/set.tar.gz"), entries, n);
    struct file_bytes bytes = read_file(r, "www/set.tar.gz");
    use_file(r, "set.tar.gz", (int64_t)bytes.size);
    file_bytes_free(&r->ctx->mem, &bytes);
    r->offer.folder = "set";
}

static const struct tar_entry good[] = {{TAR_FILE, "set/a.bin", "first", 0},
                                        {TAR_FILE, "set/b.bin", "second", 0}};

/* Nothing else lies there. */
static void expect_set(struct rig *r)
{
    struct file_bytes bytes = read_file(r, "here/set/a.bin");
    assert_string_equal((char *)bytes.data, "first");
    file_bytes_free(&r->ctx->mem, &bytes);
    bytes = read_file(r, "here/set/b.bin");
    assert_string_equal((char *)bytes.data, "second");
    file_bytes_free(&r->ctx->mem, &bytes);
    int n = 0;
    DIR *dir = opendir(r->folder);
    assert_non_null(dir);
    while (readdir(dir))
        n++;
    (void)closedir(dir);
    assert_int_equal(n, 3); /* ".", ".." and "set" */
}

static void test_an_archive_becomes_a_folder(void **state)
{
    struct rig *r = *state;
    use_archive(r, good, N_OF(good));
    assert_ok(r->ctx, get(r, "cut"));
    expect_set(r);
    assert_true(r->n_ticks[FETCH_UNPACKING] > 0);
}

static void test_left_overs_of_a_killed_process_are_removed(void **state)
{
    struct rig *r = *state;
    use_archive(r, good, N_OF(good));
    scratch_text(&r->scratch, "here/.set.unpacking/a.bin", "half of it");
    scratch_mkdir(&r->scratch, "here/set"); /* empty: it takes nothing away from anybody */
    assert_ok(r->ctx, get(r, "plain"));
    expect_set(r);
}

static void test_a_folder_of_the_user_is_not_written_over(void **state)
{
    struct rig *r = *state;
    char last[128];
    use_archive(r, good, N_OF(good));
    scratch_text(&r->scratch, "here/set/a.bin", "mine");
    assert_int_equal(get(r, "plain"), DER_STATE);
    assert_non_null(strstr(r->ctx->error, "move it away"));
    assert_int_equal(requests(r, last), 0);
    struct file_bytes bytes = read_file(r, "here/set/a.bin");
    assert_string_equal((char *)bytes.data, "mine");
    file_bytes_free(&r->ctx->mem, &bytes);
}

static void test_an_evil_archive_leaves_nothing(void **state)
{
    struct rig *r = *state;
    static const struct tar_entry evil[] = {{TAR_FILE, "set/a.bin", "first", 0},
                                            {TAR_FILE, "../evil", "x", 0}};
    use_archive(r, evil, N_OF(evil));
    assert_int_equal(get(r, "plain"), DER_FORMAT);
    assert_non_null(strstr(r->ctx->error, "'../evil'"));
    assert_false(exists(r, "evil"));
    assert_int_equal(rmdir(r->folder), 0); /* it is empty */
}

/* Says whether the two files are there, and whether nothing has their place yet. */
static enum der_status look_at_content(void *user, const char *folder, const char *url)
{
    struct rig *r = user;
    assert_true(exists(r, "here/.set.unpacking/a.bin") && exists(r, "here/.set.unpacking/b.bin"));
    assert_false(exists(r, "here/set"));
    assert_non_null(strstr(folder, "here/.set.unpacking"));
    assert_non_null(strstr(url, "set.tar.gz"));
    r->n_looks++;
    return r->n_looks > 1 ? DER_OK : ctx_fail(r->ctx, DER_FORMAT, "not what was wanted");
}

static void test_content_is_looked_at_before_it_is_put_in_place(void **state)
{
    struct rig *r = *state;
    use_archive(r, good, N_OF(good));
    r->options.content = look_at_content;
    r->options.content_user = r;
    assert_int_equal(get(r, "plain"), DER_FORMAT);
    assert_string_equal(r->ctx->error, "not what was wanted");
    assert_int_equal(rmdir(r->folder), 0); /* it is empty */
    assert_ok(r->ctx, get(r, "plain"));
    assert_int_equal(r->n_looks, 2);
    expect_set(r);
}

/* The archive stays when the disk is too small for its content, so that it need not come again. */
static void test_whichever_call_fails_an_archive_can_be_got_again(void **state)
{
    struct rig *r = *state;
    use_archive(r, good, N_OF(good));
    for (int at = 1;; at++) {
        struct faulty_calls calls = {.fail_at = at, .error = ENOSPC};
        struct io_calls io = faulty_calls(&calls);
        (void)unlink(scratch_path(&r->scratch, "here/set/a.bin"));
        (void)unlink(scratch_path(&r->scratch, "here/set/b.bin"));
        (void)rmdir(scratch_path(&r->scratch, "here/set"));
        (void)unlink(scratch_path(&r->scratch, "here/set.tar.gz.part"));
        r->options.io = &io;
        enum der_status status = get(r, "plain");
        r->options.io = NULL;
        if (!calls.failed_call) {
            assert_ok(r->ctx, status);
            break;
        }
        if (status != DER_OK && !exists(r, "here/set")) {
            assert_false(exists(r, "here/.set.unpacking"));
            assert_ok(r->ctx, get(r, "plain"));
            expect_set(r);
        }
    }
}

static void test_a_checksum_of_ones_own_is_for_one_file(void **state)
{
    struct rig *r = *state;
    r->offer.n_files = 2;
    r->options.checksum = "md5:d41d8cd98f00b204e9800998ecf8427e";
    assert_int_equal(get(r, "plain"), DER_ARG);
    r->offer.n_files = 1;
    r->options.checksum = "md5:nonsense";
    assert_int_equal(get(r, "plain"), DER_ARG);
    assert_non_null(strstr(r->ctx->error, "md5:nonsense"));
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_servers_that_cut_stall_and_change_their_files),
        CASE(test_a_cut_download_goes_on_where_it_stopped),
        CASE(test_servers_that_lie_are_told_apart),
        CASE(test_a_silent_server_is_given_up),
        CASE(test_errors_that_may_pass_are_tried_again_and_no_others),
        CASE(test_an_address_that_nobody_serves_is_told_at_once),
        CASE(test_lies_about_a_file_of_unknown_size),
        CASE(test_a_part_of_something_else_is_thrown_away),
        CASE(test_a_part_that_is_too_long_is_thrown_away),
        CASE(test_a_file_address_goes_on_too),
        CASE(test_a_part_that_is_whole_needs_no_server),
        CASE(test_a_download_that_is_stopped_goes_on),
        CASE(test_one_process_at_a_time_downloads),
        CASE(test_a_file_that_is_there_is_kept),
        CASE(test_a_file_of_the_user_is_not_written_over),
        CASE(test_a_full_disk_leaves_a_part_to_go_on_with),
        CASE(test_a_disk_that_is_too_small_is_told_before),
        CASE(test_whichever_call_fails_the_next_download_is_whole),
        CASE(test_every_allocation_can_fail),
        CASE(test_an_archive_becomes_a_folder),
        CASE(test_left_overs_of_a_killed_process_are_removed),
        CASE(test_a_folder_of_the_user_is_not_written_over),
        CASE(test_an_evil_archive_leaves_nothing),
        CASE(test_content_is_looked_at_before_it_is_put_in_place),
        CASE(test_whichever_call_fails_an_archive_can_be_got_again),
        CASE(test_a_checksum_of_ones_own_is_for_one_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

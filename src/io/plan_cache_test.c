/* labels: tsan */
#include "io/plan_cache.h"

#include "support/faulty_calls.h"
#include "support/file_fixture.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static const char KEY[] = "forward of bf16, n 128";
static const char TEXT[] = "engine 7\n{\"kernel\": \"\\u0000 and so on\"}";

enum { TEXT_SIZE = sizeof TEXT - 1 };

static struct plan_cache *open_cache(struct file_fixture *f, const char *folder)
{
    struct plan_cache *cache;
    assert_ok(f->ctx, plan_cache_open(f->ctx, NULL, scratch_path(&f->scratch, folder),
                                      &PLAN_CACHE_LIMITS, &cache));
    return cache;
}

/* text NULL: nothing must be found. */
static void assert_found(struct plan_cache *cache, struct mem *mem, const char *key,
                         const char *text, size_t size)
{
    struct file_bytes file = {0};
    size_t found_size = 0;
    const char *found = plan_cache_find(cache, key, &file, &found_size);
    assert_int_equal(found != NULL, text != NULL);
    if (text) {
        assert_int_equal(found_size, size);
        assert_memory_equal(found, text, size);
        assert_int_equal(found[size], 0);
    }
    file_bytes_free(mem, &file);
}

static int count_files(const char *folder)
{
    int n = 0;
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    while (readdir(dir))
        n++;
    (void)closedir(dir);
    return n - 2;
}

/* The only file in a folder; static storage. */
static const char *only_file(const char *folder)
{
    static char path[SCRATCH_PATH_MAX * 2];
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    const struct dirent *entry;
    path[0] = '\0';
    while ((entry = readdir(dir)))
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            assert_int_equal(path[0], 0);
            (void)snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        }
    (void)closedir(dir);
    assert_int_not_equal(path[0], 0);
    return path;
}

static void test_what_is_stored_is_found_by_its_key_alone(void **state)
{
    struct file_fixture *f = *state;
    struct plan_cache *cache = open_cache(f, "a/b/plans");
    static const char bytes[] = {'\0', '\n', (char)0xff, '\0'};
    assert_found(cache, &f->ctx->mem, KEY, NULL, 0); /* there is no folder yet */
    assert_ok(f->ctx, plan_cache_store(cache, KEY, TEXT, TEXT_SIZE));
    assert_ok(f->ctx, plan_cache_store(cache, "other", bytes, sizeof bytes));
    assert_ok(f->ctx, plan_cache_store(cache, "empty", "", 0));
    plan_cache_close(cache);
    cache = open_cache(f, "a/b/plans");
    assert_found(cache, &f->ctx->mem, KEY, TEXT, TEXT_SIZE);
    assert_found(cache, &f->ctx->mem, "other", bytes, sizeof bytes);
    assert_found(cache, &f->ctx->mem, "empty", "", 0);
    assert_found(cache, &f->ctx->mem, "forward of bf16, n 12", NULL, 0);
    assert_found(cache, &f->ctx->mem, "", NULL, 0);
    assert_ok(f->ctx, plan_cache_store(cache, KEY, "new", 3));
    assert_found(cache, &f->ctx->mem, KEY, "new", 3);
    assert_int_equal(count_files(scratch_path(&f->scratch, "a/b/plans")), 3);
    plan_cache_close(cache);
    plan_cache_close(NULL);
}

static void write_bytes(const char *path, const uint8_t *data, size_t size)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

/* Every length that is too short, every byte changed, more at the end, another format, and files of other keys. */
static void test_whatever_was_not_stored_so_counts_as_absent_and_is_replaced(void **state)
{
    struct file_fixture *f = *state;
    struct mem *mem = &f->ctx->mem;
    struct plan_cache *cache = open_cache(f, "plans");
    assert_ok(f->ctx, plan_cache_store(cache, KEY, TEXT, TEXT_SIZE));
    char path[SCRATCH_PATH_MAX * 2];
    (void)snprintf(path, sizeof path, "%s", only_file(scratch_path(&f->scratch, "plans")));
    struct file_bytes whole = {0};
    struct fault fault;
    assert_int_equal(file_read(mem, NULL, path, 1 << 20, &whole, &fault), DER_OK);
    for (size_t n = 0; n < whole.size; n++) {
        write_bytes(path, whole.data, n);
        assert_found(cache, mem, KEY, NULL, 0);
    }
    for (size_t i = 0; i < whole.size; i++) {
        whole.data[i] ^= 0x20;
        write_bytes(path, whole.data, whole.size);
        whole.data[i] ^= 0x20;
        assert_found(cache, mem, KEY, NULL, 0);
    }
    write_bytes(path, whole.data, whole.size + 1); /* the zero byte behind it */
    assert_found(cache, mem, KEY, NULL, 0);
    assert_ok(f->ctx, plan_cache_store(cache, KEY, TEXT, TEXT_SIZE));
    assert_found(cache, mem, KEY, TEXT, TEXT_SIZE);
    assert_int_equal(unlink(path), 0);
    assert_ok(f->ctx, plan_cache_store(cache, "another key", TEXT, TEXT_SIZE));
    assert_int_equal(rename(only_file(scratch_path(&f->scratch, "plans")), path), 0);
    assert_found(cache, mem, KEY, NULL, 0); /* as if both had the same hash */
    file_bytes_free(mem, &whole);
    plan_cache_close(cache);
}

static void test_what_is_no_file_counts_as_absent(void **state)
{
    struct file_fixture *f = *state;
    struct plan_cache *cache = open_cache(f, "plans");
    assert_ok(f->ctx, plan_cache_store(cache, KEY, TEXT, TEXT_SIZE));
    char path[SCRATCH_PATH_MAX * 2];
    (void)snprintf(path, sizeof path, "%s", only_file(scratch_path(&f->scratch, "plans")));
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_found(cache, &f->ctx->mem, KEY, NULL, 0); /* and nobody waits for a writer */
    assert_int_equal(plan_cache_store(cache, KEY, TEXT, TEXT_SIZE), DER_IO); /* or a reader */
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_found(cache, &f->ctx->mem, KEY, NULL, 0);
    assert_int_equal(plan_cache_store(cache, KEY, TEXT, TEXT_SIZE), DER_IO);
    plan_cache_close(cache);
}

static void test_a_folder_that_cannot_be_written_to_is_told(void **state)
{
    struct file_fixture *f = *state;
    scratch_text(&f->scratch, "file", "not a folder");
    struct plan_cache *cache = open_cache(f, "file");
    assert_found(cache, &f->ctx->mem, KEY, NULL, 0);
    assert_int_equal(plan_cache_store(cache, KEY, TEXT, TEXT_SIZE), DER_IO);
    assert_non_null(strstr(der_ctx_error(f->ctx), "/file: File exists"));
    plan_cache_close(cache);
    cache = open_cache(f, "file/plans");
    assert_int_equal(plan_cache_store(cache, KEY, TEXT, TEXT_SIZE), DER_IO);
    plan_cache_close(cache);
    if (geteuid() == 0)
        return; /* root may write anywhere */
    scratch_mkdir(&f->scratch, "closed");
    assert_int_equal(chmod(scratch_path(&f->scratch, "closed"), 0500), 0);
    cache = open_cache(f, "closed");
    assert_int_equal(plan_cache_store(cache, KEY, TEXT, TEXT_SIZE), DER_IO);
    assert_non_null(strstr(der_ctx_error(f->ctx), "Permission denied"));
    plan_cache_close(cache);
}

/* Whichever call fails, what is found is the old text or the new one, and no temporary file is left. */
static void test_whichever_call_fails_one_whole_text_is_found(void **state)
{
    struct file_fixture *f = *state;
    bool has_failed = true;
    for (int k = 1; has_failed; k++) {
        struct faulty_calls calls = {0};
        struct io_calls io = faulty_calls(&calls);
        struct plan_cache *cache;
        assert_ok(f->ctx, plan_cache_open(f->ctx, &io, scratch_path(&f->scratch, "plans"),
                                          &PLAN_CACHE_LIMITS, &cache));
        assert_ok(f->ctx, plan_cache_store(cache, KEY, "old", 3));
        calls = (struct faulty_calls){.fail_at = k, .error = ENOSPC, .most = 7, .is_full = true};
        enum der_status status = plan_cache_store(cache, KEY, TEXT, TEXT_SIZE);
        has_failed = calls.failed_call != NULL;
        struct file_bytes file = {0};
        size_t size;
        const char *text = plan_cache_find(cache, KEY, &file, &size);
        assert_non_null(text);
        if (status == DER_OK || size == TEXT_SIZE)
            assert_string_equal(text, TEXT);
        else
            assert_string_equal(text, "old");
        file_bytes_free(&f->ctx->mem, &file);
        assert_int_equal(count_files(scratch_path(&f->scratch, "plans")), 1);
        plan_cache_close(cache);
    }
}

static void test_every_failed_allocation_is_survived(void **state)
{
    struct file_fixture *f = *state;
    struct mem *mem = &f->ctx->mem;
    static const struct plan_cache_limits few = {.files = 4, .bytes = 1 << 20};
    bool has_failed = true;
    for (uint64_t k = 1; has_failed; k++) {
        char folder[32];
        (void)snprintf(folder, sizeof folder, "plans-%d", (int)k);
        scratch_mkdir(&f->scratch, folder);
        for (int i = 0; i < 4; i++) {
            char name[64];
            (void)snprintf(name, sizeof name, "%s/%016x.plan", folder, (unsigned)i);
            scratch_text(&f->scratch, name, "old");
        }
        struct file_bytes file = {0};
        struct plan_cache *cache = NULL;
        size_t size;
        atomic_store(&mem->fail_at, atomic_load(&mem->n_allocs) + k);
        enum der_status status =
            plan_cache_open(f->ctx, NULL, scratch_path(&f->scratch, folder), &few, &cache);
        if (status == DER_OK)
            status = plan_cache_store(cache, KEY, TEXT, TEXT_SIZE);
        const char *text = status == DER_OK ? plan_cache_find(cache, KEY, &file, &size) : NULL;
        has_failed = atomic_load(&mem->n_allocs) >= atomic_load(&mem->fail_at);
        atomic_store(&mem->fail_at, 0);
        assert_true(text || has_failed);
        assert_true(status == DER_OK || status == DER_NOMEM);
        file_bytes_free(mem, &file);
        plan_cache_close(cache);
        assert_int_equal(atomic_load(&mem->n_live), 0);
    }
}

/* ---- how much is kept ----------------------------------------------------------------------------------- */

static void set_age(const char *path, int seconds)
{
    struct timespec now;
    assert_int_equal(clock_gettime(CLOCK_REALTIME, &now), 0);
    now.tv_sec -= seconds;
    const struct timespec times[2] = {now, now};
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

static void test_what_was_not_used_for_longest_goes_when_there_is_too_much(void **state)
{
    struct file_fixture *f = *state;
    static const struct plan_cache_limits limits[] = {{.files = 8, .bytes = 1 << 20},
                                                      {.files = 1000, .bytes = (size_t)8 * 200}};
    for (int l = 0; l < 2; l++) {
        const char *folder = l == 0 ? "files" : "bytes";
        char text[200 - PLAN_HEAD_SIZE - 3] = "";
        char key[] = "k0";
        struct plan_cache *cache;
        scratch_text(&f->scratch, l == 0 ? "files/other.plan" : "bytes/other.plan", "a stranger's");
        for (int i = 0; i < 8; i++, key[1]++) {
            assert_ok(f->ctx, plan_cache_open(f->ctx, NULL, scratch_path(&f->scratch, folder),
                                              &limits[l], &cache));
            assert_ok(f->ctx, plan_cache_store(cache, key, text, sizeof text));
            plan_cache_close(cache);
        }
        assert_int_equal(count_files(scratch_path(&f->scratch, folder)), 9);
        assert_ok(f->ctx, plan_cache_open(f->ctx, NULL, scratch_path(&f->scratch, folder),
                                          &limits[l], &cache));
        DIR *dir = opendir(scratch_path(&f->scratch, folder));
        assert_non_null(dir);
        const struct dirent *entry;
        while ((entry = readdir(dir))) {
            char path[SCRATCH_PATH_MAX * 2];
            (void)snprintf(path, sizeof path, "%s/%s", scratch_path(&f->scratch, folder),
                           entry->d_name);
            if (entry->d_name[0] != '.')
                set_age(path, 1000);
        }
        (void)closedir(dir);
        for (key[1] = '0'; key[1] < '5'; key[1]++) /* in use, so the other three are the oldest */
            assert_found(cache, &f->ctx->mem, key, text, sizeof text);
        assert_ok(f->ctx, plan_cache_store(cache, "new", text, sizeof text));
        assert_found(cache, &f->ctx->mem, "new", text, sizeof text);
        for (key[1] = '0'; key[1] < '5'; key[1]++)
            assert_found(cache, &f->ctx->mem, key, text, sizeof text);
        int n_left = 0;
        for (; key[1] < '8'; key[1]++) {
            struct file_bytes file = {0};
            size_t size;
            n_left += plan_cache_find(cache, key, &file, &size) != NULL;
            file_bytes_free(&f->ctx->mem, &file);
        }
        assert_int_equal(n_left, 1); /* three quarters of eight, and the new one */
        assert_int_equal(count_files(scratch_path(&f->scratch, folder)), 8);
        plan_cache_close(cache);
    }
}

static void test_what_a_process_adds_is_bounded_too(void **state)
{
    struct file_fixture *f = *state;
    static const struct plan_cache_limits few = {.files = 8, .bytes = 1 << 20};
    struct plan_cache *cache;
    assert_ok(f->ctx,
              plan_cache_open(f->ctx, NULL, scratch_path(&f->scratch, "plans"), &few, &cache));
    for (int i = 0; i < 50; i++) {
        char key[16];
        (void)snprintf(key, sizeof key, "key %d", i);
        assert_ok(f->ctx, plan_cache_store(cache, key, TEXT, TEXT_SIZE));
        assert_in_range(count_files(scratch_path(&f->scratch, "plans")), 1, 8);
        assert_found(cache, &f->ctx->mem, key, TEXT, TEXT_SIZE);
    }
    plan_cache_close(cache);
}

static void test_what_killed_processes_left_goes_in_time(void **state)
{
    struct file_fixture *f = *state;
    static const struct plan_cache_limits few = {.files = 4, .bytes = 1 << 20};
    static const char *const left[] = {"plans/.0123456789abcdef.plan.17-0.tmp",
                                       "plans/.0123456789abcdef.plan.17-1.tmp",
                                       "plans/.fedcba9876543210.plan.18-0.tmp"};
    static const char at_work[] = "plans/.fedcba9876543210.plan.19-0.tmp";
    struct plan_cache *cache;
    for (int i = 0; i < 3; i++) {
        scratch_text(&f->scratch, left[i], "half a pl");
        set_age(scratch_path(&f->scratch, left[i]), 2 * 3600);
    }
    scratch_text(&f->scratch, at_work, "half a pl");
    assert_ok(f->ctx,
              plan_cache_open(f->ctx, NULL, scratch_path(&f->scratch, "plans"), &few, &cache));
    for (int i = 0; i < 4; i++)
        assert_ok(f->ctx, plan_cache_store(cache, &"abcd"[i], TEXT, TEXT_SIZE));
    for (int i = 0; i < 4; i++)
        assert_found(cache, &f->ctx->mem, &"abcd"[i], TEXT, TEXT_SIZE);
    assert_int_equal(count_files(scratch_path(&f->scratch, "plans")), 5);
    assert_int_equal(access(scratch_path(&f->scratch, at_work), F_OK), 0);
    plan_cache_close(cache);
}

static void test_a_text_that_would_push_out_the_others_is_refused(void **state)
{
    struct file_fixture *f = *state;
    static const struct plan_cache_limits few = {.files = 8, .bytes = 1000};
    char text[300] = "";
    struct plan_cache *cache;
    assert_ok(f->ctx,
              plan_cache_open(f->ctx, NULL, scratch_path(&f->scratch, "plans"), &few, &cache));
    assert_int_equal(plan_cache_store(cache, KEY, text, sizeof text), DER_ARG);
    assert_int_equal(plan_cache_store(cache, KEY, text, SIZE_MAX), DER_ARG);
    assert_found(cache, &f->ctx->mem, KEY, NULL, 0);
    plan_cache_close(cache);
}

/* ---- many at once ------------------------------------------------------------------------------------------ */

enum { N_WRITERS = 4, N_ROUNDS = 25, LONG_TEXT = 20000 };

/* Stores its own text and looks again and again; 0: it never found anything but a whole one. */
static int write_and_read(const char *folder, int number)
{
    static const struct plan_cache_limits few = {.files = 4, .bytes = 1 << 20};
    struct der_ctx *ctx;
    struct plan_cache *cache;
    int n_wrong = 0;
    if (der_ctx_new(NULL, &ctx) != DER_OK ||
        plan_cache_open(ctx, NULL, folder, &few, &cache) != DER_OK)
        return 1;
    char *text = mem_alloc(&ctx->mem, LONG_TEXT, 1);
    for (int round = 0; text && round < N_ROUNDS; round++) {
        struct file_bytes file = {0};
        size_t size = 0;
        char key[] = "key 0";
        key[4] = (char)('0' + (round + number) % 6);
        memset(text, 'a' + number, LONG_TEXT);
        n_wrong += plan_cache_store(cache, key, text, LONG_TEXT) != DER_OK;
        const char *found = plan_cache_find(cache, key, &file, &size);
        if (found) { /* or another one has removed it */
            memset(text, found[0], LONG_TEXT);
            n_wrong += size != LONG_TEXT || memcmp(found, text, LONG_TEXT) != 0;
        }
        file_bytes_free(&ctx->mem, &file);
    }
    n_wrong += !text;
    mem_free(&ctx->mem, text);
    plan_cache_close(cache);
    der_ctx_free(ctx);
    return n_wrong;
}

struct writer {
    pthread_t thread;
    const char *folder;
    int number;
    int n_wrong;
};

static void *writer_main(void *argument)
{
    struct writer *writer = argument;
    writer->n_wrong = write_and_read(writer->folder, writer->number);
    return NULL;
}

static void test_threads_share_a_folder(void **state)
{
    struct file_fixture *f = *state;
    struct writer writers[N_WRITERS];
    const char *folder = scratch_path(&f->scratch, "plans");
    for (int i = 0; i < N_WRITERS; i++) {
        writers[i] = (struct writer){.folder = folder, .number = i};
        assert_int_equal(pthread_create(&writers[i].thread, NULL, writer_main, &writers[i]), 0);
    }
    for (int i = 0; i < N_WRITERS; i++) {
        assert_int_equal(pthread_join(writers[i].thread, NULL), 0);
        assert_int_equal(writers[i].n_wrong, 0);
    }
}

static void test_processes_share_a_folder(void **state)
{
    struct file_fixture *f = *state;
    const char *folder = scratch_path(&f->scratch, "plans");
    pid_t children[N_WRITERS];
    for (int i = 0; i < N_WRITERS; i++) {
        children[i] = fork();
        assert_true(children[i] >= 0);
        if (children[i] == 0)
            _exit(write_and_read(folder, i) != 0);
    }
    for (int i = 0; i < N_WRITERS; i++) {
        int status = -1;
        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
}

struct reader {
    pthread_t thread;
    struct plan_cache *cache;
    struct mem *mem;
    int n_found;
};

static void *reader_main(void *argument)
{
    struct reader *reader = argument;
    for (int i = 0; i < N_ROUNDS; i++) {
        struct file_bytes file = {0};
        size_t size = 0;
        const char *text = plan_cache_find(reader->cache, KEY, &file, &size);
        reader->n_found += text && size == TEXT_SIZE && memcmp(text, TEXT, TEXT_SIZE) == 0;
        file_bytes_free(reader->mem, &file);
    }
    return NULL;
}

static void test_threads_look_into_one_cache(void **state)
{
    struct file_fixture *f = *state;
    struct plan_cache *cache = open_cache(f, "plans");
    struct reader readers[N_WRITERS];
    assert_ok(f->ctx, plan_cache_store(cache, KEY, TEXT, TEXT_SIZE));
    for (int i = 0; i < N_WRITERS; i++) {
        readers[i] = (struct reader){.cache = cache, .mem = &f->ctx->mem};
        assert_int_equal(pthread_create(&readers[i].thread, NULL, reader_main, &readers[i]), 0);
    }
    for (int i = 0; i < N_WRITERS; i++) {
        assert_int_equal(pthread_join(readers[i].thread, NULL), 0);
        assert_int_equal(readers[i].n_found, N_ROUNDS);
    }
    plan_cache_close(cache);
}

#define TEST(name)                                                                                 \
    cmocka_unit_test_setup_teardown(name, file_fixture_set_up, file_fixture_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_what_is_stored_is_found_by_its_key_alone),
        TEST(test_whatever_was_not_stored_so_counts_as_absent_and_is_replaced),
        TEST(test_what_is_no_file_counts_as_absent),
        TEST(test_a_folder_that_cannot_be_written_to_is_told),
        TEST(test_whichever_call_fails_one_whole_text_is_found),
        TEST(test_every_failed_allocation_is_survived),
        TEST(test_what_was_not_used_for_longest_goes_when_there_is_too_much),
        TEST(test_what_a_process_adds_is_bounded_too),
        TEST(test_what_killed_processes_left_goes_in_time),
        TEST(test_a_text_that_would_push_out_the_others_is_refused),
        TEST(test_threads_share_a_folder),
        TEST(test_processes_share_a_folder),
        TEST(test_threads_look_into_one_cache),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

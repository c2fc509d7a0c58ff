#include "support/scratch.h"

#include "support/test_ctx.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void scratch_init(struct scratch *scratch)
{
    const char *base = getenv("TMPDIR");
    (void)snprintf(scratch->root, sizeof scratch->root, "%s/der_test_XXXXXX", base ? base : "/tmp");
    assert_non_null(mkdtemp(scratch->root));
}

static void remove_tree(const char *path)
{
    DIR *dir = opendir(path);
    if (dir) {
        const struct dirent *entry;
        while ((entry = readdir(dir))) {
            if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
                continue;
            char inner[SCRATCH_PATH_MAX];
            (void)snprintf(inner, sizeof inner, "%s/%s", path, entry->d_name);
            struct stat info;
            if (lstat(inner, &info) == 0 && S_ISDIR(info.st_mode))
                remove_tree(inner);
            else
                (void)unlink(inner);
        }
        (void)closedir(dir);
    }
    (void)rmdir(path);
}

void scratch_fini(struct scratch *scratch)
{
    remove_tree(scratch->root);
}

const char *scratch_path(struct scratch *scratch, const char *name)
{
    int length = snprintf(scratch->path, sizeof scratch->path, "%s/%s", scratch->root, name);
    assert_true(length > 0 && (size_t)length < sizeof scratch->path);
    return scratch->path;
}

static void make_parents(struct scratch *scratch, const char *path)
{
    char parent[SCRATCH_PATH_MAX];
    (void)snprintf(parent, sizeof parent, "%s", path);
    for (char *at = parent + strlen(scratch->root) + 1; (at = strchr(at, '/')); at++) {
        *at = 0;
        if (mkdir(parent, 0755) != 0)
            assert_int_equal(errno, EEXIST);
        *at = '/';
    }
}

void scratch_write(struct scratch *scratch, const char *name, const void *data, size_t size)
{
    const char *path = scratch_path(scratch, name);
    make_parents(scratch, path);
    FILE *stream = fopen(path, "wb");
    assert_non_null(stream);
    assert_int_equal(fwrite(data, 1, size, stream), size);
    assert_int_equal(fclose(stream), 0);
}

void scratch_text(struct scratch *scratch, const char *name, const char *text)
{
    scratch_write(scratch, name, text, strlen(text));
}

void scratch_mkdir(struct scratch *scratch, const char *name)
{
    const char *path = scratch_path(scratch, name);
    make_parents(scratch, path);
    assert_int_equal(mkdir(path, 0755), 0);
}

void fixture_path(char path[SCRATCH_PATH_MAX], const char *name)
{
    (void)snprintf(path, SCRATCH_PATH_MAX, "%s/data/fixtures/%s", DER_TESTS_DIR, name);
}

struct file_bytes fixture_read(struct der_ctx *ctx, const char *name)
{
    char path[SCRATCH_PATH_MAX];
    struct file_bytes bytes = {0};
    struct fault fault;
    fixture_path(path, name);
    if (file_read(&ctx->mem, NULL, path, 1 << 20, &bytes, &fault) != DER_OK)
        fail_msg("%s", fault.text);
    return bytes;
}

void scratch_copy(struct scratch *scratch, const char *name, const char *fixture)
{
    struct der_ctx *ctx = test_ctx_new(1);
    struct file_bytes bytes = fixture_read(ctx, fixture);
    scratch_write(scratch, name, bytes.data, bytes.size);
    file_bytes_free(&ctx->mem, &bytes);
    test_ctx_free(ctx);
}

static ssize_t faulty_read(void *user, int fd, void *dst, size_t n)
{
    struct faulty_reads *reads = user;
    reads->n_calls++;
    if (reads->n_calls == reads->fail_at) {
        errno = EIO;
        return -1;
    }
    if (reads->n_calls % 2 == 0) {
        errno = EINTR;
        return -1;
    }
    return read(fd, dst, n < reads->most ? n : reads->most);
}

struct file_io faulty_io(struct faulty_reads *reads)
{
    return (struct file_io){.read = faulty_read, .user = reads};
}

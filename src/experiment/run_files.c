#include "experiment/run_files.h"

#include "io/io_calls.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

char *run_files_join(struct der_ctx *ctx, const char *folder, const char *name)
{
    size_t size = strlen(folder) + strlen(name) + 2;
    char *path = mem_alloc(&ctx->mem, size, 1);
    if (path)
        (void)snprintf(path, size, "%s/%s", folder, name);
    return path;
}

/* The lock, "." and "..", and temporary files of io/durable. */
static bool is_passing(DIR *dir, const char *name)
{
    static const char ending[] = ".tmp";
    size_t length = strlen(name);
    size_t tail = sizeof ending - 1;
    struct stat info;
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return true;
    if (fstatat(dirfd(dir), name, &info, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(info.st_mode))
        return false;
    return strcmp(name, "lock") == 0 ||
           (name[0] == '.' && length > tail && strcmp(name + length - tail, ending) == 0);
}

enum der_status run_files_is_empty(struct der_ctx *ctx, const char *folder, bool *out)
{
    const struct dirent *entry;
    *out = true;
    DIR *dir = opendir(folder);
    if (!dir)
        return io_fail(ctx, "cannot list folder", folder, errno);
    do {
        errno = 0; /* the only way to tell the end from an error */
        entry = readdir(dir);
        if (entry && !is_passing(dir, entry->d_name))
            *out = false;
    } while (entry && *out);
    int error = *out ? errno : 0;
    (void)closedir(dir);
    return error != 0 ? io_fail(ctx, "cannot list folder", folder, error) : DER_OK;
}

#include "data/listing.h"

#include "core/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

enum { CAPACITY_START = 64 };

static bool is_image(const char *name)
{
    static const char *const endings[] = {".jpg", ".jpeg", ".png"};
    const char *dot = strrchr(name, '.');
    for (size_t i = 0; dot && i < sizeof endings / sizeof endings[0]; i++)
        if (strcasecmp(dot, endings[i]) == 0)
            return true;
    return false;
}

static bool is_folder(DIR *dir, const char *name)
{
    struct stat info;
    return fstatat(dirfd(dir), name, &info, 0) == 0 && S_ISDIR(info.st_mode);
}

static bool is_wanted(DIR *dir, const char *name, enum listing_kind kind)
{
    switch (kind) {
    case LISTING_FOLDERS:
        return is_folder(dir, name);
    case LISTING_IMAGES:
        return is_image(name);
    case LISTING_NOT_FOLDERS:
        return !is_folder(dir, name);
    case LISTING_NOT_IMAGES:
        return !is_image(name);
    }
    return false;
}

static bool add(struct listing *listing, const char *name)
{
    if (listing->n == listing->capacity) {
        size_t capacity = listing->capacity > 0 ? listing->capacity * 2 : CAPACITY_START;
        char **names =
            mem_realloc(listing->arena.mem, listing->names, capacity, sizeof *listing->names);
        if (!names)
            return false;
        listing->names = names;
        listing->capacity = capacity;
    }
    listing->names[listing->n] = arena_strdup(&listing->arena, name);
    if (!listing->names[listing->n])
        return false;
    listing->n++;
    return true;
}

static int compare(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static enum der_status fail_errno(struct der_ctx *ctx, const char *what, const char *folder)
{
    struct fault fault;
    enum der_status status = fault_errno(&fault, what, folder, errno);
    return ctx_fail(ctx, status, "%s", fault.text);
}

static enum der_status read_entries(struct der_ctx *ctx, const char *folder, DIR *dir,
                                    enum listing_kind kind, struct listing *out)
{
    for (;;) {
        errno = 0; /* the only way to tell the end from an error */
        const struct dirent *entry = readdir(dir);
        if (!entry && errno != 0)
            return fail_errno(ctx, "cannot list folder", folder);
        if (!entry)
            return DER_OK;
        if (entry->d_name[0] == '.')
            continue;
        if (is_wanted(dir, entry->d_name, kind) && !add(out, entry->d_name))
            return ctx_nomem(ctx);
    }
}

enum der_status listing_read(struct der_ctx *ctx, const char *folder, enum listing_kind kind,
                             struct listing *out)
{
    *out = (struct listing){0};
    arena_init(&out->arena, &ctx->mem);
    DIR *dir = opendir(folder);
    if (!dir)
        return fail_errno(ctx, "cannot open folder", folder);
    enum der_status status = read_entries(ctx, folder, dir, kind, out);
    (void)closedir(dir);
    if (out->n > 1)
        qsort(out->names, out->n, sizeof *out->names, compare);
    return status;
}

void listing_free(struct listing *listing)
{
    mem_free(listing->arena.mem, listing->names);
    arena_fini(&listing->arena);
    *listing = (struct listing){.arena = listing->arena};
}

int64_t listing_find(const struct listing *listing, const char *name, size_t length)
{
    size_t low = 0;
    size_t high = listing->n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const char *at = listing->names[middle];
        int order = strncmp(at, name, length);
        if (order == 0 && at[length] != 0)
            order = 1; /* `at` goes on where the name ends */
        if (order == 0)
            return (int64_t)middle;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return -1;
}

/*
 * The steps that all readers take: paths, reading into memory, room for a split, class names.
 */
#include "data/reader.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { PROBE_PATH_MAX = 4096 }; /* longer paths do not open anyway */

static const size_t READER_FILE_MAX = (size_t)4 << 30;

static bool probe(const char *folder, const char *name, struct stat *info)
{
    char path[PROBE_PATH_MAX];
    int length = snprintf(path, sizeof path, "%s/%s", folder, name);
    return length > 0 && length < PROBE_PATH_MAX && stat(path, info) == 0;
}

bool reader_is_file(const char *folder, const char *name)
{
    struct stat info;
    return probe(folder, name, &info) && S_ISREG(info.st_mode);
}

bool reader_is_folder(const char *folder, const char *name)
{
    struct stat info;
    return probe(folder, name, &info) && S_ISDIR(info.st_mode);
}

char *reader_path(struct dataset *set, const char *folder, const char *name)
{
    return arena_printf(&set->arena, "%s/%s", folder, name);
}

enum der_status reader_read(struct dataset *set, const struct dataset_options *options,
                            const char *path, struct file_bytes *bytes)
{
    struct fault fault;
    enum der_status status =
        file_read(&set->ctx->mem, options->io, path, READER_FILE_MAX, bytes, &fault);
    return status == DER_OK ? status : ctx_fail(set->ctx, status, "%s", fault.text);
}

enum der_status reader_grow_part(struct dataset *set, enum data_split split, size_t more)
{
    struct data_part *part = &set->part[split];
    struct mem *mem = &set->ctx->mem;
    size_t image = (size_t)set->channels * (size_t)set->height * (size_t)set->width;
    size_t n;
    if (!size_add((size_t)part->n, more, &n) || n > INT64_MAX / 2)
        return ctx_nomem(set->ctx);
    int32_t *labels = mem_realloc(mem, part->labels, n, sizeof *labels);
    if (!labels)
        return ctx_nomem(set->ctx);
    part->labels = labels;
    uint8_t *pixels = mem_realloc(mem, part->pixels, n, image);
    if (!pixels)
        return ctx_nomem(set->ctx);
    part->pixels = pixels;
    part->n = (int64_t)n;
    return DER_OK;
}

enum der_status reader_number_classes(struct dataset *set, int n_classes)
{
    set->class_names = arena_zalloc(&set->arena, (size_t)n_classes, sizeof *set->class_names);
    if (!set->class_names)
        return ctx_nomem(set->ctx);
    for (int i = 0; i < n_classes; i++) {
        set->class_names[i] = arena_printf(&set->arena, "%d", i);
        if (!set->class_names[i])
            return ctx_nomem(set->ctx);
    }
    set->n_classes = n_classes;
    return DER_OK;
}

enum der_status reader_name_classes(struct dataset *set, struct reader_input text, int n_classes)
{
    set->class_names = arena_zalloc(&set->arena, (size_t)n_classes, sizeof *set->class_names);
    if (!set->class_names)
        return ctx_nomem(set->ctx);
    const char *at = (const char *)text.data;
    const char *end = at + text.size;
    int n = 0;
    while (at < end) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        const char *next = stop ? stop + 1 : end;
        size_t length = (size_t)((stop ? stop : end) - at);
        if (length > 0 && at[length - 1] == '\r')
            length--;
        if (length > 0 && (memchr(at, 0, length) || length > INT_MAX))
            return ctx_fail(set->ctx, DER_FORMAT, "%s: line %d is not text", text.name, n + 1);
        if (length > 0 && n < n_classes) {
            set->class_names[n] = arena_printf(&set->arena, "%.*s", (int)length, at);
            if (!set->class_names[n])
                return ctx_nomem(set->ctx);
        }
        n += length > 0;
        at = next;
    }
    if (n != n_classes)
        return ctx_fail(set->ctx, DER_FORMAT, "%s has %d class names, want %d", text.name, n,
                        n_classes);
    set->n_classes = n_classes;
    return reader_check_names(set, text.name);
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

enum der_status reader_check_names(struct dataset *set, const char *where)
{
    size_t n = (size_t)set->n_classes;
    char **sorted = mem_alloc(&set->ctx->mem, n, sizeof *sorted);
    if (!sorted)
        return ctx_nomem(set->ctx);
    memcpy(sorted, set->class_names, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, compare_names);
    enum der_status status = DER_OK;
    for (size_t i = 1; i < n && status == DER_OK; i++)
        if (strcmp(sorted[i - 1], sorted[i]) == 0)
            status =
                ctx_fail(set->ctx, DER_FORMAT, "%s: class '%s' appears twice", where, sorted[i]);
    mem_free(&set->ctx->mem, sorted);
    return status;
}

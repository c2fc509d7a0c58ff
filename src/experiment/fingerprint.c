#include "experiment/fingerprint.h"

#include "core/fnv.h"

#include <string.h>
#include <sys/stat.h>

enum { SAMPLES = 64 }; /* images of a split that are looked at, spread over it */

static uint64_t add_number(uint64_t hash, int64_t number)
{
    return fnv_bytes(hash, &number, sizeof number);
}

/* With its end, so that "ab", "c" is not "a", "bc". */
static uint64_t add_text(uint64_t hash, const char *text)
{
    return fnv_bytes(hash, text, strlen(text) + 1);
}

/* The part of a path below the folder of the set. */
static const char *below(const char *path, const char *folder)
{
    size_t length = strlen(folder);
    return strncmp(path, folder, length) == 0 ? path + length : path;
}

/* A file that cannot be examined counts as empty: whoever reads it will say what is wrong. */
static int64_t file_size(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 ? (int64_t)info.st_size : 0;
}

/* Planes one after the other, whatever the layout. */
static uint64_t add_pixels(uint64_t hash, const struct image_view *image)
{
    for (int c = 0; c < image->channels; c++)
        for (int y = 0; y < image->height; y++) {
            const uint8_t *at = image->data + c * image->channel_stride + y * image->row_stride;
            for (int x = 0; x < image->width; x++, at += image->pixel_stride)
                hash = fnv_bytes(hash, at, 1);
        }
    return hash;
}

static uint64_t add_item(uint64_t hash, const struct data_item *item)
{
    switch (item->place) {
    case DATA_IN_MEMORY:
        return add_pixels(hash, &item->image);
    case DATA_IN_FILE:
        return add_number(hash, file_size(item->file));
    case DATA_FROM_SOURCE:
        break;
    }
    return hash; /* the owner alone knows */
}

static uint64_t add_part(uint64_t hash, const struct dataset *set, enum data_split split)
{
    const struct data_part *part = &set->part[split];
    hash = add_number(hash, part->n);
    if (part->n == 0)
        return hash;
    hash = fnv_bytes(hash, part->labels, (size_t)part->n * sizeof *part->labels);
    for (int64_t i = 0; !part->pixels && i < part->n; i++) {
        struct data_item item = dataset_item(set, split, i);
        if (item.place == DATA_IN_FILE)
            hash = add_text(hash, below(item.file, set->path));
    }
    for (int64_t s = 0; s < SAMPLES && s < part->n; s++) {
        int64_t i = part->n < SAMPLES ? s : s * (part->n - 1) / (SAMPLES - 1);
        struct data_item item = dataset_item(set, split, i);
        hash = add_item(hash, &item);
    }
    return hash;
}

uint64_t fingerprint_dataset(const struct dataset *set)
{
    uint64_t hash = add_text(FNV_START, set->kind);
    hash = add_number(hash, set->channels);
    hash = add_number(hash, set->height);
    hash = add_number(hash, set->width);
    hash = add_number(hash, set->n_classes);
    for (int c = 0; c < set->n_classes; c++)
        hash = add_text(hash, set->class_names[c]);
    for (int split = 0; split < DATA_SPLITS; split++)
        hash = add_part(hash, set, (enum data_split)split);
    return hash;
}

enum der_status fingerprint_file(struct der_ctx *ctx, const char *path, uint64_t *out)
{
    static const size_t most = (size_t)4 << 30;
    struct file_bytes bytes = {0};
    struct fault fault;
    enum der_status status = file_read(&ctx->mem, NULL, path, most, &bytes, &fault);
    if (status != DER_OK)
        return ctx_fail(ctx, status, "%s", fault.text);
    *out = fnv_bytes(FNV_START, bytes.data, bytes.size);
    file_bytes_free(&ctx->mem, &bytes);
    return DER_OK;
}

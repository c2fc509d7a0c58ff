#include "store/album_file.h"

#include "data/collection.h"
#include "data/image_file.h"
#include "store/companion.h"
#include "store/tensor_list.h"

#include <assert.h>
#include <stdio.h>

/* Names of the tensors by split. */
static const struct {
    const char *labels, *sizes, *pixels;
} TENSORS[DATA_SPLITS] = {
    [DATA_TRAIN] = {"kept.labels", "kept.sizes", "kept.pixels"},
    [DATA_TEST] = {"held.labels", "held.sizes", "held.pixels"},
};

enum { N_TENSORS = 3 * DATA_SPLITS };

static size_t picture_bytes(const struct dataset *album, const struct image_view *picture)
{
    return (size_t)picture->height * (size_t)picture->width * (size_t)album->channels;
}

/* ---- writing ------------------------------------------------------------------------------------- */

static cJSON *make_text(const struct dataset *album, uint64_t model)
{
    cJSON *object = cJSON_CreateObject();
    cJSON *names =
        cJSON_CreateStringArray((const char *const *)album->class_names, album->n_classes);
    if (object && names && companion_describe(object, model) &&
        cJSON_AddNumberToObject(object, "channels", album->channels) &&
        cJSON_AddItemToObject(object, "classes", names))
        return object;
    cJSON_Delete(names);
    cJSON_Delete(object);
    return NULL;
}

/* Declares the numbers of both splits, then their pixels: wider types come first. */
static enum der_status declare(const struct dataset *album, struct safetensors_writer *writer)
{
    for (int split = 0; split < DATA_SPLITS; split++) {
        int64_t n = album->part[split].n;
        TRY(safetensors_declare(writer, &(struct safetensors_tensor){.name = TENSORS[split].labels,
                                                                     .dtype = SAFETENSORS_I32,
                                                                     .rank = 1,
                                                                     .dim = {n}}));
        TRY(safetensors_declare(writer, &(struct safetensors_tensor){.name = TENSORS[split].sizes,
                                                                     .dtype = SAFETENSORS_I32,
                                                                     .rank = 2,
                                                                     .dim = {n, 2}}));
    }
    for (int split = 0; split < DATA_SPLITS; split++) {
        int64_t bytes = 0;
        for (int64_t i = 0; i < album->part[split].n; i++)
            bytes += (int64_t)picture_bytes(album, &album->part[split].items[i].image);
        TRY(safetensors_declare(writer, &(struct safetensors_tensor){.name = TENSORS[split].pixels,
                                                                     .dtype = SAFETENSORS_U8,
                                                                     .rank = 1,
                                                                     .dim = {bytes}}));
    }
    return DER_OK;
}

static enum der_status put_numbers(const struct dataset *album, enum data_split split,
                                   struct safetensors_writer *writer)
{
    const struct data_part *part = &album->part[split];
    size_t n = (size_t)part->n;
    TRY(safetensors_put(writer, TENSORS[split].labels, part->labels, n * sizeof *part->labels));
    int32_t *sizes = mem_alloc(&album->ctx->mem, 2 * n, sizeof *sizes);
    if (!sizes)
        return ctx_nomem(album->ctx);
    for (size_t i = 0; i < n; i++) {
        sizes[2 * i] = part->items[i].image.height;
        sizes[2 * i + 1] = part->items[i].image.width;
    }
    enum der_status status =
        safetensors_put(writer, TENSORS[split].sizes, sizes, 2 * n * sizeof *sizes);
    mem_free(&album->ctx->mem, sizes);
    return status;
}

static enum der_status put_pixels(const struct dataset *album, enum data_split split,
                                  struct safetensors_writer *writer)
{
    const struct data_part *part = &album->part[split];
    TRY(safetensors_put(writer, TENSORS[split].pixels, NULL, 0));
    for (int64_t i = 0; i < part->n; i++) {
        const struct image_view *picture = &part->items[i].image;
        assert(part->items[i].place == DATA_IN_MEMORY && picture->channels == album->channels &&
               picture->channel_stride == 1 && picture->pixel_stride == picture->channels);
        TRY(safetensors_put(writer, TENSORS[split].pixels, picture->data,
                            picture_bytes(album, picture)));
    }
    return DER_OK;
}

static enum der_status write_all(const struct dataset *album, uint64_t model,
                                 struct safetensors_writer *writer)
{
    TRY(text_describe(album->ctx, writer, make_text(album, model)));
    TRY(declare(album, writer));
    for (int split = 0; split < DATA_SPLITS; split++)
        TRY(put_numbers(album, (enum data_split)split, writer));
    for (int split = 0; split < DATA_SPLITS; split++)
        TRY(put_pixels(album, (enum data_split)split, writer));
    return DER_OK;
}

enum der_status album_write(const struct dataset *album, uint64_t model, const struct io_calls *io,
                            const char *path)
{
    struct safetensors_writer *writer;
    TRY(safetensors_writer_new(album->ctx, io, path, &writer));
    enum der_status status = write_all(album, model, writer);
    if (status != DER_OK) {
        safetensors_abort(writer);
        return status;
    }
    return safetensors_commit(writer);
}

/* ---- reading ------------------------------------------------------------------------------------- */

static enum der_status get_text(struct dataset *album, const char *path,
                                const struct safetensors_file *file)
{
    static const char *const keys[] = {"format", "model", "channels", "classes", NULL};
    struct der_ctx *ctx = album->ctx;
    cJSON *object;
    const cJSON *list;
    const char *const *names;
    int64_t channels = 0;
    uint64_t model;
    TRY(text_description(ctx, path, file, &object));
    enum der_status status = text_members(ctx, path, object, keys);
    if (status == DER_OK)
        status = companion_model(ctx, path, object, &model);
    if (status == DER_OK)
        status = json_get_int(ctx, path, object, "channels", 1, 3, &channels);
    if (status == DER_OK && channels == 2)
        status = ctx_fail(ctx, DER_FORMAT, "%s: pictures of 2 channels, want 1 or 3", path);
    if (status == DER_OK)
        status = json_get_array(ctx, path, object, "classes", &list);
    if (status == DER_OK)
        status = text_names(ctx, path, list, 1, &album->arena, &names, &album->n_classes);
    if (status == DER_OK)
        album->class_names = (char **)names; /* both are lists of the arena */
    album->channels = (int)channels;
    json_free(object);
    return status;
}

/* The tensor of that name, when it is of that type and rank. */
static enum der_status find(struct der_ctx *ctx, const char *path,
                            const struct safetensors_file *file, const char *name,
                            enum safetensors_dtype dtype, int rank,
                            const struct safetensors_tensor **out)
{
    *out = safetensors_find(file, name);
    if (*out && (*out)->dtype == dtype && (*out)->rank == rank)
        return DER_OK;
    return ctx_fail(ctx, DER_FORMAT, "%s: there is no tensor '%s' of type %s and rank %d", path,
                    name, safetensors_dtype_name(dtype), rank);
}

/* Labels rise from class to class, so that the order within each is its ranking. */
static enum der_status check_labels(const struct dataset *album, const char *path,
                                    const struct data_part *part)
{
    for (int64_t i = 0; i < part->n; i++)
        if (part->labels[i] < (i > 0 ? part->labels[i - 1] : 0) ||
            part->labels[i] >= album->n_classes)
            return ctx_fail(album->ctx, DER_FORMAT,
                            "%s: picture %lld has label %d; labels rise and lie below %d", path,
                            (long long)i + 1, (int)part->labels[i], album->n_classes);
    return DER_OK;
}

/* Cuts the pixels into pictures as the sizes say. */
static enum der_status cut(struct dataset *album, const char *path, struct data_part *part,
                           const int32_t *sizes, const uint8_t *pixels, size_t n_bytes)
{
    size_t used = 0;
    for (int64_t i = 0; i < part->n; i++) {
        int height = sizes[2 * i];
        int width = sizes[2 * i + 1];
        bool is_sane =
            height >= 1 && width >= 1 && height <= IMAGE_SIDE_MAX && width <= IMAGE_SIDE_MAX;
        size_t bytes = is_sane ? (size_t)height * (size_t)width * (size_t)album->channels : 0;
        if (!is_sane || bytes > n_bytes - used)
            return ctx_fail(album->ctx, DER_FORMAT,
                            "%s: picture %lld of %d x %d does not fit into its pixels", path,
                            (long long)i + 1, width, height);
        part->items[i] = (struct data_item){
            .place = DATA_IN_MEMORY,
            .image = collection_view(pixels + used, album->channels, height, width)};
        used += bytes;
    }
    if (used != n_bytes)
        return ctx_fail(album->ctx, DER_FORMAT, "%s: %zu bytes of pixels, the pictures have %zu",
                        path, n_bytes, used);
    return DER_OK;
}

static enum der_status read_split(struct dataset *album, const char *path,
                                  struct safetensors_file *file, enum data_split split)
{
    struct der_ctx *ctx = album->ctx;
    struct data_part *part = &album->part[split];
    const struct safetensors_tensor *labels;
    const struct safetensors_tensor *sizes;
    const struct safetensors_tensor *pixels;
    TRY(find(ctx, path, file, TENSORS[split].labels, SAFETENSORS_I32, 1, &labels));
    TRY(find(ctx, path, file, TENSORS[split].sizes, SAFETENSORS_I32, 2, &sizes));
    TRY(find(ctx, path, file, TENSORS[split].pixels, SAFETENSORS_U8, 1, &pixels));
    if (sizes->dim[0] != labels->dim[0] || sizes->dim[1] != 2)
        return ctx_fail(ctx, DER_FORMAT, "%s: '%s' is no list of %lld heights and widths", path,
                        sizes->name, (long long)labels->dim[0]);
    TRY(collection_grow(album, split, labels->dim[0]));
    TRY(safetensors_read(file, labels, SAFETENSORS_ANY, part->labels));
    TRY(check_labels(album, path, part));
    uint8_t *bytes = arena_zalloc(&album->arena, pixels->size, 1);
    int32_t *numbers = mem_alloc(&ctx->mem, 2 * (size_t)part->n, sizeof *numbers);
    enum der_status status = bytes && numbers ? DER_OK : ctx_nomem(ctx);
    if (status == DER_OK)
        status = safetensors_read(file, pixels, SAFETENSORS_ANY, bytes);
    if (status == DER_OK)
        status = safetensors_read(file, sizes, SAFETENSORS_ANY, numbers);
    if (status == DER_OK)
        status = cut(album, path, part, numbers, bytes, pixels->size);
    mem_free(&ctx->mem, numbers);
    return status;
}

static enum der_status read_all(struct dataset *album, const char *path,
                                struct safetensors_file *file)
{
    TRY(get_text(album, path, file));
    if (safetensors_count(file) != N_TENSORS)
        return ctx_fail(album->ctx, DER_FORMAT, "%s has %d tensors, want %d", path,
                        safetensors_count(file), N_TENSORS);
    TRY(read_split(album, path, file, DATA_TRAIN));
    return read_split(album, path, file, DATA_TEST);
}

enum der_status album_read(struct der_ctx *ctx, const struct io_calls *io, const char *path,
                           struct dataset **out)
{
    struct safetensors_file *file;
    struct dataset *album;
    *out = NULL;
    TRY(collection_new(ctx, "album", path, 3, &album));
    enum der_status status = safetensors_open(ctx, io, path, &file);
    if (status == DER_OK)
        status = read_all(album, path, file);
    safetensors_close(file);
    if (status != DER_OK) {
        dataset_free(album);
        return status;
    }
    *out = album;
    return DER_OK;
}

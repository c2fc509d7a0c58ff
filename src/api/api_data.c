/*
 * der_data_*: sets of labelled pictures from folders, from memory, or from the caller.
 */
#include "api/api_data.h"

#include "core/utf8.h"
#include "data/find.h"
#include "data/image_file.h"

#include <string.h>

enum { CAPACITY_START = 16, MAX_CLASSES = 1 << 24 };

enum data_split api_split(enum der_split split)
{
    return split == DER_SPLIT_TEST ? DATA_TEST : DATA_TRAIN;
}

/* Says what is wrong with a picture; NULL: nothing. All strides 0 mean interleaved without gaps. */
static const char *form_view(const struct der_image *image, struct image_view *out)
{
    if (!image->pixels)
        return "has no pixels";
    if (image->channels != 1 && image->channels != 3)
        return "has neither 1 nor 3 channels";
    if (image->height < 1 || image->width < 1 || image->height > IMAGE_SIDE_MAX ||
        image->width > IMAGE_SIDE_MAX || (int64_t)image->height * image->width > IMAGE_PIXELS_MAX)
        return "has a size that no picture can have";
    *out = (struct image_view){.data = image->pixels,
                               .channels = image->channels,
                               .height = image->height,
                               .width = image->width,
                               .channel_stride = image->channel_stride,
                               .row_stride = image->row_stride,
                               .pixel_stride = image->pixel_stride};
    if (image->channel_stride == 0 && image->row_stride == 0 && image->pixel_stride == 0) {
        out->channel_stride = 1;
        out->pixel_stride = image->channels;
        out->row_stride = (ptrdiff_t)image->width * image->channels;
    }
    return NULL;
}

enum der_status api_image(struct der_ctx *ctx, const char *what, const struct der_image *image,
                          struct image_view *out)
{
    const char *fault = form_view(image, out);
    if (!fault)
        return DER_OK;
    return ctx_fail(ctx, DER_ARG, "%s %s (%d channels, %d x %d pixels)", what, fault,
                    image->channels, image->height, image->width);
}

/* ---- making and ending --------------------------------------------------------------------------- */

static enum der_status data_new(struct der_ctx *ctx, struct der_data **out)
{
    *out = mem_zalloc(&ctx->mem, 1, sizeof **out);
    if (!*out)
        return ctx_nomem(ctx);
    (*out)->ctx = ctx;
    return DER_OK;
}

enum der_status der_data_open(struct der_ctx *ctx, const char *path, const char *class_list,
                              struct der_data **out)
{
    struct der_data *data;
    *out = NULL;
    TRY(data_new(ctx, &data));
    struct dataset_options options = {.class_list = class_list};
    enum der_status status = dataset_open_with(ctx, path, &options, &data->set);
    if (status != DER_OK) {
        der_data_free(data);
        return status;
    }
    *out = data;
    return DER_OK;
}

/* A set without images, which are items of their own. */
static enum der_status set_new(struct der_data *data, const char *kind, const char *name)
{
    struct der_ctx *ctx = data->ctx;
    data->set = mem_zalloc(&ctx->mem, 1, sizeof *data->set);
    if (!data->set)
        return ctx_nomem(ctx);
    data->set->ctx = ctx;
    arena_init(&data->set->arena, &ctx->mem);
    data->set->kind = kind;
    data->set->channels = 3;
    data->set->path = arena_strdup(&data->set->arena, name);
    return data->set->path ? DER_OK : ctx_nomem(ctx);
}

enum der_status der_data_new(struct der_ctx *ctx, struct der_data **out)
{
    struct der_data *data;
    *out = NULL;
    TRY(data_new(ctx, &data));
    data->is_growing = true;
    enum der_status status = set_new(data, "memory", "the set in memory");
    if (status != DER_OK) {
        der_data_free(data);
        return status;
    }
    *out = data;
    return DER_OK;
}

void der_data_free(struct der_data *data)
{
    if (!data)
        return;
    struct mem *mem = &data->ctx->mem;
    for (int split = 0; data->is_growing && data->set && split < DATA_SPLITS; split++) {
        const struct data_part *part = &data->set->part[split];
        for (int64_t i = 0; i < part->n; i++)
            mem_free(mem, (void *)(uintptr_t)part->items[i].image.data);
    }
    dataset_free(data->set);
    mem_free(mem, data->names);
    mem_free(mem, data);
}

/* ---- pictures in memory -------------------------------------------------------------------------- */

static enum der_status check_name(struct der_ctx *ctx, const char *name)
{
    if (name && name[0] && utf8_is_valid(name, strlen(name)))
        return DER_OK;
    return ctx_fail(ctx, DER_ARG, "the name of a class must be UTF-8 and not empty");
}

static int find_class(const struct dataset *set, const char *name)
{
    for (int i = 0; i < set->n_classes; i++)
        if (strcmp(set->class_names[i], name) == 0)
            return i;
    return -1;
}

static enum der_status reserve_class(struct der_data *data)
{
    struct dataset *set = data->set;
    if (set->n_classes < data->class_capacity)
        return DER_OK;
    if (set->n_classes >= MAX_CLASSES)
        return ctx_fail(data->ctx, DER_ARG, "more than %d classes", MAX_CLASSES);
    int capacity = data->class_capacity > 0 ? 2 * data->class_capacity : CAPACITY_START;
    char **names = mem_realloc(&data->ctx->mem, data->names, (size_t)capacity, sizeof *names);
    if (!names)
        return ctx_nomem(data->ctx);
    data->names = set->class_names = names;
    data->class_capacity = capacity;
    return DER_OK;
}

static enum der_status reserve_item(struct der_data *data, enum data_split split)
{
    struct data_part *part = &data->set->part[split];
    if (part->n < data->capacity[split])
        return DER_OK;
    int64_t capacity = data->capacity[split] > 0 ? 2 * data->capacity[split] : CAPACITY_START;
    struct mem *mem = &data->ctx->mem;
    int32_t *labels = mem_realloc(mem, part->labels, (size_t)capacity, sizeof *labels);
    if (!labels)
        return ctx_nomem(data->ctx);
    part->labels = labels;
    struct data_item *items = mem_realloc(mem, part->items, (size_t)capacity, sizeof *items);
    if (!items)
        return ctx_nomem(data->ctx);
    part->items = items;
    data->capacity[split] = capacity;
    return DER_OK;
}

/* A copy with its channels in planes; *out is a view of it. */
static enum der_status copy_image(struct der_ctx *ctx, const struct image_view *image,
                                  struct image_view *out)
{
    size_t plane = (size_t)image->height * (size_t)image->width;
    uint8_t *bytes = mem_alloc(&ctx->mem, plane, (size_t)image->channels);
    if (!bytes)
        return ctx_nomem(ctx);
    *out = (struct image_view){.data = bytes,
                               .channels = image->channels,
                               .height = image->height,
                               .width = image->width,
                               .channel_stride = (ptrdiff_t)plane,
                               .row_stride = image->width,
                               .pixel_stride = 1};
    for (int c = 0; c < image->channels; c++)
        for (int y = 0; y < image->height; y++) {
            const uint8_t *src = image->data + c * image->channel_stride + y * image->row_stride;
            for (int x = 0; x < image->width; x++)
                *bytes++ = src[x * image->pixel_stride];
        }
    return DER_OK;
}

/* What all images have in common: a size, and grey if all are. */
static void note_image(struct dataset *set, const struct image_view *image)
{
    if (set->part[DATA_TRAIN].n + set->part[DATA_TEST].n == 0) {
        set->channels = image->channels;
        set->height = image->height;
        set->width = image->width;
    }
    if (image->channels > set->channels)
        set->channels = image->channels;
    if (image->height != set->height || image->width != set->width)
        set->height = set->width = 0;
}

enum der_status der_data_add(struct der_data *data, enum der_split split, const char *class_name,
                             const struct der_image *image)
{
    struct der_ctx *ctx = data->ctx;
    struct dataset *set = data->set;
    enum data_split to = api_split(split);
    struct image_view view;
    struct image_view copy;
    if (!data->is_growing)
        return ctx_fail(ctx, DER_STATE, "pictures are added to sets of der_data_new only");
    TRY(check_name(ctx, class_name));
    TRY(api_image(ctx, "the picture", image, &view));
    TRY(reserve_class(data));
    TRY(reserve_item(data, to));
    /* Pictures mostly come class by class. */
    int label = data->latest;
    if (set->n_classes == 0 || strcmp(set->class_names[label], class_name) != 0)
        label = find_class(set, class_name);
    char *name = label < 0 ? arena_strdup(&set->arena, class_name) : NULL;
    if (label < 0 && !name)
        return ctx_nomem(ctx);
    TRY(copy_image(ctx, &view, &copy));
    if (label < 0) {
        label = set->n_classes++;
        set->class_names[label] = name;
    }
    data->latest = label;
    note_image(set, &copy);
    struct data_part *part = &set->part[to];
    part->labels[part->n] = label;
    part->items[part->n++] = (struct data_item){.place = DATA_IN_MEMORY, .image = copy};
    return DER_OK;
}

/* ---- pictures of the caller's -------------------------------------------------------------------- */

static bool read_from_caller(void *user, enum data_split split, int64_t index,
                             struct image_view *image)
{
    const struct der_data *data = user;
    const struct der_source *source = &data->source;
    struct der_image given = {0};
    enum der_split from = split == DATA_TEST ? DER_SPLIT_TEST : DER_SPLIT_TRAIN;
    if (!source->read(source->user, from, index, &given))
        return false;
    if (!form_view(&given, image))
        return true;
    if (source->done)
        source->done(source->user, &given);
    return false;
}

static void done_with_callers(void *user, const struct image_view *image)
{
    const struct der_data *data = user;
    struct der_image given = {.pixels = image->data,
                              .channels = image->channels,
                              .height = image->height,
                              .width = image->width,
                              .channel_stride = image->channel_stride,
                              .row_stride = image->row_stride,
                              .pixel_stride = image->pixel_stride};
    if (data->source.done)
        data->source.done(data->source.user, &given);
}

static enum der_status copy_names(struct der_data *data)
{
    const struct der_source *source = &data->source;
    struct dataset *set = data->set;
    struct der_ctx *ctx = data->ctx;
    set->class_names =
        arena_zalloc(&set->arena, (size_t)source->n_classes, sizeof *set->class_names);
    if (!set->class_names)
        return ctx_nomem(ctx);
    for (int i = 0; i < source->n_classes; i++) {
        const char *name = source->class_names[i];
        TRY(check_name(ctx, name));
        if (find_class(set, name) >= 0)
            return ctx_fail(ctx, DER_ARG, "class '%s' appears twice", name);
        set->class_names[i] = arena_strdup(&set->arena, name);
        if (!set->class_names[i])
            return ctx_nomem(ctx);
        set->n_classes++;
    }
    return DER_OK;
}

static enum der_status ask_labels(struct der_data *data, enum der_split split, int64_t n)
{
    const struct der_source *source = &data->source;
    struct data_part *part = &data->set->part[api_split(split)];
    struct mem *mem = &data->ctx->mem;
    part->labels = mem_alloc(mem, (size_t)n, sizeof *part->labels);
    part->items = mem_zalloc(mem, (size_t)n, sizeof *part->items);
    if (!part->labels || !part->items)
        return ctx_nomem(data->ctx);
    for (int64_t i = 0; i < n; i++) {
        int label = source->label(source->user, split, i);
        if (label < 0 || label >= source->n_classes)
            return ctx_fail(data->ctx, DER_ARG,
                            "%s picture %lld has label %d; there are %d classes",
                            split == DER_SPLIT_TEST ? "test" : "training", (long long)i, label,
                            source->n_classes);
        part->labels[i] = label;
        part->items[i].place = DATA_FROM_SOURCE;
    }
    part->n = n;
    return DER_OK;
}

static enum der_status fill_from_source(struct der_data *data)
{
    const struct der_source *source = &data->source;
    TRY(set_new(data, "source", "the caller's source"));
    data->set->source =
        (struct data_source){.read = read_from_caller, .done = done_with_callers, .user = data};
    TRY(copy_names(data));
    TRY(ask_labels(data, DER_SPLIT_TRAIN, source->n_train));
    return ask_labels(data, DER_SPLIT_TEST, source->n_test);
}

enum der_status der_data_from_source(struct der_ctx *ctx, const struct der_source *source,
                                     struct der_data **out)
{
    struct der_data *data;
    *out = NULL;
    if (!source->label || !source->read || !source->class_names || source->n_classes < 1 ||
        source->n_classes > MAX_CLASSES || source->n_train < 0 || source->n_test < 0)
        return ctx_fail(ctx, DER_ARG,
                        "a source needs functions for labels and pictures, names of its classes, "
                        "and numbers of pictures that are not negative");
    TRY(data_new(ctx, &data));
    data->source = *source;
    enum der_status status = fill_from_source(data);
    data->source.class_names = NULL; /* copied */
    if (status != DER_OK) {
        der_data_free(data);
        return status;
    }
    *out = data;
    return DER_OK;
}

/* ---- looking into -------------------------------------------------------------------------------- */

struct der_data_info der_data_info(const struct der_data *data)
{
    const struct dataset *set = data->set;
    return (struct der_data_info){.kind = set->kind,
                                  .n_classes = set->n_classes,
                                  .n_train = set->part[DATA_TRAIN].n,
                                  .n_test = set->part[DATA_TEST].n,
                                  .channels = set->channels,
                                  .height = set->height,
                                  .width = set->width};
}

const char *der_data_class(const struct der_data *data, int index)
{
    return index >= 0 && index < data->set->n_classes ? data->set->class_names[index] : NULL;
}

enum der_status der_find_images(struct der_ctx *ctx, const char *folder,
                                bool (*found)(void *user, const char *path), void *user)
{
    return find_images(ctx, folder, found, user);
}

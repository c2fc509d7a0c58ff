#include "data/collection.h"

#include "data/image_form.h"

#include <assert.h>
#include <string.h>

enum { FIRST_ROOM = 16 };

enum der_status collection_new(struct der_ctx *ctx, const char *kind, const char *path,
                               int channels, struct dataset **out)
{
    *out = NULL;
    struct dataset *set = mem_zalloc(&ctx->mem, 1, sizeof *set);
    if (!set)
        return ctx_nomem(ctx);
    set->ctx = ctx;
    set->kind = kind;
    set->channels = channels;
    arena_init(&set->arena, &ctx->mem);
    set->path = arena_strdup(&set->arena, path);
    if (!set->path) {
        dataset_free(set);
        return ctx_nomem(ctx);
    }
    *out = set;
    return DER_OK;
}

int32_t dataset_find_class(const struct dataset *set, const char *name)
{
    for (int32_t c = 0; c < set->n_classes; c++)
        if (strcmp(set->class_names[c], name) == 0)
            return c;
    return -1;
}

/* Lists have room for the next power of two from FIRST_ROOM on, so they are full at every such number. */
static bool is_full(int64_t n)
{
    return n == 0 || (n >= FIRST_ROOM && (n & (n - 1)) == 0);
}

static size_t room_for(int64_t n)
{
    size_t room = FIRST_ROOM;
    while (room < (size_t)n)
        room *= 2;
    return room;
}

enum der_status collection_class(struct dataset *set, const char *name, int32_t *label)
{
    *label = dataset_find_class(set, name);
    if (*label >= 0)
        return DER_OK;
    if (is_full(
            set->n_classes)) { /* the old lists stay in the arena, together as long as the new one */
        char **names = arena_zalloc(&set->arena, room_for(set->n_classes + 1), sizeof *names);
        if (!names)
            return ctx_nomem(set->ctx);
        if (set->n_classes > 0)
            memcpy(names, set->class_names, (size_t)set->n_classes * sizeof *names);
        set->class_names = names;
    }
    char *copy = arena_strdup(&set->arena, name);
    if (!copy)
        return ctx_nomem(set->ctx);
    *label = set->n_classes;
    set->class_names[set->n_classes++] = copy;
    return DER_OK;
}

static enum der_status reserve(struct dataset *set, struct data_part *part, int64_t n)
{
    struct mem *mem = &set->ctx->mem;
    size_t room = room_for(n);
    struct data_item *items = mem_realloc(mem, part->items, room, sizeof *items);
    if (!items)
        return ctx_nomem(set->ctx);
    part->items = items;
    int32_t *labels = mem_realloc(mem, part->labels, room, sizeof *labels);
    if (!labels)
        return ctx_nomem(set->ctx);
    part->labels = labels;
    return DER_OK;
}

enum der_status collection_grow(struct dataset *set, enum data_split split, int64_t more)
{
    struct data_part *part = &set->part[split];
    TRY(reserve(set, part, part->n + more));
    part->n += more;
    return DER_OK;
}

struct image_view collection_view(const uint8_t *bytes, int channels, int height, int width)
{
    return (struct image_view){.data = bytes,
                               .channels = channels,
                               .height = height,
                               .width = width,
                               .channel_stride = 1,
                               .row_stride = (ptrdiff_t)width * channels,
                               .pixel_stride = channels};
}

static void note_size(struct dataset *set, const struct image_view *image)
{
    bool is_first = set->part[DATA_TRAIN].n + set->part[DATA_TEST].n == 0;
    if (is_first) {
        set->height = image->height;
        set->width = image->width;
    } else if (set->height != image->height || set->width != image->width) {
        set->height = 0;
        set->width = 0;
    }
}

enum der_status collection_add(struct dataset *set, enum data_split split, int32_t label,
                               const struct image_view *image)
{
    struct data_part *part = &set->part[split];
    assert(label >= 0 && label < set->n_classes);
    if (is_full(part->n))
        TRY(reserve(set, part, part->n + 1));
    size_t row = (size_t)image->width * (size_t)image->channels;
    uint8_t *bytes = arena_zalloc(&set->arena, (size_t)image->height, row);
    if (!bytes)
        return ctx_nomem(set->ctx);
    image_form_copy(bytes, image->channels, image);
    note_size(set, image);
    part->items[part->n] = (struct data_item){
        .place = DATA_IN_MEMORY,
        .image = collection_view(bytes, image->channels, image->height, image->width)};
    part->labels[part->n++] = label;
    return DER_OK;
}

/*
 * CIFAR-10 and CIFAR-100, Python distribution: pickled dictionaries with an array of n x 3072 bytes
 * (planes R, G, B of 32 x 32 pixels), a list of labels, and in a file of their own the class names.
 */
#include "data/pickle.h"
#include "data/reader.h"

#include <inttypes.h>
#include <limits.h>
#include <string.h>

enum { SIDE = 32, CHANNELS = 3, IMAGE_BYTES = CHANNELS * SIDE * SIDE };

static enum der_status copy_labels(struct dataset *set, const char *name,
                                   const struct pickle *pickle, const struct pickle_value *labels,
                                   int32_t *dst)
{
    int64_t i = 0;
    for (uint32_t item = labels->first; item != 0; item = pickle->items[item].next, i++) {
        const struct pickle_value *label = &pickle->values[pickle->items[item].value];
        if (label->type != PICKLE_INT)
            return ctx_fail(set->ctx, DER_FORMAT, "%s: label %" PRId64 " is not a number", name, i);
        if (label->integer < 0 || label->integer >= set->n_classes)
            return ctx_fail(set->ctx, DER_FORMAT,
                            "%s: image %" PRId64 " has label %" PRId64 ", want 0..%d", name, i,
                            label->integer, set->n_classes - 1);
        dst[i] = (int32_t)label->integer;
    }
    return DER_OK;
}

static void copy_pixels(const struct pickle_value *array, uint8_t *dst)
{
    if (!array->fortran) {
        memcpy(dst, array->text, array->size);
        return;
    }
    for (int64_t column = 0; column < array->shape[1]; column++)
        for (int64_t row = 0; row < array->shape[0]; row++)
            dst[row * array->shape[1] + column] = array->text[column * array->shape[0] + row];
}

static enum der_status parse_batch(struct dataset *set, enum data_split split, const char *name,
                                   const struct pickle *pickle)
{
    const char *label_key = set->n_classes == READER_CIFAR100 ? "fine_labels" : "labels";
    const struct pickle_value *root = &pickle->values[pickle->root];
    const struct pickle_value *array = pickle_get(pickle, root, "data");
    const struct pickle_value *labels = pickle_get(pickle, root, label_key);
    if (!array || array->type != PICKLE_ARRAY)
        return ctx_fail(set->ctx, DER_FORMAT, "%s has no array of bytes under 'data'", name);
    if (!labels || labels->type != PICKLE_LIST)
        return ctx_fail(set->ctx, DER_FORMAT, "%s has no list under '%s'", name, label_key);
    if (array->shape[0] == 0 || array->shape[1] != IMAGE_BYTES)
        return ctx_fail(set->ctx, DER_FORMAT,
                        "%s: 'data' is %" PRId64 " x %" PRId64 ", want images of %d bytes", name,
                        array->shape[0], array->shape[1], IMAGE_BYTES);
    if (labels->n_items != array->shape[0])
        return ctx_fail(set->ctx, DER_FORMAT, "%s has %" PRId64 " images, but %" PRIu32 " labels",
                        name, array->shape[0], labels->n_items);
    int64_t first = set->part[split].n;
    TRY(reader_grow_part(set, split, (size_t)array->shape[0]));
    struct data_part *part = &set->part[split];
    copy_pixels(array, part->pixels + first * IMAGE_BYTES);
    return copy_labels(set, name, pickle, labels, part->labels + first);
}

enum der_status cifar_pickle_parse(struct dataset *set, enum data_split split,
                                   struct reader_input input)
{
    struct pickle pickle;
    enum der_status status = pickle_read(set->ctx, input.name, input.data, input.size, &pickle);
    if (status == DER_OK)
        status = parse_batch(set, split, input.name, &pickle);
    pickle_free(&pickle);
    return status;
}

static enum der_status copy_names(struct dataset *set, const char *name,
                                  const struct pickle *pickle)
{
    const char *key = set->n_classes == READER_CIFAR100 ? "fine_label_names" : "label_names";
    const struct pickle_value *list = pickle_get(pickle, &pickle->values[pickle->root], key);
    if (!list || list->type != PICKLE_LIST)
        return ctx_fail(set->ctx, DER_FORMAT, "%s has no list under '%s'", name, key);
    if (list->n_items != (uint32_t)set->n_classes)
        return ctx_fail(set->ctx, DER_FORMAT, "%s has %" PRIu32 " class names, want %d", name,
                        list->n_items, set->n_classes);
    set->class_names = arena_zalloc(&set->arena, list->n_items, sizeof *set->class_names);
    if (!set->class_names)
        return ctx_nomem(set->ctx);
    int i = 0;
    for (uint32_t item = list->first; item != 0; item = pickle->items[item].next, i++) {
        const struct pickle_value *text = &pickle->values[pickle->items[item].value];
        if (text->type != PICKLE_STRING || text->size == 0 || text->size > INT_MAX ||
            memchr(text->text, 0, text->size))
            return ctx_fail(set->ctx, DER_FORMAT, "%s: name %d of '%s' is not text", name, i, key);
        set->class_names[i] =
            arena_printf(&set->arena, "%.*s", (int)text->size, (const char *)text->text);
        if (!set->class_names[i])
            return ctx_nomem(set->ctx);
    }
    return reader_check_names(set, name);
}

enum der_status cifar_pickle_parse_names(struct dataset *set, struct reader_input input)
{
    struct pickle pickle;
    enum der_status status = pickle_read(set->ctx, input.name, input.data, input.size, &pickle);
    if (status == DER_OK)
        status = copy_names(set, input.name, &pickle);
    pickle_free(&pickle);
    return status;
}

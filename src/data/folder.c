/*
 * Folders of image files: DIR/train/<class>/... with DIR/val or DIR/test, or DIR/<class>/... alone.
 *
 * Classes are the sub-folders in bytewise order, images the files of each in the same order; they
 * are not opened here. Test images may also lie in one folder with a list of labels, as ImageNet
 * comes, and pictures of a class in <class>/images, as in Tiny-ImageNet.
 */
#include "data/reader.h"

#include "data/image_list.h"
#include "data/listing.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

enum { CAPACITY_START = 1024, SYNSET_CHARS = 9 };

struct folder {
    struct dataset *set;
    const struct dataset_options *options;
    const char *train;            /* folder of the class folders */
    struct listing classes;       /* all of them, whether used or not */
    int32_t *label_of;            /* [classes.n] label, or -1: not used */
    size_t capacity[DATA_SPLITS]; /* room in the parts */
};

/* What is wrong but can be read past ends reading, unless somebody collects flaws. */
static enum der_status pass_flaw(const struct folder *f, enum der_status status)
{
    if (status == DER_OK || status == DER_NOMEM || !f->options->flaw)
        return status;
    f->options->flaw(f->options->flaw_user, f->set->ctx->error);
    return DER_OK;
}

static enum der_status add_image(struct folder *f, enum data_split split, const char *folder,
                                 const char *name, int32_t label)
{
    struct dataset *set = f->set;
    struct data_part *part = &set->part[split];
    size_t *capacity = &f->capacity[split];
    if ((size_t)part->n == *capacity) {
        size_t wanted = *capacity > 0 ? *capacity * 2 : CAPACITY_START;
        char **files = mem_realloc(&set->ctx->mem, part->files, wanted, sizeof *files);
        if (!files)
            return ctx_nomem(set->ctx);
        part->files = files;
        int32_t *labels = mem_realloc(&set->ctx->mem, part->labels, wanted, sizeof *labels);
        if (!labels)
            return ctx_nomem(set->ctx);
        part->labels = labels;
        *capacity = wanted;
    }
    part->files[part->n] = reader_path(set, folder, name);
    if (!part->files[part->n])
        return ctx_nomem(set->ctx);
    part->labels[part->n] = label;
    part->n++;
    return DER_OK;
}

/* ---- classes --------------------------------------------------------------------------------- */

static enum der_status use_class(struct folder *f, int64_t index)
{
    struct dataset *set = f->set;
    char *name = arena_strdup(&set->arena, f->classes.names[index]);
    if (!name)
        return ctx_nomem(set->ctx);
    f->label_of[index] = set->n_classes;
    set->class_names[set->n_classes++] = name;
    return DER_OK;
}

static enum der_status use_list(struct folder *f, const char *path, struct file_bytes *bytes)
{
    struct dataset *set = f->set;
    TRY(reader_read(set, f->options, path, bytes));
    struct image_list list;
    struct image_list_entry entry;
    bool found = false;
    image_list_init(&list, path, bytes->data, bytes->size);
    for (;;) {
        TRY(image_list_next(set->ctx, &list, &entry, &found));
        if (!found)
            break;
        int64_t index = listing_find(&f->classes, entry.file, entry.file_length);
        if (index < 0)
            return ctx_fail(set->ctx, DER_FORMAT, "%s: line %d: %s has no class folder '%.*s'",
                            path, list.line, f->train, (int)entry.file_length, entry.file);
        if (f->label_of[index] >= 0)
            return ctx_fail(set->ctx, DER_FORMAT, "%s: line %d: class '%s' appears twice", path,
                            list.line, f->classes.names[index]);
        TRY(use_class(f, index));
    }
    if (set->n_classes == 0)
        return ctx_fail(set->ctx, DER_FORMAT, "%s names no class", path);
    return DER_OK;
}

static enum der_status choose_classes(struct folder *f)
{
    struct dataset *set = f->set;
    size_t n = f->classes.n;
    if (n > INT32_MAX)
        return ctx_fail(set->ctx, DER_FORMAT, "%s has %zu class folders", f->train, n);
    f->label_of = mem_alloc(&set->ctx->mem, n, sizeof *f->label_of);
    set->class_names = arena_zalloc(&set->arena, n, sizeof *set->class_names);
    if (!f->label_of || !set->class_names)
        return ctx_nomem(set->ctx);
    for (size_t i = 0; i < n; i++)
        f->label_of[i] = -1;
    if (f->options->class_list) {
        struct file_bytes bytes = {0};
        enum der_status status = use_list(f, f->options->class_list, &bytes);
        file_bytes_free(&set->ctx->mem, &bytes);
        return status;
    }
    size_t first = (size_t)f->options->first_classes;
    if (first > n)
        return ctx_fail(set->ctx, DER_FORMAT, "%s has %zu class folders, want at least %zu",
                        f->train, n, first);
    for (size_t i = 0; i < (first > 0 ? first : n); i++)
        TRY(use_class(f, (int64_t)i));
    return DER_OK;
}

/* A WordNet number, such as n01440764. */
static bool is_synset(const char *name)
{
    return name[0] == 'n' && strlen(name) == SYNSET_CHARS &&
           strspn(name + 1, "0123456789") == SYNSET_CHARS - 1;
}

static bool are_synsets(const struct dataset *set)
{
    for (int i = 0; i < set->n_classes; i++)
        if (!is_synset(set->class_names[i]))
            return false;
    return true;
}

/* ---- class folders --------------------------------------------------------------------------- */

static enum der_status add_listing(struct folder *f, enum data_split split, const char *path,
                                   const struct listing *images, int32_t label)
{
    for (size_t i = 0; i < images->n; i++)
        TRY(add_image(f, split, path, images->names[i], label));
    return DER_OK;
}

/* The images of a class, which may lie in a folder "images" within. */
static enum der_status add_class(struct folder *f, enum data_split split, const char *parent,
                                 const char *name, int32_t label)
{
    struct der_ctx *ctx = f->set->ctx;
    const char *path = reader_path(f->set, parent, name);
    if (!path)
        return ctx_nomem(ctx);
    struct listing images;
    enum der_status status = listing_read(ctx, path, LISTING_IMAGES, &images);
    if (status == DER_OK && images.n == 0 && reader_is_folder(path, "images")) {
        listing_free(&images);
        path = reader_path(f->set, path, "images");
        if (!path)
            return ctx_nomem(ctx);
        status = listing_read(ctx, path, LISTING_IMAGES, &images);
    }
    if (status == DER_OK && images.n == 0)
        status = ctx_fail(ctx, DER_FORMAT,
                          "class folder %s has no images, want .jpg, .jpeg or .png files", path);
    if (status == DER_OK)
        status = add_listing(f, split, path, &images, label);
    listing_free(&images);
    return status;
}

static enum der_status add_classes(struct folder *f, enum data_split split, const char *parent)
{
    for (int32_t label = 0; label < f->set->n_classes; label++)
        TRY(pass_flaw(f, add_class(f, split, parent, f->set->class_names[label], label)));
    return DER_OK;
}

/* ---- one folder and a list ------------------------------------------------------------------- */

/* The place of a listed file among the images; the list may leave out the ending, as Kaggle's. */
static int64_t find_image(const struct listing *images, const struct image_list_entry *entry)
{
    int64_t index = listing_find(images, entry->file, entry->file_length);
    if (index >= 0)
        return index;
    char name[NAME_MAX + 1];
    int length = snprintf(name, sizeof name, "%.*s.JPEG", (int)entry->file_length, entry->file);
    if (length < 0 || (size_t)length >= sizeof name)
        return -1;
    return listing_find(images, name, (size_t)length);
}

/* A label is a class folder's name or its number among all class folders. */
static enum der_status find_label(const struct folder *f, const struct image_list *list,
                                  const struct image_list_entry *entry, int32_t *label)
{
    int64_t index = listing_find(&f->classes, entry->label, entry->label_length);
    int64_t number;
    if (index < 0 &&
        image_list_number(entry->label, entry->label_length, (int64_t)f->classes.n - 1, &number))
        index = number;
    if (index < 0)
        return ctx_fail(f->set->ctx, DER_FORMAT,
                        "%s: line %d: label '%.*s', want a folder of %s or 0..%zu", list->name,
                        list->line, (int)entry->label_length, entry->label, f->train,
                        f->classes.n - 1);
    *label = f->label_of[index];
    return DER_OK;
}

/* One line of the list. */
static enum der_status add_entry(struct folder *f, const char *path, const struct listing *images,
                                 const struct image_list *list,
                                 const struct image_list_entry *entry, bool *seen)
{
    struct der_ctx *ctx = f->set->ctx;
    if (!entry->label)
        return ctx_fail(ctx, DER_FORMAT, "%s: line %d has one word, want a file and a label",
                        list->name, list->line);
    int32_t label = -1;
    TRY(find_label(f, list, entry, &label));
    if (label < 0)
        return DER_OK; /* of a class that is not used */
    int64_t index = find_image(images, entry);
    if (index < 0)
        return ctx_fail(ctx, DER_FORMAT, "%s: line %d: %s has no image '%.*s'", list->name,
                        list->line, path, (int)entry->file_length, entry->file);
    if (seen[index])
        return ctx_fail(ctx, DER_FORMAT, "%s: line %d: image '%s' appears twice", list->name,
                        list->line, images->names[index]);
    seen[index] = true;
    return add_image(f, DATA_TEST, path, images->names[index], label);
}

static enum der_status add_listed(struct folder *f, const char *path, const struct listing *images,
                                  struct image_list *list, bool *seen)
{
    for (;;) {
        struct image_list_entry entry;
        bool found;
        TRY(image_list_next(f->set->ctx, list, &entry, &found));
        if (!found)
            return DER_OK;
        if (list->line == 1 && entry.file_length == 7 && memcmp(entry.file, "ImageId", 7) == 0)
            continue; /* the head of Kaggle's table */
        TRY(pass_flaw(f, add_entry(f, path, images, list, &entry, seen)));
    }
}

/* Every class must have a test image, or its accuracy would be a division by nothing. */
static enum der_status check_every_class(const struct folder *f, const char *list)
{
    const struct dataset *set = f->set;
    bool *met = mem_zalloc(&set->ctx->mem, (size_t)set->n_classes, sizeof *met);
    if (!met)
        return ctx_nomem(set->ctx);
    const struct data_part *part = &set->part[DATA_TEST];
    for (int64_t i = 0; i < part->n; i++)
        met[part->labels[i]] = true;
    enum der_status status = DER_OK;
    for (int i = 0; i < set->n_classes && status == DER_OK; i++)
        if (!met[i])
            status = pass_flaw(f, ctx_fail(set->ctx, DER_FORMAT, "%s names no image of class '%s'",
                                           list, set->class_names[i]));
    mem_free(&set->ctx->mem, met);
    return status;
}

static enum der_status read_list(struct folder *f, const char *images_path,
                                 const struct listing *images, const char *list_path)
{
    struct mem *mem = &f->set->ctx->mem;
    struct file_bytes bytes = {0};
    bool *seen = mem_zalloc(mem, images->n, sizeof *seen);
    enum der_status status = seen ? DER_OK : ctx_nomem(f->set->ctx);
    if (status == DER_OK)
        status = reader_read(f->set, f->options, list_path, &bytes);
    if (status == DER_OK) {
        struct image_list list;
        image_list_init(&list, list_path, bytes.data, bytes.size);
        status = add_listed(f, images_path, images, &list, seen);
    }
    if (status == DER_OK)
        status = check_every_class(f, list_path);
    file_bytes_free(mem, &bytes);
    mem_free(mem, seen);
    return status;
}

static const char *const list_names[] = {"val_annotations.txt", "val.txt", "val_map.txt",
                                         "val_labels.txt", "LOC_val_solution.csv"};

enum { N_LIST_NAMES = sizeof list_names / sizeof list_names[0] };

bool folder_is_list(const char *name)
{
    for (size_t i = 0; i < N_LIST_NAMES; i++)
        if (strcmp(name, list_names[i]) == 0)
            return true;
    return false;
}

/* The list lies with the images' folder or beside it. */
static enum der_status find_list(struct folder *f, const char *test, const char **list)
{
    const char *const folders[] = {test, f->set->path};
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
        for (size_t k = 0; k < N_LIST_NAMES; k++) {
            if (!reader_is_file(folders[i], list_names[k]))
                continue;
            *list = reader_path(f->set, folders[i], list_names[k]);
            return *list ? DER_OK : ctx_nomem(f->set->ctx);
        }
    }
    return ctx_fail(f->set->ctx, DER_FORMAT,
                    "%s has no folder '%s' as %s has, and no list such as val_annotations.txt or "
                    "val.txt",
                    test, f->set->class_names[0], f->train);
}

static enum der_status add_one_folder(struct folder *f, const char *test)
{
    struct der_ctx *ctx = f->set->ctx;
    const char *list;
    TRY(find_list(f, test, &list));
    const char *path = test;
    if (reader_is_folder(test, "images"))
        path = reader_path(f->set, test, "images");
    if (!path)
        return ctx_nomem(ctx);
    struct listing images;
    enum der_status status = listing_read(ctx, path, LISTING_IMAGES, &images);
    if (status == DER_OK && images.n == 0)
        status =
            ctx_fail(ctx, DER_FORMAT, "%s has no images, want those that %s names", path, list);
    if (status == DER_OK)
        status = read_list(f, path, &images, list);
    listing_free(&images);
    return status;
}

/* ---- the whole ------------------------------------------------------------------------------- */

const char *folder_test_name(const char *folder)
{
    static const char *const names[] = {"val", "test"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (reader_is_folder(folder, names[i]))
            return names[i];
    return NULL;
}

static enum der_status add_test(struct folder *f)
{
    const char *name = folder_test_name(f->set->path);
    if (!name)
        return DER_OK;
    const char *test = reader_path(f->set, f->set->path, name);
    if (!test)
        return ctx_nomem(f->set->ctx);
    /* One folder of a class is enough to tell; add_classes names those that are missing. */
    for (int i = 0; i < f->set->n_classes; i++)
        if (reader_is_folder(test, f->set->class_names[i]))
            return add_classes(f, DATA_TEST, test);
    return pass_flaw(f, add_one_folder(f, test));
}

/* Pictures to test with alone, named by the folder above theirs, would pass for a class called "val". */
static enum der_status refuse_test_alone(struct folder *f)
{
    struct der_ctx *ctx = f->set->ctx;
    const char *only = f->classes.n == 1 ? f->classes.names[0] : "";
    struct listing inside;
    if (strcmp(only, "val") != 0 && strcmp(only, "test") != 0)
        return DER_OK;
    const char *path = reader_path(f->set, f->train, only);
    if (!path)
        return ctx_nomem(ctx);
    enum der_status status = listing_read(ctx, path, LISTING_FOLDERS, &inside);
    bool has_classes = inside.n > 1 || (inside.n == 1 && strcmp(inside.names[0], "images") != 0);
    if (status == DER_OK && has_classes)
        status = ctx_fail(ctx, DER_FORMAT,
                          "%s has no folder 'train'; to test with the classes of %s, name that",
                          f->train, path);
    listing_free(&inside);
    return status;
}

static enum der_status open_all(struct folder *f)
{
    struct dataset *set = f->set;
    bool has_train = reader_is_folder(f->train, "train");
    if (has_train)
        f->train = reader_path(set, f->train, "train");
    if (!f->train)
        return ctx_nomem(set->ctx);
    TRY(listing_read(set->ctx, f->train, LISTING_FOLDERS, &f->classes));
    if (f->classes.n == 0)
        return ctx_fail(set->ctx, DER_FORMAT,
                        "%s holds no data set: want CIFAR (train.bin, data_batch_1.bin, train or "
                        "data_batch_1), IDX (train-images-idx3-ubyte, also .gz), or a folder of "
                        "images for every class",
                        f->train);
    if (!has_train)
        TRY(refuse_test_alone(f));
    TRY(choose_classes(f));
    set->kind = are_synsets(set) ? "imagenet" : "folder";
    set->channels = f->options->channels > 0 ? f->options->channels : 3;
    TRY(add_classes(f, DATA_TRAIN, f->train));
    return has_train ? add_test(f) : DER_OK;
}

enum der_status folder_open(struct dataset *set, const char *folder,
                            const struct dataset_options *options)
{
    struct folder f = {.set = set, .options = options, .train = folder};
    arena_init(&f.classes.arena, &set->ctx->mem);
    enum der_status status = open_all(&f);
    listing_free(&f.classes);
    mem_free(&set->ctx->mem, f.label_of);
    return status;
}

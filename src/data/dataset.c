#include "data/dataset.h"

#include "data/reader.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

enum der_status dataset_open(struct der_ctx *ctx, const char *path, struct dataset **out)
{
    return dataset_open_with(ctx, path, NULL, out);
}

/* The folder that the archive of a distribution unpacks to: its parent will do as well. */
static const char *const archive_folders[] = {
    "cifar-100-binary",
    "cifar-10-batches-bin",
    "cifar-100-python",
    "cifar-10-batches-py",
};

enum { N_ARCHIVE_FOLDERS = sizeof archive_folders / sizeof archive_folders[0] };

static enum der_status open_folder(struct dataset *set, const struct dataset_options *options)
{
    const char *folder = set->path;
    struct stat info;
    if (stat(folder, &info) != 0) {
        struct fault fault;
        enum der_status status = fault_errno(&fault, "cannot open", folder, errno);
        return ctx_fail(set->ctx, status, "%s", fault.text);
    }
    if (!S_ISDIR(info.st_mode))
        return ctx_fail(set->ctx, DER_FORMAT,
                        "%s is not a folder; want the folder of a data set, or synth:...", folder);

    const struct cifar_layout *cifar = cifar_detect(folder);
    for (int i = 0; !cifar && i < N_ARCHIVE_FOLDERS; i++) {
        char *inner = reader_path(set, set->path, archive_folders[i]);
        if (!inner)
            return ctx_nomem(set->ctx);
        cifar = cifar_detect(inner);
        if (cifar)
            folder = inner;
    }
    if (cifar)
        return cifar_open(set, cifar, folder, options);
    if (idx_detect(folder))
        return idx_open(set, folder, options);
    return folder_open(set, folder, options);
}

enum der_status dataset_open_with(struct der_ctx *ctx, const char *path,
                                  const struct dataset_options *options, struct dataset **out)
{
    static const struct dataset_options defaults = {0};
    if (!options)
        options = &defaults;
    *out = NULL;
    if (options->channels != 0 && options->channels != 1 && options->channels != 3)
        return ctx_fail(ctx, DER_ARG, "images of %d channels were asked for, want 1 or 3",
                        options->channels);
    if (options->first_classes < 0)
        return ctx_fail(ctx, DER_ARG, "the first %d classes were asked for, want at least 1",
                        options->first_classes);

    struct dataset *set = mem_zalloc(&ctx->mem, 1, sizeof *set);
    if (!set)
        return ctx_nomem(ctx);
    set->ctx = ctx;
    arena_init(&set->arena, &ctx->mem);
    set->path = arena_strdup(&set->arena, path);
    enum der_status status = DER_OK;
    if (!set->path)
        status = ctx_nomem(ctx);
    else if (strcmp(path, "synth") == 0 || strncmp(path, "synth:", 6) == 0)
        status = synth_open(set, path);
    else
        status = open_folder(set, options);
    if (status != DER_OK) {
        dataset_free(set);
        return status;
    }
    *out = set;
    return DER_OK;
}

void dataset_free(struct dataset *set)
{
    if (!set)
        return;
    struct mem *mem = &set->ctx->mem;
    for (int split = 0; split < DATA_SPLITS; split++) {
        mem_free(mem, set->part[split].labels);
        mem_free(mem, set->part[split].pixels);
        mem_free(mem, set->part[split].files);
        mem_free(mem, set->part[split].items);
    }
    arena_fini(&set->arena);
    mem_free(mem, set);
}

/* Image `index` of a split that is one block of planes. */
static struct image_view planes_at(const struct dataset *set, const struct data_part *part,
                                   int64_t index)
{
    ptrdiff_t plane = (ptrdiff_t)set->height * set->width;
    return (struct image_view){
        .data = part->pixels + index * set->channels * plane,
        .channels = set->channels,
        .height = set->height,
        .width = set->width,
        .channel_stride = plane,
        .row_stride = set->width,
        .pixel_stride = 1,
    };
}

struct data_item dataset_item(const struct dataset *set, enum data_split split, int64_t index)
{
    const struct data_part *part = &set->part[split];
    assert(index >= 0 && index < part->n);
    if (part->items)
        return part->items[index];
    if (part->files)
        return (struct data_item){.place = DATA_IN_FILE, .file = part->files[index]};
    return (struct data_item){.place = DATA_IN_MEMORY, .image = planes_at(set, part, index)};
}

bool dataset_is_uniform(const struct dataset *set, enum data_split split)
{
    const struct data_part *part = &set->part[split];
    if (part->pixels)
        return true;
    for (int64_t i = 0; part->items && i < part->n; i++) {
        const struct data_item *item = &part->items[i];
        if (item->place != DATA_IN_MEMORY || item->image.height != set->height ||
            item->image.width != set->width)
            return false;
    }
    return part->items && part->n > 0;
}

struct image_view dataset_view(const struct dataset *set, enum data_split split, int64_t index)
{
    struct data_item item = dataset_item(set, split, index);
    assert(item.place == DATA_IN_MEMORY);
    return item.image;
}

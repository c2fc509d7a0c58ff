/*
 * CIFAR-10 and CIFAR-100 (https://www.cs.toronto.edu/~kriz/cifar.html): the files of their
 * distributions, and the parser of the binary one.
 *
 * A binary file is a row of records without header: one label byte (CIFAR-100: a coarse, then a
 * fine one), then 3072 bytes, the planes R, G and B of 32 x 32 pixels. Any number of records will
 * do.
 */
#include "data/reader.h"

#include <string.h>

enum { SIDE = 32, CHANNELS = 3, IMAGE_BYTES = CHANNELS * SIDE * SIDE, BATCHES = 5 };

enum der_status cifar_parse(struct dataset *set, enum data_split split, struct reader_input input)
{
    size_t label_bytes = set->n_classes == READER_CIFAR100 ? 2 : 1;
    size_t record = label_bytes + IMAGE_BYTES;
    if (input.size == 0 || input.size % record != 0)
        return ctx_fail(set->ctx, DER_FORMAT,
                        "%s has %zu bytes, want records of %zu bytes each (CIFAR-%d, binary)",
                        input.name, input.size, record, set->n_classes);
    size_t first = (size_t)set->part[split].n;
    size_t n = input.size / record;
    TRY(reader_grow_part(set, split, n));
    for (size_t i = 0; i < n; i++) {
        const uint8_t *at = input.data + i * record;
        int label = at[label_bytes - 1]; /* the fine one */
        if (label >= set->n_classes)
            return ctx_fail(set->ctx, DER_FORMAT, "%s: record %zu has label %d, want 0..%d",
                            input.name, i, label, set->n_classes - 1);
        set->part[split].labels[first + i] = label;
        memcpy(set->part[split].pixels + (first + i) * IMAGE_BYTES, at + label_bytes, IMAGE_BYTES);
    }
    return DER_OK;
}

static enum der_status parse_names(struct dataset *set, struct reader_input input)
{
    return reader_name_classes(set, input, set->n_classes);
}

struct cifar_layout {
    const char *kind;
    int n_classes;
    const char *names; /* file of class names, which some copies lack */
    const char *train[BATCHES];
    const char *test;
    enum der_status (*parse)(struct dataset *set, enum data_split split, struct reader_input input);
    enum der_status (*parse_names)(struct dataset *set, struct reader_input input);
};

/* The first training file tells them apart. */
static const struct cifar_layout layouts[] = {
    {
        .kind = "cifar100",
        .n_classes = READER_CIFAR100,
        .names = "fine_label_names.txt",
        .train = {"train.bin"},
        .test = "test.bin",
        .parse = cifar_parse,
        .parse_names = parse_names,
    },
    {
        .kind = "cifar10",
        .n_classes = READER_CIFAR10,
        .names = "batches.meta.txt",
        .train = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin",
                  "data_batch_5.bin"},
        .test = "test_batch.bin",
        .parse = cifar_parse,
        .parse_names = parse_names,
    },
    {
        .kind = "cifar100",
        .n_classes = READER_CIFAR100,
        .names = "meta",
        .train = {"train"},
        .test = "test",
        .parse = cifar_pickle_parse,
        .parse_names = cifar_pickle_parse_names,
    },
    {
        .kind = "cifar10",
        .n_classes = READER_CIFAR10,
        .names = "batches.meta",
        .train = {"data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5"},
        .test = "test_batch",
        .parse = cifar_pickle_parse,
        .parse_names = cifar_pickle_parse_names,
    },
};

enum { N_LAYOUTS = sizeof layouts / sizeof layouts[0] };

const struct cifar_layout *cifar_detect(const char *folder)
{
    for (int i = 0; i < N_LAYOUTS; i++)
        if (reader_is_file(folder, layouts[i].train[0]))
            return &layouts[i];
    return NULL;
}

static enum der_status read_images(struct dataset *set, const struct cifar_layout *layout,
                                   const char *folder, const char *name, enum data_split split,
                                   const struct dataset_options *options)
{
    const char *path = reader_path(set, folder, name);
    if (!path)
        return ctx_nomem(set->ctx);
    struct file_bytes bytes = {0};
    enum der_status status = reader_read(set, options, path, &bytes);
    if (status == DER_OK)
        status = layout->parse(set, split, (struct reader_input){path, bytes.data, bytes.size});
    file_bytes_free(&set->ctx->mem, &bytes);
    return status;
}

static enum der_status read_names(struct dataset *set, const struct cifar_layout *layout,
                                  const char *folder, const struct dataset_options *options)
{
    if (!reader_is_file(folder, layout->names))
        return reader_number_classes(set, layout->n_classes);
    const char *path = reader_path(set, folder, layout->names);
    if (!path)
        return ctx_nomem(set->ctx);
    struct file_bytes bytes = {0};
    enum der_status status = reader_read(set, options, path, &bytes);
    if (status == DER_OK)
        status = layout->parse_names(set, (struct reader_input){path, bytes.data, bytes.size});
    file_bytes_free(&set->ctx->mem, &bytes);
    return status;
}

enum der_status cifar_open(struct dataset *set, const struct cifar_layout *layout,
                           const char *folder, const struct dataset_options *options)
{
    set->kind = layout->kind;
    set->n_classes = layout->n_classes;
    set->channels = CHANNELS;
    set->height = SIDE;
    set->width = SIDE;
    TRY(read_names(set, layout, folder, options));
    for (int i = 0; i < BATCHES && layout->train[i]; i++)
        TRY(read_images(set, layout, folder, layout->train[i], DATA_TRAIN, options));
    return read_images(set, layout, folder, layout->test, DATA_TEST, options);
}

/*
 * IDX files of the MNIST family (MNIST, Fashion-MNIST, KMNIST, ...), plain or gzip.
 *
 * Big-endian header: magic 0x0801 (labels) or 0x0803 (images), the number of items, for images rows
 * and columns; then one unsigned byte each. See http://yann.lecun.com/exdb/mnist/.
 */
#include "data/reader.h"

#include "data/gzip.h"

#include <stdio.h>
#include <string.h>

enum {
    MAGIC_LABELS = 0x0801,
    MAGIC_IMAGES = 0x0803,
    LABELS_HEADER = 8,
    IMAGES_HEADER = 16,
    SIDE_MAX = 65535,
    NAME_MAX_CHARS = 64,
};

static uint32_t big_endian(const uint8_t *bytes)
{
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

/* A file that is open for reading from its start, packed or not. */
struct stream {
    struct dataset *set;
    struct reader_input input;
    struct gzip *gzip; /* NULL: the bytes are as they are */
    size_t at;         /* next byte when plain */
};

static enum der_status stream_open(struct dataset *set, struct reader_input input,
                                   struct stream *out)
{
    *out = (struct stream){.set = set, .input = input};
    if (!gzip_detect(input.data, input.size))
        return DER_OK;
    return gzip_open(set->ctx, input.name, input.data, input.size, &out->gzip);
}

static void stream_close(struct stream *stream)
{
    gzip_close(stream->gzip);
}

/* Exactly n bytes, or an error that says how many there are. */
static enum der_status stream_take(struct stream *stream, uint8_t *dst, size_t n, const char *what)
{
    size_t got = stream->input.size - stream->at;
    if (stream->gzip) {
        TRY(gzip_take(stream->gzip, dst, n, &got));
    } else {
        got = got < n ? got : n;
        memcpy(dst, stream->input.data + stream->at, got);
        stream->at += got;
    }
    if (got != n)
        return ctx_fail(stream->set->ctx, DER_FORMAT, "%s ends after %zu of %zu bytes of %s",
                        stream->input.name, got, n, what);
    return DER_OK;
}

/* Nothing may follow. */
static enum der_status stream_finish(struct stream *stream)
{
    uint8_t extra;
    size_t got = stream->input.size - stream->at;
    if (stream->gzip)
        TRY(gzip_take(stream->gzip, &extra, 1, &got));
    if (got != 0)
        return ctx_fail(stream->set->ctx, DER_FORMAT, "%s is longer than its header says",
                        stream->input.name);
    return DER_OK;
}

/* Is room for n bytes of content worth taking? No file packs better than deflate can. */
static bool plausible(const struct stream *stream, size_t n)
{
    size_t most = stream->input.size;
    if (stream->gzip && !size_mul(most, GZIP_RATIO_MAX, &most))
        most = SIZE_MAX;
    return n <= most;
}

static enum der_status read_images(struct dataset *set, enum data_split split,
                                   struct stream *stream)
{
    const char *name = stream->input.name;
    uint8_t header[IMAGES_HEADER];
    TRY(stream_take(stream, header, sizeof header, "header"));
    if (big_endian(header) != MAGIC_IMAGES)
        return ctx_fail(set->ctx, DER_FORMAT, "%s begins with 0x%08x, want 0x%08x (IDX, images)",
                        name, (unsigned)big_endian(header), (unsigned)MAGIC_IMAGES);
    uint32_t n = big_endian(header + 4);
    uint32_t height = big_endian(header + 8);
    uint32_t width = big_endian(header + 12);
    size_t bytes;
    if (n == 0 || height == 0 || width == 0 || height > SIDE_MAX || width > SIDE_MAX)
        return ctx_fail(set->ctx, DER_FORMAT, "%s: %u images of %u x %u pixels, want 1..%d a side",
                        name, (unsigned)n, (unsigned)height, (unsigned)width, (int)SIDE_MAX);
    if (set->height != 0 && (set->height != (int)height || set->width != (int)width))
        return ctx_fail(set->ctx, DER_FORMAT,
                        "%s: images of %u x %u pixels, want %d x %d as in "
                        "training",
                        name, (unsigned)height, (unsigned)width, set->height, set->width);
    if (!size_mul(n, (size_t)height * width, &bytes) || !plausible(stream, bytes))
        return ctx_fail(set->ctx, DER_FORMAT, "%s is too short for %u images of %u x %u pixels",
                        name, (unsigned)n, (unsigned)height, (unsigned)width);
    set->channels = 1;
    set->height = (int)height;
    set->width = (int)width;
    TRY(reader_grow_part(set, split, n));
    TRY(stream_take(stream, set->part[split].pixels, bytes, "pixels"));
    return stream_finish(stream);
}

/* The bytes land at the start of the labels' own room and are widened from the end on. */
static enum der_status read_labels(struct dataset *set, enum data_split split,
                                   struct stream *stream)
{
    const char *name = stream->input.name;
    struct data_part *part = &set->part[split];
    uint8_t header[LABELS_HEADER];
    TRY(stream_take(stream, header, sizeof header, "header"));
    if (big_endian(header) != MAGIC_LABELS)
        return ctx_fail(set->ctx, DER_FORMAT, "%s begins with 0x%08x, want 0x%08x (IDX, labels)",
                        name, (unsigned)big_endian(header), (unsigned)MAGIC_LABELS);
    if (big_endian(header + 4) != (uint64_t)part->n)
        return ctx_fail(set->ctx, DER_FORMAT, "%s has %u labels, want %lld as there are images",
                        name, (unsigned)big_endian(header + 4), (long long)part->n);
    uint8_t *bytes = (uint8_t *)part->labels;
    TRY(stream_take(stream, bytes, (size_t)part->n, "labels"));
    TRY(stream_finish(stream));
    for (int64_t i = part->n - 1; i >= 0; i--)
        part->labels[i] = bytes[i];
    return DER_OK;
}

/* The largest label of the first split makes the number of classes. */
static enum der_status check_labels(struct dataset *set, enum data_split split, const char *name)
{
    const struct data_part *part = &set->part[split];
    int32_t largest = 0;
    int64_t where = 0;
    for (int64_t i = 0; i < part->n; i++) {
        if (part->labels[i] > largest) {
            largest = part->labels[i];
            where = i;
        }
    }
    if (set->n_classes == 0)
        return reader_number_classes(set, largest + 1);
    if (largest >= set->n_classes)
        return ctx_fail(set->ctx, DER_FORMAT,
                        "%s: image %lld has label %d, want 0..%d as in training", name,
                        (long long)where, (int)largest, set->n_classes - 1);
    return DER_OK;
}

enum der_status idx_parse(struct dataset *set, enum data_split split, struct reader_input images,
                          struct reader_input labels)
{
    struct stream stream;
    TRY(stream_open(set, images, &stream));
    enum der_status status = read_images(set, split, &stream);
    stream_close(&stream);
    TRY(status);
    TRY(stream_open(set, labels, &stream));
    status = read_labels(set, split, &stream);
    stream_close(&stream);
    TRY(status);
    return check_labels(set, split, labels.name);
}

/* ---- the folder ------------------------------------------------------------------------------ */

/* "train-images-idx3-ubyte", with a dot in the middle, with and without ".gz". */
static bool find_name(const char *folder, const char *part, const char *type, char *name)
{
    static const char separators[] = {'-', '.'};
    static const char *const endings[] = {"", ".gz"};
    for (int i = 0; i < 2; i++) {
        for (int k = 0; k < 2; k++) {
            (void)snprintf(name, NAME_MAX_CHARS, "%s%c%s%s", part, separators[i], type, endings[k]);
            if (reader_is_file(folder, name))
                return true;
        }
    }
    (void)snprintf(name, NAME_MAX_CHARS, "%s-%s", part, type); /* for the message */
    return false;
}

bool idx_detect(const char *folder)
{
    char name[NAME_MAX_CHARS];
    return find_name(folder, "train-images", "idx3-ubyte", name);
}

static enum der_status read_file(struct dataset *set, const char *folder, const char *part,
                                 const char *type, const struct dataset_options *options,
                                 struct file_bytes *bytes, struct reader_input *input)
{
    char name[NAME_MAX_CHARS];
    (void)find_name(folder, part, type, name); /* a missing file is told by reader_read */
    const char *path = reader_path(set, folder, name);
    if (!path)
        return ctx_nomem(set->ctx);
    TRY(reader_read(set, options, path, bytes));
    *input = (struct reader_input){path, bytes->data, bytes->size};
    return DER_OK;
}

static enum der_status read_split(struct dataset *set, const char *folder, enum data_split split,
                                  const struct dataset_options *options)
{
    const char *images_part = split == DATA_TRAIN ? "train-images" : "t10k-images";
    const char *labels_part = split == DATA_TRAIN ? "train-labels" : "t10k-labels";
    struct file_bytes image_bytes = {0};
    struct file_bytes label_bytes = {0};
    struct reader_input images;
    struct reader_input labels;
    enum der_status status =
        read_file(set, folder, images_part, "idx3-ubyte", options, &image_bytes, &images);
    if (status == DER_OK)
        status = read_file(set, folder, labels_part, "idx1-ubyte", options, &label_bytes, &labels);
    if (status == DER_OK)
        status = idx_parse(set, split, images, labels);
    file_bytes_free(&set->ctx->mem, &image_bytes);
    file_bytes_free(&set->ctx->mem, &label_bytes);
    return status;
}

enum der_status idx_open(struct dataset *set, const char *folder,
                         const struct dataset_options *options)
{
    set->kind = "idx";
    TRY(read_split(set, folder, DATA_TRAIN, options));
    return read_split(set, folder, DATA_TEST, options);
}

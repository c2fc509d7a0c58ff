/*
 * How many training images a second the loader makes of JPEG files, against libjpeg-turbo that only
 * decodes the same files whole, with the same number of threads.
 *
 * Both read their files anew each time, from the page cache. They take turns, so that a slow moment
 * of the machine hits both; medians count. Without --folder the files are made here: gradients,
 * stripes and grain that compress about as well as photographs, in a folder that goes away again.
 */
#include "bench.h"

#include "core/rng.h"
#include "data/loader.h"

#include "der_build.h"

#if DER_HAVE_JPEG

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jpeglib.h>

enum {
    N_FILES = 256,
    N_CLASSES = 2,
    ROWS_PER_TURN = 1024, /* files are used again and again until there are so many */
    TURNS_MAX = 101,
    THREADS_MAX = 64,
    QUALITY = 90,
    ROOT_MAX_BYTES = 256,
    PATH_MAX_BYTES = ROOT_MAX_BYTES + 64,
    FILE_BYTES_MAX = 1 << 26,
    PIXEL_BYTES_MAX = 1 << 28,
};

struct bench {
    struct der_ctx *ctx;
    const struct bench_options *options;
    char root[ROOT_MAX_BYTES]; /* of the files that were made, or "" */
    struct dataset *set;
    struct data_view *view; /* ROWS_PER_TURN or more samples */
    struct loader *loader;
    atomic_llong next;   /* row of the view that the next free decoder takes */
    atomic_int n_failed; /* files that were not decoded */
};

/* ---- files ----------------------------------------------------------------------------------- */

static void class_path(const struct bench *b, int label, char path[PATH_MAX_BYTES])
{
    (void)snprintf(path, PATH_MAX_BYTES, "%s/%d", b->root, label);
}

static void file_path(const struct bench *b, int number, char path[PATH_MAX_BYTES])
{
    (void)snprintf(path, PATH_MAX_BYTES, "%s/%d/%04d.jpg", b->root, number % N_CLASSES, number);
}

/* One row of a picture: a gradient, stripes of a direction and a width of its own, and grain. */
static void paint_row(uint8_t *row, int width, int y, int number)
{
    double angle = 0.1 * number;
    double step_x = 0.3 * cos(angle);
    double step_y = 0.3 * sin(angle);
    for (int x = 0; x < width; x++) {
        struct rng_block grain =
            rng_at(7, RNG_AUGMENT, (uint32_t)number, (uint64_t)y * (uint64_t)width + (uint64_t)x);
        double wave = sin(step_x * x + step_y * y) * (0.5 + 0.5 * sin(0.02 * x));
        for (int c = 0; c < 3; c++) {
            double level = 128 + 60 * sin(0.004 * (x + y * (c + 1)) + number) + 25 * wave;
            level += ((double)(grain.word[c] >> 24) - 127.5) * 0.22;
            row[3 * x + c] = (uint8_t)(level < 0 ? 0 : level > 255 ? 255 : level);
        }
    }
}

static enum der_status write_file(struct bench *b, int number)
{
    char path[PATH_MAX_BYTES];
    file_path(b, number, path);
    int width = b->options->side;
    uint8_t *row = mem_alloc(&b->ctx->mem, (size_t)width * 3, 1);
    FILE *file = fopen(path, "wb");
    if (!row || !file) {
        mem_free(&b->ctx->mem, row);
        if (file)
            (void)fclose(file);
        return ctx_fail(b->ctx, DER_IO, "cannot write %s", path);
    }
    struct jpeg_compress_struct jpeg;
    struct jpeg_error_mgr errors;
    jpeg.err = jpeg_std_error(&errors);
    jpeg_create_compress(&jpeg);
    jpeg_stdio_dest(&jpeg, file);
    jpeg.image_width = (JDIMENSION)width;
    jpeg.image_height = (JDIMENSION)(width * 3 / 4);
    jpeg.input_components = 3;
    jpeg.in_color_space = JCS_RGB;
    jpeg_set_defaults(&jpeg);
    jpeg_set_quality(&jpeg, QUALITY, TRUE);
    jpeg_start_compress(&jpeg, TRUE);
    while (jpeg.next_scanline < jpeg.image_height) {
        JSAMPROW rows[1] = {row};
        paint_row(row, width, (int)jpeg.next_scanline, number);
        (void)jpeg_write_scanlines(&jpeg, rows, 1);
    }
    jpeg_finish_compress(&jpeg);
    jpeg_destroy_compress(&jpeg);
    mem_free(&b->ctx->mem, row);
    return fclose(file) == 0 ? DER_OK : ctx_fail(b->ctx, DER_IO, "cannot write %s", path);
}

static enum der_status write_files(struct bench *b)
{
    const char *folder = getenv("TMPDIR");
    (void)snprintf(b->root, sizeof b->root, "%s/der_bench_XXXXXX", folder ? folder : "/tmp");
    if (!mkdtemp(b->root)) {
        b->root[0] = 0;
        return ctx_fail(b->ctx, DER_IO, "cannot make a folder for the pictures");
    }
    for (int label = 0; label < N_CLASSES; label++) {
        char path[PATH_MAX_BYTES];
        class_path(b, label, path);
        if (mkdir(path, 0700) != 0)
            return ctx_fail(b->ctx, DER_IO, "cannot make %s", path);
    }
    for (int i = 0; i < N_FILES; i++)
        TRY(write_file(b, i));
    return DER_OK;
}

static void remove_files(const struct bench *b)
{
    char path[PATH_MAX_BYTES];
    if (b->root[0] == 0)
        return;
    for (int i = 0; i < N_FILES; i++) {
        file_path(b, i, path);
        (void)unlink(path);
    }
    for (int label = 0; label < N_CLASSES; label++) {
        class_path(b, label, path);
        (void)rmdir(path);
    }
    (void)rmdir(b->root);
}

/* ---- libjpeg-turbo alone --------------------------------------------------------------------- */

/* Decodes the bytes of a file in the usual way; false when there is no room for the pixels. */
static bool decode(struct jpeg_decompress_struct *jpeg, const struct file_bytes *file,
                   uint8_t *pixels)
{
    jpeg_mem_src(jpeg, file->data, (unsigned long)file->size);
    (void)jpeg_read_header(jpeg, TRUE);
    jpeg->out_color_space = JCS_RGB;
    (void)jpeg_start_decompress(jpeg);
    size_t row_bytes = (size_t)jpeg->output_width * 3;
    if (row_bytes * jpeg->output_height > PIXEL_BYTES_MAX) {
        jpeg_abort_decompress(jpeg);
        return false;
    }
    while (jpeg->output_scanline < jpeg->output_height) {
        JSAMPROW rows[1] = {pixels + row_bytes * jpeg->output_scanline};
        (void)jpeg_read_scanlines(jpeg, rows, 1);
    }
    (void)jpeg_finish_decompress(jpeg);
    return true;
}

/* A thread: takes rows until none is left. The decoder lives as long as the thread. libjpeg ends
 * the program on a bad file, which is as good an answer as any here. */
static void *decode_rows(void *argument)
{
    struct bench *b = argument;
    const struct data_part *part = &b->set->part[DATA_TRAIN];
    struct mem *mem = &b->ctx->mem;
    struct jpeg_decompress_struct jpeg;
    struct jpeg_error_mgr errors;
    struct file_bytes file = {0};
    struct fault fault;
    uint8_t *pixels = mem_alloc(mem, PIXEL_BYTES_MAX, 1); /* untouched pages cost nothing */
    jpeg.err = jpeg_std_error(&errors);
    jpeg_create_decompress(&jpeg);
    for (;;) {
        long long row = atomic_fetch_add(&b->next, 1);
        if (row >= b->view->n)
            break;
        const char *path = part->files[b->view->items[row].sample];
        if (!pixels || file_read(mem, NULL, path, FILE_BYTES_MAX, &file, &fault) != DER_OK ||
            !decode(&jpeg, &file, pixels))
            atomic_fetch_add(&b->n_failed, 1);
    }
    jpeg_destroy_decompress(&jpeg);
    file_bytes_free(mem, &file);
    mem_free(mem, pixels);
    return NULL;
}

static enum der_status turn_of_peer(struct bench *b, double *seconds)
{
    pthread_t threads[THREADS_MAX];
    int n = 0;
    atomic_store(&b->next, 0);
    atomic_store(&b->n_failed, 0);
    double since = bench_clock();
    while (n < b->options->threads && pthread_create(&threads[n], NULL, decode_rows, b) == 0)
        n++;
    for (int i = 0; i < n; i++)
        (void)pthread_join(threads[i], NULL);
    *seconds = bench_clock() - since;
    if (n < b->options->threads || atomic_load(&b->n_failed) > 0)
        return ctx_fail(b->ctx, DER_IO, "%d of %d decoder threads ran, %d files were not decoded",
                        n, b->options->threads, atomic_load(&b->n_failed));
    return DER_OK;
}

/* ---- the loader ------------------------------------------------------------------------------ */

static enum der_status turn_of_ours(struct bench *b, uint32_t epoch, double *seconds)
{
    const struct batch *batch;
    int64_t rows = 0;
    double since = bench_clock();
    TRY(loader_start(b->loader, epoch, 0));
    do {
        TRY(loader_next(b->loader, &batch));
        rows += batch ? batch->n : 0;
    } while (batch);
    *seconds = bench_clock() - since;
    if (rows != b->view->n)
        return ctx_fail(b->ctx, DER_STATE, "an epoch had %lld rows, want %lld", (long long)rows,
                        (long long)b->view->n);
    return DER_OK;
}

static enum der_status open_all(struct bench *b)
{
    const struct bench_options *o = b->options;
    if (!o->folder)
        TRY(write_files(b));
    TRY(dataset_open(b->ctx, o->folder ? o->folder : b->root, &b->set));
    const struct data_part *part = &b->set->part[DATA_TRAIN];
    if (!part->files)
        return ctx_fail(b->ctx, DER_ARG, "%s is no folder of image files", b->set->path);
    /* Whole batches, so that no turn has a tail. */
    int64_t n = part->n > ROWS_PER_TURN ? part->n : ROWS_PER_TURN;
    n = (n + o->batch - 1) / o->batch * o->batch;
    TRY(view_new(b->ctx, n, &b->view));
    for (int64_t i = 0; i < n; i++)
        b->view->items[i] = (struct view_item){.sample = i % part->n};
    struct loader_options options = {.set = b->set,
                                     .view = b->view,
                                     .augment = augment_preset("imagenet-train"),
                                     .split = DATA_TRAIN,
                                     .mode = LOADER_TRAIN,
                                     .batch = o->batch,
                                     .threads = o->threads,
                                     .seed = 1993};
    return loader_new(b->ctx, &options, &b->loader);
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int n)
{
    qsort(values, (size_t)n, sizeof *values, compare);
    return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

static enum der_status measure(struct bench *b)
{
    double ours[TURNS_MAX];
    double peer[TURNS_MAX];
    double ratios[TURNS_MAX];
    int turns = b->options->rounds;
    double unused;
    TRY(turn_of_peer(b, &unused)); /* to warm up */
    TRY(turn_of_ours(b, 0, &unused));
    for (int i = 0; i < turns; i++) {
        TRY(turn_of_ours(b, (uint32_t)i + 1, &ours[i]));
        TRY(turn_of_peer(b, &peer[i]));
        ratios[i] = peer[i] / ours[i];
    }
    double n = (double)b->view->n;
    printf("{\"ours\": %.1f, \"peer\": %.1f, \"ratio\": %.4f, \"turns\": %d, \"threads\": %d, "
           "\"images\": %lld}\n",
           n / median(ours, turns), n / median(peer, turns), median(ratios, turns), turns,
           b->options->threads, (long long)b->view->n);
    return DER_OK;
}

enum der_status bench_loader(struct der_ctx *ctx, const struct bench_options *options)
{
    struct bench b = {.ctx = ctx, .options = options};
    if (options->rounds < 1 || options->rounds > TURNS_MAX || options->threads > THREADS_MAX ||
        options->side < 16 || options->side > 4096)
        return ctx_fail(ctx, DER_ARG,
                        "want 1 to %d rounds, at most %d threads, a side of 16 to 4096", TURNS_MAX,
                        THREADS_MAX);
    enum der_status status = open_all(&b);
    if (status == DER_OK)
        status = measure(&b);
    loader_free(b.loader);
    view_free(b.view);
    dataset_free(b.set);
    remove_files(&b);
    return status;
}

#else

enum der_status bench_loader(struct der_ctx *ctx, const struct bench_options *options)
{
    (void)options;
    return ctx_fail(ctx, DER_UNSUPPORTED, "this build has no libjpeg");
}

#endif

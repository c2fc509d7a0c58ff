/*
 * PNG through libpng: 8 bits, no interlacing, nothing but the pixels. The library leaves by setjmp, which stays
 * in this file.
 */
#include "data/image_encode.h"

#include "der_build.h"

#include <string.h>

#if DER_HAVE_PNG

#include <setjmp.h>

#include <png.h>

enum { FIRST_CAPACITY = 1 << 12 };

struct job {
    struct mem *mem;
    const struct image_view *image;
    uint8_t *row;  /* interleaved */
    uint8_t *data; /* the file */
    size_t size, capacity;
    bool has_failed; /* which lack of memory alone can do */
    png_structp png;
    png_infop info;
    jmp_buf back;
};

static void on_error(png_structp png, png_const_charp text)
{
    struct job *job = png_get_error_ptr(png);
    (void)text;
    job->has_failed = true;
    longjmp(job->back, 1);
}

static void on_warning(png_structp png, png_const_charp text)
{
    (void)png;
    (void)text;
}

static png_voidp give(png_structp png, png_alloc_size_t size)
{
    struct job *job = png_get_mem_ptr(png);
    return mem_alloc(job->mem, size, 1);
}

static void take_back(png_structp png, png_voidp block)
{
    struct job *job = png_get_mem_ptr(png);
    mem_free(job->mem, block);
}

static void on_write(png_structp png, png_bytep src, size_t n)
{
    struct job *job = png_get_io_ptr(png);
    size_t capacity = job->capacity > 0 ? job->capacity : FIRST_CAPACITY;
    while (capacity < job->size + n)
        capacity *= 2;
    if (capacity > job->capacity) {
        uint8_t *data = mem_realloc(job->mem, job->data, capacity, 1);
        if (!data)
            png_error(png, "no memory");
        job->data = data;
        job->capacity = capacity;
    }
    memcpy(job->data + job->size, src, n);
    job->size += n;
}

static void on_flush(png_structp png)
{
    (void)png;
}

static void fill_row(struct job *job, int y)
{
    const struct image_view *image = job->image;
    for (int x = 0; x < image->width; x++)
        for (int c = 0; c < image->channels; c++)
            job->row[x * image->channels + c] =
                image->data[y * image->row_stride + x * image->pixel_stride +
                            c * image->channel_stride];
}

static void write_pixels(struct job *job)
{
    const struct image_view *image = job->image;
    png_set_write_fn(job->png, job, on_write, on_flush);
    png_set_IHDR(job->png, job->info, (png_uint_32)image->width, (png_uint_32)image->height, 8,
                 image->channels == 3 ? PNG_COLOR_TYPE_RGB : PNG_COLOR_TYPE_GRAY,
                 PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    png_write_info(job->png, job->info);
    for (int y = 0; y < image->height; y++) {
        fill_row(job, y);
        png_write_row(job->png, job->row);
    }
    png_write_end(job->png, NULL);
}

/* As in image_png.c: *job belongs to the caller, so it is defined after the jump. */
static void guard(struct job *job, void (*work)(struct job *job))
{
    if (setjmp(job->back) == 0)
        work(job);
    png_destroy_write_struct(&job->png, &job->info);
}

static bool open_png(struct job *job)
{
    job->row = mem_alloc(job->mem, (size_t)job->image->width * (size_t)job->image->channels, 1);
    if (job->row)
        job->png = png_create_write_struct_2(PNG_LIBPNG_VER_STRING, job, on_error, on_warning, job,
                                             give, take_back);
    if (job->png)
        job->info = png_create_info_struct(job->png);
    if (job->png && !job->info)
        png_destroy_write_struct(&job->png, NULL);
    return job->info != NULL;
}

enum der_status image_encode_png(struct der_ctx *ctx, const struct image_view *image, uint8_t **png,
                                 size_t *size)
{
    struct job job = {.mem = &ctx->mem, .image = image};
    *png = NULL;
    *size = 0;
    if (image->channels != 1 && image->channels != 3)
        return ctx_fail(ctx, DER_ARG, "an image of %d channels is neither grey nor RGB",
                        image->channels);
    if (open_png(&job))
        guard(&job, write_pixels);
    else
        job.has_failed = true;
    mem_free(job.mem, job.row);
    if (job.has_failed) {
        mem_free(job.mem, job.data);
        return ctx_nomem(ctx);
    }
    *png = job.data;
    *size = job.size;
    return DER_OK;
}

bool image_encode_is_built(void)
{
    return true;
}

#else

bool image_encode_is_built(void)
{
    return false;
}

enum der_status image_encode_png(struct der_ctx *ctx, const struct image_view *image, uint8_t **png,
                                 size_t *size)
{
    (void)image;
    *png = NULL;
    *size = 0;
    return ctx_fail(ctx, DER_UNSUPPORTED, "images cannot be written: this build has no libpng");
}

#endif

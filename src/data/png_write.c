/*
 * PNG through libpng's writer. Like the reader it leaves by longjmp, which stays in this file.
 */
#include "data/png_write.h"

#include "der_build.h"

#if DER_HAVE_PNG

#include <setjmp.h>
#include <string.h>

#include <png.h>

struct job {
    struct der_ctx *ctx;
    const struct image_view *image;
    struct file_bytes *out;
    uint8_t *row; /* [width * channels] */
    enum der_status status;
    png_structp png;
    png_infop info;
    jmp_buf back;
};

static void on_error(png_structp png, png_const_charp text)
{
    struct job *job = png_get_error_ptr(png);
    if (job->status == DER_OK)
        job->status = ctx_fail(job->ctx, DER_ARG, "an image could not be written: %s", text);
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
    void *block = mem_alloc(&job->ctx->mem, size, 1);
    if (!block)
        job->status = ctx_nomem(job->ctx);
    return block;
}

static void take_back(png_structp png, png_voidp block)
{
    struct job *job = png_get_mem_ptr(png);
    mem_free(&job->ctx->mem, block);
}

static void on_write(png_structp png, png_bytep data, size_t n)
{
    struct job *job = png_get_io_ptr(png);
    struct file_bytes *out = job->out;
    if (n > out->capacity - out->size) {
        size_t capacity = 2 * (out->size + n);
        uint8_t *grown = mem_realloc(&job->ctx->mem, out->data, capacity, 1);
        if (!grown) {
            job->status = ctx_nomem(job->ctx);
            png_error(png, "no memory");
        }
        out->data = grown;
        out->capacity = capacity;
    }
    memcpy(out->data + out->size, data, n);
    out->size += n;
}

static void on_flush(png_structp png)
{
    (void)png;
}

static void gather_row(const struct image_view *image, int y, uint8_t *row)
{
    for (int x = 0; x < image->width; x++)
        for (int c = 0; c < image->channels; c++)
            *row++ = image->data[c * image->channel_stride + y * image->row_stride +
                                 x * image->pixel_stride];
}

static void write_pixels(struct job *job)
{
    const struct image_view *image = job->image;
    png_structp png = job->png;
    png_set_write_fn(png, job, on_write, on_flush);
    png_set_compression_level(png, 9);
    png_set_IHDR(png, job->info, (png_uint_32)image->width, (png_uint_32)image->height, 8,
                 image->channels == 3 ? PNG_COLOR_TYPE_RGB : PNG_COLOR_TYPE_GRAY,
                 PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    png_write_info(png, job->info);
    for (int y = 0; y < image->height; y++) {
        gather_row(image, y, job->row);
        png_write_row(png, job->row);
    }
    png_write_end(png, NULL);
}

/* As in image_png.c: *job belongs to the caller, so it is defined after the jump. */
static void guard(struct job *job, void (*work)(struct job *job))
{
    if (setjmp(job->back) == 0)
        work(job);
    png_destroy_write_struct(&job->png, &job->info);
}

static enum der_status start(struct job *job)
{
    size_t row = (size_t)job->image->width * (size_t)job->image->channels;
    job->row = mem_alloc(&job->ctx->mem, row, 1);
    if (!job->row)
        return ctx_nomem(job->ctx);
    job->png = png_create_write_struct_2(PNG_LIBPNG_VER_STRING, job, on_error, on_warning, job,
                                         give, take_back);
    if (job->png)
        job->info = png_create_info_struct(job->png);
    if (!job->info) {
        png_destroy_write_struct(&job->png, NULL);
        return ctx_nomem(job->ctx);
    }
    return DER_OK;
}

enum der_status png_write(struct der_ctx *ctx, const struct image_view *image,
                          struct file_bytes *out)
{
    struct job job = {.ctx = ctx, .image = image, .out = out};
    *out = (struct file_bytes){0};
    enum der_status status = start(&job);
    if (status == DER_OK) {
        guard(&job, write_pixels);
        status = job.status;
    }
    mem_free(&ctx->mem, job.row);
    return status;
}

bool png_write_is_built(void)
{
    return true;
}

#else

bool png_write_is_built(void)
{
    return false;
}

enum der_status png_write(struct der_ctx *ctx, const struct image_view *image,
                          struct file_bytes *out)
{
    (void)image;
    *out = (struct file_bytes){0};
    return ctx_fail(ctx, DER_UNSUPPORTED, "this build has no libpng and writes no PNG");
}

#endif

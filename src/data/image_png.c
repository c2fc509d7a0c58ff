/*
 * PNG through libpng: any bit depth, palette, alpha and interlacing to 8-bit grey or RGB.
 *
 * Alpha is dropped, not blended, and of 16 bits the upper eight are kept, which is what Pillow's
 * convert("RGB") does. Like libjpeg, the library leaves by setjmp, which stays in this file.
 */
#include "data/image_codec.h"

#include "der_build.h"

#include <string.h>

#if DER_HAVE_PNG

#include <setjmp.h>

#include <png.h>

enum {
    SIGNATURE_BYTES = 8,
    HEADER_BYTES = SIGNATURE_BYTES + 4 + 4 + 13, /* signature, length, "IHDR", its content */
    DEFLATE_RATIO_MAX = 1032,
    BIT_DEPTH_AT = 24,
    COLOUR_TYPE_AT = 25,
    CHUNK_BYTES_MAX = 1 << 20, /* of chunks that are kept while reading; the palette is one */
};

struct job {
    struct image_decoder *decoder;
    int channels;           /* that the caller wants in the end */
    struct image_raw *raw;  /* result */
    size_t at;              /* next byte of the file */
    bool starved;           /* a request for memory failed */
    enum der_status status; /* set before jumping back */
    png_structp png;
    png_infop info;
    jmp_buf back;
};

static void on_error(png_structp png, png_const_charp text)
{
    struct job *job = png_get_error_ptr(png);
    struct fault *fault = &job->decoder->fault;
    if (job->status == DER_OK && job->starved)
        job->status = fault_set(fault, DER_NOMEM, "out of memory for %s", job->decoder->name);
    else if (job->status == DER_OK)
        job->status =
            fault_set(fault, DER_FORMAT, "%s is not a good PNG file: %s", job->decoder->name, text);
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
    void *block = mem_alloc(job->decoder->mem, size, 1);
    if (!block)
        job->starved = true;
    return block;
}

static void take_back(png_structp png, png_voidp block)
{
    struct job *job = png_get_mem_ptr(png);
    mem_free(job->decoder->mem, block);
}

static void on_read(png_structp png, png_bytep dst, size_t n)
{
    struct job *job = png_get_io_ptr(png);
    if (n > job->decoder->encoded_size - job->at)
        png_error(png, "the file is cut off");
    memcpy(dst, job->decoder->encoded + job->at, n);
    job->at += n;
}

static uint32_t big_endian(const uint8_t *bytes)
{
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

enum der_status codec_png_info(struct image_decoder *decoder)
{
    static const uint8_t samples[] = {[0] = 1, [2] = 3, [3] = 1, [4] = 2, [6] = 4};
    const uint8_t *data = decoder->encoded;
    if (decoder->encoded_size < HEADER_BYTES || memcmp(data + 12, "IHDR", 4) != 0)
        return fault_set(&decoder->fault, DER_FORMAT, "%s is not a good PNG file: it has no header",
                         decoder->name);
    uint32_t width = big_endian(data + 16);
    uint32_t height = big_endian(data + 20);
    unsigned colour = data[COLOUR_TYPE_AT];
    TRY(image_check_size(decoder, height, width));
    /* The pixels must be able to come out of the bytes there are, or no memory is taken. */
    uint64_t bits = (uint64_t)height * width * data[BIT_DEPTH_AT];
    bits *= colour < sizeof samples ? samples[colour] : 0;
    if (bits / 8 / DEFLATE_RATIO_MAX > decoder->encoded_size)
        return fault_set(&decoder->fault, DER_FORMAT,
                         "%s has %zu bytes, too few for the %u x %u pixels it claims",
                         decoder->name, decoder->encoded_size, (unsigned)width, (unsigned)height);
    decoder->info.height = (int)height;
    decoder->info.width = (int)width;
    decoder->info.orientation = 1;
    return DER_OK;
}

static void set_limits(png_structp png)
{
    png_set_user_limits(png, IMAGE_SIDE_MAX, IMAGE_SIDE_MAX);
    png_set_chunk_malloc_max(png, CHUNK_BYTES_MAX);
    /* Text, time and colour profiles change no pixel here. */
    png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_NEVER, NULL, -1);
}

static void set_transforms(struct job *job)
{
    png_structp png = job->png;
    int colour = png_get_color_type(png, job->info);
    if (colour == PNG_COLOR_TYPE_PALETTE)
        png_set_palette_to_rgb(png);
    if (colour == PNG_COLOR_TYPE_GRAY && png_get_bit_depth(png, job->info) < 8)
        png_set_expand_gray_1_2_4_to_8(png);
    png_set_strip_16(png);
    png_set_strip_alpha(png);
    if (job->channels == 3 && (colour & PNG_COLOR_MASK_COLOR) == 0)
        png_set_gray_to_rgb(png);
}

static void read_pixels(struct job *job)
{
    png_structp png = job->png;
    set_limits(png);
    png_set_read_fn(png, job, on_read);
    png_read_info(png, job->info);
    set_transforms(job);
    int passes = png_set_interlace_handling(png);
    png_read_update_info(png, job->info);
    *job->raw = (struct image_raw){.height = (int)png_get_image_height(png, job->info),
                                   .width = (int)png_get_image_width(png, job->info),
                                   .channels = png_get_channels(png, job->info)};
    size_t row_bytes = (size_t)job->raw->width * (size_t)job->raw->channels;
    if (png_get_rowbytes(png, job->info) != row_bytes)
        png_error(png, "its pixels have an unknown layout");
    job->status = image_reserve(job->decoder, job->raw, job->channels);
    if (job->status != DER_OK)
        png_error(png, "no memory");
    for (int pass = 0; pass < passes; pass++)
        for (int y = 0; y < job->raw->height; y++)
            png_read_row(png, job->decoder->pixels + row_bytes * (size_t)y, NULL);
    png_read_end(png, NULL);
}

/* As in image_jpeg.c: *job belongs to the caller, so it is defined after the jump. */
static void guard(struct job *job, void (*work)(struct job *job))
{
    if (setjmp(job->back) == 0)
        work(job);
    png_destroy_read_struct(&job->png, &job->info, NULL);
}

enum der_status codec_png_pixels(struct image_decoder *decoder, int channels, struct image_raw *raw)
{
    struct job job = {.decoder = decoder, .channels = channels, .raw = raw};
    job.png = png_create_read_struct_2(PNG_LIBPNG_VER_STRING, &job, on_error, on_warning, &job,
                                       give, take_back);
    if (job.png)
        job.info = png_create_info_struct(job.png);
    if (!job.info) {
        png_destroy_read_struct(&job.png, NULL, NULL);
        return fault_set(&decoder->fault, DER_NOMEM, "out of memory for %s", decoder->name);
    }
    guard(&job, read_pixels);
    return job.status;
}

#else

enum der_status codec_png_info(struct image_decoder *decoder)
{
    return fault_set(&decoder->fault, DER_UNSUPPORTED,
                     "%s is a PNG file, and this build has no libpng", decoder->name);
}

enum der_status codec_png_pixels(struct image_decoder *decoder, int channels, struct image_raw *raw)
{
    (void)channels;
    *raw = (struct image_raw){0};
    return codec_png_info(decoder);
}

#endif

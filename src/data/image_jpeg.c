/*
 * JPEG through the interface of libjpeg, as libjpeg-turbo provides it.
 *
 * The library reports errors by a function that must not return, hence setjmp; it stays within
 * this file. Warnings that mean lost pixels are errors here: half a picture in grey would be
 * trained on without anyone noticing.
 */
#include "data/image_codec.h"

#include "der_build.h"

#if DER_HAVE_JPEG

#include <setjmp.h>
#include <stdio.h>

#include <jpeglib.h>

#include <jerror.h>

enum {
    ROWS_AT_ONCE = 8,
    SCANS_MAX = 500,      /* a progressive file has about 10; each costs a full pass */
    APP1 = JPEG_APP0 + 1, /* where EXIF lives */
    APP1_BYTES_MAX = 0xFFFF,
    COEFFICIENT_BYTES = 8,  /* most memory per pixel for a progressive file: 4 x 2 bytes */
    MEMORY_BASE = 64 << 20, /* bytes that any file may take */
};

struct job {
    struct image_decoder *decoder;
    int scale;              /* eighths */
    int channels;           /* that the caller wants in the end */
    struct image_raw *raw;  /* result */
    enum der_status status; /* set before jumping back */
    struct jpeg_decompress_struct jpeg;
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    jmp_buf back;
};

_Noreturn static void give_up(struct job *job, enum der_status status)
{
    job->status = status;
    longjmp(job->back, 1);
}

static void on_error(j_common_ptr jpeg)
{
    struct job *job = jpeg->client_data;
    struct image_decoder *decoder = job->decoder;
    char text[JMSG_LENGTH_MAX];
    jpeg->err->format_message(jpeg, text);
    enum der_status status = jpeg->err->msg_code == JERR_OUT_OF_MEMORY ? DER_NOMEM : DER_FORMAT;
    give_up(job, fault_set(&decoder->fault, status, "%s is not a good JPEG file: %s", decoder->name,
                           text));
}

static void on_message(j_common_ptr jpeg, int level)
{
    if (level >= 0)
        return;
    switch (jpeg->err->msg_code) {
    case JWRN_JPEG_EOF:
    case JWRN_HIT_MARKER:
    case JWRN_HUFF_BAD_CODE:
    case JWRN_ARITH_BAD_CODE:
    case JWRN_MUST_RESYNC:
        on_error(jpeg);
        break;
    default: /* stray bytes and the like: no pixel suffers */
        break;
    }
}

static void on_output(j_common_ptr jpeg)
{
    (void)jpeg;
}

static void on_progress(j_common_ptr jpeg)
{
    struct job *job = jpeg->client_data;
    if (job->jpeg.input_scan_number > SCANS_MAX)
        give_up(job, fault_set(&job->decoder->fault, DER_FORMAT,
                               "%s is not a good JPEG file: it has more than %d scans",
                               job->decoder->name, (int)SCANS_MAX));
}

static void start(struct job *job)
{
    struct jpeg_decompress_struct *jpeg = &job->jpeg;
    jpeg->err = jpeg_std_error(&job->errors);
    job->errors.error_exit = on_error;
    job->errors.emit_message = on_message;
    job->errors.output_message = on_output;
    jpeg->client_data = job;
    jpeg_create_decompress(jpeg);
    job->progress.progress_monitor = on_progress;
    jpeg->progress = &job->progress;
    jpeg->mem->max_memory_to_use =
        (long)(job->decoder->max_pixels * COEFFICIENT_BYTES + MEMORY_BASE);
    jpeg_mem_src(jpeg, job->decoder->encoded, (unsigned long)job->decoder->encoded_size);
    jpeg_save_markers(jpeg, APP1, APP1_BYTES_MAX);
    (void)jpeg_read_header(jpeg, TRUE);
}

static void read_info(struct job *job)
{
    struct image_info *info = &job->decoder->info;
    start(job);
    enum der_status status =
        image_check_size(job->decoder, job->jpeg.image_height, job->jpeg.image_width);
    if (status != DER_OK)
        give_up(job, status);
    info->orientation = 1;
    for (jpeg_saved_marker_ptr at = job->jpeg.marker_list; at; at = at->next) {
        info->orientation = exif_orientation(at->data, at->data_length);
        if (info->orientation != 1)
            break;
    }
    bool sideways = info->orientation >= 5;
    info->height = (int)(sideways ? job->jpeg.image_width : job->jpeg.image_height);
    info->width = (int)(sideways ? job->jpeg.image_height : job->jpeg.image_width);
}

static void read_pixels(struct job *job)
{
    struct jpeg_decompress_struct *jpeg = &job->jpeg;
    struct image_decoder *decoder = job->decoder;
    start(job);
    switch (jpeg->num_components) {
    case 1:
        jpeg->out_color_space = JCS_GRAYSCALE;
        break;
    case 3:
        jpeg->out_color_space = JCS_RGB;
        break;
    case 4:
        jpeg->out_color_space = JCS_CMYK;
        break;
    default:
        give_up(job, fault_set(&decoder->fault, DER_FORMAT,
                               "%s has %d colour components, want 1, 3 or 4", decoder->name,
                               jpeg->num_components));
    }
    jpeg->scale_num = (unsigned)job->scale;
    jpeg->scale_denom = IMAGE_SCALE_FULL;
    (void)jpeg_start_decompress(jpeg);
    *job->raw = (struct image_raw){.height = (int)jpeg->output_height,
                                   .width = (int)jpeg->output_width,
                                   .channels = jpeg->output_components};
    enum der_status status = image_reserve(decoder, job->raw, job->channels);
    if (status != DER_OK)
        give_up(job, status);

    size_t row_bytes = (size_t)job->raw->width * (size_t)job->raw->channels;
    while (jpeg->output_scanline < jpeg->output_height) {
        JSAMPROW rows[ROWS_AT_ONCE];
        JDIMENSION n = jpeg->output_height - jpeg->output_scanline;
        n = n < ROWS_AT_ONCE ? n : ROWS_AT_ONCE;
        for (JDIMENSION i = 0; i < n; i++)
            rows[i] = decoder->pixels + row_bytes * (jpeg->output_scanline + i);
        (void)jpeg_read_scanlines(jpeg, rows, n);
    }
    (void)jpeg_finish_decompress(jpeg);
}

/* Runs `work` and comes back here when the library gives up. *job belongs to the caller, so that
 * its content is defined after the jump. */
static enum der_status guard(struct job *job, void (*work)(struct job *job))
{
    job->status = DER_OK;
    if (setjmp(job->back) == 0)
        work(job);
    jpeg_destroy_decompress(&job->jpeg);
    return job->status;
}

enum der_status codec_jpeg_info(struct image_decoder *decoder)
{
    struct job job = {.decoder = decoder};
    return guard(&job, read_info);
}

enum der_status codec_jpeg_pixels(struct image_decoder *decoder, int scale, int channels,
                                  struct image_raw *raw)
{
    struct job job = {.decoder = decoder, .scale = scale, .channels = channels, .raw = raw};
    return guard(&job, read_pixels);
}

#else

enum der_status codec_jpeg_info(struct image_decoder *decoder)
{
    return fault_set(&decoder->fault, DER_UNSUPPORTED,
                     "%s is a JPEG file, and this build has no libjpeg", decoder->name);
}

enum der_status codec_jpeg_pixels(struct image_decoder *decoder, int scale, int channels,
                                  struct image_raw *raw)
{
    (void)scale;
    (void)channels;
    *raw = (struct image_raw){0};
    return codec_jpeg_info(decoder);
}

#endif

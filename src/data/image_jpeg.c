/*
 * JPEG through the interface of libjpeg, as libjpeg-turbo provides it.
 *
 * The library reports errors by a function that must not return, hence setjmp; it stays within
 * this file. Warnings that mean lost pixels are errors here: half a picture in grey would be
 * trained on without anyone noticing.
 *
 * A box of the image is decoded with the functions that libjpeg-turbo has for it, and comes out as
 * it does in the whole image. All entropy-coded data up to the end of the box has to be read, but
 * nothing else is done for blocks outside of it, and nothing at all behind its last row.
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
    SMOOTHED = 10,          /* coefficients of a block that smoothing across blocks looks at */
};

/* jpeg_crop_scanline and jpeg_skip_scanlines came with libjpeg-turbo 1.5, and went wrong for some
 * files before 2.1. Without them images are decoded whole. */
#if defined(LIBJPEG_TURBO_VERSION_NUMBER) && LIBJPEG_TURBO_VERSION_NUMBER >= 2001000
enum { HAS_BOXES = 1 };
#else
enum { HAS_BOXES = 0 };
#define jpeg_crop_scanline(jpeg, x, width) ((void)(jpeg), (void)(x), (void)(width))
#define jpeg_skip_scanlines(jpeg, n) ((void)(jpeg), (void)(n))
#endif

/* The library's state. It outlives the reading of the header, so that this happens once, but is
 * made anew for every file: tables of one file must not serve the next. */
struct jpeg_job {
    struct image_decoder *decoder;
    const struct image_request *request; /* for read_pixels */
    struct image_raw *raw;               /* result of read_pixels */
    bool is_open;                        /* `jpeg` exists */
    bool has_header;                     /* and is just behind the header */
    enum der_status status;              /* set before jumping back */
    struct jpeg_decompress_struct jpeg;
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    jmp_buf back;
};

_Noreturn static void give_up(struct jpeg_job *job, enum der_status status)
{
    job->status = status;
    longjmp(job->back, 1);
}

static void on_error(j_common_ptr jpeg)
{
    struct jpeg_job *job = jpeg->client_data;
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
    struct jpeg_job *job = jpeg->client_data;
    if (job->jpeg.input_scan_number > SCANS_MAX)
        give_up(job, fault_set(&job->decoder->fault, DER_FORMAT,
                               "%s is not a good JPEG file: it has more than %d scans",
                               job->decoder->name, (int)SCANS_MAX));
}

static void read_header(struct jpeg_job *job)
{
    struct jpeg_decompress_struct *jpeg = &job->jpeg;
    jpeg->err = jpeg_std_error(&job->errors);
    job->errors.error_exit = on_error;
    job->errors.emit_message = on_message;
    job->errors.output_message = on_output;
    jpeg->client_data = job;
    job->is_open = true; /* what was made before a failure is destroyed, too */
    jpeg_create_decompress(jpeg);
    job->progress.progress_monitor = on_progress;
    jpeg->progress = &job->progress;
    jpeg->mem->max_memory_to_use =
        (long)(job->decoder->max_pixels * COEFFICIENT_BYTES + MEMORY_BASE);
    jpeg_mem_src(jpeg, job->decoder->encoded, (unsigned long)job->decoder->encoded_size);
    jpeg_save_markers(jpeg, APP1, APP1_BYTES_MAX);
    (void)jpeg_read_header(jpeg, TRUE);
    job->has_header = true;
}

static void read_info(struct jpeg_job *job)
{
    struct image_info *info = &job->decoder->info;
    read_header(job);
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

static J_COLOR_SPACE colours_for(struct jpeg_job *job)
{
    switch (job->jpeg.num_components) {
    case 1:
        return job->request->channels == 3 ? JCS_RGB : JCS_GRAYSCALE;
    case 3:
        return JCS_RGB;
    case 4:
        return JCS_CMYK;
    default:
        give_up(job, fault_set(&job->decoder->fault, DER_FORMAT,
                               "%s has %d colour components, want 1, 3 or 4", job->decoder->name,
                               job->jpeg.num_components));
    }
}

/* Will the library smooth across blocks, as it does for progressive files that lack their last
 * scans? Blocks then depend on others that a box leaves out. */
static bool is_smoothed(const struct jpeg_decompress_struct *jpeg)
{
    if (!jpeg->coef_bits)
        return false;
    for (int c = 0; c < jpeg->num_components; c++)
        for (int i = 0; i < SMOOTHED; i++)
            if (jpeg->coef_bits[c][i] != 0)
                return true;
    return false;
}

/* Leaves out what lies left, right and above of the box. Chroma is interpolated between neighbours,
 * and at an edge it is not: hence a margin of one chroma sample at both sides. Vertically the
 * library sees to it. */
static void cut_to_box(struct jpeg_job *job)
{
    struct jpeg_decompress_struct *jpeg = &job->jpeg;
    const struct image_box *box = &job->request->box;
    int margin = jpeg->max_h_samp_factor;
    int begin = box->x > margin ? box->x - margin : 0;
    int end = job->raw->width - box->x - box->width > margin ? box->x + box->width + margin
                                                             : job->raw->width;
    JDIMENSION x = (JDIMENSION)begin;
    JDIMENSION width = (JDIMENSION)(end - begin);
    jpeg_crop_scanline(jpeg, &x, &width);
    if (box->y > 0)
        (void)jpeg_skip_scanlines(jpeg, (JDIMENSION)box->y);
    *job->raw = (struct image_raw){.y = box->y,
                                   .x = (int)x,
                                   .height = box->height,
                                   .width = (int)width,
                                   .channels = jpeg->output_components};
}

static void read_pixels(struct jpeg_job *job)
{
    struct jpeg_decompress_struct *jpeg = &job->jpeg;
    struct image_decoder *decoder = job->decoder;
    const struct image_box *box = &job->request->box;
    struct image_raw *raw = job->raw;
    if (!job->has_header)
        read_header(job);
    job->has_header = false;
    jpeg->out_color_space = colours_for(job);
    jpeg->scale_num = (unsigned)job->request->scale;
    jpeg->scale_denom = IMAGE_SCALE_FULL;
    (void)jpeg_start_decompress(jpeg);
    *raw = (struct image_raw){.height = (int)jpeg->output_height,
                              .width = (int)jpeg->output_width,
                              .channels = jpeg->output_components};
    if (HAS_BOXES && (box->height < raw->height || box->width < raw->width) && !is_smoothed(jpeg))
        cut_to_box(job);
    enum der_status status = image_reserve(decoder, raw, job->request->channels);
    if (status != DER_OK)
        give_up(job, status);

    size_t row_bytes = (size_t)raw->width * (size_t)raw->channels;
    uint8_t *at = decoder->pixels;
    JDIMENSION end = (JDIMENSION)(raw->y + raw->height);
    while (jpeg->output_scanline < end) {
        JSAMPROW rows[ROWS_AT_ONCE];
        JDIMENSION n = end - jpeg->output_scanline;
        n = n < ROWS_AT_ONCE ? n : ROWS_AT_ONCE;
        for (JDIMENSION i = 0; i < n; i++)
            rows[i] = at + row_bytes * i;
        at += row_bytes * jpeg_read_scanlines(jpeg, rows, n);
    }
    if (end == jpeg->output_height)
        (void)jpeg_finish_decompress(jpeg);
}

static void close_file(struct jpeg_job *job)
{
    if (job->is_open)
        jpeg_destroy_decompress(&job->jpeg);
    job->is_open = false;
    job->has_header = false;
}

/* Runs `work` and comes back here when the library gives up. *job is not on this stack, so that its
 * content is defined after the jump. */
static enum der_status guard(struct jpeg_job *job, void (*work)(struct jpeg_job *job))
{
    job->status = DER_OK;
    if (setjmp(job->back) == 0)
        work(job);
    return job->status;
}

enum der_status codec_jpeg_info(struct image_decoder *decoder)
{
    if (!decoder->jpeg)
        decoder->jpeg = mem_zalloc(decoder->mem, 1, sizeof *decoder->jpeg);
    if (!decoder->jpeg)
        return fault_set(&decoder->fault, DER_NOMEM, "out of memory for %s", decoder->name);
    close_file(decoder->jpeg);
    decoder->jpeg->decoder = decoder;
    enum der_status status = guard(decoder->jpeg, read_info);
    if (status != DER_OK)
        close_file(decoder->jpeg);
    return status;
}

enum der_status codec_jpeg_pixels(struct image_decoder *decoder,
                                  const struct image_request *request, struct image_raw *raw)
{
    struct jpeg_job *job = decoder->jpeg;
    job->request = request;
    job->raw = raw;
    enum der_status status = guard(job, read_pixels);
    close_file(job);
    return status;
}

void codec_jpeg_fini(struct image_decoder *decoder)
{
    if (decoder->jpeg)
        close_file(decoder->jpeg);
    mem_free(decoder->mem, decoder->jpeg);
}

#else

enum der_status codec_jpeg_info(struct image_decoder *decoder)
{
    return fault_set(&decoder->fault, DER_UNSUPPORTED,
                     "%s is a JPEG file, and this build has no libjpeg", decoder->name);
}

enum der_status codec_jpeg_pixels(struct image_decoder *decoder,
                                  const struct image_request *request, struct image_raw *raw)
{
    (void)request;
    *raw = (struct image_raw){0};
    return codec_jpeg_info(decoder);
}

void codec_jpeg_fini(struct image_decoder *decoder)
{
    (void)decoder;
}

#endif

#include "data/image_file.h"

#include "data/image_codec.h"
#include "data/image_form.h"

#include <assert.h>
#include <string.h>

static const size_t IMAGE_FILE_BYTES_MAX = (size_t)1 << 29;

void image_decoder_init(struct image_decoder *decoder, struct mem *mem)
{
    *decoder = (struct image_decoder){.mem = mem, .max_pixels = IMAGE_PIXELS_MAX};
}

void image_decoder_fini(struct image_decoder *decoder)
{
    file_bytes_free(decoder->mem, &decoder->file);
    mem_free(decoder->mem, decoder->pixels);
    mem_free(decoder->mem, decoder->turned);
    codec_jpeg_fini(decoder);
    *decoder = (struct image_decoder){.mem = decoder->mem};
}

enum der_status image_check_size(struct image_decoder *decoder, uint64_t height, uint64_t width)
{
    if (height > 0 && width > 0 && height <= IMAGE_SIDE_MAX && width <= IMAGE_SIDE_MAX &&
        height * width <= decoder->max_pixels)
        return DER_OK;
    return fault_set(&decoder->fault, DER_FORMAT,
                     "%s claims %llu x %llu pixels, want 1..%d a side and at most %zu in all",
                     decoder->name, (unsigned long long)width, (unsigned long long)height,
                     (int)IMAGE_SIDE_MAX, decoder->max_pixels);
}

/* Makes a buffer hold height * width * channels bytes; its content is lost. */
static enum der_status reserve(struct image_decoder *decoder, uint8_t **buffer, size_t *capacity,
                               int height, int width, int channels)
{
    size_t bytes;
    bool fits = size_mul((size_t)height, (size_t)width, &bytes) &&
                size_mul(bytes, (size_t)channels, &bytes);
    if (fits && bytes <= *capacity)
        return DER_OK;
    mem_free(decoder->mem, *buffer);
    *capacity = 0;
    *buffer = fits ? mem_alloc(decoder->mem, bytes, 1) : NULL;
    if (!*buffer)
        return fault_set(&decoder->fault, DER_NOMEM, "out of memory for the %d x %d pixels of %s",
                         width, height, decoder->name);
    *capacity = bytes;
    return DER_OK;
}

enum der_status image_reserve(struct image_decoder *decoder, const struct image_raw *raw,
                              int channels)
{
    int most = raw->channels > channels ? raw->channels : channels;
    return reserve(decoder, &decoder->pixels, &decoder->pixels_capacity, raw->height, raw->width,
                   most);
}

enum der_status image_load_bytes(struct image_decoder *decoder, const char *name,
                                 const uint8_t *data, size_t size)
{
    static const uint8_t jpeg_start[] = {0xFF, 0xD8, 0xFF};
    static const uint8_t png_start[] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'};
    decoder->name = name;
    decoder->encoded = data;
    decoder->encoded_size = size;
    decoder->info = (struct image_info){0};
    if (size >= sizeof jpeg_start && memcmp(data, jpeg_start, sizeof jpeg_start) == 0) {
        decoder->info.format = IMAGE_JPEG;
        return codec_jpeg_info(decoder);
    }
    if (size >= sizeof png_start && memcmp(data, png_start, sizeof png_start) == 0) {
        decoder->info.format = IMAGE_PNG;
        return codec_png_info(decoder);
    }
    return fault_set(&decoder->fault, DER_FORMAT, "%s is neither a JPEG nor a PNG file", name);
}

enum der_status image_load(struct image_decoder *decoder, const char *path)
{
    TRY(file_read(decoder->mem, decoder->io, path, IMAGE_FILE_BYTES_MAX, &decoder->file,
                  &decoder->fault));
    return image_load_bytes(decoder, path, decoder->file.data, decoder->file.size);
}

int image_scale_for(const struct image_info *info, int crop_height, int crop_width, int want_height,
                    int want_width)
{
    if (info->format != IMAGE_JPEG)
        return IMAGE_SCALE_FULL;
    for (int scale = 1; scale < IMAGE_SCALE_FULL; scale *= 2)
        if ((int64_t)crop_height * scale / IMAGE_SCALE_FULL >= want_height &&
            (int64_t)crop_width * scale / IMAGE_SCALE_FULL >= want_width)
            return scale;
    return IMAGE_SCALE_FULL;
}

int image_scaled(int side, int scale)
{
    return (int)(((int64_t)side * scale + IMAGE_SCALE_FULL - 1) / IMAGE_SCALE_FULL);
}

/* ---- colours --------------------------------------------------------------------------------- */

/* JPEG files hold CMYK inverted, as Adobe's programs write it; as Pillow does, this is taken for
 * granted, with or without Adobe's marker. With c = 255 - stored: (255 - c)(255 - k) / 255. */
static uint8_t ink(uint8_t stored, uint8_t stored_black)
{
    unsigned product = (unsigned)(255 - stored) * stored_black + 128;
    return (uint8_t)(stored_black - ((product >> 8) + product) / 256);
}

/* Converts n pixels in place. The buffer has room for the larger of the two forms. */
static void convert(uint8_t *pixels, size_t n, int from, int to)
{
    assert(from >= to); /* codecs make colour of grey themselves */
    if (from == 4) {
        for (size_t i = 0; i < n; i++) {
            const uint8_t *cmyk = pixels + 4 * i;
            uint8_t rgb[3] = {ink(cmyk[0], cmyk[3]), ink(cmyk[1], cmyk[3]), ink(cmyk[2], cmyk[3])};
            memcpy(pixels + 3 * i, rgb, sizeof rgb);
        }
        from = 3;
    }
    if (from == 3 && to == 1)
        for (size_t i = 0; i < n; i++)
            pixels[i] = image_luma(pixels[3 * i], pixels[3 * i + 1], pixels[3 * i + 2]);
}

/* ---- orientation ----------------------------------------------------------------------------- */

/* The stored image is turned and mirrored so that it stands upright. For each EXIF value, where the
 * upright image's origin lies in the stored one, and whether its rows are stored columns. */
static const struct {
    bool transposed, from_bottom, from_right;
} turns[9] = {
    [1] = {false, false, false}, [2] = {false, false, true}, [3] = {false, true, true},
    [4] = {false, true, false},  [5] = {true, false, false}, [6] = {true, true, false},
    [7] = {true, true, true},    [8] = {true, false, true},
};

/* The place in the stored image, itself height x width, of a box of the upright one. */
static struct image_box stored_box(const struct image_box *upright, int height, int width,
                                   int orientation)
{
    struct image_box box = *upright;
    if (turns[orientation].transposed)
        box = (struct image_box){upright->x, upright->y, upright->width, upright->height};
    if (turns[orientation].from_bottom)
        box.y = height - box.y - box.height;
    if (turns[orientation].from_right)
        box.x = width - box.x - box.width;
    return box;
}

/* Copies the pixels of a stored box, which begins at src, to where they stand upright, densely. */
static void turn(uint8_t *dst, const uint8_t *src, ptrdiff_t row_stride,
                 const struct image_box *stored, int channels, int orientation)
{
    ptrdiff_t down = row_stride;
    ptrdiff_t right = channels;
    if (turns[orientation].from_bottom) {
        src += (stored->height - 1) * down;
        down = -down;
    }
    if (turns[orientation].from_right) {
        src += (stored->width - 1) * right;
        right = -right;
    }
    bool transposed = turns[orientation].transposed;
    int height = transposed ? stored->width : stored->height;
    int width = transposed ? stored->height : stored->width;
    ptrdiff_t next_row = transposed ? right : down;
    ptrdiff_t next_pixel = transposed ? down : right;
    for (int y = 0; y < height; y++) {
        const uint8_t *from = src + y * next_row;
        for (int x = 0; x < width; x++) {
            memcpy(dst, from + x * next_pixel, (size_t)channels);
            dst += channels;
        }
    }
}

/* The loaded image's size as it is stored, at a scale. */
static struct image_box stored_whole(const struct image_info *info, int scale)
{
    bool transposed = turns[info->orientation].transposed;
    return (struct image_box){
        .height = image_scaled(transposed ? info->width : info->height, scale),
        .width = image_scaled(transposed ? info->height : info->width, scale),
    };
}

enum der_status image_decode(struct image_decoder *decoder, int channels, int scale,
                             const struct image_box *box, struct image_view *view)
{
    assert(channels == 1 || channels == 3);
    assert(scale >= 1 && scale <= IMAGE_SCALE_FULL);
    const struct image_info *info = &decoder->info;
    assert(info->format == IMAGE_JPEG || scale == IMAGE_SCALE_FULL);
    const struct image_box whole = stored_whole(info, scale);
    struct image_request request = {.scale = scale, .channels = channels, .box = whole};
    if (box)
        request.box = stored_box(box, whole.height, whole.width, info->orientation);
    const struct image_box *stored = &request.box;
    assert(stored->y >= 0 && stored->height > 0 && stored->y + stored->height <= whole.height);
    assert(stored->x >= 0 && stored->width > 0 && stored->x + stored->width <= whole.width);

    struct image_raw raw;
    if (info->format == IMAGE_JPEG)
        TRY(codec_jpeg_pixels(decoder, &request, &raw));
    else
        TRY(codec_png_pixels(decoder, channels, &raw));
    convert(decoder->pixels, (size_t)raw.height * (size_t)raw.width, raw.channels, channels);

    ptrdiff_t row_stride = (ptrdiff_t)raw.width * channels;
    *view = (struct image_view){
        .data = decoder->pixels + (stored->y - raw.y) * row_stride +
                (ptrdiff_t)(stored->x - raw.x) * channels,
        .channels = channels,
        .height = stored->height,
        .width = stored->width,
        .channel_stride = 1,
        .row_stride = row_stride,
        .pixel_stride = channels,
    };
    if (info->orientation == 1)
        return DER_OK;
    TRY(reserve(decoder, &decoder->turned, &decoder->turned_capacity, stored->height, stored->width,
                channels));
    turn(decoder->turned, view->data, row_stride, stored, channels, info->orientation);
    view->data = decoder->turned;
    if (turns[info->orientation].transposed) {
        view->height = stored->width;
        view->width = stored->height;
    }
    view->row_stride = (ptrdiff_t)view->width * channels;
    return DER_OK;
}

#include "data/image_file.h"

#include "data/image_codec.h"

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
                               const struct image_raw *raw, int channels)
{
    size_t bytes;
    bool fits = size_mul((size_t)raw->height, (size_t)raw->width, &bytes) &&
                size_mul(bytes, (size_t)channels, &bytes);
    if (fits && bytes <= *capacity)
        return DER_OK;
    mem_free(decoder->mem, *buffer);
    *capacity = 0;
    *buffer = fits ? mem_alloc(decoder->mem, bytes, 1) : NULL;
    if (!*buffer)
        return fault_set(&decoder->fault, DER_NOMEM, "out of memory for the %d x %d pixels of %s",
                         raw->width, raw->height, decoder->name);
    *capacity = bytes;
    return DER_OK;
}

enum der_status image_reserve(struct image_decoder *decoder, const struct image_raw *raw,
                              int channels)
{
    int most = raw->channels > channels ? raw->channels : channels;
    return reserve(decoder, &decoder->pixels, &decoder->pixels_capacity, raw, most);
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

/* ---- colours --------------------------------------------------------------------------------- */

/* Weights of ITU-R 601 in 16 bits, rounded: what Pillow's convert("L") computes. */
static uint8_t luma(const uint8_t *rgb)
{
    return (uint8_t)((rgb[0] * 19595u + rgb[1] * 38470u + rgb[2] * 7471u + 0x8000u) >> 16);
}

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
    if (from == 1 && to == 3) {
        for (size_t i = n; i-- > 0;)
            memset(pixels + 3 * i, pixels[i], 3);
        return;
    }
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
            pixels[i] = luma(pixels + 3 * i);
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

static void turn(uint8_t *dst, const uint8_t *src, const struct image_raw *raw, int orientation)
{
    bool transposed = turns[orientation].transposed;
    int height = transposed ? raw->width : raw->height;
    int width = transposed ? raw->height : raw->width;
    size_t channels = (size_t)raw->channels;
    for (int y = 0; y < height; y++) {
        for (int x = 0; x < width; x++) {
            int row = transposed ? x : y;
            int column = transposed ? y : x;
            if (turns[orientation].from_bottom)
                row = raw->height - 1 - row;
            if (turns[orientation].from_right)
                column = raw->width - 1 - column;
            const uint8_t *from =
                src + ((size_t)row * (size_t)raw->width + (size_t)column) * channels;
            memcpy(dst, from, channels);
            dst += channels;
        }
    }
}

enum der_status image_decode(struct image_decoder *decoder, int channels, int scale,
                             struct image_view *view)
{
    assert(channels == 1 || channels == 3);
    assert(scale >= 1 && scale <= IMAGE_SCALE_FULL);
    const struct image_info *info = &decoder->info;
    assert(info->format == IMAGE_JPEG || scale == IMAGE_SCALE_FULL);
    struct image_raw raw;
    if (info->format == IMAGE_JPEG)
        TRY(codec_jpeg_pixels(decoder, scale, channels, &raw));
    else
        TRY(codec_png_pixels(decoder, channels, &raw));
    convert(decoder->pixels, (size_t)raw.height * (size_t)raw.width, raw.channels, channels);
    raw.channels = channels;

    *view = (struct image_view){
        .data = decoder->pixels,
        .channels = channels,
        .height = raw.height,
        .width = raw.width,
        .channel_stride = 1,
        .pixel_stride = channels,
    };
    if (info->orientation != 1) {
        TRY(reserve(decoder, &decoder->turned, &decoder->turned_capacity, &raw, channels));
        turn(decoder->turned, decoder->pixels, &raw, info->orientation);
        view->data = decoder->turned;
        if (turns[info->orientation].transposed) {
            view->height = raw.width;
            view->width = raw.height;
        }
    }
    view->row_stride = (ptrdiff_t)view->width * channels;
    return DER_OK;
}

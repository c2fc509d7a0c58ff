/*
 * One image file, JPEG or PNG, to bytes.
 *
 * A decoder belongs to one thread and keeps its buffers from image to image, so that decoding
 * takes no memory once they have grown. Work is split in two: image_load reads the file and says
 * how large the image is, then the caller chooses its crop, and image_decode makes the pixels,
 * for JPEG at a fraction of the size when the crop allows it, and little more than the crop.
 */
#ifndef DATA_IMAGE_FILE_H
#define DATA_IMAGE_FILE_H

#include "core/file.h"
#include "data/dataset.h"

enum {
    IMAGE_SIDE_MAX = 65535,     /* largest height and width */
    IMAGE_PIXELS_MAX = 1 << 28, /* largest height * width */
    IMAGE_SCALE_FULL = 8,       /* image_decode: every pixel */
};

enum image_format { IMAGE_JPEG, IMAGE_PNG };

struct image_info {
    enum image_format format;
    int height, width; /* as a person sees it: after the EXIF orientation */
    int orientation;   /* EXIF 1..8; 1 when the file has none */
};

/* A rectangle of the upright image, in pixels of the scale that it is decoded at. */
struct image_box {
    int y, x, height, width;
};

struct jpeg_job;

struct image_decoder {
    struct mem *mem;
    const struct file_io *io; /* NULL: read(2) */
    size_t max_pixels;        /* IMAGE_PIXELS_MAX unless lowered */
    struct file_bytes file;   /* the latest file that was read */
    struct image_info info;   /* of the loaded image */
    const char *name;         /* of the loaded image, for messages; borrowed */
    const uint8_t *encoded;   /* the encoded image: in `file`, or the bytes that were given */
    size_t encoded_size;      /* bytes */
    uint8_t *pixels;          /* decoded, interleaved */
    size_t pixels_capacity;   /* bytes */
    uint8_t *turned;          /* the same after the EXIF orientation */
    size_t turned_capacity;   /* bytes */
    struct jpeg_job *jpeg; /* libjpeg's state from header to pixels; NULL before the first JPEG */
    struct fault fault;    /* the latest failure */
};

/* Takes no memory yet. */
void image_decoder_init(struct image_decoder *decoder, struct mem *mem);
void image_decoder_fini(struct image_decoder *decoder);

/* Reads the file and its header; decoder->info is set. On failure decoder->fault names the file. */
NODISCARD enum der_status image_load(struct image_decoder *decoder, const char *path);

/* The same for bytes that are in memory already and stay there until image_decode is done. */
NODISCARD enum der_status image_load_bytes(struct image_decoder *decoder, const char *name,
                                           const uint8_t *data, size_t size);

/* Smallest scale (in eighths) at which a crop of crop_height x crop_width pixels of the full image
 * still has at least want_height x want_width: 1, 2, 4 or 8, for which libjpeg-turbo has fast
 * code. Always IMAGE_SCALE_FULL for PNG. */
int image_scale_for(const struct image_info *info, int crop_height, int crop_width, int want_height,
                    int want_width);

/* The size that `side` pixels have at `scale` eighths: rounded up. */
int image_scaled(int side, int scale);

/* Decodes the loaded image, or a box of it (NULL: all), to 1 (grey) or 3 (RGB) interleaved
 * channels. At `scale` eighths the whole has image_scaled() rows and columns; scale must be
 * IMAGE_SCALE_FULL for PNG. The view has the size of the box and the bytes that the whole image has
 * there; its pixels have no gaps, its rows may. It stays good until the next call.
 *
 * Of a JPEG file only what the box needs is decoded: damage behind the last row of the box is not
 * noticed. Decoding the whole image notices all of it. */
NODISCARD enum der_status image_decode(struct image_decoder *decoder, int channels, int scale,
                                       const struct image_box *box, struct image_view *view);

#endif

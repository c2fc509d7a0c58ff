/*
 * What image_file.c asks of the codecs, and what they may ask back. Private to the room.
 */
#ifndef DATA_IMAGE_CODEC_H
#define DATA_IMAGE_CODEC_H

#include "data/image_file.h"

/* What is asked of a codec. */
struct image_request {
    int scale;            /* eighths; JPEG only */
    int channels;         /* that the pixels will have in the end */
    struct image_box box; /* of the stored image, at that scale; more may be decoded */
};

/* Decoded pixels as the codec left them in decoder->pixels: dense, interleaved, not yet turned. */
struct image_raw {
    int y, x;          /* where they begin in the stored image */
    int height, width; /* at least up to the end of the box */
    int channels;      /* 1 grey, 3 RGB, 4 inverted CMYK */
};

/* Reads size and orientation of decoder->encoded into decoder->info. */
NODISCARD enum der_status codec_jpeg_info(struct image_decoder *decoder);
NODISCARD enum der_status codec_png_info(struct image_decoder *decoder);

/* Decodes into decoder->pixels. */
NODISCARD enum der_status codec_jpeg_pixels(struct image_decoder *decoder,
                                            const struct image_request *request,
                                            struct image_raw *raw);
NODISCARD enum der_status codec_png_pixels(struct image_decoder *decoder, int channels,
                                           struct image_raw *raw);

/* Frees decoder->jpeg. */
void codec_jpeg_fini(struct image_decoder *decoder);

/* Refuses sizes beyond the limits, before anything is allocated for them. */
NODISCARD enum der_status image_check_size(struct image_decoder *decoder, uint64_t height,
                                           uint64_t width);

/* Makes room in decoder->pixels for the raw image and for what it will be converted to. */
NODISCARD enum der_status image_reserve(struct image_decoder *decoder, const struct image_raw *raw,
                                        int channels);

/* Orientation (1..8) that an APP1 segment of a JPEG file asks for; 1 when it does not say. */
int exif_orientation(const uint8_t *segment, size_t size);

#endif

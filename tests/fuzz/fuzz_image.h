/*
 * The body of the fuzz targets for image files: decodes the input in every form that the loader
 * asks for and touches every pixel of the result. The last bytes of the input choose a box, which
 * has to be decoded to the same bytes as the whole image.
 */
#ifndef FUZZ_IMAGE_H
#define FUZZ_IMAGE_H

#include "data/image_file.h"

#include "fuzz/fuzz_set.h"

#include <stdlib.h>
#include <string.h>

enum {
    FUZZ_PIXELS_MAX = 1 << 18, /* keeps one run short */
    FUZZ_BOX_BYTES = 8         /* 16 bits for each number of a box */
};

static inline struct image_box fuzz_box(const uint8_t *data, size_t size, int height, int width)
{
    int number[FUZZ_BOX_BYTES / 2] = {0};
    for (size_t i = 0; size >= FUZZ_BOX_BYTES && i < FUZZ_BOX_BYTES / 2; i++) {
        const uint8_t *at = data + size - FUZZ_BOX_BYTES + 2 * i;
        number[i] = at[0] << 8 | at[1];
    }
    struct image_box box = {.y = number[0] % height, .x = number[1] % width};
    box.height = 1 + number[2] % (height - box.y);
    box.width = 1 + number[3] % (width - box.x);
    return box;
}

/* `whole` is a dense copy of the whole image; NULL: it was not decoded. */
static inline void fuzz_decode_box(struct image_decoder *decoder, int channels, int scale,
                                   const struct image_box *box, const uint8_t *whole)
{
    struct image_view view;
    if (image_decode(decoder, channels, scale, box, &view) != DER_OK) {
        require(!whole); /* what is good as a whole is good in part */
        require(decoder->fault.text[0] != 0);
        return;
    }
    require(view.height == box->height && view.width == box->width);
    int width = image_scaled(decoder->info.width, scale);
    unsigned sum = 0;
    for (int y = 0; y < view.height; y++) {
        const uint8_t *row = view.data + y * view.row_stride;
        size_t bytes = (size_t)view.width * (size_t)channels;
        for (size_t i = 0; i < bytes; i++)
            sum += row[i];
        if (whole)
            require(memcmp(row, whole + ((box->y + y) * width + box->x) * channels, bytes) == 0);
    }
    volatile unsigned seen = sum;
    (void)seen;
}

static inline void fuzz_image(const uint8_t *data, size_t size)
{
    struct der_ctx *ctx = fuzz_ctx();
    struct image_decoder decoder;
    image_decoder_init(&decoder, &ctx->mem);
    decoder.max_pixels = FUZZ_PIXELS_MAX;
    if (image_load_bytes(&decoder, "input", data, size) == DER_OK) {
        int small = image_scale_for(&decoder.info, decoder.info.height, decoder.info.width, 8, 8);
        for (int channels = 1; channels <= 3; channels += 2) {
            int scale = channels == 1 ? small : IMAGE_SCALE_FULL;
            struct image_box box = {.height = image_scaled(decoder.info.height, scale),
                                    .width = image_scaled(decoder.info.width, scale)};
            uint8_t *whole = NULL;
            struct image_view view;
            if (image_decode(&decoder, channels, scale, NULL, &view) == DER_OK) {
                require(view.height == box.height && view.width == box.width);
                require(view.row_stride == (ptrdiff_t)view.width * channels);
                size_t bytes = (size_t)view.height * (size_t)view.row_stride;
                whole = malloc(bytes);
                require(whole);
                memcpy(whole, view.data, bytes);
            }
            box = fuzz_box(data, size, box.height, box.width);
            fuzz_decode_box(&decoder, channels, scale, &box, whole);
            free(whole);
        }
    }
    image_decoder_fini(&decoder);
    fuzz_ctx_free(ctx);
}

#endif

/*
 * The body of the fuzz targets for image files: decodes the input in every form that the loader
 * asks for and touches every pixel of the result.
 */
#ifndef FUZZ_IMAGE_H
#define FUZZ_IMAGE_H

#include "data/image_file.h"

#include "fuzz/fuzz_set.h"

enum { FUZZ_PIXELS_MAX = 1 << 18 }; /* keeps one run short */

static inline void fuzz_image(const uint8_t *data, size_t size)
{
    struct der_ctx *ctx = fuzz_ctx();
    struct image_decoder decoder;
    image_decoder_init(&decoder, &ctx->mem);
    decoder.max_pixels = FUZZ_PIXELS_MAX;
    if (image_load_bytes(&decoder, "input", data, size) == DER_OK) {
        int scale = image_scale_for(&decoder.info, decoder.info.height, decoder.info.width, 8, 8);
        for (int channels = 1; channels <= 3; channels += 2) {
            struct image_view view;
            if (image_decode(&decoder, channels, channels == 1 ? scale : IMAGE_SCALE_FULL, &view) !=
                DER_OK) {
                require(decoder.fault.text[0] != 0);
                continue;
            }
            unsigned sum = 0;
            for (int i = 0; i < view.height * view.width * channels; i++)
                sum += view.data[i];
            volatile unsigned seen = sum;
            (void)seen;
            require(view.height <= decoder.info.height && view.width <= decoder.info.width);
        }
    }
    image_decoder_fini(&decoder);
    fuzz_ctx_free(ctx);
}

#endif

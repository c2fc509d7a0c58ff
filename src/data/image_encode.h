/*
 * Pixels to PNG files in memory, for whoever shows images to people.
 */
#ifndef DATA_IMAGE_ENCODE_H
#define DATA_IMAGE_ENCODE_H

#include "data/dataset.h"

/* Can this build write PNG? */
bool image_encode_is_built(void);

/* The image, 1 (grey) or 3 (RGB) channels of any strides, as a PNG file. Caller frees *png with mem_free.
 * DER_UNSUPPORTED in a build without libpng. */
NODISCARD enum der_status image_encode_png(struct der_ctx *ctx, const struct image_view *image,
                                           uint8_t **png, size_t *size);

#endif

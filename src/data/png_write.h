/*
 * Small images to PNG, in memory.
 */
#ifndef DATA_PNG_WRITE_H
#define DATA_PNG_WRITE_H

#include "data/dataset.h"

/* Can this build write PNG? */
bool png_write_is_built(void);

/* The file that holds the image, of 1 (grey) or 3 (RGB) channels. The block is grown by the caller's allocator;
 * free with file_bytes_free, also after a failure. DER_UNSUPPORTED without libpng. */
NODISCARD enum der_status png_write(struct der_ctx *ctx, const struct image_view *image,
                                    struct file_bytes *out);

#endif

/*
 * Bytes out of a gzip file that lies in memory, piece by piece, through zlib where the build has it.
 */
#ifndef DATA_GZIP_H
#define DATA_GZIP_H

#include "core/ctx.h"

enum { GZIP_RATIO_MAX = 1032 }; /* deflate packs no tighter than this, by its format */

struct gzip;

/* Do the bytes begin like a gzip file? */
bool gzip_detect(const uint8_t *data, size_t size);

/* Starts unpacking `data`, which is borrowed. DER_UNSUPPORTED in a build without zlib. */
NODISCARD enum der_status gzip_open(struct der_ctx *ctx, const char *name, const uint8_t *data,
                                    size_t size, struct gzip **out);
void gzip_close(struct gzip *gzip);

/* The next n bytes; *got is less when the content ends before. A damaged or cut off file is an
 * error. */
NODISCARD enum der_status gzip_take(struct gzip *gzip, uint8_t *dst, size_t n, size_t *got);

#endif

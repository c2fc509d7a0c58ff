/*
 * Checksums of files: MD5, which the publishers of data sets print, and SHA-256, over nettle.
 */
#ifndef FETCH_CHECKSUM_H
#define FETCH_CHECKSUM_H

#include "io/io_calls.h"

enum checksum_kind { CHECKSUM_MD5, CHECKSUM_SHA256 };

enum { CHECKSUM_BYTES_MAX = 32, CHECKSUM_TEXT_MAX = 2 * CHECKSUM_BYTES_MAX + 1 };

struct checksum {
    enum checksum_kind kind;
    uint8_t bytes[CHECKSUM_BYTES_MAX]; /* 16 of MD5, 32 of SHA-256 */
};

/* Reads "md5:HEX" or "sha256:HEX"; DER_ARG with a sentence for anything else. */
NODISCARD enum der_status checksum_parse(struct der_ctx *ctx, const char *text,
                                         struct checksum *out);

/* Name of the kind, for messages: "MD5". */
const char *checksum_name(enum checksum_kind kind);

/* The bytes as small hexadecimal digits. */
void checksum_text(const struct checksum *sum, char text[CHECKSUM_TEXT_MAX]);

/* Same kind, same bytes. */
bool checksum_equal(const struct checksum *a, const struct checksum *b);

/* Of all that is in an open file. `path` is for messages. `tick`, which may be NULL, is called with the
 * bytes read so far; true gives up. */
NODISCARD enum der_status checksum_of_file(struct der_ctx *ctx, const struct io_calls *io, int fd,
                                           const char *path, enum checksum_kind kind,
                                           bool (*tick)(void *user, int64_t done), void *user,
                                           struct checksum *out);

#endif

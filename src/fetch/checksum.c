#include "fetch/checksum.h"

#include <errno.h>
#include <nettle/md5.h>
#include <nettle/sha2.h>
#include <string.h>

enum { PIECE = 1 << 20 };

static const struct kind {
    const char *name;   /* for people */
    const char *prefix; /* on the command line */
    size_t size;        /* bytes of the sum */
} kinds[] = {
    [CHECKSUM_MD5] = {"MD5", "md5:", MD5_DIGEST_SIZE},
    [CHECKSUM_SHA256] = {"SHA-256", "sha256:", SHA256_DIGEST_SIZE},
};

enum { N_KINDS = sizeof kinds / sizeof kinds[0] };

const char *checksum_name(enum checksum_kind kind)
{
    return kinds[kind].name;
}

/* -1: no hexadecimal digit. */
static int digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

static bool parse_digits(const char *text, size_t size, uint8_t *bytes)
{
    if (strlen(text) != 2 * size)
        return false;
    for (size_t i = 0; i < size; i++) {
        int high = digit(text[2 * i]);
        int low = digit(text[2 * i + 1]);
        if (high < 0 || low < 0)
            return false;
        bytes[i] = (uint8_t)(16 * high + low);
    }
    return true;
}

enum der_status checksum_parse(struct der_ctx *ctx, const char *text, struct checksum *out)
{
    for (int i = 0; i < N_KINDS; i++) {
        size_t length = strlen(kinds[i].prefix);
        *out = (struct checksum){.kind = (enum checksum_kind)i};
        if (strncmp(text, kinds[i].prefix, length) == 0 &&
            parse_digits(text + length, kinds[i].size, out->bytes))
            return DER_OK;
    }
    return ctx_fail(
        ctx, DER_ARG,
        "'%.100s' is no checksum; want md5: and 32, or sha256: and 64 hexadecimal digits", text);
}

void checksum_text(const struct checksum *sum, char text[CHECKSUM_TEXT_MAX])
{
    static const char digits[] = "0123456789abcdef";
    size_t size = kinds[sum->kind].size;
    for (size_t i = 0; i < size; i++) {
        text[2 * i] = digits[sum->bytes[i] >> 4];
        text[2 * i + 1] = digits[sum->bytes[i] & 15];
    }
    text[2 * size] = '\0';
}

bool checksum_equal(const struct checksum *a, const struct checksum *b)
{
    return a->kind == b->kind && memcmp(a->bytes, b->bytes, kinds[a->kind].size) == 0;
}

/* Both kinds behind one face. */
struct hasher {
    enum checksum_kind kind;
    struct md5_ctx md5;
    struct sha256_ctx sha256;
};

static void hasher_init(struct hasher *hasher, enum checksum_kind kind)
{
    hasher->kind = kind;
    md5_init(&hasher->md5);
    sha256_init(&hasher->sha256);
}

static void hasher_add(struct hasher *hasher, const uint8_t *data, size_t size)
{
    if (hasher->kind == CHECKSUM_MD5)
        md5_update(&hasher->md5, size, data);
    else
        sha256_update(&hasher->sha256, size, data);
}

static void hasher_end(struct hasher *hasher, struct checksum *out)
{
    *out = (struct checksum){.kind = hasher->kind};
    if (hasher->kind == CHECKSUM_MD5)
        md5_digest(&hasher->md5, MD5_DIGEST_SIZE, out->bytes);
    else
        sha256_digest(&hasher->sha256, SHA256_DIGEST_SIZE, out->bytes);
}

enum der_status checksum_of_file(struct der_ctx *ctx, const struct io_calls *io, int fd,
                                 const char *path, enum checksum_kind kind,
                                 bool (*tick)(void *user, int64_t done), void *user,
                                 struct checksum *out)
{
    uint8_t *piece = mem_alloc(&ctx->mem, PIECE, 1);
    if (!piece)
        return ctx_nomem(ctx);
    struct hasher hasher;
    hasher_init(&hasher, kind);
    enum der_status status = DER_OK;
    int64_t done = 0;
    for (;;) {
        ssize_t got = io_read_at(io, fd, piece, PIECE, (off_t)done);
        if (got < 0)
            status = io_fail(ctx, "cannot read", path, errno);
        if (got <= 0)
            break;
        hasher_add(&hasher, piece, (size_t)got);
        done += got;
        if (tick && tick(user, done)) {
            status = ctx_fail(ctx, DER_CANCELLED, "stopped while checking %s", path);
            break;
        }
    }
    hasher_end(&hasher, out);
    mem_free(&ctx->mem, piece);
    return status;
}

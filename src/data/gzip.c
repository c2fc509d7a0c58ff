#include "data/gzip.h"

#include "der_build.h"

bool gzip_detect(const uint8_t *data, size_t size)
{
    return size >= 2 && data[0] == 0x1F && data[1] == 0x8B;
}

#if DER_HAVE_ZLIB

#define ZLIB_CONST /* next_in points to const */
#include <limits.h>
#include <zlib.h>

enum { WINDOW_GZIP = 15 + 16 }; /* inflateInit2: the largest window, gzip header and checksum */

struct gzip {
    struct der_ctx *ctx;
    const char *name;
    size_t left; /* packed bytes not yet shown to zlib */
    bool ended;
    z_stream z;
};

static voidpf give(voidpf mem, uInt count, uInt size)
{
    return mem_alloc(mem, count, size);
}

static void take_back(voidpf mem, voidpf block)
{
    mem_free(mem, block);
}

enum der_status gzip_open(struct der_ctx *ctx, const char *name, const uint8_t *data, size_t size,
                          struct gzip **out)
{
    *out = NULL;
    struct gzip *gzip = mem_zalloc(&ctx->mem, 1, sizeof *gzip);
    if (!gzip)
        return ctx_nomem(ctx);
    gzip->ctx = ctx;
    gzip->name = name;
    gzip->left = size;
    gzip->z = (z_stream){.zalloc = give, .zfree = take_back, .opaque = &ctx->mem, .next_in = data};
    if (inflateInit2(&gzip->z, WINDOW_GZIP) != Z_OK) {
        mem_free(&ctx->mem, gzip);
        return ctx_nomem(ctx);
    }
    *out = gzip;
    return DER_OK;
}

void gzip_close(struct gzip *gzip)
{
    if (!gzip)
        return;
    (void)inflateEnd(&gzip->z);
    mem_free(&gzip->ctx->mem, gzip);
}

enum der_status gzip_take(struct gzip *gzip, uint8_t *dst, size_t n, size_t *got)
{
    z_stream *z = &gzip->z;
    size_t done = 0;
    while (done < n && !gzip->ended) {
        /* zlib counts in 32 bits. */
        if (z->avail_in == 0) {
            z->avail_in = gzip->left < UINT_MAX ? (uInt)gzip->left : UINT_MAX;
            gzip->left -= z->avail_in;
        }
        uInt room = n - done < UINT_MAX ? (uInt)(n - done) : UINT_MAX;
        z->next_out = dst + done;
        z->avail_out = room;
        int result = inflate(z, Z_NO_FLUSH);
        done += room - z->avail_out;
        if (result == Z_STREAM_END)
            gzip->ended = true;
        else if (result == Z_MEM_ERROR)
            return ctx_nomem(gzip->ctx);
        else if (result == Z_BUF_ERROR)
            return ctx_fail(gzip->ctx, DER_FORMAT, "%s: the gzip file is cut off", gzip->name);
        else if (result != Z_OK)
            return ctx_fail(gzip->ctx, DER_FORMAT, "%s: the gzip file is damaged (%s)", gzip->name,
                            z->msg ? z->msg : "no detail");
    }
    *got = done;
    return DER_OK;
}

#else

enum der_status gzip_open(struct der_ctx *ctx, const char *name, const uint8_t *data, size_t size,
                          struct gzip **out)
{
    (void)data;
    (void)size;
    *out = NULL;
    return ctx_fail(ctx, DER_UNSUPPORTED, "%s: this build has no zlib; unpack the file", name);
}

void gzip_close(struct gzip *gzip)
{
    (void)gzip;
}

enum der_status gzip_take(struct gzip *gzip, uint8_t *dst, size_t n, size_t *got)
{
    (void)gzip;
    (void)dst;
    (void)n;
    *got = 0;
    return DER_UNSUPPORTED;
}

#endif

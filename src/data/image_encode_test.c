/*
 * Images that are encoded come back from the decoder as they were.
 */
#include "data/image_encode.h"

#include "data/image_file.h"
#include "der_build.h"
#include "support/test_ctx.h"

#include <string.h>

enum { HEIGHT = 5, WIDTH = 7, PIXELS = HEIGHT * WIDTH };

#if DER_HAVE_PNG

static uint8_t byte_at(const struct image_view *image, int c, int y, int x)
{
    return image->data[c * image->channel_stride + y * image->row_stride + x * image->pixel_stride];
}

static void assert_comes_back(struct der_ctx *ctx, const struct image_view *image)
{
    struct image_decoder decoder;
    struct image_view found;
    uint8_t *png;
    size_t size;
    assert_ok(ctx, image_encode_png(ctx, image, &png, &size));
    image_decoder_init(&decoder, &ctx->mem);
    assert_int_equal(image_load_bytes(&decoder, "encoded", png, size), DER_OK);
    assert_int_equal(image_decode(&decoder, image->channels, IMAGE_SCALE_FULL, NULL, &found),
                     DER_OK);
    assert_int_equal(found.height, image->height);
    assert_int_equal(found.width, image->width);
    for (int c = 0; c < image->channels; c++)
        for (int y = 0; y < image->height; y++)
            for (int x = 0; x < image->width; x++)
                assert_int_equal(byte_at(&found, c, y, x), byte_at(image, c, y, x));
    image_decoder_fini(&decoder);
    mem_free(&ctx->mem, png);
}

static void test_grey_and_colour_come_back(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    uint8_t bytes[4 * PIXELS];
    for (int i = 0; i < 4 * PIXELS; i++)
        bytes[i] = (uint8_t)(i * 37 + 11);
    const struct image_view views[] = {
        {bytes, 1, HEIGHT, WIDTH, 1, WIDTH, 1},
        {bytes, 3, HEIGHT, WIDTH, 1, (ptrdiff_t)3 * WIDTH, 3}, /* interleaved */
        {bytes, 3, HEIGHT, WIDTH, PIXELS, WIDTH, 1},           /* planar */
        {bytes + WIDTH, 1, HEIGHT, WIDTH, 1, WIDTH, 1}};       /* not from the start */
    for (size_t i = 0; i < sizeof views / sizeof views[0]; i++)
        assert_comes_back(ctx, &views[i]);
    test_ctx_free(ctx);
}

static void test_every_failed_allocation_is_told(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    static uint8_t bytes[64 * 64]; /* compresses to more than the first block takes */
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(i * i * 2654435761U >> 13);
    const struct image_view view = {bytes, 1, 64, 64, 1, 64, 1};
    for (unsigned n = 1;; n++) {
        uint8_t *png;
        size_t size;
        atomic_store(&ctx->mem.fail_at, atomic_load(&ctx->mem.n_allocs) + n);
        enum der_status status = image_encode_png(ctx, &view, &png, &size);
        atomic_store(&ctx->mem.fail_at, 0);
        if (status == DER_OK) {
            assert_true(n > 5);
            mem_free(&ctx->mem, png);
            break;
        }
        assert_int_equal(status, DER_NOMEM);
        assert_null(png);
    }
    test_ctx_free(ctx);
}

#endif

static void test_what_is_neither_grey_nor_colour_is_refused(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    uint8_t bytes[2] = {0};
    const struct image_view view = {bytes, 2, 1, 1, 1, 2, 2};
    uint8_t *png;
    size_t size;
    assert_int_equal(image_encode_png(ctx, &view, &png, &size),
                     DER_HAVE_PNG ? DER_ARG : DER_UNSUPPORTED);
    assert_int_equal(image_encode_is_built(), DER_HAVE_PNG);
    assert_null(png);
    test_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#if DER_HAVE_PNG
        cmocka_unit_test(test_grey_and_colour_come_back),
        cmocka_unit_test(test_every_failed_allocation_is_told),
#endif
        cmocka_unit_test(test_what_is_neither_grey_nor_colour_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

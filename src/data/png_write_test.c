/*
 * What is written as PNG is read back by the decoder, pixel for pixel.
 */
#include "data/png_write.h"

#include "data/image_file.h"
#include "support/test_ctx.h"

#include <string.h>

enum { HEIGHT = 7, WIDTH = 5 };

static void check_round_trip(struct der_ctx *ctx, int channels)
{
    uint8_t pixels[3 * HEIGHT * WIDTH];
    struct file_bytes png;
    struct image_decoder decoder;
    struct image_view back;
    for (int i = 0; i < channels * HEIGHT * WIDTH; i++)
        pixels[i] = (uint8_t)(i * 37 + 11);
    struct image_view image = {.data = pixels, /* planar */
                               .channels = channels,
                               .height = HEIGHT,
                               .width = WIDTH,
                               .channel_stride = HEIGHT * WIDTH,
                               .row_stride = WIDTH,
                               .pixel_stride = 1};
    assert_ok(ctx, png_write(ctx, &image, &png));
    image_decoder_init(&decoder, &ctx->mem);
    assert_int_equal(image_load_bytes(&decoder, "it", png.data, png.size), DER_OK);
    assert_int_equal(decoder.info.height, HEIGHT);
    assert_int_equal(decoder.info.width, WIDTH);
    assert_int_equal(image_decode(&decoder, channels, IMAGE_SCALE_FULL, NULL, &back), DER_OK);
    for (int c = 0; c < channels; c++)
        for (int y = 0; y < HEIGHT; y++)
            for (int x = 0; x < WIDTH; x++)
                assert_int_equal(back.data[c * back.channel_stride + y * back.row_stride +
                                           x * back.pixel_stride],
                                 pixels[(c * HEIGHT + y) * WIDTH + x]);
    image_decoder_fini(&decoder);
    file_bytes_free(&ctx->mem, &png);
}

static void test_images_come_back(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    if (!png_write_is_built())
        skip();
    check_round_trip(ctx, 1);
    check_round_trip(ctx, 3);
    test_ctx_free(ctx);
}

static void test_every_failed_allocation_is_survived(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    const uint8_t pixels[HEIGHT * WIDTH] = {0};
    struct image_view image = {.data = pixels,
                               .channels = 1,
                               .height = HEIGHT,
                               .width = WIDTH,
                               .row_stride = WIDTH,
                               .pixel_stride = 1};
    enum der_status status = png_write_is_built() ? DER_NOMEM : DER_OK;
    for (uint64_t n = 1; status != DER_OK; n++) {
        struct file_bytes png;
        assert_int_equal(status, DER_NOMEM);
        ctx->mem.fail_at = ctx->mem.n_allocs + n;
        status = png_write(ctx, &image, &png);
        ctx->mem.fail_at = 0;
        file_bytes_free(&ctx->mem, &png);
    }
    test_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_images_come_back),
        cmocka_unit_test(test_every_failed_allocation_is_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

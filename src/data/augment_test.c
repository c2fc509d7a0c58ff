/* Augmentation: what Pillow and torchvision make of the same draws, and what the draws are. */
#include "data/augment.h"

#include "support/case_file.h"
#include "support/test_ctx.h"

#include <stdlib.h>
#include <string.h>

/* The presets' colours; one channel uses the first. */
static const struct augment_spec COLOURS = {.mean = {.5071f, .4867f, .4408f},
                                            .std = {.2675f, .2565f, .2761f}};

static struct image_view interleaved(const uint8_t *pixels, int height, int width, int channels)
{
    return (struct image_view){.data = pixels,
                               .channels = channels,
                               .height = height,
                               .width = width,
                               .channel_stride = 1,
                               .row_stride = (ptrdiff_t)width * channels,
                               .pixel_stride = channels};
}

/* A factor by its bits, so that the case is exact. */
static float float_of(int64_t bits)
{
    uint32_t word = (uint32_t)bits;
    float value;
    memcpy(&value, &word, sizeof value);
    return value;
}

/* The word that makes a place out of `n` possible ones. */
static uint32_t word_for(int64_t place, int64_t n)
{
    return (uint32_t)((((uint64_t)place << 32) + (uint64_t)n - 1) / (uint64_t)n);
}

static void test_crop_flip_brightness_normalisation_bit_for_bit(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    struct case_file file = case_open("pad_crop");
    int64_t v[8]; /* channels size seed pad y x flip bits */
    while (case_next(&file, v, 8)) {
        int channels = (int)v[0];
        int size = (int)v[1];
        struct augment_spec spec = COLOURS;
        spec.geometry = AUGMENT_PAD_CROP;
        spec.channels = channels;
        spec.height = size;
        spec.width = size;
        spec.pad = (int)v[3];
        struct augment augment;
        assert_ok(ctx, augment_init(ctx, &spec, &augment));
        struct augment_draw draw = {.place_y = word_for(v[4], 2 * v[3] + 1),
                                    .place_x = word_for(v[5], 2 * v[3] + 1),
                                    .flip = v[6] != 0,
                                    .brightness = float_of(v[7])};
        uint8_t *pixels = case_picture(size, size, channels, (uint32_t)v[2]);
        struct augment_source source = augment_full_size(interleaved(pixels, size, size, channels));
        size_t bytes = (size_t)(channels * size * size) * sizeof(float);
        float *dst = malloc(bytes);
        assert_int_equal(augment_apply(&augment, &draw, &source, NULL, dst), DER_OK);
        assert_memory_equal(dst, case_data(&file, bytes), bytes);
        free(dst);
        free(pixels);
    }
    case_close(&file);
    test_ctx_free(ctx);
}

static void test_brightness_of_every_byte_is_pillows(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    struct augment_spec spec = {
        .geometry = AUGMENT_PLAIN, .channels = 1, .height = 16, .width = 16, .std = {1.0f}};
    struct augment augment;
    assert_ok(ctx, augment_init(ctx, &spec, &augment));
    uint8_t ramp[256];
    for (int i = 0; i < 256; i++)
        ramp[i] = (uint8_t)i;
    struct augment_source source = augment_full_size(interleaved(ramp, 16, 16, 1));
    struct case_file file = case_open("brightness");
    int64_t bits;
    while (case_next(&file, &bits, 1)) {
        const uint8_t *want = case_data(&file, 256);
        struct augment_draw draw = {.brightness = float_of(bits)};
        float dst[256];
        assert_int_equal(augment_apply(&augment, &draw, &source, NULL, dst), DER_OK);
        for (int i = 0; i < 256; i++)
            if (dst[i] != (float)want[i] / 255.0f)
                fail_msg("byte %d times %.9g", i, (double)draw.brightness);
    }
    case_close(&file);
    test_ctx_free(ctx);
}

static void test_regions_are_torchvisions(void **state)
{
    (void)state;
    const struct augment_spec *spec = augment_preset("imagenet-train");
    struct case_file file = case_open("regions");
    int64_t v[6]; /* height width, y x height width */
    while (case_next(&file, v, 6)) {
        struct augment_draw draw = {.brightness = 1};
        memcpy(draw.tries, case_data(&file, sizeof draw.tries), sizeof draw.tries);
        struct augment_region region = augment_region(spec, &draw, (int)v[0], (int)v[1]);
        assert_int_equal(region.y, v[2]);
        assert_int_equal(region.x, v[3]);
        assert_int_equal(region.height, v[4]);
        assert_int_equal(region.width, v[5]);
        assert_int_equal(region.to_height, 224);
        assert_int_equal(region.to_width, 224);
    }
    case_close(&file);
}

static void test_test_transforms_are_torchvisions(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    struct resample work = {.mem = &ctx->mem};
    struct case_file file = case_open("test_transforms");
    int64_t v[7]; /* kind channels height width seed resize crop */
    while (case_next(&file, v, 7)) {
        int channels = (int)v[1];
        int height = (int)v[2];
        int width = (int)v[3];
        int crop = (int)v[6];
        struct augment_spec spec = {.geometry = v[0] ? AUGMENT_SHORTER_SIDE : AUGMENT_SQUASH,
                                    .channels = channels,
                                    .height = crop,
                                    .width = crop,
                                    .resize = (int)v[5],
                                    .std = {1, 1, 1}};
        struct augment augment;
        assert_ok(ctx, augment_init(ctx, &spec, &augment));
        struct augment_draw draw = augment_draw(&spec, 1, 2, 3);
        uint8_t *pixels = case_picture(height, width, channels, (uint32_t)v[4]);
        struct augment_source source =
            augment_full_size(interleaved(pixels, height, width, channels));
        int n = channels * crop * crop;
        const uint8_t *want = case_data(&file, (size_t)n);
        float *dst = malloc((size_t)n * sizeof *dst);
        assert_int_equal(augment_apply(&augment, &draw, &source, &work, dst), DER_OK);
        for (int i = 0; i < n; i++)
            if (dst[i] != (float)want[i] / 255.0f)
                fail_msg("kind %d, %dx%d: value %d", (int)v[0], height, width, i);
        free(dst);
        free(pixels);
    }
    case_close(&file);
    resample_fini(&work);
    test_ctx_free(ctx);
}

static void test_draws_are_what_the_documentation_says(void **state)
{
    (void)state;
    struct augment_spec spec = *augment_preset("imagenet-train");
    spec.brightness = 63.0 / 255.0;
    struct case_file file = case_open("draws");
    int64_t v[3]; /* seed epoch sample */
    while (case_next(&file, v, 3)) {
        struct augment_draw draw = augment_draw(&spec, (uint64_t)v[0], (uint32_t)v[1], v[2]);
        uint32_t words[4];
        memcpy(words, case_data(&file, sizeof words), sizeof words);
        assert_int_equal(draw.place_y, words[0]);
        assert_int_equal(draw.place_x, words[1]);
        assert_int_equal(draw.flip, words[2]);
        assert_true(draw.brightness == float_of(words[3]));
        assert_memory_equal(draw.tries, case_data(&file, sizeof draw.tries), sizeof draw.tries);
    }
    case_close(&file);
}

static void test_draws_cover_their_ranges(void **state)
{
    (void)state;
    const struct augment_spec *spec = augment_preset("cifar100-train");
    int rows[9] = {0};
    int columns[9] = {0};
    int flips = 0;
    float low = 2;
    float high = 0;
    for (int64_t sample = 0; sample < 9000; sample++) {
        struct augment_draw draw = augment_draw(spec, 1, 0, sample);
        struct augment_region region = augment_region(spec, &draw, 32, 32);
        assert_in_range(region.y + 4, 0, 8);
        assert_in_range(region.x + 4, 0, 8);
        rows[region.y + 4]++;
        columns[region.x + 4]++;
        flips += draw.flip;
        low = draw.brightness < low ? draw.brightness : low;
        high = draw.brightness > high ? draw.brightness : high;
    }
    /* 1000 of each on average with a standard deviation of 30; flips 4500 with 47. */
    for (int i = 0; i < 9; i++) {
        assert_in_range(rows[i], 850, 1150);
        assert_in_range(columns[i], 850, 1150);
    }
    assert_in_range(flips, 4250, 4750);
    assert_true(low >= 0.7529f && low < 0.754f);
    assert_true(high < 1.2471f && high > 1.246f);
}

static void test_draws_depend_on_seed_epoch_and_sample(void **state)
{
    (void)state;
    const struct augment_spec *spec = augment_preset("cifar100-train");
    struct augment_draw draw = augment_draw(spec, 5, 6, 7);
    assert_int_equal(augment_draw(spec, 5, 6, 7).place_y, draw.place_y);
    assert_int_not_equal(augment_draw(spec, 4, 6, 7).place_y, draw.place_y);
    assert_int_not_equal(augment_draw(spec, 5, 5, 7).place_y, draw.place_y);
    assert_int_not_equal(augment_draw(spec, 5, 6, 6).place_y, draw.place_y);
}

static void test_a_plain_transform_draws_nothing(void **state)
{
    (void)state;
    for (int64_t sample = 0; sample < 50; sample++) {
        struct augment_draw draw = augment_draw(augment_preset("cifar100-test"), 1, 1, sample);
        assert_false(draw.flip);
        assert_true(draw.brightness == 1.0f);
    }
}

/* An image that was decoded at half its size gives nearly the same picture: a smooth one differs
 * by a few levels at most, however the region lies. */
static void test_a_reduced_image_shows_the_same_region(void **state)
{
    (void)state;
    enum { H = 120, W = 160, OUT = 24 };
    struct der_ctx *ctx = test_ctx_new(1);
    struct resample work = {.mem = &ctx->mem};
    struct augment_spec spec = *augment_preset("imagenet-train");
    spec.channels = 1;
    spec.height = OUT;
    spec.width = OUT;
    spec.min_area = 0.3;
    spec.mean[0] = 0;
    spec.std[0] = 1;
    struct augment augment;
    assert_ok(ctx, augment_init(ctx, &spec, &augment));
    static uint8_t full[H * W];
    static uint8_t half[H / 2 * W / 2];
    for (int y = 0; y < H; y++)
        for (int x = 0; x < W; x++)
            full[y * W + x] = (uint8_t)(y + x / 2);
    for (int y = 0; y < H / 2; y++)
        for (int x = 0; x < W / 2; x++) {
            const uint8_t *p = full + 2 * y * W + 2 * x;
            half[y * W / 2 + x] = (uint8_t)((p[0] + p[1] + p[W] + p[W + 1] + 2) / 4);
        }
    struct augment_source whole = augment_full_size(interleaved(full, H, W, 1));
    struct augment_source reduced = {
        .image = interleaved(half, H / 2, W / 2, 1), .height = H, .width = W, .scale = 4};
    for (int64_t sample = 0; sample < 40; sample++) {
        struct augment_draw draw = augment_draw(&spec, 1, 2, sample);
        float a[OUT * OUT];
        float b[OUT * OUT];
        assert_int_equal(augment_apply(&augment, &draw, &whole, &work, a), DER_OK);
        assert_int_equal(augment_apply(&augment, &draw, &reduced, &work, b), DER_OK);
        for (int i = 0; i < OUT * OUT; i++) {
            float off = 255.0f * (a[i] - b[i]);
            assert_true(off > -3.5f && off < 3.5f);
        }
    }
    resample_fini(&work);
    test_ctx_free(ctx);
}

/* A decoder may deliver only the region and a little more. */
static void test_a_cut_image_gives_the_same_bytes(void **state)
{
    (void)state;
    enum { H = 90, W = 70, OUT = 12 };
    struct der_ctx *ctx = test_ctx_new(1);
    struct resample work = {.mem = &ctx->mem};
    struct augment_spec spec = *augment_preset("imagenet-train");
    spec.height = OUT;
    spec.width = OUT;
    struct augment augment;
    assert_ok(ctx, augment_init(ctx, &spec, &augment));
    uint8_t *pixels = case_picture(H, W, 3, 4);
    struct augment_source whole = augment_full_size(interleaved(pixels, H, W, 3));
    for (int64_t sample = 0; sample < 20; sample++) {
        struct augment_draw draw = augment_draw(&spec, 1, 2, sample);
        struct augment_region region = augment_region(&spec, &draw, H, W);
        struct augment_source cut = whole;
        cut.y = region.y / 2;
        cut.x = region.x;
        cut.image.data += cut.y * cut.image.row_stride + cut.x * cut.image.pixel_stride;
        cut.image.height = region.y + region.height - cut.y;
        cut.image.width = region.width;
        float a[3 * OUT * OUT];
        float b[3 * OUT * OUT];
        assert_int_equal(augment_apply(&augment, &draw, &whole, &work, a), DER_OK);
        assert_int_equal(augment_apply(&augment, &draw, &cut, &work, b), DER_OK);
        assert_memory_equal(a, b, sizeof a);
    }
    free(pixels);
    resample_fini(&work);
    test_ctx_free(ctx);
}

static void test_sizes_that_do_not_fit_are_known(void **state)
{
    (void)state;
    const struct augment_spec *train = augment_preset("cifar100-train");
    assert_true(augment_fits(train, 32, 32));
    assert_true(augment_fits(train, 24, 40));
    assert_false(augment_fits(train, 23, 40));
    assert_false(augment_fits(augment_preset("cifar100-test"), 33, 32));
    assert_true(augment_fits(augment_preset("imagenet-test"), 1, 1));
}

static void test_specs_that_make_no_sense_are_refused(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    struct augment_spec bad[8];
    for (int i = 0; i < 8; i++)
        bad[i] = *augment_preset(i < 4 ? "cifar100-train" : "imagenet-train");
    bad[0].std[1] = 0;
    bad[1].pad = -1;
    bad[2].channels = AUGMENT_CHANNELS_MAX + 1;
    bad[3].brightness = -0.1;
    bad[4].min_area = 0;
    bad[5].max_area = 1.5;
    bad[6].min_ratio = 2;
    bad[7] = *augment_preset("imagenet-test");
    bad[7].resize = 200;
    struct augment augment;
    for (int i = 0; i < 8; i++) {
        ctx->error[0] = '\0';
        assert_int_equal(augment_init(ctx, &bad[i], &augment), DER_ARG);
        assert_non_null(strstr(der_ctx_error(ctx), "augmentation: "));
    }
    test_ctx_free(ctx);
}

static void test_every_preset_is_sound(void **state)
{
    (void)state;
    static const char *const names[] = {"cifar100-train",
                                        "cifar100-test",
                                        "cifar10-train",
                                        "cifar10-test",
                                        "imagenet-train",
                                        "imagenet-test",
                                        "imagenet-test-shorter-side"};
    struct der_ctx *ctx = test_ctx_new(1);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct augment augment;
        assert_non_null(augment_preset(names[i]));
        assert_ok(ctx, augment_init(ctx, augment_preset(names[i]), &augment));
    }
    assert_null(augment_preset("mnist"));
    test_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_crop_flip_brightness_normalisation_bit_for_bit),
        cmocka_unit_test(test_brightness_of_every_byte_is_pillows),
        cmocka_unit_test(test_regions_are_torchvisions),
        cmocka_unit_test(test_test_transforms_are_torchvisions),
        cmocka_unit_test(test_draws_are_what_the_documentation_says),
        cmocka_unit_test(test_draws_cover_their_ranges),
        cmocka_unit_test(test_draws_depend_on_seed_epoch_and_sample),
        cmocka_unit_test(test_a_plain_transform_draws_nothing),
        cmocka_unit_test(test_a_reduced_image_shows_the_same_region),
        cmocka_unit_test(test_a_cut_image_gives_the_same_bytes),
        cmocka_unit_test(test_sizes_that_do_not_fit_are_known),
        cmocka_unit_test(test_specs_that_make_no_sense_are_refused),
        cmocka_unit_test(test_every_preset_is_sound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

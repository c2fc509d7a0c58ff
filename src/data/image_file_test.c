#include "data/image_file.h"

#include "support/scratch.h"
#include "support/test_ctx.h"

#include "der_build.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct rig {
    struct der_ctx *ctx;
    struct image_decoder decoder;
};

static int set_up(void **state)
{
    static struct rig rig;
    rig.ctx = test_ctx_new(1);
    image_decoder_init(&rig.decoder, &rig.ctx->mem);
    *state = &rig;
    return 0;
}

static int tear_down(void **state)
{
    struct rig *rig = *state;
    image_decoder_fini(&rig->decoder);
    test_ctx_free(rig->ctx);
    return 0;
}

/* ---- what Pillow saw ------------------------------------------------------------------------- */

struct expected {
    struct file_bytes file;
    int channels, width, height;
    const uint8_t *pixels;
};

/* "P6\n37 29\n255\n" (RGB) or P5 (grey), then the pixels. */
static struct expected read_expected(struct der_ctx *ctx, const char *name)
{
    struct expected want = {.file = fixture_read(ctx, name)};
    char *at = (char *)want.file.data;
    assert_true(at[0] == 'P' && (at[1] == '5' || at[1] == '6'));
    want.channels = at[1] == '6' ? 3 : 1;
    want.width = (int)strtol(at + 2, &at, 10);
    want.height = (int)strtol(at, &at, 10);
    assert_int_equal(strtol(at, &at, 10), 255);
    want.pixels = (const uint8_t *)at + 1;
    assert_int_equal(want.file.data + want.file.size - want.pixels,
                     want.channels * want.width * want.height);
    return want;
}

/* Byte for byte: Pillow uses the same library. */
static void check(struct rig *rig, const char *name, int scale, const char *expected_name)
{
    struct expected want = read_expected(rig->ctx, expected_name);
    char path[SCRATCH_PATH_MAX];
    fixture_path(path, name);
    if (image_load(&rig->decoder, path) != DER_OK)
        fail_msg("%s", rig->decoder.fault.text);
    if (scale == IMAGE_SCALE_FULL) {
        assert_int_equal(rig->decoder.info.height, want.height);
        assert_int_equal(rig->decoder.info.width, want.width);
    }
    struct image_view view;
    if (image_decode(&rig->decoder, want.channels, scale, NULL, &view) != DER_OK)
        fail_msg("%s", rig->decoder.fault.text);
    assert_int_equal(view.channels, want.channels);
    assert_int_equal(view.height, want.height);
    assert_int_equal(view.width, want.width);
    assert_int_equal(view.channel_stride, 1);
    assert_int_equal(view.pixel_stride, want.channels);
    assert_int_equal(view.row_stride, want.channels * want.width);
    size_t n = (size_t)(want.channels * want.height * want.width);
    if (memcmp(view.data, want.pixels, n) != 0)
        fail_msg("%s differs from %s", name, expected_name);
    file_bytes_free(&rig->ctx->mem, &want.file);
}

static void test_jpeg_kinds_are_as_pillow_sees_them(void **state)
{
    static const char *const kinds[] = {"420",  "444",        "progressive", "grey",
                                        "cmyk", "cmyk_plain", "ycck",        "rgb"};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        char name[64];
        char want[64];
        (void)snprintf(name, sizeof name, "jpeg/%s.jpg", kinds[i]);
        (void)snprintf(want, sizeof want, "jpeg/%s.ppm", kinds[i]);
        check(*state, name, IMAGE_SCALE_FULL, want);
    }
}

static void test_exif_orientations_are_undone(void **state)
{
    for (int orientation = 1; orientation <= 8; orientation++) {
        char name[64];
        char want[64];
        (void)snprintf(name, sizeof name, "jpeg/exif_%d.jpg", orientation);
        (void)snprintf(want, sizeof want, "jpeg/exif_%d.ppm", orientation);
        check(*state, name, IMAGE_SCALE_FULL, want);
        assert_int_equal(((struct rig *)*state)->decoder.info.orientation, orientation);
    }
}

static void test_jpeg_is_scaled_by_eighths(void **state)
{
    check(*state, "jpeg/420.jpg", 4, "jpeg/420_scale_4.ppm");
    check(*state, "jpeg/420.jpg", 2, "jpeg/420_scale_2.ppm");
    check(*state, "jpeg/420.jpg", 1, "jpeg/420_scale_1.ppm");
}

static void test_colour_becomes_grey_on_request(void **state)
{
    check(*state, "jpeg/420.jpg", IMAGE_SCALE_FULL, "jpeg/420.pgm");
    check(*state, "png/rgb8.png", IMAGE_SCALE_FULL, "png/rgb8.pgm");
    check(*state, "png/grey4.png", IMAGE_SCALE_FULL, "png/grey4.pgm");
}

static void test_png_kinds_are_as_pillow_sees_them(void **state)
{
    static const char *const kinds[] = {
        "grey1",
        "grey2",
        "grey4",
        "grey8",
        "grey16",
        "grey8_key",
        "palette1",
        "palette2",
        "palette4",
        "palette8",
        "grey_alpha8",
        "grey_alpha16",
        "palette4_alpha",
        "rgb8",
        "rgb16",
        "rgb_alpha8",
        "rgb_alpha16",
        "grey1_interlaced",
        "palette4_interlaced",
        "rgb8_interlaced",
        "grey16_interlaced",
    };
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        char name[64];
        char want[64];
        (void)snprintf(name, sizeof name, "png/%s.png", kinds[i]);
        (void)snprintf(want, sizeof want, "png/%s.ppm", kinds[i]);
        check(*state, name, IMAGE_SCALE_FULL, want);
    }
}

static void test_scale_is_the_smallest_that_suffices(void **state)
{
    (void)state;
    const struct image_info jpeg = {.format = IMAGE_JPEG};
    const struct image_info png = {.format = IMAGE_PNG};
    assert_int_equal(image_scale_for(&jpeg, 223, 500, 224, 224), 8);
    assert_int_equal(image_scale_for(&jpeg, 447, 500, 224, 224), 8);
    assert_int_equal(image_scale_for(&jpeg, 448, 500, 224, 224), 4);
    assert_int_equal(image_scale_for(&jpeg, 896, 900, 224, 224), 2);
    assert_int_equal(image_scale_for(&jpeg, 1792, 1792, 224, 224), 1);
    assert_int_equal(image_scale_for(&jpeg, 65535, 100, 224, 224), 8);
    assert_int_equal(image_scale_for(&png, 1792, 1792, 224, 224), 8);
}

/* ---- bad input ------------------------------------------------------------------------------- */

/* Status of loading and decoding bytes; the sentence is in decoder.fault. */
static enum der_status try_bytes(struct rig *rig, const uint8_t *data, size_t size)
{
    struct image_view view;
    rig->decoder.fault.text[0] = 0;
    TRY(image_load_bytes(&rig->decoder, "some.jpg", data, size));
    return image_decode(&rig->decoder, 3, IMAGE_SCALE_FULL, NULL, &view);
}

static void check_every_cut(struct rig *rig, const char *name)
{
    struct file_bytes file = fixture_read(rig->ctx, name);
    for (size_t size = 0; size < file.size; size++) {
        if (try_bytes(rig, file.data, size) != DER_FORMAT)
            fail_msg("%s, cut to %zu of %zu bytes, is accepted", name, size, file.size);
        assert_non_null(strstr(rig->decoder.fault.text, "some.jpg"));
    }
    assert_int_equal(try_bytes(rig, file.data, file.size), DER_OK);
    file_bytes_free(&rig->ctx->mem, &file);
}

static void test_cut_off_files_are_errors(void **state)
{
    check_every_cut(*state, "jpeg/420.jpg");
    check_every_cut(*state, "jpeg/progressive.jpg");
    check_every_cut(*state, "png/rgb8.png");
    check_every_cut(*state, "png/rgb8_interlaced.png");
}

static void test_early_end_marker_is_an_error(void **state)
{
    struct rig *rig = *state;
    struct file_bytes file = fixture_read(rig->ctx, "jpeg/420.jpg");
    size_t half = file.size - 100;
    file.data[half] = 0xFF;
    file.data[half + 1] = 0xD9;
    assert_int_equal(try_bytes(rig, file.data, half + 2), DER_FORMAT);
    file_bytes_free(&rig->ctx->mem, &file);
}

static void test_foreign_and_empty_files_are_errors(void **state)
{
    struct rig *rig = *state;
    assert_int_equal(try_bytes(rig, (const uint8_t *)"GIF89a", 6), DER_FORMAT);
    assert_string_equal(rig->decoder.fault.text, "some.jpg is neither a JPEG nor a PNG file");
    assert_int_equal(try_bytes(rig, (const uint8_t *)"", 0), DER_FORMAT);
    assert_int_equal(image_load(&rig->decoder, "/nowhere/a.jpg"), DER_IO);
}

static void put_big_endian(uint8_t *at, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        at[i] = (uint8_t)(value >> (24 - 8 * i));
}

static void set_png_size(struct file_bytes *file, uint32_t width, uint32_t height)
{
    put_big_endian(file->data + 16, width);
    put_big_endian(file->data + 20, height);
}

static void test_png_that_claims_too_much_takes_no_memory(void **state)
{
    struct rig *rig = *state;
    struct file_bytes file = fixture_read(rig->ctx, "png/rgb8.png");
    static const uint32_t claims[][2] = {
        {1u << 31, 1}, {65536, 1},    {1, 65536},     {65535, 65535},
        {0, 5},        {32768, 8193}, {16384, 16384}, /* within the limits, but not with 306 bytes */
    };
    for (size_t i = 0; i < sizeof claims / sizeof claims[0]; i++) {
        set_png_size(&file, claims[i][0], claims[i][1]);
        size_t peak = atomic_load(&rig->ctx->mem.peak_bytes);
        assert_int_equal(try_bytes(rig, file.data, file.size), DER_FORMAT);
        assert_int_equal(atomic_load(&rig->ctx->mem.peak_bytes), peak);
    }
    file_bytes_free(&rig->ctx->mem, &file);
}

static void test_jpeg_that_claims_too_much_is_refused(void **state)
{
    struct rig *rig = *state;
    struct file_bytes file = fixture_read(rig->ctx, "jpeg/444.jpg");
    assert_int_equal(try_bytes(rig, file.data, file.size), DER_OK);
    size_t at = 0; /* of the frame header: FF C0, length, precision, height, width */
    while (!(file.data[at] == 0xFF && file.data[at + 1] == 0xC0))
        at++;
    static const uint8_t size[4] = {0xFF, 0xDC, 0xFF, 0xDC}; /* 65500 x 65500 */
    memcpy(file.data + at + 5, size, sizeof size);
    size_t peak = atomic_load(&rig->ctx->mem.peak_bytes);
    assert_int_equal(try_bytes(rig, file.data, file.size), DER_FORMAT);
    assert_non_null(strstr(rig->decoder.fault.text, "65500 x 65500"));
    assert_int_equal(atomic_load(&rig->ctx->mem.peak_bytes), peak);
    file_bytes_free(&rig->ctx->mem, &file);
}

static void test_damaged_png_is_an_error(void **state)
{
    struct rig *rig = *state;
    struct file_bytes file = fixture_read(rig->ctx, "png/rgb8.png");
    file.data[100] ^= 1;
    assert_int_equal(try_bytes(rig, file.data, file.size), DER_FORMAT);
    file_bytes_free(&rig->ctx->mem, &file);
}

/* ---- faults ---------------------------------------------------------------------------------- */

/* Every request for memory fails once; then all is well and nothing was lost. */
static void check_alloc_faults(struct rig *rig, const char *name)
{
    char path[SCRATCH_PATH_MAX];
    fixture_path(path, name);
    for (uint64_t k = 1;; k++) {
        struct image_decoder decoder;
        struct image_view view;
        image_decoder_init(&decoder, &rig->ctx->mem);
        atomic_store(&rig->ctx->mem.fail_at, atomic_load(&rig->ctx->mem.n_allocs) + k);
        enum der_status status = image_load(&decoder, path);
        if (status == DER_OK)
            status = image_decode(&decoder, 3, IMAGE_SCALE_FULL, NULL, &view);
        bool failed = atomic_load(&rig->ctx->mem.n_allocs) >= atomic_load(&rig->ctx->mem.fail_at);
        atomic_store(&rig->ctx->mem.fail_at, 0);
        image_decoder_fini(&decoder);
        assert_int_equal(atomic_load(&rig->ctx->mem.n_live), 0);
        if (!failed) {
            assert_int_equal(status, DER_OK);
            return;
        }
        assert_int_equal(status, DER_NOMEM);
    }
}

static void test_lack_of_memory_leaks_nothing(void **state)
{
    check_alloc_faults(*state, "jpeg/exif_6.jpg");
    check_alloc_faults(*state, "png/palette4_interlaced.png");
}

static void test_second_image_takes_no_memory(void **state)
{
    struct rig *rig = *state;
    check(rig, "jpeg/exif_6.jpg", IMAGE_SCALE_FULL, "jpeg/exif_6.ppm");
    char path[SCRATCH_PATH_MAX];
    struct image_view view;
    fixture_path(path, "jpeg/exif_8.jpg");
    uint64_t before = atomic_load(&rig->ctx->mem.n_allocs);
    assert_int_equal(image_load(&rig->decoder, path), DER_OK);
    assert_int_equal(image_decode(&rig->decoder, 3, IMAGE_SCALE_FULL, NULL, &view), DER_OK);
    assert_int_equal(atomic_load(&rig->ctx->mem.n_allocs), before);
}

static void test_read_errors_name_the_file(void **state)
{
    struct rig *rig = *state;
    char path[SCRATCH_PATH_MAX];
    fixture_path(path, "jpeg/420.jpg");
    struct faulty_reads reads = {.most = 100};
    struct file_io io = faulty_io(&reads);
    rig->decoder.io = &io;
    assert_int_equal(image_load(&rig->decoder, path), DER_OK);
    reads = (struct faulty_reads){.most = 100, .fail_at = 5};
    assert_int_equal(image_load(&rig->decoder, path), DER_IO);
    assert_non_null(strstr(rig->decoder.fault.text, "420.jpg: Input/output error"));
}

int main(void)
{
    if (!DER_HAVE_JPEG || !DER_HAVE_PNG) {
        puts("1..1\nok 1 - images # SKIP this build lacks libjpeg or libpng");
        return 0;
    }
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(test_jpeg_kinds_are_as_pillow_sees_them),
        CASE(test_exif_orientations_are_undone),
        CASE(test_jpeg_is_scaled_by_eighths),
        CASE(test_colour_becomes_grey_on_request),
        CASE(test_png_kinds_are_as_pillow_sees_them),
        CASE(test_scale_is_the_smallest_that_suffices),
        CASE(test_cut_off_files_are_errors),
        CASE(test_early_end_marker_is_an_error),
        CASE(test_foreign_and_empty_files_are_errors),
        CASE(test_png_that_claims_too_much_takes_no_memory),
        CASE(test_jpeg_that_claims_too_much_is_refused),
        CASE(test_damaged_png_is_an_error),
        CASE(test_lack_of_memory_leaks_nothing),
        CASE(test_second_image_takes_no_memory),
        CASE(test_read_errors_name_the_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Resizing: the bytes that Pillow makes. */
#include "data/resample.h"

#include "support/case_file.h"
#include "support/test_ctx.h"

#include <stdlib.h>
#include <string.h>

enum { N_NUMBERS = 10 };

struct resize_case {
    int channels, height, width;
    uint32_t seed;
    int y, x, box_height, box_width;
    int to_height, to_width;
};

static struct resize_case from_numbers(const int64_t *numbers)
{
    const int v[N_NUMBERS] = {(int)numbers[0], (int)numbers[1], (int)numbers[2], (int)numbers[3],
                              (int)numbers[4], (int)numbers[5], (int)numbers[6], (int)numbers[7],
                              (int)numbers[8], (int)numbers[9]};
    return (struct resize_case){.channels = v[0],
                                .height = v[1],
                                .width = v[2],
                                .seed = (uint32_t)v[3],
                                .y = v[4],
                                .x = v[5],
                                .box_height = v[6],
                                .box_width = v[7],
                                .to_height = v[8],
                                .to_width = v[9]};
}

/* The box of a picture, interleaved or, after a copy into `planes`, planar. */
static struct image_view box_of(const struct resize_case *c, const uint8_t *pixels, uint8_t *planes)
{
    int n = c->channels;
    struct image_view view = {.channels = n, .height = c->box_height, .width = c->box_width};
    if (!planes) {
        view.data = pixels + (c->y * c->width + c->x) * n;
        view.channel_stride = 1;
        view.pixel_stride = n;
        view.row_stride = (ptrdiff_t)c->width * n;
        return view;
    }
    int size = c->height * c->width;
    for (int i = 0; i < size * n; i++)
        planes[i % n * size + i / n] = pixels[i];
    view.data = planes + c->y * c->width + c->x;
    view.channel_stride = size;
    view.pixel_stride = 1;
    view.row_stride = c->width;
    return view;
}

static void assert_bytes(const struct image_view *got, const uint8_t *want, int full_height,
                         int full_width, int first_y, int first_x)
{
    for (int c = 0; c < got->channels; c++)
        for (int y = 0; y < got->height; y++)
            for (int x = 0; x < got->width; x++) {
                int expected = want[(c * full_height + first_y + y) * full_width + first_x + x];
                int met = got->data[c * got->channel_stride + y * got->row_stride +
                                    x * got->pixel_stride];
                if (met != expected)
                    fail_msg("channel %d, row %d, column %d is %d, want %d", c, y, x, met,
                             expected);
            }
}

static void test_results_are_pillows(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    struct resample work = {.mem = &ctx->mem};
    struct case_file file = case_open("resample");
    int64_t numbers[N_NUMBERS];
    while (case_next(&file, numbers, N_NUMBERS)) {
        struct resize_case c = from_numbers(numbers);
        size_t bytes = (size_t)(c.channels * c.to_height * c.to_width);
        const uint8_t *want = case_data(&file, bytes);
        uint8_t *pixels = case_picture(c.height, c.width, c.channels, c.seed);
        uint8_t *planes = malloc((size_t)(c.channels * c.height * c.width));
        struct resample_axis across = {.end = c.box_width, .size = c.to_width, .count = c.to_width};
        struct resample_axis down = {
            .end = c.box_height, .size = c.to_height, .count = c.to_height};
        for (int variant = 0; variant < 4; variant++) {
            struct image_view src = box_of(&c, pixels, variant % 2 ? planes : NULL);
            work.is_portable = variant >= 2;
            struct image_view out;
            assert_int_equal(resample_apply(&work, &src, &across, &down, &out), DER_OK);
            assert_int_equal(out.height, c.to_height);
            assert_int_equal(out.width, c.to_width);
            assert_bytes(&out, want, c.to_height, c.to_width, 0, 0);
        }
        /* A part of the result is that part. */
        if (c.to_width > 4 && c.to_height > 4) {
            struct image_view src = box_of(&c, pixels, NULL);
            struct image_view out;
            across.first = 1;
            across.count = c.to_width - 3;
            down.first = 2;
            down.count = c.to_height - 3;
            assert_int_equal(resample_apply(&work, &src, &across, &down, &out), DER_OK);
            assert_bytes(&out, want, c.to_height, c.to_width, 2, 1);
        }
        free(planes);
        free(pixels);
    }
    case_close(&file);
    resample_fini(&work);
    test_ctx_free(ctx);
}

/* Training resizes thousands of images with one set of buffers. */
static void test_memory_is_reused(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    struct resample work = {.mem = &ctx->mem};
    uint8_t *pixels = case_picture(40, 50, 3, 1);
    struct image_view src = {pixels, 3, 40, 50, 1, 150, 3};
    struct resample_axis across = {.end = 50, .size = 16, .count = 16};
    struct resample_axis down = {.end = 40, .size = 16, .count = 16};
    struct image_view out;
    assert_int_equal(resample_apply(&work, &src, &across, &down, &out), DER_OK);
    uint64_t n_allocs = der_ctx_memory(ctx).n_allocs;
    src.height = 35;
    down.end = 35;
    assert_int_equal(resample_apply(&work, &src, &across, &down, &out), DER_OK);
    assert_int_equal(der_ctx_memory(ctx).n_allocs, n_allocs);
    resample_fini(&work);
    free(pixels);
    test_ctx_free(ctx);
}

static void test_memory_failures_leave_nothing(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    uint8_t *pixels = case_picture(40, 50, 3, 1);
    struct image_view src = {pixels, 3, 40, 50, 1, 150, 3};
    struct resample_axis across = {.end = 50, .size = 16, .count = 16};
    struct resample_axis down = {.end = 40, .size = 16, .count = 16};
    enum der_status status = DER_NOMEM;
    for (uint64_t n = 1; status == DER_NOMEM; n++) {
        struct resample work = {.mem = &ctx->mem};
        struct image_view out;
        atomic_store(&ctx->mem.fail_at, atomic_load(&ctx->mem.n_allocs) + n);
        status = resample_apply(&work, &src, &across, &down, &out);
        resample_fini(&work);
        assert_int_equal(der_ctx_memory(ctx).n_live, 0);
        assert_true(n < 20);
    }
    assert_int_equal(status, DER_OK);
    free(pixels);
    test_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_results_are_pillows),
        cmocka_unit_test(test_memory_is_reused),
        cmocka_unit_test(test_memory_failures_leave_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

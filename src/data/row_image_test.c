/*
 * Rows from images in memory: strides, channels and sizes that the augmentation was not made for.
 */
#include "data/row.h"

#include "support/test_ctx.h"

#include <string.h>

enum { H = 5, W = 7, PIXELS = H * W, BYTES = 3 * PIXELS };

struct fixture {
    struct der_ctx *ctx;
    struct row_tools tools;
    struct augment augment;
    struct augment_draw draw;
    uint8_t planar[BYTES], interleaved[BYTES];
};

static int set_up(void **state)
{
    static struct fixture f;
    f = (struct fixture){.ctx = test_ctx_new(1)};
    row_tools_init(&f.tools, &f.ctx->mem, NULL);
    for (int c = 0; c < 3; c++)
        for (int i = 0; i < PIXELS; i++)
            f.planar[c * PIXELS + i] = f.interleaved[3 * i + c] =
                (uint8_t)(i * 37 + c * 91 + i * i * 3);
    *state = &f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    row_tools_fini(&f->tools);
    test_ctx_free(f->ctx);
    return 0;
}

static void use(struct fixture *f, enum augment_geometry geometry, int channels, int height,
                int width)
{
    struct augment_spec spec = {.geometry = geometry,
                                .channels = channels,
                                .height = height,
                                .width = width,
                                .resize = height > width ? height : width,
                                .adapts = true,
                                .mean = {0.1F, 0.2F, 0.3F},
                                .std = {0.5F, 0.25F, 0.75F}};
    assert_ok(f->ctx, augment_init(f->ctx, &spec, &f->augment));
    f->draw = augment_draw(&spec, 0, 0, 0);
}

static struct image_view planar_view(const struct fixture *f)
{
    return (struct image_view){.data = f->planar,
                               .channels = 3,
                               .height = H,
                               .width = W,
                               .channel_stride = PIXELS,
                               .row_stride = W,
                               .pixel_stride = 1};
}

static struct image_view interleaved_view(const struct fixture *f)
{
    return (struct image_view){.data = f->interleaved,
                               .channels = 3,
                               .height = H,
                               .width = W,
                               .channel_stride = 1,
                               .row_stride = 3 * W,
                               .pixel_stride = 3};
}

static void make(struct fixture *f, struct image_view view, float *dst)
{
    assert_int_equal(row_from_image(&f->augment, &f->draw, &f->tools, "x", &view, dst), DER_OK);
}

/* Pixels stored from the last to the first, four bytes each, blue before red: BGRX upside down. */
static struct image_view odd_view(const struct fixture *f, uint8_t odd[4 * PIXELS])
{
    memset(odd, 0xee, 4 * PIXELS);
    for (int i = 0; i < PIXELS; i++)
        for (int c = 0; c < 3; c++)
            odd[4 * (PIXELS - 1 - i) + 2 - c] = f->interleaved[3 * i + c];
    return (struct image_view){.data = odd + 4 * (PIXELS - 1) + 2,
                               .channels = 3,
                               .height = H,
                               .width = W,
                               .channel_stride = -1,
                               .row_stride = -4 * W,
                               .pixel_stride = -4};
}

static void test_strides_do_not_matter(void **state)
{
    struct fixture *f = *state;
    static const struct {
        enum augment_geometry geometry;
        int height, width;
    } cases[] = {{AUGMENT_PLAIN, H, W},
                 {AUGMENT_PLAIN, 9, 4},
                 {AUGMENT_SQUASH, 6, 6},
                 {AUGMENT_SHORTER_SIDE, 8, 8}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint8_t odd[4 * PIXELS];
        float want[3 * 81];
        float got[3 * 81];
        size_t bytes = 3 * (size_t)(cases[i].height * cases[i].width) * sizeof *want;
        use(f, cases[i].geometry, 3, cases[i].height, cases[i].width);
        make(f, planar_view(f), want);
        make(f, interleaved_view(f), got);
        assert_memory_equal(got, want, bytes);
        memset(got, 0, sizeof got);
        make(f, odd_view(f, odd), got);
        assert_memory_equal(got, want, bytes);
    }
}

static void test_a_plain_image_of_the_right_size_is_only_normalised(void **state)
{
    struct fixture *f = *state;
    float got[BYTES];
    use(f, AUGMENT_PLAIN, 3, H, W);
    make(f, planar_view(f), got);
    for (int i = 0; i < BYTES; i++)
        assert_true(got[i] == f->augment.table[i / PIXELS][f->planar[i]]);
}

/* The resampler is Pillow's to the byte (resample_test.c); here only that it is asked for the whole image. */
static void check_squashed(struct fixture *f, int to_height, int to_width)
{
    float got[3 * 11 * 11];
    struct resample work = {.mem = &f->ctx->mem};
    struct image_view view = planar_view(f);
    struct image_view small;
    struct resample_axis across = {.end = W, .size = to_width, .count = to_width};
    struct resample_axis down = {.end = H, .size = to_height, .count = to_height};
    use(f, AUGMENT_PLAIN, 3, to_height, to_width);
    make(f, view, got);
    assert_int_equal(resample_apply(&work, &view, &across, &down, &small), DER_OK);
    for (int c = 0; c < 3; c++)
        for (int y = 0; y < to_height; y++)
            for (int x = 0; x < to_width; x++) {
                uint8_t byte = small.data[c * small.channel_stride + y * small.row_stride + x];
                assert_true(got[(c * to_height + y) * to_width + x] == f->augment.table[c][byte]);
            }
    resample_fini(&work);
}

static void test_a_plain_image_of_another_size_is_squashed(void **state)
{
    check_squashed(*state, 3, 11);
    check_squashed(*state, H, 11);
    check_squashed(*state, 3, W);
}

static void test_grey_becomes_three_equal_channels(void **state)
{
    struct fixture *f = *state;
    for (int size = H; size <= H + 1; size++) {
        float got[3 * 6 * W];
        float want[3 * 6 * W];
        struct image_view grey = planar_view(f);
        grey.channels = 1;
        use(f, AUGMENT_PLAIN, 3, size, W);
        make(f, grey, got);
        /* Channel 0 of the colour image is the same plane. */
        make(f, planar_view(f), want);
        assert_memory_equal(got, want, (size_t)(size * W) * sizeof *got);
        for (int c = 1; c < 3; c++)
            for (int i = 0; i < size * W; i++) {
                float level = got[i] * f->augment.spec.std[0] + f->augment.spec.mean[0];
                float met =
                    got[c * size * W + i] * f->augment.spec.std[c] + f->augment.spec.mean[c];
                assert_float_equal(met, level, 1e-5); /* rounding of the normalisation */
            }
    }
}

static void test_colour_becomes_pillows_grey(void **state)
{
    struct fixture *f = *state;
    float got[PIXELS];
    uint8_t odd[4 * PIXELS];
    use(f, AUGMENT_PLAIN, 1, H, W);
    for (int which = 0; which < 3; which++) {
        make(f,
             which == 0   ? planar_view(f)
             : which == 1 ? interleaved_view(f)
                          : odd_view(f, odd),
             got);
        for (int i = 0; i < PIXELS; i++) {
            const uint8_t *rgb = f->interleaved + 3 * i;
            double level = rgb[0] * 0.299 + rgb[1] * 0.587 + rgb[2] * 0.114;
            double met = ((double)got[i] * 0.5 + 0.1) * 255.0;
            assert_true(met > level - 0.51 && met < level + 0.51); /* rounded to a byte */
        }
    }
}

static void test_without_adapting_other_sizes_are_refused(void **state)
{
    struct fixture *f = *state;
    float got[BYTES];
    struct image_view view = planar_view(f);
    use(f, AUGMENT_PLAIN, 3, H, W);
    f->augment.spec.adapts = false;
    view.height--;
    assert_int_equal(row_from_image(&f->augment, &f->draw, &f->tools, "frame", &view, got),
                     DER_SHAPE);
    assert_non_null(strstr(f->tools.decoder.fault.text, "frame is an image of 4x7"));
}

static void test_nothing_is_allocated_for_the_second_image(void **state)
{
    struct fixture *f = *state;
    float got[3 * 36];
    uint8_t odd[4 * PIXELS];
    use(f, AUGMENT_SQUASH, 1, 6, 6);
    make(f, odd_view(f, odd), got);
    uint64_t before = atomic_load(&f->ctx->mem.n_allocs);
    make(f, odd_view(f, odd), got);
    assert_int_equal(atomic_load(&f->ctx->mem.n_allocs), before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_strides_do_not_matter, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_plain_image_of_the_right_size_is_only_normalised,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_plain_image_of_another_size_is_squashed, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_grey_becomes_three_equal_channels, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_colour_becomes_pillows_grey, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_without_adapting_other_sizes_are_refused, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_nothing_is_allocated_for_the_second_image, set_up,
                                        tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

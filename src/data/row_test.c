/* Rows made of files: a random crop that is decoded alone is the one cut out of the whole image. */
#include "data/row.h"

#include "support/scratch.h"
#include "support/test_ctx.h"

#include "der_build.h"

#include <stdio.h>

enum { SIDE = 6, FLOATS = 3 * SIDE * SIDE, N_EPOCHS = 60 };

static const char *const FILES[] = {"jpeg/420.jpg", "jpeg/progressive.jpg", "jpeg/exif_6.jpg",
                                    "png/rgb8.png"};
enum { N_FILES = sizeof FILES / sizeof FILES[0] };

/* The row by way of the whole image at the scale that the crop allows. */
static void make_from_whole(const struct row_source *source, struct row_tools *tools,
                            int64_t sample, float *dst)
{
    const struct augment_spec *spec = &source->augment.spec;
    struct augment_draw draw = augment_draw(spec, source->seed, source->epoch, sample);
    struct image_decoder *decoder = &tools->decoder;
    const char *path = source->set->part[source->split].files[sample];
    assert_int_equal(image_load(decoder, path), DER_OK);
    const struct image_info *info = &decoder->info;
    struct augment_region region = augment_region(spec, &draw, info->height, info->width);
    struct augment_source image = {.height = info->height, .width = info->width};
    image.scale = image_scale_for(info, region.height, region.width, SIDE, SIDE);
    assert_int_equal(image_decode(decoder, 3, image.scale, NULL, &image.image), DER_OK);
    assert_int_equal(augment_apply(&source->augment, &draw, &image, &tools->work, dst), DER_OK);
}

static void test_random_crops_are_as_cut_out_of_the_whole(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    char paths[N_FILES][SCRATCH_PATH_MAX];
    char *files[N_FILES];
    for (int i = 0; i < N_FILES; i++) {
        fixture_path(paths[i], FILES[i]);
        files[i] = paths[i];
    }
    struct dataset set = {.ctx = ctx, .channels = 3};
    set.part[DATA_TRAIN] = (struct data_part){.n = N_FILES, .files = files};
    struct row_source source = {.set = &set, .split = DATA_TRAIN, .seed = 5};
    struct augment_spec spec = *augment_preset("imagenet-train");
    spec.height = SIDE;
    spec.width = SIDE;
    assert_int_equal(augment_init(ctx, &spec, &source.augment), DER_OK);
    struct row_tools tools;
    row_tools_init(&tools, &ctx->mem, NULL);
    for (; source.epoch < N_EPOCHS; source.epoch++) {
        for (int64_t sample = 0; sample < N_FILES; sample++) {
            float want[FLOATS];
            float got[FLOATS];
            make_from_whole(&source, &tools, sample, want);
            assert_int_equal(row_make(&source, &tools, sample, got), DER_OK);
            assert_memory_equal(got, want, sizeof want);
        }
    }
    row_tools_fini(&tools);
    test_ctx_free(ctx);
}

int main(void)
{
    if (!DER_HAVE_JPEG || !DER_HAVE_PNG) {
        puts("1..1\nok 1 - rows # SKIP this build lacks libjpeg or libpng");
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_crops_are_as_cut_out_of_the_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * The sheet of exemplars: each image where it belongs, with the bytes that it has in the data set.
 */
#include "exchange/exemplar_sheet.h"

#include "data/defaults.h"
#include "support/test_backend.h"
#include "support/test_ctx.h"

#include <string.h>

struct fixture {
    struct der_ctx *ctx;
    struct backend *be;
    struct dataset *set;
    struct learner learner; /* as much of one as the sheet looks at */
};

static void open_set(struct fixture *f, const char *data)
{
    struct learner *learner = &f->learner;
    assert_ok(f->ctx, dataset_open(f->ctx, data, &f->set));
    assert_ok(f->ctx, augment_defaults(f->set, false, &learner->options.test_augment));
    assert_ok(f->ctx, exemplars_new(f->ctx, f->set->n_classes, &learner->memory));
    learner->be = f->be;
    learner->options.set = f->set;
}

static int set_up(void **state)
{
    static struct fixture f;
    f = (struct fixture){.ctx = test_ctx_new(1)};
    assert_ok(f.ctx, backend_open(f.ctx, test_backend(), NULL, &f.be));
    *state = &f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    exemplars_free(f->learner.memory);
    dataset_free(f->set);
    backend_close(f->be);
    test_ctx_free(f->ctx);
    return 0;
}

/* Is the image with that sample at that place of the sheet? */
static void assert_drawn(const struct fixture *f, const struct exemplar_sheet *sheet, int row,
                         int column, int64_t sample)
{
    struct image_view image = dataset_view(f->set, DATA_TRAIN, sample);
    for (int y = 0; y < image.height; y++)
        for (int x = 0; x < image.width; x++)
            for (int c = 0; c < image.channels; c++)
                assert_int_equal(
                    sheet->pixels[(row * image.height + y) * sheet->image.row_stride +
                                  (column * image.width + x) * sheet->image.pixel_stride + c],
                    image.data[c * image.channel_stride + y * image.row_stride +
                               x * image.pixel_stride]);
}

static void test_the_newest_classes_are_rows_in_order_of_rank(void **state)
{
    struct fixture *f = *state;
    static const int64_t samples[][3] = {{0, 1, 2}, {15, 11, 12}, {25, 21, 0}};
    struct exemplar_sheet sheet;
    open_set(f, "synth:classes=3,train=10,test=1,size=12,seed=1");
    assert_ok(f->ctx, exemplars_add(f->learner.memory, samples[0], 3));
    assert_ok(f->ctx, exemplars_add(f->learner.memory, samples[1], 3));
    assert_ok(f->ctx, exemplars_add(f->learner.memory, samples[2], 2));
    f->learner.step = 2;
    f->learner.first_class[1] = 1; /* the second step added two classes */
    f->learner.first_class[2] = 3;
    assert_ok(f->ctx, exemplar_sheet_draw(&f->learner, &sheet));
    assert_int_equal(sheet.image.height, 2 * 12);
    assert_int_equal(sheet.image.width, 3 * 12);
    for (int i = 0; i < 3; i++)
        assert_drawn(f, &sheet, 0, i, samples[1][i]);
    for (int i = 0; i < 2; i++)
        assert_drawn(f, &sheet, 1, i, samples[2][i]);
    const uint8_t *empty = sheet.pixels + 12 * sheet.image.row_stride + 2 * 12 * 3;
    assert_int_equal(empty[0], 255);
    exemplar_sheet_fini(&sheet);
    exemplar_sheet_fini(&sheet);
}

static void test_many_classes_and_large_images_stay_a_sheet(void **state)
{
    struct fixture *f = *state;
    struct exemplar_sheet sheet;
    open_set(f, "synth:classes=20,train=10,test=1,size=100,seed=1");
    for (int k = 0; k < 20; k++) {
        int64_t samples[10];
        for (int i = 0; i < 10; i++)
            samples[i] = 10 * k + i;
        assert_ok(f->ctx, exemplars_add(f->learner.memory, samples, 10));
    }
    f->learner.step = 1;
    f->learner.first_class[1] = 20;
    assert_ok(f->ctx, exemplar_sheet_draw(&f->learner, &sheet));
    assert_int_equal(sheet.image.height, SHEET_CLASSES * 50);
    assert_int_equal(sheet.image.width, SHEET_IMAGES * 50);
    exemplar_sheet_fini(&sheet);
}

static void test_who_keeps_nothing_has_no_sheet(void **state)
{
    struct fixture *f = *state;
    struct exemplar_sheet sheet;
    open_set(f, "synth:classes=2,train=2,test=1,size=12,seed=1");
    f->learner.step = 1;
    f->learner.first_class[1] = 2;
    assert_ok(f->ctx, exemplar_sheet_draw(&f->learner, &sheet));
    assert_null(sheet.pixels);
    exemplar_sheet_fini(&sheet);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_the_newest_classes_are_rows_in_order_of_rank),
        TEST(test_many_classes_and_large_images_stay_a_sheet),
        TEST(test_who_keeps_nothing_has_no_sheet),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* A class without an image that can be used is found and named; one good image is enough. */
#include "data/readable.h"

#include "support/test_ctx.h"

#include <string.h>

#include "der_build.h"

enum { N = 6, CLASSES = 3, SIDE = 16 };

static char good[] = DER_TESTS_DIR "/data/fixtures/augment/a.png";
static char broken[] = DER_TESTS_DIR "/data/fixtures/augment/orders.txt";
static char missing[] = "no/such/picture.jpg";

/* Two images of each of three classes, which are learnt in another order than the set has them. */
struct fixture {
    struct der_ctx *ctx;
    struct dataset set;
    struct augment_spec spec;
    struct data_view *view;
    char *files[N];
};

static int set_up(void **state)
{
    static struct fixture f;
    static char path[] = "pictures";
    static char words[CLASSES][4] = {"cat", "dog", "owl"};
    static char *names[CLASSES] = {words[0], words[1], words[2]};
    static int32_t labels[N] = {0, 0, 1, 1, 2, 2};
    f = (struct fixture){.ctx = test_ctx_new(1),
                         .spec = {.geometry = AUGMENT_SQUASH,
                                  .channels = 3,
                                  .height = SIDE,
                                  .width = SIDE,
                                  .resize = SIDE,
                                  .std = {1, 1, 1}}};
    f.set = (struct dataset){.ctx = f.ctx,
                             .kind = "folder",
                             .path = path,
                             .channels = 3,
                             .n_classes = CLASSES,
                             .class_names = names};
    f.set.part[DATA_TRAIN] = (struct data_part){.n = N, .labels = labels, .files = f.files};
    assert_ok(f.ctx, view_new(f.ctx, N, &f.view));
    for (int i = 0; i < N; i++) {
        f.files[i] = good;
        f.view->items[i] = (struct view_item){.sample = i, .label = CLASSES - 1 - i / 2};
    }
    *state = &f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    view_free(f->view);
    test_ctx_free(f->ctx);
    return 0;
}

static enum der_status check(struct fixture *f, int n_labels)
{
    const struct loader_options data = {
        .set = &f->set, .view = f->view, .augment = &f->spec, .split = DATA_TRAIN};
    return readable_check(f->ctx, &data, n_labels);
}

static void test_one_good_image_of_every_class_is_enough(void **state)
{
    struct fixture *f = *state;
    assert_ok(f->ctx, check(f, CLASSES));
    f->files[0] = broken;
    f->files[3] = missing;
    assert_ok(f->ctx, check(f, CLASSES));
}

static void test_a_class_without_any_is_named_with_a_reason(void **state)
{
    struct fixture *f = *state;
    f->files[2] = broken;
    f->files[3] = missing;
    assert_int_equal(check(f, CLASSES), DER_FORMAT);
    assert_non_null(strstr(f->ctx->error, "none of the images of class 'dog' in pictures"));
    assert_non_null(strstr(f->ctx->error, "orders.txt"));
}

static void test_classes_that_are_not_learnt_may_be_bad(void **state)
{
    struct fixture *f = *state;
    f->files[0] = f->files[1] = broken; /* the last one in the order of learning */
    assert_ok(f->ctx, check(f, CLASSES - 1));
    assert_int_equal(check(f, CLASSES), DER_FORMAT);
}

static void test_needs_png(void **state)
{
    (void)state;
    skip();
}

int main(void)
{
    const struct CMUnitTest no_tests[] = {cmocka_unit_test(test_needs_png)};
    if (!DER_HAVE_PNG)
        return cmocka_run_group_tests(no_tests, NULL, NULL);
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_one_good_image_of_every_class_is_enough),
        TEST(test_a_class_without_any_is_named_with_a_reason),
        TEST(test_classes_that_are_not_learnt_may_be_bad),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

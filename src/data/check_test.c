/* labels: tsan */
#include "data/check.h"

#include "support/scratch.h"
#include "support/test_ctx.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct rig {
    struct der_ctx *ctx;
    struct scratch scratch;
};

static int set_up(void **state)
{
    static struct rig rig;
    rig.ctx = test_ctx_new(1);
    scratch_init(&rig.scratch);
    *state = &rig;
    return 0;
}

static int tear_down(void **state)
{
    struct rig *rig = *state;
    scratch_fini(&rig->scratch);
    test_ctx_free(rig->ctx);
    return 0;
}

static struct data_check *run(struct rig *rig, const char *path)
{
    const struct check_options options = {0};
    struct data_check *check;
    assert_ok(rig->ctx, data_check_run(rig->ctx, path, &options, &check));
    return check;
}

/* Is there a finding of the kind with both texts in it? "" is in every text. */
static bool has(const struct data_check *check, enum check_kind kind, const char *one,
                const char *other)
{
    for (int64_t i = 0; i < check->n; i++)
        if (check->findings[i].kind == kind && strstr(check->findings[i].text, one) &&
            strstr(check->findings[i].text, other))
            return true;
    return false;
}

static void expect(const struct data_check *check, enum check_kind kind, int64_t n)
{
    if (check->n_kind[kind] == n)
        return;
    for (int64_t i = 0; i < check->n; i++)
        print_message("%s: %s\n", check_kind_name(check->findings[i].kind),
                      check->findings[i].text);
    fail_msg("%lld findings of the kind %s, want %lld", (long long)check->n_kind[kind],
             check_kind_name(kind), (long long)n);
}

static void copy(struct rig *rig, const char *name, const char *fixture)
{
    scratch_copy(&rig->scratch, name, fixture);
}

/* Two classes with two good, different images each, on both sides. */
static void make_good(struct rig *rig)
{
    copy(rig, "train/cat/1.jpg", "jpeg/420.jpg");
    copy(rig, "train/cat/2.png", "png/grey8.png");
    copy(rig, "train/dog/1.jpg", "jpeg/cmyk.jpg");
    copy(rig, "train/dog/2.jpg", "jpeg/444.jpg");
    copy(rig, "val/cat/1.jpg", "jpeg/grey.jpg");
    copy(rig, "val/dog/1.png", "png/palette4.png");
}

static void test_a_good_set_in_memory(void **state)
{
    struct rig *rig = *state;
    struct data_check *check = run(rig, "synth:classes=3,train=12,test=4,size=10,seed=1");
    expect(check, CHECK_FEW, 0);
    assert_int_equal(check->n, 0);
    assert_int_equal(check->set->n_classes, 3);
    for (int c = 0; c < 3; c++) {
        assert_int_equal(check->counts[DATA_TRAIN][c], 12);
        assert_int_equal(check->counts[DATA_TEST][c], 4);
    }
    assert_true(check->height_min == 10 && check->height_max == 10 && check->width_min == 10 &&
                check->width_max == 10);
    data_check_free(check);
}

static void test_a_good_folder_is_only_small(void **state)
{
    struct rig *rig = *state;
    make_good(rig);
    struct data_check *check = run(rig, rig->scratch.root);
    expect(check, CHECK_FEW, 2);
    assert_int_equal(check->n, 2);
    assert_true(has(check, CHECK_FEW, "class 'cat'", "only 2 training images"));
    assert_true(check->width_max == 37 && check->height_max == 29);
    assert_true(check->width_min < 37 && check->height_min < 29);
    data_check_free(check);
}

static void test_every_image_that_does_not_decode_is_named(void **state)
{
    struct rig *rig = *state;
    char path[SCRATCH_PATH_MAX];
    make_good(rig);
    struct file_bytes whole = fixture_read(rig->ctx, "jpeg/420.jpg");
    scratch_write(&rig->scratch, "train/cat/cut.jpg", whole.data, whole.size / 2);
    file_bytes_free(&rig->ctx->mem, &whole);
    scratch_text(&rig->scratch, "train/dog/text.png", "not an image");
    scratch_text(&rig->scratch, "val/cat/empty.jpg", "");
    struct data_check *check = run(rig, rig->scratch.root);
    expect(check, CHECK_BAD_IMAGE, 3);
    static const char *const bad[] = {"train/cat/cut.jpg", "train/dog/text.png",
                                      "val/cat/empty.jpg"};
    for (int i = 0; i < 3; i++) {
        (void)snprintf(path, sizeof path, "%s", scratch_path(&rig->scratch, bad[i]));
        assert_true(has(check, CHECK_BAD_IMAGE, path, ""));
    }
    assert_true(check_is_error(CHECK_BAD_IMAGE));
    data_check_free(check);
}

static void test_test_pictures_that_are_trained_on_are_found(void **state)
{
    struct rig *rig = *state;
    make_good(rig);
    copy(rig, "val/cat/again.jpg", "jpeg/progressive.jpg"); /* 420.jpg, stored in another way */
    copy(rig, "train/cat/again.jpg", "jpeg/420.jpg");       /* within a split it is no matter */
    struct data_check *check = run(rig, rig->scratch.root);
    expect(check, CHECK_DUPLICATE, 1);
    assert_true(has(check, CHECK_DUPLICATE, "val/cat/again.jpg is the same picture as ",
                    "train/cat/1.jpg"));
    expect(check, CHECK_TWO_CLASSES, 0);
    assert_false(check_is_error(CHECK_DUPLICATE));
    data_check_free(check);
}

static void test_a_picture_under_two_classes_is_found(void **state)
{
    struct rig *rig = *state;
    make_good(rig);
    copy(rig, "train/dog/cat.jpg", "jpeg/420.jpg");
    copy(rig, "val/cat/dog.jpg", "jpeg/cmyk.jpg");
    struct data_check *check = run(rig, rig->scratch.root);
    expect(check, CHECK_TWO_CLASSES, 2);
    assert_true(has(check, CHECK_TWO_CLASSES, "train/dog/cat.jpg of class 'dog'",
                    "train/cat/1.jpg of class 'cat'"));
    assert_true(has(check, CHECK_TWO_CLASSES, "val/cat/dog.jpg of class 'cat'",
                    "train/dog/1.jpg of class 'dog'"));
    data_check_free(check);
}

static void test_pictures_in_memory_are_compared_too(void **state)
{
    struct rig *rig = *state;
    /* The same fixture for both splits. */
    static const char *const parts[] = {"images-idx3-ubyte", "labels-idx1-ubyte"};
    for (int i = 0; i < 2; i++) {
        char from[64];
        char to[64];
        (void)snprintf(from, sizeof from, "idx_plain/train-%s", parts[i]);
        (void)snprintf(to, sizeof to, "train-%s", parts[i]);
        copy(rig, to, from);
        (void)snprintf(to, sizeof to, "t10k-%s", parts[i]);
        copy(rig, to, from);
    }
    struct data_check *check = run(rig, rig->scratch.root);
    expect(check, CHECK_DUPLICATE, check->set->part[DATA_TEST].n);
    assert_true(
        has(check, CHECK_DUPLICATE, "test image 0 is the same picture as training image 0", ""));
    data_check_free(check);
}

static void test_all_flaws_of_a_folder_are_named(void **state)
{
    struct rig *rig = *state;
    make_good(rig);
    scratch_mkdir(&rig->scratch, "train/ant");
    scratch_mkdir(&rig->scratch, "train/eel");
    scratch_text(&rig->scratch, "train/ant/notes.txt", "");
    struct data_check *check = run(rig, rig->scratch.root);
    assert_non_null(check->set);
    expect(check, CHECK_UNREADABLE, 4);
    assert_true(has(check, CHECK_UNREADABLE, "train/ant has no images", ""));
    assert_true(has(check, CHECK_UNREADABLE, "train/eel has no images", ""));
    assert_true(has(check, CHECK_UNREADABLE, "val/ant", ""));
    assert_true(has(check, CHECK_UNREADABLE, "val/eel", ""));
    assert_true(check_is_error(CHECK_UNREADABLE));
    data_check_free(check);
}

static void test_all_wrong_lines_of_a_list_are_named(void **state)
{
    struct rig *rig = *state;
    copy(rig, "train/cat/1.jpg", "jpeg/420.jpg");
    copy(rig, "train/dog/1.jpg", "jpeg/cmyk.jpg");
    copy(rig, "val/images/1.jpg", "jpeg/grey.jpg");
    scratch_text(&rig->scratch, "val/val_annotations.txt",
                 "1.jpg cat\nnowhere.jpg dog\n1.jpg cow\n1.jpg cat\n");
    struct data_check *check = run(rig, rig->scratch.root);
    expect(check, CHECK_UNREADABLE, 4);
    assert_true(has(check, CHECK_UNREADABLE, "line 2", "has no image 'nowhere.jpg'"));
    assert_true(has(check, CHECK_UNREADABLE, "line 3", "label 'cow'"));
    assert_true(has(check, CHECK_UNREADABLE, "line 4", "appears twice"));
    assert_true(has(check, CHECK_UNREADABLE, "names no image of class 'dog'", ""));
    expect(check, CHECK_IGNORED, 0); /* the list is read */
    data_check_free(check);
}

static void test_files_that_nothing_reads_are_named(void **state)
{
    struct rig *rig = *state;
    make_good(rig);
    scratch_text(&rig->scratch, "train/cat/notes.txt", "");
    scratch_text(&rig->scratch, "train/cat/.hidden", "");
    copy(rig, "train/cat/more/3.jpg", "jpeg/444.jpg");
    copy(rig, "train/stray.jpg", "jpeg/444.jpg");
    for (int i = 0; i < 8; i++) {
        char name[32];
        (void)snprintf(name, sizeof name, "val/dog/%d.gif", i);
        scratch_text(&rig->scratch, name, "");
    }
    struct data_check *check = run(rig, rig->scratch.root);
    expect(check, CHECK_IGNORED, 3);
    assert_true(has(check, CHECK_IGNORED, "train/cat: ", ": more, notes.txt"));
    assert_true(has(check, CHECK_IGNORED, "train: ", "in no class folder: stray.jpg"));
    assert_true(has(check, CHECK_IGNORED, "val/dog: ", "4.gif and 3 more"));
    data_check_free(check);
}

static void test_folders_beside_train_and_val_are_named(void **state)
{
    struct rig *rig = *state;
    make_good(rig);
    copy(rig, "validation/cat/1.jpg", "jpeg/444.jpg");
    copy(rig, "test/cat/1.jpg", "jpeg/444.jpg");
    copy(rig, ".hidden/cat/1.jpg", "jpeg/444.jpg");
    struct data_check *check = run(rig, rig->scratch.root);
    expect(check, CHECK_IGNORED, 1);
    assert_true(has(check, CHECK_IGNORED, rig->scratch.root,
                    ": ignored, since images are read from train and val: test, validation"));
    assert_false(check_is_error(CHECK_IGNORED));
    data_check_free(check);
}

static void test_a_folder_beside_train_alone_is_named(void **state)
{
    struct rig *rig = *state;
    copy(rig, "train/cat/1.jpg", "jpeg/420.jpg");
    copy(rig, "train/dog/1.jpg", "jpeg/cmyk.jpg");
    copy(rig, "valid/cat/1.jpg", "jpeg/444.jpg");
    struct data_check *check = run(rig, rig->scratch.root);
    expect(check, CHECK_IGNORED, 1);
    assert_true(has(check, CHECK_IGNORED, "images are read from train alone: valid", ""));
    data_check_free(check);
}

static void test_test_classes_that_are_not_trained_on_are_named(void **state)
{
    struct rig *rig = *state;
    make_good(rig);
    copy(rig, "val/bird/1.jpg", "jpeg/444.jpg");
    struct data_check *check = run(rig, rig->scratch.root);
    expect(check, CHECK_IGNORED, 1);
    assert_true(has(check, CHECK_IGNORED, "/val: ignored, since no class of ", "/train: bird"));
    data_check_free(check);
    /* A class that is left out on purpose is no stranger. */
    scratch_text(&rig->scratch, "list", "cat\n");
    char list[SCRATCH_PATH_MAX];
    (void)snprintf(list, sizeof list, "%s", scratch_path(&rig->scratch, "list"));
    const struct check_options options = {.class_list = list};
    assert_ok(rig->ctx, data_check_run(rig->ctx, rig->scratch.root, &options, &check));
    expect(check, CHECK_IGNORED, 1);
    assert_true(has(check, CHECK_IGNORED, "/train: bird", ""));
    data_check_free(check);
}

static void test_folders_beside_listed_images_are_named_once(void **state)
{
    struct rig *rig = *state;
    copy(rig, "train/cat/1.jpg", "jpeg/420.jpg");
    copy(rig, "val/1.jpg", "jpeg/grey.jpg");
    copy(rig, "val/more/2.jpg", "jpeg/444.jpg");
    scratch_text(&rig->scratch, "val/val.txt", "1.jpg cat\n");
    struct data_check *check = run(rig, rig->scratch.root);
    expect(check, CHECK_IGNORED, 1);
    assert_true(has(check, CHECK_IGNORED, "/val: ignored, since ", ": more"));
    data_check_free(check);
    (void)unlink(scratch_path(&rig->scratch, "val/1.jpg"));
    copy(rig, "val/images/1.jpg", "jpeg/grey.jpg");
    check = run(rig, rig->scratch.root);
    expect(check, CHECK_IGNORED, 1);
    assert_true(has(check, CHECK_IGNORED, "/val: ignored, since no class of ", "/train: more"));
    data_check_free(check);
}

static void test_names_that_no_model_can_hold_are_errors(void **state)
{
    struct rig *rig = *state;
    copy(rig, "caf\xc3\xa9/1.jpg", "jpeg/420.jpg");
    copy(rig, "caf\xe9/1.jpg", "jpeg/444.jpg");
    struct data_check *check = run(rig, rig->scratch.root);
    expect(check, CHECK_BAD_NAME, 1);
    assert_true(has(check, CHECK_BAD_NAME, "class 'caf\xe9' cannot be saved in a model", "UTF-8"));
    assert_true(check_is_error(CHECK_BAD_NAME));
    data_check_free(check);
}

static void test_unequal_classes_and_missing_tests_are_told(void **state)
{
    struct rig *rig = *state;
    copy(rig, "cat/1.jpg", "jpeg/420.jpg");
    copy(rig, "cat/2.jpg", "jpeg/444.jpg");
    copy(rig, "cat/3.jpg", "jpeg/grey.jpg");
    copy(rig, "dog/1.jpg", "jpeg/cmyk.jpg");
    struct data_check *check = run(rig, rig->scratch.root);
    expect(check, CHECK_UNEQUAL, 1);
    assert_true(has(check, CHECK_UNEQUAL, "'cat' has 3 training images, 'dog' 1", ""));
    expect(check, CHECK_NO_TEST, 1);
    data_check_free(check);
    (void)unlink(scratch_path(&rig->scratch, "cat/3.jpg"));
    check = run(rig, rig->scratch.root);
    expect(check, CHECK_UNEQUAL, 0); /* twice as many is the limit */
    data_check_free(check);
}

static void test_what_is_no_set_is_a_finding(void **state)
{
    struct rig *rig = *state;
    struct data_check *check = run(rig, scratch_path(&rig->scratch, "nowhere"));
    assert_null(check->set);
    expect(check, CHECK_UNREADABLE, 1);
    assert_true(has(check, CHECK_UNREADABLE, "nowhere", "No such file"));
    data_check_free(check);
    check = run(rig, rig->scratch.root);
    assert_null(check->set);
    assert_true(has(check, CHECK_UNREADABLE, "holds no data set", ""));
    data_check_free(check);
}

static void make_bad(struct rig *rig)
{
    make_good(rig);
    copy(rig, "val/cat/again.jpg", "jpeg/420.jpg");
    copy(rig, "train/dog/cat.jpg", "jpeg/420.jpg");
    scratch_text(&rig->scratch, "train/dog/text.png", "not an image");
    scratch_text(&rig->scratch, "train/dog/notes.txt", "");
    scratch_mkdir(&rig->scratch, "train/eel");
    scratch_mkdir(&rig->scratch, "train/\xff");
    scratch_mkdir(&rig->scratch, "val/bird");
    scratch_mkdir(&rig->scratch, "test");
}

static void test_threads_find_the_same_in_the_same_order(void **state)
{
    struct rig *rig = *state;
    make_bad(rig);
    struct data_check *one = run(rig, rig->scratch.root);
    struct rig many = {.ctx = test_ctx_new(5), .scratch = rig->scratch};
    for (int round = 0; round < 5; round++) {
        struct data_check *five = run(&many, rig->scratch.root);
        assert_int_equal(five->n, one->n);
        for (int64_t i = 0; i < one->n; i++) {
            assert_int_equal(five->findings[i].kind, one->findings[i].kind);
            assert_string_equal(five->findings[i].text, one->findings[i].text);
        }
        data_check_free(five);
    }
    test_ctx_free(many.ctx);
    data_check_free(one);
}

struct counter {
    int64_t done, total, stop_at;
};

static void count(void *user, int64_t done, int64_t total)
{
    struct counter *counter = user;
    assert_true(done > counter->done && done <= total);
    counter->done = done;
    counter->total = total;
}

static bool is_enough(void *user)
{
    const struct counter *counter = user;
    return counter->stop_at > 0 && counter->done >= counter->stop_at;
}

static void test_progress_is_told_and_heeded(void **state)
{
    struct rig *rig = *state;
    struct counter counter = {0};
    const struct check_options options = {
        .progress = count, .cancelled = is_enough, .user = &counter};
    struct data_check *check;
    make_good(rig);
    assert_ok(rig->ctx, data_check_run(rig->ctx, rig->scratch.root, &options, &check));
    assert_true(counter.done == 6 && counter.total == 6);
    data_check_free(check);
    counter = (struct counter){.stop_at = 2};
    assert_int_equal(data_check_run(rig->ctx, rig->scratch.root, &options, &check), DER_CANCELLED);
    assert_null(check);
    assert_non_null(strstr(rig->ctx->error, "stopped after 2 of 6 images"));
}

static void test_every_allocation_can_fail(void **state)
{
    struct rig *rig = *state;
    struct mem *mem = &rig->ctx->mem;
    const struct check_options options = {0};
    make_bad(rig);
    struct data_check *want = run(rig, rig->scratch.root);
    uint64_t live = atomic_load(&mem->n_live);
    for (uint64_t at = 1;; at++) {
        struct data_check *check;
        uint64_t target = atomic_load(&mem->n_allocs) + at;
        atomic_store(&mem->fail_at, target);
        enum der_status status = data_check_run(rig->ctx, rig->scratch.root, &options, &check);
        atomic_store(&mem->fail_at, 0);
        if (atomic_load(&mem->n_allocs) < target) {
            assert_ok(rig->ctx, status);
            assert_int_equal(check->n, want->n);
            data_check_free(check);
            break;
        }
        assert_int_equal(status, DER_NOMEM);
        assert_null(check);
        assert_int_equal(atomic_load(&mem->n_live), live);
    }
    data_check_free(want);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_a_good_set_in_memory),
        CASE(test_a_good_folder_is_only_small),
        CASE(test_every_image_that_does_not_decode_is_named),
        CASE(test_test_pictures_that_are_trained_on_are_found),
        CASE(test_a_picture_under_two_classes_is_found),
        CASE(test_pictures_in_memory_are_compared_too),
        CASE(test_all_flaws_of_a_folder_are_named),
        CASE(test_all_wrong_lines_of_a_list_are_named),
        CASE(test_files_that_nothing_reads_are_named),
        CASE(test_folders_beside_train_and_val_are_named),
        CASE(test_a_folder_beside_train_alone_is_named),
        CASE(test_test_classes_that_are_not_trained_on_are_named),
        CASE(test_folders_beside_listed_images_are_named_once),
        CASE(test_names_that_no_model_can_hold_are_errors),
        CASE(test_unequal_classes_and_missing_tests_are_told),
        CASE(test_what_is_no_set_is_a_finding),
        CASE(test_threads_find_the_same_in_the_same_order),
        CASE(test_progress_is_told_and_heeded),
        CASE(test_every_allocation_can_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

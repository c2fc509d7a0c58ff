#include "data/dataset.h"

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

/* The readers do not open images, so empty files will do. */
static void touch(struct rig *rig, const char *name)
{
    scratch_text(&rig->scratch, name, "");
}

static struct dataset *open_it(struct rig *rig, const struct dataset_options *options)
{
    struct dataset *set;
    assert_ok(rig->ctx, dataset_open_with(rig->ctx, rig->scratch.root, options, &set));
    return set;
}

static void expect_failure(struct rig *rig, const struct dataset_options *options,
                           enum der_status wanted, const char *part)
{
    struct dataset *set;
    enum der_status status = dataset_open_with(rig->ctx, rig->scratch.root, options, &set);
    assert_null(set);
    if (status != wanted || !strstr(rig->ctx->error, part))
        fail_msg("status %d and \"%s\", want %d and \"%s\"", (int)status, rig->ctx->error,
                 (int)wanted, part);
}

/* Compares with lines "label file", the files relative to the folder. */
static void check_part(struct rig *rig, const struct data_part *part, const char *const *want,
                       int64_t n)
{
    assert_int_equal(part->n, n);
    assert_null(part->pixels);
    for (int64_t i = 0; i < n; i++) {
        char line[SCRATCH_PATH_MAX];
        const char *file = part->files[i];
        size_t root = strlen(rig->scratch.root);
        assert_memory_equal(file, rig->scratch.root, root);
        (void)snprintf(line, sizeof line, "%d %s", (int)part->labels[i], file + root + 1);
        assert_string_equal(line, want[i]);
    }
}

#define CHECK_PART(rig, set, split, ...)                                                           \
    do {                                                                                           \
        static const char *const want_[] = {__VA_ARGS__};                                          \
        check_part(rig, &(set)->part[split], want_, sizeof want_ / sizeof want_[0]);               \
    } while (0)

static void test_train_and_val_are_read_in_byte_order(void **state)
{
    struct rig *rig = *state;
    touch(rig, "train/b/2.png");
    touch(rig, "train/b/10.JPG");
    touch(rig, "train/b/notes.txt");
    touch(rig, "train/b/.hidden.jpg");
    touch(rig, "train/B/x.Jpeg");
    touch(rig, "train/a-1/y.jpeg");
    touch(rig, "train/.cache/z.jpg");
    touch(rig, "train/readme.md");
    touch(rig, "val/b/v.jpg");
    touch(rig, "val/B/v.jpg");
    touch(rig, "val/a-1/v.jpg");
    touch(rig, "test/ignored/v.jpg");
    struct dataset *set = open_it(rig, NULL);
    assert_string_equal(set->kind, "folder");
    assert_int_equal(set->n_classes, 3);
    assert_int_equal(set->channels, 3);
    assert_int_equal(set->height, 0);
    assert_string_equal(set->class_names[0], "B");
    assert_string_equal(set->class_names[1], "a-1");
    assert_string_equal(set->class_names[2], "b");
    CHECK_PART(rig, set, DATA_TRAIN, "0 train/B/x.Jpeg", "1 train/a-1/y.jpeg", "2 train/b/10.JPG",
               "2 train/b/2.png");
    CHECK_PART(rig, set, DATA_TEST, "0 val/B/v.jpg", "1 val/a-1/v.jpg", "2 val/b/v.jpg");
    dataset_free(set);
}

static void test_folder_named_test_will_do(void **state)
{
    struct rig *rig = *state;
    touch(rig, "train/a/1.png");
    touch(rig, "test/a/2.png");
    touch(rig, "test/other/2.png"); /* no class of train */
    struct dataset *set = open_it(rig, &(struct dataset_options){.channels = 1});
    assert_int_equal(set->channels, 1);
    CHECK_PART(rig, set, DATA_TEST, "0 test/a/2.png");
    dataset_free(set);
}

static void test_one_folder_of_classes_has_no_test_split(void **state)
{
    struct rig *rig = *state;
    touch(rig, "a/1.png");
    touch(rig, "b/2.png");
    struct dataset *set = open_it(rig, NULL);
    CHECK_PART(rig, set, DATA_TRAIN, "0 a/1.png", "1 b/2.png");
    assert_int_equal(set->part[DATA_TEST].n, 0);
    dataset_free(set);
}

static void make_synsets(struct rig *rig)
{
    touch(rig, "train/n01440764/n01440764_1.JPEG");
    touch(rig, "train/n01443537/n01443537_1.JPEG");
    touch(rig, "train/n01484850/n01484850_1.JPEG");
}

static void test_tiny_imagenet_layout(void **state)
{
    struct rig *rig = *state;
    touch(rig, "train/n01443537/images/n01443537_0.JPEG");
    scratch_text(&rig->scratch, "train/n01443537/n01443537_boxes.txt", "n01443537_0.JPEG\t0\t0");
    touch(rig, "train/n01629819/images/n01629819_0.JPEG");
    touch(rig, "val/images/val_0.JPEG");
    touch(rig, "val/images/val_1.JPEG");
    scratch_text(&rig->scratch, "val/val_annotations.txt",
                 "val_1.JPEG\tn01443537\t0\t32\t44\t62\nval_0.JPEG\tn01629819\t52\t55\t57\t59\n");
    touch(rig, "test/images/test_0.JPEG");
    struct dataset *set = open_it(rig, NULL);
    assert_string_equal(set->kind, "imagenet");
    CHECK_PART(rig, set, DATA_TRAIN, "0 train/n01443537/images/n01443537_0.JPEG",
               "1 train/n01629819/images/n01629819_0.JPEG");
    CHECK_PART(rig, set, DATA_TEST, "0 val/images/val_1.JPEG", "1 val/images/val_0.JPEG");
    dataset_free(set);
}

static void test_imagenet_with_a_list_of_numbers(void **state)
{
    struct rig *rig = *state;
    make_synsets(rig);
    touch(rig, "val/ILSVRC2012_val_00000001.JPEG");
    touch(rig, "val/ILSVRC2012_val_00000002.JPEG");
    touch(rig, "val/ILSVRC2012_val_00000003.JPEG");
    scratch_text(&rig->scratch, "val.txt",
                 "ILSVRC2012_val_00000001.JPEG 2\r\n\n"
                 "val/ILSVRC2012_val_00000002.JPEG  0\nILSVRC2012_val_00000003.JPEG 1");
    struct dataset *set = open_it(rig, NULL);
    CHECK_PART(rig, set, DATA_TEST, "2 val/ILSVRC2012_val_00000001.JPEG",
               "0 val/ILSVRC2012_val_00000002.JPEG", "1 val/ILSVRC2012_val_00000003.JPEG");
    dataset_free(set);
}

static void test_imagenet_with_a_table_of_synsets(void **state)
{
    struct rig *rig = *state;
    make_synsets(rig);
    touch(rig, "val/ILSVRC2012_val_00000001.JPEG");
    touch(rig, "val/ILSVRC2012_val_00000002.JPEG");
    scratch_text(&rig->scratch, "LOC_val_solution.csv",
                 "ImageId,PredictionString\nILSVRC2012_val_00000002,n01484850 85 1 499 272 \n"
                 "ILSVRC2012_val_00000001,n01440764 1 2 3 4 n01440764 5 6 7 8\n");
    struct dataset *set;
    /* Of the class in the middle there is no image, so choose the others. */
    scratch_text(&rig->scratch, "classes.txt", "n01484850\n\nn01440764/\n");
    char list[SCRATCH_PATH_MAX];
    (void)snprintf(list, sizeof list, "%s/classes.txt", rig->scratch.root);
    set = open_it(rig, &(struct dataset_options){.class_list = list});
    CHECK_PART(rig, set, DATA_TRAIN, "0 train/n01484850/n01484850_1.JPEG",
               "1 train/n01440764/n01440764_1.JPEG");
    CHECK_PART(rig, set, DATA_TEST, "0 val/ILSVRC2012_val_00000002.JPEG",
               "1 val/ILSVRC2012_val_00000001.JPEG");
    dataset_free(set);
}

static void test_first_classes_in_sorted_order(void **state)
{
    struct rig *rig = *state;
    make_synsets(rig);
    touch(rig, "val/n01440764/1.JPEG");
    touch(rig, "val/n01443537/2.JPEG");
    touch(rig, "val/n01484850/3.JPEG");
    struct dataset *set = open_it(rig, &(struct dataset_options){.first_classes = 2});
    assert_int_equal(set->n_classes, 2);
    CHECK_PART(rig, set, DATA_TRAIN, "0 train/n01440764/n01440764_1.JPEG",
               "1 train/n01443537/n01443537_1.JPEG");
    CHECK_PART(rig, set, DATA_TEST, "0 val/n01440764/1.JPEG", "1 val/n01443537/2.JPEG");
    dataset_free(set);
    expect_failure(rig, &(struct dataset_options){.first_classes = 4}, DER_FORMAT,
                   "has 3 class folders, want at least 4");
}

static void test_class_without_images_is_named(void **state)
{
    struct rig *rig = *state;
    touch(rig, "train/a/1.png");
    touch(rig, "train/b/notes.txt");
    expect_failure(rig, NULL, DER_FORMAT, "train/b has no images");
    scratch_mkdir(&rig->scratch, "train/b/images");
    expect_failure(rig, NULL, DER_FORMAT, "train/b/images has no images");
    touch(rig, "train/b/images/2.png");
    touch(rig, "val/a/3.png");
    expect_failure(rig, NULL, DER_IO, "val/b: No such file");
    scratch_mkdir(&rig->scratch, "val/b");
    expect_failure(rig, NULL, DER_FORMAT, "val/b has no images");
}

static void test_empty_train_folder_is_named(void **state)
{
    struct rig *rig = *state;
    scratch_mkdir(&rig->scratch, "train");
    expect_failure(rig, NULL, DER_FORMAT, "train holds no data set");
}

static void test_val_without_train_is_named(void **state)
{
    struct rig *rig = *state;
    touch(rig, "val/a/1.png");
    touch(rig, "val/b/2.png");
    expect_failure(rig, NULL, DER_FORMAT, "has no folder 'train'; to test with the classes of");
}

static void test_a_class_may_be_called_val(void **state)
{
    struct rig *rig = *state;
    touch(rig, "val/images/1.png");
    struct dataset *set = open_it(rig, NULL);
    CHECK_PART(rig, set, DATA_TRAIN, "0 val/images/1.png");
    dataset_free(set);
}

static void test_val_without_classes_and_list_is_named(void **state)
{
    struct rig *rig = *state;
    touch(rig, "train/a/1.png");
    touch(rig, "val/2.png");
    expect_failure(rig, NULL, DER_FORMAT, "val has no folder 'a'");
}

static void test_bad_lists_are_named_with_their_line(void **state)
{
    struct rig *rig = *state;
    static const struct {
        const char *text, *part;
    } bad[] = {
        {"2.png a\n3.png c\n", "val.txt: line 2: label 'c', want a folder of"},
        {"2.png 0\n3.png 2\n", "val.txt: line 2: label '2', want a folder of"},
        {"2.png 0\n3.png -1\n", "label '-1'"},
        {"2.png 99999999999999999999\n", "label '99999999999999999999'"},
        {"2.png\n", "val.txt: line 1 has one word"},
        {"4.png a\n", "val has no image '4.png'"},
        {"2.png a\n2.png b\n", "val.txt: line 2: image '2.png' appears twice"},
        {"2.png a\n3.png a\n", "val.txt names no image of class 'b'"},
        {"", "val.txt names no image of class 'a'"},
    };
    touch(rig, "train/a/1.png");
    touch(rig, "train/b/1.png");
    touch(rig, "val/2.png");
    touch(rig, "val/3.png");
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        scratch_text(&rig->scratch, "val.txt", bad[i].text);
        expect_failure(rig, NULL, DER_FORMAT, bad[i].part);
    }
    scratch_write(&rig->scratch, "val.txt", "2.png\0a\n", 8);
    expect_failure(rig, NULL, DER_FORMAT, "line 1 is not text");
    assert_int_equal(unlink(scratch_path(&rig->scratch, "val/2.png")), 0);
    assert_int_equal(unlink(scratch_path(&rig->scratch, "val/3.png")), 0);
    expect_failure(rig, NULL, DER_FORMAT, "val has no images");
}

static void test_bad_class_lists_are_named(void **state)
{
    struct rig *rig = *state;
    touch(rig, "train/a/1.png");
    touch(rig, "train/b/1.png");
    char list[SCRATCH_PATH_MAX];
    (void)snprintf(list, sizeof list, "%s/list", rig->scratch.root);
    const struct dataset_options options = {.class_list = list};
    expect_failure(rig, &options, DER_IO, "list: No such file");
    scratch_text(&rig->scratch, "list", "a\nb\na\n");
    expect_failure(rig, &options, DER_FORMAT, "list: line 3: class 'a' appears twice");
    scratch_text(&rig->scratch, "list", "a\nc\n");
    expect_failure(rig, &options, DER_FORMAT, "train has no class folder 'c'");
    scratch_text(&rig->scratch, "list", "\n");
    expect_failure(rig, &options, DER_FORMAT, "list names no class");
}

static void test_folder_without_permission_is_named(void **state)
{
    struct rig *rig = *state;
    touch(rig, "train/a/1.png");
    assert_int_equal(chmod(rig->scratch.root, 0755), 0);
    assert_int_equal(chmod(scratch_path(&rig->scratch, "train/a"), 0), 0);
    /* The superuser may read anything, so become nobody for a moment. */
    bool super = geteuid() == 0;
    if (super)
        assert_int_equal(seteuid(65534), 0);
    struct dataset *set;
    enum der_status status = dataset_open(rig->ctx, rig->scratch.root, &set);
    if (super)
        assert_int_equal(seteuid(0), 0);
    assert_int_equal(chmod(scratch_path(&rig->scratch, "train/a"), 0755), 0);
    assert_int_equal(status, DER_IO);
    assert_non_null(strstr(rig->ctx->error, "train/a: Permission denied"));
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(test_train_and_val_are_read_in_byte_order),
        CASE(test_folder_named_test_will_do),
        CASE(test_one_folder_of_classes_has_no_test_split),
        CASE(test_tiny_imagenet_layout),
        CASE(test_imagenet_with_a_list_of_numbers),
        CASE(test_imagenet_with_a_table_of_synsets),
        CASE(test_first_classes_in_sorted_order),
        CASE(test_class_without_images_is_named),
        CASE(test_empty_train_folder_is_named),
        CASE(test_val_without_train_is_named),
        CASE(test_a_class_may_be_called_val),
        CASE(test_val_without_classes_and_list_is_named),
        CASE(test_bad_lists_are_named_with_their_line),
        CASE(test_bad_class_lists_are_named),
        CASE(test_folder_without_permission_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * Data sets as a user opens them: every kind is recognised by its folder and read byte for byte,
 * and whatever goes wrong ends with one sentence and without a leak.
 */
#include "data/dataset.h"

#include "support/scratch.h"
#include "support/test_ctx.h"

#include "der_build.h"

#include <stdio.h>
#include <string.h>

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

static struct dataset *open_fixture(struct rig *rig, const char *name)
{
    char path[SCRATCH_PATH_MAX];
    struct dataset *set;
    fixture_path(path, name);
    assert_ok(rig->ctx, dataset_open(rig->ctx, path, &set));
    assert_string_equal(set->path, path);
    return set;
}

/* Opens a folder of the scratch; the sentence must hold both parts. */
static void expect_failure(struct rig *rig, const char *folder, enum der_status wanted,
                           const char *part, const char *other_part)
{
    struct dataset *set;
    enum der_status status = dataset_open(rig->ctx, scratch_path(&rig->scratch, folder), &set);
    assert_null(set);
    if (status != wanted || !strstr(rig->ctx->error, part) || !strstr(rig->ctx->error, other_part))
        fail_msg("status %d and \"%s\", want %d, \"%s\" and \"%s\"", (int)status, rig->ctx->error,
                 (int)wanted, part, other_part);
}

/* ---- CIFAR ----------------------------------------------------------------------------------- */

static void check_records(struct rig *rig, const struct data_part *part, int64_t index,
                          const char *file, size_t label_bytes)
{
    struct file_bytes bytes = fixture_read(rig->ctx, file);
    size_t record = label_bytes + 3072;
    for (size_t i = 0; i < bytes.size / record; i++) {
        const uint8_t *at = bytes.data + i * record;
        assert_int_equal(part->labels[(size_t)index + i], at[label_bytes - 1]);
        assert_memory_equal(part->pixels + ((size_t)index + i) * 3072, at + label_bytes, 3072);
    }
    file_bytes_free(&rig->ctx->mem, &bytes);
}

static void check_cifar100(struct rig *rig, const char *name)
{
    struct dataset *set = open_fixture(rig, name);
    assert_string_equal(set->kind, "cifar100");
    assert_int_equal(set->n_classes, 100);
    assert_int_equal(set->channels, 3);
    assert_int_equal(set->height, 32);
    assert_int_equal(set->width, 32);
    assert_string_equal(set->class_names[0], "fine 0");
    assert_string_equal(set->class_names[99], "fine 99");
    assert_int_equal(set->part[DATA_TRAIN].n, 2);
    assert_int_equal(set->part[DATA_TEST].n, 1);
    check_records(rig, &set->part[DATA_TRAIN], 0, "cifar100_bin/train.bin", 2);
    check_records(rig, &set->part[DATA_TEST], 0, "cifar100_bin/test.bin", 2);
    dataset_free(set);
}

static void check_cifar10(struct rig *rig, const char *name)
{
    struct dataset *set = open_fixture(rig, name);
    assert_string_equal(set->kind, "cifar10");
    assert_int_equal(set->n_classes, 10);
    assert_string_equal(set->class_names[0], "airplane");
    assert_string_equal(set->class_names[9], "truck");
    assert_int_equal(set->part[DATA_TRAIN].n, 5);
    for (int i = 0; i < 5; i++) {
        char file[64];
        (void)snprintf(file, sizeof file, "cifar10_bin/data_batch_%d.bin", i + 1);
        check_records(rig, &set->part[DATA_TRAIN], i, file, 1);
    }
    assert_int_equal(set->part[DATA_TEST].n, 1);
    check_records(rig, &set->part[DATA_TEST], 0, "cifar10_bin/test_batch.bin", 1);
    dataset_free(set);
}

static void test_cifar_100_binary(void **state)
{
    check_cifar100(*state, "cifar100_bin");
}

static void test_cifar_100_python(void **state)
{
    check_cifar100(*state, "cifar100_py");
}

static void test_cifar_10_binary(void **state)
{
    check_cifar10(*state, "cifar10_bin");
}

static void test_cifar_10_python(void **state)
{
    check_cifar10(*state, "cifar10_py");
}

static void test_folder_above_an_unpacked_archive_will_do(void **state)
{
    struct rig *rig = *state;
    scratch_copy(&rig->scratch, "cifar-100-binary/train.bin", "cifar100_bin/train.bin");
    scratch_copy(&rig->scratch, "cifar-100-binary/test.bin", "cifar100_bin/test.bin");
    struct dataset *set;
    assert_ok(rig->ctx, dataset_open(rig->ctx, rig->scratch.root, &set));
    assert_int_equal(set->part[DATA_TRAIN].n, 2);
    assert_string_equal(set->class_names[42], "42"); /* without a file of names */
    dataset_free(set);
}

static void test_bad_cifar_files_are_named(void **state)
{
    struct rig *rig = *state;
    struct scratch *scratch = &rig->scratch;
    struct file_bytes train = fixture_read(rig->ctx, "cifar100_bin/train.bin");
    scratch_write(scratch, "a/train.bin", train.data, train.size);
    expect_failure(rig, "a", DER_IO, "a/test.bin", "No such file");
    scratch_copy(scratch, "a/test.bin", "cifar100_bin/test.bin");
    scratch_write(scratch, "a/train.bin", train.data, train.size - 1);
    expect_failure(rig, "a", DER_FORMAT, "a/train.bin has 6147 bytes", "records of 3074 bytes");
    scratch_write(scratch, "a/train.bin", train.data, 0);
    expect_failure(rig, "a", DER_FORMAT, "a/train.bin has 0 bytes", "CIFAR-100");
    train.data[3074 + 1] = 100;
    scratch_write(scratch, "a/train.bin", train.data, train.size);
    expect_failure(rig, "a", DER_FORMAT, "a/train.bin: record 1 has label 100", "want 0..99");
    file_bytes_free(&rig->ctx->mem, &train);
    scratch_text(scratch, "a/fine_label_names.txt", "apple\napple\n");
    expect_failure(rig, "a", DER_FORMAT, "fine_label_names.txt has 2 class names", "want 100");
    scratch_copy(scratch, "b/data_batch_1.bin", "cifar10_bin/data_batch_1.bin");
    expect_failure(rig, "b", DER_IO, "b/data_batch_2.bin", "No such file");
    scratch_text(scratch, "b/batches.meta.txt", "a\nb\nc\nd\ne\nf\ng\nh\ni\na\n");
    expect_failure(rig, "b", DER_FORMAT, "batches.meta.txt", "class 'a' appears twice");
}

static void test_bad_pickles_are_named(void **state)
{
    struct rig *rig = *state;
    struct scratch *scratch = &rig->scratch;
    scratch_copy(scratch, "a/train", "cifar10_py/data_batch_1");
    expect_failure(rig, "a", DER_FORMAT, "a/train", "no list under 'fine_labels'");
    scratch_text(scratch, "a/train", "hello");
    expect_failure(rig, "a", DER_FORMAT, "a/train", "not a Python pickle");
    scratch_copy(scratch, "a/train", "cifar100_py/meta");
    expect_failure(rig, "a", DER_FORMAT, "a/train", "no array of bytes under 'data'");
    scratch_copy(scratch, "a/train", "cifar100_py/train");
    scratch_copy(scratch, "a/test", "cifar100_py/test");
    scratch_copy(scratch, "a/meta", "cifar10_py/batches.meta");
    expect_failure(rig, "a", DER_FORMAT, "a/meta", "no list under 'fine_label_names'");
    struct file_bytes train = fixture_read(rig->ctx, "cifar100_py/train");
    for (size_t i = 0; i + 2 < train.size; i++)
        if (train.data[i] == 'K' && train.data[i + 1] == 99)
            train.data[i + 1] = 100; /* the second label */
    scratch_copy(scratch, "a/meta", "cifar100_py/meta");
    scratch_write(scratch, "a/train", train.data, train.size);
    expect_failure(rig, "a", DER_FORMAT, "a/train: image 1 has label 100", "want 0..99");
    file_bytes_free(&rig->ctx->mem, &train);
}

/* ---- IDX ------------------------------------------------------------------------------------- */

static void check_idx(struct rig *rig, const char *name)
{
    struct dataset *set = open_fixture(rig, name);
    assert_string_equal(set->kind, "idx");
    assert_int_equal(set->n_classes, 4);
    assert_string_equal(set->class_names[3], "3");
    assert_int_equal(set->channels, 1);
    assert_int_equal(set->height, 5);
    assert_int_equal(set->width, 6);
    static const char *const files[] = {"idx_plain/train-images-idx3-ubyte",
                                        "idx_plain/t10k-images-idx3-ubyte"};
    static const int64_t counts[] = {7, 3};
    for (int split = 0; split < DATA_SPLITS; split++) {
        const struct data_part *part = &set->part[split];
        struct file_bytes bytes = fixture_read(rig->ctx, files[split]);
        assert_int_equal(part->n, counts[split]);
        assert_memory_equal(part->pixels, bytes.data + 16, bytes.size - 16);
        for (int i = 0; i < part->n; i++)
            assert_int_equal(part->labels[i], i % 4);
        file_bytes_free(&rig->ctx->mem, &bytes);
    }
    dataset_free(set);
}

static void test_idx_plain(void **state)
{
    check_idx(*state, "idx_plain");
}

static void test_idx_gzip(void **state)
{
    if (!DER_HAVE_ZLIB)
        skip();
    check_idx(*state, "idx_gzip");
}

static void copy_idx(struct rig *rig, const char *folder)
{
    static const char *const names[] = {"train-images-idx3-ubyte", "train-labels-idx1-ubyte",
                                        "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"};
    for (int i = 0; i < 4; i++) {
        char from[64];
        char to[64];
        (void)snprintf(from, sizeof from, "idx_plain/%s", names[i]);
        (void)snprintf(to, sizeof to, "%s/%s", folder, names[i]);
        scratch_copy(&rig->scratch, to, from);
    }
}

static void test_bad_idx_files_are_named(void **state)
{
    struct rig *rig = *state;
    static const char images[] = "a/train-images-idx3-ubyte";
    static const char labels[] = "a/train-labels-idx1-ubyte";
    copy_idx(rig, "a");
    struct file_bytes good = fixture_read(rig->ctx, "idx_plain/train-images-idx3-ubyte");
    scratch_write(&rig->scratch, images, good.data, good.size - 1);
    expect_failure(rig, "a", DER_FORMAT, images, "ends after 209 of 210 bytes of pixels");
    scratch_write(&rig->scratch, images, good.data, 15);
    expect_failure(rig, "a", DER_FORMAT, images, "15 of 16 bytes of header");
    scratch_write(&rig->scratch, images, good.data, good.size + 1); /* with the zero behind */
    expect_failure(rig, "a", DER_FORMAT, images, "longer than its header says");
    memset(good.data + 4, 0xFF, 4);
    scratch_write(&rig->scratch, images, good.data, good.size);
    expect_failure(rig, "a", DER_FORMAT, images, "too short for 4294967295 images");
    memset(good.data + 8, 0x7F, 8);
    scratch_write(&rig->scratch, images, good.data, good.size);
    expect_failure(rig, "a", DER_FORMAT, images, "want 1..65535 a side");
    scratch_copy(&rig->scratch, images, "idx_plain/train-labels-idx1-ubyte");
    expect_failure(rig, "a", DER_FORMAT, images, "15 of 16");
    file_bytes_free(&rig->ctx->mem, &good);

    copy_idx(rig, "a");
    scratch_copy(&rig->scratch, labels, "idx_plain/t10k-labels-idx1-ubyte");
    expect_failure(rig, "a", DER_FORMAT, labels, "has 3 labels, want 7");
    scratch_copy(&rig->scratch, labels, "idx_plain/train-images-idx3-ubyte");
    expect_failure(rig, "a", DER_FORMAT, labels, "0x00000803, want 0x00000801");
    scratch_copy(&rig->scratch, labels, "idx_plain/train-labels-idx1-ubyte");
    scratch_write(&rig->scratch, "a/t10k-labels-idx1-ubyte", "\0\0\x08\x01\0\0\0\3\0\4\1", 11);
    expect_failure(rig, "a", DER_FORMAT, "t10k-labels-idx1-ubyte: image 1 has label 4",
                   "want 0..3");
}

static void test_bad_gzip_files_are_named(void **state)
{
    if (!DER_HAVE_ZLIB)
        skip();
    struct rig *rig = *state;
    static const char images[] = "a/train-images-idx3-ubyte";
    copy_idx(rig, "a");
    struct file_bytes good = fixture_read(rig->ctx, "idx_gzip/train-images.idx3-ubyte.gz");
    scratch_write(&rig->scratch, images, good.data, good.size / 2);
    expect_failure(rig, "a", DER_FORMAT, images, "cut off");
    scratch_write(&rig->scratch, images, good.data, good.size - 1); /* within the checksum */
    expect_failure(rig, "a", DER_FORMAT, images, "cut off");
    good.data[good.size - 6] ^= 1;
    scratch_write(&rig->scratch, images, good.data, good.size);
    expect_failure(rig, "a", DER_FORMAT, images, "damaged");
    file_bytes_free(&rig->ctx->mem, &good);
}

/* ---- any kind -------------------------------------------------------------------------------- */

static void test_what_is_no_data_set_is_told(void **state)
{
    struct rig *rig = *state;
    expect_failure(rig, "absent", DER_IO, "absent", "No such file");
    scratch_text(&rig->scratch, "file", "text");
    expect_failure(rig, "file", DER_FORMAT, "file is not a folder", "folder of a data set");
    scratch_mkdir(&rig->scratch, "empty");
    expect_failure(rig, "empty", DER_FORMAT, "empty holds no data set", "want CIFAR");
}

static void test_bad_options_are_refused(void **state)
{
    struct rig *rig = *state;
    struct dataset *set;
    const struct dataset_options channels = {.channels = 2};
    const struct dataset_options first = {.first_classes = -1};
    assert_int_equal(dataset_open_with(rig->ctx, "synth", &channels, &set), DER_ARG);
    assert_int_equal(dataset_open_with(rig->ctx, "synth", &first, &set), DER_ARG);
    dataset_free(NULL);
}

static void make_image_folders(struct rig *rig)
{
    scratch_text(&rig->scratch, "images/train/a/1.jpg", "");
    scratch_text(&rig->scratch, "images/train/b/images/2.jpg", "");
    scratch_text(&rig->scratch, "images/val/images/3.jpg", "");
    scratch_text(&rig->scratch, "images/val/images/4.jpg", "");
    scratch_text(&rig->scratch, "images/val/val_annotations.txt", "3.jpg\ta\n4.jpg\tb\n");
    scratch_text(&rig->scratch, "images/classes.txt", "b\na\n");
}

/* Every kind there is, for the fault loops. Returns how many. */
static int list_kinds(struct rig *rig, char paths[][SCRATCH_PATH_MAX])
{
    static const char *const fixtures[] = {"cifar100_bin", "cifar10_py", "idx_plain", "idx_gzip"};
    int n = 0;
    for (int i = 0; i < (DER_HAVE_ZLIB ? 4 : 3); i++)
        fixture_path(paths[n++], fixtures[i]);
    (void)snprintf(paths[n++], SCRATCH_PATH_MAX, "synth:train=1,test=1,size=8");
    make_image_folders(rig);
    (void)snprintf(paths[n++], SCRATCH_PATH_MAX, "%s/images", rig->scratch.root);
    return n;
}

enum { KINDS_MAX = 6 };

static void test_lack_of_memory_leaks_nothing(void **state)
{
    struct rig *rig = *state;
    struct mem *mem = &rig->ctx->mem;
    char paths[KINDS_MAX][SCRATCH_PATH_MAX];
    int n = list_kinds(rig, paths);
    char list[SCRATCH_PATH_MAX];
    (void)snprintf(list, sizeof list, "%s/images/classes.txt", rig->scratch.root);
    const struct dataset_options options = {.class_list = list};
    for (int i = 0; i < n; i++) {
        bool failed = true;
        for (uint64_t k = 1; failed; k++) {
            struct dataset *set;
            atomic_store(&mem->fail_at, atomic_load(&mem->n_allocs) + k);
            enum der_status status = dataset_open_with(rig->ctx, paths[i], &options, &set);
            failed = atomic_load(&mem->n_allocs) >= atomic_load(&mem->fail_at);
            atomic_store(&mem->fail_at, 0);
            assert_int_equal(status, failed ? DER_NOMEM : DER_OK);
            dataset_free(set);
            assert_int_equal(atomic_load(&mem->n_live), 0);
        }
    }
}

static void test_read_errors_anywhere_are_told(void **state)
{
    struct rig *rig = *state;
    char paths[KINDS_MAX][SCRATCH_PATH_MAX];
    int n = list_kinds(rig, paths);
    struct faulty_reads reads;
    struct file_io io = faulty_io(&reads);
    const struct dataset_options options = {.io = &io};
    for (int i = 0; i < n; i++) {
        struct dataset *set;
        reads = (struct faulty_reads){.most = 1000};
        assert_ok(rig->ctx, dataset_open_with(rig->ctx, paths[i], &options, &set));
        dataset_free(set);
        int n_calls = reads.n_calls;
        for (int k = 1; k <= n_calls; k++) {
            reads = (struct faulty_reads){.most = 1000, .fail_at = k};
            assert_int_equal(dataset_open_with(rig->ctx, paths[i], &options, &set), DER_IO);
            assert_non_null(strstr(rig->ctx->error, paths[i]));
            assert_non_null(strstr(rig->ctx->error, "Input/output error"));
            assert_int_equal(atomic_load(&rig->ctx->mem.n_live), 0);
        }
    }
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(test_cifar_100_binary),
        CASE(test_cifar_100_python),
        CASE(test_cifar_10_binary),
        CASE(test_cifar_10_python),
        CASE(test_folder_above_an_unpacked_archive_will_do),
        CASE(test_bad_cifar_files_are_named),
        CASE(test_bad_pickles_are_named),
        CASE(test_idx_plain),
        CASE(test_idx_gzip),
        CASE(test_bad_idx_files_are_named),
        CASE(test_bad_gzip_files_are_named),
        CASE(test_what_is_no_data_set_is_told),
        CASE(test_bad_options_are_refused),
        CASE(test_lack_of_memory_leaks_nothing),
        CASE(test_read_errors_anywhere_are_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * Album and basis files: pictures and numbers come back as they were, and hand-made faults are refused with a
 * sentence.
 */
#include "store/album_file.h"

#include "data/collection.h"
#include "store/basis_file.h"
#include "store/companion.h"
#include "store/tensor_list.h"
#include "support/file_fixture.h"

#include <stdio.h>
#include <string.h>

static const uint64_t MODEL = UINT64_C(0x0123456789abcdef);

#define GOOD_TEXT                                                                                  \
    "{\"format\":1,\"model\":\"0123456789abcdef\",\"channels\":1,\"classes\":[\"cat\",\"dog\"]}"

static struct dataset *new_album(struct der_ctx *ctx)
{
    struct dataset *album;
    uint8_t bytes[3 * 4 * 5];
    int32_t label;
    assert_ok(ctx, collection_new(ctx, "album", "test", 3, &album));
    for (int k = 0; k < 3; k++) {
        static const char *const names[] = {"cat", "d\u00f6g", "owl"};
        assert_ok(ctx, collection_class(album, names[k], &label));
        for (int i = 0; i < 2 + k; i++) {
            for (size_t b = 0; b < sizeof bytes; b++)
                bytes[b] = (uint8_t)(b + 60u * (unsigned)k + 7u * (unsigned)i);
            struct image_view picture = collection_view(bytes, 3, 4 - k, 5 - i % 2);
            assert_ok(ctx, collection_add(album, i == 0 ? DATA_TEST : DATA_TRAIN, label, &picture));
        }
    }
    return album;
}

static void test_an_album_comes_back_byte_for_byte(void **state)
{
    struct file_fixture *f = *state;
    struct dataset *album = new_album(f->ctx);
    struct dataset *back;
    uint64_t model;
    char path[SCRATCH_PATH_MAX];
    (void)snprintf(path, sizeof path, "%s", scratch_path(&f->scratch, "album"));
    assert_ok(f->ctx, album_write(album, MODEL, NULL, path));
    assert_ok(f->ctx, companion_peek(f->ctx, NULL, path, &model));
    assert_true(model == MODEL);
    assert_ok(f->ctx, album_read(f->ctx, NULL, path, &back));
    assert_int_equal(back->channels, 3);
    assert_int_equal(back->n_classes, 3);
    assert_string_equal(back->class_names[1], "d\u00f6g");
    for (int split = 0; split < DATA_SPLITS; split++) {
        assert_int_equal(back->part[split].n, album->part[split].n);
        for (int64_t i = 0; i < album->part[split].n; i++) {
            struct image_view a = dataset_view(album, (enum data_split)split, i);
            struct image_view b = dataset_view(back, (enum data_split)split, i);
            assert_int_equal(a.height, b.height);
            assert_int_equal(a.width, b.width);
            assert_int_equal(album->part[split].labels[i], back->part[split].labels[i]);
            assert_memory_equal(a.data, b.data, (size_t)a.height * (size_t)a.width * 3);
        }
    }
    dataset_free(back);
    dataset_free(album);
}

/* ---- faults -------------------------------------------------------------------------------------- */

/* Tensors of an album of two grey pictures, 1 x 2 and 2 x 1, none held out. */
struct content {
    const char *text;
    int32_t labels[2], sizes[4];
    int n_labels, n_sizes, n_columns, n_bytes;
    bool has_more; /* a seventh tensor */
};

static const struct content GOOD = {.text = GOOD_TEXT,
                                    .labels = {0, 1},
                                    .sizes = {1, 2, 2, 1},
                                    .n_labels = 2,
                                    .n_sizes = 2,
                                    .n_columns = 2,
                                    .n_bytes = 4};

static const char *write_content(struct file_fixture *f, const struct content *c)
{
    static const uint8_t pixels[16] = {1, 2, 3, 4};
    const char *path = scratch_path(&f->scratch, "album");
    struct safetensors_writer *writer;
    struct tensor_list list;
    tensor_list_init(&list, f->ctx);
    const enum safetensors_dtype whole = SAFETENSORS_I32;
    assert_ok(f->ctx, tensor_list_add(&list, "kept.labels", whole, c->n_labels, -1, c->labels));
    assert_ok(f->ctx,
              tensor_list_add(&list, "kept.sizes", whole, c->n_sizes, c->n_columns, c->sizes));
    assert_ok(f->ctx, tensor_list_add(&list, "held.labels", whole, 0, -1, c->labels));
    assert_ok(f->ctx, tensor_list_add(&list, "held.sizes", whole, 0, 2, c->sizes));
    assert_ok(f->ctx,
              tensor_list_add(&list, "kept.pixels", SAFETENSORS_U8, c->n_bytes, -1, pixels));
    assert_ok(f->ctx, tensor_list_add(&list, "held.pixels", SAFETENSORS_U8, 0, -1, pixels));
    if (c->has_more)
        assert_ok(f->ctx, tensor_list_add(&list, "more", SAFETENSORS_U8, 1, -1, pixels));
    assert_ok(f->ctx, safetensors_writer_new(f->ctx, NULL, path, &writer));
    assert_ok(f->ctx, safetensors_describe(writer, STORE_METADATA_KEY, c->text));
    assert_ok(f->ctx, tensor_list_write(&list, writer));
    assert_ok(f->ctx, safetensors_commit(writer));
    tensor_list_fini(&list);
    return path;
}

static void assert_refused(struct file_fixture *f, const struct content *content,
                           const char *sentence)
{
    struct dataset *album;
    const char *path = write_content(f, content);
    assert_int_equal(album_read(f->ctx, NULL, path, &album), DER_FORMAT);
    assert_null(album);
    if (!strstr(f->ctx->error, sentence))
        fail_msg("'%s' does not say '%s'", f->ctx->error, sentence);
}

static void test_every_fault_of_an_album_has_its_sentence(void **state)
{
    struct file_fixture *f = *state;
    struct dataset *album;
    assert_ok(f->ctx, album_read(f->ctx, NULL, write_content(f, &GOOD), &album));
    assert_int_equal(album->part[DATA_TRAIN].n, 2);
    dataset_free(album);
#define FAULT(sentence, ...)                                                                       \
    do {                                                                                           \
        struct content c = GOOD;                                                                   \
        __VA_ARGS__;                                                                               \
        assert_refused(f, &c, sentence);                                                           \
    } while (0)
    FAULT("has 7 tensors, want 6", c.has_more = true);
    FAULT("labels rise and lie below 2", c.labels[1] = 2);
    FAULT("labels rise and lie below 2", c.labels[0] = -1);
    FAULT("labels rise and lie below 2", c.labels[0] = 1; c.labels[1] = 0);
    FAULT("no list of 1 heights and widths", c.n_labels = 1);
    FAULT("no list of 2 heights and widths", c.n_sizes = 4; c.n_columns = 1);
    FAULT("picture 1 of 0 x 1 does not fit", c.sizes[1] = 0);
    FAULT("picture 2 of 1 x -2 does not fit", c.sizes[2] = -2);
    FAULT("picture 2 of 1 x 3 does not fit", c.sizes[2] = 3);
    FAULT("picture 1 of 65536 x 1 does not fit", c.sizes[1] = 65536);
    FAULT("5 bytes of pixels, the pictures have 4", c.n_bytes = 5);
    FAULT("format 2", c.text = "{\"format\":2}");
    FAULT("'channels' is missing",
          c.text = "{\"format\":1,\"model\":\"0123456789abcdef\",\"classes\":[\"cat\",\"dog\"]}");
    FAULT("2 channels", c.text = "{\"format\":1,\"model\":\"0123456789abcdef\",\"channels\":2,"
                                 "\"classes\":[\"cat\",\"dog\"]}");
    FAULT("not a fingerprint", c.text = "{\"format\":1,\"model\":\"0123456789ABCDEF\","
                                        "\"channels\":1,\"classes\":[\"cat\",\"dog\"]}");
    FAULT("there are no classes", c.text = "{\"format\":1,\"model\":\"0123456789abcdef\","
                                           "\"channels\":1,\"classes\":[]}");
    FAULT("occurs twice", c.text = "{\"format\":1,\"model\":\"0123456789abcdef\",\"channels\":1,"
                                   "\"classes\":[\"cat\",\"cat\"]}");
    FAULT("no member", c.text = "{\"format\":1,\"model\":\"0123456789abcdef\",\"channels\":1,"
                                "\"classes\":[\"cat\",\"dog\"],\"more\":1}");
#undef FAULT
}

static void test_an_album_without_memory_leaves_nothing(void **state)
{
    struct file_fixture *f = *state;
    const char *path = write_content(f, &GOOD);
    uint64_t live = der_ctx_memory(f->ctx).n_live;
    int n_failed = 0;
    for (uint64_t k = 1;; k++) {
        struct dataset *album;
        atomic_store(&f->ctx->mem.fail_at, atomic_load(&f->ctx->mem.n_allocs) + k);
        enum der_status status = album_read(f->ctx, NULL, path, &album);
        atomic_store(&f->ctx->mem.fail_at, 0);
        dataset_free(album);
        assert_int_equal(der_ctx_memory(f->ctx).n_live, live);
        if (status == DER_OK)
            break;
        assert_int_equal(status, DER_NOMEM);
        n_failed++;
    }
    assert_true(n_failed > 5);
}

/* ---- bases --------------------------------------------------------------------------------------- */

static void test_a_basis_comes_back_or_is_refused(void **state)
{
    struct file_fixture *f = *state;
    struct backend *be;
    struct resnet_spec spec;
    struct basis back;
    struct basis basis = {.memory = 1000000000, .target_params = INT64_C(1) << 40};
    float a[1024];
    float b[1024];
    char path[SCRATCH_PATH_MAX];
    (void)snprintf(path, sizeof path, "%s", scratch_path(&f->scratch, "basis"));
    assert_ok(f->ctx, backend_open(f->ctx, "ref", NULL, &be));
    assert_ok(f->ctx, resnet_spec_init(f->ctx, &spec, "resnet32", 1, 8, 8, 0.0625));
    assert_ok(f->ctx, extractor_new(be, &spec, &basis.last_full));
    assert_ok(f->ctx, param_set_init(basis.last_full->params, 1, 1));
    uint64_t marks[] = {5, 6, UINT64_MAX};
    basis.trained = (struct picture_set){.marks = marks, .n = 3};
    assert_ok(f->ctx, basis_write(&basis, MODEL, NULL, path));
    assert_ok(f->ctx, basis_read(be, NULL, path, &spec, &back));
    assert_int_equal(back.trained.n, 3);
    assert_memory_equal(back.trained.marks, marks, sizeof marks);
    assert_int_equal(back.memory, 1000000000);
    assert_true(back.target_params == basis.target_params);
    for (int i = 0; i < basis.last_full->params->n; i++) {
        assert_ok(f->ctx, param_read(basis.last_full->params, i, a));
        assert_ok(f->ctx, param_read(back.last_full->params, i, b));
        size_t n = (size_t)shape_count(basis.last_full->params->items[i].shape);
        assert_memory_equal(a, b, n * sizeof *a);
    }
    basis_fini(&back);

    marks[1] = marks[0];
    assert_ok(f->ctx, basis_write(&basis, MODEL, NULL, path));
    assert_int_equal(basis_read(be, NULL, path, &spec, &back), DER_FORMAT);
    assert_non_null(strstr(f->ctx->error, "'trained.pictures' do not rise"));
    marks[1]++;

    struct resnet_spec other = spec; /* a network that the file does not have */
    other.in_channels = 3;
    assert_int_equal(basis_read(be, NULL, path, &other, &back), DER_FORMAT);
    assert_null(back.last_full);
    a[0] = -1.0F; /* a variance below 0 */
    assert_ok(f->ctx, param_write(basis.last_full->params, LAYER_VAR, a));
    assert_ok(f->ctx, basis_write(&basis, MODEL, NULL, path));
    assert_int_equal(basis_read(be, NULL, path, &spec, &back), DER_FORMAT);
    assert_non_null(strstr(f->ctx->error, "last_full.bn1.running_var' holds a negative variance"));
    basis.memory = 0;
    assert_ok(f->ctx, basis_write(&basis, MODEL, NULL, path));
    assert_int_equal(basis_read(be, NULL, path, &spec, &back), DER_FORMAT);
    assert_non_null(strstr(f->ctx->error, "memory"));
    basis_fini(&basis);
    backend_close(be);
}

int main(void)
{
#define TEST(name)                                                                                 \
    cmocka_unit_test_setup_teardown(name, file_fixture_set_up, file_fixture_tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_an_album_comes_back_byte_for_byte),
        TEST(test_every_fault_of_an_album_has_its_sentence),
        TEST(test_an_album_without_memory_leaves_nothing),
        TEST(test_a_basis_comes_back_or_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

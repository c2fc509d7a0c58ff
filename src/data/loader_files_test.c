/* The loader on image files: Pillow's bytes, any number of threads, files that do not decode. */
/* labels: tsan */
#include "data/loader.h"

#include "support/case_file.h"
#include "support/test_ctx.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "der_build.h"

enum { N_FILES = 5, N = 40, CROP = 28, FLOATS = 3 * CROP * CROP, PATH_CHARS = 512, LINES_MAX = 8 };

/* What the log callback was told. */
struct log {
    int n;
    char lines[LINES_MAX][CTX_ERROR_MAX];
};

/* A set of N samples over the five image files, of which tests replace some by bad ones. */
struct fixture {
    struct der_ctx *ctx;
    struct log log;
    struct dataset set;
    struct augment_spec spec; /* squash to 32, crop 28 */
    struct data_view *view;
    char paths[N_FILES][PATH_CHARS];
    char broken[PATH_CHARS];
    char *files[N];
    int32_t labels[N];
};

static void keep_line(void *user, enum der_log_level level, const char *text)
{
    struct log *log = user;
    assert_int_equal(level, DER_LOG_WARNING);
    if (log->n < LINES_MAX)
        snprintf(log->lines[log->n], sizeof log->lines[0], "%s", text);
    log->n++;
}

static int set_up(void **state)
{
    static struct fixture f;
    static const char *const names[N_FILES] = {"a.png", "b.png", "c.jpg", "d.jpg", "e.jpg"};
    static char path[] = "test files";
    f = (struct fixture){.spec = {.geometry = AUGMENT_SQUASH,
                                  .channels = 3,
                                  .height = CROP,
                                  .width = CROP,
                                  .resize = 32,
                                  .std = {1, 1, 1}}};
    struct der_ctx_options options = {.threads = 1, .log = keep_line, .log_user = &f.log};
    assert_int_equal(der_ctx_new(&options, &f.ctx), DER_OK);
    for (int i = 0; i < N_FILES; i++)
        snprintf(f.paths[i], PATH_CHARS, "%s/data/fixtures/augment/%s", DER_TESTS_DIR, names[i]);
    snprintf(f.broken, PATH_CHARS, "%s/data/fixtures/augment/orders.txt", DER_TESTS_DIR);
    for (int i = 0; i < N; i++) {
        f.files[i] = f.paths[i % N_FILES];
        f.labels[i] = i % 4;
    }
    f.set =
        (struct dataset){.ctx = f.ctx, .kind = "test", .path = path, .channels = 3, .n_classes = 4};
    f.set.part[DATA_TEST] = (struct data_part){.n = N, .labels = f.labels, .files = f.files};
    assert_ok(f.ctx, view_new(f.ctx, N, &f.view));
    for (int i = 0; i < N; i++)
        f.view->items[i] = (struct view_item){.sample = i, .label = i % 4};
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

static struct loader_options options_of(const struct fixture *f, enum loader_mode mode, int threads)
{
    return (struct loader_options){.set = &f->set,
                                   .view = f->view,
                                   .augment = &f->spec,
                                   .split = DATA_TEST,
                                   .mode = mode,
                                   .batch = 16,
                                   .threads = threads,
                                   .seed = 5};
}

struct record {
    float images[N * FLOATS];
    int64_t samples[N];
    int32_t labels[N];
    int n;
};

/* Collects an epoch until its end or its first failure, which is returned. */
static enum der_status record_epoch(const struct loader_options *options, struct der_ctx *ctx,
                                    struct record *record, int64_t *n_bad)
{
    struct loader *loader;
    memset(record, 0, sizeof *record);
    assert_ok(ctx, loader_new(ctx, options, &loader));
    enum der_status status = DER_OK;
    for (uint32_t epoch = 0; epoch < 2 && status == DER_OK; epoch++) {
        const struct batch *batch;
        record->n = 0;
        status = loader_start(loader, epoch, 0);
        while (status == DER_OK) {
            status = loader_next(loader, &batch);
            if (status != DER_OK || !batch)
                break;
            memcpy(record->images + (size_t)record->n * FLOATS, batch->images,
                   (size_t)batch->n * FLOATS * sizeof *batch->images);
            memcpy(record->samples + record->n, batch->samples, (size_t)batch->n * sizeof(int64_t));
            memcpy(record->labels + record->n, batch->labels, (size_t)batch->n * sizeof(int32_t));
            record->n += batch->n;
        }
    }
    if (n_bad)
        *n_bad = loader_bad(loader);
    loader_free(loader);
    return status;
}

static struct record *record_new(void)
{
    struct record *record = malloc(sizeof *record);
    assert_non_null(record);
    return record;
}

static void test_png_files_become_what_pillow_and_torchvision_make(void **state)
{
    struct fixture *f = *state;
    struct loader_options options = options_of(f, LOADER_EVAL, 2);
    struct record *record = record_new();
    assert_ok(f->ctx, record_epoch(&options, f->ctx, record, NULL));
    struct case_file file = case_open("test_transforms");
    const uint8_t *want = case_data(&file, 2 * FLOATS); /* its first two cases are a.png, b.png */
    for (int i = 0; i < 2 * FLOATS; i++)
        assert_true(record->images[i] == (float)want[i] / 255.0f);
    free(file.text);
    free(file.bytes);
    free(record);
}

static void test_threads_do_not_change_a_byte(void **state)
{
    struct fixture *f = *state;
    static const int threads[] = {0, 1, 8};
    f->spec = *augment_preset("imagenet-train");
    f->spec.height = CROP;
    f->spec.width = CROP;
    struct record *records[3];
    for (int i = 0; i < 3; i++) {
        struct loader_options options = options_of(f, LOADER_TRAIN, threads[i]);
        records[i] = record_new();
        assert_ok(f->ctx, record_epoch(&options, f->ctx, records[i], NULL));
        assert_int_equal(records[i]->n, N);
    }
    assert_memory_equal(records[0], records[1], sizeof *records[0]);
    assert_memory_equal(records[0], records[2], sizeof *records[0]);
    for (int i = 0; i < 3; i++)
        free(records[i]);
}

static void test_stop_names_the_first_bad_file_in_batch_order(void **state)
{
    struct fixture *f = *state;
    char missing[] = "no/such/picture.jpg";
    f->files[7] = f->broken;
    f->files[9] = missing;
    struct record *record = record_new();
    for (int threads = 0; threads <= 8; threads += 4) {
        struct loader_options options = options_of(f, LOADER_EVAL, threads);
        assert_int_not_equal(record_epoch(&options, f->ctx, record, NULL), DER_OK);
        assert_non_null(strstr(der_ctx_error(f->ctx), "orders.txt"));
    }
    free(record);
}

static void test_skipping_shortens_an_evaluation(void **state)
{
    struct fixture *f = *state;
    char missing[] = "no/such/picture.jpg";
    f->files[7] = f->broken;
    f->files[15] = missing;
    for (int i = 16; i < 32; i++)
        f->files[i] = missing; /* a whole batch */
    struct loader_options options = options_of(f, LOADER_EVAL, 3);
    options.bad_images = BAD_IMAGES_SKIP;
    struct record *record = record_new();
    int64_t n_bad;
    assert_ok(f->ctx, record_epoch(&options, f->ctx, record, &n_bad));
    assert_int_equal(n_bad, 18);
    assert_int_equal(f->log.n, 18); /* once each, in two epochs */
    assert_non_null(strstr(f->log.lines[0], "orders.txt"));
    assert_non_null(strstr(f->log.lines[1], "no/such/picture.jpg"));
    assert_int_equal(record->n, N - 18);
    for (int row = 0; row < record->n; row++) {
        int sample = row < 7 ? row : row < 14 ? row + 1 : row + 18;
        assert_int_equal(record->samples[row], sample);
        assert_int_equal(record->labels[row], sample % 4);
    }
    free(record);
}

static void test_skipping_repeats_the_next_good_row_in_training(void **state)
{
    struct fixture *f = *state;
    struct record *whole = record_new();
    struct record *records[2];
    static const int threads[2] = {0, 8};
    struct loader_options options = options_of(f, LOADER_TRAIN, 2);
    assert_ok(f->ctx, record_epoch(&options, f->ctx, whole, NULL));
    /* Rows 3, 4 of the first batch and the last one of it, whose successor is the first. */
    f->files[whole->samples[3]] = f->broken;
    f->files[whole->samples[4]] = f->broken;
    f->files[whole->samples[15]] = f->broken;
    for (int i = 0; i < 2; i++) {
        int64_t n_bad;
        options = options_of(f, LOADER_TRAIN, threads[i]);
        options.bad_images = BAD_IMAGES_SKIP;
        records[i] = record_new();
        assert_ok(f->ctx, record_epoch(&options, f->ctx, records[i], &n_bad));
        assert_int_equal(n_bad, 3);
        assert_int_equal(records[i]->n, N);
    }
    assert_memory_equal(records[0], records[1], sizeof *records[0]);
    static const int source[16] = {0, 1, 2, 5, 5, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 0};
    for (int row = 0; row < 16; row++) {
        assert_int_equal(records[0]->samples[row], whole->samples[source[row]]);
        assert_int_equal(records[0]->labels[row], whole->labels[source[row]]);
        assert_memory_equal(records[0]->images + row * FLOATS, whole->images + source[row] * FLOATS,
                            FLOATS * sizeof(float));
    }
    free(records[0]);
    free(records[1]);
    free(whole);
}

static void test_training_fails_when_a_whole_batch_is_bad(void **state)
{
    struct fixture *f = *state;
    for (int i = 0; i < N; i++)
        f->files[i] = f->broken;
    struct loader_options options = options_of(f, LOADER_TRAIN, 3);
    options.bad_images = BAD_IMAGES_SKIP;
    struct record *record = record_new();
    assert_int_equal(record_epoch(&options, f->ctx, record, NULL), DER_FORMAT);
    assert_non_null(strstr(der_ctx_error(f->ctx), "none of the 16 images of batch 1"));
    free(record);
}

static void test_a_file_of_another_size_is_bad_where_nothing_is_resized(void **state)
{
    struct fixture *f = *state;
    f->spec.geometry = AUGMENT_PLAIN;
    struct loader_options options = options_of(f, LOADER_EVAL, 0);
    struct record *record = record_new();
    assert_int_equal(record_epoch(&options, f->ctx, record, NULL), DER_SHAPE);
    assert_non_null(strstr(der_ctx_error(f->ctx), "a.png is an image of 50x67"));
    free(record);
}

static ssize_t failing_read(void *user, int fd, void *dst, size_t n)
{
    (void)user;
    (void)fd;
    (void)dst;
    (void)n;
    errno = EIO;
    return -1;
}

static void test_read_errors_reach_the_consumer(void **state)
{
    struct fixture *f = *state;
    static const struct file_io io = {.read = failing_read};
    struct loader_options options = options_of(f, LOADER_EVAL, 2);
    options.io = &io;
    struct record *record = record_new();
    assert_int_equal(record_epoch(&options, f->ctx, record, NULL), DER_IO);
    assert_non_null(strstr(der_ctx_error(f->ctx), "a.png"));
    free(record);
}

static void test_memory_failures_leave_nothing(void **state)
{
    struct fixture *f = *state;
    uint64_t live = der_ctx_memory(f->ctx).n_live;
    enum der_status status = DER_NOMEM;
    for (uint64_t n = 1; status == DER_NOMEM; n++) {
        struct loader *loader;
        const struct batch *batch = NULL;
        struct loader_options options = options_of(f, LOADER_EVAL, 0);
        options.bad_images = BAD_IMAGES_SKIP; /* lack of memory is no property of a file */
        atomic_store(&f->ctx->mem.fail_at, atomic_load(&f->ctx->mem.n_allocs) + n);
        status = loader_new(f->ctx, &options, &loader);
        if (status == DER_OK)
            status = loader_start(loader, 0, 0);
        do {
            if (status == DER_OK)
                status = loader_next(loader, &batch);
        } while (batch && status == DER_OK);
        loader_free(loader);
        assert_int_equal(der_ctx_memory(f->ctx).n_live, live);
        assert_true(n < 200);
    }
    assert_int_equal(status, DER_OK);
    assert_int_equal(f->log.n, 0);
    atomic_store(&f->ctx->mem.fail_at, 0);
}

#define WITH_FILES(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

static void test_needs_jpeg_and_png(void **state)
{
    (void)state;
    skip();
}

int main(void)
{
    const struct CMUnitTest no_tests[] = {cmocka_unit_test(test_needs_jpeg_and_png)};
    if (!DER_HAVE_JPEG || !DER_HAVE_PNG)
        return cmocka_run_group_tests(no_tests, NULL, NULL);
    const struct CMUnitTest tests[] = {
        WITH_FILES(test_png_files_become_what_pillow_and_torchvision_make),
        WITH_FILES(test_threads_do_not_change_a_byte),
        WITH_FILES(test_stop_names_the_first_bad_file_in_batch_order),
        WITH_FILES(test_skipping_shortens_an_evaluation),
        WITH_FILES(test_skipping_repeats_the_next_good_row_in_training),
        WITH_FILES(test_training_fails_when_a_whole_batch_is_bad),
        WITH_FILES(test_a_file_of_another_size_is_bad_where_nothing_is_resized),
        WITH_FILES(test_read_errors_reach_the_consumer),
        WITH_FILES(test_memory_failures_leave_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

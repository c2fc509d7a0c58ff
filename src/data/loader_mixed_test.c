/* The loader on sets whose images lie in memory, in files and with the owner of the set, in any size and
 * layout: rows are those of the files that all of them come from. */
/* labels: tsan */
#include "data/loader.h"

#include "data/image_file.h"
#include "support/scratch.h"
#include "support/test_ctx.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "der_build.h"

enum { N_FILES = 5, N = 30, CROP = 28, FLOATS = 3 * CROP * CROP, BATCH = 8 };

/* How a picture lies in memory. */
enum layout { INTERLEAVED, PLANES, WITH_GAPS, LAYOUTS };

/* N samples over five pictures of different sizes. */
struct fixture {
    struct der_ctx *ctx;
    struct dataset set;
    struct data_view *view;
    struct augment_spec spec;
    char paths[N_FILES][SCRATCH_PATH_MAX];
    struct image_view pictures[N_FILES][LAYOUTS];
    uint8_t *bytes[N_FILES][LAYOUTS];
    struct data_item items[N];
    int32_t labels[N];
    atomic_int n_read, n_done; /* calls of the source */
    int missing;               /* sample that the source does not have; -1: none */
};

static struct image_view view_of(const uint8_t *data, int height, int width, enum layout layout)
{
    struct image_view view = {.data = data, .channels = 3, .height = height, .width = width};
    switch (layout) {
    case PLANES:
        view.channel_stride = (ptrdiff_t)height * width;
        view.row_stride = width;
        view.pixel_stride = 1;
        break;
    case WITH_GAPS: /* as a camera's four bytes a pixel, with rows that end in something else */
        view.channel_stride = 1;
        view.pixel_stride = 4;
        view.row_stride = 4 * (ptrdiff_t)width + 12;
        break;
    default:
        view.channel_stride = 1;
        view.pixel_stride = 3;
        view.row_stride = 3 * (ptrdiff_t)width;
    }
    return view;
}

static void keep(struct fixture *f, int file, enum layout layout, const struct image_view *from)
{
    size_t size = ((size_t)from->width * 4 + 12) * (size_t)from->height;
    uint8_t *bytes = malloc(size);
    assert_non_null(bytes);
    memset(bytes, 0xA5, size);
    struct image_view to = view_of(bytes, from->height, from->width, layout);
    for (int c = 0; c < 3; c++)
        for (int y = 0; y < from->height; y++)
            for (int x = 0; x < from->width; x++)
                bytes[c * to.channel_stride + y * to.row_stride + x * to.pixel_stride] =
                    from->data[c * from->channel_stride + y * from->row_stride +
                               x * from->pixel_stride];
    f->bytes[file][layout] = bytes;
    f->pictures[file][layout] = to;
}

static void decode_all(struct fixture *f)
{
    struct image_decoder decoder;
    struct image_view view;
    image_decoder_init(&decoder, &f->ctx->mem);
    for (int i = 0; i < N_FILES; i++) {
        assert_int_equal(image_load(&decoder, f->paths[i]), DER_OK);
        assert_int_equal(image_decode(&decoder, 3, IMAGE_SCALE_FULL, NULL, &view), DER_OK);
        for (int layout = 0; layout < LAYOUTS; layout++)
            keep(f, i, layout, &view);
    }
    image_decoder_fini(&decoder);
}

static int set_up(void **state)
{
    static struct fixture f;
    static const char *const names[N_FILES] = {"a.png", "b.png", "c.jpg", "d.jpg", "e.jpg"};
    static char path[] = "a mixture";
    f = (struct fixture){.ctx = test_ctx_new(1),
                         .missing = -1,
                         .spec = {.geometry = AUGMENT_SQUASH,
                                  .channels = 3,
                                  .height = CROP,
                                  .width = CROP,
                                  .resize = 32,
                                  .std = {1, 1, 1}}};
    for (int i = 0; i < N_FILES; i++)
        snprintf(f.paths[i], sizeof f.paths[i], "%s/data/fixtures/augment/%s", DER_TESTS_DIR,
                 names[i]);
    decode_all(&f);
    f.set = (struct dataset){.ctx = f.ctx, .kind = "test", .path = path, .channels = 3};
    f.set.part[DATA_TEST] = (struct data_part){.n = N, .labels = f.labels, .items = f.items};
    assert_ok(f.ctx, view_new(f.ctx, N, &f.view));
    for (int i = 0; i < N; i++) {
        f.view->items[i] = (struct view_item){.sample = i};
        f.items[i] = (struct data_item){.place = DATA_IN_FILE, .file = f.paths[i % N_FILES]};
    }
    *state = &f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    for (int i = 0; i < N_FILES; i++)
        for (int layout = 0; layout < LAYOUTS; layout++)
            free(f->bytes[i][layout]);
    view_free(f->view);
    test_ctx_free(f->ctx);
    return 0;
}

/* The rows of an epoch of evaluation; how many there are. */
static int record(struct fixture *f, enum bad_images bad_images, int threads, float *images,
                  int64_t *n_bad)
{
    struct loader_options options = {.set = &f->set,
                                     .view = f->view,
                                     .augment = &f->spec,
                                     .split = DATA_TEST,
                                     .mode = LOADER_EVAL,
                                     .bad_images = bad_images,
                                     .batch = BATCH,
                                     .threads = threads,
                                     .seed = 5};
    struct loader *loader;
    const struct batch *batch;
    size_t floats = (size_t)f->spec.channels * CROP * CROP; /* of a row */
    int n = 0;
    assert_ok(f->ctx, loader_new(f->ctx, &options, &loader));
    assert_ok(f->ctx, loader_start(loader, 0, 0));
    for (;;) {
        assert_ok(f->ctx, loader_next(loader, &batch));
        if (!batch)
            break;
        memcpy(images + (size_t)n * floats, batch->images,
               (size_t)batch->n * floats * sizeof *images);
        n += batch->n;
    }
    *n_bad = loader_bad(loader);
    loader_free(loader);
    return n;
}

static float *rows_new(void)
{
    float *rows = malloc((size_t)N * FLOATS * sizeof *rows);
    assert_non_null(rows);
    return rows;
}

/* Hands out the pictures of the fixture, every layout in turn. */
static bool read_picture(void *user, enum data_split split, int64_t index, struct image_view *image)
{
    struct fixture *f = user;
    assert_int_equal(split, DATA_TEST);
    if (index == f->missing)
        return false;
    atomic_fetch_add(&f->n_read, 1);
    *image = f->pictures[index % N_FILES][index % LAYOUTS];
    return true;
}

static void done_with_picture(void *user, const struct image_view *image)
{
    struct fixture *f = user;
    assert_non_null(image->data);
    atomic_fetch_add(&f->n_done, 1);
}

static void mix(struct fixture *f)
{
    f->set.source =
        (struct data_source){.read = read_picture, .done = done_with_picture, .user = f};
    for (int i = 0; i < N; i++) {
        struct data_item *item = &f->items[i];
        if (i % 3 == 1)
            *item = (struct data_item){.place = DATA_IN_MEMORY,
                                       .image = f->pictures[i % N_FILES][i / 3 % LAYOUTS]};
        else if (i % 3 == 2)
            *item = (struct data_item){.place = DATA_FROM_SOURCE};
    }
}

static void test_rows_do_not_depend_on_where_images_lie(void **state)
{
    struct fixture *f = *state;
    float *want = rows_new();
    float *got = rows_new();
    int64_t n_bad;
    assert_int_equal(record(f, BAD_IMAGES_STOP, 0, want, &n_bad), N);
    mix(f);
    for (int threads = 0; threads <= 4; threads += 2) {
        memset(got, 0, (size_t)N * FLOATS * sizeof *got);
        assert_int_equal(record(f, BAD_IMAGES_STOP, threads, got, &n_bad), N);
        assert_memory_equal(got, want, (size_t)N * FLOATS * sizeof *got);
    }
    assert_int_equal(f->n_read, 3 * (N / 3));
    assert_int_equal(f->n_done, f->n_read);
    free(want);
    free(got);
}

static void test_files_that_were_decoded_before_give_the_same_training_rows(void **state)
{
    struct fixture *f = *state;
    float *want = rows_new();
    float *got = rows_new();
    int64_t n_bad;
    f->spec.geometry = AUGMENT_RESIZED_CROP; /* which decodes no more than its crop */
    f->spec.min_area = 0.2;
    f->spec.max_area = 1.0;
    f->spec.min_ratio = 0.75;
    f->spec.max_ratio = 4.0 / 3.0;
    f->spec.flip = true;
    record(f, BAD_IMAGES_STOP, 0, want, &n_bad);
    mix(f);
    record(f, BAD_IMAGES_STOP, 2, got, &n_bad);
    assert_memory_equal(got, want, (size_t)N * FLOATS * sizeof *got);
    free(want);
    free(got);
}

static void test_an_image_that_the_owner_lacks_is_bad(void **state)
{
    struct fixture *f = *state;
    float *rows = rows_new();
    int64_t n_bad;
    mix(f);
    f->missing = 5;
    assert_int_equal(record(f, BAD_IMAGES_SKIP, 2, rows, &n_bad), N - 1);
    assert_int_equal(n_bad, 1);
    assert_int_equal(f->n_done, f->n_read);
    free(rows);
}

/* Without resizing only images of the right size can be used: that is found row by row. */
static void test_images_of_other_sizes_are_bad_where_nothing_is_resized(void **state)
{
    struct fixture *f = *state;
    float *rows = rows_new();
    int64_t n_bad;
    struct image_view small = f->pictures[0][INTERLEAVED];
    f->spec.geometry = AUGMENT_PLAIN;
    mix(f);
    small.height = CROP;
    small.width = CROP;
    f->items[4] = (struct data_item){.place = DATA_IN_MEMORY, .image = small};
    int n = record(f, BAD_IMAGES_SKIP, 0, rows, &n_bad);
    assert_int_equal(n, 1);
    assert_int_equal(n_bad, N - 1);
    assert_int_equal(f->n_done, f->n_read);
    free(rows);
}

static void test_grey_becomes_colour_and_colour_grey(void **state)
{
    struct fixture *f = *state;
    float *want = rows_new();
    float *got = rows_new();
    int64_t n_bad;
    struct image_view picture = f->pictures[1][PLANES];
    /* A plane of its own, the same one taken for three, and one with gaps. */
    struct image_view grey = picture;
    grey.channels = 1;
    struct image_view alike = picture;
    alike.channel_stride = 0;
    struct image_view sparse = f->pictures[1][WITH_GAPS];
    sparse.channels = 1;
    f->set.part[DATA_TEST].n = f->view->n = 3;
    const struct image_view views[] = {alike, grey, sparse};
    for (int i = 0; i < 3; i++)
        f->items[i] = (struct data_item){.place = DATA_IN_MEMORY, .image = views[i]};
    record(f, BAD_IMAGES_STOP, 0, got, &n_bad);
    for (int i = 1; i < 3; i++)
        assert_memory_equal(got + (size_t)i * FLOATS, got, FLOATS * sizeof *got);

    f->spec.channels = f->set.channels = 1; /* and the decoder's grey */
    f->items[0] = (struct data_item){.place = DATA_IN_FILE, .file = f->paths[1]};
    f->items[1].image = f->pictures[1][PLANES];
    f->items[2].image = f->pictures[1][WITH_GAPS];
    record(f, BAD_IMAGES_STOP, 0, want, &n_bad);
    for (int i = 1; i < 3; i++)
        assert_memory_equal(want + (size_t)i * CROP * CROP, want, CROP * CROP * sizeof *want);
    free(want);
    free(got);
    f->view->n = N;
}

static void test_memory_failures_leave_nothing(void **state)
{
    struct fixture *f = *state;
    enum der_status status = DER_NOMEM;
    mix(f);
    uint64_t live = der_ctx_memory(f->ctx).n_live;
    for (uint64_t n = 1; status == DER_NOMEM; n++) {
        struct loader_options options = {.set = &f->set,
                                         .view = f->view,
                                         .augment = &f->spec,
                                         .split = DATA_TEST,
                                         .mode = LOADER_EVAL,
                                         .bad_images = BAD_IMAGES_SKIP,
                                         .batch = N};
        struct loader *loader;
        const struct batch *batch;
        atomic_store(&f->ctx->mem.fail_at, atomic_load(&f->ctx->mem.n_allocs) + n);
        status = loader_new(f->ctx, &options, &loader);
        if (status == DER_OK)
            status = loader_start(loader, 0, 0);
        if (status == DER_OK)
            status = loader_next(loader, &batch);
        loader_free(loader);
        assert_int_equal(der_ctx_memory(f->ctx).n_live, live);
        assert_int_equal(f->n_done, f->n_read);
        assert_true(n < 200);
    }
    assert_int_equal(status, DER_OK);
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
        WITH_FILES(test_rows_do_not_depend_on_where_images_lie),
        WITH_FILES(test_files_that_were_decoded_before_give_the_same_training_rows),
        WITH_FILES(test_an_image_that_the_owner_lacks_is_bad),
        WITH_FILES(test_images_of_other_sizes_are_bad_where_nothing_is_resized),
        WITH_FILES(test_grey_becomes_colour_and_colour_grey),
        WITH_FILES(test_memory_failures_leave_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The loader: right rows, the same ones for any number of threads, and clean ends. */
/* labels: tsan */
#include "data/loader.h"

#include "data/sampler.h"
#include "support/case_file.h"
#include "support/test_ctx.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIDE = 16, N = 150, BATCH = 32, FLOATS = 3 * SIDE * SIDE };

/* A set in memory of N small pictures in five classes, and all of it as a view. */
struct fixture {
    struct der_ctx *ctx;
    struct dataset set;
    struct augment_spec spec;
    struct data_view *view;
    uint8_t *pixels;
    int32_t labels[N];
};

static int set_up(void **state)
{
    static struct fixture f;
    f.ctx = test_ctx_new(1);
    f.pixels = case_picture(N * 3, SIDE, SIDE, 9);
    static char path[] = "test set";
    f.set = (struct dataset){.ctx = f.ctx,
                             .kind = "test",
                             .path = path,
                             .channels = 3,
                             .height = SIDE,
                             .width = SIDE,
                             .n_classes = 5};
    f.set.part[DATA_TRAIN] = (struct data_part){.n = N, .labels = f.labels, .pixels = f.pixels};
    f.spec = *augment_preset("cifar100-train");
    f.spec.height = SIDE;
    f.spec.width = SIDE;
    assert_ok(f.ctx, view_new(f.ctx, N, &f.view));
    for (int i = 0; i < N; i++) {
        f.labels[i] = i % 5;
        f.view->items[i] = (struct view_item){.sample = N - 1 - i, .label = (N - 1 - i) % 5};
    }
    *state = &f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    view_free(f->view);
    free(f->pixels);
    test_ctx_free(f->ctx);
    return 0;
}

static struct loader_options options_of(const struct fixture *f, enum loader_mode mode, int threads)
{
    return (struct loader_options){.set = &f->set,
                                   .view = f->view,
                                   .augment = &f->spec,
                                   .split = DATA_TRAIN,
                                   .mode = mode,
                                   .batch = BATCH,
                                   .threads = threads,
                                   .seed = 77};
}

/* Everything that an epoch delivers, row after row. */
struct record {
    float images[N * FLOATS];
    int32_t labels[N];
    int64_t samples[N];
    int n;
    int n_batches;
};

static void record_epoch(struct der_ctx *ctx, struct loader *loader, uint32_t epoch, int64_t first,
                         struct record *record)
{
    memset(record, 0, sizeof *record);
    assert_ok(ctx, loader_start(loader, epoch, first));
    for (;;) {
        const struct batch *batch;
        assert_ok(ctx, loader_next(loader, &batch));
        if (!batch)
            break;
        assert_int_equal(batch->number, first + record->n_batches);
        assert_true(record->n + batch->n <= N);
        memcpy(record->images + (size_t)record->n * FLOATS, batch->images,
               (size_t)batch->n * FLOATS * sizeof *batch->images);
        memcpy(record->labels + record->n, batch->labels, (size_t)batch->n * sizeof(int32_t));
        memcpy(record->samples + record->n, batch->samples, (size_t)batch->n * sizeof(int64_t));
        record->n += batch->n;
        record->n_batches++;
    }
}

static struct record *record_new(void)
{
    struct record *record = malloc(sizeof *record);
    assert_non_null(record);
    return record;
}

static void test_rows_are_augmented_samples_in_epoch_order(void **state)
{
    struct fixture *f = *state;
    struct loader *loader;
    struct loader_options options = options_of(f, LOADER_TRAIN, 2);
    assert_ok(f->ctx, loader_new(f->ctx, &options, &loader));
    assert_int_equal(loader_batches(loader), 5);
    struct record *record = record_new();
    record_epoch(f->ctx, loader, 3, 0, record);
    assert_int_equal(record->n, N);

    struct sampler sampler;
    struct augment augment;
    assert_ok(f->ctx, sampler_init(f->ctx, N, BATCH, true, &sampler));
    sampler_epoch(&sampler, 77, 3);
    assert_ok(f->ctx, augment_init(f->ctx, &f->spec, &augment));
    for (int row = 0; row < N; row++) {
        struct view_item item = f->view->items[sampler.order[row]];
        assert_int_equal(record->samples[row], item.sample);
        assert_int_equal(record->labels[row], item.label);
        struct augment_draw draw = augment_draw(&f->spec, 77, 3, item.sample);
        struct augment_source source =
            augment_full_size(dataset_view(&f->set, DATA_TRAIN, item.sample));
        float want[FLOATS];
        assert_int_equal(augment_apply(&augment, &draw, &source, NULL, want), DER_OK);
        assert_memory_equal(record->images + (size_t)row * FLOATS, want, sizeof want);
    }
    sampler_fini(&sampler);
    free(record);
    loader_free(loader);
}

static void test_threads_do_not_change_a_byte(void **state)
{
    struct fixture *f = *state;
    static const int threads[] = {0, 1, 8};
    struct record *records[3];
    for (int i = 0; i < 3; i++) {
        struct loader *loader;
        struct loader_options options = options_of(f, LOADER_TRAIN, threads[i]);
        options.n_buffers = 2 + i;
        assert_ok(f->ctx, loader_new(f->ctx, &options, &loader));
        records[i] = record_new();
        record_epoch(f->ctx, loader, 0, 0, records[i]);
        record_epoch(f->ctx, loader, 1, 0, records[i]);
        loader_free(loader);
    }
    assert_memory_equal(records[0], records[1], sizeof *records[0]);
    assert_memory_equal(records[0], records[2], sizeof *records[0]);
    for (int i = 0; i < 3; i++)
        free(records[i]);
}

static void test_an_epoch_can_be_entered_at_any_batch(void **state)
{
    struct fixture *f = *state;
    struct loader *loader;
    struct loader_options options = options_of(f, LOADER_TRAIN, 3);
    assert_ok(f->ctx, loader_new(f->ctx, &options, &loader));
    struct record *whole = record_new();
    struct record *part = record_new();
    record_epoch(f->ctx, loader, 4, 0, whole);
    for (int64_t first = 1; first <= 5; first++) {
        record_epoch(f->ctx, loader, 4, first, part);
        int skipped = first < 5 ? (int)first * BATCH : N;
        assert_int_equal(part->n, N - skipped);
        assert_memory_equal(part->images, whole->images + (size_t)skipped * FLOATS,
                            (size_t)part->n * FLOATS * sizeof *part->images);
    }
    free(part);
    free(whole);
    loader_free(loader);
}

static void test_evaluation_keeps_the_order_and_every_item(void **state)
{
    struct fixture *f = *state;
    struct loader *loader;
    struct loader_options options = options_of(f, LOADER_EVAL, 2);
    options.batch = N - 1;
    assert_ok(f->ctx, loader_new(f->ctx, &options, &loader));
    struct record *record = record_new();
    record_epoch(f->ctx, loader, 0, 0, record);
    assert_int_equal(record->n_batches, 2);
    for (int i = 0; i < N; i++)
        assert_int_equal(record->samples[i], N - 1 - i);
    loader_free(loader);
    options.mode = LOADER_TRAIN;
    assert_ok(f->ctx, loader_new(f->ctx, &options, &loader));
    assert_int_equal(loader_batches(loader), 1);
    loader_free(loader);
    free(record);
}

static void test_a_running_loader_takes_no_memory(void **state)
{
    struct fixture *f = *state;
    for (int threads = 0; threads < 3; threads += 2) {
        struct loader *loader;
        struct loader_options options = options_of(f, LOADER_TRAIN, threads);
        assert_ok(f->ctx, loader_new(f->ctx, &options, &loader));
        struct record *record = record_new();
        uint64_t n_allocs = der_ctx_memory(f->ctx).n_allocs;
        record_epoch(f->ctx, loader, 0, 0, record);
        record_epoch(f->ctx, loader, 1, 0, record);
        assert_int_equal(der_ctx_memory(f->ctx).n_allocs, n_allocs);
        free(record);
        loader_free(loader);
    }
}

static void test_a_loader_can_be_restarted_and_freed_at_any_time(void **state)
{
    struct fixture *f = *state;
    struct record *want = record_new();
    struct record *got = record_new();
    for (int n_taken = 0; n_taken < 6; n_taken++) {
        struct loader *loader;
        struct loader_options options = options_of(f, LOADER_TRAIN, 3);
        assert_ok(f->ctx, loader_new(f->ctx, &options, &loader));
        record_epoch(f->ctx, loader, 8, 0, want);
        const struct batch *batch;
        assert_ok(f->ctx, loader_start(loader, 9, 0));
        for (int i = 0; i < n_taken; i++)
            assert_ok(f->ctx, loader_next(loader, &batch));
        record_epoch(f->ctx, loader, 8, 0, got);
        assert_memory_equal(want, got, sizeof *want);
        assert_ok(f->ctx, loader_next(loader, &batch));
        assert_null(batch);
        assert_ok(f->ctx, loader_start(loader, 10, 0));
        for (int i = 0; i < n_taken; i++)
            assert_ok(f->ctx, loader_next(loader, &batch));
        loader_free(loader);
    }
    free(want);
    free(got);
}

static void test_nothing_comes_before_an_epoch_begins(void **state)
{
    struct fixture *f = *state;
    struct loader *loader;
    struct loader_options options = options_of(f, LOADER_TRAIN, 1);
    const struct batch *batch;
    assert_ok(f->ctx, loader_new(f->ctx, &options, &loader));
    assert_ok(f->ctx, loader_next(loader, &batch));
    assert_null(batch);
    loader_free(loader);
}

static void *cancel_later(void *argument)
{
    loader_cancel(argument);
    return NULL;
}

/* Another thread cancels while batches are taken without end. */
static void test_cancelling_ends_the_waiting(void **state)
{
    struct fixture *f = *state;
    for (int threads = 0; threads < 4; threads++) {
        struct loader *loader;
        struct loader_options options = options_of(f, LOADER_TRAIN, threads);
        assert_ok(f->ctx, loader_new(f->ctx, &options, &loader));
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, cancel_later, loader), 0);
        enum der_status status = DER_OK;
        for (uint32_t epoch = 0; status == DER_OK; epoch++) {
            const struct batch *batch = NULL;
            status = loader_start(loader, epoch, 0);
            do {
                if (status == DER_OK)
                    status = loader_next(loader, &batch);
            } while (batch && status == DER_OK);
        }
        assert_int_equal(status, DER_CANCELLED);
        pthread_join(thread, NULL);
        const struct batch *batch;
        assert_int_equal(loader_next(loader, &batch), DER_CANCELLED);
        assert_int_equal(loader_start(loader, 0, 0), DER_CANCELLED);
        loader_free(loader);
    }
}

static void test_sets_that_do_not_suit_the_augmentation_are_refused(void **state)
{
    struct fixture *f = *state;
    struct loader *loader;
    struct augment_spec spec = f->spec;
    struct loader_options options = options_of(f, LOADER_TRAIN, 1);
    options.augment = &spec;
    spec.channels = 1;
    assert_int_equal(loader_new(f->ctx, &options, &loader), DER_ARG);
    assert_non_null(strstr(der_ctx_error(f->ctx), "1 channels, test set has 3"));
    spec = f->spec;
    spec.geometry = AUGMENT_PLAIN;
    spec.height = SIDE + 1;
    assert_int_equal(loader_new(f->ctx, &options, &loader), DER_ARG);
    assert_non_null(strstr(der_ctx_error(f->ctx), "makes 17x16 without resizing"));
    spec = f->spec;
    spec.std[0] = 0;
    assert_int_equal(loader_new(f->ctx, &options, &loader), DER_ARG);
    assert_null(loader);
}

static void test_memory_failures_leave_nothing(void **state)
{
    struct fixture *f = *state;
    struct augment_spec spec = f->spec;
    spec.geometry = AUGMENT_SQUASH; /* takes memory while it runs */
    spec.resize = SIDE;
    uint64_t live = der_ctx_memory(f->ctx).n_live;
    for (int threads = 0; threads < 3; threads += 2) {
        enum der_status status = DER_NOMEM;
        for (uint64_t n = 1; status == DER_NOMEM; n++) {
            struct loader *loader;
            const struct batch *batch = NULL;
            struct loader_options options = options_of(f, LOADER_TRAIN, threads);
            options.augment = &spec;
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
    }
    atomic_store(&f->ctx->mem.fail_at, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_are_augmented_samples_in_epoch_order),
        cmocka_unit_test(test_threads_do_not_change_a_byte),
        cmocka_unit_test(test_an_epoch_can_be_entered_at_any_batch),
        cmocka_unit_test(test_evaluation_keeps_the_order_and_every_item),
        cmocka_unit_test(test_a_running_loader_takes_no_memory),
        cmocka_unit_test(test_a_loader_can_be_restarted_and_freed_at_any_time),
        cmocka_unit_test(test_nothing_comes_before_an_epoch_begins),
        cmocka_unit_test(test_cancelling_ends_the_waiting),
        cmocka_unit_test(test_sets_that_do_not_suit_the_augmentation_are_refused),
        cmocka_unit_test(test_memory_failures_leave_nothing),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}

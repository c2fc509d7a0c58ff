/*
 * The training loop on the procedural image set: it learns, follows its schedule, trains on tails,
 * stops when told to or when numbers run away, and repeats itself to the byte.
 */
/* labels: first */
#include "data/order.h"
#include "support/supervised.h"
#include "support/test_backend.h"
#include "support/test_ctx.h"

#include <math.h>
#include <string.h>

enum { SIZE = 16, CLASSES = 4, BATCH = 16 };

struct fixture {
    struct der_ctx *ctx;
    struct backend *be;
    struct dataset *set;
    struct class_order *order;
    struct data_view *train, *test;
    struct augment_spec augment;
};

static int setup(void **state)
{
    static struct fixture f;
    f = (struct fixture){.ctx = test_ctx_new(2)};
    assert_ok(f.ctx, backend_open(f.ctx, test_backend(), NULL, &f.be));
    assert_ok(f.ctx,
              dataset_open(f.ctx, "synth:classes=4,train=25,test=20,size=16,seed=1", &f.set));
    const int32_t natural[CLASSES] = {0, 1, 2, 3};
    assert_ok(f.ctx, order_from_array(f.ctx, "test", natural, CLASSES, &f.order));
    assert_ok(f.ctx, view_classes(f.ctx, &f.set->part[DATA_TRAIN], f.order, 0, CLASSES, &f.train));
    assert_ok(f.ctx, view_classes(f.ctx, &f.set->part[DATA_TEST], f.order, 0, CLASSES, &f.test));
    f.augment = *augment_preset("cifar100-test");
    f.augment.height = f.augment.width = SIZE;
    *state = &f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    view_free(f->train);
    view_free(f->test);
    order_free(f->order);
    dataset_free(f->set);
    backend_close(f->be);
    test_ctx_free(f->ctx);
    return 0;
}

static struct loader_options data_of(struct fixture *f, enum data_split split)
{
    return (struct loader_options){.set = f->set,
                                   .view = split == DATA_TRAIN ? f->train : f->test,
                                   .augment = &f->augment,
                                   .split = split,
                                   .mode = split == DATA_TRAIN ? LOADER_TRAIN : LOADER_EVAL,
                                   .batch = BATCH,
                                   .threads = 1,
                                   .seed = 3};
}

static struct supervised *new_model(struct fixture *f)
{
    struct supervised_options options = {
        .n_classes = CLASSES, .momentum = 0.9f, .decay = 5e-4f, .seed = 7};
    struct supervised *model;
    assert_ok(f->ctx,
              resnet_spec_init(f->ctx, &options.spec, "resnet18-cifar", 3, SIZE, SIZE, 0.1));
    assert_ok(f->ctx, supervised_new(f->be, &options, &model));
    return model;
}

/* What the hook has seen. */
struct seen {
    int n_epochs, n_calls;
    double first_loss, last_loss, last_accuracy;
    double lr[64];
    int64_t n_iterations;
    bool cancel;
    int cancel_at; /* epoch; 0: never */
};

static void watch(void *user, const struct train_progress *p)
{
    struct seen *seen = user;
    seen->n_calls++;
    if (!p->epoch_done)
        return;
    if (p->epoch == 0)
        seen->first_loss = p->losses[0];
    seen->last_loss = p->losses[0];
    seen->last_accuracy = p->accuracy;
    seen->lr[p->epoch] = p->lr;
    seen->n_iterations = p->n_iterations;
    seen->n_epochs++;
    if (seen->cancel_at && seen->n_epochs == seen->cancel_at)
        seen->cancel = true;
}

static bool is_cancelled(void *user)
{
    return ((struct seen *)user)->cancel;
}

static struct schedule schedule_of(double lr, int epochs)
{
    return (struct schedule){.lr = lr,
                             .epochs = epochs,
                             .warmup_epochs = 2,
                             .n_drops = 1,
                             .drop = {epochs - 3},
                             .factor = 0.1};
}

/* 100 images in batches of 16: six full ones and a tail of four, which has its own program. */
static void test_a_network_learns_the_procedural_set(void **state)
{
    struct fixture *f = *state;
    struct supervised *model = new_model(f);
    struct seen seen = {0};
    struct train_hooks hooks = {.progress = watch, .user = &seen};
    struct loader_options train = data_of(f, DATA_TRAIN);
    struct loader_options test = data_of(f, DATA_TEST);
    struct schedule schedule = schedule_of(0.05, 14);
    struct evaluation result;
    assert_ok(f->ctx, supervised_train(model, "test", &schedule, &train, &hooks));
    assert_int_equal(seen.n_epochs, 14);
    assert_int_equal(seen.n_iterations, 7);
    assert_int_equal(model->training.n, 2);
    assert_true(fabs(seen.lr[0] - 0.025) < 1e-9 && fabs(seen.lr[13] - 0.005) < 1e-9);
    assert_true(seen.last_loss < 0.6 * seen.first_loss);
    assert_true(seen.last_accuracy > 60.0 && seen.last_accuracy <= 100.0);

    assert_ok(f->ctx, supervised_test(model, &test, NULL, &result));
    int64_t n = 0;
    for (int c = 0; c < CLASSES; c++)
        n += result.n[c];
    assert_int_equal(n, 80);
    assert_true(evaluation_top1(&result, 0, CLASSES) > 50.0); /* chance is 25 */
    assert_true(evaluation_top5(&result, 0, CLASSES) == 100.0);
    evaluation_fini(f->ctx, &result);
    supervised_free(model);
}

static void test_runaway_numbers_end_training_with_a_place(void **state)
{
    struct fixture *f = *state;
    struct supervised *model = new_model(f);
    struct loader_options train = data_of(f, DATA_TRAIN);
    struct schedule schedule = schedule_of(1e9, 6);
    assert_int_equal(supervised_train(model, "step 2, representation", &schedule, &train, NULL),
                     DER_NUMERIC);
    const char *message = der_ctx_error(f->ctx);
    assert_non_null(strstr(message, "step 2, representation"));
    assert_non_null(strstr(message, "epoch 1, batch"));
    assert_non_null(strstr(message, "learning rate"));
    supervised_free(model);
}

static void test_a_request_ends_training_cleanly(void **state)
{
    struct fixture *f = *state;
    struct supervised *model = new_model(f);
    struct seen seen = {.cancel_at = 2};
    struct train_hooks hooks = {.progress = watch, .cancelled = is_cancelled, .user = &seen};
    struct loader_options train = data_of(f, DATA_TRAIN);
    struct schedule schedule = schedule_of(0.05, 10);
    assert_int_equal(supervised_train(model, "test", &schedule, &train, &hooks), DER_CANCELLED);
    assert_int_equal(seen.n_epochs, 2);
    supervised_free(model);
}

/* A disk that fills up in the third epoch. */
static enum der_status write_down(void *user, const struct train_progress *p)
{
    struct fixture *f = user;
    return p->epoch < 2 ? DER_OK : ctx_fail(f->ctx, DER_IO, "no room for epoch %d", p->epoch + 1);
}

static void test_an_epoch_that_cannot_be_written_down_ends_training(void **state)
{
    struct fixture *f = *state;
    struct supervised *model = new_model(f);
    struct train_hooks hooks = {.epoch_done = write_down, .user = f};
    struct loader_options train = data_of(f, DATA_TRAIN);
    struct schedule schedule = schedule_of(0.05, 6);
    assert_int_equal(supervised_train(model, "test", &schedule, &train, &hooks), DER_IO);
    assert_string_equal(der_ctx_error(f->ctx), "no room for epoch 3");
    supervised_free(model);
}

static void train_bytes(struct fixture *f, int loader_threads, bool renews, float *head)
{
    struct supervised *model = new_model(f);
    struct loader_options train = data_of(f, DATA_TRAIN);
    struct schedule schedule = schedule_of(0.05, 6);
    train.threads = loader_threads;
    model->renews = renews;
    assert_ok(f->ctx, supervised_train(model, "test", &schedule, &train, NULL));
    assert_ok(f->ctx, param_read(model->head, 0, head));
    supervised_free(model);
}

/* Trains as it should be and in another way, which must make no difference. */
static void compare_with(struct fixture *f, int loader_threads, bool renews)
{
    struct resnet_spec spec;
    float a[CLASSES * 64];
    float b[CLASSES * 64];
    assert_ok(f->ctx, resnet_spec_init(f->ctx, &spec, "resnet18-cifar", 3, SIZE, SIZE, 0.1));
    size_t bytes = CLASSES * (size_t)resnet_feature_dim(&spec) * sizeof(float);
    assert_true(bytes <= sizeof a);
    train_bytes(f, 0, false, a);
    train_bytes(f, loader_threads, renews, b);
    assert_memory_equal(a, b, bytes);
}

static void test_runs_repeat_to_the_byte_with_any_number_of_loaders(void **state)
{
    compare_with(*state, 3, false);
}

/* Six epochs with two batch sizes each: more programs than a feeder holds, some in the places of others. */
static void test_programs_may_be_made_anew_between_epochs(void **state)
{
    compare_with(*state, 0, true);
}

static void assert_refused(struct fixture *f, const struct data_view *view, const char *words)
{
    struct supervised *model = new_model(f);
    struct loader_options train = data_of(f, DATA_TRAIN);
    train.view = view;
    struct schedule schedule = schedule_of(0.05, 6);
    assert_int_equal(supervised_train(model, "test", &schedule, &train, NULL), DER_ARG);
    assert_non_null(strstr(f->ctx->error, words));
    supervised_free(model);
}

static void test_empty_views_are_refused(void **state)
{
    struct fixture *f = *state;
    struct data_view *empty;
    assert_ok(f->ctx, view_classes(f->ctx, &f->set->part[DATA_TRAIN], f->order, 1, 1, &empty));
    assert_refused(f, empty, "there are no images to train on");
    view_free(empty);
}

static void test_one_image_alone_is_refused_as_such(void **state)
{
    struct fixture *f = *state;
    struct data_view *one;
    assert_ok(f->ctx, view_classes(f->ctx, &f->set->part[DATA_TRAIN], f->order, 0, 1, &one));
    assert_ok(f->ctx, view_limit(one, 1, 1));
    assert_int_equal(one->n, 1);
    assert_refused(f, one, "there is only one image to train on");
    view_free(one);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_a_network_learns_the_procedural_set),
        TEST(test_runaway_numbers_end_training_with_a_place),
        TEST(test_a_request_ends_training_cleanly),
        TEST(test_an_epoch_that_cannot_be_written_down_ends_training),
        TEST(test_runs_repeat_to_the_byte_with_any_number_of_loaders),
        TEST(test_programs_may_be_made_anew_between_epochs),
        TEST(test_empty_views_are_refused),
        TEST(test_one_image_alone_is_refused_as_such),
    };
    if (!test_backend_is_here())
        return test_backend_skip();
    return cmocka_run_group_tests(tests, NULL, NULL);
}

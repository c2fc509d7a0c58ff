/*
 * Frozen extractors that are a batch ahead change nothing: what is learnt is the same to the bit.
 */
#include "config/override.h"
#include "config/preset.h"
#include "data/defaults.h"
#include "method/learner.h"
#include "support/test_backend.h"
#include "support/test_ctx.h"

#include <string.h>

enum { STEPS = 3, PER_STEP = 2, CLASSES = STEPS * PER_STEP, SIZE = 8, MOST_NUMBERS = 4096 };

/* Two full batches and a tail in an epoch. */
static const char *const SETTINGS[] = {"memory=12", "batch=16", "epochs=3",           "drops=2",
                                       "lr=0.05",   "seed=3",   "classifier_epochs=1"};

enum way { STREAMED, HELD, REFUSED, N_WAYS };

struct fixture {
    struct der_ctx *ctx;
    struct backend *be;
    struct dataset *set;
    struct class_order *order;
    struct data_view *train, *test;
    struct learner_options options;
};

static void open_fixture(struct fixture *f, const char *backend)
{
    const int32_t natural[CLASSES] = {0, 1, 2, 3, 4, 5};
    struct config *config = &f->options.config;
    *f = (struct fixture){.ctx = test_ctx_new(1)};
    assert_ok(f->ctx, backend_open(f->ctx, backend, NULL, &f->be));
    assert_ok(f->ctx,
              dataset_open(f->ctx, "synth:classes=6,train=17,test=4,size=8,seed=1", &f->set));
    assert_ok(f->ctx, order_from_array(f->ctx, "test", natural, CLASSES, &f->order));
    assert_ok(f->ctx,
              view_classes(f->ctx, &f->set->part[DATA_TRAIN], f->order, 0, CLASSES, &f->train));
    assert_ok(f->ctx,
              view_classes(f->ctx, &f->set->part[DATA_TEST], f->order, 0, CLASSES, &f->test));
    f->options = (struct learner_options){.set = f->set,
                                          .train = f->train,
                                          .test = f->test,
                                          .test_split = DATA_TEST,
                                          .n_classes = CLASSES,
                                          .loader_threads = 1};
    assert_ok(f->ctx, config_from_preset(f->ctx, "custom", METHOD_DER, config));
    assert_ok(f->ctx, config_apply(f->ctx, config, SETTINGS, sizeof SETTINGS / sizeof SETTINGS[0]));
    assert_ok(f->ctx,
              resnet_spec_init(f->ctx, &f->options.spec, "resnet18-cifar", 3, SIZE, SIZE, 0.08));
    assert_ok(f->ctx, augment_defaults(f->set, true, &f->options.train_augment));
    assert_ok(f->ctx, augment_defaults(f->set, false, &f->options.test_augment));
}

static void close_fixture(struct fixture *f)
{
    view_free(f->train);
    view_free(f->test);
    order_free(f->order);
    dataset_free(f->set);
    backend_close(f->be);
    test_ctx_free(f->ctx);
}

/* What three steps end with: the classifier, which depends on all that came before. Returns its length. */
static size_t learn(struct fixture *f, enum way way, float numbers[MOST_NUMBERS])
{
    struct learner *learner;
    assert_ok(f->ctx, learner_new(f->be, &f->options, &learner));
    learner->resident.is_wanted = way != STREAMED;
    learner->resident.is_refused[DATA_TRAIN] = way == REFUSED;
    for (int t = 0; t < STEPS; t++)
        assert_ok(f->ctx, learner_step(learner, PER_STEP, NULL));
    assert_int_equal(learner->resident.pixels[DATA_TRAIN] != NULL, way == HELD);
    size_t n = (size_t)param_set_count(learner->classifier);
    assert_true(n <= MOST_NUMBERS);
    assert_ok(f->ctx, param_read(learner->classifier, 0, numbers));
    learner_free(learner);
    return n;
}

static void test_what_is_ahead_changes_nothing(void **state)
{
    (void)state;
    static float numbers[N_WAYS][MOST_NUMBERS];
    for (const struct backend_ops *const *ops = test_backends(); *ops; ops++) {
        struct fixture f;
        size_t n[N_WAYS];
        open_fixture(&f, (*ops)->name);
        for (enum way way = STREAMED; way < N_WAYS; way++)
            n[way] = learn(&f, way, numbers[way]);
        for (enum way way = HELD; way < N_WAYS; way++) {
            assert_int_equal(n[way], n[STREAMED]);
            assert_memory_equal(numbers[way], numbers[STREAMED], n[way] * sizeof numbers[0][0]);
        }
        close_fixture(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_ahead_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

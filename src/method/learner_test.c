/*
 * DER on the procedural set, end to end: it grows, prunes, remembers.
 */
#include "data/defaults.h"
#include "method/learner.h"
#include "support/test_ctx.h"

enum { STEPS = 2, PER_STEP = 2, CLASSES = STEPS * PER_STEP, SIZE = 16 };

struct fixture {
    struct der_ctx *ctx;
    struct backend *be;
    struct dataset *set;
    struct class_order *order;
    struct learner_settings settings;
};

static int setup(void **state)
{
    static struct fixture f;
    const int32_t natural[CLASSES] = {0, 1, 2, 3};
    struct resnet_spec spec;
    f = (struct fixture){.ctx = test_ctx_new(2)};
    assert_ok(f.ctx, backend_open(f.ctx, backend_list()[0]->name, NULL, &f.be));
    assert_ok(f.ctx,
              dataset_open(f.ctx, "synth:classes=4,train=100,test=40,size=16,seed=1", &f.set));
    assert_ok(f.ctx, order_from_array(f.ctx, "test", natural, CLASSES, &f.order));
    assert_ok(f.ctx, resnet_spec_init(f.ctx, &spec, "resnet18-cifar", 3, SIZE, SIZE, 0.12));
    f.settings = learner_defaults(&spec);
    f.settings.batch = 20;
    f.settings.test_batch = 80;
    f.settings.representation = schedule_scaled(&f.settings.representation, 18);
    f.settings.hard_epoch = 12;
    f.settings.classifier = schedule_scaled(&f.settings.classifier, 12);
    f.settings.memory = 40;
    f.settings.temperature = 1.0;
    f.settings.representation.lr = 0.05;
    f.settings.mask_gain = 20.0; /* few iterations: the masks have to move faster */
    f.settings.seed = 5;
    assert_ok(f.ctx, augment_defaults(f.set, true, &f.settings.train_augment));
    assert_ok(f.ctx, augment_defaults(f.set, false, &f.settings.test_augment));
    *state = &f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    order_free(f->order);
    dataset_free(f->set);
    backend_close(f->be);
    test_ctx_free(f->ctx);
    return 0;
}

static double learn_all(struct fixture *f, struct learner *learner)
{
    double top1 = 0.0;
    for (int t = 0; t < STEPS; t++) {
        struct evaluation result;
        assert_ok(f->ctx, learner_step(learner, PER_STEP, NULL));
        assert_ok(f->ctx, learner_test(learner, NULL, &result));
        top1 = evaluation_top1(&result, 0, learner->n_classes);
        evaluation_fini(f->ctx, &result);
    }
    return top1;
}

static void test_der_grows_prunes_and_remembers(void **state)
{
    struct fixture *f = *state;
    struct learner *learner;
    assert_ok(f->ctx, learner_new(f->be, &f->settings, f->set, f->order, &learner));
    double der = learn_all(f, learner);
    assert_int_equal(learner->n_extractors, STEPS);
    assert_int_equal(learner->n_classes, CLASSES);
    int64_t full = resnet_count_params(&f->settings.spec);
    for (int i = 0; i < STEPS; i++)
        assert_true(resnet_count_params(&learner->extractors[i]->spec) < full / 2);
    assert_int_equal(learner->classifier->items[0].shape.dim[0], CLASSES);
    assert_int_equal(learner->classifier->items[0].shape.dim[1], learner_feature_dim(learner));
    assert_int_equal(learner->memory->n_classes, CLASSES);
    for (int c = 0; c < CLASSES; c++)
        assert_int_equal(learner->memory->lists[c].n, 40 / CLASSES);
    learner_free(learner);
    assert_true(der > 80.0); /* chance is 25 */
}

/* One extractor that is trained on: fine-tuning with a memory and the second stage. */
static void test_without_expansion_one_extractor_goes_on(void **state)
{
    struct fixture *f = *state;
    struct learner *learner;
    struct learner_settings plain = f->settings;
    plain.expand = plain.auxiliary = plain.masks = false;
    assert_ok(f->ctx, learner_new(f->be, &plain, f->set, f->order, &learner));
    double finetune = learn_all(f, learner);
    assert_int_equal(learner->n_extractors, 1);
    assert_int_equal(learner_parameters(learner), resnet_count_params(&plain.spec));
    assert_true(finetune > 40.0);
    learner_free(learner);
}

static void test_steps_are_refused_beyond_the_classes(void **state)
{
    struct fixture *f = *state;
    struct learner *learner;
    assert_ok(f->ctx, learner_new(f->be, &f->settings, f->set, f->order, &learner));
    assert_int_equal(learner_step(learner, 0, NULL), DER_ARG);
    assert_int_equal(learner_step(learner, CLASSES + 1, NULL), DER_ARG);
    learner_free(learner);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_der_grows_prunes_and_remembers),
        TEST(test_without_expansion_one_extractor_goes_on),
        TEST(test_steps_are_refused_beyond_the_classes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * DER on the procedural set, end to end: it grows, prunes, remembers.
 */
/* labels: first long */
#include "config/override.h"
#include "config/preset.h"
#include "method/learner_internal.h"
#include "method/masks.h"
#include "method/probe.h"
#include "support/learner_data.h"
#include "support/test_backend.h"
#include "support/test_ctx.h"

#include <math.h>
#include <stdio.h>

enum { STEPS = 2, PER_STEP = 2, CLASSES = STEPS * PER_STEP, MOST_WEIGHTS = 8192 };

/* The published recipe, squeezed into a few epochs of a tiny network; with so few iterations the masks have
 * to move faster, and less pressure leaves enough of it to learn whatever the seed. */
static const char *const SETTINGS[] = {"memory=40",   "batch=20",      "test_batch=80",
                                       "lr=0.02",     "mask_gain=50",  "epochs=24",
                                       "seed=5",      "temperature=1", "classifier_epochs=12",
                                       "lambda_s=0.3"};

static void use_method(struct config *config, enum method method)
{
    config->method = method;
    preset_use_method(config, method);
}

static int setup(void **state)
{
    static struct learner_data data;
    learner_data_open(&data, test_backend(), "synth:classes=4,train=100,test=40,size=16,seed=1",
                      0.12);
    learner_data_configure(&data, METHOD_DER, SETTINGS, sizeof SETTINGS / sizeof SETTINGS[0]);
    *state = &data;
    return 0;
}

static int teardown(void **state)
{
    learner_data_close(*state);
    return 0;
}

/* What every image was taken for agrees with what was counted, image by image of the view. */
static void check_predictions(const struct learner *learner, const struct evaluation *result)
{
    const struct data_view *test = learner->options.test;
    int64_t right[CLASSES] = {0};
    int64_t at = 0;
    for (int64_t i = 0; i < test->n; i++) {
        if (test->items[i].label >= learner->n_classes)
            continue;
        const struct prediction *p = &result->predictions[at++];
        assert_int_equal(p->sample, test->items[i].sample);
        assert_int_equal(p->label, test->items[i].label);
        assert_in_range(p->guess, 0, learner->n_classes - 1);
        assert_true(p->confidence >= 1.0F / (float)learner->n_classes - 1e-6F &&
                    p->confidence <= 1.0F);
        right[p->label] += p->guess == p->label;
    }
    assert_int_equal(result->n_predictions, at);
    assert_memory_equal(right, result->top1, (size_t)learner->n_classes * sizeof *right);
}

static double learn_all(struct learner_data *f, struct learner *learner)
{
    double top1 = 0.0;
    for (int t = 0; t < STEPS; t++) {
        struct evaluation result;
        assert_ok(f->ctx, learner_step(learner, PER_STEP, NULL));
        assert_ok(f->ctx, learner_test(learner, NULL, &result));
        top1 = evaluation_top1(&result, 0, learner->n_classes);
        check_predictions(learner, &result);
        evaluation_fini(f->ctx, &result);
    }
    return top1;
}

static void test_der_grows_prunes_and_remembers(void **state)
{
    struct learner_data *f = *state;
    static const char *const longer[] = {"epochs=40"}; /* with masks everything takes longer */
    struct learner *learner;
    assert_ok(f->ctx, config_apply(f->ctx, &f->options.config, longer, 1));
    assert_ok(f->ctx, learner_new(f->be, &f->options, &learner));
    double der = learn_all(f, learner);
    assert_int_equal(learner->n_extractors, STEPS);
    assert_int_equal(learner->n_classes, CLASSES);
    int64_t full = resnet_count_params(&f->options.spec);
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
    struct learner_data *f = *state;
    struct learner *learner;
    struct config *config = &f->options.config;
    use_method(config, METHOD_FINETUNE);
    assert_ok(f->ctx, learner_new(f->be, &f->options, &learner));
    double finetune = learn_all(f, learner);
    assert_int_equal(learner->n_extractors, 1);
    assert_int_equal(learner_parameters(learner), resnet_count_params(&f->options.spec));
    assert_true(finetune > 40.0);
    learner_free(learner);
}

/* The bound sees all images of all classes, in one network of full width. */
static void test_joint_training_forgets_nothing(void **state)
{
    struct learner_data *f = *state;
    struct learner *learner;
    struct config *config = &f->options.config;
    use_method(config, METHOD_JOINT);
    assert_ok(f->ctx, learner_new(f->be, &f->options, &learner));
    double joint = learn_all(f, learner);
    assert_int_equal(learner->n_extractors, 1);
    assert_int_equal(learner->memory->n_classes, 0);
    assert_true(joint > 90.0);
    learner_free(learner);
}

static void test_a_wanted_size_is_met(void **state)
{
    struct learner_data *f = *state;
    struct learner *learner;
    int64_t full = resnet_count_params(&f->options.spec);
    const int64_t targets[] = {full / 10, full / 3};
    for (int i = 0; i < 2; i++) {
        f->options.config.target_params = targets[i];
        assert_ok(f->ctx, learner_new(f->be, &f->options, &learner));
        assert_ok(f->ctx, learner_step(learner, PER_STEP, NULL));
        double ratio = (double)learner_parameters(learner) / (double)targets[i];
        assert_true(ratio > 0.9 && ratio < 1.1);
        learner_free(learner);
    }
}

/* Masks of one step that keep fewer channels than an even cut to a tenth of the parameters would leave. */
static int count_narrow(struct learner_data *f, double share)
{
    const int64_t target = resnet_count_params(&f->options.spec) / 10;
    int least[RESNET_MAX_MASKS];
    int n_narrow = 0;
    struct learner *learner;
    f->options.config.target_params = target;
    f->options.config.mask_least = share;
    assert_ok(f->ctx, learner_new(f->be, &f->options, &learner));
    assert_ok(f->ctx, learner_step(learner, PER_STEP, NULL));
    assert_true(masks_least(&f->options.spec, target, 1.0, least));
    const struct resnet_spec *left = &learner->extractors[0]->spec;
    for (int i = 0; i < resnet_mask_count(left); i++)
        n_narrow += resnet_mask_channels(left, i) < least[i];
    learner_free(learner);
    return n_narrow;
}

static void test_every_mask_may_keep_its_share(void **state)
{
    struct learner_data *f = *state;
    assert_true(count_narrow(f, 0.0) > 0);
    assert_int_equal(count_narrow(f, 1.0), 0);
}

static void test_the_first_extractor_may_have_a_size_of_its_own(void **state)
{
    struct learner_data *f = *state;
    static const char *const settings[] = {"epochs=2", "classifier_epochs=1"};
    struct learner *learner;
    const double full = (double)resnet_count_params(&f->options.spec);
    assert_ok(f->ctx, config_apply(f->ctx, &f->options.config, settings, 2));
    f->options.config.target_params = (int64_t)(full / 10);
    f->options.config.first_target_params = (int64_t)(full / 3);
    assert_ok(f->ctx, learner_new(f->be, &f->options, &learner));
    assert_ok(f->ctx, learner_step(learner, PER_STEP, NULL));
    const double first = (double)learner_parameters(learner);
    assert_ok(f->ctx, learner_step(learner, PER_STEP, NULL));
    const double second = (double)learner_parameters(learner) - first;
    assert_true(first > 0.9 * full / 3 && first < 1.1 * full / 3);
    assert_true(second > 0.9 * full / 10 && second < 1.1 * full / 10);
    learner_free(learner);
}

/* Channels that the first of two extractors kept and the second gave up. Masks stay as they are drawn. */
static int count_given_up(struct learner_data *f, const char *inherit)
{
    enum { MOST_CHANNELS = 512 };
    const char *const settings[] = {"epochs=2", "classifier_epochs=1", "mask_gain=0", inherit};
    struct learner *learner;
    float e[2][MOST_CHANNELS];
    size_t n = 0;
    int n_given_up = 0;
    assert_ok(f->ctx, config_apply(f->ctx, &f->options.config, settings, 4));
    assert_ok(f->ctx, learner_new(f->be, &f->options, &learner));
    for (int t = 0; t < 2; t++) {
        assert_ok(f->ctx, learner_step(learner, PER_STEP, NULL));
        n = (size_t)param_set_count(learner->last_masks);
        assert_true(n <= MOST_CHANNELS);
        float *next = e[t];
        for (int i = 0; i < learner->last_masks->n; i++) {
            assert_ok(f->ctx, param_read(learner->last_masks, i, next));
            next += shape_count(learner->last_masks->items[i].shape);
        }
    }
    for (size_t i = 0; i < n; i++)
        n_given_up += e[0][i] > 0.0F && e[1][i] <= 0.0F;
    learner_free(learner);
    return n_given_up;
}

static void test_masks_lean_towards_what_was_kept(void **state)
{
    struct learner_data *f = *state;
    assert_true(count_given_up(f, "mask_inherit=0") > 0);
    assert_int_equal(count_given_up(f, "mask_inherit=5"), 0);
}

/* Two steps, brief ones: the classifier's weights [n], and the temperature of the second stage. */
static double learn_briefly(struct learner_data *f, const struct config *config, float *weights,
                            int64_t *n)
{
    struct learner *learner;
    f->options.config = *config;
    assert_ok(f->ctx, learner_new(f->be, &f->options, &learner));
    for (int t = 0; t < STEPS; t++)
        assert_ok(f->ctx, learner_step(learner, PER_STEP, NULL));
    *n = CLASSES * learner_feature_dim(learner);
    assert_in_range(*n, 1, MOST_WEIGHTS);
    assert_ok(f->ctx, param_read(learner->classifier, 0, weights));
    const double temperature = learner->temperature;
    learner_free(learner);
    return temperature;
}

static void test_the_temperature_may_follow_the_features(void **state)
{
    struct learner_data *f = *state;
    static const char *const settings[] = {"epochs=2", "classifier_epochs=2", "temperature=5"};
    const int whole = resnet_feature_dim(&f->options.spec);
    float weights[2][MOST_WEIGHTS];
    int64_t n[2];
    assert_ok(f->ctx, config_apply(f->ctx, &f->options.config, settings, 3));
    struct config config = f->options.config;
    config.target_params = resnet_count_params(&f->options.spec) / 10;
    config.temperature_features = whole;
    const double lower = learn_briefly(f, &config, weights[0], &n[0]);
    const double kept = (double)n[0] / (CLASSES * STEPS);
    assert_true(kept < whole);
    assert_true(fabs(lower - 5.0 * sqrt(kept / whole)) < 1e-12);

    /* The same as that temperature from the first. */
    config.temperature_features = 0;
    config.temperature = lower;
    assert_true(learn_briefly(f, &config, weights[1], &n[1]) == lower);
    assert_int_equal(n[0], n[1]);
    assert_memory_equal(weights[0], weights[1], (size_t)n[0] * sizeof(float));

    /* Of so many features it is for, extractors have the one that is set. */
    config.temperature_features = whole;
    config.temperature = 5.0;
    config.prune = false;
    assert_true(learn_briefly(f, &config, weights[1], &n[1]) == 5.0);
}

/* A^t_{Y_k} restricts the arg-max to two classes, the bound does not: no reading beats its own task. */
static void test_probes_read_the_representation(void **state)
{
    struct learner_data *f = *state;
    struct learner *learner;
    struct probe_reading reading;
    struct probe_reference reference;
    f->options.config.prune = false; /* in so few epochs it is left to chance what masks keep */
    assert_ok(f->ctx, learner_new(f->be, &f->options, &learner));
    for (int t = 0; t < STEPS; t++) {
        assert_ok(f->ctx, probe_reference(learner, PER_STEP, NULL, &reference));
        assert_true(reference.own > 60.0 && reference.ideal > 60.0); /* chance is 50 */
        assert_ok(f->ctx, learner_step(learner, PER_STEP, NULL));
    }
    assert_ok(f->ctx,
              probe_representation(learner, learner->first_class, learner->step, NULL, &reading));
    assert_true(reading.bound > 80.0);
    for (int k = 0; k < STEPS; k++)
        assert_true(reading.groups[k] >= reading.bound - 10.0 && reading.groups[k] > 80.0);
    learner_free(learner);
}

/* The last stage that was heard of. */
static enum der_status keep_name(void *user, const struct train_progress *p)
{
    (void)snprintf(user, LEARNER_STAGE_NAME, "%s", p->stage);
    return DER_OK;
}

/* What is trained to be compared with is told apart from the step that it belongs to. */
static void test_the_reference_has_stages_of_its_own(void **state)
{
    struct learner_data *f = *state;
    char name[LEARNER_STAGE_NAME] = "";
    const struct train_hooks hooks = {.epoch_done = keep_name, .user = name};
    static const char *const brief[] = {"epochs=1", "classifier_epochs=1", "prune=false"};
    struct learner *learner;
    struct probe_reference reference;
    assert_ok(f->ctx, config_apply(f->ctx, &f->options.config, brief, 3));
    assert_ok(f->ctx, learner_new(f->be, &f->options, &learner));
    assert_ok(f->ctx, learner_step(learner, PER_STEP, &hooks));
    assert_string_equal(name, "step 1, representation");
    assert_ok(f->ctx, probe_reference(learner, PER_STEP, &hooks, &reference));
    assert_string_equal(name, "step 2, reference classifier");
    assert_ok(f->ctx, learner_step(learner, PER_STEP, &hooks));
    assert_string_equal(name, "step 2, classifier");
    learner_free(learner);
}

/* Has one training image lie in a file that is not there; the pixels are handed out, to be put back. */
static uint8_t *lose_image(struct learner_data *f, int64_t lost)
{
    struct data_part *part = &f->set->part[DATA_TRAIN];
    uint8_t *pixels = part->pixels;
    struct data_item *items = mem_zalloc(&f->ctx->mem, (size_t)part->n, sizeof *items);
    assert_non_null(items);
    for (int64_t i = 0; i < part->n; i++)
        items[i] = dataset_item(f->set, DATA_TRAIN, i);
    items[lost] = (struct data_item){.place = DATA_IN_FILE, .file = "/nowhere/lost.png"};
    part->items = items;
    part->pixels = NULL;
    return pixels;
}

/* Features have fewer rows than a class has images; each still belongs to its image. */
static void test_an_image_that_is_skipped_is_not_remembered(void **state)
{
    struct learner_data *f = *state;
    static const char *const brief[] = {"epochs=1", "memory=4000", "prune=false"};
    enum { LOST = 7 }; /* of the class with label 0 */
    struct learner *learner;
    int64_t lost = f->train->items[LOST].sample;
    uint8_t *pixels = lose_image(f, lost);
    assert_int_equal(f->train->items[LOST].label, 0);
    f->options.bad_images = BAD_IMAGES_SKIP;
    assert_ok(f->ctx, config_apply(f->ctx, &f->options.config, brief, 3));
    assert_ok(f->ctx, learner_new(f->be, &f->options, &learner));
    assert_ok(f->ctx, learner_step(learner, PER_STEP, NULL));
    const struct exemplar_list *kept = &learner->memory->lists[0];
    assert_in_range(kept->n, 90, 100 - 1); /* herding may give up before the last ones */
    for (int i = 0; i < kept->n; i++) {
        assert_int_equal(f->set->part[DATA_TRAIN].labels[kept->samples[i]], 0);
        assert_int_not_equal(kept->samples[i], lost);
        for (int k = 0; k < i; k++)
            assert_int_not_equal(kept->samples[i], kept->samples[k]);
    }
    learner_free(learner);
    f->set->part[DATA_TRAIN].pixels = pixels;
}

static void test_steps_are_refused_beyond_the_classes(void **state)
{
    struct learner_data *f = *state;
    struct learner *learner;
    assert_ok(f->ctx, learner_new(f->be, &f->options, &learner));
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
        TEST(test_joint_training_forgets_nothing),
        TEST(test_a_wanted_size_is_met),
        TEST(test_every_mask_may_keep_its_share),
        TEST(test_the_first_extractor_may_have_a_size_of_its_own),
        TEST(test_the_temperature_may_follow_the_features),
        TEST(test_masks_lean_towards_what_was_kept),
        TEST(test_probes_read_the_representation),
        TEST(test_the_reference_has_stages_of_its_own),
        TEST(test_an_image_that_is_skipped_is_not_remembered),
        TEST(test_steps_are_refused_beyond_the_classes),
    };
    if (!test_backend_is_here())
        return test_backend_skip();
    return cmocka_run_group_tests(tests, NULL, NULL);
}

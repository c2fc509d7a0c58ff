/*
 * The paper's comparators on the procedural set: what they remember, and what classifies in the end.
 */
/* labels: first long */
#include "method/learner_internal.h"

#include "config/override.h"
#include "method/head.h"
#include "method/probe.h"
#include "support/learner_data.h"
#include "support/test_backend.h"
#include "support/test_ctx.h"

#include <math.h>
#include <string.h>

enum { STEPS = 2, PER_STEP = 2, CLASSES = STEPS * PER_STEP };
enum { N_NEW_IMAGES = 200, MOST_FEATURES = 64 };

static const char *const SETTINGS[] = {"memory=20", "batch=20", "test_batch=80",
                                       "lr=0.02",   "seed=1",   "epochs=24"};

static int setup(void **state)
{
    static struct learner_data data;
    learner_data_open(&data, test_backend(), "synth:classes=4,train=100,test=40,size=16,seed=1",
                      0.12);
    *state = &data;
    return 0;
}

static int teardown(void **state)
{
    learner_data_close(*state);
    return 0;
}

/* A learner of a method; n settings beyond those above. */
static struct learner *new_learner(struct learner_data *f, enum method method,
                                   const char *const *settings, int n)
{
    struct learner *learner;
    learner_data_configure(f, method, SETTINGS, sizeof SETTINGS / sizeof SETTINGS[0]);
    assert_ok(f->ctx, config_apply(f->ctx, &f->options.config, settings, n));
    assert_ok(f->ctx, config_check(f->ctx, &f->options.config));
    assert_ok(f->ctx, learner_new(f->be, &f->options, &learner));
    return learner;
}

/* The same, when it has learnt both steps. */
static struct learner *learnt(struct learner_data *f, enum method method,
                              const char *const *settings, int n)
{
    struct learner *learner = new_learner(f, method, settings, n);
    for (int t = 0; t < STEPS; t++)
        assert_ok(f->ctx, learner_step(learner, PER_STEP, NULL));
    return learner;
}

/* Top-1 on the images of step 1, all classes competing. */
static double remembered(struct learner_data *f, struct learner *learner)
{
    struct evaluation result;
    assert_ok(f->ctx, learner_test(learner, NULL, &result));
    const double top1 = evaluation_top1(&result, 0, PER_STEP);
    evaluation_fini(f->ctx, &result);
    return top1;
}

/* softmax(z / T) of a learner's logits of the classes of step 1, for every training image of step 2: its second entry, the
 * other is what is missing to 1. */
static void look_back(struct learner_data *f, struct learner *learner, double p[N_NEW_IMAGES])
{
    struct reading reading = {.learner = learner, .head = learner->classifier};
    const double temperature = learner->options.config.distill_temperature;
    const int64_t dim = learner_feature_dim(learner);
    float features[N_NEW_IMAGES * MOST_FEATURES];
    float rows[CLASSES * MOST_FEATURES];
    struct view_item items[N_NEW_IMAGES];
    struct data_view *view;
    int64_t n;
    assert_true(dim <= MOST_FEATURES);
    assert_ok(f->ctx, view_range(f->ctx, f->train, PER_STEP, CLASSES, &view));
    assert_int_equal(view->n, N_NEW_IMAGES);
    assert_ok(f->ctx, reading_features(&reading, view, features, items, &n));
    assert_int_equal(n, N_NEW_IMAGES);
    assert_ok(f->ctx, param_read(learner->classifier, 0, rows));
    for (int i = 0; i < N_NEW_IMAGES; i++) {
        double difference = 0.0; /* z_1 - z_0 */
        for (int64_t d = 0; d < dim; d++)
            difference += (double)(rows[dim + d] - rows[d]) * (double)features[i * dim + d];
        p[i] = 1.0 / (1.0 + exp(-difference / temperature));
    }
    reading_fini(&reading);
    view_free(view);
}

/* Mean of KL(p, q), which distillation makes small. */
static double divergence(const double p[N_NEW_IMAGES], const double q[N_NEW_IMAGES])
{
    double sum = 0.0;
    for (int i = 0; i < N_NEW_IMAGES; i++)
        sum += p[i] * log(p[i] / q[i]) + (1.0 - p[i]) * log((1.0 - p[i]) / (1.0 - q[i]));
    return sum / N_NEW_IMAGES;
}

/* How far a network that has learnt step 2 sees the classes of step 1 otherwise than it did before. */
static double drift(struct learner_data *f, const char *distill)
{
    const char *const settings[] = {"readout=trained", "classifier_positive=false", distill};
    double before[N_NEW_IMAGES];
    double after[N_NEW_IMAGES];
    struct learner *learner = new_learner(f, METHOD_WA, settings, 3);
    assert_ok(f->ctx, learner_step(learner, PER_STEP, NULL));
    look_back(f, learner, before);
    assert_ok(f->ctx, learner_step(learner, PER_STEP, NULL));
    look_back(f, learner, after);
    assert_int_equal(learner->n_extractors, 1);
    learner_free(learner);
    return divergence(before, after);
}

static void test_a_teacher_is_listened_to(void **state)
{
    struct learner_data *f = *state;
    const double untaught = drift(f, "distill=none");
    assert_true(drift(f, "distill=shared") < 0.25 * untaught);
    assert_true(drift(f, "distill=added") < 0.25 * untaught);
}

static void read_head(struct learner_data *f, const struct param_set *head,
                      float rows[CLASSES * MOST_FEATURES])
{
    assert_true(shape_count(head->items[0].shape) <= (int64_t)CLASSES * MOST_FEATURES);
    memset(rows, 0, CLASSES * MOST_FEATURES * sizeof *rows);
    assert_ok(f->ctx, param_read(head, 0, rows));
}

/* What step 2 of iCaRL ends with when the means of step 1 are something else: nothing is learnt from them. */
static void learn_past_means(struct learner_data *f, float means,
                             float rows[CLASSES * MOST_FEATURES])
{
    static const char *const brief[] = {"epochs=2"};
    float others[CLASSES * MOST_FEATURES];
    struct learner *learner = new_learner(f, METHOD_ICARL, brief, 1);
    assert_ok(f->ctx, learner_step(learner, PER_STEP, NULL));
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        others[i] = means * (float)i;
    if (means != 0.0f)
        assert_ok(f->ctx, param_write(learner->classifier, 0, others));
    assert_ok(f->ctx, learner_step(learner, PER_STEP, NULL));
    read_head(f, learner->trained_head, rows);
    learner_free(learner);
}

static void test_the_trained_head_teaches_and_is_inherited(void **state)
{
    struct learner_data *f = *state;
    float as_it_is[CLASSES * MOST_FEATURES];
    float changed[CLASSES * MOST_FEATURES];
    learn_past_means(f, 0.0f, as_it_is);
    learn_past_means(f, 0.5f, changed);
    assert_memory_equal(as_it_is, changed, sizeof as_it_is);
}

/* The rows of three old classes before and after a single update of a step that adds a fourth. */
static void update_once(struct learner_data *f, const char *distill,
                        float before[CLASSES * MOST_FEATURES], float after[CLASSES * MOST_FEATURES])
{
    enum { N_OLD = CLASSES - 1 };
    const char *const settings[] = {"readout=trained", "classifier_positive=false",
                                    "momentum=0",      "decay=0",
                                    "batch=2000",      distill};
    struct learner *learner = new_learner(f, METHOD_WA, settings, 6);
    learner->options.config.representation = (struct schedule){.lr = 5, .epochs = 1, .factor = 1};
    assert_ok(f->ctx, learner_step(learner, N_OLD, NULL));
    read_head(f, learner->classifier, before);
    assert_ok(f->ctx, learner_step(learner, 1, NULL));
    read_head(f, learner->classifier, after);
    const size_t n_read = (size_t)(N_OLD * learner_feature_dim(learner));
    memset(after + n_read, 0, (CLASSES * MOST_FEATURES - n_read) * sizeof *after);
    learner_free(learner);
}

/* From one start the three losses move the same weights by g_CE, by g_CE + g_KD, and by a quarter of the one and three
 * quarters of the other, as three of four classes are old. */
static void test_teacher_and_labels_weigh_as_many_classes_as_they_have(void **state)
{
    struct learner_data *f = *state;
    static const char *const distill[] = {"distill=none", "distill=added", "distill=shared"};
    float before[3][CLASSES * MOST_FEATURES];
    float after[3][CLASSES * MOST_FEATURES];
    double largest = 0.0;
    double furthest = 0.0;
    for (int k = 0; k < 3; k++)
        update_once(f, distill[k], before[k], after[k]);
    assert_memory_equal(before[0], before[1], sizeof before[0]);
    assert_memory_equal(before[0], before[2], sizeof before[0]);
    for (int i = 0; i < CLASSES * MOST_FEATURES; i++) {
        const double ce = (double)after[0][i] - (double)before[0][i];
        const double kd = (double)after[1][i] - (double)after[0][i];
        const double both = (double)after[2][i] - (double)before[2][i];
        largest = fmax(largest, fmin(fabs(ce), fabs(kd)));
        furthest = fmax(furthest, fabs(both - (0.25 * ce + 0.75 * kd)));
    }
    assert_true(largest > 1e-3);
    assert_true(furthest < 1e-3 * largest);
}

/* Mean length of the rows [first, first + PER_STEP) of the classifier. */
static double mean_length(struct learner_data *f, const struct learner *learner, int first)
{
    float rows[CLASSES * MOST_FEATURES];
    const int64_t dim = learner_feature_dim(learner);
    double sum = 0.0;
    assert_true(dim <= MOST_FEATURES);
    assert_ok(f->ctx, param_read(learner->classifier, 0, rows));
    for (int r = first; r < first + PER_STEP; r++) {
        double squares = 0.0;
        for (int64_t d = 0; d < dim; d++)
            squares += pow((double)rows[r * dim + d], 2.0);
        sum += sqrt(squares);
    }
    return sum / PER_STEP;
}

static void test_wa_aligns_a_classifier_of_positive_weights(void **state)
{
    struct learner_data *f = *state;
    static const char *const unaligned[] = {"readout=trained"};
    float rows[CLASSES * MOST_FEATURES];
    struct learner *learner = learnt(f, METHOD_WA, NULL, 0);
    struct learner *plain = learnt(f, METHOD_WA, unaligned, 1);
    assert_true(fabs(mean_length(f, learner, 0) / mean_length(f, learner, PER_STEP) - 1.0) < 1e-5);
    assert_true(mean_length(f, plain, 0) / mean_length(f, plain, PER_STEP) < 0.99);
    /* How much is remembered follows from rounding, on every device another; that it becomes more, from smaller logits of
     * the classes that are new. */
    const double before = remembered(f, plain);
    assert_ok(f->ctx, head_align(plain->classifier, PER_STEP));
    assert_true(remembered(f, plain) > before);
    assert_ok(f->ctx, param_read(learner->classifier, 0, rows));
    for (int64_t i = 0; i < CLASSES * learner_feature_dim(learner); i++)
        assert_true(rows[i] >= 0.0f);
    learner_free(plain);
    learner_free(learner);
}

/* The smallest weight of the classifier. */
static float least_weight(struct learner_data *f, const struct learner *learner)
{
    float rows[CLASSES * MOST_FEATURES];
    float least = INFINITY;
    read_head(f, learner->classifier, rows);
    for (int64_t i = 0; i < learner->n_classes * learner_feature_dim(learner); i++)
        least = fminf(least, rows[i]);
    return least;
}

static void test_a_second_stage_keeps_weights_positive_too(void **state)
{
    struct learner_data *f = *state;
    static const char *const settings[] = {"epochs=2", "classifier_epochs=2",
                                           "classifier_positive=true"};
    struct learner *learner = learnt(f, METHOD_FINETUNE, settings, 3);
    assert_true(least_weight(f, learner) >= 0.0f);
    learner_free(learner);
    learner = learnt(f, METHOD_FINETUNE, settings, 2);
    assert_true(least_weight(f, learner) < 0.0f);
    learner_free(learner);
}

/* What is trained to measure a representation is bound by no method: not to positive weights, nor is a reference taught
 * or aligned. */
static void test_probes_measure_all_methods_alike(void **state)
{
    struct learner_data *f = *state;
    static const char *const brief[] = {"epochs=3", "warmup_epochs=1", "classifier_epochs=3"};
    struct learner *wa = learnt(f, METHOD_WA, brief, 3);
    struct probe_reading reading[2];
    struct probe_reference reference[2];
    assert_ok(f->ctx, probe_representation(wa, wa->first_class, wa->step, NULL, &reading[0]));
    wa->options.config.classifier_positive = false;
    assert_ok(f->ctx, probe_representation(wa, wa->first_class, wa->step, NULL, &reading[1]));
    assert_true(reading[0].bound == reading[1].bound);
    learner_free(wa);
    static const enum method methods[] = {METHOD_WA, METHOD_FINETUNE};
    for (int i = 0; i < 2; i++) {
        struct learner *learner = new_learner(f, methods[i], brief, 3);
        assert_ok(f->ctx, probe_reference(learner, PER_STEP, NULL, &reference[i]));
        learner_free(learner);
    }
    assert_true(reference[0].own == reference[1].own);
    assert_true(reference[0].ideal == reference[1].ideal);
}

/* What was trained, and what classifies: new rows scaled and shifted, old ones as they were. */
static void test_bic_corrects_the_rows_of_new_classes(void **state)
{
    struct learner_data *f = *state;
    float trained[CLASSES * MOST_FEATURES];
    float rows[CLASSES * MOST_FEATURES];
    float bias[CLASSES];
    struct learner *learner = new_learner(f, METHOD_BIC, NULL, 0);
    assert_ok(f->ctx, learner_step(learner, PER_STEP, NULL));
    assert_null(learner->trained_head); /* nothing to make up for yet */
    assert_int_equal(learner->classifier->n, 1);
    assert_ok(f->ctx, learner_step(learner, PER_STEP, NULL));
    const struct correction found = learner->correction;
    const int64_t n_old = PER_STEP * learner_feature_dim(learner);
    read_head(f, learner->trained_head, trained);
    read_head(f, learner->classifier, rows);
    assert_ok(f->ctx, param_read(learner->classifier, 1, bias));
    for (int64_t i = 0; i < CLASSES * learner_feature_dim(learner); i++)
        assert_true(rows[i] == (i < n_old ? trained[i] : (float)(found.beta * (double)trained[i])));
    for (int y = 0; y < CLASSES; y++)
        assert_true(bias[y] == (y < PER_STEP ? 0.0f : (float)found.gamma));
    assert_true(fabs(found.beta - 1.0) > 1e-3 && fabs(found.gamma) > 1e-3);
    learner_free(learner);
}

/* Mean cross-entropy over the images of a view, all classes competing, the logits of new ones corrected again. */
static double loss_beside(struct learner_data *f, struct learner *learner,
                          const struct data_view *view, double beta, double gamma)
{
    struct reading reading = {.learner = learner, .head = learner->trained_head};
    const int64_t dim = learner_feature_dim(learner);
    float rows[CLASSES * MOST_FEATURES];
    float *features = mem_alloc(&f->ctx->mem, (size_t)(view->n * dim), sizeof *features);
    struct view_item *items = mem_alloc(&f->ctx->mem, (size_t)view->n, sizeof *items);
    double sum = 0.0;
    int64_t n;
    assert_non_null(features);
    assert_non_null(items);
    read_head(f, learner->trained_head, rows);
    assert_ok(f->ctx, reading_features(&reading, view, features, items, &n));
    reading_fini(&reading);
    for (int64_t i = 0; i < n; i++) {
        double q[CLASSES] = {0.0};
        double total = 0.0;
        for (int y = 0; y < CLASSES; y++) {
            for (int64_t d = 0; d < dim; d++)
                q[y] += (double)rows[y * dim + d] * (double)features[i * dim + d];
            if (y >= PER_STEP)
                q[y] = beta * q[y] + gamma;
            total += exp(q[y]);
        }
        sum += log(total) - q[items[i].label];
    }
    mem_free(&f->ctx->mem, features);
    mem_free(&f->ctx->mem, items);
    return sum / (double)n;
}

/* With a bias out of all proportion every image is taken for one class. */
static void test_a_bias_counts_in_tests(void **state)
{
    struct learner_data *f = *state;
    static const char *const brief[] = {"epochs=2"};
    static const float bias[CLASSES] = {0.0f, 0.0f, 1e6f, 0.0f};
    struct evaluation result;
    struct learner *learner = learnt(f, METHOD_BIC, brief, 1);
    assert_ok(f->ctx, param_write(learner->classifier, 1, bias));
    assert_ok(f->ctx, learner_test(learner, NULL, &result));
    assert_true(result.n_predictions > 0);
    for (int64_t i = 0; i < result.n_predictions; i++)
        assert_int_equal(result.predictions[i].guess, 2);
    evaluation_fini(f->ctx, &result);
    learner_free(learner);
}

/* Turns black to white and back in the images of a view. */
static void invert(struct learner_data *f, const struct data_view *view)
{
    struct data_part *part = &f->set->part[DATA_TRAIN];
    const int64_t bytes = (int64_t)f->set->channels * f->set->height * f->set->width;
    for (int64_t i = 0; i < view->n; i++)
        for (int64_t k = 0; k < bytes; k++)
            part->pixels[view->items[i].sample * bytes + k] ^= 0xff;
}

/* What step 2 of BiC is trained to, the images that it sets aside being as they are or others. */
static struct correction learn_beside(struct learner_data *f, bool is_inverted,
                                      float rows[CLASSES * MOST_FEATURES])
{
    static const char *const brief[] = {"epochs=2"};
    struct data_view *view;
    struct data_view *kept;
    struct data_view *aside;
    struct learner *learner = new_learner(f, METHOD_BIC, brief, 1);
    assert_ok(f->ctx, learner_step(learner, PER_STEP, NULL));
    assert_ok(f->ctx, learner_training_view(learner, PER_STEP, &view));
    assert_ok(f->ctx, learner_set_aside(learner, view, PER_STEP, &kept, &aside));
    if (is_inverted)
        invert(f, aside);
    assert_ok(f->ctx, learner_step(learner, PER_STEP, NULL));
    if (is_inverted)
        invert(f, aside);
    const struct correction found = learner->correction;
    read_head(f, learner->trained_head, rows);
    view_free(view);
    view_free(kept);
    view_free(aside);
    learner_free(learner);
    return found;
}

/* What step 1 of BiC learns with the images of `changed` turned to their negatives. */
static void learn_first(struct learner_data *f, const struct data_view *changed,
                        struct learner **learner, float rows[CLASSES * MOST_FEATURES])
{
    static const char *const brief[] = {"epochs=2"};
    *learner = new_learner(f, METHOD_BIC, brief, 1);
    if (changed)
        invert(f, changed);
    assert_ok(f->ctx, learner_step(*learner, PER_STEP, NULL));
    if (changed)
        invert(f, changed);
    read_head(f, (*learner)->classifier, rows);
}

/* No step has trained on the old images that a correction goes by, not those before it either. */
static void test_bic_never_trained_on_what_it_sets_aside(void **state)
{
    struct learner_data *f = *state;
    float as_it_is[CLASSES * MOST_FEATURES];
    float otherwise[CLASSES * MOST_FEATURES];
    struct data_view *view;
    struct data_view *kept;
    struct data_view *aside;
    struct data_view *old;
    struct learner *learner;
    struct learner *other;
    learn_first(f, NULL, &learner, as_it_is);
    assert_ok(f->ctx, learner_training_view(learner, PER_STEP, &view));
    assert_ok(f->ctx, learner_set_aside(learner, view, PER_STEP, &kept, &aside));
    assert_ok(f->ctx, view_range(f->ctx, aside, 0, PER_STEP, &old));
    assert_true(old->n > 0);
    learn_first(f, old, &other, otherwise);
    assert_memory_equal(as_it_is, otherwise, sizeof as_it_is);
    learner_free(learner);
    learner_free(other);
    view_free(view);
    view_free(kept);
    view_free(aside);
    view_free(old);
}

/* The memory has its images of every class, those set aside among them, where one class has but three. */
static void test_a_rare_class_takes_nothing_from_others(void **state)
{
    enum { RARE = 3, N_RARE = 3 };
    struct learner_data *f = *state;
    static const char *const brief[] = {"epochs=1", "correction_share=0.4"};
    struct data_view *few;
    assert_ok(f->ctx, view_range(f->ctx, f->train, 0, CLASSES, &few));
    few->n -= few->n / CLASSES - N_RARE; /* it comes last */
    f->options.train = few;
    struct learner *learner = learnt(f, METHOD_BIC, brief, 2);
    for (int label = 0; label < CLASSES; label++)
        assert_int_equal(learner->memory->lists[label].n, label == RARE ? N_RARE : 5);
    assert_true(learner->is_corrected);
    learner_free(learner);
    f->options.train = f->train;
    view_free(few);
}

/* A device may have taken the images before they changed: then neither sees the change. */
static void test_bic_does_not_train_on_what_it_sets_aside(void **state)
{
    struct learner_data *f = *state;
    float as_it_is[CLASSES * MOST_FEATURES];
    float changed[CLASSES * MOST_FEATURES];
    const struct correction one = learn_beside(f, false, as_it_is);
    const struct correction other = learn_beside(f, true, changed);
    assert_memory_equal(as_it_is, changed, sizeof as_it_is);
    if (strcmp(test_backend(), "cuda") != 0)
        assert_true(one.beta != other.beta && one.gamma != other.gamma);
}

/* As many images of every class, a fifth of what the memory has of one; the minimum is theirs. */
static void test_bic_corrects_by_what_it_sets_aside(void **state)
{
    struct learner_data *f = *state;
    static const char *const fifth[] = {"correction_share=0.2"};
    struct data_view *view;
    struct data_view *kept;
    struct data_view *aside;
    int64_t counts[CLASSES];
    struct learner *learner = new_learner(f, METHOD_BIC, fifth, 1);
    assert_ok(f->ctx, learner_step(learner, PER_STEP, NULL));
    assert_ok(f->ctx, learner_training_view(learner, PER_STEP, &view));
    assert_ok(f->ctx, learner_set_aside(learner, view, PER_STEP, &kept, &aside));
    view_counts(aside, counts, CLASSES);
    for (int y = 0; y < CLASSES; y++)
        assert_int_equal(counts[y], 2); /* 20 in all are 10 of each of the two known classes */
    view_counts(kept, counts, CLASSES);
    assert_memory_equal(counts, ((int64_t[]){8, 8, 98, 98}), sizeof counts);
    assert_ok(f->ctx, learner_step(learner, PER_STEP, NULL));
    const struct correction at = learner->correction;
    const double here = loss_beside(f, learner, aside, at.beta, at.gamma) +
                        0.05 * at.gamma * at.gamma + 0.0005 * pow(at.beta - 1.0, 2.0);
    for (int i = 0; i < 4; i++) { /* the minimum on these very images */
        const double beta = at.beta + (i == 0 ? 0.05 : i == 1 ? -0.05 : 0.0);
        const double gamma = at.gamma + (i == 2 ? 0.05 : i == 3 ? -0.05 : 0.0);
        assert_true(loss_beside(f, learner, aside, beta, gamma) + 0.05 * gamma * gamma +
                        0.0005 * pow(beta - 1.0, 2.0) >
                    here);
    }
    view_free(view);
    view_free(kept);
    view_free(aside);
    learner_free(learner);
}

/* Three steps of BiC, the classifier of the second one changed before the third: what it is taught hangs on that, what it
 * begins with does not. `which`: its weights or its bias. */
static void learn_from_changed(struct learner_data *f, const char *distill, int which, float factor,
                               float rows[CLASSES * MOST_FEATURES])
{
    const char *const brief[] = {"epochs=2", distill};
    float changed[CLASSES * MOST_FEATURES];
    struct learner *learner = new_learner(f, METHOD_BIC, brief, 2);
    assert_ok(f->ctx, learner_step(learner, PER_STEP, NULL));
    assert_ok(f->ctx, learner_step(learner, 1, NULL));
    assert_ok(f->ctx, param_read(learner->classifier, which, changed));
    for (int64_t i = 0; i < shape_count(learner->classifier->items[which].shape); i++)
        changed[i] *= factor;
    assert_ok(f->ctx, param_write(learner->classifier, which, changed));
    assert_ok(f->ctx, learner_step(learner, 1, NULL));
    read_head(f, learner->trained_head, rows);
    learner_free(learner);
}

static void test_the_corrected_head_teaches_and_the_trained_one_is_inherited(void **state)
{
    struct learner_data *f = *state;
    static const char *const distill[] = {"distill=none", "distill=shared"};
    for (int taught = 0; taught < 2; taught++) {
        float as_it_is[CLASSES * MOST_FEATURES];
        float changed[CLASSES * MOST_FEATURES];
        learn_from_changed(f, distill[taught], 0, 1.0f, as_it_is);
        for (int which = 0; which < 2; which++) {
            learn_from_changed(f, distill[taught], which, 0.5f, changed);
            assert_int_equal(memcmp(as_it_is, changed, sizeof as_it_is) != 0, taught);
        }
    }
}

/* Features of images by the learner's extractors, made of length one. */
static int64_t read_phi(struct learner_data *f, struct learner *learner,
                        const struct data_view *view, float *phi, struct view_item *items)
{
    struct reading reading = {.learner = learner, .head = learner->classifier};
    const int64_t dim = learner_feature_dim(learner);
    int64_t n;
    assert_ok(f->ctx, reading_features(&reading, view, phi, items, &n));
    reading_fini(&reading);
    for (int64_t i = 0; i < n; i++) {
        double squares = 0.0;
        for (int64_t d = 0; d < dim; d++)
            squares += (double)phi[i * dim + d] * (double)phi[i * dim + d];
        for (int64_t d = 0; d < dim; d++)
            phi[i * dim + d] /= (float)sqrt(squares);
    }
    return n;
}

/* Means of a class's exemplars, each read on its own. */
static void class_mean(struct learner_data *f, struct learner *learner, int label, double *mean)
{
    const struct exemplar_list *list = &learner->memory->lists[label];
    const int64_t dim = learner_feature_dim(learner);
    double squares = 0.0;
    for (int64_t d = 0; d < dim; d++)
        mean[d] = 0.0;
    for (int i = 0; i < list->n; i++) {
        float phi[MOST_FEATURES];
        struct view_item read;
        struct view_item item = {.sample = list->samples[i], .label = label};
        const struct data_view one = {.items = &item, .n = 1};
        assert_int_equal(read_phi(f, learner, &one, phi, &read), 1);
        for (int64_t d = 0; d < dim; d++)
            mean[d] += (double)phi[d];
    }
    for (int64_t d = 0; d < dim; d++)
        squares += mean[d] * mean[d];
    for (int64_t d = 0; d < dim; d++)
        mean[d] /= sqrt(squares);
}

/* argmin |phi - mu_y|, as the definition has it. */
static int nearest(const float *phi, const double *means, int64_t dim)
{
    int best = 0;
    double least = INFINITY;
    for (int y = 0; y < CLASSES; y++) {
        double distance = 0.0;
        for (int64_t d = 0; d < dim; d++)
            distance += pow((double)phi[d] - means[y * dim + d], 2.0);
        if (distance < least) {
            least = distance;
            best = y;
        }
    }
    return best;
}

/* Tested on training images, whose features can be read. */
static void test_icarl_guesses_the_nearest_mean_of_exemplars(void **state)
{
    struct learner_data *f = *state;
    double means[CLASSES * MOST_FEATURES];
    f->options.test = f->train;
    f->options.test_split = DATA_TRAIN;
    struct learner *learner = learnt(f, METHOD_ICARL, NULL, 0);
    const int64_t dim = learner_feature_dim(learner);
    const size_t n_images = (size_t)f->train->n;
    float *phi = mem_alloc(&f->ctx->mem, n_images * (size_t)dim, sizeof *phi);
    struct view_item *items = mem_alloc(&f->ctx->mem, n_images, sizeof *items);
    struct evaluation result;
    assert_non_null(phi);
    assert_non_null(items);
    assert_true(dim <= MOST_FEATURES);
    for (int y = 0; y < CLASSES; y++)
        class_mean(f, learner, y, means + y * dim);
    const int64_t n = read_phi(f, learner, f->train, phi, items);
    assert_ok(f->ctx, learner_test(learner, NULL, &result));
    assert_int_equal(n, result.n_predictions);
    for (int64_t i = 0; i < n; i++) {
        assert_int_equal(result.predictions[i].sample, items[i].sample);
        assert_int_equal(result.predictions[i].guess, nearest(phi + i * dim, means, dim));
    }
    assert_true(evaluation_top1(&result, 0, PER_STEP) > 60.0);
    evaluation_fini(f->ctx, &result);
    mem_free(&f->ctx->mem, phi);
    mem_free(&f->ctx->mem, items);
    learner_free(learner);
    f->options.test = f->test;
    f->options.test_split = DATA_TEST;
}

/* Means read all features of a network that grows, as well. */
static void test_means_classify_what_extractors_side_by_side_see(void **state)
{
    struct learner_data *f = *state;
    static const char *const grown[] = {"readout=means", "second_stage=false", "prune=false"};
    struct learner *learner = learnt(f, METHOD_DER, grown, 3);
    assert_int_equal(learner->n_extractors, STEPS);
    assert_int_equal(learner->classifier->items[0].shape.dim[1], learner_feature_dim(learner));
    assert_non_null(learner->trained_head);
    assert_true(remembered(f, learner) > 60.0);
    learner_free(learner);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_a_teacher_is_listened_to),
        TEST(test_teacher_and_labels_weigh_as_many_classes_as_they_have),
        TEST(test_the_trained_head_teaches_and_is_inherited),
        TEST(test_wa_aligns_a_classifier_of_positive_weights),
        TEST(test_a_second_stage_keeps_weights_positive_too),
        TEST(test_probes_measure_all_methods_alike),
        TEST(test_bic_corrects_the_rows_of_new_classes),
        TEST(test_bic_does_not_train_on_what_it_sets_aside),
        TEST(test_bic_never_trained_on_what_it_sets_aside),
        TEST(test_a_rare_class_takes_nothing_from_others),
        TEST(test_bic_corrects_by_what_it_sets_aside),
        TEST(test_a_bias_counts_in_tests),
        TEST(test_the_corrected_head_teaches_and_the_trained_one_is_inherited),
        TEST(test_icarl_guesses_the_nearest_mean_of_exemplars),
        TEST(test_means_classify_what_extractors_side_by_side_see),
    };
    if (!test_backend_is_here())
        return test_backend_skip();
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * The program that DER trains a new extractor with, as method/objective.h describes it and an
 * assembly runs it, against PyTorch: a frozen, pruned extractor in front, three iterations with soft
 * masks, then three with hard ones; and one network that is trained on with its former self as a teacher. Losses, every
 * gradient, and after each update every parameter, running statistic and mask.
 */
#include "method/head.h"
#include "method/masks.h"
#include "method/objective.h"
#include "support/test_backend.h"
#include "support/golden_net.h"
#include "support/test_ctx.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* The same numbers stand in tools/golden/der.py and taught.py. */
enum { N_OLD = 4, N_NEW = 3, BATCH = 6, N_SOFT = 3, N_ITERATIONS = 6, N_TAUGHT = 3 };
enum { EMPTY_MASK = 5 }; /* has no e above 0: its largest keeps a channel */
enum { MAX_LOSSES = 3, NAME_MAX_CHARS = 32, MASK_MAX_CHANNELS = 16 };
static const struct config CONFIG = {.momentum = 0.9,
                                     .decay = 5e-4,
                                     .lambda_a = 0.6,
                                     .lambda_s = 0.75,
                                     .mask_gradient = MASK_GRADIENT_EXACT,
                                     .mask_gain = 5.0,
                                     .s_max = 400.0,
                                     .mask_clamp = 1.25};
static const struct config TAUGHT = {.momentum = 0.9,
                                     .decay = 5e-4,
                                     .distill = DISTILL_SHARED,
                                     .distill_temperature = 2.0,
                                     .classifier_positive = true};
#define OLD_SHARE ((float)N_OLD / (float)(N_OLD + N_NEW))

/* All values between two ops are float32, against float64 in PyTorch, so that a gradient is right to
 * some 1e-6 of its size: an NMSE of 1e-12, where `ref` is. `cpu` sums in float32 too. */
#define GRAD_NMSE 1e-10
/* A block that is left with one inner channel feeds a batch norm that undoes its scale: the gradient
 * of that channel's gamma is the small rest of terms that cancel. */
#define HARD_GRAD_NMSE 1e-7
/* Every update carries the rounding of the ones before it into the next gradient, times the rate. */
#define PARAM_NMSE 1e-12
#define LOSS_TOLERANCE 1e-5

struct step {
    struct golden_file *file;
    struct golden_rig rig;
    uint32_t seed;
    struct extractor *frozen;
    struct param_set *teacher; /* its head, where it teaches */
    struct objective objective;
    struct desks desks;
    struct buffer *scalars;
    struct assembly_cache assemblies;
    struct assembly *assembly;
};

static void write_masks(struct step *step)
{
    struct param_set *masks = step->objective.masks;
    for (int i = 0; i < masks->n; i++) {
        float e[MASK_MAX_CHANNELS];
        int64_t n = shape_count(masks->items[i].shape);
        assert_true(n <= MASK_MAX_CHANNELS);
        golden_noise(e, n, masks->items[i].name, step->seed, i == EMPTY_MASK ? -0.9 : 0.3,
                     i == EMPTY_MASK ? 0.4 : 1.2);
        assert_ok(step->rig.ctx, param_write(masks, i, e));
    }
}

/* Extractors, heads and masks as a step of the learner makes them, with the values of the file. */
static void make_parts(struct step *step)
{
    struct der_ctx *ctx = step->rig.ctx;
    struct backend *be = step->rig.be;
    struct objective *o = &step->objective;
    struct resnet_spec frozen;
    struct resnet_spec trained;
    golden_spec(&frozen, golden_text(step->file, "frozen"));
    golden_spec(&trained, golden_text(step->file, "trained"));
    int64_t own = resnet_feature_dim(&trained);
    int64_t columns = resnet_feature_dim(&frozen) + own;
    *o = (struct objective){.config = &CONFIG, .n_old = N_OLD};
    assert_ok(ctx, extractor_new(be, &frozen, &step->frozen));
    assert_ok(ctx, extractor_new(be, &trained, &o->extractor));
    assert_ok(ctx, param_set_thaw(o->extractor->params));
    assert_ok(ctx,
              head_new(be, "classifier.weight", N_OLD + N_NEW, columns, INIT_ZERO, 0, 0, &o->head));
    assert_ok(ctx,
              head_new(be, "auxiliary.weight", N_NEW + 1, own, INIT_ZERO, 0, 0, &o->auxiliary));
    assert_ok(ctx, masks_new(be, &trained, MASK_INIT_CONSTANT, 0, 0, &o->masks));
    golden_fill(step->frozen->params, step->seed + 1);
    golden_fill(o->extractor->params, step->seed);
    golden_fill(o->head, step->seed);
    golden_fill(o->auxiliary, step->seed);
    write_masks(step);
    desks_init(&step->desks, be, &trained, columns);
    assert_ok(ctx, buffer_new(be, ASSEMBLY_MAX_SCALARS * sizeof(float), &step->scalars));
}

/* The same where the network that was is the teacher of the one that becomes. */
static void make_taught(struct step *step)
{
    struct der_ctx *ctx = step->rig.ctx;
    struct backend *be = step->rig.be;
    struct objective *o = &step->objective;
    struct resnet_spec spec;
    golden_spec(&spec, golden_text(step->file, "trained"));
    int64_t own = resnet_feature_dim(&spec);
    *o = (struct objective){.config = &TAUGHT, .n_old = N_OLD};
    assert_ok(ctx, extractor_new(be, &spec, &step->frozen));
    assert_ok(ctx, extractor_new(be, &spec, &o->extractor));
    assert_ok(ctx, param_set_thaw(o->extractor->params));
    assert_ok(ctx,
              head_new(be, "classifier.weight", N_OLD + N_NEW, own, INIT_ZERO, 0, 0, &o->head));
    assert_ok(ctx, head_new(be, "classifier.weight", N_OLD, own, INIT_ZERO, 0, 0, &step->teacher));
    param_set_freeze(step->teacher);
    golden_fill(step->frozen->params, step->seed + 1);
    golden_fill(step->teacher, step->seed + 1);
    golden_fill(o->extractor->params, step->seed);
    golden_fill(o->head, step->seed);
    o->teacher = step->teacher;
    desks_init(&step->desks, be, &spec, own);
    assert_ok(ctx, buffer_new(be, ASSEMBLY_MAX_SCALARS * sizeof(float), &step->scalars));
}

static void step_init(struct step *step, const struct backend_ops *ops, const char *file,
                      void (*make)(struct step *step))
{
    *step = (struct step){.file = golden_open(file)};
    golden_rig_init(&step->rig, ops);
    step->seed = golden_seed(step->file);
    make(step);
    struct assembly_plan plan = {.be = step->rig.be,
                                 .frozen = &step->frozen,
                                 .n_frozen = 1,
                                 .desks = &step->desks,
                                 .shows_gradients = true,
                                 .scalars = step->scalars,
                                 .self = &step->objective,
                                 .describe = objective_describe};
    assert_ok(step->rig.ctx, assembly_get(&step->assemblies, &plan, BATCH, &step->assembly));
}

static void step_fini(struct step *step)
{
    assembly_cache_fini(&step->assemblies);
    desks_fini(&step->desks);
    buffer_free(step->scalars);
    extractor_free(step->frozen);
    param_set_free(step->teacher);
    extractor_free(step->objective.extractor);
    param_set_free(step->objective.head);
    param_set_free(step->objective.auxiliary);
    param_set_free(step->objective.masks);
    golden_rig_fini(&step->rig);
    golden_close(step->file);
}

static void write_batch(struct step *step, int number)
{
    const struct resnet_spec *spec = &step->objective.extractor->spec;
    struct der_ctx *ctx = step->rig.ctx;
    int64_t n = (int64_t)BATCH * spec->in_channels * spec->height * spec->width;
    int32_t labels[BATCH];
    char name[NAME_MAX_CHARS];
    float *image = malloc((size_t)n * sizeof *image);
    assert_non_null(image);
    (void)snprintf(name, sizeof name, "image%d", number);
    golden_noise(image, n, name, step->seed, 0.0, 1.7);
    (void)snprintf(name, sizeof name, "labels%d", number);
    golden_labels(labels, BATCH, name, step->seed, N_OLD + N_NEW);
    assert_ok(ctx, buffer_write(step->assembly->desk.image, 0, image, (size_t)n * sizeof *image));
    assert_ok(ctx, buffer_write(step->assembly->desk.labels, 0, labels, sizeof labels));
    free(image);
}

static void run_with(struct step *step, int number, const float scalars[OBJECTIVE_SCALARS])
{
    write_batch(step, number);
    assert_ok(step->rig.ctx,
              buffer_write(step->scalars, 0, scalars, OBJECTIVE_SCALARS * sizeof *scalars));
    assert_ok(step->rig.ctx, sequence_run(step->assembly->sequence));
}

static void run_iteration(struct step *step, int number)
{
    const float *lr = golden_get(step->file, "lr")->data;
    const float *s = golden_get(step->file, "s")->data;
    const float scalars[OBJECTIVE_SCALARS] = {
        [OBJECTIVE_LR] = lr[number],
        [OBJECTIVE_MAIN] = 1.0f,
        [OBJECTIVE_LAMBDA_A] = (float)CONFIG.lambda_a,
        [OBJECTIVE_LAMBDA_S] = (float)CONFIG.lambda_s,
        [OBJECTIVE_S] = s[number],
    };
    assert_true((number < N_SOFT) == isfinite(s[number]));
    if (number == N_SOFT)
        assert_ok(step->rig.ctx, param_set_rest(step->objective.masks));
    run_with(step, number, scalars);
}

static void run_taught(struct step *step, int number)
{
    const float *lr = golden_get(step->file, "lr")->data;
    const float scalars[OBJECTIVE_SCALARS] = {[OBJECTIVE_LR] = lr[number],
                                              [OBJECTIVE_MAIN] = 1.0f - OLD_SHARE,
                                              [OBJECTIVE_LAMBDA_D] = OLD_SHARE};
    run_with(step, number, scalars);
}

static void check_losses(const struct step *step, int number)
{
    const float *want = golden_get(step->file, "losses")->data;
    const char *names[STAGE_MAX_LOSSES];
    const int n = objective_losses(&step->objective, names);
    float got[MAX_LOSSES];
    assert_true(n <= MAX_LOSSES);
    assert_ok(step->rig.ctx, buffer_read(step->assembly->losses, 0, got, (size_t)n * sizeof *got));
    for (int i = 0; i < n; i++) {
        double value = (double)want[n * number + i];
        if (!(fabs((double)got[i] - value) <= LOSS_TOLERANCE * value))
            fail_msg("%s, iteration %d, loss %d: %.8f, want %.8f", step->rig.be->ops->name, number,
                     i, (double)got[i], value);
    }
}

static void check_iteration(const struct step *step, int number)
{
    const struct objective *o = &step->objective;
    const struct param_set *const sets[] = {o->extractor->params, o->head, o->auxiliary, o->masks};
    char grads[NAME_MAX_CHARS];
    char after[NAME_MAX_CHARS];
    (void)snprintf(grads, sizeof grads, "grad%d/", number);
    (void)snprintf(after, sizeof after, "after%d/", number);
    check_losses(step, number);
    for (size_t i = 0; i < sizeof sets / sizeof sets[0]; i++) {
        if (!sets[i])
            continue;
        if (number == 0 || (o->masks && number == N_SOFT))
            golden_check_grads(sets[i], step->file, grads,
                               number == 0 ? GRAD_NMSE : HARD_GRAD_NMSE);
        golden_check_params(sets[i], PARAM_LEARNT, step->file, after, PARAM_NMSE);
    }
    golden_check_params(o->extractor->params, PARAM_STATE, step->file, after, PARAM_NMSE);
}

static void test_soft_then_hard_iterations_agree_with_pytorch(void **state)
{
    (void)state;
    for (const struct backend_ops *const *ops = test_backends(); *ops; ops++) {
        struct step step;
        step_init(&step, *ops, "der_objective", make_parts);
        for (int number = 0; number < N_ITERATIONS; number++) {
            run_iteration(&step, number);
            check_iteration(&step, number);
        }
        step_fini(&step);
    }
}

static void test_taught_iterations_agree_with_pytorch(void **state)
{
    (void)state;
    for (const struct backend_ops *const *ops = test_backends(); *ops; ops++) {
        struct step step;
        step_init(&step, *ops, "taught_objective", make_taught);
        for (int number = 0; number < N_TAUGHT; number++) {
            run_taught(&step, number);
            check_iteration(&step, number);
        }
        step_fini(&step);
    }
}

/* What hard masks keep is what pruning keeps: the file's hard losses count the same weights. */
static void test_hard_sparsity_loss_counts_the_weights_that_stay(void **state)
{
    (void)state;
    struct step step;
    struct kept kept;
    step_init(&step, backend_list()[0], "der_objective", make_parts);
    for (int number = 0; number < N_SOFT; number++)
        run_iteration(&step, number);
    const struct resnet_spec *full = &step.objective.extractor->spec;
    assert_ok(step.rig.ctx, masks_kept(step.objective.masks, full, &kept));
    assert_int_equal(kept.count[EMPTY_MASK], 1);
    struct resnet_spec small = pruned_spec(full, &kept);
    const float *losses = golden_get(step.file, "losses")->data;
    double share = pruned_share(full, &small);
    assert_true(fabs(share - (double)losses[MAX_LOSSES * N_SOFT + 2]) < 1e-7);
    kept_fini(step.rig.ctx, &kept);
    step_fini(&step);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_soft_then_hard_iterations_agree_with_pytorch),
        cmocka_unit_test(test_taught_iterations_agree_with_pytorch),
        cmocka_unit_test(test_hard_sparsity_loss_counts_the_weights_that_stay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * A step that is continued from any of its epochs ends with the same bits as one that was never interrupted.
 */
/* labels: first */
#include "method/masks.h"
#include "store/exemplar_file.h"
#include "config/override.h"
#include "support/learner_data.h"
#include "support/scratch.h"
#include "support/test_backend.h"
#include "support/test_ctx.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { CLASSES = 4, PER_STEP = 2, EPOCHS = 5, HEAD_EPOCHS = 3 };

static const char *const NAMES[CLASSES] = {"a", "b", "c", "d"};

/* Two epochs of warm-up, masks that harden in the fourth, a wanted size: all that happens within a step. */
static const char *const SETTINGS[] = {"memory=12",      "batch=16",        "epochs=5",
                                       "drops=3,4",      "warmup_epochs=2", "classifier_epochs=3",
                                       "lr=0.05",        "mask_gain=20",    "target_params=9000",
                                       "step_classes=2", "mask_inherit=1"};

struct fixture {
    struct learner_data data;
    struct scratch scratch;
    struct incremental *tests; /* none, unless a test adds some */
    double measured[8];
    int n_saved; /* states written: scratch/0, scratch/1 ... */
};

/* Keeps every state that a learner offers. */
static enum der_status keep(void *user, const struct stage_point *point)
{
    struct fixture *f = user;
    char name[16];
    (void)snprintf(name, sizeof name, "%d", f->n_saved++);
    struct run_state state = {.point = *point,
                              .step = point->phase == PHASE_BETWEEN ? 1 : 0,
                              .n_steps = 2,
                              .metrics = f->tests,
                              .representation = f->measured,
                              .reference = f->measured + 4};
    return state_write(f->data.ctx, NULL, scratch_path(&f->scratch, name), &state);
}

static int set_up(void **state)
{
    static struct fixture f;
    f = (struct fixture){0};
    scratch_init(&f.scratch);
    learner_data_open(&f.data, test_backend(), "synth:classes=4,train=20,test=5,size=12,seed=1",
                      0.08);
    assert_ok(f.data.ctx, incremental_new(f.data.ctx, &f.tests));
    *state = &f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    incremental_free(f->tests);
    learner_data_close(&f->data);
    scratch_fini(&f->scratch);
    return 0;
}

static void use_method(struct fixture *f, enum method method)
{
    learner_data_configure(&f->data, method, SETTINGS, sizeof SETTINGS / sizeof SETTINGS[0]);
    if (method != METHOD_DER)
        f->data.options.config.target_params = 0;
}

static struct learner *new_learner(struct fixture *f, int save_every)
{
    struct learner *learner;
    f->data.options.saver = (struct learner_saver){.every = save_every, .save = keep, .user = f};
    assert_ok(f->data.ctx, learner_new(f->data.be, &f->data.options, &learner));
    return learner;
}

/* The learner's files after a step, as a run folder has them. */
static void save(struct fixture *f, const struct learner *learner, const char *model,
                 const char *exemplars)
{
    struct model parts = learner_model(learner, NAMES);
    assert_ok(f->data.ctx, model_write(&parts, NULL, scratch_path(&f->scratch, model)));
    assert_ok(f->data.ctx, exemplar_file_write(learner->memory, NAMES, learner->step, NULL,
                                               scratch_path(&f->scratch, exemplars)));
}

/* A learner that knows step 1, from its files alone. */
static struct learner *restored(struct fixture *f)
{
    struct learner *learner = new_learner(f, 0);
    struct model *model;
    struct exemplar_file *file;
    assert_ok(f->data.ctx,
              model_load(f->data.be, NULL, scratch_path(&f->scratch, "model1"), &model));
    assert_ok(f->data.ctx,
              exemplar_file_read(f->data.ctx, NULL, scratch_path(&f->scratch, "exemplars1"),
                                 CLASSES, f->data.set->part[DATA_TRAIN].n, &file));
    assert_ok(f->data.ctx, learner_adopt(learner, model, &file->memory));
    exemplar_file_free(file);
    model_free(model);
    return learner;
}

static void assert_same_file(struct fixture *f, const char *a, const char *b)
{
    struct file_bytes bytes[2] = {{0}, {0}};
    const char *names[2] = {a, b};
    struct fault fault;
    for (int i = 0; i < 2; i++)
        assert_int_equal(file_read(&f->data.ctx->mem, NULL, scratch_path(&f->scratch, names[i]),
                                   1 << 24, &bytes[i], &fault),
                         DER_OK);
    assert_int_equal(bytes[0].size, bytes[1].size);
    assert_memory_equal(bytes[0].data, bytes[1].data, bytes[0].size);
    file_bytes_free(&f->data.ctx->mem, &bytes[0]);
    file_bytes_free(&f->data.ctx->mem, &bytes[1]);
}

static void assert_same_set(struct fixture *f, const struct param_set *a, const struct param_set *b)
{
    size_t bytes = a->values->bytes;
    void *x = mem_alloc(&f->data.ctx->mem, bytes, 1);
    void *y = mem_alloc(&f->data.ctx->mem, bytes, 1);
    assert_ok(f->data.ctx, buffer_read(a->values, 0, x, bytes));
    assert_ok(f->data.ctx, buffer_read(b->values, 0, y, bytes));
    assert_memory_equal(x, y, bytes);
    mem_free(&f->data.ctx->mem, x);
    mem_free(&f->data.ctx->mem, y);
}

/* What the next step starts from. */
static void assert_same_last(struct fixture *f, const struct learner *a, const struct learner *b)
{
    assert_same_set(f, a->last_full->params, b->last_full->params);
    assert_int_equal(a->last_masks != NULL, f->data.options.config.prune);
    assert_int_equal(b->last_masks != NULL, f->data.options.config.prune);
    if (a->last_masks)
        assert_same_set(f, a->last_masks, b->last_masks);
    const enum readout readout = f->data.options.config.readout;
    assert_int_equal(a->trained_head != NULL,
                     readout == READOUT_MEANS || readout == READOUT_CORRECTED);
    assert_int_equal(b->trained_head != NULL, a->trained_head != NULL);
    if (a->trained_head)
        assert_same_set(f, a->trained_head, b->trained_head);
}

/* The newest extractor is what pruning leaves of the one at full width, also where it was cut long before the end. */
static void assert_full_holds_newest(struct fixture *f, const struct learner *learner)
{
    const struct resnet_spec *spec = &f->data.options.spec;
    const struct extractor *newest = learner->extractors[learner->n_extractors - 1];
    struct extractor *pruned;
    struct kept kept;
    if (!learner->last_masks)
        return;
    assert_ok(f->data.ctx, masks_kept(learner->last_masks, spec, &kept));
    assert_ok(f->data.ctx, extractor_new(f->data.be, &newest->spec, &pruned));
    assert_ok(f->data.ctx, prune_params(spec, &kept, learner->last_full->params, pruned->params));
    assert_same_set(f, pruned->params, newest->params);
    extractor_free(pruned);
    kept_fini(f->data.ctx, &kept);
}

/* Learns PER_STEP classes and n_more single ones, then n_new with a save after every epoch, then these again from each
 * of the saves. */
static void check_last_step(struct fixture *f, int n_more, int n_new, int n_expected)
{
    struct learner *whole = new_learner(f, 0);
    assert_ok(f->data.ctx, learner_step(whole, PER_STEP, NULL));
    for (int i = 0; i < n_more; i++)
        assert_ok(f->data.ctx, learner_step(whole, 1, NULL));
    save(f, whole, "model1", "exemplars1");
    whole->options.saver.every = 1;
    assert_ok(f->data.ctx, learner_step(whole, n_new, NULL));
    save(f, whole, "model2", "exemplars2");
    assert_full_holds_newest(f, whole);
    assert_int_equal(f->n_saved, n_expected);
    for (int i = 0; i < n_expected; i++) {
        struct state_file *from;
        char name[16];
        (void)snprintf(name, sizeof name, "%d", i);
        struct learner *learner = restored(f);
        assert_ok(f->data.ctx,
                  state_open(f->data.ctx, NULL, scratch_path(&f->scratch, name), &from));
        assert_ok(f->data.ctx, learner_resume_step(learner, n_new, from, NULL));
        state_close(from);
        save(f, learner, "model", "exemplars");
        assert_same_file(f, "model", "model2");
        assert_same_file(f, "exemplars", "exemplars2");
        assert_same_last(f, learner, whole);
        learner_free(learner);
    }
    learner_free(whole);
}

static void check_every_epoch(struct fixture *f, int n_expected)
{
    check_last_step(f, 0, PER_STEP, n_expected);
}

static void test_der_goes_on_from_every_epoch(void **state)
{
    struct fixture *f = *state;
    use_method(f, METHOD_DER);
    check_every_epoch(f, EPOCHS + HEAD_EPOCHS);
}

/* Soft to the end and cut afterwards; hard from the start, before the heads are drawn anew; other channels than
 * those that were learnt. */
static void test_der_goes_on_whenever_masks_harden(void **state)
{
    struct fixture *f = *state;
    static const char *const settings[][2] = {
        {"hard_epoch=5"}, {"hard_epoch=0"}, {"hard_epoch=1", "mask_choice=random"}};
    for (int i = 0; i < 3; i++) {
        use_method(f, METHOD_DER);
        assert_ok(f->data.ctx, config_apply(f->data.ctx, &f->data.options.config, settings[i],
                                            settings[i][1] ? 2 : 1));
        f->n_saved = 0;
        check_every_epoch(f, EPOCHS + HEAD_EPOCHS);
    }
}

static void test_finetuning_goes_on_from_every_epoch(void **state)
{
    struct fixture *f = *state;
    use_method(f, METHOD_FINETUNE);
    check_every_epoch(f, EPOCHS + HEAD_EPOCHS);
}

static void test_joint_training_goes_on_from_every_epoch(void **state)
{
    struct fixture *f = *state;
    use_method(f, METHOD_JOINT);
    check_every_epoch(f, EPOCHS);
}

static void test_wa_goes_on_from_every_epoch(void **state)
{
    struct fixture *f = *state;
    use_method(f, METHOD_WA);
    check_every_epoch(f, EPOCHS);
}

/* Its teacher's head is not the model's, whose rows are means. */
static void test_icarl_goes_on_from_every_epoch(void **state)
{
    struct fixture *f = *state;
    use_method(f, METHOD_ICARL);
    check_every_epoch(f, EPOCHS);
}

/* Which images are set aside is not in the state. Behind step 1 the head is what training left, behind later ones it is
 * not what the next step goes on with. */
static void test_bic_goes_on_from_every_epoch(void **state)
{
    struct fixture *f = *state;
    use_method(f, METHOD_BIC);
    check_every_epoch(f, EPOCHS);
    f->n_saved = 0;
    check_last_step(f, 1, 1, EPOCHS);
}

/* All that a state can hold: masks that were cut out, the auxiliary head, and the head that means replaced. */
static void test_der_read_by_means_goes_on_from_every_epoch(void **state)
{
    struct fixture *f = *state;
    static const char *const settings[] = {"readout=means", "second_stage=false", "hard_epoch=1"};
    use_method(f, METHOD_DER);
    assert_ok(f->data.ctx, config_apply(f->data.ctx, &f->data.options.config, settings, 3));
    check_every_epoch(f, EPOCHS);
}

static void test_a_taught_network_with_a_second_stage_goes_on_from_every_epoch(void **state)
{
    struct fixture *f = *state;
    static const char *const settings[] = {"distill=added"};
    use_method(f, METHOD_FINETUNE);
    assert_ok(f->data.ctx, config_apply(f->data.ctx, &f->data.options.config, settings, 1));
    check_every_epoch(f, EPOCHS + HEAD_EPOCHS);
}

/* Learns PER_STEP classes and n_more single ones; then one more as it is, and from its files and its state. */
static void check_trained_head(struct fixture *f, enum method method, int n_more)
{
    struct state_file *from;
    int64_t counts[PER_STEP] = {5, 5};
    const struct incremental_step tested = {
        .n_classes = PER_STEP, .n = counts, .top1 = counts, .top5 = counts};
    use_method(f, method);
    assert_ok(f->data.ctx, incremental_add(f->tests, &tested));
    struct learner *whole = new_learner(f, 0);
    assert_ok(f->data.ctx, learner_step(whole, PER_STEP, NULL));
    for (int i = 0; i < n_more; i++)
        assert_ok(f->data.ctx, learner_step(whole, 1, NULL));
    save(f, whole, "model1", "exemplars1");
    const struct stage_point point = learner_point(whole);
    assert_int_equal(keep(f, &point), DER_OK);
    struct learner *learner = restored(f);
    assert_ok(f->data.ctx, state_open(f->data.ctx, NULL, scratch_path(&f->scratch, "0"), &from));
    assert_ok(f->data.ctx, learner_restore_full(learner, from));
    state_close(from);
    assert_same_last(f, learner, whole);
    struct learner *both[] = {whole, learner};
    for (int i = 0; i < 2; i++)
        assert_ok(f->data.ctx, learner_step(both[i], 1, NULL));
    assert_same_last(f, learner, whole);
    assert_same_set(f, learner->classifier, whole->classifier);
    learner_free(learner);
    learner_free(whole);
}

static void test_the_head_that_means_replaced_is_kept_between_steps(void **state)
{
    check_trained_head(*state, METHOD_ICARL, 0);
}

/* From the second step on there is one. */
static void test_the_head_that_was_corrected_is_kept_between_steps(void **state)
{
    check_trained_head(*state, METHOD_BIC, 1);
}

static void test_a_state_past_the_last_epoch_is_refused(void **state)
{
    struct fixture *f = *state;
    struct state_file *from;
    use_method(f, METHOD_JOINT);
    struct learner *learner = new_learner(f, 1);
    assert_ok(f->data.ctx, learner_step(learner, PER_STEP, NULL));
    learner_free(learner);
    f->data.options.config.first.epochs = EPOCHS - 1;
    learner = new_learner(f, 0);
    assert_ok(f->data.ctx, state_open(f->data.ctx, NULL, scratch_path(&f->scratch, "4"), &from));
    assert_int_equal(learner_resume_step(learner, PER_STEP, from, NULL), DER_FORMAT);
    assert_non_null(strstr(f->data.ctx->error, "epoch 5 of a stage that has 4"));
    state_close(from);
    learner_free(learner);
}

/* Size and sparsity loss of every epoch, as records have them. */
struct sizes {
    const struct learner *learner;
    int64_t kept[EPOCHS];
    double loss[EPOCHS];
};

static enum der_status note_sizes(void *user, const struct train_progress *p)
{
    struct sizes *sizes = user;
    assert_string_equal(p->loss_names[p->n_losses - 1], "sparsity");
    assert_non_null(sizes->learner->masks);
    sizes->kept[p->epoch] = sizes->learner->kept_params;
    sizes->loss[p->epoch] = p->losses[p->n_losses - 1];
    return DER_OK;
}

static void test_the_hard_phase_tells_what_the_masks_keep(void **state)
{
    struct fixture *f = *state;
    enum { HARD = 3 };
    use_method(f, METHOD_DER);
    struct learner *learner = new_learner(f, 0);
    struct sizes sizes = {.learner = learner};
    struct train_hooks hooks = {.epoch_done = note_sizes, .user = &sizes};
    assert_ok(f->data.ctx, learner_step(learner, PER_STEP, &hooks));
    const struct resnet_spec *left = &learner->extractors[0]->spec;
    double share = pruned_share(&f->data.options.spec, left);
    assert_true(share < 1.0);
    for (int epoch = HARD; epoch < EPOCHS; epoch++) {
        assert_int_equal(sizes.kept[epoch], resnet_count_params(left));
        assert_true(fabs(sizes.loss[epoch] - share) < 1e-6);
    }
    assert_true(fabs(sizes.loss[HARD - 1] - share) > 1e-6);
    learner_free(learner);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_der_goes_on_from_every_epoch),
        TEST(test_der_goes_on_whenever_masks_harden),
        TEST(test_the_hard_phase_tells_what_the_masks_keep),
        TEST(test_finetuning_goes_on_from_every_epoch),
        TEST(test_joint_training_goes_on_from_every_epoch),
        TEST(test_wa_goes_on_from_every_epoch),
        TEST(test_icarl_goes_on_from_every_epoch),
        TEST(test_bic_goes_on_from_every_epoch),
        TEST(test_der_read_by_means_goes_on_from_every_epoch),
        TEST(test_a_taught_network_with_a_second_stage_goes_on_from_every_epoch),
        TEST(test_the_head_that_means_replaced_is_kept_between_steps),
        TEST(test_the_head_that_was_corrected_is_kept_between_steps),
        TEST(test_a_state_past_the_last_epoch_is_refused),
    };
    if (!test_backend_is_here())
        return test_backend_skip();
    return cmocka_run_group_tests(tests, NULL, NULL);
}

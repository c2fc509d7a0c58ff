/*
 * A replayed iteration is the iteration: bit for bit what its steps give one by one, with whatever
 * has changed since it was captured.
 */
#include "backend/cuda/cuda.h"
#include "support/rig.h"
#include "support/test_ctx.h"

#include <string.h>

extern const struct backend_ops cuda_backend;

static const struct rig_options RIG = {.backend = "cuda",
                                       .network = "resnet18-cifar",
                                       .width = 0.3,
                                       .batch = 8,
                                       .size = 16,
                                       .n_frozen = 3,
                                       .masks = true,
                                       .fuse = true};

enum { STEPS = 6, N_LOSSES = 3 };

/* What happens between two steps. */
typedef void (*event)(struct rig *rig, int step);

static void nothing(struct rig *rig, int step)
{
    (void)rig;
    (void)step;
}

/* A frozen extractor's first weights change. */
static void change_frozen(struct rig *rig, int step)
{
    float weights[4] = {0.5f, -0.25f, 1.0f, (float)step};
    if (step == 3)
        assert_ok(rig->ctx,
                  buffer_write(rig->frozen[1]->params->values, 0, weights, sizeof weights));
}

/* The same columns of the matrix, bound anew. */
static void bind_anew(struct rig *rig, int step)
{
    const struct folded *folded;
    const struct folded_use use = {.batch = rig->options.batch, .in_training = true};
    struct span feature = {.buffer = rig->features, .pitch = rig->feature_dim};
    if (step != 3)
        return;
    assert_ok(rig->ctx, extractor_folded_for(rig->frozen[0], &use, &folded));
    assert_ok(rig->ctx, folded_bind(folded, (struct span){.buffer = rig->image}, feature));
}

/* The trained extractor's first weights change. */
static void change_trained(struct rig *rig, int step)
{
    float weights[4] = {0.5f, -0.25f, 1.0f, (float)step};
    if (step == 3)
        assert_ok(rig->ctx, buffer_write(rig->trained->params->values, 0, weights, sizeof weights));
}

/* Whether some gradients go to the update as they are computed, as long as nobody asks for another way. */
static void check_gradients(const struct rig *rig)
{
    const struct cuda_program *p = (const struct cuda_program *)rig->program;
    bool any = false;
    for (int v = 0; v < p->n_values; v++)
        any |= p->values[v].raw != NULL;
    assert_int_equal(any, rig->options.precision == PRECISION_BF16 &&
                              !rig->options.tuning.gradients_apart);
}

/* A checksum over everything that was learnt and all losses. */
static uint64_t train_rig(int threads, const struct rig_options *options, bool step_by_step,
                          event between)
{
    struct der_ctx *ctx = test_ctx_new(threads);
    struct rig *rig;
    uint64_t sum;
    assert_ok(ctx, rig_open(ctx, options, &rig));
    check_gradients(rig);
    for (int i = 0; i < STEPS; i++) {
        float losses[N_LOSSES];
        if (step_by_step) /* forgets the capture, so that the next run goes step by step */
            rig->be->ops->sequence_drop(rig->be, rig->sequence);
        between(rig, i);
        assert_ok(ctx, rig_step(rig, i, losses));
    }
    assert_ok(ctx, rig_checksum(rig, &sum));
    rig_close(rig);
    test_ctx_free(ctx);
    return sum;
}

static uint64_t train_with(int threads, enum precision precision, bool step_by_step, event between)
{
    struct rig_options options = RIG;
    options.precision = precision;
    return train_rig(threads, &options, step_by_step, between);
}

static uint64_t train(enum precision precision, bool step_by_step, event between)
{
    return train_with(1, precision, step_by_step, between);
}

static void compare(event between)
{
    static const enum precision precisions[] = {PRECISION_F32, PRECISION_TF32, PRECISION_BF16};
    if (!backend_is_usable(&cuda_backend))
        skip();
    for (int i = 0; i < 3; i++)
        assert_true(train(precisions[i], false, between) == train(precisions[i], true, between));
}

static void test_replay_equals_the_steps_one_by_one(void **state)
{
    (void)state;
    compare(nothing);
}

static void test_replay_notices_new_weights_of_a_frozen_extractor(void **state)
{
    (void)state;
    compare(change_frozen);
    assert_true(train(PRECISION_F32, false, change_frozen) != train(PRECISION_F32, false, nothing));
}

static void test_replay_survives_a_new_binding(void **state)
{
    (void)state;
    compare(bind_anew);
}

/* The update writes weights in bf16 to the bit as a launch of their own would, notices when they were changed by
 * others, and replays; gradients that it reads in bf16 are those that launches of their own would write out. The
 * number of streams changes nothing either. */
static void test_other_ways_give_the_same_bytes(void **state)
{
    (void)state;
    static const event events[] = {nothing, change_trained, bind_anew};
    if (!backend_is_usable(&cuda_backend))
        skip();
    for (int i = 0; i < 3; i++) {
        struct rig_options options = RIG;
        options.precision = PRECISION_BF16;
        const uint64_t sum = train_rig(1, &options, false, events[i]);
        assert_true(train_rig(1, &options, true, events[i]) == sum);
        options.tuning.gradients_apart = true;
        assert_true(train_rig(1, &options, false, events[i]) == sum);
        options.tuning.weights_apart = true;
        assert_true(train_rig(1, &options, false, events[i]) == sum);
        options.tuning.gradients_apart = false;
        assert_true(train_rig(1, &options, false, events[i]) == sum);
        options.tuning.side_streams = 1;
        assert_true(train_rig(1, &options, false, events[i]) == sum);
    }
}

/* Stages of 33, 65, 131 and 261 channels, which are padded to 64, 128, 192 and 320, and whole ones. */
static void test_gradients_of_any_width_go_straight_into_the_update(void **state)
{
    (void)state;
    static const double widths[] = {0.51, 1.0};
    if (!backend_is_usable(&cuda_backend))
        skip();
    for (int i = 0; i < 2; i++) {
        struct rig_options options = RIG;
        options.precision = PRECISION_BF16;
        options.width = widths[i];
        options.n_frozen = 1;
        const uint64_t sum = train_rig(1, &options, false, nothing);
        options.tuning.gradients_apart = true;
        assert_true(train_rig(1, &options, false, nothing) == sum);
    }
}

static void test_training_in_bf16_repeats_itself(void **state)
{
    (void)state;
    if (!backend_is_usable(&cuda_backend))
        skip();
    uint64_t sum = train(PRECISION_BF16, false, nothing);
    for (int i = 0; i < 3; i++)
        assert_true(train(PRECISION_BF16, false, nothing) == sum);
}

/* Threads only make the plans of convolutions. */
static void test_any_number_of_threads_gives_the_same_bytes(void **state)
{
    (void)state;
    if (!backend_is_usable(&cuda_backend))
        skip();
    const uint64_t sum = train_with(1, PRECISION_BF16, false, nothing);
    assert_true(train_with(2, PRECISION_BF16, false, nothing) == sum);
    assert_true(train_with(8, PRECISION_BF16, false, nothing) == sum);
}

static void test_without_a_gpu_there_is_one_sentence(void **state)
{
    (void)state;
    if (backend_is_usable(&cuda_backend))
        skip();
    struct der_ctx *ctx = test_ctx_new(1);
    struct backend *be;
    assert_int_equal(backend_open(ctx, "cuda", NULL, &be), DER_UNSUPPORTED);
    assert_null(be);
    assert_non_null(strstr(der_ctx_error(ctx), "back end 'cuda' finds no NVIDIA"));
    assert_true(strcmp(backend_default(), "cuda") != 0);
    test_ctx_free(ctx);
}

static void test_a_gpu_that_is_not_there_is_refused(void **state)
{
    (void)state;
    if (!backend_is_usable(&cuda_backend))
        skip();
    struct der_ctx *ctx = test_ctx_new(1);
    struct backend *be;
    assert_int_equal(backend_open(ctx, "cuda", &(struct backend_options){.device = 99}, &be),
                     DER_ARG);
    assert_non_null(strstr(der_ctx_error(ctx), "GPU 99"));
    test_ctx_free(ctx);
}

static void test_too_large_a_buffer_is_refused_and_work_goes_on(void **state)
{
    (void)state;
    if (!backend_is_usable(&cuda_backend))
        skip();
    struct der_ctx *ctx = test_ctx_new(1);
    struct backend *be;
    struct buffer *buffer;
    float number = 1.5f;
    float back = 0.0f;
    assert_ok(ctx, backend_open(ctx, "cuda", NULL, &be));
    assert_int_equal(buffer_new(be, (size_t)1 << 45, &buffer), DER_NOMEM);
    assert_non_null(strstr(der_ctx_error(ctx), "out of memory"));
    assert_ok(ctx, buffer_new(be, sizeof number, &buffer));
    assert_ok(ctx, buffer_write(buffer, 0, &number, sizeof number));
    assert_ok(ctx, buffer_read(buffer, 0, &back, sizeof back));
    assert_true(back == number);
    buffer_free(buffer);
    backend_close(be);
    test_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_replay_equals_the_steps_one_by_one),
        cmocka_unit_test(test_replay_notices_new_weights_of_a_frozen_extractor),
        cmocka_unit_test(test_replay_survives_a_new_binding),
        cmocka_unit_test(test_other_ways_give_the_same_bytes),
        cmocka_unit_test(test_gradients_of_any_width_go_straight_into_the_update),
        cmocka_unit_test(test_training_in_bf16_repeats_itself),
        cmocka_unit_test(test_any_number_of_threads_gives_the_same_bytes),
        cmocka_unit_test(test_without_a_gpu_there_is_one_sentence),
        cmocka_unit_test(test_a_gpu_that_is_not_there_is_refused),
        cmocka_unit_test(test_too_large_a_buffer_is_refused_and_work_goes_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

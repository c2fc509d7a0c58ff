/*
 * Frozen extractors that are a batch ahead change nothing: what is learnt is the same to the bit.
 */
#include "support/learner_data.h"
#include "support/test_backend.h"
#include "support/test_ctx.h"

#include <string.h>

enum { STEPS = 3, PER_STEP = 2, MOST_NUMBERS = 4096 };

/* Two full batches and a tail in an epoch. */
static const char *const SETTINGS[] = {"memory=12", "batch=8", "epochs=2",           "drops=1",
                                       "lr=0.05",   "seed=3",  "classifier_epochs=1"};

enum way { STREAMED, HELD, REFUSED, N_WAYS };

static void open_data(struct learner_data *data, const char *backend)
{
    learner_data_open(data, backend, "synth:classes=6,train=9,test=4,size=8,seed=1", 0.08);
    learner_data_configure(data, METHOD_DER, SETTINGS, sizeof SETTINGS / sizeof SETTINGS[0]);
}

/* What three steps end with: the classifier, which depends on all that came before. Returns its length. */
static size_t learn(struct learner_data *f, enum way way, float numbers[MOST_NUMBERS])
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
        struct learner_data f;
        size_t n[N_WAYS];
        open_data(&f, (*ops)->name);
        for (enum way way = STREAMED; way < N_WAYS; way++)
            n[way] = learn(&f, way, numbers[way]);
        for (enum way way = HELD; way < N_WAYS; way++) {
            assert_int_equal(n[way], n[STREAMED]);
            assert_memory_equal(numbers[way], numbers[STREAMED], n[way] * sizeof numbers[0][0]);
        }
        learner_data_close(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_ahead_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

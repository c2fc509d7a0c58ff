/*
 * Two contexts at work in two threads do not know of each other.
 */
/* labels: tsan */
#include "support/test_backend.h"
#include "support/rig.h"
#include "support/test_ctx.h"

#include <pthread.h>

enum { STEPS = 4, N_WORKERS = 2 };

struct worker {
    const char *backend;
    enum der_status status;
    uint64_t sum;
};

/* No assertions in here: cmocka's belong to the main thread. */
static enum der_status train(struct der_ctx *ctx, struct worker *worker)
{
    const struct rig_options options = {.backend = worker->backend,
                                        .network = "resnet18-cifar",
                                        .width = 0.08,
                                        .batch = 6,
                                        .size = 8,
                                        .n_frozen = 1,
                                        .masks = true,
                                        .fuse = true};
    struct rig *rig;
    TRY(rig_open(ctx, &options, &rig));
    enum der_status status = DER_OK;
    float losses[3];
    for (int i = 0; i < STEPS && status == DER_OK; i++)
        status = rig_step(rig, i, losses);
    if (status == DER_OK)
        status = rig_checksum(rig, &worker->sum);
    rig_close(rig);
    return status;
}

static void *work(void *argument)
{
    struct worker *worker = argument;
    struct der_ctx *ctx;
    worker->status = der_ctx_new(&(struct der_ctx_options){.threads = 2}, &ctx);
    if (worker->status == DER_OK)
        worker->status = train(ctx, worker);
    der_ctx_free(ctx);
    return NULL;
}

static void test_two_contexts_in_two_threads_work_as_if_alone(void **state)
{
    (void)state;
    for (const struct backend_ops *const *be = test_backends(); *be; be++) {
        struct worker alone = {.backend = (*be)->name};
        work(&alone);
        assert_int_equal(alone.status, DER_OK);
        struct worker workers[N_WORKERS];
        pthread_t threads[N_WORKERS];
        for (int i = 0; i < N_WORKERS; i++) {
            workers[i] = (struct worker){.backend = (*be)->name};
            assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
        }
        for (int i = 0; i < N_WORKERS; i++) {
            assert_int_equal(pthread_join(threads[i], NULL), 0);
            assert_int_equal(workers[i].status, DER_OK);
            assert_true(workers[i].sum == alone.sum);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_contexts_in_two_threads_work_as_if_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

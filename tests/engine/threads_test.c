/*
 * Two contexts at work in two threads do not know of each other.
 */
/* labels: tsan */
#include "support/test_backend.h"
#include "support/rig.h"
#include "support/test_ctx.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

enum { STEPS = 4, N_WORKERS = 2 };

struct worker {
    const char *backend;
    enum der_status status;
    char message[256]; /* of a failure */
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
    if (worker->status != DER_OK)
        (void)snprintf(worker->message, sizeof worker->message, "%s",
                       ctx ? der_ctx_error(ctx) : "no context");
    der_ctx_free(ctx);
    return NULL;
}

static void test_two_contexts_in_two_threads_work_as_if_alone(void **state)
{
    (void)state;
    for (const struct backend_ops *const *be = test_backends(); *be; be++) {
        struct worker alone = {.backend = (*be)->name};
        work(&alone);
        assert_string_equal(alone.message, "");
        struct worker workers[N_WORKERS];
        pthread_t threads[N_WORKERS];
        for (int i = 0; i < N_WORKERS; i++) {
            workers[i] = (struct worker){.backend = (*be)->name};
            assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
        }
        for (int i = 0; i < N_WORKERS; i++) {
            assert_int_equal(pthread_join(threads[i], NULL), 0);
            assert_string_equal(workers[i].message, "");
            assert_int_equal(workers[i].sum, alone.sum);
        }
    }
}

/* A context that comes and goes, as often as it can, until it is told to stop. */
struct neighbour {
    const char *backend;
    atomic_bool stop;
    enum der_status status;
};

static enum der_status visit(const char *backend)
{
    struct der_ctx *ctx;
    struct backend *be;
    struct buffer *buffer = NULL;
    TRY(der_ctx_new(&(struct der_ctx_options){.threads = 1}, &ctx));
    enum der_status status = backend_open(ctx, backend, &(struct backend_options){0}, &be);
    for (int i = 0; i < 8 && status == DER_OK; i++) {
        status = buffer_new(be, 1 << 16, &buffer);
        buffer_free(buffer);
    }
    backend_close(be);
    der_ctx_free(ctx);
    return status;
}

static void *come_and_go(void *argument)
{
    struct neighbour *neighbour = argument;
    while (!atomic_load(&neighbour->stop) && neighbour->status == DER_OK)
        neighbour->status = visit(neighbour->backend);
    return NULL;
}

static void test_a_neighbour_that_takes_and_frees_memory_disturbs_nothing(void **state)
{
    (void)state;
    for (const struct backend_ops *const *be = test_backends(); *be; be++) {
        struct worker alone = {.backend = (*be)->name};
        struct worker beside = alone;
        struct neighbour neighbour = {.backend = (*be)->name};
        pthread_t thread;
        work(&alone);
        atomic_init(&neighbour.stop, false);
        assert_int_equal(pthread_create(&thread, NULL, come_and_go, &neighbour), 0);
        work(&beside);
        atomic_store(&neighbour.stop, true);
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_int_equal(neighbour.status, DER_OK);
        assert_string_equal(beside.message, "");
        assert_int_equal(beside.sum, alone.sum);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_contexts_in_two_threads_work_as_if_alone),
        cmocka_unit_test(test_a_neighbour_that_takes_and_frees_memory_disturbs_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

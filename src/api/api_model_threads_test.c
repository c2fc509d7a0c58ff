/*
 * Two threads, each with a context and a model of its own, predict at once and get what one gets alone.
 */
/* labels: tsan */
#include <der/der.h>

#include "core/rng.h"
#include "support/made_model.h"
#include "support/scratch.h"
#include "support/test_backend.h"
#include "support/test_ctx.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { N_WORKERS = 2, ROUNDS = 10, IMAGES = 9, BYTES = 3 * MADE_SIZE * MADE_SIZE };

struct worker {
    const char *path, *backend;
    const struct der_image *images;
    enum der_status status;
    float logits[IMAGES * MADE_CLASSES];
};

/* No assertions in here: cmocka's belong to the main thread. */
static enum der_status predict(struct der_ctx *ctx, struct worker *worker)
{
    struct der_model_options options = {.backend = worker->backend};
    struct der_guess guesses[2];
    struct der_model *model;
    TRY(der_model_load(ctx, worker->path, &options, &model));
    enum der_status status = DER_OK;
    for (int i = 0; i < ROUNDS && status == DER_OK; i++) {
        status = der_model_logits(model, worker->images, IMAGES, worker->logits);
        if (status == DER_OK)
            status = der_model_predict(model, &worker->images[i % IMAGES], 1, 2, guesses);
    }
    der_model_free(model);
    return status;
}

static void *work(void *argument)
{
    struct worker *worker = argument;
    struct der_ctx *ctx;
    worker->status = der_ctx_new(&(struct der_ctx_options){.threads = 2}, &ctx);
    if (worker->status == DER_OK)
        worker->status = predict(ctx, worker);
    der_ctx_free(ctx);
    return NULL;
}

static void test_two_models_at_once(void **state)
{
    (void)state;
    static uint8_t bytes[IMAGES][BYTES];
    struct der_image images[IMAGES];
    struct scratch scratch;
    struct augment_spec input = made_input();
    char path[SCRATCH_PATH_MAX];
    struct der_ctx *ctx = test_ctx_new(1);
    scratch_init(&scratch);
    (void)snprintf(path, sizeof path, "%s", scratch_path(&scratch, "model"));
    made_model_write(ctx, path, &input, 1.0);
    for (int i = 0; i < IMAGES; i++) {
        for (int k = 0; k < BYTES; k++)
            bytes[i][k] = (uint8_t)rng_at(4, RNG_TEST, (uint32_t)i, (uint64_t)k).word[0];
        images[i] = (struct der_image){
            .pixels = bytes[i], .channels = 3, .height = MADE_SIZE, .width = MADE_SIZE};
    }
    for (const struct backend_ops *const *be = test_backends(); *be; be++) {
        struct worker alone = {.path = path, .backend = (*be)->name, .images = images};
        struct worker workers[N_WORKERS] = {alone, alone};
        pthread_t threads[N_WORKERS];
        work(&alone);
        assert_int_equal(alone.status, DER_OK);
        for (int i = 0; i < N_WORKERS; i++)
            assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
        for (int i = 0; i < N_WORKERS; i++) {
            assert_int_equal(pthread_join(threads[i], NULL), 0);
            assert_int_equal(workers[i].status, DER_OK);
            assert_memory_equal(workers[i].logits, alone.logits, sizeof alone.logits);
        }
    }
    scratch_fini(&scratch);
    test_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_two_models_at_once)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

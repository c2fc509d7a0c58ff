/*
 * Two contexts in two threads of one program, by the installed headers and library alone: each comes to what
 * it comes to alone, and keeps its errors to itself.
 *
 *     two_contexts KILOBYTES      the stack of the threads
 */
#include <der/der.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct worker {
    const char *seed;       /* the assignment that makes its run another one */
    enum der_status status; /* of its run */
    struct der_step last;
    int n_epochs;    /* that its progress function was told of */
    char error[200]; /* what its context says after a call that fails */
};

static void count_epochs(void *user, const struct der_progress *progress)
{
    struct worker *worker = user;
    worker->n_epochs += progress->epoch_done;
}

static enum der_status train(struct der_ctx *ctx, struct worker *worker)
{
    const char *const assignments[] = {"network=resnet18-cifar", "width=0.1", "epochs=2", "batch=8",
                                       worker->seed};
    struct der_settings *settings = NULL;
    enum der_status status = der_settings_new(ctx, "custom", "der", assignments, 5, &settings);
    if (status != DER_OK)
        return status;
    struct der_train_options options = {.settings = settings,
                                        .data = "synth:classes=2,train=16,test=20,size=12,seed=1",
                                        .progress = count_epochs,
                                        .user = worker};
    struct der_train_result result;
    status = der_train(ctx, &options, &result);
    worker->last = result.last;
    der_settings_free(settings);
    return status;
}

static void *work(void *argument)
{
    struct worker *worker = argument;
    struct der_ctx *ctx = NULL;
    worker->status = der_ctx_new(NULL, &ctx);
    if (worker->status != DER_OK)
        return NULL;
    worker->status = train(ctx, worker);

    struct der_settings *none = NULL;
    if (der_settings_new(ctx, worker->seed, "der", NULL, 0, &none) == DER_OK)
        der_settings_free(none);
    snprintf(worker->error, sizeof worker->error, "%s", der_ctx_error(ctx));
    der_ctx_free(ctx);
    return NULL;
}

static int is_same(const struct worker *a, const struct worker *b)
{
    return a->status == DER_OK && b->status == DER_OK && a->n_epochs == b->n_epochs &&
           a->n_epochs > 0 && a->last.top1 == b->last.top1 && a->last.params == b->last.params &&
           strcmp(a->error, b->error) == 0 && strstr(a->error, a->seed) != NULL;
}

/* As threads of programs often have: little stack. */
static bool start(pthread_t *thread, size_t stack_bytes, struct worker *worker)
{
    pthread_attr_t attributes;
    if (pthread_attr_init(&attributes) != 0)
        return false;
    bool is_started = pthread_attr_setstacksize(&attributes, stack_bytes) == 0 &&
                      pthread_create(thread, &attributes, work, worker) == 0;
    (void)pthread_attr_destroy(&attributes);
    return is_started;
}

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    size_t stack_bytes = (size_t)atoi(argv[1]) * 1024;
    struct worker alone[2] = {{.seed = "seed=1"}, {.seed = "seed=2"}};
    struct worker together[2] = {{.seed = "seed=1"}, {.seed = "seed=2"}};
    pthread_t threads[2];

    for (int i = 0; i < 2; i++)
        work(&alone[i]);
    for (int i = 0; i < 2; i++)
        if (!start(&threads[i], stack_bytes, &together[i]))
            return 1;
    for (int i = 0; i < 2; i++)
        if (pthread_join(threads[i], NULL) != 0)
            return 1;
    for (int i = 0; i < 2; i++) {
        printf("%s: %d and %d epochs, %.1f and %.1f %%, %s\n", alone[i].seed, alone[i].n_epochs,
               together[i].n_epochs, alone[i].last.top1, together[i].last.top1, together[i].error);
        if (!is_same(&alone[i], &together[i]))
            return 1;
    }
    return 0;
}

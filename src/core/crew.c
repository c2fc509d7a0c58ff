#include "core/crew.h"

#include <assert.h>
#include <pthread.h>
#include <signal.h>

struct member {
    void (*work)(void *user, int member);
    void *user;
    int number;
    pthread_t thread;
    bool is_running;
};

static void *member_main(void *argument)
{
    struct member *member = argument;
    member->work(member->user, member->number);
    return NULL;
}

/* Signals belong to the caller's threads. */
static void start(struct member *members, int n)
{
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (int i = 0; i < n; i++)
        members[i].is_running =
            pthread_create(&members[i].thread, NULL, member_main, &members[i]) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

enum der_status crew_run(struct der_ctx *ctx, int n, void (*work)(void *user, int member),
                         void *user)
{
    assert(n > 0);
    int n_others = n - 1;
    struct member *others = mem_zalloc(&ctx->mem, (size_t)n_others, sizeof *others);
    if (!others)
        return ctx_nomem(ctx);
    for (int i = 0; i < n_others; i++)
        others[i] = (struct member){.work = work, .user = user, .number = i + 1};
    start(others, n_others);
    work(user, 0);
    for (int i = 0; i < n_others; i++)
        if (others[i].is_running)
            (void)pthread_join(others[i].thread, NULL);
    mem_free(&ctx->mem, others);
    return DER_OK;
}

/* Work shared by some threads. */
/* labels: tsan */
#include "core/crew.h"

#include "support/test_ctx.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

enum { ITEMS = 1000, MOST = 5 };

struct shared {
    atomic_int next;
    int done_by[ITEMS]; /* member + 1 */
    atomic_int calls[MOST];
    atomic_bool sees_signals[MOST];
    pthread_t caller;
    bool zero_is_caller;
};

static void work(void *user, int member)
{
    struct shared *shared = user;
    sigset_t blocked;
    pthread_sigmask(SIG_SETMASK, NULL, &blocked);
    atomic_store(&shared->sees_signals[member], !sigismember(&blocked, SIGINT));
    atomic_fetch_add(&shared->calls[member], 1);
    if (member == 0)
        shared->zero_is_caller = pthread_equal(pthread_self(), shared->caller) != 0;
    for (int i; (i = atomic_fetch_add(&shared->next, 1)) < ITEMS;)
        shared->done_by[i] = member + 1;
}

static void test_every_member_works_once_and_every_item_is_done(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    for (int n = 1; n <= MOST; n++) {
        struct shared shared = {.caller = pthread_self()};
        assert_ok(ctx, crew_run(ctx, n, work, &shared));
        for (int i = 0; i < ITEMS; i++)
            assert_true(shared.done_by[i] >= 1 && shared.done_by[i] <= n);
        for (int k = 0; k < MOST; k++)
            assert_int_equal(atomic_load(&shared.calls[k]), k < n);
        assert_true(shared.zero_is_caller);
        assert_true(atomic_load(&shared.sees_signals[0]));
        for (int k = 1; k < n; k++)
            assert_false(atomic_load(&shared.sees_signals[k]));
    }
    test_ctx_free(ctx);
}

static void test_without_memory_nothing_is_done(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    struct shared shared = {.caller = pthread_self()};
    ctx->mem.fail_at = ctx->mem.n_allocs + 1;
    assert_int_equal(crew_run(ctx, 2, work, &shared), DER_NOMEM);
    assert_int_equal(atomic_load(&shared.next), 0);
    test_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_member_works_once_and_every_item_is_done),
        cmocka_unit_test(test_without_memory_nothing_is_done),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

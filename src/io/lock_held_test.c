/*
 * Looking at a lock: who holds it is seen, and looking is in nobody's way.
 */
#include "io/lock_held.h"

#include "support/scratch.h"
#include "support/test_ctx.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

static void test_a_lock_is_seen_while_it_is_held(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    struct scratch scratch;
    bool held = true;
    scratch_init(&scratch);
    assert_ok(ctx, lock_is_held(ctx, scratch.root, &held)); /* no file at all */
    assert_false(held);
    scratch_text(&scratch, "lock", "123\n");
    assert_ok(ctx, lock_is_held(ctx, scratch.root, &held)); /* a file of somebody who is gone */
    assert_false(held);
    int fd = open(scratch_path(&scratch, "lock"), O_RDWR);
    assert_true(fd >= 0);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    assert_ok(ctx, lock_is_held(ctx, scratch.root, &held));
    assert_true(held);
    assert_int_equal(flock(fd, LOCK_SH), 0); /* another who looks */
    assert_ok(ctx, lock_is_held(ctx, scratch.root, &held));
    assert_false(held);
    assert_int_equal(close(fd), 0);
    atomic_store(&ctx->mem.fail_at, atomic_load(&ctx->mem.n_allocs) + 1);
    assert_int_equal(lock_is_held(ctx, scratch.root, &held), DER_NOMEM);
    scratch_fini(&scratch);
    test_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_a_lock_is_seen_while_it_is_held)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

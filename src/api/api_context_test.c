/*
 * The context through the public interface: settings, errors, counters, independence.
 */
/* labels: tsan */
#include <der/der.h>

#include "core/ctx.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static struct der_ctx *ctx_with(const struct der_ctx_options *options)
{
    struct der_ctx *ctx = NULL;
    assert_int_equal(der_ctx_new(options, &ctx), DER_OK);
    assert_non_null(ctx);
    return ctx;
}

static void test_defaults_are_one_thread_and_silence(void **state)
{
    (void)state;
    struct der_ctx *ctx = ctx_with(NULL);
    assert_int_equal(der_ctx_threads(ctx), 1);
    assert_string_equal(der_ctx_error(ctx), "");
    ctx_log(ctx, DER_LOG_ERROR, "nobody listens to %d", 1);
    der_ctx_free(ctx);
}

static void test_options_are_kept(void **state)
{
    (void)state;
    struct der_ctx_options options = {.threads = 3, .seed = 77};
    struct der_ctx *ctx = ctx_with(&options);
    assert_int_equal(der_ctx_threads(ctx), 3);
    assert_true(ctx->seed == 77);
    der_ctx_free(ctx);
}

static void test_the_cache_folder_is_copied_and_may_be_none(void **state)
{
    (void)state;
    char name[] = "folder";
    struct der_ctx *ctx = ctx_with(&(struct der_ctx_options){.cache_dir = name});
    name[0] = 'm';
    assert_string_equal(ctx->cache_dir, "folder");
    assert_int_equal(der_ctx_memory(ctx).n_live, 0);
    der_ctx_free(ctx);
    ctx = ctx_with(&(struct der_ctx_options){.cache_dir = ""});
    assert_null(ctx->cache_dir);
    der_ctx_free(ctx);
    ctx = ctx_with(NULL);
    assert_null(ctx->cache_dir);
    der_ctx_free(ctx);
}

static void test_impossible_thread_counts_are_refused(void **state)
{
    (void)state;
    static const int bad[] = {-1, 4097, INT32_MAX};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct der_ctx_options options = {.threads = bad[i]};
        struct der_ctx *ctx = (struct der_ctx *)&options;
        assert_int_equal(der_ctx_new(&options, &ctx), DER_ARG);
        assert_null(ctx);
    }
}

static void test_result_pointer_is_required(void **state)
{
    (void)state;
    assert_int_equal(der_ctx_new(NULL, NULL), DER_ARG);
}

static void test_null_context_is_freed_and_has_no_error(void **state)
{
    (void)state;
    der_ctx_free(NULL);
    assert_string_equal(der_ctx_error(NULL), "");
}

static void test_latest_failure_is_kept(void **state)
{
    (void)state;
    struct der_ctx *ctx = ctx_with(NULL);
    assert_int_equal(ctx_fail(ctx, DER_SHAPE, "want %d channels, met %d", 64, 3), DER_SHAPE);
    assert_string_equal(der_ctx_error(ctx), "want 64 channels, met 3");
    assert_int_equal(ctx_fail(ctx, DER_IO, "second"), DER_IO);
    assert_string_equal(der_ctx_error(ctx), "second");
    der_ctx_free(ctx);
}

static void test_memory_is_counted(void **state)
{
    (void)state;
    struct der_ctx *ctx = ctx_with(NULL);
    assert_true(der_ctx_memory(ctx).n_allocs == 0);

    void *block = mem_alloc(&ctx->mem, 100, 1);
    assert_non_null(block);
    struct der_memory_stats held = der_ctx_memory(ctx);
    assert_true(held.n_allocs == 1 && held.n_live == 1);
    assert_true(held.live_bytes >= 100 && held.peak_bytes == held.live_bytes);

    mem_free(&ctx->mem, block);
    struct der_memory_stats after = der_ctx_memory(ctx);
    assert_true(after.n_live == 0 && after.live_bytes == 0);
    assert_true(after.peak_bytes == held.peak_bytes);
    der_ctx_free(ctx);
}

struct heard {
    int n;                    /* lines so far */
    enum der_log_level level; /* of the latest */
    char text[64];            /* the latest */
};

static void hear(void *user, enum der_log_level level, const char *text)
{
    struct heard *heard = user;
    heard->n++;
    heard->level = level;
    strncpy(heard->text, text, sizeof heard->text - 1);
}

static void test_log_lines_reach_the_callback(void **state)
{
    (void)state;
    struct heard heard = {0};
    struct der_ctx_options options = {.log = hear, .log_user = &heard};
    struct der_ctx *ctx = ctx_with(&options);
    ctx_log(ctx, DER_LOG_INFO, "epoch %d", 7);
    assert_int_equal(heard.n, 1);
    assert_int_equal(heard.level, DER_LOG_INFO);
    assert_string_equal(heard.text, "epoch 7");
    der_ctx_free(ctx);
}

enum { ROUNDS = 200 };

struct task {
    pthread_t thread;
    const char *problem; /* NULL when all went well */
};

/* Uses a context of its own in every way that it offers. */
static void *work(void *arg)
{
    struct task *task = arg;
    struct der_ctx *ctx = NULL;
    if (der_ctx_new(NULL, &ctx) != DER_OK) {
        task->problem = "no context";
        return NULL;
    }
    for (int i = 0; i < ROUNDS; i++) {
        char *text = mem_strdup(&ctx->mem, "text");
        if (!text || ctx_fail(ctx, DER_ARG, "round %d", i) != DER_ARG)
            task->problem = "a round failed";
        mem_free(&ctx->mem, text);
    }
    if (der_ctx_memory(ctx).n_allocs != ROUNDS || der_ctx_memory(ctx).n_live != 0)
        task->problem = "counters moved from outside";
    if (strcmp(der_ctx_error(ctx), "round 199") != 0)
        task->problem = "error came from outside";
    der_ctx_free(ctx);
    return NULL;
}

static void test_two_threads_with_a_context_each_do_not_meet(void **state)
{
    (void)state;
    struct task tasks[2] = {0};
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&tasks[i].thread, NULL, work, &tasks[i]), 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_join(tasks[i].thread, NULL), 0);
    for (int i = 0; i < 2; i++)
        assert_null(tasks[i].problem);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults_are_one_thread_and_silence),
        cmocka_unit_test(test_options_are_kept),
        cmocka_unit_test(test_the_cache_folder_is_copied_and_may_be_none),
        cmocka_unit_test(test_impossible_thread_counts_are_refused),
        cmocka_unit_test(test_result_pointer_is_required),
        cmocka_unit_test(test_null_context_is_freed_and_has_no_error),
        cmocka_unit_test(test_latest_failure_is_kept),
        cmocka_unit_test(test_memory_is_counted),
        cmocka_unit_test(test_log_lines_reach_the_callback),
        cmocka_unit_test(test_two_threads_with_a_context_each_do_not_meet),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

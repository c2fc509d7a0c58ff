/*
 * Heap and arena: what is counted, what fails on demand, what is given back.
 */
#include "core/arena.h"
#include "core/mem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void test_blocks_are_counted_and_aligned(void **state)
{
    (void)state;
    struct mem mem;
    mem_init(&mem);
    char *a = mem_alloc(&mem, 3, 5);
    char *b = mem_zalloc(&mem, 100, 1);
    assert_non_null(a);
    assert_non_null(b);
    assert_int_equal((uintptr_t)a % MEM_ALIGNMENT, 0);
    assert_int_equal(mem.n_live, 2);
    assert_int_equal(mem.live_bytes, 115);
    for (int i = 0; i < 100; i++)
        assert_int_equal(b[i], 0);
    mem_free(&mem, a);
    mem_free(&mem, b);
    mem_free(&mem, NULL);
    assert_int_equal(mem.n_live, 0);
    assert_int_equal(mem.live_bytes, 0);
    assert_int_equal(mem.peak_bytes, 115);
}

static void test_the_chosen_request_fails_once(void **state)
{
    (void)state;
    struct mem mem;
    mem_init(&mem);
    mem.fail_at = 2;
    void *a = mem_alloc(&mem, 1, 1);
    void *b = mem_alloc(&mem, 1, 1);
    void *c = mem_alloc(&mem, 1, 1);
    assert_non_null(a);
    assert_null(b);
    assert_non_null(c);
    mem_free(&mem, a);
    mem_free(&mem, c);
}

static void test_overflowing_sizes_are_refused(void **state)
{
    (void)state;
    struct mem mem;
    mem_init(&mem);
    assert_null(mem_alloc(&mem, SIZE_MAX / 2, 3));
    assert_null(mem_alloc(&mem, SIZE_MAX, 1));
    size_t out;
    assert_false(size_mul(SIZE_MAX, 2, &out));
    assert_false(size_add(SIZE_MAX, 1, &out));
    assert_true(size_mul(0, SIZE_MAX, &out) && out == 0);
}

static void test_realloc_keeps_content_and_survives_failure(void **state)
{
    (void)state;
    struct mem mem;
    mem_init(&mem);
    char *a = mem_realloc(&mem, NULL, 4, 1);
    memcpy(a, "abc", 4);
    mem.fail_at = 2;
    assert_null(mem_realloc(&mem, a, 1000, 1));
    assert_string_equal(a, "abc");
    a = mem_realloc(&mem, a, 1000, 1);
    assert_string_equal(a, "abc");
    mem_free(&mem, a);
    assert_int_equal(mem.n_live, 0);
}

static void test_arena_hands_out_zeroed_aligned_blocks(void **state)
{
    (void)state;
    struct mem mem;
    mem_init(&mem);
    struct arena arena;
    arena_init(&arena, &mem);
    for (size_t size = 1; size < 3000; size += 37) {
        unsigned char *block = arena_zalloc(&arena, size, 3);
        assert_non_null(block);
        assert_int_equal((uintptr_t)block % 16, 0);
        for (size_t i = 0; i < 3 * size; i++) {
            assert_int_equal(block[i], 0);
            block[i] = 0xff;
        }
    }
    assert_string_equal(arena_printf(&arena, "%s-%d", "x", 7), "x-7");
    assert_non_null(arena_zalloc(&arena, 1000000, 1));
    assert_null(arena_zalloc(&arena, SIZE_MAX, 2));
    arena_fini(&arena);
    assert_int_equal(mem.n_live, 0);
}

static void test_arena_reports_short_memory(void **state)
{
    (void)state;
    struct mem mem;
    mem_init(&mem);
    mem.fail_at = 1;
    struct arena arena;
    arena_init(&arena, &mem);
    assert_null(arena_strdup(&arena, "text"));
    assert_string_equal(arena_strdup(&arena, "text"), "text");
    arena_fini(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_blocks_are_counted_and_aligned),
        cmocka_unit_test(test_the_chosen_request_fails_once),
        cmocka_unit_test(test_overflowing_sizes_are_refused),
        cmocka_unit_test(test_realloc_keeps_content_and_survives_failure),
        cmocka_unit_test(test_arena_hands_out_zeroed_aligned_blocks),
        cmocka_unit_test(test_arena_reports_short_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

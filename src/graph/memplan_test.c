/*
 * The planner never lets two living things overlap, and does let dead ones make room.
 */
#include "core/rng.h"
#include "graph/memplan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static struct der_ctx *new_ctx(void)
{
    struct der_ctx *ctx;
    assert_int_equal(der_ctx_new(NULL, &ctx), DER_OK);
    return ctx;
}

static void test_dead_items_make_room(void **state)
{
    (void)state;
    struct der_ctx *ctx = new_ctx();
    struct memplan_item items[] = {
        {.bytes = 1000, .first = 0, .last = 1},
        {.bytes = 1000, .first = 1, .last = 2},
        {.bytes = 1000, .first = 2, .last = 3},
        {.bytes = 0, .first = 0, .last = 9},
    };
    size_t total;
    assert_int_equal(memplan(ctx, items, 4, &total), DER_OK);
    assert_int_equal(total, 2048);
    assert_int_equal(items[0].offset, items[2].offset);
    assert_int_not_equal(items[0].offset, items[1].offset);
    der_ctx_free(ctx);
}

static void test_living_items_never_overlap(void **state)
{
    (void)state;
    struct der_ctx *ctx = new_ctx();
    enum { N = 120, ROUNDS = 50 };
    for (uint64_t round = 0; round < ROUNDS; round++) {
        struct memplan_item items[N];
        size_t sum = 0;
        for (uint32_t i = 0; i < N; i++) {
            struct rng_block r = rng_at(round, RNG_TEST, i, 0);
            int first = (int)(r.word[0] % 60);
            items[i] = (struct memplan_item){
                .bytes = r.word[1] % 5000, .first = first, .last = first + (int)(r.word[2] % 20)};
            sum += items[i].bytes + MEM_ALIGNMENT;
        }
        size_t total;
        assert_int_equal(memplan(ctx, items, N, &total), DER_OK);
        assert_true(total < sum);
        for (int a = 0; a < N; a++) {
            assert_int_equal(items[a].offset % MEM_ALIGNMENT, 0);
            assert_true(items[a].offset + items[a].bytes <= total);
            for (int b = 0; b < a; b++) {
                bool together = items[a].first <= items[b].last && items[b].first <= items[a].last;
                bool apart = items[a].offset + items[a].bytes <= items[b].offset ||
                             items[b].offset + items[b].bytes <= items[a].offset;
                if (items[a].bytes && items[b].bytes)
                    assert_true(!together || apart);
            }
        }
    }
    der_ctx_free(ctx);
}

static void test_liveness_follows_aliases(void **state)
{
    (void)state;
    struct der_ctx *ctx = new_ctx();
    struct graph *g;
    int image;
    int matrix;
    int weights;
    int pooled;
    int joined;
    int logits;
    assert_int_equal(graph_new(ctx, &g), DER_OK);
    assert_int_equal(graph_input(g, "x", DTYPE_F32, shape_4d(2, 3, 4, 4), &image), DER_OK);
    assert_int_equal(graph_input(g, "f", DTYPE_F32, shape_2d(2, 5), &matrix), DER_OK);
    assert_int_equal(graph_param(g, "w", shape_2d(4, 5), false, &weights), DER_OK);
    assert_int_equal(graph_relu(g, image, &image), DER_OK);
    assert_int_equal(graph_avgpool(g, image, &pooled), DER_OK);
    assert_int_equal(graph_join(g, pooled, matrix, 2, &joined), DER_OK);
    assert_int_equal(graph_linear(g, joined, weights, NO_VALUE, &logits), DER_OK);
    int first[16];
    int last[16];
    assert_true(g->n_values <= 16);
    graph_liveness(g, first, last);
    assert_int_equal(graph_storage_of(g, joined), matrix);
    assert_int_equal(graph_storage_of(g, pooled), matrix);
    assert_int_equal(first[image], 0);
    assert_int_equal(last[image], 1);
    assert_int_equal(first[matrix], 1);
    assert_int_equal(last[matrix], 3);
    assert_int_equal(first[pooled], -1);
    graph_free(g);
    der_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dead_items_make_room),
        cmocka_unit_test(test_living_items_never_overlap),
        cmocka_unit_test(test_liveness_follows_aliases),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

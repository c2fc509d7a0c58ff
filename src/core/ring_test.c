/* The queue between threads: order, bounds, closing. */
/* labels: tsan */
#include "core/ring.h"

#include "support/test_ctx.h"

enum { ITEMS = 2000, PRODUCERS = 3, CONSUMERS = 3 };

static void test_items_come_out_in_order(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    struct ring ring;
    assert_ok(ctx, ring_init(ctx, 3, &ring));
    int items[5] = {0};
    void *out;
    for (int round = 0; round < 4; round++) {
        for (int i = 0; i < 3; i++)
            assert_true(ring_push(&ring, &items[i]));
        for (int i = 0; i < 3; i++) {
            assert_true(ring_pop(&ring, &out));
            assert_ptr_equal(out, &items[i]);
        }
        /* One item moves the start, so that the next round wraps elsewhere. */
        assert_true(ring_push(&ring, &items[4]));
        assert_true(ring_pop(&ring, &out));
    }
    ring_fini(&ring);
    test_ctx_free(ctx);
}

static void test_closed_ring_refuses_pushes_and_drains(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    struct ring ring;
    assert_ok(ctx, ring_init(ctx, 2, &ring));
    int item = 0;
    void *out = NULL;
    assert_true(ring_push(&ring, &item));
    ring_close(&ring);
    ring_close(&ring);
    assert_false(ring_push(&ring, &item));
    assert_true(ring_pop(&ring, &out));
    assert_ptr_equal(out, &item);
    assert_false(ring_pop(&ring, &out));
    ring_fini(&ring);
    test_ctx_free(ctx);
}

static void test_memory_failure_leaves_nothing(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    struct ring ring;
    atomic_store(&ctx->mem.fail_at, atomic_load(&ctx->mem.n_allocs) + 1);
    assert_int_equal(ring_init(ctx, 2, &ring), DER_NOMEM);
    ring_fini(&ring);
    test_ctx_free(ctx);
}

struct party {
    struct ring *ring;
    int first;           /* producers: their numbers begin here */
    int *numbers;        /* producers: what they push points here */
    int64_t sum, n;      /* consumers: what they popped */
    bool is_closed_push; /* producers: a push was refused */
};

static void *produce(void *argument)
{
    struct party *party = argument;
    for (int i = party->first; i < ITEMS; i += PRODUCERS)
        if (!ring_push(party->ring, &party->numbers[i]))
            party->is_closed_push = true;
    return NULL;
}

static void *consume(void *argument)
{
    struct party *party = argument;
    void *item;
    while (ring_pop(party->ring, &item)) {
        party->sum += *(int *)item;
        party->n++;
    }
    return NULL;
}

static void test_every_item_arrives_once_among_many_threads(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    struct ring ring;
    assert_ok(ctx, ring_init(ctx, 4, &ring));
    int numbers[ITEMS];
    for (int i = 0; i < ITEMS; i++)
        numbers[i] = i;
    struct party parties[PRODUCERS + CONSUMERS] = {0};
    pthread_t threads[PRODUCERS + CONSUMERS];
    for (int i = 0; i < PRODUCERS + CONSUMERS; i++) {
        parties[i] = (struct party){.ring = &ring, .first = i, .numbers = numbers};
        void *(*role)(void *) = i < PRODUCERS ? produce : consume;
        assert_int_equal(pthread_create(&threads[i], NULL, role, &parties[i]), 0);
    }
    int64_t sum = 0;
    int64_t n = 0;
    for (int i = 0; i < PRODUCERS; i++)
        pthread_join(threads[i], NULL);
    ring_close(&ring);
    for (int i = PRODUCERS; i < PRODUCERS + CONSUMERS; i++) {
        pthread_join(threads[i], NULL);
        sum += parties[i].sum;
        n += parties[i].n;
    }
    assert_int_equal(n, ITEMS);
    assert_int_equal(sum, (int64_t)ITEMS * (ITEMS - 1) / 2);
    ring_fini(&ring);
    test_ctx_free(ctx);
}

static void test_closing_wakes_a_waiting_pusher_and_popper(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    struct ring full;
    struct ring empty;
    assert_ok(ctx, ring_init(ctx, 1, &full));
    assert_ok(ctx, ring_init(ctx, 1, &empty));
    int numbers[ITEMS] = {0};
    struct party pusher = {.ring = &full, .numbers = numbers};
    struct party popper = {.ring = &empty};
    pthread_t threads[2];
    assert_int_equal(pthread_create(&threads[0], NULL, produce, &pusher), 0);
    assert_int_equal(pthread_create(&threads[1], NULL, consume, &popper), 0);
    ring_close(&full);
    ring_close(&empty);
    pthread_join(threads[0], NULL);
    pthread_join(threads[1], NULL);
    assert_true(pusher.is_closed_push);
    assert_int_equal(popper.n, 0);
    ring_fini(&full);
    ring_fini(&empty);
    test_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_items_come_out_in_order),
        cmocka_unit_test(test_closed_ring_refuses_pushes_and_drains),
        cmocka_unit_test(test_memory_failure_leaves_nothing),
        cmocka_unit_test(test_every_item_arrives_once_among_many_threads),
        cmocka_unit_test(test_closing_wakes_a_waiting_pusher_and_popper),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Views: classes of a step, unions, balanced subsets, hold-out. */
#include "data/view.h"

#include "support/test_ctx.h"

#include <string.h>

enum { N_CLASSES = 4, N = 40 };

/* 40 samples: class of sample i by a fixed pattern, so that classes differ in size. */
struct fixture {
    struct der_ctx *ctx;
    struct data_part part;
    struct class_order *order;
    int32_t labels[N];
};

static int set_up(void **state)
{
    static struct fixture f;
    static const int32_t pattern[] = {0, 1, 2, 3, 3, 2, 3, 3};
    f.ctx = test_ctx_new(1);
    for (int i = 0; i < N; i++)
        f.labels[i] = pattern[i % 8];
    f.part = (struct data_part){.n = N, .labels = f.labels};
    assert_ok(f.ctx, order_from_array(f.ctx, "test", (int32_t[]){2, 0, 3, 1}, N_CLASSES, &f.order));
    *state = &f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    order_free(f->order);
    test_ctx_free(f->ctx);
    return 0;
}

static void assert_equal_views(const struct data_view *a, const struct data_view *b)
{
    assert_int_equal(a->n, b->n);
    for (int64_t i = 0; i < a->n; i++) {
        assert_int_equal(a->items[i].sample, b->items[i].sample);
        assert_int_equal(a->items[i].label, b->items[i].label);
    }
}

static void test_a_step_sees_its_classes_under_their_new_labels(void **state)
{
    struct fixture *f = *state;
    struct data_view *view;
    assert_ok(f->ctx, view_classes(f->ctx, &f->part, f->order, 1, 3, &view));
    assert_int_equal(view->n, 5 + 20);
    int64_t last_sample = -1;
    for (int64_t i = 0; i < view->n; i++) {
        struct view_item item = view->items[i];
        assert_int_equal(item.label, i < 5 ? 1 : 2);
        assert_int_equal(f->labels[item.sample], i < 5 ? 0 : 3);
        if (i == 5)
            last_sample = -1;
        assert_true(item.sample > last_sample);
        last_sample = item.sample;
    }
    view_free(view);

    assert_ok(f->ctx, view_classes(f->ctx, &f->part, f->order, 2, 2, &view));
    assert_int_equal(view->n, 0);
    view_free(view);
    assert_ok(f->ctx, view_classes(f->ctx, &f->part, f->order, 0, N_CLASSES, &view));
    int64_t counts[N_CLASSES];
    view_counts(view, counts, N_CLASSES);
    assert_memory_equal(counts, ((int64_t[]){10, 5, 20, 5}), sizeof counts);
    view_free(view);
}

static void test_union_is_one_after_the_other(void **state)
{
    struct fixture *f = *state;
    struct data_view *a;
    struct data_view *b;
    struct data_view *both;
    assert_ok(f->ctx, view_classes(f->ctx, &f->part, f->order, 3, 4, &a));
    assert_ok(f->ctx, view_classes(f->ctx, &f->part, f->order, 0, 1, &b));
    assert_ok(f->ctx, view_union(f->ctx, a, b, &both));
    assert_int_equal(both->n, 15);
    assert_int_equal(both->items[4].label, 3);
    assert_int_equal(both->items[5].label, 0);
    view_free(a);
    view_free(b);
    view_free(both);
}

static void test_balanced_subset_has_the_rarest_count_of_every_class(void **state)
{
    struct fixture *f = *state;
    struct data_view *view;
    struct data_view *balanced;
    assert_ok(f->ctx, view_classes(f->ctx, &f->part, f->order, 0, 3, &view));
    assert_ok(f->ctx, view_balanced(f->ctx, view, 7, 2, &balanced));
    int64_t counts[N_CLASSES];
    view_counts(balanced, counts, N_CLASSES);
    assert_memory_equal(counts, ((int64_t[]){5, 5, 5, 0}), sizeof counts);
    bool seen[N] = {false};
    for (int64_t i = 0; i < balanced->n; i++) {
        struct view_item item = balanced->items[i];
        assert_false(seen[item.sample]);
        seen[item.sample] = true;
        assert_int_equal(f->order->label_of[f->labels[item.sample]], item.label);
    }
    view_free(balanced);
    view_free(view);
}

/* Rare labels repeat, evenly; labels that have enough are drawn from as ever. */
static void test_a_rare_class_does_not_shrink_a_balanced_subset(void **state)
{
    struct fixture *f = *state;
    struct data_view *view;
    struct data_view *balanced;
    struct data_view *plain;
    int taken[N] = {0};
    assert_ok(f->ctx, view_classes(f->ctx, &f->part, f->order, 0, 3, &view));
    assert_ok(f->ctx, view_balanced_to(f->ctx, view, 8, 7, 2, &balanced));
    int64_t counts[N_CLASSES];
    int64_t have[N_CLASSES];
    view_counts(balanced, counts, N_CLASSES);
    view_counts(view, have, N_CLASSES);
    assert_memory_equal(counts, ((int64_t[]){8, 8, 8, 0}), sizeof counts);
    for (int64_t i = 0; i < balanced->n; i++)
        taken[balanced->items[i].sample]++;
    for (int64_t i = 0; i < view->n; i++) {
        int times = taken[view->items[i].sample];
        if (have[view->items[i].label] < 8)
            assert_in_range(times, 1, 2);
        else
            assert_in_range(times, 0, 1);
    }
    /* A wish that all labels meet anyway changes nothing. */
    view_free(balanced);
    assert_ok(f->ctx, view_balanced_to(f->ctx, view, 5, 7, 2, &balanced));
    assert_ok(f->ctx, view_balanced(f->ctx, view, 7, 2, &plain));
    assert_equal_views(balanced, plain);
    view_free(plain);
    view_free(balanced);
    view_free(view);
}

static void test_small_classes_can_be_spared_from_holding_out(void **state)
{
    struct fixture *f = *state;
    struct data_view *view;
    struct data_view *kept;
    struct data_view *held;
    int64_t have[N_CLASSES];
    int64_t counts[N_CLASSES];
    assert_ok(f->ctx, view_classes(f->ctx, &f->part, f->order, 0, N_CLASSES, &view));
    view_counts(view, have, N_CLASSES);
    assert_ok(f->ctx, view_holdout_from(f->ctx, view, 0.2, 6, 3, &kept, &held));
    view_counts(held, counts, N_CLASSES);
    int n_spared = 0;
    for (int c = 0; c < N_CLASSES; c++) {
        assert_int_equal(counts[c], have[c] < 6 ? 0 : (int64_t)(0.2 * (double)have[c] + 0.5));
        n_spared += have[c] < 6;
    }
    assert_in_range(n_spared, 1, N_CLASSES - 1);
    assert_int_equal(kept->n + held->n, view->n);
    view_free(kept);
    view_free(held);
    /* One image alone is no failure here. */
    view->n = 1;
    assert_ok(f->ctx, view_holdout_from(f->ctx, view, 0.2, 2, 3, &kept, &held));
    assert_int_equal(kept->n, 1);
    assert_int_equal(held->n, 0);
    view_free(kept);
    view_free(held);
    view_free(view);
}

static void test_balanced_subset_depends_on_seed_and_step(void **state)
{
    struct fixture *f = *state;
    struct data_view *view;
    struct data_view *drawn[4];
    static const struct {
        uint64_t seed;
        uint32_t step;
    } keys[4] = {{7, 2}, {7, 2}, {8, 2}, {7, 3}};
    assert_ok(f->ctx, view_classes(f->ctx, &f->part, f->order, 0, 3, &view));
    for (int i = 0; i < 4; i++)
        assert_ok(f->ctx, view_balanced(f->ctx, view, keys[i].seed, keys[i].step, &drawn[i]));
    assert_equal_views(drawn[0], drawn[1]);
    size_t bytes = (size_t)drawn[0]->n * sizeof *drawn[0]->items;
    assert_memory_not_equal(drawn[0]->items, drawn[2]->items, bytes);
    assert_memory_not_equal(drawn[0]->items, drawn[3]->items, bytes);
    for (int i = 0; i < 4; i++)
        view_free(drawn[i]);
    view_free(view);
}

static void test_balanced_subset_of_nothing_is_nothing(void **state)
{
    struct fixture *f = *state;
    struct data_view *view;
    struct data_view *balanced;
    assert_ok(f->ctx, view_new(f->ctx, 0, &view));
    assert_ok(f->ctx, view_balanced(f->ctx, view, 7, 2, &balanced));
    assert_int_equal(balanced->n, 0);
    view_free(balanced);
    view_free(view);
}

/* Over many draws every sample of a class is taken equally often: 5 of 20 in 400 draws is 100 on
 * average with a standard deviation of 8.7. */
static void test_balanced_subset_is_a_fair_draw(void **state)
{
    struct fixture *f = *state;
    struct data_view *view;
    int taken[N] = {0};
    assert_ok(f->ctx, view_classes(f->ctx, &f->part, f->order, 0, N_CLASSES, &view));
    for (uint32_t step = 0; step < 400; step++) {
        struct data_view *balanced;
        assert_ok(f->ctx, view_balanced(f->ctx, view, 1, step, &balanced));
        for (int64_t i = 0; i < balanced->n; i++)
            taken[balanced->items[i].sample]++;
        view_free(balanced);
    }
    for (int i = 0; i < N; i++)
        if (f->labels[i] == 3)
            assert_in_range(taken[i], 100 - 45, 100 + 45);
    view_free(view);
}

static void test_holdout_takes_its_share_of_every_class(void **state)
{
    struct fixture *f = *state;
    static const struct {
        double share;
        int64_t held[N_CLASSES];
    } cases[] = {
        {0.1, {1, 1, 2, 1}}, {0.5, {5, 3, 10, 3}}, {0.01, {1, 1, 1, 1}}, {0.99, {9, 4, 19, 4}}};
    struct data_view *view;
    assert_ok(f->ctx, view_classes(f->ctx, &f->part, f->order, 0, N_CLASSES, &view));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct data_view *kept;
        struct data_view *held;
        int64_t counts[N_CLASSES];
        assert_ok(f->ctx, view_holdout(f->ctx, view, cases[i].share, 3, &kept, &held));
        view_counts(held, counts, N_CLASSES);
        assert_memory_equal(counts, cases[i].held, sizeof counts);
        assert_int_equal(kept->n + held->n, view->n);
        bool is_held[N] = {false};
        for (int64_t k = 0; k < held->n; k++)
            is_held[held->items[k].sample] = true;
        for (int64_t k = 0; k < kept->n; k++)
            assert_false(is_held[kept->items[k].sample]);
        view_free(kept);
        view_free(held);
    }
    view_free(view);
}

/* Steps and orders come and go; an image that is held out stays so. */
static void test_holdout_of_a_class_is_the_same_in_any_order(void **state)
{
    struct fixture *f = *state;
    struct class_order *other;
    assert_ok(f->ctx,
              order_from_array(f->ctx, "other", (int32_t[]){0, 1, 2, 3}, N_CLASSES, &other));
    bool is_held[2][N] = {{false}};
    for (int i = 0; i < 2; i++) {
        struct data_view *view;
        struct data_view *kept;
        struct data_view *held;
        const struct class_order *order = i == 0 ? f->order : other;
        /* Class 3 alone in one case, among all in the other. */
        int first = i == 0 ? 2 : 0;
        int last = i == 0 ? 3 : N_CLASSES;
        assert_ok(f->ctx, view_classes(f->ctx, &f->part, order, first, last, &view));
        assert_ok(f->ctx, view_holdout(f->ctx, view, 0.3, 3, &kept, &held));
        for (int64_t k = 0; k < held->n; k++)
            if (f->labels[held->items[k].sample] == 3)
                is_held[i][held->items[k].sample] = true;
        view_free(view);
        view_free(kept);
        view_free(held);
    }
    assert_memory_equal(is_held[0], is_held[1], sizeof is_held[0]);
    order_free(other);
}

static void test_holdout_refuses_what_cannot_be_split(void **state)
{
    struct fixture *f = *state;
    struct data_view *view;
    struct data_view *kept;
    struct data_view *held;
    assert_ok(f->ctx, view_new(f->ctx, 1, &view));
    view->items[0] = (struct view_item){.sample = 3, .label = 6};
    assert_int_equal(view_holdout(f->ctx, view, 0.5, 1, &kept, &held), DER_ARG);
    assert_non_null(strstr(der_ctx_error(f->ctx), "class 7"));
    static const double shares[] = {0.0, 1.0, -0.5, 2.0};
    for (int i = 0; i < 4; i++)
        assert_int_equal(view_holdout(f->ctx, view, shares[i], 1, &kept, &held), DER_ARG);
    assert_null(kept);
    assert_null(held);
    view_free(view);
}

static enum der_status make_all(struct fixture *f)
{
    struct data_view *view = NULL;
    struct data_view *balanced = NULL;
    struct data_view *both = NULL;
    struct data_view *kept = NULL;
    struct data_view *held = NULL;
    enum der_status status = view_classes(f->ctx, &f->part, f->order, 0, N_CLASSES, &view);
    if (status == DER_OK)
        status = view_balanced(f->ctx, view, 1, 1, &balanced);
    if (status == DER_OK)
        status = view_union(f->ctx, view, balanced, &both);
    if (status == DER_OK)
        status = view_holdout(f->ctx, both, 0.5, 1, &kept, &held);
    view_free(view);
    view_free(balanced);
    view_free(both);
    view_free(kept);
    view_free(held);
    return status;
}

static void test_memory_failures_leave_nothing(void **state)
{
    struct fixture *f = *state;
    uint64_t live = der_ctx_memory(f->ctx).n_live;
    enum der_status status = DER_NOMEM;
    for (uint64_t n = 1; status == DER_NOMEM; n++) {
        atomic_store(&f->ctx->mem.fail_at, atomic_load(&f->ctx->mem.n_allocs) + n);
        status = make_all(f);
        assert_int_equal(der_ctx_memory(f->ctx).n_live, live);
        assert_true(n < 50);
    }
    assert_int_equal(status, DER_OK);
    atomic_store(&f->ctx->mem.fail_at, 0);
}

/* Of every label as many, other ones with another seed; a label that has no more than these keeps one. */
static void test_as_many_of_every_class_are_set_aside(void **state)
{
    struct fixture *f = *state;
    struct data_view *view;
    struct data_view *kept[2];
    struct data_view *aside[2];
    assert_ok(f->ctx, view_classes(f->ctx, &f->part, f->order, 0, 3, &view));
    for (int i = 0; i < 2; i++) {
        bool seen[N] = {false};
        int64_t counts[N_CLASSES];
        int64_t last = -1;
        assert_ok(f->ctx, view_set_aside(f->ctx, view, 3, (uint64_t)(5 + i), &kept[i], &aside[i]));
        assert_int_equal(kept[i]->n + aside[i]->n, view->n);
        view_counts(aside[i], counts, N_CLASSES);
        assert_memory_equal(counts, ((int64_t[]){3, 3, 3, 0}), sizeof counts);
        for (int64_t k = 0; k < aside[i]->n; k++)
            seen[aside[i]->items[k].sample] = true;
        for (int64_t k = 0; k < kept[i]->n; k++) { /* in the order of the view */
            const struct view_item item = kept[i]->items[k];
            assert_false(seen[item.sample]);
            assert_true(item.label > last || kept[i]->items[k - 1].sample < item.sample);
            last = item.label;
        }
    }
    assert_memory_not_equal(aside[0]->items, aside[1]->items,
                            (size_t)aside[0]->n * sizeof *aside[0]->items);
    for (int i = 0; i < 2; i++) {
        view_free(kept[i]);
        view_free(aside[i]);
    }
    assert_ok(f->ctx, view_set_aside(f->ctx, view, 5, 5, &kept[0], &aside[0]));
    int64_t counts[N_CLASSES];
    view_counts(kept[0], counts, N_CLASSES);
    for (int label = 0; label < 3; label++)
        assert_true(counts[label] >= 1);
    assert_int_equal(counts[1], 1); /* the rarest has five */
    view_free(kept[0]);
    view_free(aside[0]);
    view_free(view);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_step_sees_its_classes_under_their_new_labels),
        cmocka_unit_test(test_union_is_one_after_the_other),
        cmocka_unit_test(test_balanced_subset_has_the_rarest_count_of_every_class),
        cmocka_unit_test(test_a_rare_class_does_not_shrink_a_balanced_subset),
        cmocka_unit_test(test_small_classes_can_be_spared_from_holding_out),
        cmocka_unit_test(test_balanced_subset_depends_on_seed_and_step),
        cmocka_unit_test(test_balanced_subset_of_nothing_is_nothing),
        cmocka_unit_test(test_balanced_subset_is_a_fair_draw),
        cmocka_unit_test(test_holdout_takes_its_share_of_every_class),
        cmocka_unit_test(test_holdout_of_a_class_is_the_same_in_any_order),
        cmocka_unit_test(test_holdout_refuses_what_cannot_be_split),
        cmocka_unit_test(test_memory_failures_leave_nothing),
        cmocka_unit_test(test_as_many_of_every_class_are_set_aside),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}

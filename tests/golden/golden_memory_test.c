/*
 * What a learner sees and keeps, against numpy: the legacy shuffle of 100 and of 1000 classes, the
 * order of herding, and how many images of a class the balanced subset of every step has.
 */
#include "data/exemplar.h"
#include "support/golden_file.h"
#include "support/test_ctx.h"

#include <stdio.h>
#include <stdlib.h>

enum { NAME_MAX_CHARS = 64, MAX_CLASSES = 100 };

static const struct golden_tensor *get(const struct golden_file *file, const char *kind,
                                       const char *name, const char *what)
{
    char full[NAME_MAX_CHARS];
    (void)snprintf(full, sizeof full, "%s/%s/%s", kind, name, what);
    return golden_find(file, full);
}

static const int32_t *get_numbers(const struct golden_file *file, const char *kind,
                                  const char *name, const char *what)
{
    const struct golden_tensor *tensor = get(file, kind, name, what);
    assert_non_null(tensor);
    return tensor->data;
}

/* Calls `check` for every name in the file's list of that kind. */
static void for_each(const char *kind,
                     void (*check)(struct der_ctx *ctx, const struct golden_file *file,
                                   const char *name))
{
    struct der_ctx *ctx = test_ctx_new(1);
    struct golden_file *file = golden_open("memory");
    char name[NAME_MAX_CHARS / 2];
    int used;
    int n = 0;
    for (const char *at = golden_text(file, kind); sscanf(at, "%31s%n", name, &used) == 1;
         at += used, n++)
        check(ctx, file, name);
    assert_true(n > 0);
    golden_close(file);
    test_ctx_free(ctx);
}

static void test_orders_are_numpys_shuffle(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    struct golden_file *file = golden_open("memory");
    static const int sizes[] = {100, 1000};
    for (int i = 0; i < 2; i++) {
        char name[NAME_MAX_CHARS];
        struct class_order *order;
        (void)snprintf(name, sizeof name, "order/%d", sizes[i]);
        assert_ok(ctx, order_new(ctx, "seed:1993", sizes[i], &order));
        golden_compare("order", order->class_of, golden_get(file, name), 0.0);
        order_free(order);
    }
    golden_close(file);
    test_ctx_free(ctx);
}

static void check_herding(struct der_ctx *ctx, const struct golden_file *file, const char *name)
{
    const int32_t *size = get_numbers(file, "herd", name, "size");
    const struct golden_tensor *want = get(file, "herd", name, "ranks");
    int n = size[0];
    int dim = size[1];
    char full[NAME_MAX_CHARS];
    int n_ranked;
    float *features = malloc((size_t)(n * dim) * sizeof *features);
    int32_t *ranks = malloc((size_t)n * sizeof *ranks);
    assert_true(features && ranks && want);
    (void)snprintf(full, sizeof full, "herd/%s", name);
    golden_noise(features, (int64_t)n * dim, full, golden_seed(file), 1.0, 1.0);
    assert_ok(ctx, exemplar_herd(ctx, features, n, dim, size[2], ranks, &n_ranked));
    assert_int_equal(n_ranked, shape_count(want->shape));
    golden_compare(name, ranks, want, 0.0);
    free(features);
    free(ranks);
}

static void test_herding_picks_as_numpy_does(void **state)
{
    (void)state;
    for_each("herd", check_herding);
}

/* A learner reduced to its data: every step sees its classes and the memory, then remembers. */
struct keeper {
    struct der_ctx *ctx;
    struct data_view *all;
    struct exemplars *memory;
    enum memory_mode mode;
    int budget;
};

/* All images, class by class. */
static struct data_view *make_view(struct der_ctx *ctx, const int32_t *sizes, int n_classes)
{
    struct data_part part = {0};
    struct class_order *order;
    struct data_view *view;
    int32_t natural[MAX_CLASSES];
    for (int c = 0; c < n_classes; c++) {
        natural[c] = c;
        part.n += sizes[c];
    }
    part.labels = malloc((size_t)part.n * sizeof *part.labels);
    assert_non_null(part.labels);
    int64_t at = 0;
    for (int c = 0; c < n_classes; c++)
        for (int i = 0; i < sizes[c]; i++)
            part.labels[at++] = c;
    assert_ok(ctx, order_from_array(ctx, "test", natural, n_classes, &order));
    assert_ok(ctx, view_classes(ctx, &part, order, 0, n_classes, &view));
    order_free(order);
    free(part.labels);
    return view;
}

static void remember(struct keeper *keeper, int first, int last)
{
    int quota = exemplar_quota(keeper->mode, keeper->budget, last);
    exemplars_truncate(keeper->memory, quota);
    for (int c = first; c < last; c++) {
        struct data_view *view;
        assert_ok(keeper->ctx, view_range(keeper->ctx, keeper->all, c, c + 1, &view));
        int n = view->n < quota ? (int)view->n : quota;
        int64_t *samples = malloc((size_t)(n + 1) * sizeof *samples);
        assert_non_null(samples);
        for (int i = 0; i < n; i++)
            samples[i] = view->items[i].sample;
        assert_ok(keeper->ctx, exemplars_add(keeper->memory, samples, n));
        free(samples);
        view_free(view);
    }
}

/* D_t with M_t for the classes [first, last). */
static struct data_view *see(const struct keeper *keeper, int first, int last)
{
    struct data_view *fresh;
    struct data_view *kept;
    struct data_view *both;
    assert_ok(keeper->ctx, view_range(keeper->ctx, keeper->all, first, last, &fresh));
    assert_ok(keeper->ctx, exemplars_view(keeper->memory, &kept));
    assert_ok(keeper->ctx, view_union(keeper->ctx, fresh, kept, &both));
    view_free(fresh);
    view_free(kept);
    return both;
}

static void check_counts(const struct data_view *view, int n_classes, const int32_t *want)
{
    int64_t counts[MAX_CLASSES];
    view_counts(view, counts, n_classes);
    for (int c = 0; c < n_classes; c++)
        assert_int_equal(counts[c], want[c]);
}

static void check_balance(struct der_ctx *ctx, const struct golden_file *file, const char *name)
{
    const struct golden_tensor *sizes = get(file, "balance", name, "sizes");
    const struct golden_tensor *counts = get(file, "balance", name, "counts");
    const struct golden_tensor *balanced = get(file, "balance", name, "balanced");
    const int32_t *plan = get_numbers(file, "balance", name, "plan");
    assert_true(sizes && balanced);
    int n_classes = (int)shape_count(sizes->shape);
    struct keeper keeper = {.ctx = ctx,
                            .all = make_view(ctx, sizes->data, n_classes),
                            .mode = plan[0] ? MEMORY_PER_CLASS : MEMORY_FIXED_TOTAL,
                            .budget = plan[1]};
    assert_ok(ctx, exemplars_new(ctx, n_classes, &keeper.memory));
    int first = 0;
    for (int t = 0; t < (int)shape_count(balanced->shape); t++) {
        int last = first + (t == 0 ? plan[2] : plan[3]);
        last = last < n_classes ? last : n_classes;
        struct data_view *view = see(&keeper, first, last);
        struct data_view *subset;
        if (counts)
            check_counts(view, n_classes, (const int32_t *)counts->data + t * n_classes);
        assert_ok(ctx, view_balanced(ctx, view, 1, (uint32_t)t, &subset));
        int32_t want[MAX_CLASSES] = {0};
        for (int c = 0; c < last; c++)
            want[c] = ((const int32_t *)balanced->data)[t];
        check_counts(subset, n_classes, want);
        remember(&keeper, first, last);
        view_free(subset);
        view_free(view);
        first = last;
    }
    assert_int_equal(first, n_classes);
    exemplars_free(keeper.memory);
    view_free(keeper.all);
}

static void test_balanced_subsets_have_numpys_counts(void **state)
{
    (void)state;
    for_each("balance", check_balance);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_orders_are_numpys_shuffle),
        cmocka_unit_test(test_herding_picks_as_numpy_does),
        cmocka_unit_test(test_balanced_subsets_have_numpys_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Metrics of a small run of three steps, every number worked out by hand. */
#include "metrics/incremental.h"

#include "support/test_ctx.h"

#include <math.h>
#include <string.h>

/* Sums of few exact quotients: only the last bits may differ. */
static const double TOLERANCE = 1e-12;

#define assert_close(actual, expected) assert_true(fabs((actual) - (expected)) < TOLERANCE)

/*
 * Groups {0, 1}, {2}, {3, 4}. Class sizes differ, so that a mean of class accuracies is wrong.
 *
 *            class    0   1   2   3   4     all      group 0   group 1   group 2
 *   images           10  30  20  40 100
 *   step 0  top-1     9  27              36/40 90.0   36 90
 *           top-5    10  30              40/40
 *   step 1  top-1     8  22  18          48/60 80.0   30 75     18 90
 *           top-5     9  27  20          56/60
 *   step 2  top-1     8  24  10  38 100  180/200 90   32 80     10 50     138/140
 *           top-5    10  26  14  40 100  190/200 95
 */
static const int64_t IMAGES[] = {10, 30, 20, 40, 100};
static const int64_t TOP1_HITS[3][5] = {{9, 27}, {8, 22, 18}, {8, 24, 10, 38, 100}};
static const int64_t TOP5_HITS[3][5] = {{10, 30}, {9, 27, 20}, {10, 26, 14, 40, 100}};
static const int SEEN[] = {2, 3, 5};
static const int64_t PARAMETERS[] = {900, 1750, 2530};
static const int64_t WITH_CLASSIFIER[] = {1000, 2000, 3000};

struct fixture {
    struct der_ctx *ctx;
    struct incremental *run;
};

static struct incremental_step step_of(int t)
{
    return (struct incremental_step){.n_classes = SEEN[t],
                                     .n = IMAGES,
                                     .top1 = TOP1_HITS[t],
                                     .top5 = TOP5_HITS[t],
                                     .parameters = PARAMETERS[t],
                                     .parameters_with_classifier = WITH_CLASSIFIER[t]};
}

static void add_steps(struct fixture *f, int n)
{
    for (int t = 0; t < n; t++) {
        struct incremental_step step = step_of(t);
        assert_ok(f->ctx, incremental_add(f->run, &step));
    }
}

static int set_up(void **state)
{
    static struct fixture f;
    f.ctx = test_ctx_new(1);
    assert_ok(f.ctx, incremental_new(f.ctx, &f.run));
    *state = &f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    incremental_free(f->run);
    test_ctx_free(f->ctx);
    return 0;
}

static void test_accuracy_weighs_images_not_classes(void **state)
{
    struct fixture *f = *state;
    add_steps(f, 3);
    assert_close(incremental_accuracy(f->run, 0, TOP1), 90.0);
    assert_close(incremental_accuracy(f->run, 1, TOP1), 80.0);
    assert_close(incremental_accuracy(f->run, 2, TOP1), 90.0);
    assert_close(incremental_accuracy(f->run, 0, TOP5), 100.0);
    assert_close(incremental_accuracy(f->run, 1, TOP5), 5600.0 / 60.0);
    assert_close(incremental_accuracy(f->run, 2, TOP5), 95.0);
}

static void test_groups_are_the_classes_of_a_step(void **state)
{
    struct fixture *f = *state;
    add_steps(f, 3);
    static const int ranges[3][2] = {{0, 2}, {2, 3}, {3, 5}};
    for (int j = 0; j < 3; j++) {
        int first;
        int last;
        incremental_group_range(f->run, j, &first, &last);
        assert_int_equal(first, ranges[j][0]);
        assert_int_equal(last, ranges[j][1]);
    }
    assert_close(incremental_group(f->run, 0, 0, TOP1), 90.0);
    assert_close(incremental_group(f->run, 1, 0, TOP1), 75.0);
    assert_close(incremental_group(f->run, 1, 1, TOP1), 90.0);
    assert_close(incremental_group(f->run, 2, 1, TOP1), 50.0);
    assert_close(incremental_group(f->run, 2, 1, TOP5), 70.0);
    assert_close(incremental_group(f->run, 2, 2, TOP1), 13800.0 / 140.0);
}

static void test_classes_have_their_own_accuracy(void **state)
{
    struct fixture *f = *state;
    add_steps(f, 3);
    assert_close(incremental_class(f->run, 1, 1, TOP1), 2200.0 / 30.0);
    assert_close(incremental_class(f->run, 2, 3, TOP1), 95.0);
    assert_close(incremental_class(f->run, 2, 3, TOP5), 100.0);
}

static void test_average_includes_the_first_step(void **state)
{
    struct fixture *f = *state;
    add_steps(f, 3);
    /* (90 + 80 + 90) / 3 and (100 + 93.33 + 95) / 3 */
    assert_close(incremental_average(f->run, TOP1), 260.0 / 3.0);
    assert_close(incremental_average(f->run, TOP5), (195.0 + 5600.0 / 60.0) / 3.0);
    assert_close(incremental_last(f->run, TOP1), 90.0);
    assert_close(incremental_last(f->run, TOP5), 95.0);
}

static void test_forgetting_is_the_fall_from_the_best(void **state)
{
    struct fixture *f = *state;
    add_steps(f, 2);
    assert_close(incremental_forgetting(f->run), 15.0); /* 90 - 75 */
    struct incremental_step step = step_of(2);
    assert_ok(f->ctx, incremental_add(f->run, &step));
    assert_close(incremental_forgetting(f->run), 25.0); /* ((90 - 80) + (90 - 50)) / 2 */
}

static void test_a_group_that_improved_is_not_negative_forgetting(void **state)
{
    struct fixture *f = *state;
    add_steps(f, 1);
    struct incremental_step step = step_of(1);
    step.top1 = step.top5 = (int64_t[]){10, 30, 0};
    assert_ok(f->ctx, incremental_add(f->run, &step));
    assert_close(incremental_forgetting(f->run), 0.0);
}

static void test_one_step_forgets_nothing(void **state)
{
    struct fixture *f = *state;
    add_steps(f, 1);
    assert_close(incremental_forgetting(f->run), 0.0);
    assert_close(incremental_average(f->run, TOP1), 90.0);
}

static void test_parameters_are_averaged_without_the_classifier(void **state)
{
    struct fixture *f = *state;
    add_steps(f, 3);
    assert_close(incremental_average_parameters(f->run), 5180.0 / 3.0);
    assert_int_equal(incremental_final_parameters(f->run, false), 2530);
    assert_int_equal(incremental_final_parameters(f->run, true), 3000);
}

static void test_full_extractors_count_as_in_the_paper(void **state)
{
    struct fixture *f = *state;
    /* Ten ResNet-18: 11.17 M x 5.5 = 61.43 M, which the paper prints as 11.2 x 5.5 = 61.6. */
    int64_t zeros[10] = {0};
    for (int t = 0; t < 10; t++) {
        struct incremental_step step = {.n_classes = t + 1,
                                        .n = zeros,
                                        .top1 = zeros,
                                        .top5 = zeros,
                                        .parameters = (t + 1) * INT64_C(11168832),
                                        .parameters_with_classifier = (t + 1) * INT64_C(11168832)};
        assert_ok(f->ctx, incremental_add(f->run, &step));
    }
    assert_close(incremental_average_parameters(f->run), 61428576.0);
}

static void test_nothing_tested_is_not_a_number(void **state)
{
    struct fixture *f = *state;
    assert_true(isnan(incremental_average(f->run, TOP1)));
    assert_true(isnan(incremental_last(f->run, TOP5)));
    assert_true(isnan(incremental_average_parameters(f->run)));
    assert_int_equal(incremental_final_parameters(f->run, true), 0);
    assert_close(incremental_forgetting(f->run), 0.0);

    /* Class 1, which is group 1, has no test images: groups 0 and 2 forget 50 and 0 per cent. */
    static const int64_t n[] = {2, 0, 2, 2};
    static const int64_t hits[4][4] = {{2}, {2, 0}, {2, 0, 1}, {1, 0, 1, 2}};
    for (int t = 0; t < 4; t++) {
        struct incremental_step step = {
            .n_classes = t + 1, .n = n, .top1 = hits[t], .top5 = hits[t]};
        assert_ok(f->ctx, incremental_add(f->run, &step));
    }
    assert_true(isnan(incremental_class(f->run, 3, 1, TOP1)));
    assert_true(isnan(incremental_group(f->run, 2, 1, TOP1)));
    assert_close(incremental_accuracy(f->run, 1, TOP1), 100.0);
    assert_close(incremental_forgetting(f->run), 25.0);
}

static void test_the_counts_are_copied(void **state)
{
    struct fixture *f = *state;
    int64_t n[] = {10, 30};
    int64_t top1[] = {9, 27};
    int64_t top5[] = {10, 30};
    struct incremental_step step = {.n_classes = 2, .n = n, .top1 = top1, .top5 = top5};
    assert_ok(f->ctx, incremental_add(f->run, &step));
    memset(n, 0, sizeof n);
    memset(top1, 0, sizeof top1);
    memset(top5, 0, sizeof top5);
    assert_close(incremental_accuracy(f->run, 0, TOP1), 90.0);
    assert_close(incremental_accuracy(f->run, 0, TOP5), 100.0);
}

static void test_impossible_steps_are_refused(void **state)
{
    struct fixture *f = *state;
    add_steps(f, 2);
    struct incremental_step again = step_of(1);
    assert_int_equal(incremental_add(f->run, &again), DER_ARG);
    assert_non_null(strstr(f->ctx->error, "step 3: 3 classes seen, but there were 3"));

    struct incremental_step step = step_of(2);
    step.top1 = (int64_t[]){8, 24, 15, 38, 100}; /* class 2: 15 first, 14 among five */
    assert_int_equal(incremental_add(f->run, &step), DER_ARG);
    assert_non_null(strstr(f->ctx->error, "class 2"));
    step = step_of(2);
    step.top5 = (int64_t[]){10, 26, 21, 40, 100}; /* class 2: 21 of 20 */
    assert_int_equal(incremental_add(f->run, &step), DER_ARG);
    step = step_of(2);
    step.top1 = (int64_t[]){8, 24, -1, 38, 100};
    assert_int_equal(incremental_add(f->run, &step), DER_ARG);
    step = step_of(2);
    step.parameters_with_classifier = step.parameters - 1;
    assert_int_equal(incremental_add(f->run, &step), DER_ARG);

    assert_int_equal(f->run->n_steps, 2);
    step = step_of(2);
    assert_ok(f->ctx, incremental_add(f->run, &step));
}

static void test_every_failed_allocation_leaves_the_run_whole(void **state)
{
    struct fixture *f = *state;
    add_steps(f, 1);
    struct incremental_step step = step_of(1);
    int n_failures = 0;
    for (uint64_t i = 1; i <= 3; i++) {
        f->ctx->mem.fail_at = f->ctx->mem.n_allocs + i;
        enum der_status status = incremental_add(f->run, &step);
        f->ctx->mem.fail_at = 0;
        if (status == DER_OK)
            break;
        assert_int_equal(status, DER_NOMEM);
        assert_int_equal(f->run->n_steps, 1);
        assert_close(incremental_average(f->run, TOP1), 90.0);
        n_failures++;
    }
    assert_int_equal(n_failures, 2);
    assert_int_equal(f->run->n_steps, 2);

    struct incremental *other;
    f->ctx->mem.fail_at = f->ctx->mem.n_allocs + 1;
    assert_int_equal(incremental_new(f->ctx, &other), DER_NOMEM);
    f->ctx->mem.fail_at = 0;
    assert_null(other);
    incremental_free(other);
}

#define RUN(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(test_accuracy_weighs_images_not_classes),
        RUN(test_groups_are_the_classes_of_a_step),
        RUN(test_classes_have_their_own_accuracy),
        RUN(test_average_includes_the_first_step),
        RUN(test_forgetting_is_the_fall_from_the_best),
        RUN(test_a_group_that_improved_is_not_negative_forgetting),
        RUN(test_one_step_forgets_nothing),
        RUN(test_parameters_are_averaged_without_the_classifier),
        RUN(test_full_extractors_count_as_in_the_paper),
        RUN(test_nothing_tested_is_not_a_number),
        RUN(test_the_counts_are_copied),
        RUN(test_impossible_steps_are_refused),
        RUN(test_every_failed_allocation_leaves_the_run_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

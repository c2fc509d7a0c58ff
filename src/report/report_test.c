/*
 * Documents: what the page knows of runs made by hand, and what follows from several of them.
 */
#include "report/document.h"

#include "config/override.h"
#include "config/preset.h"
#include "report/report.h"
#include "support/made_run.h"
#include "support/test_ctx.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { STEPS = 10, CLASSES = 100, RUNS = 4 };

static const double FIRST[STEPS] = {90.5, 80, 75, 70, 66.25, 61, 60, 58, 57, 55.0 / 3};
static const double SECOND[STEPS] = {92.5, 82, 77, 72, 68.25, 63, 62, 60, 59, 57.0 / 3};

struct fixture {
    struct der_ctx *ctx;
    struct scratch scratch;
    char paths[RUNS][SCRATCH_PATH_MAX];
    struct run_view runs[RUNS];
};

/* order 1 and 2 of one experiment, one without pruning, and one that is not done. */
static void make_run(struct fixture *f, int i, const char *change, const double *top1, int n_steps)
{
    static const char *const names[RUNS] = {"a/one", "a/two", "b/two", "going"};
    struct made_run run = {.n_classes = CLASSES,
                           .train_images = 400,
                           .test_images = 200,
                           .n_steps = n_steps,
                           .top1 = top1,
                           .params = 1000,
                           .bwt = NAN,
                           .fwt = NAN,
                           .is_partial = n_steps < STEPS};
    assert_ok(f->ctx, config_from_preset(f->ctx, "cifar100-b0-10", METHOD_DER, &run.config));
    assert_ok(f->ctx, config_apply(f->ctx, &run.config, &change, 1));
    made_run_write(f->ctx, &f->scratch, names[i], &run);
    (void)snprintf(f->paths[i], SCRATCH_PATH_MAX, "%s", scratch_path(&f->scratch, names[i]));
}

static int set_up(void **state)
{
    static struct fixture f;
    f = (struct fixture){.ctx = test_ctx_new(1)};
    scratch_init(&f.scratch);
    make_run(&f, 0, "order=1", FIRST, STEPS);
    make_run(&f, 1, "order=2", SECOND, STEPS);
    make_run(&f, 2, "prune=false", SECOND, STEPS);
    make_run(&f, 3, "lambda_a=0.5", FIRST, 3);
    *state = &f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    for (int i = 0; i < RUNS; i++)
        run_view_fini(&f->runs[i]);
    scratch_fini(&f->scratch);
    test_ctx_free(f->ctx);
    return 0;
}

static cJSON *make_document(struct fixture *f, int n)
{
    struct document_options options = {.refresh = 5};
    cJSON *document;
    for (int i = 0; i < n; i++)
        assert_ok(f->ctx, run_view_read(f->ctx, f->paths[i], &f->runs[i]));
    assert_ok(f->ctx, document_make(f->ctx, f->runs, n, &options, &document));
    return document;
}

static const cJSON *get(const cJSON *object, const char *key)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    assert_non_null(item);
    return item;
}

static const cJSON *at(const cJSON *array, int i)
{
    const cJSON *item = cJSON_GetArrayItem(array, i);
    assert_non_null(item);
    return item;
}

static void test_steps_are_those_of_the_run(void **state)
{
    struct fixture *f = *state;
    cJSON *document = make_document(f, 1);
    const cJSON *run = at(get(document, "runs"), 0);
    assert_int_equal(cJSON_GetArraySize(get(run, "steps")), STEPS);
    for (int t = 0; t < STEPS; t++) {
        assert_true(get(at(get(run, "steps"), t), "top1")->valuedouble == FIRST[t]);
        assert_true(get(at(get(run, "steps"), t), "params")->valuedouble == 1000.0 * (t + 1));
    }
    assert_true(cJSON_IsTrue(get(run, "done")));
    assert_int_equal(get(run, "n_steps")->valueint, STEPS);
    assert_int_equal(at(get(run, "bounds"), STEPS)->valueint, CLASSES);
    assert_string_equal(at(get(run, "classes"), 99)->valuestring, "class 99");
    assert_int_equal(get(document, "refresh")->valueint, 0); /* nothing goes on */
    json_free(document);
}

static void test_the_curve_of_the_paper_comes_once(void **state)
{
    struct fixture *f = *state;
    cJSON *document = make_document(f, 3);
    const cJSON *paper = get(document, "paper");
    assert_int_equal(cJSON_GetArraySize(paper), 2);
    assert_int_equal(get(at(get(document, "runs"), 0), "paper")->valueint, 0);
    assert_int_equal(get(at(get(document, "runs"), 1), "paper")->valueint, 0);
    assert_int_equal(get(at(get(document, "runs"), 2), "paper")->valueint, 1);
    assert_string_equal(get(at(paper, 0), "row")->valuestring, "der");
    assert_int_equal(cJSON_GetArraySize(get(at(paper, 0), "curve")), STEPS);
    assert_true(get(at(paper, 0), "average")->valuedouble == 74.64);
    assert_string_equal(get(at(paper, 1), "row")->valuestring, "der-wop");
    json_free(document);
}

static void test_orders_of_one_experiment_are_averaged(void **state)
{
    struct fixture *f = *state;
    cJSON *document = make_document(f, RUNS);
    const cJSON *rows = get(document, "repeats");
    assert_int_equal(cJSON_GetArraySize(rows), 3);
    const cJSON *last = get(at(rows, 0), "last_top1");
    assert_int_equal(cJSON_GetArraySize(get(at(rows, 0), "runs")), 2);
    assert_int_equal(get(last, "n")->valueint, 2);
    assert_true(fabs(get(last, "mean")->valuedouble - 56.0 / 3) < 1e-12);
    assert_true(fabs(get(last, "std")->valuedouble - sqrt(2.0) / 3) < 1e-12);
    assert_int_equal(get(get(at(rows, 1), "avg_top1"), "n")->valueint, 1);
    assert_int_equal(get(get(at(rows, 2), "avg_top1"), "n")->valueint, 0); /* it goes on */
    assert_int_equal(get(document, "refresh")->valueint, 5);
    json_free(document);
}

static void test_settings_that_differ_are_marked(void **state)
{
    struct fixture *f = *state;
    cJSON *document = make_document(f, 3);
    const cJSON *row;
    int n = 0;
    cJSON_ArrayForEach(row, get(document, "settings"))
    {
        const char *key = get(row, "key")->valuestring;
        if (!cJSON_IsTrue(get(row, "differs")))
            continue;
        n++;
        assert_true(strcmp(key, "order") == 0 || strcmp(key, "prune") == 0);
        if (strcmp(key, "prune") == 0)
            assert_string_equal(at(get(row, "values"), 2)->valuestring, "false");
    }
    assert_int_equal(n, 2);
    json_free(document);
}

static void test_names_are_short_where_they_differ(void **state)
{
    (void)state;
    const char *names[3];
    const char *const differ[] = {"runs/a", "runs/b", "other/c"};
    const char *const same[] = {"x/run", "y/run", "z"};
    const char *const odd[] = {".", "a/..", "a/b/"};
    document_names(differ, 3, names);
    assert_string_equal(names[2], "c");
    document_names(same, 3, names);
    assert_string_equal(names[0], "x/run");
    assert_string_equal(names[2], "z");
    document_names(odd, 3, names);
    assert_string_equal(names[0], ".");
    assert_string_equal(names[1], "a/..");
    assert_string_equal(names[2], "b/");
}

static void test_page_and_csv_are_two_files(void **state)
{
    struct fixture *f = *state;
    const char *path = f->paths[0];
    const char *file = scratch_path(&f->scratch, "both");
    struct report_options options = {.runs = &path, .n_runs = 1, .page = file, .csv = file};
    struct report_result result;
    assert_int_equal(report_write(f->ctx, &options, &result), DER_ARG);
    assert_non_null(strstr(der_ctx_error(f->ctx), "page and CSV cannot both be"));
}

static void test_every_failed_allocation_is_survived(void **state)
{
    struct fixture *f = *state;
    const char *paths[RUNS];
    char page[SCRATCH_PATH_MAX];
    char csv[SCRATCH_PATH_MAX];
    (void)snprintf(page, sizeof page, "%s", scratch_path(&f->scratch, "page.html"));
    (void)snprintf(csv, sizeof csv, "%s", scratch_path(&f->scratch, "steps.csv"));
    for (int i = 0; i < RUNS; i++)
        paths[i] = f->paths[i];
    struct report_options options = {.runs = paths, .n_runs = RUNS, .page = page, .csv = csv};
    struct report_result result;
    enum der_status status = DER_NOMEM;
    for (uint64_t n = 1; status != DER_OK; n++) {
        assert_int_equal(status, DER_NOMEM);
        f->ctx->mem.fail_at = f->ctx->mem.n_allocs + n;
        uint64_t before = f->ctx->mem.n_live;
        status = report_write(f->ctx, &options, &result);
        f->ctx->mem.fail_at = 0;
        assert_int_equal(f->ctx->mem.n_live, before);
    }
    assert_int_equal(result.n_unfinished, 1);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_steps_are_those_of_the_run),
        TEST(test_the_curve_of_the_paper_comes_once),
        TEST(test_orders_of_one_experiment_are_averaged),
        TEST(test_settings_that_differ_are_marked),
        TEST(test_names_are_short_where_they_differ),
        TEST(test_page_and_csv_are_two_files),
        TEST(test_every_failed_allocation_is_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

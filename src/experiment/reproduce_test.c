/* Tables of the paper over run folders that were made by hand: names, sharing, refusals, numbers. */
#include "experiment/reproduce.h"

#include "config/override.h"
#include "config/preset.h"
#include "experiment/reproduce_table.h"
#include "support/made_run.h"
#include "support/test_ctx.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { B50_STEPS = 3, B0_STEPS = 10 };

struct fixture {
    struct der_ctx *ctx;
    struct scratch scratch;
    char out[SCRATCH_PATH_MAX];
    struct reproduce_options options;
    const char *init, *data_checksum; /* of runs that are written */
};

static int setup(void **state)
{
    static struct fixture f;
    f = (struct fixture){.ctx = test_ctx_new(1)};
    scratch_init(&f.scratch);
    (void)snprintf(f.out, sizeof f.out, "%s", scratch_path(&f.scratch, "out"));
    f.options = (struct reproduce_options){.out = f.out};
    *state = &f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    scratch_fini(&f->scratch);
    test_ctx_free(f->ctx);
    return 0;
}

static struct reproduction *plan(struct fixture *f, const char *table)
{
    struct reproduction *r;
    f->options.table = table;
    assert_ok(f->ctx, reproduction_new(f->ctx, &f->options, &r));
    return r;
}

static void refuse(struct fixture *f, const char *table, enum der_status wanted,
                   const char *sentence)
{
    struct reproduction *r;
    f->options.table = table;
    enum der_status status = reproduction_new(f->ctx, &f->options, &r);
    assert_null(r);
    if (status != wanted || !strstr(der_ctx_error(f->ctx), sentence))
        fail_msg("%s: %s, '%s'", table, der_status_name(status), der_ctx_error(f->ctx));
}

/* A finished run of the row with the settings a table wants, all steps alike. */
static void write_measured_run(struct fixture *f, const struct reproduce_item *item, double top1,
                               double params, double transfer, double bound)
{
    double values[B0_STEPS];
    char folder[SCRATCH_PATH_MAX / 8];
    struct made_run run = {.config = item->config,
                           .n_classes = 100,
                           .train_images = 400,
                           .test_images = 200,
                           .n_steps = config_steps(&item->config, 100),
                           .top1 = values,
                           .params = params,
                           .bwt = transfer,
                           .fwt = 2 * transfer,
                           .bound = bound,
                           .data_checksum = f->data_checksum,
                           .init = f->init};
    assert_true(run.n_steps <= B0_STEPS);
    for (int i = 0; i < run.n_steps; i++)
        values[i] = top1;
    (void)snprintf(folder, sizeof folder, "out/%s", strrchr(item->path, '/') + 1);
    made_run_write(f->ctx, &f->scratch, folder, &run);
}

static void write_run(struct fixture *f, const struct reproduce_item *item, double top1,
                      double params, double transfer)
{
    write_measured_run(f, item, top1, params, transfer, 0.0);
}

static const struct reproduce_item *item_of(const struct reproduction *r, const char *label,
                                            int order)
{
    for (int i = 0; i < r->n_items; i++)
        if (strcmp(r->items[i].row->label, label) == 0 && r->items[i].order == order)
            return &r->items[i];
    fail_msg("no %s, order %d", label, order);
    return NULL;
}

static void test_a_table_is_its_rows_under_three_orders(void **state)
{
    struct fixture *f = *state;
    struct reproduction *r = plan(f, "T1");
    assert_int_equal(r->n_rows, 24);
    assert_int_equal(r->n_items, 72);
    assert_int_equal(reproduction_missing(r), 72);
    for (int i = 0; i < r->n_items; i++) {
        assert_int_equal(r->items[i].order, i % 3 + 1);
        assert_int_equal(r->items[i].config.order[0], '1' + i % 3);
        assert_string_equal(r->items[i].config.preset, r->items[i].row->preset);
        for (int k = 0; k < i; k++)
            assert_string_not_equal(r->items[i].path, r->items[k].path);
    }
    reproduction_free(r);
}

static void test_tables_share_the_folders_of_equal_runs(void **state)
{
    struct fixture *f = *state;
    static const struct {
        const char *table, *label;
        const char *as; /* row of T1 */
    } rows[] = {{"T4", "expansion and auxiliary loss", "DER without pruning, 10 steps"},
                {"T6", "lambda_a=1", "DER, 10 steps"}};
    struct reproduction *first = plan(f, "T1");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct reproduction *r = plan(f, rows[i].table);
        for (int order = 1; order <= 3; order++) {
            const struct reproduce_item *item = item_of(r, rows[i].label, order);
            const struct reproduce_item *same = item_of(first, rows[i].as, order);
            assert_string_equal(item->path, same->path);
            assert_int_equal(config_differences(&item->config, &same->config, NULL, NULL), 0);
        }
        reproduction_free(r);
    }
    reproduction_free(first);
}

/* Two rows of any tables have the same folder if and only if they are the same run. */
static void test_other_runs_have_other_folders(void **state)
{
    struct fixture *f = *state;
    int n_tables;
    const struct paper_table *tables = paper_tables(&n_tables);
    for (int a = 0; a < n_tables; a++)
        for (int b = 0; b <= a; b++) {
            struct reproduction *left = plan(f, tables[a].id);
            struct reproduction *right = plan(f, tables[b].id);
            for (int i = 0; i < left->n_items; i++)
                for (int k = 0; k < right->n_items; k++) {
                    const struct reproduce_item *x = &left->items[i];
                    const struct reproduce_item *y = &right->items[k];
                    bool same = x->measure == y->measure &&
                                config_differences(&x->config, &y->config, NULL, NULL) == 0;
                    if ((strcmp(x->path, y->path) == 0) != same)
                        fail_msg("%s and %s", x->path, y->path);
                }
            reproduction_free(left);
            reproduction_free(right);
        }
}

static void test_sets_without_the_papers_orders_are_run_once(void **state)
{
    struct fixture *f = *state;
    struct reproduction *r = plan(f, "T3");
    assert_int_equal(r->n_items, r->n_rows);
    for (int i = 0; i < r->n_items; i++) {
        assert_int_equal(r->items[i].order, 0);
        assert_string_equal(r->items[i].config.order, "seed:1993");
    }
    assert_non_null(strstr(r->items[0].path, "/imagenet100-b0-10.joint"));
    reproduction_free(r);
}

static void test_unknown_names_are_refused_with_a_suggestion(void **state)
{
    struct fixture *f = *state;
    refuse(f, "fig2", DER_ARG, "there is no table 'fig2'; did you mean 'fig1'?");
    refuse(f, "appendix", DER_ARG, "there are 'T1', 'T2'");
    const char *rows[] = {"DER, 12 steps"};
    f->options.rows = rows;
    f->options.n_rows = 1;
    refuse(f, "T1", DER_ARG, "did you mean 'DER, 10 steps'?");
    rows[0] = "derr";
    refuse(f, "T1", DER_ARG, "did you mean 'der'?");
    rows[0] = "everything";
    refuse(f, "T4", DER_ARG, "it has 'neither', 'expansion'");
    refuse(f, "T1", DER_ARG, "'DER without pruning, 50 steps', 'DER, 50 steps'");
    rows[0] = "WA"; /* as the paper writes it */
    reproduction_free(plan(f, "T1"));
    rows[0] = "der"; /* rows of fig1 that the paper has no number for have no such name */
    reproduction_free(plan(f, "fig1"));
}

static void test_orders_are_the_papers(void **state)
{
    struct fixture *f = *state;
    int orders[] = {3, 1};
    f->options.orders = orders;
    f->options.n_orders = 2;
    struct reproduction *r = plan(f, "T4");
    assert_int_equal(r->n_items, 6);
    assert_int_equal(r->items[0].order, 3);
    reproduction_free(r);
    orders[1] = 4;
    refuse(f, "T4", DER_ARG, "class order 4; the paper has 1 to 3");
    orders[1] = 3;
    refuse(f, "T4", DER_ARG, "class order 3 is there twice");
}

static void test_what_a_row_is_about_cannot_be_overridden(void **state)
{
    struct fixture *f = *state;
    const char *assignments[] = {"prune=false"};
    f->options.assignments = assignments;
    f->options.n_assignments = 1;
    refuse(f, "T1", DER_ARG, "'prune=false' is refused: row 'joint, 5 steps' of T1");
    assignments[0] = "method=joint";
    refuse(f, "T1", DER_ARG, "'method=joint' is refused");
    assignments[0] = "order=2";
    refuse(f, "T1", DER_ARG, "'order=2' is refused");
    assignments[0] = "epoch=2";
    refuse(f, "T1", DER_ARG, "did you mean 'epochs'");
    assignments[0] = "memory=1";
    refuse(f, "T1", DER_ARG, "memory");
    assignments[0] = "epochs=2";
    struct reproduction *r = plan(f, "T1");
    assert_int_equal(r->items[0].config.representation.epochs, 2);
    reproduction_free(r);
}

/* What other rows are about may be changed in those that are asked for. */
static void test_rows_that_are_not_wanted_forbid_nothing(void **state)
{
    struct fixture *f = *state;
    const char *rows[] = {"joint, 5 steps"};
    const char *assignments[] = {"classifier_positive=true"};
    f->options.assignments = assignments;
    f->options.n_assignments = 1;
    refuse(f, "T1", DER_ARG, "is refused: row 'WA, 5 steps' of T1 is about classifier_positive");
    f->options.rows = rows;
    f->options.n_rows = 1;
    struct reproduction *r = plan(f, "T1");
    assert_true(r->items[0].config.classifier_positive);
    reproduction_free(r);
    rows[0] = "wa";
    refuse(f, "T1", DER_ARG, "is refused: row 'WA, 5 steps'");
}

/* ---- numbers ------------------------------------------------------------------------------------- */

static void test_rows_are_mean_and_deviation_beside_the_paper(void **state)
{
    struct fixture *f = *state;
    static const char label[] = "DER, 2 steps";
    static const double top1[] = {68.0, 69.0, 73.0};
    struct reproduction *r = plan(f, "T8");
    for (int order = 1; order <= 3; order++)
        write_run(f, item_of(r, label, order), top1[order - 1], 100000.0 * order, NAN);
    reproduction_free(r);
    r = plan(f, "T8");
    assert_int_equal(reproduction_missing(r), 15);
    struct reproduce_row row;
    reproduce_row(r, 1, &row);
    assert_string_equal(row.run->label, label);
    assert_int_equal(row.n_runs, 3);
    assert_true(fabs(row.avg_top1.mean - 70.0) < 1e-12);
    assert_true(fabs(row.avg_top1.std - sqrt(7.0)) < 1e-12); /* (4 + 1 + 9) / 2 */
    /* Steps have 1, 2 and 3 extractors: two on average; orders 0.2, 0.4 and 0.6 million. */
    assert_true(fabs(row.params.mean - 0.4) < 1e-12);
    assert_true(row.paper.average == 69.52 && row.paper.parameters == 0.32);
    assert_true(fabs(row.difference - 0.48) < 1e-12);
    reproduce_row(r, 0, &row);
    assert_int_equal(row.n_runs, 0);
    assert_true(isnan(row.avg_top1.mean) && isnan(row.difference));
    char *text;
    assert_ok(f->ctx, reproduce_table_text(r, &text));
    assert_ptr_equal(strstr(text, "T8: CIFAR100-B50, 32-layer network, 20 exemplars a class\n\n"),
                     text);
    assert_non_null(strstr(text, "| DER, 2 steps                  |      3 |       0.40 | 70.00 +- "
                                 "2.65 | 70.00 +- 2.65 |         0.32 |     69.52 |      +0.48 |"));
    assert_non_null(strstr(text, "| DER, 5 steps                  |      - |          - |"));
    mem_free(&f->ctx->mem, text);
    reproduction_free(r);
}

static void test_the_csv_has_all_digits_and_marks_changes(void **state)
{
    struct fixture *f = *state;
    const char *assignments[] = {"epochs=2", "seed=5"};
    const int orders[] = {2};
    char *text;
    f->options.assignments = assignments;
    f->options.n_assignments = 2;
    f->options.orders = orders;
    f->options.n_orders = 1;
    struct reproduction *r = plan(f, "T8");
    write_run(f, item_of(r, "DER, 2 steps", 2), 100.0 / 3, 7, NAN);
    reproduction_free(r);
    r = plan(f, "T8");
    assert_ok(f->ctx, reproduce_table_csv(r, &text));
    assert_non_null(
        strstr(text, "\n\"DER, 2 steps\",cifar100-b50-2-rn32,1,1.4e-05,,33.33333333,,"));
    assert_non_null(strstr(text, ",\"epochs=2\"\n"));
    mem_free(&f->ctx->mem, text);
    assert_ok(f->ctx, reproduce_table_text(r, &text));
    assert_non_null(strstr(text, "20 exemplars a class; not the paper's protocol: epochs=2\n"));
    mem_free(&f->ctx->mem, text);
    reproduction_free(r);
}

static void test_transfer_has_a_table_of_its_own(void **state)
{
    struct fixture *f = *state;
    const int orders[] = {1};
    char *text;
    f->options.orders = orders;
    f->options.n_orders = 1;
    struct reproduction *r = plan(f, "T5");
    write_run(f, item_of(r, "DER", 1), 50.0, 10, 1.0);
    reproduction_free(r);
    r = plan(f, "T5");
    assert_ok(f->ctx, reproduce_table_text(r, &text));
    assert_non_null(strstr(text, "|      1 |    1.00 |    2.00 |      1.36 |      1.49 |          "
                                 "-0.36 |          +0.51 |"));
    mem_free(&f->ctx->mem, text);
    reproduction_free(r);
    /* The same run, with more measured, serves a table that does not ask for transfer. */
    r = plan(f, "T1");
    const struct reproduce_item *item = item_of(r, "DER, 10 steps", 1);
    assert_int_equal(item->outcome.state, RUN_DONE);
    assert_non_null(strstr(item->path, ".transfer."));
    assert_int_equal(item_of(r, "DER, 5 steps", 1)->outcome.state, RUN_ABSENT);
    reproduction_free(r);
    /* The other way round it does not. */
    r = plan(f, "T5");
    write_run(f, item_of(r, "DER", 1), 50.0, 10, NAN);
    reproduction_free(r);
    refuse(f, "T5", DER_STATE, "transfer was not measured");
}

static void test_the_bound_has_a_table_of_its_own(void **state)
{
    struct fixture *f = *state;
    const int orders[] = {1, 2};
    char *text;
    f->options.orders = orders;
    f->options.n_orders = 2;
    struct reproduction *r = plan(f, "bound");
    assert_int_equal(r->items[0].measure, MEASURE_REPRESENTATION);
    write_measured_run(f, item_of(r, "DER, 10 steps", 1), 50.0, 10, NAN, 60.0);
    reproduction_free(r);
    r = plan(f, "T5"); /* transfer includes it */
    write_measured_run(f, item_of(r, "DER", 2), 52.0, 10, 1.0, 64.0);
    reproduction_free(r);
    r = plan(f, "bound");
    assert_non_null(strstr(item_of(r, "DER, 10 steps", 2)->path, ".transfer."));
    assert_ok(f->ctx, reproduce_table_text(r, &text));
    assert_non_null(
        strstr(text, "| 51.00 +- 1.41 | 62.00 +- 2.83 | 74.64 +- 0.28 | 76.14 +- 0.80 |"));
    assert_non_null(strstr(text, "-23.64 |           -14.14 |"));
    mem_free(&f->ctx->mem, text);
    reproduction_free(r);
    /* What it measured serves a table that asks for less, not one that asks for more. */
    r = plan(f, "T1");
    assert_non_null(strstr(item_of(r, "DER, 10 steps", 1)->path, ".representation."));
    reproduction_free(r);
    r = plan(f, "T5");
    assert_int_equal(item_of(r, "DER", 1)->outcome.state, RUN_ABSENT);
    reproduction_free(r);
    r = plan(f, "bound");
    write_run(f, item_of(r, "DER, 10 steps", 1), 50.0, 10, NAN);
    reproduction_free(r);
    refuse(f, "bound", DER_STATE, "representation was not measured");
}

/* ---- what lies there ----------------------------------------------------------------------------- */

static void test_a_run_with_other_settings_is_refused(void **state)
{
    struct fixture *f = *state;
    struct reproduction *r = plan(f, "T8");
    write_run(f, item_of(r, "DER, 2 steps", 1), 50.0, 10, NAN);
    reproduction_free(r);
    const char *assignments[] = {"seed=5"};
    f->options.assignments = assignments;
    f->options.n_assignments = 1;
    refuse(f, "T8", DER_STATE, "other settings (seed is 1993, not 5)");
    f->options.n_assignments = 0;
    f->options.run.backend_options.precision = PRECISION_BF16;
    refuse(f, "T8", DER_STATE, "precision f32, not bf16");
}

static void test_a_run_that_began_with_weights_of_others_is_refused(void **state)
{
    struct fixture *f = *state;
    struct reproduction *r = plan(f, "T8");
    f->init = "resnet18.safetensors";
    write_run(f, item_of(r, "DER, 2 steps", 1), 50.0, 10, NAN);
    reproduction_free(r);
    refuse(f, "T8", DER_STATE, "holds a run that began with weights of others");
}

static void test_rows_on_other_images_are_refused(void **state)
{
    struct fixture *f = *state;
    struct reproduction *r = plan(f, "T8");
    write_run(f, item_of(r, "DER, 2 steps", 1), 50.0, 10, NAN);
    reproduction_free(r);
    const char *rows[] = {"DER, 2 steps"};
    f->options.rows = rows;
    f->options.n_rows = 1;
    f->options.run.data = "synth:classes=100,train=3,test=2,size=8,seed=1";
    r = plan(f, "T8");
    assert_int_equal(reproduction_missing(r), 2);
    assert_int_equal(reproduction_run(r), DER_STATE);
    assert_non_null(strstr(der_ctx_error(f->ctx), "300 + 200 images of kind synth, but "));
    assert_non_null(strstr(der_ctx_error(f->ctx), "on 400 + 200 of kind synth"));
    reproduction_free(r);
}

/* As many of them, but others. */
static void test_rows_on_other_images_of_the_same_number_are_refused(void **state)
{
    struct fixture *f = *state;
    struct reproduction *r = plan(f, "T8");
    write_run(f, item_of(r, "DER, 2 steps", 1), 50.0, 10, NAN);
    f->options.run.data = "synth:classes=100,train=4,test=2,size=8,seed=1";
    reproduction_free(r);
    r = plan(f, "T8");
    assert_int_equal(reproduction_run(r), DER_STATE);
    assert_non_null(strstr(der_ctx_error(f->ctx), "seed=1 has as many images as "));
    assert_int_equal(item_of(r, "DER, 2 steps", 2)->outcome.state, RUN_ABSENT);
    f->data_checksum = "1";
    write_run(f, item_of(r, "DER, 2 steps", 2), 50.0, 10, NAN);
    reproduction_free(r);
    refuse(f, "T8", DER_STATE, "but others (their checksum is 1, not 0)");
}

/* Killed between its last line and its last file. */
static void test_a_run_whose_files_wait_for_their_places_is_not_done(void **state)
{
    struct fixture *f = *state;
    char name[SCRATCH_PATH_MAX];
    struct reproduction *r = plan(f, "T8");
    const struct reproduce_item *item = item_of(r, "DER, 2 steps", 1);
    const int missing = reproduction_missing(r);
    (void)snprintf(name, sizeof name, "out/%s/model.safetensors.next",
                   strrchr(item->path, '/') + 1);
    write_run(f, item, 50.0, 10, NAN);
    reproduction_free(r);
    r = plan(f, "T8");
    assert_int_equal(reproduction_missing(r), missing - 1);
    reproduction_free(r);
    scratch_text(&f->scratch, name, "");
    r = plan(f, "T8");
    assert_int_equal(reproduction_missing(r), missing);
    reproduction_free(r);
}

static void test_missing_runs_need_data(void **state)
{
    struct fixture *f = *state;
    struct reproduction *r = plan(f, "T4");
    assert_int_equal(reproduction_run(r), DER_ARG);
    assert_non_null(strstr(der_ctx_error(f->ctx), "9 runs are to be done"));
    reproduction_free(r);
}

static void test_running_out_of_memory_leaves_nothing_behind(void **state)
{
    struct fixture *f = *state;
    struct reproduction *r = plan(f, "T4");
    write_run(f, item_of(r, "expansion", 1), 50.0, 10, NAN);
    reproduction_free(r);
    enum der_status status = DER_NOMEM;
    for (uint64_t n = 1; status == DER_NOMEM; n++) {
        char *text = NULL;
        f->ctx->mem.fail_at = f->ctx->mem.n_allocs + n;
        status = reproduction_new(f->ctx, &f->options, &r);
        if (status == DER_OK)
            status = reproduce_table_text(r, &text);
        f->ctx->mem.fail_at = 0;
        mem_free(&f->ctx->mem, text);
        reproduction_free(r);
        assert_int_equal(der_ctx_memory(f->ctx).n_live, 0);
        assert_true(n > 1 || status == DER_NOMEM);
    }
    assert_ok(f->ctx, status);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_a_table_is_its_rows_under_three_orders),
        TEST(test_tables_share_the_folders_of_equal_runs),
        TEST(test_other_runs_have_other_folders),
        TEST(test_sets_without_the_papers_orders_are_run_once),
        TEST(test_unknown_names_are_refused_with_a_suggestion),
        TEST(test_orders_are_the_papers),
        TEST(test_what_a_row_is_about_cannot_be_overridden),
        TEST(test_rows_that_are_not_wanted_forbid_nothing),
        TEST(test_rows_are_mean_and_deviation_beside_the_paper),
        TEST(test_the_csv_has_all_digits_and_marks_changes),
        TEST(test_transfer_has_a_table_of_its_own),
        TEST(test_the_bound_has_a_table_of_its_own),
        TEST(test_a_run_with_other_settings_is_refused),
        TEST(test_a_run_that_began_with_weights_of_others_is_refused),
        TEST(test_rows_on_other_images_are_refused),
        TEST(test_rows_on_other_images_of_the_same_number_are_refused),
        TEST(test_a_run_whose_files_wait_for_their_places_is_not_done),
        TEST(test_missing_runs_need_data),
        TEST(test_running_out_of_memory_leaves_nothing_behind),
    };
#undef TEST
    return cmocka_run_group_tests(tests, NULL, NULL);
}

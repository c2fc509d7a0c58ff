/* Can every row of a table be run, and does it stand beside the right number? */
#include "metrics/paper.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { MAX_RUNS = 100 };

static bool same(const char *a, const char *b)
{
    return strcmp(a, b) == 0;
}

/* The runs of all tables; returns how many. */
static int collect(const struct paper_run **runs)
{
    int n_tables;
    int n_runs = 0;
    const struct paper_table *tables = paper_tables(&n_tables);
    for (int k = 0; k < n_tables; k++) {
        int n;
        const struct paper_run *first = paper_runs(tables[k].id, &n);
        assert_true(first && n > 0);
        for (int i = 0; i < n; i++) {
            if (!same(first[i].table, tables[k].id))
                fail_msg("the rows of %s do not stand together", tables[k].id);
            assert_true(n_runs < MAX_RUNS);
            runs[n_runs++] = &first[i];
        }
    }
    return n_runs;
}

static bool has_setting(const struct paper_run *run, const char *setting)
{
    for (int i = 0; i < PAPER_MAX_SETTINGS && run->settings[i]; i++)
        if (same(run->settings[i], setting))
            return true;
    return false;
}

static bool same_work(const struct paper_run *a, const struct paper_run *b)
{
    if (!same(a->preset, b->preset) || !same(a->method, b->method))
        return false;
    for (int i = 0; i < PAPER_MAX_SETTINGS && (a->settings[i] || b->settings[i]); i++)
        if (!a->settings[i] || !b->settings[i] || !same(a->settings[i], b->settings[i]))
            return false;
    return true;
}

static void test_tables_have_the_rows_of_the_paper(void **state)
{
    (void)state;
    static const struct {
        const char *id;
        int n;
        enum paper_kind kind;
    } expected[] = {
        {"T1", 24, PAPER_ACCURACY}, {"T2", 18, PAPER_ACCURACY}, {"T3", 15, PAPER_ACCURACY},
        {"T4", 3, PAPER_ACCURACY},  {"T5", 5, PAPER_TRANSFER},  {"T6", 5, PAPER_ACCURACY},
        {"T7", 18, PAPER_ACCURACY}, {"T8", 6, PAPER_ACCURACY},  {"fig1", 4, PAPER_ACCURACY},
        {"bound", 1, PAPER_BOUND},
    };
    int n_tables;
    (void)paper_tables(&n_tables);
    assert_int_equal(n_tables, sizeof expected / sizeof *expected);
    for (int k = 0; k < n_tables; k++) {
        int n;
        assert_non_null(paper_runs(expected[k].id, &n));
        assert_int_equal(n, expected[k].n);
        assert_non_null(paper_table_find(expected[k].id));
        assert_int_equal(paper_table_find(expected[k].id)->kind, expected[k].kind);
    }
    int n = -1;
    assert_null(paper_runs("T9", &n));
    assert_int_equal(n, 0);
    assert_null(paper_table_find("T9"));
}

static void test_rows_are_runnable(void **state)
{
    (void)state;
    static const char *const methods[] = {"der", "finetune", "joint", "icarl", "wa", "bic"};
    static const char *const keys[] = {"prune",    "auxiliary", "expand",
                                       "lambda_a", "lambda_s",  "target_params",
                                       "distill",  "readout",   "classifier_positive"};
    const struct paper_run *runs[MAX_RUNS];
    int n = collect(runs);
    for (int i = 0; i < n; i++) {
        if (!paper_protocol_find(runs[i]->preset))
            fail_msg("%s: no preset %s", runs[i]->label, runs[i]->preset);
        bool is_method = false;
        for (size_t k = 0; k < sizeof methods / sizeof *methods; k++)
            is_method = is_method || same(runs[i]->method, methods[k]);
        assert_true(is_method);
        assert_null(runs[i]->settings[PAPER_MAX_SETTINGS - 1]);
        for (int s = 0; runs[i]->settings[s]; s++) {
            const char *equals = strchr(runs[i]->settings[s], '=');
            assert_non_null(equals);
            assert_true(equals[1] != '\0');
            size_t length = (size_t)(equals - runs[i]->settings[s]);
            bool is_key = false;
            for (size_t k = 0; k < sizeof keys / sizeof *keys; k++)
                is_key = is_key || (strlen(keys[k]) == length &&
                                    strncmp(runs[i]->settings[s], keys[k], length) == 0);
            if (!is_key)
                fail_msg("%s: unknown setting %s", runs[i]->label, runs[i]->settings[s]);
        }
    }
}

static void test_no_row_of_a_table_occurs_twice(void **state)
{
    (void)state;
    const struct paper_run *runs[MAX_RUNS];
    int n = collect(runs);
    for (int i = 0; i < n; i++)
        for (int k = i + 1; k < n && same(runs[i]->table, runs[k]->table); k++)
            if (same(runs[i]->label, runs[k]->label) || same_work(runs[i], runs[k]))
                fail_msg("%s: '%s' and '%s'", runs[i]->table, runs[i]->label, runs[k]->label);
}

static void test_every_row_stands_beside_the_papers_number(void **state)
{
    (void)state;
    const struct paper_run *runs[MAX_RUNS];
    int n = collect(runs);
    int n_without = 0;
    for (int i = 0; i < n; i++) {
        const struct paper_value *value = paper_run_value(runs[i]);
        const struct paper_transfer *transfer = paper_run_transfer(runs[i]);
        const struct paper_value *bound = paper_run_bound(runs[i]);
        const enum paper_kind kind = paper_table_find(runs[i]->table)->kind;
        assert_false(value && transfer);
        assert_int_equal(bound != NULL, kind == PAPER_BOUND);
        if (bound)
            assert_true(bound->average == 76.14 && value->average == 74.64);
        if (kind == PAPER_TRANSFER)
            assert_ptr_equal(transfer, paper_transfer_find(runs[i]->method));
        else if (value)
            assert_string_equal(value->protocol, runs[i]->preset);
        else if (same(runs[i]->table, "fig1"))
            n_without++;
        else
            fail_msg("%s, %s: no number", runs[i]->table, runs[i]->label);
    }
    assert_int_equal(n_without, 3); /* figure 1 at any lambda_s but the paper's */
}

static void test_settings_are_those_of_the_number(void **state)
{
    (void)state;
    const struct paper_run *runs[MAX_RUNS];
    int n = collect(runs);
    for (int i = 0; i < n; i++) {
        const struct paper_value *value = paper_run_value(runs[i]);
        if (!value)
            continue;
        bool is_pruned = same(value->row, "der") || same(value->table, "T6");
        assert_true(has_setting(runs[i], is_pruned ? "prune=true" : "prune=false"));
        assert_int_equal(same(runs[i]->method, "joint"), same(value->row, "joint"));
        assert_int_equal(same(runs[i]->method, "finetune"), same(value->row, "finetune"));
        assert_int_equal(same(runs[i]->method, "icarl"), same(value->row, "icarl"));
        assert_int_equal(same(runs[i]->method, "wa"), same(value->row, "wa"));
        assert_int_equal(same(runs[i]->method, "bic"), same(value->row, "bic"));
        assert_int_equal(has_setting(runs[i], "auxiliary=false"),
                         same(value->row, "finetune") || same(value->row, "der-noaux"));
        if (same(value->table, "T6"))
            assert_true(has_setting(runs[i], value->row));
    }
    int n_figure;
    const struct paper_run *figure = paper_runs("fig1", &n_figure);
    assert_true(has_setting(&figure[2], "lambda_s=0.75"));
    assert_ptr_equal(paper_run_value(&figure[2]), paper_value_find("T1", "cifar100-b0-10", "der"));
}

static bool is_ours_to_run(const char *row)
{
    static const char *const rows[] = {"der", "der-wop", "joint", "icarl", "wa", "bic"};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (same(row, rows[i]))
            return true;
    return false;
}

static void test_every_number_of_our_methods_can_be_run(void **state)
{
    (void)state;
    const struct paper_run *runs[MAX_RUNS];
    int n = collect(runs);
    int n_values;
    const struct paper_value *values = paper_values(&n_values);
    for (int v = 0; v < n_values; v++) {
        if (!is_ours_to_run(values[v].row))
            continue;
        bool is_run = false;
        for (int i = 0; i < n; i++)
            is_run = is_run || paper_run_value(runs[i]) == &values[v];
        if (!is_run)
            fail_msg("%s, %s, %s", values[v].table, values[v].protocol, values[v].row);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tables_have_the_rows_of_the_paper),
        cmocka_unit_test(test_rows_are_runnable),
        cmocka_unit_test(test_no_row_of_a_table_occurs_twice),
        cmocka_unit_test(test_every_row_stands_beside_the_papers_number),
        cmocka_unit_test(test_settings_are_those_of_the_number),
        cmocka_unit_test(test_every_number_of_our_methods_can_be_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#include "metrics/paper_internal.h"

#include <string.h>

/* The paper counts a ResNet-18 as 11.2 M (11,168,832) and the 32-layer network as 0.46 M. */
static const struct paper_protocol PROTOCOLS[] = {
    {"cifar100-b0-5", 5, 20, 100, 11.2},         {"cifar100-b0-10", 10, 10, 100, 11.2},
    {"cifar100-b0-20", 20, 5, 100, 11.2},        {"cifar100-b0-50", 50, 2, 100, 11.2},
    {"cifar100-b50-2", 3, 50, 100, 11.2},        {"cifar100-b50-5", 6, 50, 100, 11.2},
    {"cifar100-b50-10", 11, 50, 100, 11.2},      {"imagenet100-b0-10", 10, 10, 100, 11.2},
    {"imagenet1000-b0-10", 10, 100, 1000, 11.2}, {"imagenet100-b50-10", 11, 50, 100, 11.2},
    {"cifar100-b0-5-rn32", 5, 20, 100, 0.46},    {"cifar100-b0-10-rn32", 10, 10, 100, 0.46},
    {"cifar100-b0-20-rn32", 20, 5, 100, 0.46},   {"cifar100-b0-50-rn32", 50, 2, 100, 0.46},
    {"cifar100-b50-2-rn32", 3, 50, 100, 0.46},   {"cifar100-b50-5-rn32", 6, 50, 100, 0.46},
    {"cifar100-b50-10-rn32", 11, 50, 100, 0.46},
};

enum { N_PROTOCOLS = sizeof PROTOCOLS / sizeof *PROTOCOLS };

static const struct {
    const char *row;
    const char *label;
} LABELS[] = {
    {"joint", "Bound"},   {"icarl", "iCaRL"}, {"ucir", "UCIR"},
    {"bic", "BiC"},       {"wa", "WA"},       {"podnet", "PODNet"},
    {"rpsnet", "RPSNet"}, {"tpcil", "TPCIL"}, {"der-wop", "Ours (w/o P)"},
    {"der", "Ours"},
};

enum { N_LABELS = sizeof LABELS / sizeof *LABELS };

static bool same(const char *a, const char *b)
{
    return strcmp(a, b) == 0;
}

const struct paper_protocol *paper_protocols(int *n)
{
    *n = N_PROTOCOLS;
    return PROTOCOLS;
}

const struct paper_value *paper_values(int *n)
{
    *n = N_PAPER_VALUES;
    return PAPER_VALUES;
}

const struct paper_transfer *paper_transfers(int *n)
{
    *n = N_PAPER_TRANSFERS;
    return PAPER_TRANSFERS;
}

const struct paper_curve *paper_curves(int *n)
{
    *n = N_PAPER_CURVES;
    return PAPER_CURVES;
}

const struct paper_table *paper_tables(int *n)
{
    *n = N_PAPER_TABLES;
    return PAPER_TABLES;
}

const struct paper_run *paper_runs(const char *table, int *n)
{
    const struct paper_run *first = NULL;
    *n = 0;
    for (int i = 0; i < N_PAPER_RUNS; i++) {
        if (!same(PAPER_RUNS[i].table, table))
            continue;
        if (!first)
            first = &PAPER_RUNS[i];
        ++*n;
    }
    return first;
}

const struct paper_protocol *paper_protocol_find(const char *name)
{
    for (int i = 0; i < N_PROTOCOLS; i++)
        if (same(PROTOCOLS[i].name, name))
            return &PROTOCOLS[i];
    return NULL;
}

const struct paper_value *paper_value_find(const char *table, const char *protocol, const char *row)
{
    for (int i = 0; i < N_PAPER_VALUES; i++) {
        const struct paper_value *value = &PAPER_VALUES[i];
        if (same(value->table, table) && same(value->protocol, protocol) && same(value->row, row))
            return value;
    }
    return NULL;
}

const struct paper_transfer *paper_transfer_find(const char *row)
{
    for (int i = 0; i < N_PAPER_TRANSFERS; i++)
        if (same(PAPER_TRANSFERS[i].row, row))
            return &PAPER_TRANSFERS[i];
    return NULL;
}

const struct paper_curve *paper_curve_find(const char *protocol, const char *row)
{
    for (int i = 0; i < N_PAPER_CURVES; i++)
        if (same(PAPER_CURVES[i].protocol, protocol) && same(PAPER_CURVES[i].row, row))
            return &PAPER_CURVES[i];
    return NULL;
}

const struct paper_table *paper_table_find(const char *id)
{
    for (int i = 0; i < N_PAPER_TABLES; i++)
        if (same(PAPER_TABLES[i].id, id))
            return &PAPER_TABLES[i];
    return NULL;
}

static bool is_of(const struct paper_run *run, enum paper_kind kind)
{
    const struct paper_table *table = paper_table_find(run->table);
    return table && table->kind == kind;
}

const struct paper_value *paper_run_value(const struct paper_run *run)
{
    if (!run->value_table)
        return NULL;
    return paper_value_find(run->value_table, run->preset, run->value_row);
}

const struct paper_value *paper_run_bound(const struct paper_run *run)
{
    return is_of(run, PAPER_BOUND) ? paper_value_find("T10", run->preset, "classifier-bound")
                                   : NULL;
}

const struct paper_transfer *paper_run_transfer(const struct paper_run *run)
{
    return is_of(run, PAPER_TRANSFER) ? paper_transfer_find(run->value_row) : NULL;
}

const char *paper_label(const char *row)
{
    for (int i = 0; i < N_LABELS; i++)
        if (same(LABELS[i].row, row))
            return LABELS[i].label;
    return row;
}

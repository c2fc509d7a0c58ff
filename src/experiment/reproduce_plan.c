#include "experiment/reproduce_plan.h"

#include "config/override.h"
#include "config/preset.h"
#include "core/suggest.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { NAMES_MAX = 640, NAME_SHOWN_MAX = 40, ROWS_MAX = 64, SETTINGS_MAX = 160, WHAT_MAX = 200 };

static const int ALL_ORDERS[REPRODUCE_ORDERS] = {1, 2, 3};

/* ---- names people give --------------------------------------------------------------------------- */

/* "'a', 'b', 'c'"; where there is no room for all, the last word is "...". */
static void list_names(const char *const *first, int n, size_t stride, char text[NAMES_MAX])
{
    static const char cut[] = ", ...";
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < n; i++) {
        const char *name =
            *(const char *const *)(const void *)((const char *)first + (size_t)i * stride);
        const size_t room = NAMES_MAX - used - (i + 1 < n ? sizeof cut - 1 : 0);
        int length = snprintf(text + used, room, "%s'%s'", i > 0 ? ", " : "", name);
        if (length < 0 || (size_t)length >= room) {
            (void)snprintf(text + used, NAMES_MAX - used, "%s", cut);
            return;
        }
        used += (size_t)length;
    }
}

static enum der_status find_table(struct reproduction *r)
{
    const char *id = r->options.table;
    int n;
    const struct paper_table *tables = paper_tables(&n);
    char names[NAMES_MAX];
    if (!id || !r->options.out)
        return ctx_fail(r->ctx, DER_ARG, "reproducing needs a table and a folder for the results");
    r->table = paper_table_find(id);
    r->rows = paper_runs(id, &r->n_rows);
    if (r->table && r->rows)
        return DER_OK;
    const char *close = suggest_word(id, &tables[0].id, n, sizeof tables[0]);
    if (close)
        return ctx_fail(r->ctx, DER_ARG, "there is no table '%.*s'; did you mean '%s'?",
                        NAME_SHOWN_MAX, id, close);
    list_names(&tables[0].id, n, sizeof tables[0], names);
    return ctx_fail(r->ctx, DER_ARG, "there is no table '%.*s'; there are %s", NAME_SHOWN_MAX, id,
                    names);
}

static bool is_called(const struct paper_run *row, const char *name)
{
    return strcmp(row->label, name) == 0 ||
           (row->value_row && strcasecmp(row->value_row, name) == 0); /* "WA" is as good as "wa" */
}

static enum der_status fail_row(const struct reproduction *r, const char *name)
{
    const char *words[2 * ROWS_MAX];
    char names[NAMES_MAX];
    int n = 0;
    for (int i = 0; i < r->n_rows && i < ROWS_MAX; i++) {
        words[n++] = r->rows[i].label;
        if (r->rows[i].value_row)
            words[n++] = r->rows[i].value_row;
    }
    const char *close = suggest_word(name, words, n, sizeof *words);
    if (close)
        return ctx_fail(r->ctx, DER_ARG, "%s has no row '%.*s'; did you mean '%s'?", r->table->id,
                        NAME_SHOWN_MAX, name, close);
    list_names(&r->rows[0].label, r->n_rows, sizeof r->rows[0], names);
    return ctx_fail(r->ctx, DER_ARG, "%s has no row '%.*s'; it has %s", r->table->id,
                    NAME_SHOWN_MAX, name, names);
}

static enum der_status check_rows(const struct reproduction *r)
{
    for (int k = 0; k < r->options.n_rows; k++) {
        bool is_known = false;
        for (int i = 0; i < r->n_rows; i++)
            is_known |= is_called(&r->rows[i], r->options.rows[k]);
        if (!is_known)
            return fail_row(r, r->options.rows[k]);
    }
    return DER_OK;
}

static bool is_wanted(const struct reproduction *r, const struct paper_run *row)
{
    for (int k = 0; k < r->options.n_rows; k++)
        if (is_called(row, r->options.rows[k]))
            return true;
    return r->options.n_rows == 0;
}

static enum der_status check_orders(struct reproduction *r)
{
    if (r->options.n_orders == 0) {
        r->options.orders = ALL_ORDERS;
        r->options.n_orders = REPRODUCE_ORDERS;
    }
    for (int i = 0; i < r->options.n_orders; i++) {
        int order = r->options.orders[i];
        if (order < 1 || order > REPRODUCE_ORDERS)
            return ctx_fail(r->ctx, DER_ARG, "class order %d; the paper has 1 to %d", order,
                            REPRODUCE_ORDERS);
        for (int k = 0; k < i; k++)
            if (r->options.orders[k] == order)
                return ctx_fail(r->ctx, DER_ARG, "class order %d is there twice", order);
    }
    return DER_OK;
}

/* ---- settings ------------------------------------------------------------------------------------ */

/* Do two assignments "key=value" have the same key? */
static bool same_key(const char *a, const char *b)
{
    size_t length = strcspn(a, "=");
    return length == strcspn(b, "=") && strncmp(a, b, length) == 0;
}

/* A wanted row with another method or switch would no longer be that row. */
static enum der_status check_assignment(const struct reproduction *r, const char *assignment)
{
    if (same_key(assignment, "method") || same_key(assignment, "order"))
        return ctx_fail(r->ctx, DER_ARG,
                        "'%.64s' is refused: the rows and the list of orders "
                        "decide that",
                        assignment);
    for (int i = 0; i < r->n_rows; i++)
        for (int k = 0;
             k < PAPER_MAX_SETTINGS && is_wanted(r, &r->rows[i]) && r->rows[i].settings[k]; k++)
            if (same_key(assignment, r->rows[i].settings[k]))
                return ctx_fail(r->ctx, DER_ARG, "'%.64s' is refused: row '%s' of %s is about %s",
                                assignment, r->rows[i].label, r->table->id, r->rows[i].settings[k]);
    return DER_OK;
}

static enum der_status check_assignments(const struct reproduction *r)
{
    if (r->options.n_assignments > SETTINGS_MAX - PAPER_MAX_SETTINGS - 1)
        return ctx_fail(r->ctx, DER_ARG, "more than %d settings",
                        SETTINGS_MAX - PAPER_MAX_SETTINGS - 1);
    for (int i = 0; i < r->options.n_assignments; i++)
        TRY(check_assignment(r, r->options.assignments[i]));
    return DER_OK;
}

/* The preset of a row under its method, and that with the row's own settings. */
static enum der_status resolve_row(struct der_ctx *ctx, const struct paper_run *row,
                                   struct config *plain, struct config *changed)
{
    int n = 0;
    while (n < PAPER_MAX_SETTINGS && row->settings[n])
        n++;
    TRY(config_from_preset(ctx, row->preset, METHOD_DER, plain));
    TRY(config_set(ctx, plain, "method", row->method));
    *changed = *plain;
    return config_apply(ctx, changed, row->settings, n);
}

/* All settings of a run: its order, the row's and what the user says. */
static enum der_status resolve_item(const struct reproduction *r, struct reproduce_item *item)
{
    const char *all[SETTINGS_MAX];
    char order[32];
    struct config changed;
    int n = 0;
    (void)snprintf(order, sizeof order, "order=%d", item->order);
    if (item->order > 0)
        all[n++] = order;
    for (int i = 0; i < PAPER_MAX_SETTINGS && item->row->settings[i]; i++)
        all[n++] = item->row->settings[i];
    for (int i = 0; i < r->options.n_assignments; i++)
        all[n++] = r->options.assignments[i];
    TRY(resolve_row(r->ctx, item->row, &item->config, &changed));
    TRY(config_apply(r->ctx, &item->config, all, n));
    return config_check(r->ctx, &item->config);
}

/* ---- folders ------------------------------------------------------------------------------------- */

/* What a row changes about its preset: ".prune=false" */
struct what {
    char text[WHAT_MAX];
    size_t used;
};

static void note_change(void *user, const char *key, const char *plain, const char *changed)
{
    (void)plain;
    struct what *what = user;
    int n =
        snprintf(what->text + what->used, sizeof what->text - what->used, ".%s=%s", key, changed);
    if (n > 0)
        what->used += (size_t)n;
    if (what->used >= sizeof what->text)
        what->used = sizeof what->text - 1;
}

/* What runs are asked to measure, each more than the one before, and what their folders say of it. */
static const struct {
    unsigned measure;
    const char *name;
} MEASURED[] = {
    {0, ""}, {MEASURE_REPRESENTATION, ".representation"}, {MEASURE_TRANSFER, ".transfer"}};

enum { N_MEASURED = sizeof MEASURED / sizeof *MEASURED };
_Static_assert(N_MEASURED == REPRODUCE_TWINS + 1, "all that measure more");

/* The folder of a run; NULL when memory is short. */
static const char *folder_of(struct reproduction *r, const struct reproduce_item *item,
                             const char *what, const char *measured)
{
    char order[32] = "";
    if (item->order > 0)
        (void)snprintf(order, sizeof order, ".order%d", item->order);
    return arena_printf(&r->arena, "%s/%s.%s%s%s%s", r->options.out, item->row->preset,
                        item->row->method, what, measured, order);
}

static enum der_status name_folders(struct reproduction *r, struct reproduce_item *item)
{
    struct config plain;
    struct config changed;
    struct what what = {.used = 0};
    TRY(resolve_row(r->ctx, item->row, &plain, &changed));
    (void)config_differences(&plain, &changed, note_change, &what);
    int own = 0;
    while (MEASURED[own].measure != item->measure)
        own++;
    for (int i = own; i < N_MEASURED; i++) {
        const char *folder = folder_of(r, item, what.text, MEASURED[i].name);
        if (!folder)
            return ctx_nomem(r->ctx);
        *(i == own ? &item->path : &item->twins[i - own - 1]) = folder;
    }
    return DER_OK;
}

static enum der_status add_item(struct reproduction *r, const struct paper_run *row, int order)
{
    static const unsigned measures[] = {[PAPER_ACCURACY] = 0,
                                        [PAPER_TRANSFER] = MEASURE_TRANSFER,
                                        [PAPER_BOUND] = MEASURE_REPRESENTATION};
    struct reproduce_item *item = &r->items[r->n_items++];
    item->row = row;
    item->order = order;
    item->is_wanted = is_wanted(r, row);
    item->measure = measures[r->table->kind];
    TRY(resolve_item(r, item));
    return name_folders(r, item);
}

/* The three orders are permutations of 100 classes of CIFAR; the presets of other sets have an order
 * of their own. */
static enum der_status add_row(struct reproduction *r, const struct paper_run *row)
{
    struct config config;
    TRY(config_from_preset(r->ctx, row->preset, METHOD_DER, &config));
    if (strcmp(config.order, "1") != 0)
        return add_item(r, row, 0);
    for (int k = 0; k < r->options.n_orders; k++)
        TRY(add_item(r, row, r->options.orders[k]));
    return DER_OK;
}

enum der_status reproduce_plan(struct reproduction *r)
{
    TRY(find_table(r));
    TRY(check_rows(r));
    TRY(check_orders(r));
    TRY(check_assignments(r));
    r->items = arena_zalloc(&r->arena, (size_t)(r->n_rows * r->options.n_orders), sizeof *r->items);
    if (!r->items)
        return ctx_nomem(r->ctx);
    for (int i = 0; i < r->n_rows; i++)
        TRY(add_row(r, &r->rows[i]));
    return DER_OK;
}

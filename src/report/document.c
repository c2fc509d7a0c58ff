#include "report/document.h"

#include "config/override.h"
#include "config/setting.h"
#include "json/maker.h"
#include "metrics/paper.h"
#include "metrics/summary.h"
#include "report/report.h"
#include "report/thumbnails.h"

#include <der/version.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { IMAGE_BYTES = 5 << 20, TITLE_MAX = 200 }; /* of images on a page, as text */

/* ---- names ----------------------------------------------------------------------------------------- */

/* "runs/a/" -> "a/"; a path without a name of its own stays as it is. */
static const char *last_part(const char *path)
{
    const char *end = path + strlen(path);
    while (end > path && end[-1] == '/')
        end--;
    const char *name = end;
    while (name > path && name[-1] != '/')
        name--;
    size_t length = (size_t)(end - name);
    bool is_name = length > 0 && strncmp(name, ".", length) != 0 &&
                   (length != 2 || strncmp(name, "..", 2) != 0);
    return is_name ? name : path;
}

void document_names(const char *const *paths, int n, const char **names)
{
    bool differ = true;
    for (int i = 0; i < n; i++) {
        names[i] = last_part(paths[i]);
        for (int j = 0; j < i; j++)
            differ = differ && strcmp(names[i], names[j]) != 0;
    }
    for (int i = 0; i < n && !differ; i++)
        names[i] = paths[i];
}

/* ---- the paper ------------------------------------------------------------------------------------- */

/* The row of the paper that a run is about. */
static const char *paper_row(const struct config *config)
{
    static const char *const others[] = {[METHOD_FINETUNE] = "finetune",
                                         [METHOD_JOINT] = "joint",
                                         [METHOD_ICARL] = "icarl",
                                         [METHOD_WA] = "wa",
                                         [METHOD_BIC] = "bic"};
    if (config->method != METHOD_DER)
        return others[config->method];
    if (config->prune)
        return "der";
    return config->auxiliary ? "der-wop" : "der-noaux";
}

/* Of the tables that have a number for it, the first: later ones repeat it or ablate. */
static const struct paper_value *find_value(const char *protocol, const char *row)
{
    int n;
    const struct paper_value *values = paper_values(&n);
    for (int i = 0; i < n; i++)
        if (strcmp(values[i].protocol, protocol) == 0 && strcmp(values[i].row, row) == 0)
            return &values[i];
    return NULL;
}

static cJSON *paper_json(const char *protocol, const char *row)
{
    const struct paper_value *value = find_value(protocol, row);
    const struct paper_curve *curve = paper_curve_find(protocol, row);
    struct maker m = maker_new();
    add_text(&m, "protocol", protocol);
    add_text(&m, "row", row);
    add_text(&m, "label", paper_label(row));
    if (curve && curve->kind == TOP1)
        add_item(&m, "curve", cJSON_CreateDoubleArray(curve->accuracy, curve->n_steps));
    if (value) {
        add_number(&m, "average", value->average);
        add_number(&m, "std", value->std);
        add_number(&m, "last", value->last);
        add_number(&m, "params", value->parameters * 1e6);
    }
    return maker_done(&m);
}

/* The place of the run's row in the list, appended when it is new; -1: the paper has none. */
static enum der_status place_in_paper(struct der_ctx *ctx, const struct run_view *run, cJSON *list,
                                      int *place)
{
    const char *protocol = run->outcome.config.preset;
    const char *row = paper_row(&run->outcome.config);
    const cJSON *item;
    *place = -1;
    if (!find_value(protocol, row) && !paper_curve_find(protocol, row))
        return DER_OK;
    *place = 0;
    cJSON_ArrayForEach(item, list)
    {
        if (strcmp(cJSON_GetObjectItem(item, "protocol")->valuestring, protocol) == 0 &&
            strcmp(cJSON_GetObjectItem(item, "row")->valuestring, row) == 0)
            return DER_OK;
        ++*place;
    }
    return append_item(list, paper_json(protocol, row)) ? DER_OK : ctx_nomem(ctx);
}

/* ---- settings -------------------------------------------------------------------------------------- */

static cJSON *setting_row(const struct setting *setting, const struct run_view *runs, int n)
{
    char first[SETTING_TEXT_MAX];
    char text[SETTING_TEXT_MAX];
    bool differs = false;
    cJSON *values = cJSON_CreateArray();
    setting_format(setting, &runs[0].outcome.config, first);
    for (int i = 0; i < n; i++) {
        setting_format(setting, &runs[i].outcome.config, text);
        differs = differs || strcmp(text, first) != 0;
        if (!append_item(values, cJSON_CreateString(text))) {
            cJSON_Delete(values);
            return NULL;
        }
    }
    struct maker m = maker_new();
    add_text(&m, "key", setting->key);
    add_text(&m, "help", setting->help);
    add_bool(&m, "differs", differs);
    add_item(&m, "values", values);
    return maker_done(&m);
}

static cJSON *settings_json(const struct run_view *runs, int n)
{
    cJSON *rows = cJSON_CreateArray();
    for (int i = 0; i < n_settings; i++)
        if (!append_item(rows, setting_row(&setting_table[i], runs, n))) {
            cJSON_Delete(rows);
            return NULL;
        }
    return rows;
}

/* ---- runs that differ by chance -------------------------------------------------------------------- */

/* Counts differences that are more than chance. */
static void note_difference(void *user, const char *key, const char *a, const char *b)
{
    int *n = user;
    (void)a;
    (void)b;
    *n += strcmp(key, "order") != 0 && strcmp(key, "seed") != 0;
}

/* Is it the same experiment under another class order or seed? */
static bool is_repeat(const struct run_view *a, const struct run_view *b)
{
    int n = 0;
    (void)config_differences(&a->outcome.config, &b->outcome.config, note_difference, &n);
    return n == 0 && strcmp(a->record.data_checksum, b->record.data_checksum) == 0 &&
           a->outcome.max_steps == b->outcome.max_steps;
}

static void add_summary(struct maker *m, const char *key, const struct run_view *runs,
                        const int *members, int n, size_t offset)
{
    double values[REPORT_MAX_RUNS];
    int n_values = 0;
    for (int i = 0; i < n; i++) {
        const struct run_outcome *outcome = &runs[members[i]].outcome;
        double value = *(const double *)(const void *)((const char *)outcome + offset);
        if (outcome->has_ended && !isnan(value))
            values[n_values++] = value;
    }
    struct summary summary = summary_of(values, n_values);
    struct maker cell = maker_new();
    add_number(&cell, "n", n_values);
    add_number(&cell, "mean", summary.mean);
    add_number(&cell, "std", summary.std);
    add_item(m, key, maker_done(&cell));
}

/* One row of the table: runs that are repeats of the first of them. */
static cJSON *repeats_json(const struct run_view *runs, const int *members, int n, int paper)
{
    struct maker m = maker_new();
    add_item(&m, "runs", cJSON_CreateIntArray(members, n));
    add_number(&m, "paper", paper);
#define ADD(field) add_summary(&m, #field, runs, members, n, offsetof(struct run_outcome, field))
    ADD(avg_top1);
    ADD(last_top1);
    ADD(avg_top5);
    ADD(last_top5);
    ADD(avg_params);
    ADD(bwt);
    ADD(fwt);
    ADD(bound);
#undef ADD
    return maker_done(&m);
}

static cJSON *all_repeats(const struct run_view *runs, int n, const int *paper)
{
    bool is_taken[REPORT_MAX_RUNS] = {false};
    cJSON *rows = cJSON_CreateArray();
    for (int i = 0; i < n; i++) {
        int members[REPORT_MAX_RUNS];
        int n_members = 0;
        if (is_taken[i])
            continue;
        for (int j = i; j < n; j++) {
            if (is_taken[j] || !is_repeat(&runs[i], &runs[j]))
                continue;
            is_taken[j] = true;
            members[n_members++] = j;
        }
        if (!append_item(rows, repeats_json(runs, members, n_members, paper[i]))) {
            cJSON_Delete(rows);
            return NULL;
        }
    }
    return rows;
}

/* ---- the whole ------------------------------------------------------------------------------------- */

static enum der_status add_runs(struct der_ctx *ctx, const struct run_view *runs, int n,
                                const struct document_options *options, cJSON *list)
{
    for (int i = 0; i < n; i++) {
        cJSON *images;
        TRY(thumbnails_make(&runs[i], options->data, IMAGE_BYTES / (size_t)n, &images));
        if (!append_item(list, run_view_json(&runs[i], images)))
            return ctx_nomem(ctx);
    }
    return DER_OK;
}

static enum der_status add_paper(struct der_ctx *ctx, const struct run_view *runs, int n,
                                 cJSON *list, cJSON *run_list, int *places)
{
    cJSON *run = run_list->child;
    for (int i = 0; i < n; i++, run = run->next) {
        TRY(place_in_paper(ctx, &runs[i], list, &places[i]));
        if (!cJSON_AddNumberToObject(run, "paper", places[i]))
            return ctx_nomem(ctx);
    }
    return DER_OK;
}

/* "NAME" of one run, "5 runs" of several. */
static void make_title(const struct run_view *runs, int n, char title[TITLE_MAX])
{
    if (n == 1)
        (void)snprintf(title, TITLE_MAX, "%s", runs[0].name);
    else
        (void)snprintf(title, TITLE_MAX, "%d runs", n);
}

static bool is_any_unfinished(const struct run_view *runs, int n)
{
    for (int i = 0; i < n; i++)
        if (!runs[i].outcome.has_ended)
            return true;
    return false;
}

enum der_status document_make(struct der_ctx *ctx, const struct run_view *runs, int n,
                              const struct document_options *options, cJSON **out)
{
    int places[REPORT_MAX_RUNS];
    char title[TITLE_MAX];
    cJSON *run_list = cJSON_CreateArray();
    cJSON *paper = cJSON_CreateArray();
    *out = NULL;
    enum der_status status =
        run_list && paper ? add_runs(ctx, runs, n, options, run_list) : ctx_nomem(ctx);
    if (status == DER_OK)
        status = add_paper(ctx, runs, n, paper, run_list, places);
    if (status != DER_OK) {
        cJSON_Delete(run_list);
        cJSON_Delete(paper);
        return status;
    }
    make_title(runs, n, title);
    struct maker m = maker_new();
    add_text(&m, "title", options->title ? options->title : title);
    add_text(&m, "version", der_version());
    add_number(&m, "refresh", is_any_unfinished(runs, n) ? options->refresh : 0);
    add_item(&m, "runs", run_list);
    add_item(&m, "paper", paper);
    add_item(&m, "repeats", all_repeats(runs, n, places));
    add_item(&m, "settings", settings_json(runs, n));
    *out = maker_done(&m);
    return *out ? DER_OK : ctx_nomem(ctx);
}

/*
 * What is wrong with a data set, for those outside: the data room's findings, also as JSON.
 */
#include <der/data_tools.h>

#include "core/utf8.h"
#include "data/check.h"
#include "json/json.h"

#include <string.h>

struct der_data_report {
    struct der_ctx *ctx;
    char *path;
    struct data_check *check;
    char *json; /* made when it is first asked for */
};

enum der_status der_data_check(struct der_ctx *ctx, const struct der_data_check_options *options,
                               struct der_data_report **out)
{
    *out = NULL;
    if (!options->path)
        return ctx_fail(ctx, DER_ARG, "a data set to check wants its folder");
    struct check_options check_options = {
        .class_list = options->class_list,
        .progress = options->progress,
        .cancelled = options->cancelled,
        .user = options->user,
    };
    struct der_data_report *report = mem_zalloc(&ctx->mem, 1, sizeof *report);
    if (!report)
        return ctx_nomem(ctx);
    report->ctx = ctx;
    report->path = mem_strdup(&ctx->mem, options->path);
    enum der_status status =
        report->path ? data_check_run(ctx, options->path, &check_options, &report->check)
                     : ctx_nomem(ctx);
    if (status != DER_OK) {
        der_data_report_free(report);
        return status;
    }
    *out = report;
    return DER_OK;
}

void der_data_report_free(struct der_data_report *report)
{
    if (!report)
        return;
    struct mem *mem = &report->ctx->mem;
    data_check_free(report->check);
    mem_free(mem, report->path);
    mem_free(mem, report->json);
    mem_free(mem, report);
}

struct der_data_summary der_data_report_summary(const struct der_data_report *report)
{
    const struct data_check *check = report->check;
    struct der_data_summary summary = {.n_findings = check->n};
    for (int kind = 0; kind < CHECK_KINDS; kind++)
        if (check_is_error((enum check_kind)kind))
            summary.n_errors += check->n_kind[kind];
    const struct dataset *set = check->set;
    if (!set)
        return summary;
    summary.kind = set->kind;
    summary.n_classes = set->n_classes;
    summary.channels = set->channels;
    summary.n_train = set->part[DATA_TRAIN].n;
    summary.n_test = set->part[DATA_TEST].n;
    summary.height_min = check->height_min;
    summary.height_max = check->height_max;
    summary.width_min = check->width_min;
    summary.width_max = check->width_max;
    return summary;
}

enum der_status der_data_report_class(const struct der_data_report *report, int index,
                                      struct der_data_class *out)
{
    const struct data_check *check = report->check;
    int n = check->set ? check->set->n_classes : 0;
    *out = (struct der_data_class){0};
    if (index < 0 || index >= n)
        return ctx_fail(report->ctx, DER_ARG, "class %d of a report was asked for, it has %d",
                        index, n);
    *out = (struct der_data_class){
        .name = check->set->class_names[index],
        .n_train = check->counts[DATA_TRAIN][index],
        .n_test = check->counts[DATA_TEST][index],
    };
    return DER_OK;
}

enum der_status der_data_report_finding(const struct der_data_report *report, int64_t index,
                                        struct der_data_finding *out)
{
    const struct data_check *check = report->check;
    *out = (struct der_data_finding){0};
    if (index < 0 || index >= check->n)
        return ctx_fail(report->ctx, DER_ARG, "finding %lld of a report was asked for, it has %lld",
                        (long long)index, (long long)check->n);
    const struct check_finding *finding = &check->findings[index];
    *out = (struct der_data_finding){
        .kind = check_kind_name(finding->kind),
        .is_error = check_is_error(finding->kind),
        .text = finding->text,
    };
    return DER_OK;
}

/* ---- JSON ------------------------------------------------------------------------------------ */

/* Names of files need not be UTF-8, JSON must be: what is not ASCII in such a name becomes '?'. */
static bool add_text(struct der_ctx *ctx, cJSON *object, const char *key, const char *text)
{
    if (utf8_is_valid(text, strlen(text)))
        return cJSON_AddStringToObject(object, key, text) != NULL;
    char *copy = mem_strdup(&ctx->mem, text);
    if (!copy)
        return false;
    for (char *at = copy; *at; at++)
        if ((unsigned char)*at >= 0x80)
            *at = '?';
    bool added = cJSON_AddStringToObject(object, key, copy) != NULL;
    mem_free(&ctx->mem, copy);
    return added;
}

static bool add_number(cJSON *object, const char *key, int64_t number)
{
    return cJSON_AddNumberToObject(object, key, (double)number) != NULL;
}

/* An object at the end of an array, which owns it; NULL when memory is short. */
static cJSON *append_object(cJSON *array)
{
    cJSON *object = cJSON_CreateObject();
    if (object && cJSON_AddItemToArray(array, object))
        return object;
    cJSON_Delete(object);
    return NULL;
}

static bool add_classes(struct der_data_report *report, cJSON *root, int n)
{
    cJSON *array = cJSON_AddArrayToObject(root, "classes");
    for (int i = 0; array && i < n; i++) {
        struct der_data_class class;
        cJSON *object = append_object(array);
        if (!object || der_data_report_class(report, i, &class) != DER_OK ||
            !add_text(report->ctx, object, "name", class.name) ||
            !add_number(object, "train", class.n_train) ||
            !add_number(object, "test", class.n_test))
            return false;
    }
    return array != NULL;
}

static bool add_findings(struct der_data_report *report, cJSON *root)
{
    cJSON *array = cJSON_AddArrayToObject(root, "findings");
    for (int64_t i = 0; array && i < report->check->n; i++) {
        struct der_data_finding finding;
        cJSON *object = append_object(array);
        if (!object || der_data_report_finding(report, i, &finding) != DER_OK ||
            !add_text(report->ctx, object, "kind", finding.kind) ||
            !cJSON_AddBoolToObject(object, "error", finding.is_error) ||
            !add_text(report->ctx, object, "text", finding.text))
            return false;
    }
    return array != NULL;
}

static bool fill(struct der_data_report *report, cJSON *root)
{
    struct der_data_summary s = der_data_report_summary(report);
    if (!add_text(report->ctx, root, "path", report->path) ||
        !cJSON_AddBoolToObject(root, "good", s.n_errors == 0))
        return false;
    if (s.kind &&
        !(add_text(report->ctx, root, "kind", s.kind) && add_number(root, "channels", s.channels) &&
          add_number(root, "train", s.n_train) && add_number(root, "test", s.n_test) &&
          add_number(root, "height_min", s.height_min) &&
          add_number(root, "height_max", s.height_max) &&
          add_number(root, "width_min", s.width_min) &&
          add_number(root, "width_max", s.width_max) && add_classes(report, root, s.n_classes)))
        return false;
    return add_findings(report, root);
}

enum der_status der_data_report_json(struct der_data_report *report, const char **out)
{
    *out = NULL;
    if (!report->json) {
        cJSON *root = cJSON_CreateObject();
        enum der_status status = root && fill(report, root)
                                     ? json_print(report->ctx, root, true, &report->json)
                                     : ctx_nomem(report->ctx);
        json_free(root);
        TRY(status);
    }
    *out = report->json;
    return DER_OK;
}

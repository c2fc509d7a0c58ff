#include "experiment/records.h"

#include "core/utf8.h"
#include "experiment/fingerprint.h"
#include "json/maker.h"

#include <der/version.h>

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { FORMAT_VERSION = 1 };

static cJSON *int_array(const int32_t *values, int n)
{
    return cJSON_CreateIntArray(values, n);
}

/* ---- config.json ------------------------------------------------------------------------------- */

static const char *const PRECISIONS[] = {
    [PRECISION_F32] = "f32", [PRECISION_TF32] = "tf32", [PRECISION_BF16] = "bf16"};

const char *precision_name(enum precision precision)
{
    return PRECISIONS[precision];
}

bool precision_from_name(const char *name, enum precision *out)
{
    for (size_t i = 0; i < sizeof PRECISIONS / sizeof PRECISIONS[0]; i++) {
        if (strcmp(name, PRECISIONS[i]) == 0) {
            *out = (enum precision)i;
            return true;
        }
    }
    return false;
}

static const char *const MEASURES[] = {"representation", "transfer", "latency"};
enum { N_MEASURES = sizeof MEASURES / sizeof MEASURES[0] };

const char *measure_names(unsigned measure, char text[MEASURES_TEXT])
{
    int length = 0;
    text[0] = '\0';
    for (int i = 0; i < N_MEASURES; i++)
        if (measure & 1u << i)
            length += snprintf(text + length, (size_t)(MEASURES_TEXT - length), "%s%s",
                               length > 0 ? "," : "", MEASURES[i]);
    return text;
}

bool measures_from_names(const char *names, unsigned *out)
{
    char text[MEASURES_TEXT];
    for (unsigned measure = 0; measure < 1u << N_MEASURES; measure++) {
        if (strcmp(names, measure_names(measure, text)) == 0) {
            *out = measure;
            return true;
        }
    }
    return false;
}

static cJSON *class_names(const struct dataset *set, const struct class_order *order)
{
    cJSON *names = cJSON_CreateArray();
    for (int k = 0; names && k < order->n; k++) {
        if (!append_item(names, cJSON_CreateString(set->class_names[order->class_of[k]]))) {
            cJSON_Delete(names);
            return NULL;
        }
    }
    return names;
}

const char *record_checksum(uint64_t checksum, char text[CHECKSUM_TEXT])
{
    (void)snprintf(text, CHECKSUM_TEXT, "%016" PRIx64, checksum);
    return text;
}

static void add_init(struct maker *m, const struct record_start *start)
{
    char checksum[CHECKSUM_TEXT];
    if (!start->options->init)
        return;
    add_text(m, "init", start->options->init);
    add_text(m, "init_checksum", record_checksum(start->init_checksum, checksum));
}

enum der_status record_check_names(struct der_ctx *ctx, const struct experiment_options *options)
{
    const char *const names[] = {options->data, options->class_list, options->init};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (names[i] && !utf8_is_valid(names[i], strlen(names[i])))
            return ctx_fail(ctx, DER_ARG,
                            "the name '%s' is no UTF-8, so that %s/config.json cannot hold it; "
                            "rename it, or give a link to it",
                            names[i], options->out);
    return DER_OK;
}

cJSON *record_config(const struct record_start *start)
{
    const struct experiment_options *options = start->options;
    const struct dataset *set = start->set;
    struct maker m = maker_new();
    const struct der_build_info *build = der_build_info();
    char measures[MEASURES_TEXT];
    char checksum[CHECKSUM_TEXT];
    add_number(&m, "format", FORMAT_VERSION);
    add_text(&m, "der", build->version);
    add_item(&m, "settings", cJSON_Duplicate(start->settings, true));
    add_text(&m, "data", options->data);
    add_text(&m, "data_kind", set->kind);
    if (options->class_list)
        add_text(&m, "class_list", options->class_list);
    add_number(&m, "train_images", (double)set->part[DATA_TRAIN].n);
    add_number(&m, "test_images", (double)set->part[DATA_TEST].n);
    add_text(&m, "data_checksum", record_checksum(fingerprint_dataset(set), checksum));
    add_init(&m, start);
    add_text(&m, "bad_images", options->bad_images == BAD_IMAGES_SKIP ? "skip" : "stop");
    add_item(&m, "class_order", int_array(start->order->class_of, start->order->n));
    add_item(&m, "class_names", class_names(set, start->order));
    add_text(&m, "device", options->backend);
    add_text(&m, "precision", precision_name(options->backend_options.precision));
    add_bool(&m, "deterministic", options->backend_options.deterministic);
    add_number(&m, "threads", start->threads);
    add_text(&m, "onednn", build->dnnl);
    add_text(&m, "cuda_toolkit", build->cuda);
    add_number(&m, "max_steps", options->max_steps);
    add_text(&m, "measure", measure_names(options->measure, measures));
    return maker_done(&m);
}

/* ---- metrics.jsonl ----------------------------------------------------------------------------- */

cJSON *record_moved(const struct experiment_options *options, int threads)
{
    struct maker m = maker_new();
    add_text(&m, "event", "moved");
    add_text(&m, "device", options->backend);
    add_text(&m, "precision", precision_name(options->backend_options.precision));
    add_bool(&m, "deterministic", options->backend_options.deterministic);
    add_number(&m, "threads", threads);
    return maker_done(&m);
}

/* "step 2, classifier" -> "classifier" */
static const char *stage_name(const char *stage)
{
    const char *comma = strchr(stage, ',');
    return comma ? comma + 2 : stage;
}

cJSON *record_epoch(int step, const struct train_progress *p, const struct learner *learner)
{
    struct maker m = maker_new();
    struct maker losses = maker_new();
    for (int i = 0; i < p->n_losses; i++)
        add_number(&losses, p->loss_names[i], p->losses[i]);
    add_text(&m, "event", "epoch");
    add_number(&m, "step", step);
    add_text(&m, "stage", stage_name(p->stage));
    add_number(&m, "epoch", p->epoch + 1);
    add_number(&m, "epochs", p->epochs);
    add_number(&m, "lr", p->lr);
    add_item(&m, "loss", maker_done(&losses));
    if (p->accuracy >= 0.0)
        add_number(&m, "train_top1", p->accuracy);
    if (strcmp(stage_name(p->stage), "representation") == 0 && learner->kept_params > 0) {
        add_number(&m, "kept_params", (double)learner->kept_params);
        add_number(&m, "lambda_s", learner->lambda_s);
        add_number(&m, "sparsity",
                   1.0 - (double)learner->kept_params /
                             (double)resnet_count_params(&learner->options.spec));
    }
    add_number(&m, "images_per_second", p->images_per_second);
    add_number(&m, "seconds", p->seconds);
    return maker_done(&m);
}

/* By the steps of the protocol, which may be more than those learnt: joint training at the end knows one. */
static cJSON *group_accuracies(const struct incremental *run, const int *first_class, int n)
{
    double values[LEARNER_MAX_STEPS];
    for (int i = 0; i < n; i++) {
        values[i] =
            incremental_range(run, run->n_steps - 1, first_class[i], first_class[i + 1], TOP1);
        if (isnan(values[i]))
            values[i] = 0.0;
    }
    return cJSON_CreateDoubleArray(values, n);
}

static cJSON *class_accuracies(const struct incremental *run, int n_classes)
{
    cJSON *array = cJSON_CreateArray();
    for (int c = 0; array && c < n_classes; c++) {
        double value = incremental_class(run, run->n_steps - 1, c, TOP1);
        if (!append_item(array, number_or_null(value))) {
            cJSON_Delete(array);
            return NULL;
        }
    }
    return array;
}

/* Rows of counts. */
static cJSON *confusion(const int64_t *counts, int n)
{
    double row[LEARNER_MAX_STEPS];
    cJSON *rows = cJSON_CreateArray();
    for (int i = 0; rows && i < n; i++) {
        for (int j = 0; j < n; j++)
            row[j] = (double)counts[i * n + j];
        if (!append_item(rows, cJSON_CreateDoubleArray(row, n))) {
            cJSON_Delete(rows);
            return NULL;
        }
    }
    return rows;
}

/* Channels of every layer of the newest extractor: streams by stage, then inner ones by block. */
static cJSON *widths(const struct learner *learner)
{
    const struct resnet_spec *spec = &learner->extractors[learner->n_extractors - 1]->spec;
    struct maker m = maker_new();
    int inner[RESNET_MAX_STAGES * RESNET_MAX_BLOCKS];
    int n = 0;
    for (int k = 0; k < spec->n_stages; k++)
        for (int b = 0; b < spec->n_blocks[k]; b++)
            inner[n++] = spec->inner[k][b];
    add_item(&m, "stream", int_array(spec->stream, spec->n_stages));
    add_item(&m, "inner", int_array(inner, n));
    return maker_done(&m);
}

static void add_probes(struct maker *m, const struct step_record *step)
{
    if (step->reading) {
        add_number(m, "classifier_bound", step->reading->bound);
        add_item(m, "representation",
                 cJSON_CreateDoubleArray(step->reading->groups, step->report->step));
    }
    if (step->reference) {
        add_number(m, "reference", step->reference->ideal);
        add_number(m, "reference_own", step->reference->own);
    }
    if (step->latency)
        add_item(m, "latency_ms", latency_to_json(step->latency));
}

static cJSON *correction(const struct learner *learner)
{
    struct maker m = maker_new();
    add_number(&m, "beta", learner->correction.beta);
    add_number(&m, "gamma", learner->correction.gamma);
    return maker_done(&m);
}

cJSON *record_step(const struct step_record *step)
{
    const struct step_report *r = step->report;
    struct maker m = maker_new();
    add_text(&m, "event", "step");
    add_number(&m, "step", r->step);
    add_number(&m, "classes", r->n_classes);
    add_number(&m, "new_classes", step->first_class[r->step] - step->first_class[r->step - 1]);
    add_number(&m, "top1", r->top1);
    add_number(&m, "top5", r->top5);
    add_number(&m, "avg_top1", r->avg_top1);
    add_number(&m, "avg_top5", r->avg_top5);
    add_number(&m, "forgetting", r->forgetting);
    add_number(&m, "params", (double)r->params);
    add_number(&m, "avg_params", r->avg_params);
    add_number(&m, "params_total", (double)r->params_total);
    add_item(&m, "groups", group_accuracies(step->metrics, step->first_class, r->step));
    add_item(&m, "per_class", class_accuracies(step->metrics, r->n_classes));
    add_item(&m, "confusion", confusion(step->confusion, r->step));
    add_item(&m, "widths", widths(step->learner));
    if (step->learner->is_corrected)
        add_item(&m, "correction", correction(step->learner));
    add_probes(&m, step);
    add_number(&m, "seconds", r->seconds);
    add_number(&m, "ms_per_iter", step->ms_per_iter);
    add_number(&m, "peak_bytes", (double)step->peak_bytes);
    return maker_done(&m);
}

cJSON *record_end(const struct experiment_summary *summary)
{
    const struct step_report *last = &summary->last;
    struct maker m = maker_new();
    add_text(&m, "event", "end");
    add_number(&m, "steps", summary->steps);
    add_number(&m, "avg_top1", last->avg_top1);
    add_number(&m, "last_top1", last->top1);
    add_number(&m, "avg_top5", last->avg_top5);
    add_number(&m, "last_top5", last->top5);
    add_number(&m, "avg_params", last->avg_params);
    add_number(&m, "params", (double)last->params);
    add_number(&m, "params_total", (double)last->params_total);
    add_number(&m, "forgetting", last->forgetting);
    add_number(&m, "bwt", summary->bwt);
    add_number(&m, "fwt", summary->fwt);
    add_number(&m, "classifier_bound", summary->bound);
    add_number(&m, "seconds", summary->seconds);
    return maker_done(&m);
}

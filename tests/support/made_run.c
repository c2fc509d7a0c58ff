#include "support/made_run.h"

#include "config/config_json.h"
#include "support/test_ctx.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { LINE_MAX_BYTES = 512 };

/* What config.json says besides. */
static const char *const TEXTS[][2] = {
    {"der", "0.1.0"}, {"data", "nowhere"}, {"device", "cpu"},   {"bad_images", "stop"},
    {"measure", ""},  {"onednn", "2.6"},   {"cuda_toolkit", ""}};

char *made_run_config(struct der_ctx *ctx, const struct made_run *run)
{
    cJSON *settings;
    char *text;
    cJSON *root = cJSON_CreateObject();
    cJSON *order = cJSON_CreateArray();
    cJSON *names = cJSON_CreateArray();
    assert_ok(ctx, config_to_json(ctx, &run->config, &settings));
    cJSON_AddNumberToObject(root, "format", 1);
    cJSON_AddItemToObject(root, "settings", settings);
    cJSON_AddStringToObject(root, "data_kind", "synth");
    cJSON_AddStringToObject(root, "precision", "f32");
    cJSON_AddNumberToObject(root, "max_steps", run->max_steps);
    cJSON_AddStringToObject(root, "data_checksum", run->data_checksum ? run->data_checksum : "0");
    if (run->init)
        cJSON_AddStringToObject(root, "init", run->init);
    cJSON_AddNumberToObject(root, "train_images", run->train_images);
    cJSON_AddNumberToObject(root, "test_images", run->test_images);
    for (int i = 0; i < run->n_classes; i++) {
        char name[32];
        (void)snprintf(name, sizeof name, "class %d", i);
        cJSON_AddItemToArray(order, cJSON_CreateNumber(i));
        cJSON_AddItemToArray(names, cJSON_CreateString(name));
    }
    cJSON_AddItemToObject(root, "class_order", order);
    cJSON_AddItemToObject(root, "class_names", names);
    for (size_t i = 0; i < sizeof TEXTS / sizeof TEXTS[0]; i++)
        cJSON_AddStringToObject(root, TEXTS[i][0], TEXTS[i][1]);
    cJSON_AddNumberToObject(root, "threads", 1);
    assert_ok(ctx, json_print(ctx, root, true, &text));
    json_free(root);
    return text;
}

char *made_run_metrics(struct der_ctx *ctx, const struct made_run *run)
{
    size_t size = (size_t)(run->n_steps + 2) * LINE_MAX_BYTES;
    char *text = mem_zalloc(&ctx->mem, size, 1);
    size_t used = 0;
    double sum = 0.0;
    double params = 0.0;
    int first = run->n_steps == 1 ? config_steps(&run->config, run->n_classes) : 1;
    assert_non_null(text);
    used += (size_t)snprintf(text, size, "%s\n", MADE_RUN_EPOCH);
    for (int t = 0; t < run->n_steps; t++) {
        sum += run->top1[t];
        params += run->params * (t + 1);
        used += (size_t)snprintf(text + used, size - used,
                                 "{\"event\":\"step\",\"step\":%d,\"top1\":%.17g,\"top5\":%.17g,"
                                 "\"params\":%.0f}\n",
                                 first + t, run->top1[t], run->top1[t], run->params * (t + 1));
    }
    if (run->is_partial)
        return text;
    double last = run->top1[run->n_steps - 1];
    double mean = sum / run->n_steps;
    used +=
        (size_t)snprintf(text + used, size - used,
                         "{\"event\":\"end\",\"steps\":%d,\"avg_top1\":%.17g,\"last_top1\":"
                         "%.17g,\"avg_top5\":%.17g,\"last_top5\":%.17g,\"avg_params\":%.17g",
                         first + run->n_steps - 1, mean, last, mean, last, params / run->n_steps);
    if (run->bound > 0.0)
        used +=
            (size_t)snprintf(text + used, size - used, ",\"classifier_bound\":%.17g", run->bound);
    if (!isnan(run->bwt))
        used += (size_t)snprintf(text + used, size - used, ",\"bwt\":%.17g,\"fwt\":%.17g", run->bwt,
                                 run->fwt);
    (void)snprintf(text + used, size - used, "}\n");
    return text;
}

void made_run_write(struct der_ctx *ctx, struct scratch *scratch, const char *folder,
                    const struct made_run *run)
{
    char name[SCRATCH_PATH_MAX / 4];
    char *config = made_run_config(ctx, run);
    char *metrics = made_run_metrics(ctx, run);
    (void)snprintf(name, sizeof name, "%s/config.json", folder);
    scratch_text(scratch, name, config);
    (void)snprintf(name, sizeof name, "%s/metrics.jsonl", folder);
    scratch_text(scratch, name, metrics);
    mem_free(&ctx->mem, config);
    mem_free(&ctx->mem, metrics);
}

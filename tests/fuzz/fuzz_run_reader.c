/*
 * Fuzz target: the files of a run are refused with a sentence, or what is read from them agrees with
 * itself.
 *
 * The first byte chooses. With its highest bit set the rest is a config.json; else it is the
 * metrics.jsonl of a run of that preset.
 */
#include "experiment/run_reader.h"

#include "config/preset.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { IS_CONFIG = 0x80, IS_JOINT = 0x40, IS_LAST = 0x20, CLASSES_OF_CUSTOM = 10 };

static void require(bool holds)
{
    if (!holds)
        abort();
}

static bool is_percent(double value)
{
    return value >= 0.0 && value <= 100.0;
}

static void check_metrics(const struct run_outcome *run)
{
    int n_steps = config_steps(&run->config, run->n_classes);
    require(run->state == RUN_PARTIAL || run->state == RUN_DONE);
    require(run->n_steps >= 0 && run->n_steps <= n_steps && run->n_steps <= LEARNER_MAX_STEPS);
    for (int t = 0; t < run->n_steps; t++) {
        require(is_percent(run->top1[t]) && run->params[t] >= 0.0);
        require(isnan(run->top5[t]) || is_percent(run->top5[t]));
    }
    require(isnan(run->avg_top1) == (run->state == RUN_PARTIAL));
    if (run->state == RUN_PARTIAL)
        return;
    require(run->n_steps > 0 && is_percent(run->avg_top1) && run->avg_params >= 0.0);
    require(fabs(run->last_top1 - run->top1[run->n_steps - 1]) < 1e-6);
    require(isnan(run->bwt) || fabs(run->bwt) <= 100.0);
}

static enum der_status read_metrics(struct der_ctx *ctx, uint8_t choice, const char *text,
                                    size_t length, struct run_outcome *run)
{
    const struct preset *preset = &preset_table[choice % IS_LAST % n_presets];
    *run = (struct run_outcome){.state = RUN_PARTIAL};
    preset_fill(preset, choice & IS_JOINT ? METHOD_JOINT : METHOD_DER, &run->config);
    run->config.joint_last = choice & IS_LAST;
    run->n_classes = preset->classes > 0 ? preset->classes : CLASSES_OF_CUSTOM;
    return run_read_metrics(ctx, "fuzz", text, length, run);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct der_ctx *ctx = NULL;
    struct run_outcome run;
    if (size == 0)
        return 0;
    require(der_ctx_new(NULL, &ctx) == DER_OK);
    const char *text = (const char *)data + 1;
    enum der_status status = data[0] & IS_CONFIG
                                 ? run_read_config(ctx, "fuzz", text, size - 1, &run)
                                 : read_metrics(ctx, data[0], text, size - 1, &run);
    if (status != DER_OK)
        require(strlen(der_ctx_error(ctx)) > 0);
    else if (data[0] & IS_CONFIG)
        require(run.state == RUN_PARTIAL && run.n_classes > 0 && run.train_images >= 0);
    else
        check_metrics(&run);
    require(der_ctx_memory(ctx).n_live == 0);
    der_ctx_free(ctx);
    return 0;
}

/*
 * Fuzz target: settings from strangers are refused with a sentence, or give a configuration that
 * passes its check and survives being written and read.
 *
 * The first byte chooses. With its highest bit set the rest is the JSON of a configuration; else it
 * is the preset, and the rest are assignments, one a line.
 */
#include "config/config_json.h"
#include "config/override.h"
#include "config/preset.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { IS_JSON = 0x80, LINES_MAX = 32, TEXT_MAX = 4096 };

static void require(bool holds)
{
    if (!holds)
        abort();
}

static void check_steps(const struct config *config)
{
    int n_classes = config->classes > 0 && config->classes < 2000 ? config->classes : 37;
    int n_steps = config_steps(config, n_classes);
    int sum = 0;
    for (int t = 0; t < n_steps; t++)
        sum += config_step_classes(config, n_classes, t);
    require(sum == n_classes && config_step_classes(config, n_classes, n_steps) == 0);
    int hard = config_hard_epoch(config, &config->representation);
    require(hard >= 0 && hard <= config->representation.epochs);
}

/* What passed the check is written and read back as it was. */
static void check_round_trip(struct der_ctx *ctx, const struct config *config)
{
    cJSON *written;
    cJSON *parsed;
    char *text;
    struct config read;
    require(config_to_json(ctx, config, &written) == DER_OK);
    require(json_print(ctx, written, false, &text) == DER_OK);
    require(json_parse(ctx, "fuzz", text, strlen(text), &parsed) == DER_OK);
    require(config_from_json(ctx, "fuzz", parsed, &read) == DER_OK);
    require(config_differences(config, &read, NULL, NULL) == 0);
    mem_free(&ctx->mem, text);
    json_free(written);
    json_free(parsed);
}

static bool from_json(struct der_ctx *ctx, const char *text, size_t length, struct config *config)
{
    cJSON *value;
    if (json_parse(ctx, "fuzz", text, length, &value) != DER_OK)
        return false;
    enum der_status status = config_from_json(ctx, "fuzz", value, config);
    json_free(value);
    return status == DER_OK;
}

static bool from_assignments(struct der_ctx *ctx, int preset, char *text, struct config *config)
{
    const char *lines[LINES_MAX];
    int n = 0;
    for (char *line = text; line && *line && n < LINES_MAX;) {
        char *end = strchr(line, '\n');
        lines[n++] = line;
        if (end)
            *end++ = '\0';
        line = end;
    }
    preset_fill(&preset_table[preset % n_presets], METHOD_DER, config);
    struct config before = *config;
    if (config_apply(ctx, config, lines, n) != DER_OK) {
        require(config_differences(config, &before, NULL, NULL) == 0);
        return false;
    }
    return config_check(ctx, config) == DER_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0 || size > TEXT_MAX)
        return 0;
    struct der_ctx *ctx = NULL;
    require(der_ctx_new(NULL, &ctx) == DER_OK);
    char text[TEXT_MAX] = "";
    memcpy(text, data + 1, size - 1);
    struct config config;
    bool accepted = data[0] & IS_JSON ? from_json(ctx, text, size - 1, &config)
                                      : from_assignments(ctx, data[0], text, &config);
    if (accepted) {
        check_steps(&config);
        check_round_trip(ctx, &config);
    } else {
        require(strlen(der_ctx_error(ctx)) > 0);
    }
    require(der_ctx_memory(ctx).n_live == 0);
    der_ctx_free(ctx);
    return 0;
}

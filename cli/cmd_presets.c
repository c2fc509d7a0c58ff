/*
 * `der presets`: the presets, or every setting of one as a run would use it.
 */
#include "options.h"

#include <der/settings.h>

#include <stdio.h>
#include <string.h>

/* What the command line fills in. */
struct request {
    const char *name; /* NULL: all presets */
    bool json;
    const char *method;
    struct option_texts set;
};

static const struct option options[] = {
    {.name = "NAME",
     .type = OPTION_WORD,
     .kind = KIND_PRESET,
     .help = "show every setting of this preset",
     .at = AT(name)},
    {.name = "json",
     .type = OPTION_FLAG,
     .help = "as JSON; without NAME, all presets in an array",
     .at = AT(json)},
    {.name = "method",
     .setting = "method",
     .help = "with the switches of this method (der)",
     .at = AT(method)},
    SET_ROW(set, "change a setting; `der help settings` lists them"),
};

/* Width of the widest value, so that the help stands in a column; longer values push it out. */
static int value_width(struct der_settings *settings)
{
    enum { WIDEST = 20 };
    int width = 0;
    for (int i = 0; i < der_setting_count(); i++) {
        int length = (int)strlen(der_settings_value(settings, i));
        if (length > width && length <= WIDEST)
            width = length;
    }
    return width;
}

static enum der_status print_table(struct der_ctx *ctx, struct der_settings *settings)
{
    int width = value_width(settings);
    for (int i = 0; i < der_setting_count(); i++) {
        struct der_setting_info info;
        enum der_status status = der_setting_describe(ctx, i, &info);
        if (status != DER_OK)
            return status;
        printf("%-24s %-*s  %s\n", info.key, width, der_settings_value(settings, i), info.help);
    }
    return DER_OK;
}

static enum der_status print_preset(struct der_ctx *ctx, const struct request *request,
                                    const char *name)
{
    struct der_settings *settings;
    enum der_status status =
        der_settings_new(ctx, name, request->method, request->set.text, request->set.n, &settings);
    if (status != DER_OK)
        return status;
    if (request->json) {
        const char *text;
        status = der_settings_json(settings, &text);
        if (status == DER_OK)
            fputs(text, stdout);
    } else {
        status = print_table(ctx, settings);
    }
    der_settings_free(settings);
    return status;
}

/* Names and summaries, or all settings of all presets. */
static enum der_status print_all(struct der_ctx *ctx, const struct request *request)
{
    enum der_status status = DER_OK;
    if (request->json)
        printf("[\n");
    for (int i = 0; i < der_preset_count() && status == DER_OK; i++) {
        struct der_preset_info info;
        status = der_preset_describe(ctx, i, &info);
        if (status != DER_OK)
            break;
        if (!request->json) {
            printf("%-21s %s\n", info.name, info.summary);
            continue;
        }
        if (i > 0)
            printf(",\n");
        status = print_preset(ctx, request, info.name);
    }
    if (request->json)
        printf("]\n");
    return status;
}

static enum exit_code run(void *user)
{
    const struct request *request = user;
    if (!request->name && !request->json && (request->method || request->set.n > 0))
        return fail(EXIT_USAGE, "--method and --set want the NAME of a preset, or --json");

    struct der_ctx *ctx;
    enum der_status status = der_ctx_new(NULL, &ctx);
    if (status != DER_OK)
        return fail_status(NULL, status);
    status = request->name ? print_preset(ctx, request, request->name) : print_all(ctx, request);
    enum exit_code code = status == DER_OK ? EXIT_OK : fail_status(ctx, status);
    der_ctx_free(ctx);
    return code;
}

const struct command command_presets = {
    .name = "presets",
    .usage = "[NAME] [OPTIONS]",
    .summary = "list the presets, or every setting of one",
    .about = "Lists the presets, each a protocol with every setting filled in; with a NAME, all of "
             "its settings as a "
             "run would use them: key, value, meaning.\n"
             "Changing `epochs`, `first_epochs` or `classifier_epochs` squeezes the preset's "
             "warm-up and drops of "
             "that schedule; where a preset trains step 1 like every other step, step 1 follows "
             "what the others are "
             "given unless it is given something itself. How classes are split into steps and how "
             "many exemplars are "
             "kept belongs to the protocol and cannot be changed, except in the preset `custom`.",
    TAKES(options),
    .run = run,
    .lists_settings = true,
};

/*
 * `der presets`: the presets, or every setting of one as a run would use it.
 */
#include "cli.h"
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

enum { N_OPTIONS = 4 };

static void list_options(struct request *r, struct option options[N_OPTIONS])
{
    const struct option table[N_OPTIONS] = {
        {"NAME", OPTION_WORD, "", "show every setting of this preset", &r->name},
        {"json", OPTION_FLAG, "", "as JSON; without NAME, all presets in an array", &r->json},
        {"method", OPTION_TEXT, "der|finetune|joint", "with the switches of this method (der)",
         &r->method},
        {"set", OPTION_TEXTS, "KEY=VALUE", "change a setting; may be given several times", &r->set},
    };
    memcpy(options, table, sizeof table);
}

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

enum exit_code cmd_presets(int argc, char **argv)
{
    struct request request = {0};
    struct option options[N_OPTIONS];
    list_options(&request, options);
    if (argc == 2 && strcmp(argv[1], "--help") == 0) {
        printf("usage: der presets [NAME] [OPTIONS]\n\n");
        options_print(options, N_OPTIONS);
        return EXIT_OK;
    }
    enum exit_code code = options_parse(options, N_OPTIONS, argc, argv);
    if (code != EXIT_OK)
        return code;
    if (!request.name && !request.json && (request.method || request.set.n > 0))
        return fail(EXIT_USAGE, "--method and --set want the NAME of a preset, or --json");

    struct der_ctx *ctx;
    enum der_status status = der_ctx_new(NULL, &ctx);
    if (status != DER_OK)
        return fail_status(NULL, status);
    status = request.name ? print_preset(ctx, &request, request.name) : print_all(ctx, &request);
    code = status == DER_OK ? EXIT_OK : fail_status(ctx, status);
    der_ctx_free(ctx);
    return code;
}

/*
 * `der export`: a model in a format that other programs read.
 */
#include "cli.h"
#include "options.h"

#include <der/exchange.h>

#include <stdio.h>
#include <string.h>

enum { N_OPTIONS = 3 };

static enum exit_code run(const char *model, const char *onnx,
                          const struct der_onnx_options *options)
{
    struct der_ctx *ctx;
    enum der_status status = der_ctx_new(NULL, &ctx);
    if (status != DER_OK)
        return fail_status(NULL, status);
    status = der_export_onnx(ctx, model, onnx, options);
    enum exit_code code = status == DER_OK ? EXIT_OK : fail_status(ctx, status);
    der_ctx_free(ctx);
    return code;
}

enum exit_code cmd_export(int argc, char **argv)
{
    const char *model = NULL;
    const char *onnx = NULL;
    struct der_onnx_options options = {.pixels = false};
    const struct option table[N_OPTIONS] = {
        {"MODEL", OPTION_WORD, "", "the model: model.safetensors of a run", &model},
        {"onnx", OPTION_TEXT, "FILE", "write it as an ONNX file", &onnx},
        {"pixels", OPTION_FLAG, "", "the file takes bytes 0 to 255 and normalises them itself",
         &options.pixels},
    };
    if (argc == 2 && strcmp(argv[1], "--help") == 0) {
        printf("usage: der export MODEL --onnx FILE [OPTIONS]\n\n");
        options_print(table, N_OPTIONS);
        return EXIT_OK;
    }
    enum exit_code code = options_parse(table, N_OPTIONS, argc, argv);
    if (code != EXIT_OK)
        return code;
    if (!model || !onnx)
        return fail(EXIT_USAGE, "%s is missing; see 'der export --help'",
                    model ? "--onnx" : "the model");
    return run(model, onnx, &options);
}

/*
 * `der import`: weights that others have trained, for a first extractor to begin with.
 */
#include "cli.h"
#include "options.h"

#include <der/exchange.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { N_OPTIONS = 6 };

static void show(const char *path, const char *network, const char *out,
                 const struct der_import_result *r)
{
    printf("%s: all %d tensors of %s, %" PRId64 " parameters", path, r->n_used, network, r->params);
    if (r->prefix[0] != '\0')
        printf(", behind the prefix '%s'", r->prefix);
    printf("; %d others are not needed\n", r->n_ignored);
    if (out)
        printf("%s: written; 'der train --init %s' begins with it\n", out, out);
}

static enum exit_code run(const char *path, const struct der_import_options *options)
{
    struct der_import_result result;
    struct der_ctx *ctx;
    enum der_status status = der_ctx_new(NULL, &ctx);
    if (status != DER_OK)
        return fail_status(NULL, status);
    status = der_import(ctx, path, options, &result);
    enum exit_code code = EXIT_OK;
    if (status == DER_OK)
        show(path, options->network, options->out, &result);
    else
        code = fail_status(ctx, status);
    der_ctx_free(ctx);
    return code;
}

enum exit_code cmd_import(int argc, char **argv)
{
    const char *path = NULL;
    struct der_import_options options = {.network = "resnet18", .width = 1.0, .channels = 3};
    const struct option table[N_OPTIONS] = {
        {"FILE", OPTION_WORD, "", "safetensors file with torchvision's names", &path},
        {"network", OPTION_TEXT, "NAME", "that it is for, as 'der nets' lists them (resnet18)",
         &options.network},
        {"width", OPTION_NUMBER, "F", "factor on the channels of the network (1)", &options.width},
        {"channels", OPTION_INT, "N", "of the images (3)", &options.channels},
        {"prefix", OPTION_TEXT, "TEXT", "of the names, where the file holds several networks",
         &options.prefix},
        {"out", OPTION_TEXT, "WEIGHTS", "write what is needed of it, as float32", &options.out},
    };
    if (argc == 2 && strcmp(argv[1], "--help") == 0) {
        printf("usage: der import FILE [OPTIONS]\n\n");
        options_print(table, N_OPTIONS);
        return EXIT_OK;
    }
    enum exit_code code = options_parse(table, N_OPTIONS, argc, argv);
    if (code != EXIT_OK)
        return code;
    if (!path)
        return fail(EXIT_USAGE, "the file is missing; see 'der import --help'");
    return run(path, &options);
}

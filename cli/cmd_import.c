/*
 * `der import`: weights that others have trained, for a first extractor to begin with.
 */
#include "options.h"

#include <der/exchange.h>

#include <inttypes.h>
#include <stdio.h>

/* What the command line fills in. */
struct request {
    const char *path;
    struct der_import_options import;
    bool quiet;
};

static const struct request defaults = {
    .import = {.network = "resnet18", .width = 1.0, .channels = 3}};

static const struct option options[] = {
    {.name = "FILE",
     .type = OPTION_WORD,
     .kind = KIND_FILE,
     .help = "safetensors file with torchvision's names",
     .required = true,
     .at = AT(path)},
    {.name = "network",
     .kind = KIND_NETWORK,
     .argument = "NAME",
     .help = "network that the weights are for, as `der nets` lists them (resnet18)",
     .at = AT(import.network)},
    {.name = "width",
     .type = OPTION_NUMBER,
     .argument = "F",
     .help = "factor on the channels of the network (1)",
     .at = AT(import.width)},
    {.name = "channels",
     .type = OPTION_INT,
     .argument = "N",
     .help = "channels of the images (3)",
     .at = AT(import.channels)},
    {.name = "prefix",
     .argument = "TEXT",
     .help = "what the names begin with, where the file holds several networks",
     .at = AT(import.prefix)},
    {.name = "out",
     .letter = 'o',
     .kind = KIND_FILE,
     .argument = "WEIGHTS",
     .help = "write what is needed of it, as float32",
     .more = "The names have no prefix then.",
     .at = AT(import.out)},
    QUIET_ROW(quiet, "say nothing where all is well"),
};

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

static enum exit_code run(void *user)
{
    const struct request *r = user;
    struct der_import_result result;
    struct der_ctx *ctx;
    enum der_status status = der_ctx_new(NULL, &ctx);
    if (status != DER_OK)
        return fail_status(NULL, status);
    status = der_import(ctx, r->path, &r->import, &result);
    enum exit_code code = status == DER_OK ? EXIT_OK : fail_status(ctx, status);
    if (status == DER_OK && !r->quiet)
        show(r->path, r->import.network, r->import.out, &result);
    der_ctx_free(ctx);
    return code;
}

const struct command command_import = {
    .name = "import",
    .usage = "FILE [OPTIONS]",
    .summary = "check weights that others trained, to begin with",
    .about = "Looks in a safetensors file for the weights of a residual network with torchvision's "
             "names, which may "
             "stand behind a prefix, and says what was found. All of its tensors must be there, "
             "with the right "
             "shapes; floats of 16, 32 and 64 bits are read; a head and counters of batches are "
             "left aside. "
             "`der train --init` FILE begins with such a file as it is.",
    TAKES(options),
    .defaults = &defaults,
    .run = run,
};

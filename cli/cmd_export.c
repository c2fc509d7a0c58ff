/*
 * `der export`: a model in a format that other programs read.
 */
#include "options.h"
#include "outputs.h"

#include <der/exchange.h>

/* What the command line fills in. */
struct request {
    const char *model, *onnx;
    struct der_onnx_options options;
};

static const struct option options[] = {
    {.name = "MODEL",
     .type = OPTION_WORD,
     .kind = KIND_FILE,
     .help = "the model file: `model.safetensors` of a run",
     .required = true,
     .at = AT(model)},
    {.name = "onnx",
     .kind = KIND_FILE,
     .argument = "FILE",
     .help = "write it as an ONNX file",
     .required = true,
     .at = AT(onnx)},
    {.name = "pixels",
     .type = OPTION_FLAG,
     .help = "the file takes bytes 0 to 255 and normalises them itself",
     .more = "Its input is then uint8, as [image, channel, row, column].",
     .at = AT(options.pixels)},
};

static enum exit_code run(void *user)
{
    const struct request *r = user;
    struct der_ctx *ctx;
    enum exit_code code = outputs_spare("onnx", r->onnx, r->model);
    if (code != EXIT_OK)
        return code;
    enum der_status status = der_ctx_new(NULL, &ctx);
    if (status != DER_OK)
        return fail_status(NULL, status);
    status = der_export_onnx(ctx, r->model, r->onnx, &r->options);
    code = status == DER_OK ? EXIT_OK : fail_status(ctx, status);
    der_ctx_free(ctx);
    return code;
}

const struct command command_export = {
    .name = "export",
    .usage = "MODEL --onnx FILE [OPTIONS]",
    .summary = "write a model for other programs: ONNX",
    .about = "Writes a model for other programs. An old file is replaced whole or not at all; the "
             "same model gives "
             "the same bytes.\n"
             "ONNX files (opset 13) have batch norm folded into the convolutions and take any "
             "number of images at a "
             "time: input `image`, float32, normalised as the metadata say, outputs `logits` and "
             "`probabilities`. "
             "Names of the classes, temperature, normalisation and provenance are in the metadata.",
    TAKES(options),
    .run = run,
};

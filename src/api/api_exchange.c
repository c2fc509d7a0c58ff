/*
 * der_export_onnx and der_import. Both only move numbers, so any back end will do.
 */
#include <der/exchange.h>

#include "exchange/onnx_file.h"
#include "store/weights_file.h"

#include <string.h>

static const char ANY_BACKEND[] = "ref";

enum { ANY_SIDE = 224, DEFAULT_CHANNELS = 3 }; /* weights do not depend on the size of images */

enum der_status der_export_onnx(struct der_ctx *ctx, const char *model, const char *path,
                                const struct der_onnx_options *options)
{
    struct onnx_options onnx = {.pixels = options && options->pixels};
    struct backend *be;
    struct model *loaded = NULL;
    if (!model || !path)
        return ctx_fail(ctx, DER_ARG, "an export needs a model and a file to write");
    TRY(backend_open(ctx, ANY_BACKEND, NULL, &be));
    enum der_status status = model_load(be, NULL, model, &loaded);
    if (status == DER_OK)
        status = onnx_write(loaded, &onnx, path);
    model_free(loaded);
    backend_close(be);
    return status;
}

static enum der_status import_network(struct backend *be, const struct weights_options *weights,
                                      const struct resnet_spec *spec, const char *out,
                                      struct weights_match *match)
{
    struct extractor *extractor;
    TRY(extractor_new(be, spec, &extractor));
    enum der_status status = weights_load(weights, extractor, match);
    if (status == DER_OK && out)
        status = weights_write(extractor, NULL, out);
    extractor_free(extractor);
    return status;
}

enum der_status der_import(struct der_ctx *ctx, const char *path,
                           const struct der_import_options *options,
                           struct der_import_result *result)
{
    struct der_import_options o = options ? *options : (struct der_import_options){0};
    struct weights_options weights = {.path = path, .prefix = o.prefix};
    struct weights_match match = {.n_used = 0};
    struct resnet_spec spec;
    struct backend *be;
    *result = (struct der_import_result){.n_used = 0};
    if (!path)
        return ctx_fail(ctx, DER_ARG, "an import needs a file to read");
    TRY(resnet_spec_init(ctx, &spec, o.network ? o.network : "resnet18",
                         o.channels != 0 ? o.channels : DEFAULT_CHANNELS, ANY_SIDE, ANY_SIDE,
                         o.width != 0.0 ? o.width : 1.0));
    TRY(backend_open(ctx, ANY_BACKEND, NULL, &be));
    enum der_status status = import_network(be, &weights, &spec, o.out, &match);
    backend_close(be);
    TRY(status);
    _Static_assert(sizeof result->prefix == sizeof match.prefix, "a prefix fits");
    memcpy(result->prefix, match.prefix, sizeof match.prefix);
    result->n_used = match.n_used;
    result->n_ignored = match.n_ignored;
    result->params = resnet_count_params(&spec);
    return DER_OK;
}

#include "loading.h"

#include "running.h"

static enum exit_code load(const struct loading *loading, struct der_model_options *options,
                           struct der_ctx **ctx, struct der_model **model)
{
    struct der_ctx_options ctx_options = {.threads = loading->threads, .log = show_warning};
    enum der_status status = der_ctx_new(&ctx_options, ctx);
    if (status != DER_OK)
        return fail_status(NULL, status);
    status = der_model_load(*ctx, loading->model, options, model);
    if (status == DER_OK)
        return EXIT_OK;
    enum exit_code code = fail_status(*ctx, status);
    der_ctx_free(*ctx);
    *ctx = NULL;
    return code;
}

enum exit_code loading_open(const struct loading *loading, const char *command,
                            struct der_ctx **ctx, struct der_model **model)
{
    struct der_model_options options = {.backend = loading->device};
    *ctx = NULL;
    *model = NULL;
    if (!loading->model)
        return fail(EXIT_USAGE, "MODEL is missing; see 'der %s --help'", command);
    if (loading->threads < 1)
        return fail(EXIT_USAGE, "--threads wants 1 or more");
    if (loading->precision && !running_precision(command, loading->precision, &options.precision))
        return EXIT_USAGE;
    return load(loading, &options, ctx, model);
}

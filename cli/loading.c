#include "loading.h"

#include "cache_dir.h"

enum exit_code loading_open(const struct loading *loading, struct der_ctx **ctx,
                            struct der_model **model)
{
    struct der_model_options options = {.backend = loading->device,
                                        .precision = loading->precision};
    char path[CACHE_DIR_MAX];
    struct der_ctx_options ctx_options = {
        .threads = loading->threads, .log = show_warning, .cache_dir = cache_dir(path)};
    *model = NULL;
    enum der_status status = der_ctx_new(&ctx_options, ctx);
    if (status != DER_OK)
        return fail_status(NULL, status);
    status = der_model_load(*ctx, loading->model, &options, model);
    if (status == DER_OK)
        return EXIT_OK;
    enum exit_code code = fail_status(*ctx, status);
    der_ctx_free(*ctx);
    *ctx = NULL;
    return code;
}

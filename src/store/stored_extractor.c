#include "store/stored_extractor.h"

#include "store/model_text.h"
#include "store/tensor_list.h"

enum der_status extractor_is_stored(struct der_ctx *ctx, const char *source,
                                    struct safetensors_file *file, const char *prefix,
                                    const struct resnet_spec *spec, int *n_tensors)
{
    struct param_set *declared;
    TRY(param_set_new(ctx, &declared));
    enum der_status status = text_blame(ctx, source, resnet_declare(spec, declared));
    if (status == DER_OK)
        status = params_are_stored(file, prefix, declared, false, n_tensors);
    param_set_free(declared);
    return status;
}

/* A variance below 0 has no root. */
static enum der_status check_variances(const struct param_set *set, const char *source,
                                       const char *prefix)
{
    struct mem *mem = &set->ctx->mem;
    for (int i = LAYER_VAR; i < set->n; i += PARAMS_PER_LAYER) {
        int64_t n = shape_count(set->items[i].shape);
        float *values = mem_alloc(mem, (size_t)n, sizeof *values);
        enum der_status status = values ? param_read(set, i, values) : ctx_nomem(set->ctx);
        for (int64_t c = 0; c < n && status == DER_OK; c++)
            if (values[c] < 0.0f)
                status =
                    ctx_fail(set->ctx, DER_FORMAT, "%s: tensor '%s%s' holds a negative variance",
                             source, prefix, set->items[i].name);
        mem_free(mem, values);
        TRY(status);
    }
    return DER_OK;
}

enum der_status extractor_restore(struct backend *be, const char *source,
                                  struct safetensors_file *file, const char *prefix,
                                  const struct resnet_spec *spec, struct extractor **out)
{
    TRY(extractor_new(be, spec, out));
    enum der_status status = params_restore(file, prefix, (*out)->params, false);
    if (status == DER_OK)
        status = check_variances((*out)->params, source, prefix);
    if (status != DER_OK) {
        extractor_free(*out);
        *out = NULL;
    }
    return status;
}

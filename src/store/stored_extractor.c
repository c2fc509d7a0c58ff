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

enum der_status extractor_restore(struct backend *be, const char *source,
                                  struct safetensors_file *file, const char *prefix,
                                  const struct resnet_spec *spec, struct extractor **out)
{
    TRY(extractor_new(be, spec, out));
    enum der_status status = params_restore(file, prefix, (*out)->params, false);
    if (status == DER_OK)
        status = params_check_variances((*out)->params, source, prefix);
    if (status != DER_OK) {
        extractor_free(*out);
        *out = NULL;
    }
    return status;
}

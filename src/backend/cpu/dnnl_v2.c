/*
 * oneDNN 2.x: descriptors are structs, an operation is described before its primitive.
 */
#include "backend/cpu/dnnl_impl.h"

#if DNNL_VERSION_MAJOR == 2

#include <string.h>

bool shim_has_winograd(void)
{
    return true;
}

dnnl_status_t desc_init(struct shim_desc *desc, int rank, const int64_t *dim, dnnl_format_tag_t tag)
{
    return dnnl_memory_desc_init_by_tag(&desc->md, rank, dim, dnnl_f32, tag);
}

dnnl_status_t desc_query(struct shim_desc *desc, const_dnnl_primitive_desc_t primitive_desc,
                         dnnl_query_t what)
{
    const dnnl_memory_desc_t *md = dnnl_primitive_desc_query_md(primitive_desc, what, 0);
    if (md)
        desc->md = *md;
    else
        memset(desc, 0, sizeof *desc);
    return dnnl_success;
}

void desc_fini(struct shim_desc *desc)
{
    memset(desc, 0, sizeof *desc);
}

bool desc_equal(const struct shim_desc *a, const struct shim_desc *b)
{
    return dnnl_memory_desc_equal(&a->md, &b->md) != 0;
}

size_t desc_bytes(const struct shim_desc *desc)
{
    return desc->md.ndims ? dnnl_memory_desc_get_size(&desc->md) : 0;
}

dnnl_status_t desc_memory(const struct shim_desc *desc, dnnl_engine_t engine, dnnl_memory_t *memory)
{
    return dnnl_memory_create(memory, &desc->md, engine, DNNL_MEMORY_NONE);
}

dnnl_status_t post_ops_append(dnnl_post_ops_t ops, bool sum, bool relu)
{
    dnnl_status_t status = dnnl_success;
    if (sum)
        status = dnnl_post_ops_append_sum(ops, 1.0f);
    if (status == dnnl_success && relu)
        status = dnnl_post_ops_append_eltwise(ops, 1.0f, dnnl_eltwise_relu, 0.0f, 0.0f);
    return status;
}

/* The backward passes want to see a forward one; any will do that has the same geometry. */
static dnnl_status_t forward_hint(struct shim *shim, const struct conv_descs *descs,
                                  const dnnl_dims_t stride, const dnnl_dims_t pad,
                                  dnnl_primitive_desc_t *out)
{
    dnnl_convolution_desc_t operation;
    dnnl_status_t status = dnnl_convolution_forward_desc_init(
        &operation, dnnl_forward_training, dnnl_convolution_direct, &descs->src.md,
        &descs->weights.md, NULL, &descs->dst.md, stride, pad, pad);
    if (status != dnnl_success)
        return status;
    return dnnl_primitive_desc_create(out, &operation, NULL, shim->engine, NULL);
}

dnnl_status_t conv_desc_create(struct shim *shim, const struct conv_spec *spec,
                               const struct conv_descs *descs, const_dnnl_primitive_attr_t attr,
                               dnnl_primitive_desc_t *out)
{
    const struct conv_geometry *g = &spec->geometry;
    const dnnl_dims_t stride = {g->stride, g->stride};
    const dnnl_dims_t pad = {g->pad, g->pad};
    dnnl_alg_kind_t kind = spec->winograd ? dnnl_convolution_winograd : dnnl_convolution_direct;
    dnnl_convolution_desc_t operation;
    dnnl_primitive_desc_t hint = NULL;
    dnnl_status_t status = dnnl_success;
    switch (spec->pass) {
    case CONV_FORWARD:
        status = dnnl_convolution_forward_desc_init(&operation, dnnl_forward_training, kind,
                                                    &descs->src.md, &descs->weights.md, NULL,
                                                    &descs->dst.md, stride, pad, pad);
        break;
    case CONV_FOLDED:
        status = dnnl_convolution_forward_desc_init(
            &operation, dnnl_forward_inference, kind, &descs->src.md, &descs->weights.md,
            &descs->bias.md, &descs->dst.md, stride, pad, pad);
        break;
    case CONV_BACK_SRC:
        status = dnnl_convolution_backward_data_desc_init(
            &operation, kind, &descs->src.md, &descs->weights.md, &descs->dst.md, stride, pad, pad);
        break;
    case CONV_BACK_WEIGHTS:
        status = dnnl_convolution_backward_weights_desc_init(&operation, kind, &descs->src.md,
                                                             &descs->weights.md, NULL,
                                                             &descs->dst.md, stride, pad, pad);
        break;
    }
    if (status == dnnl_success && spec->pass >= CONV_BACK_SRC)
        status = forward_hint(shim, descs, stride, pad, &hint);
    if (status == dnnl_success)
        status = dnnl_primitive_desc_create(out, &operation, attr, shim->engine, hint);
    if (hint)
        dnnl_primitive_desc_destroy(hint);
    return status;
}

dnnl_status_t reorder_desc_create(struct shim *shim, const struct shim_desc *from,
                                  const struct shim_desc *to, const_dnnl_primitive_attr_t attr,
                                  dnnl_primitive_desc_t *out)
{
    return dnnl_reorder_primitive_desc_create(out, &from->md, shim->engine, &to->md, shim->engine,
                                              attr);
}

#else

/* ISO C forbids an empty file. */
enum { DNNL_V2_IS_NOT_IN_USE };

#endif

/*
 * oneDNN 3.x: descriptors are objects, a primitive is described in one call.
 */
#include "backend/cpu/dnnl_impl.h"

#if DNNL_VERSION_MAJOR >= 3

/* The constant is still in the headers, but no kernel on x64 answers to it. */
bool shim_has_winograd(void)
{
    return false;
}

dnnl_status_t desc_init(struct shim_desc *desc, int rank, const int64_t *dim, dnnl_format_tag_t tag)
{
    return dnnl_memory_desc_create_with_tag(&desc->md, rank, dim, dnnl_f32, tag);
}

dnnl_status_t desc_query(struct shim_desc *desc, const_dnnl_primitive_desc_t primitive_desc,
                         dnnl_query_t what)
{
    const_dnnl_memory_desc_t md = dnnl_primitive_desc_query_md(primitive_desc, what, 0);
    desc->md = NULL;
    return md ? dnnl_memory_desc_clone(&desc->md, md) : dnnl_success;
}

void desc_fini(struct shim_desc *desc)
{
    if (desc->md)
        dnnl_memory_desc_destroy(desc->md);
    desc->md = NULL;
}

bool desc_equal(const struct shim_desc *a, const struct shim_desc *b)
{
    return a->md && b->md && dnnl_memory_desc_equal(a->md, b->md) != 0;
}

size_t desc_bytes(const struct shim_desc *desc)
{
    return desc->md ? dnnl_memory_desc_get_size(desc->md) : 0;
}

dnnl_status_t desc_memory(const struct shim_desc *desc, dnnl_engine_t engine, dnnl_memory_t *memory)
{
    return dnnl_memory_create(memory, desc->md, engine, DNNL_MEMORY_NONE);
}

dnnl_status_t post_ops_append(dnnl_post_ops_t ops, bool sum, bool relu)
{
    dnnl_status_t status = dnnl_success;
    if (sum)
        status = dnnl_post_ops_append_sum(ops, 1.0f, 0, dnnl_data_type_undef);
    if (status == dnnl_success && relu)
        status = dnnl_post_ops_append_eltwise(ops, dnnl_eltwise_relu, 0.0f, 0.0f);
    return status;
}

dnnl_status_t conv_desc_create(struct shim *shim, const struct conv_spec *spec,
                               const struct conv_descs *descs, const_dnnl_primitive_attr_t attr,
                               dnnl_primitive_desc_t *out)
{
    const struct conv_geometry *g = &spec->geometry;
    const dnnl_dims_t stride = {g->stride, g->stride};
    const dnnl_dims_t pad = {g->pad, g->pad};
    const dnnl_dims_t dilation = {0, 0};
    const dnnl_alg_kind_t kind =
        spec->winograd ? dnnl_convolution_winograd : dnnl_convolution_direct;
    if (spec->pass == CONV_FORWARD || spec->pass == CONV_FOLDED)
        return dnnl_convolution_forward_primitive_desc_create(
            out, shim->engine,
            spec->pass == CONV_FORWARD ? dnnl_forward_training : dnnl_forward_inference, kind,
            descs->src.md, descs->weights.md, spec->pass == CONV_FOLDED ? descs->bias.md : NULL,
            descs->dst.md, stride, dilation, pad, pad, attr);

    /* The backward passes want to see a forward one; any will do that has the same geometry. */
    dnnl_primitive_desc_t hint = NULL;
    dnnl_status_t status = dnnl_convolution_forward_primitive_desc_create(
        &hint, shim->engine, dnnl_forward_training, dnnl_convolution_direct, descs->src.md,
        descs->weights.md, NULL, descs->dst.md, stride, dilation, pad, pad, NULL);
    if (status != dnnl_success)
        return status;
    if (spec->pass == CONV_BACK_SRC)
        status = dnnl_convolution_backward_data_primitive_desc_create(
            out, shim->engine, kind, descs->src.md, descs->weights.md, descs->dst.md, stride,
            dilation, pad, pad, hint, attr);
    else
        status = dnnl_convolution_backward_weights_primitive_desc_create(
            out, shim->engine, kind, descs->src.md, descs->weights.md, NULL, descs->dst.md, stride,
            dilation, pad, pad, hint, attr);
    dnnl_primitive_desc_destroy(hint);
    return status;
}

dnnl_status_t reorder_desc_create(struct shim *shim, const struct shim_desc *from,
                                  const struct shim_desc *to, const_dnnl_primitive_attr_t attr,
                                  dnnl_primitive_desc_t *out)
{
    return dnnl_reorder_primitive_desc_create(out, from->md, shim->engine, to->md, shim->engine,
                                              attr);
}

#else

/* ISO C forbids an empty file. */
enum { DNNL_V3_IS_NOT_IN_USE };

#endif

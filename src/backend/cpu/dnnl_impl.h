/*
 * Between dnnl_shim.c and the file of the oneDNN version in use. Nobody else includes this.
 */
#ifndef DNNL_IMPL_H
#define DNNL_IMPL_H

#include "backend/cpu/dnnl_shim.h"

#include <oneapi/dnnl/dnnl.h>

/* A memory descriptor: a struct in 2.x, a pointer to be freed in 3.x. Zeroed is empty. */
struct shim_desc {
    dnnl_memory_desc_t md;
};

/* The three descriptors of a convolution, gradients included; bias only when folded. */
struct conv_descs {
    struct shim_desc src, weights, bias, dst;
};

struct shim {
    struct der_ctx *ctx;
    dnnl_engine_t engine;
    dnnl_stream_t stream;
};

/* f32 of the given layout. */
dnnl_status_t desc_init(struct shim_desc *desc, int rank, const int64_t *dim,
                        dnnl_format_tag_t tag);
/* A copy of what the primitive answers; empty when it has nothing to say. */
dnnl_status_t desc_query(struct shim_desc *desc, const_dnnl_primitive_desc_t primitive_desc,
                         dnnl_query_t what);
void desc_fini(struct shim_desc *desc);
bool desc_equal(const struct shim_desc *a, const struct shim_desc *b);
size_t desc_bytes(const struct shim_desc *desc);
dnnl_status_t desc_memory(const struct shim_desc *desc, dnnl_engine_t engine,
                          dnnl_memory_t *memory);

dnnl_status_t post_ops_append(dnnl_post_ops_t ops, bool sum, bool relu);
dnnl_status_t conv_desc_create(struct shim *shim, const struct conv_spec *spec,
                               const struct conv_descs *descs, const_dnnl_primitive_attr_t attr,
                               dnnl_primitive_desc_t *out);
dnnl_status_t reorder_desc_create(struct shim *shim, const struct shim_desc *from,
                                  const struct shim_desc *to, const_dnnl_primitive_attr_t attr,
                                  dnnl_primitive_desc_t *out);

#endif

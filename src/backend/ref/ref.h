/*
 * The reference back end: what every op means, as plain loops.
 *
 * It is the oracle that other back ends are tested against, so it is written to be read: dense
 * row-major data, sums in double, one function per op, no threads, no vendor library. The terms
 * of a sum are added in ascending order of their indices, starting from 0: terms that are exactly
 * 0 change no bit, which makes a pruned network equal to its masked original.
 */
#ifndef REF_H
#define REF_H

#include "graph/backend.h"

extern const struct backend_ops ref_backend;

/* An operand with its memory found. Both pointers are NULL when it is absent. */
struct ref_tensor {
    float *data;   /* f32 */
    int32_t *ints; /* i32 */
    struct shape shape;
    int64_t pitch; /* matrices: elements from one row to the next */
};

/* One execution of a node. */
struct ref_call {
    const union op_attr *attr;
    const struct ref_tensor *in;  /* [n_in] */
    const struct ref_tensor *out; /* [n_out] */
    int n_in, n_out;
};

void ref_conv2d(const struct ref_call *call);
void ref_conv2d_d_src(const struct ref_call *call);
void ref_conv2d_d_weights(const struct ref_call *call);
void ref_conv2d_affine(const struct ref_call *call);
void ref_batchnorm(const struct ref_call *call);
void ref_batchnorm_grad(const struct ref_call *call);
void ref_relu(const struct ref_call *call);
void ref_relu_grad(const struct ref_call *call);
void ref_add(const struct ref_call *call);
void ref_scale_channel(const struct ref_call *call);
void ref_scale_channel_grad(const struct ref_call *call);
void ref_scale(const struct ref_call *call);
void ref_scale_grad(const struct ref_call *call);
void ref_maxpool(const struct ref_call *call);
void ref_maxpool_grad(const struct ref_call *call);
void ref_avgpool(const struct ref_call *call);
void ref_avgpool_grad(const struct ref_call *call);
void ref_join(const struct ref_call *call);
void ref_linear(const struct ref_call *call);
void ref_linear_d_src(const struct ref_call *call);
void ref_linear_d_weights(const struct ref_call *call);
void ref_l2norm(const struct ref_call *call);
void ref_l2norm_grad(const struct ref_call *call);
void ref_softmax_xent(const struct ref_call *call);
void ref_distill(const struct ref_call *call);
void ref_bce(const struct ref_call *call);
void ref_cosine_loss(const struct ref_call *call);
void ref_margin_loss(const struct ref_call *call);
void ref_rank(const struct ref_call *call);
void ref_mask_gate(const struct ref_call *call);
void ref_mask_gate_grad(const struct ref_call *call);
void ref_mask_sparsity(const struct ref_call *call);
void ref_sgd(const struct ref_call *call);
void ref_feed(const struct ref_call *call);
void ref_tally(const struct ref_call *call);

/* The operand at a position, NULL when it is absent. */
static inline const struct ref_tensor *ref_in(const struct ref_call *call, int position)
{
    if (position >= call->n_in || (!call->in[position].data && !call->in[position].ints))
        return NULL;
    return &call->in[position];
}

static inline const struct ref_tensor *ref_out(const struct ref_call *call, int position)
{
    if (position >= call->n_out || (!call->out[position].data && !call->out[position].ints))
        return NULL;
    return &call->out[position];
}

/* Its floats, NULL when it is absent. */
static inline const float *ref_in_data(const struct ref_call *call, int position)
{
    const struct ref_tensor *tensor = ref_in(call, position);
    return tensor ? tensor->data : NULL;
}

static inline float *ref_out_data(const struct ref_call *call, int position)
{
    const struct ref_tensor *tensor = ref_out(call, position);
    return tensor ? tensor->data : NULL;
}

/* Start of row n of a matrix. */
static inline float *ref_row(const struct ref_tensor *matrix, int64_t n)
{
    return matrix->data + n * matrix->pitch;
}

/* Start of channel c of sample n: h * w floats of an image, one of a matrix. */
static inline float *ref_plane(const struct ref_tensor *tensor, int64_t n, int64_t c)
{
    if (tensor->shape.rank == 2)
        return ref_row(tensor, n) + c;
    return tensor->data + (n * tensor->shape.dim[1] + c) * shape_spatial(tensor->shape);
}

/* Any tensor as rows of contiguous floats: those of a matrix, or all of it as one row. */
static inline int64_t ref_n_rows(const struct ref_tensor *tensor)
{
    return tensor->shape.rank == 2 ? tensor->shape.dim[0] : 1;
}

static inline int64_t ref_row_length(const struct ref_tensor *tensor)
{
    return tensor->shape.rank == 2 ? tensor->shape.dim[1] : shape_count(tensor->shape);
}

#endif

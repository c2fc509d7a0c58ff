#include "backend/cuda/cudnn_describe.h"

enum { ALIGNMENT = 16 };

cudnnBackendDescriptor_t dnn_add(struct dnn_builder *b, cudnnBackendDescriptorType_t type)
{
    cudnnBackendDescriptor_t d = NULL;
    if (b->status == CUDNN_STATUS_SUCCESS && b->parts->n == MAX_DESCRIPTORS)
        b->status = CUDNN_STATUS_INTERNAL_ERROR;
    if (b->status == CUDNN_STATUS_SUCCESS)
        b->status = b->libs->cudnnBackendCreateDescriptor(type, &d);
    if (b->status == CUDNN_STATUS_SUCCESS)
        b->parts->all[b->parts->n++] = d;
    return d;
}

void dnn_set(struct dnn_builder *b, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
             cudnnBackendAttributeType_t type, int64_t n, const void *value)
{
    if (b->status == CUDNN_STATUS_SUCCESS)
        b->status = b->libs->cudnnBackendSetAttribute(d, name, type, n, value);
}

void dnn_set_descriptor(struct dnn_builder *b, cudnnBackendDescriptor_t d,
                        cudnnBackendAttributeName_t name, cudnnBackendDescriptor_t value)
{
    dnn_set(b, d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

void dnn_finalize(struct dnn_builder *b, cudnnBackendDescriptor_t d)
{
    if (b->status == CUDNN_STATUS_SUCCESS)
        b->status = b->libs->cudnnBackendFinalize(d);
}

static cudnnDataType_t data_type(enum cuda_type type)
{
    return type == CUDA_BF16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
}

/* dim is [n, c, h, w], stored with the channels last. */
static cudnnBackendDescriptor_t tensor(struct dnn_builder *b, int64_t id, const int64_t dim[4],
                                       cudnnDataType_t type, bool is_virtual)
{
    const int64_t stride[4] = {dim[1] * dim[2] * dim[3], 1, dim[1] * dim[3], dim[1]};
    const int64_t alignment = ALIGNMENT;
    cudnnBackendDescriptor_t d = dnn_add(b, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    dnn_set(b, d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    dnn_set(b, d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dim);
    dnn_set(b, d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, stride);
    dnn_set(b, d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id);
    dnn_set(b, d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
    dnn_set(b, d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual);
    dnn_finalize(b, d);
    return d;
}

static cudnnBackendDescriptor_t convolution(struct dnn_builder *b,
                                            const struct cuda_conv_shape *shape)
{
    const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    const int64_t dimensions = 2;
    const int64_t pad[2] = {shape->pad, shape->pad};
    const int64_t stride[2] = {shape->stride, shape->stride};
    const int64_t dilation[2] = {1, 1};
    cudnnBackendDescriptor_t d = dnn_add(b, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    dnn_set(b, d, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute);
    dnn_set(b, d, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
    dnn_set(b, d, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &dimensions);
    dnn_set(b, d, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, pad);
    dnn_set(b, d, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, pad);
    dnn_set(b, d, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, stride);
    dnn_set(b, d, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, dilation);
    dnn_finalize(b, d);
    return d;
}

/* Attribute names of the three passes: convolution, image, weights, result, alpha, beta. */
static const struct pass_names {
    cudnnBackendDescriptorType_t operation;
    cudnnBackendAttributeName_t conv, image, weights, result, alpha, beta;
} PASSES[] = {
    [DNN_FORWARD] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
    [DNN_D_SRC] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
    [DNN_D_WEIGHTS] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
                       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA},
};

/* y = mode(x, more); `more` may be NULL. */
static cudnnBackendDescriptor_t pointwise(struct dnn_builder *b, cudnnPointwiseMode_t mode,
                                          cudnnBackendDescriptor_t x, cudnnBackendDescriptor_t more,
                                          cudnnBackendDescriptor_t y)
{
    const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    cudnnBackendDescriptor_t d = dnn_add(b, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    dnn_set(b, d, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    dnn_set(b, d, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &compute);
    dnn_finalize(b, d);
    cudnnBackendDescriptor_t op = dnn_add(b, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    dnn_set_descriptor(b, op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, d);
    dnn_set_descriptor(b, op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    if (more)
        dnn_set_descriptor(b, op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, more);
    dnn_set_descriptor(b, op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    dnn_finalize(b, op);
    return op;
}

enum { MAX_OPERATIONS = 3 };

/* What follows the convolution inside the same kernel, in f32; returns how many operations. Kernels with
 * a follower are compiled at run time, so asking for one that does nothing asks for such a kernel. */
struct follower {
    cudnnPointwiseMode_t mode;
    int64_t id; /* of the second operand; 0: has none */
    cudnnDataType_t type;
};

static int followers_of(const struct dnn_conv *conv, struct follower list[MAX_OPERATIONS])
{
    int n = 0;
    if (conv->residual)
        list[n++] =
            (struct follower){CUDNN_POINTWISE_ADD, ID_RESIDUAL, data_type(conv->shape.type)};
    if (conv->bias)
        list[n++] = (struct follower){CUDNN_POINTWISE_ADD, ID_BIAS, CUDNN_DATA_FLOAT};
    if (conv->relu)
        list[n++] = (struct follower){CUDNN_POINTWISE_RELU_FWD, 0, CUDNN_DATA_FLOAT};
    if (conv->compiled && n == 0)
        list[n++] = (struct follower){CUDNN_POINTWISE_IDENTITY, 0, CUDNN_DATA_FLOAT};
    return n;
}

/* The convolution and its followers; all but the last result stay inside the kernel. */
cudnnBackendDescriptor_t dnn_describe(struct dnn_builder *b, const struct dnn_conv *conv)
{
    const struct cuda_conv_shape *s = &conv->shape;
    const struct pass_names *names = &PASSES[conv->pass];
    const struct {
        cudnnBackendAttributeName_t name;
        int64_t id;
        int64_t dim[4];
        cudnnDataType_t type;
    } tensors[] = {
        [DNN_FORWARD] = {names->result,
                         ID_RESULT,
                         {s->n, s->k, s->out_h, s->out_w},
                         data_type(s->type)},
        [DNN_D_SRC] = {names->image, ID_IMAGE, {s->n, s->c, s->h, s->w}, data_type(s->type)},
        [DNN_D_WEIGHTS] = {names->weights,
                           ID_WEIGHTS,
                           {s->k, s->c, s->r, s->s},
                           data_type(conv->pass == DNN_D_WEIGHTS ? conv->d_weights_type : s->type)},
    };
    const int64_t *out_dim = tensors[conv->pass].dim; /* each pass writes the tensor of its name */
    const int64_t bias_dim[4] = {1, s->k, 1, 1};
    const float one = 1.0f;
    const float zero = 0.0f;
    struct follower followers[MAX_OPERATIONS];
    const int n_followers = followers_of(conv, followers);
    cudnnBackendDescriptor_t ops[MAX_OPERATIONS + 1];
    cudnnBackendDescriptor_t at = NULL; /* the latest result */

    ops[0] = dnn_add(b, names->operation);
    dnn_set_descriptor(b, ops[0], names->conv, convolution(b, s));
    for (int i = 0; i < 3; i++) {
        const bool is_virtual = i == (int)conv->pass && n_followers > 0;
        cudnnBackendDescriptor_t d =
            is_virtual ? tensor(b, ID_VIRTUAL, out_dim, CUDNN_DATA_FLOAT, true)
                       : tensor(b, tensors[i].id, tensors[i].dim, tensors[i].type, false);
        dnn_set_descriptor(b, ops[0], tensors[i].name, d);
        if (i == (int)conv->pass)
            at = d;
    }
    dnn_set(b, ops[0], names->alpha, CUDNN_TYPE_FLOAT, 1, &one);
    dnn_set(b, ops[0], names->beta, CUDNN_TYPE_FLOAT, 1, &zero);
    dnn_finalize(b, ops[0]);
    for (int i = 0; i < n_followers; i++) {
        const struct follower *f = &followers[i];
        cudnnBackendDescriptor_t more = NULL;
        if (f->id)
            more = tensor(b, f->id, f->id == ID_BIAS ? bias_dim : out_dim, f->type, false);
        cudnnBackendDescriptor_t next =
            i + 1 < n_followers
                ? tensor(b, ID_VIRTUAL + 1 + i, out_dim, CUDNN_DATA_FLOAT, true)
                : tensor(b, tensors[conv->pass].id, out_dim, tensors[conv->pass].type, false);
        ops[1 + i] = pointwise(b, f->mode, at, more, next);
        at = next;
    }
    cudnnBackendDescriptor_t g = dnn_add(b, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    dnn_set(b, g, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &b->handle);
    dnn_set(b, g, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1 + n_followers,
            ops);
    dnn_finalize(b, g);
    return g;
}

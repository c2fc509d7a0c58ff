/*
 * Builders of the forward ops: check shapes, name the result, append the node.
 */
#include "graph/graph.h"

#include <assert.h>
#include <math.h>
#include <stdarg.h>
#include <string.h>

static const float BATCHNORM_EPS = 1e-5f;
static const float BATCHNORM_MOMENTUM = 0.1f;
static const float L2NORM_EPS = 1e-12f;

static struct shape shape_of(const struct graph *g, int value)
{
    assert(value >= 0 && value < g->n_values);
    return g->values[value].shape;
}

static const char *name_of(const struct graph *g, int value)
{
    return g->values[value].name;
}

/* "conv2d of 'x' [..] with 'y' [..]: <what is wrong>" */
static enum der_status refuse(struct graph *g, enum op op, int a, int b, const char *why)
{
    char text_a[SHAPE_TEXT_MAX];
    char text_b[SHAPE_TEXT_MAX];
    if (b == NO_VALUE)
        return ctx_fail(g->ctx, DER_SHAPE, "%s of '%s' %s: %s", op_name(op), name_of(g, a),
                        shape_text(shape_of(g, a), text_a), why);
    return ctx_fail(g->ctx, DER_SHAPE, "%s of '%s' %s with '%s' %s: %s", op_name(op), name_of(g, a),
                    shape_text(shape_of(g, a), text_a), name_of(g, b),
                    shape_text(shape_of(g, b), text_b), why);
}

/* Labels and other integers are no operands of these ops. */
static enum der_status check_floats(struct graph *g, enum op op, const int *in, int n_in)
{
    for (int i = 0; i < n_in; i++)
        if (in[i] != NO_VALUE && g->values[in[i]].dtype != DTYPE_F32)
            return refuse(g, op, in[i], NO_VALUE, "floating-point numbers are wanted");
    return DER_OK;
}

/* A temporary named after the op and its first operand. */
static enum der_status add_temp(struct graph *g, enum op op, int like, enum dtype dtype,
                                struct shape shape, int *out)
{
    *out = NO_VALUE;
    char *name = arena_printf(&g->arena, "%s.%s", name_of(g, like), op_name(op));
    if (!name)
        return ctx_nomem(g->ctx);
    return graph_add_value(g, name, dtype, shape, VALUE_TEMP, out);
}

/* One-result ops. */
static enum der_status append(struct graph *g, enum op op, const int *in, int n_in,
                              struct shape shape, const union op_attr *attr, int *dst)
{
    TRY(check_floats(g, op, in, n_in));
    TRY(add_temp(g, op, in[0], DTYPE_F32, shape, dst));
    return graph_add_node(g, op, in, n_in, dst, 1, attr);
}

static bool is_vector(const struct graph *g, int value, int64_t length)
{
    return shape_equal(shape_of(g, value), shape_1d(length));
}

static int64_t window_count(int64_t size, int64_t kernel, int stride, int pad)
{
    return (size + 2 * pad - kernel) / stride + 1;
}

enum der_status graph_conv2d(struct graph *g, int src, int weights, int stride, int pad, int *dst)
{
    *dst = NO_VALUE;
    struct shape x = shape_of(g, src);
    struct shape w = shape_of(g, weights);
    if (x.rank != 4 || w.rank != 4 || x.dim[1] != w.dim[1])
        return refuse(g, OP_CONV2D, src, weights, "the channels do not fit");
    if (stride < 1 || pad < 0 || x.dim[2] + 2 * pad < w.dim[2] || x.dim[3] + 2 * pad < w.dim[3])
        return refuse(g, OP_CONV2D, src, weights, "the kernel does not fit into the image");
    union op_attr attr = {.conv = {.stride = stride, .pad = pad}};
    struct shape y = shape_4d(x.dim[0], w.dim[0], window_count(x.dim[2], w.dim[2], stride, pad),
                              window_count(x.dim[3], w.dim[3], stride, pad));
    return append(g, OP_CONV2D, (int[]){src, weights}, 2, y, &attr, dst);
}

enum der_status graph_batchnorm(struct graph *g, int src, const struct batchnorm_params *params,
                                bool training, int *dst)
{
    *dst = NO_VALUE;
    struct shape x = shape_of(g, src);
    if (x.rank != 4 && x.rank != 2)
        return refuse(g, OP_BATCHNORM, src, NO_VALUE, "an image or a matrix is wanted");
    const int vectors[] = {params->gamma, params->beta, params->running_mean, params->running_var};
    for (int i = 0; i < 4; i++)
        if (!is_vector(g, vectors[i], x.dim[1]))
            return refuse(g, OP_BATCHNORM, src, vectors[i], "one number per channel is wanted");
    if (training && x.dim[0] * shape_spatial(x) < 2)
        return refuse(g, OP_BATCHNORM, src, NO_VALUE,
                      "one value per channel has no variance to normalise with");
    union op_attr attr = {
        .norm = {.eps = BATCHNORM_EPS, .momentum = BATCHNORM_MOMENTUM, .training = training}};
    int in[BN_N_IN] = {src, vectors[0], vectors[1], vectors[2], vectors[3], NO_VALUE, NO_VALUE};
    int out[BN_N_OUT];
    TRY(check_floats(g, OP_BATCHNORM, in, BN_N_IN));
    TRY(add_temp(g, OP_BATCHNORM, src, DTYPE_F32, x, &out[BN_DST]));
    TRY(add_temp(g, OP_BATCHNORM, params->running_mean, DTYPE_F32, shape_1d(x.dim[1]),
                 &out[BN_MEAN]));
    TRY(add_temp(g, OP_BATCHNORM, params->running_var, DTYPE_F32, shape_1d(x.dim[1]),
                 &out[BN_INV_STD]));
    TRY(graph_add_node(g, OP_BATCHNORM, in, BN_N_IN, out, BN_N_OUT, &attr));
    *dst = out[BN_DST];
    return DER_OK;
}

enum der_status graph_relu(struct graph *g, int src, int *dst)
{
    return append(g, OP_RELU, &src, 1, shape_of(g, src), NULL, dst);
}

enum der_status graph_add(struct graph *g, int a, int b, int *dst)
{
    *dst = NO_VALUE;
    if (!shape_equal(shape_of(g, a), shape_of(g, b)))
        return refuse(g, OP_ADD, a, b, "the shapes differ");
    return append(g, OP_ADD, (int[]){a, b}, 2, shape_of(g, a), NULL, dst);
}

enum der_status graph_scale_channel(struct graph *g, int src, int m, int *dst)
{
    *dst = NO_VALUE;
    struct shape x = shape_of(g, src);
    if (x.rank < 2 || !is_vector(g, m, x.dim[1]))
        return refuse(g, OP_SCALE_CHANNEL, src, m, "one factor per channel is wanted");
    return append(g, OP_SCALE_CHANNEL, (int[]){src, m}, 2, x, NULL, dst);
}

enum der_status graph_scale(struct graph *g, int src, int factor, int *dst)
{
    *dst = NO_VALUE;
    if (!is_vector(g, factor, 1))
        return refuse(g, OP_SCALE, src, factor, "a single factor is wanted");
    return append(g, OP_SCALE, (int[]){src, factor}, 2, shape_of(g, src), NULL, dst);
}

enum der_status graph_maxpool(struct graph *g, int src, int kernel, int stride, int pad, int *dst)
{
    *dst = NO_VALUE;
    struct shape x = shape_of(g, src);
    if (x.rank != 4 || kernel < 1 || stride < 1 || pad < 0 || 2 * pad > kernel ||
        x.dim[2] + 2 * pad < kernel || x.dim[3] + 2 * pad < kernel)
        return refuse(g, OP_MAXPOOL, src, NO_VALUE, "the window does not fit into the image");
    union op_attr attr = {.pool = {.kernel = kernel, .stride = stride, .pad = pad}};
    struct shape y = shape_4d(x.dim[0], x.dim[1], window_count(x.dim[2], kernel, stride, pad),
                              window_count(x.dim[3], kernel, stride, pad));
    int out[2];
    TRY(check_floats(g, OP_MAXPOOL, &src, 1));
    TRY(add_temp(g, OP_MAXPOOL, src, DTYPE_F32, y, &out[0]));
    TRY(add_temp(g, OP_MAXPOOL, src, DTYPE_I32, y, &out[1]));
    TRY(graph_add_node(g, OP_MAXPOOL, &src, 1, out, 2, &attr));
    *dst = out[0];
    return DER_OK;
}

enum der_status graph_avgpool(struct graph *g, int src, int *dst)
{
    *dst = NO_VALUE;
    struct shape x = shape_of(g, src);
    if (x.rank != 4)
        return refuse(g, OP_AVGPOOL, src, NO_VALUE, "an image is wanted");
    return append(g, OP_AVGPOOL, &src, 1, shape_2d(x.dim[0], x.dim[1]), NULL, dst);
}

enum der_status graph_join(struct graph *g, int part, int matrix, int64_t col, int *dst)
{
    *dst = NO_VALUE;
    struct shape p = shape_of(g, part);
    struct shape m = shape_of(g, matrix);
    if (p.rank != 2 || m.rank != 2 || p.dim[0] != m.dim[0] || col < 0 || col + p.dim[1] > m.dim[1])
        return refuse(g, OP_JOIN, part, matrix, "the columns do not fit into the matrix");
    int producer = g->values[part].producer;
    if (g->values[part].kind != VALUE_TEMP || producer < 0 || g->nodes[producer].op != OP_AVGPOOL ||
        g->values[matrix].kind != VALUE_EXTERNAL || g->values[matrix].producer >= 0)
        return refuse(g, OP_JOIN, part, matrix,
                      "the part must be a fresh result of avgpool, the matrix an input");

    TRY(check_floats(g, OP_JOIN, &matrix, 1));
    TRY(add_temp(g, OP_JOIN, matrix, DTYPE_F32, m, dst));
    union op_attr attr = {.columns = {.first = col, .count = p.dim[1]}};
    TRY(graph_add_node(g, OP_JOIN, (int[]){part, matrix}, 2, dst, 1, &attr));
    struct value *part_value = &g->values[part];
    part_value->kind = VALUE_ALIAS;
    part_value->alias_of = matrix;
    part_value->alias_col = col;
    struct value *joined = &g->values[*dst];
    joined->kind = VALUE_ALIAS;
    joined->alias_of = matrix;
    joined->grad_first = col;
    joined->grad_count = p.dim[1];
    return DER_OK;
}

enum der_status graph_linear(struct graph *g, int src, int weights, int bias, int *dst)
{
    *dst = NO_VALUE;
    struct shape x = shape_of(g, src);
    struct shape w = shape_of(g, weights);
    if (x.rank != 2 || w.rank != 2 || x.dim[1] != w.dim[1])
        return refuse(g, OP_LINEAR, src, weights, "the number of features differs");
    if (bias != NO_VALUE && !is_vector(g, bias, w.dim[0]))
        return refuse(g, OP_LINEAR, weights, bias, "one bias per row of the weights is wanted");
    return append(g, OP_LINEAR, (int[]){src, weights, bias}, 3, shape_2d(x.dim[0], w.dim[0]), NULL,
                  dst);
}

enum der_status graph_l2norm(struct graph *g, int src, int *dst)
{
    *dst = NO_VALUE;
    struct shape x = shape_of(g, src);
    if (x.rank != 2)
        return refuse(g, OP_L2NORM, src, NO_VALUE, "a matrix is wanted");
    union op_attr attr = {.eps = L2NORM_EPS};
    int out[2];
    TRY(check_floats(g, OP_L2NORM, &src, 1));
    TRY(add_temp(g, OP_L2NORM, src, DTYPE_F32, x, &out[0]));
    TRY(add_temp(g, OP_L2NORM, src, DTYPE_F32, shape_1d(x.dim[0]), &out[1]));
    TRY(graph_add_node(g, OP_L2NORM, &src, 1, out, 2, &attr));
    *dst = out[0];
    return DER_OK;
}

enum der_status graph_mask_gate(struct graph *g, int s, const int *e, int n,
                                enum mask_gradient gradient, float s_max, int *m)
{
    if (!is_vector(g, s, 1))
        return refuse(g, OP_MASK_GATE, s, NO_VALUE, "s is a single number");
    int *in = arena_zalloc(&g->arena, (size_t)n + 1, sizeof *in);
    if (!in)
        return ctx_nomem(g->ctx);
    in[0] = s;
    for (int i = 0; i < n; i++) {
        if (shape_of(g, e[i]).rank != 1)
            return refuse(g, OP_MASK_GATE, e[i], NO_VALUE, "a vector is wanted");
        in[1 + i] = e[i];
        TRY(add_temp(g, OP_MASK_GATE, e[i], DTYPE_F32, shape_of(g, e[i]), &m[i]));
    }
    TRY(check_floats(g, OP_MASK_GATE, in, n + 1));
    union op_attr attr = {.mask = {.gradient = gradient, .s_max = s_max}};
    return graph_add_node(g, OP_MASK_GATE, in, n + 1, m, n, &attr);
}

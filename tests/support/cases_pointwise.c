/*
 * Cases of pointwise ops, pooling and the update.
 */
#include "support/cases.h"

#include "support/test_ctx.h"

#include <math.h>
#include <stdlib.h>

static const struct shape shapes[] = {
    {4, {1, 1, 1, 1}},  {4, {2, 3, 5, 7}}, {4, {5, 17, 2, 2}}, {4, {2, 33, 7, 7}},
    {4, {1, 16, 8, 8}}, {2, {5, 17}},      {2, {1, 64}},       {2, {3, 5}},
};
enum { N_SHAPES = sizeof shapes / sizeof shapes[0] };

static struct operand with_pitch(struct operand operand)
{
    return operand.shape.rank == 2 ? operand_with_gap(operand, 5) : operand;
}

static struct op_case pointwise(enum op op, struct shape shape)
{
    struct op_case c = {.op = op, .n_in = 1, .n_out = 1};
    for (int i = 0; i < 3; i++)
        c.in[i] = with_pitch(operand_normal(shape));
    c.out[0] = with_pitch(operand_result(shape));
    return c;
}

/* Both gradients, then either one alone. `factor` is the second operand of the forward op. */
static void emit_scaling_grad(struct op_case c, struct operand factor, struct case_sink *sink)
{
    const struct operand d_src = c.out[0];
    for (int asked = 1; asked < 4; asked++) {
        c.in[2] = factor;
        c.n_in = 3;
        c.out[0] = operand_if(asked & 1, d_src);
        c.out[1] = operand_if(asked & 2, operand_result(factor.shape));
        c.n_out = 2;
        case_emit(sink, c);
    }
}

void cases_pointwise(enum op op, struct case_sink *sink)
{
    for (int i = 0; i < N_SHAPES; i++) {
        const struct operand per_channel = operand_normal(shape_1d(shapes[i].dim[1]));
        struct op_case c = pointwise(op, shapes[i]);
        switch (op) {
        case OP_RELU_GRAD:
            c.n_in = 2;
            break;
        case OP_ADD:
            c.n_in = 1 + i % 3;
            break;
        case OP_SCALE_CHANNEL:
            c.n_in = 2;
            c.in[1] = per_channel;
            break;
        case OP_SCALE:
            c.n_in = 2;
            c.in[1] = operand_scalar(-0.75);
            break;
        case OP_SCALE_CHANNEL_GRAD:
            emit_scaling_grad(c, per_channel, sink);
            continue;
        case OP_SCALE_GRAD:
            emit_scaling_grad(c, operand_scalar(-0.75), sink);
            continue;
        default:
            break;
        }
        case_emit(sink, c);
    }
}

/* ---- pooling ------------------------------------------------------------------------------- */

struct pool_row {
    int64_t n, c, h, w;
    int kernel, stride, pad;
};
static const struct pool_row pool_rows[] = {
    {2, 3, 8, 8, 3, 2, 1},    {1, 17, 7, 5, 3, 2, 1}, {5, 33, 5, 5, 2, 2, 0},
    {2, 16, 14, 14, 3, 2, 1}, {1, 64, 2, 2, 3, 2, 1}, {2, 5, 7, 7, 3, 1, 1},
    {1, 1, 4, 4, 1, 1, 0},    {3, 8, 6, 6, 3, 3, 0},  {2, 1, 1, 1, 3, 2, 1},
};

/* A position inside each window: its first or its last, in turn. */
static int32_t *window_positions(const struct pool_row *row, struct shape y)
{
    int32_t *index = malloc((size_t)shape_count(y) * sizeof *index);
    assert_non_null(index);
    for (int64_t i = 0; i < shape_count(y); i++) {
        const int64_t top = i / y.dim[3] % y.dim[2] * row->stride - row->pad;
        const int64_t left = i % y.dim[3] * row->stride - row->pad;
        int64_t h = top > 0 ? top : 0;
        int64_t w = left > 0 ? left : 0;
        if (i % 2) {
            h = top + row->kernel < row->h ? top + row->kernel - 1 : row->h - 1;
            w = left + row->kernel < row->w ? left + row->kernel - 1 : row->w - 1;
        }
        index[i] = (int32_t)(h * row->w + w);
    }
    return index;
}

void cases_pool(enum op op, struct case_sink *sink)
{
    for (size_t i = 0; i < sizeof pool_rows / sizeof pool_rows[0]; i++) {
        const struct pool_row *row = &pool_rows[i];
        const struct shape x = shape_4d(row->n, row->c, row->h, row->w);
        const struct shape y =
            shape_4d(row->n, row->c, (row->h + 2 * row->pad - row->kernel) / row->stride + 1,
                     (row->w + 2 * row->pad - row->kernel) / row->stride + 1);
        const struct shape means = shape_2d(row->n, row->c);
        const int64_t gap = i % 2 ? 4 : 0;
        int32_t *index = window_positions(row, y);
        struct op_case c = {.op = op, .n_in = 1, .n_out = 1};
        if (op == OP_MAXPOOL || op == OP_MAXPOOL_GRAD)
            c.attr.pool = (struct pool_attr){row->kernel, row->stride, row->pad};
        switch (op) {
        case OP_MAXPOOL:
            c.in[0] = operand_normal(x);
            c.out[0] = operand_result(y);
            c.out[1] = operand_result_i32(y);
            c.n_out = 2;
            break;
        case OP_MAXPOOL_GRAD:
            c.in[0] = operand_normal(y);
            c.in[1] = (struct operand){.fill = FILL_GIVEN_I32, .shape = y, .given = index};
            c.n_in = 2;
            c.out[0] = operand_result(x);
            break;
        case OP_AVGPOOL:
            c.in[0] = operand_normal(x);
            c.out[0] = operand_with_gap(operand_result(means), gap);
            break;
        default:
            c.in[0] = operand_with_gap(operand_normal(means), gap);
            c.out[0] = operand_result(x);
            break;
        }
        case_emit(sink, c);
        free(index);
    }
}

/* ---- update -------------------------------------------------------------------------------- */

static const struct sgd_attr updates[] = {
    {.momentum = 0.9F, .decay = 5e-4F, .gain = 1.0F, .low = -INFINITY, .high = INFINITY},
    {.momentum = 0.0F, .decay = 0.0F, .gain = 1.0F, .low = -INFINITY, .high = INFINITY},
    {.momentum = 0.9F, .decay = 0.0F, .gain = 10.0F, .low = -0.5F, .high = 0.75F},
};

void cases_sgd(enum op op, struct case_sink *sink)
{
    static const struct shape params[] = {{4, {5, 3, 3, 3}}, {1, {17}}, {2, {7, 33}}};
    for (size_t i = 0; i < sizeof updates / sizeof updates[0]; i++)
        for (int n = 1; n <= 3; n++) {
            struct op_case c = {.op = op, .n_in = 1 + 3 * n, .n_out = 0};
            c.attr.sgd = updates[i];
            c.in[0] = operand_scalar(0.1);
            for (int k = 0; k < 3 * n; k++)
                c.in[1 + k] = operand_normal(params[k / 3]);
            case_emit(sink, c);
        }
}

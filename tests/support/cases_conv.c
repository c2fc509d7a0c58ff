/*
 * Cases of the convolution and what is folded into it.
 */
#include "support/cases.h"

struct conv_row {
    int64_t n, c, h, w, k;
    int kernel, stride, pad;
};

/* Stems, bodies, projections and oddities of the residual networks, small. */
static const struct conv_row conv_rows[] = {
    {1, 1, 1, 1, 1, 1, 1, 0},     {1, 1, 5, 5, 1, 3, 1, 1},    {2, 3, 8, 8, 16, 3, 1, 1},
    {1, 3, 7, 5, 17, 3, 1, 1},    {5, 3, 5, 7, 5, 3, 2, 1},    {2, 5, 7, 7, 3, 3, 1, 0},
    {1, 16, 8, 8, 16, 3, 1, 1},   {2, 16, 8, 8, 32, 3, 2, 1},  {2, 17, 7, 7, 33, 3, 1, 1},
    {1, 33, 5, 5, 17, 3, 2, 1},   {5, 33, 2, 2, 5, 3, 1, 1},   {2, 64, 4, 4, 64, 3, 1, 1},
    {1, 64, 2, 2, 64, 3, 2, 1},   {2, 48, 1, 1, 16, 3, 1, 1},  {1, 8, 14, 14, 8, 3, 1, 1},
    {2, 12, 14, 13, 20, 3, 2, 1}, {3, 32, 8, 8, 32, 3, 1, 1},  {2, 5, 1, 7, 3, 3, 1, 1},
    {2, 16, 8, 8, 32, 1, 2, 0},   {5, 17, 7, 7, 33, 1, 2, 0},  {1, 3, 5, 5, 64, 1, 1, 0},
    {2, 64, 5, 5, 5, 1, 1, 0},    {1, 33, 2, 2, 17, 1, 2, 0},  {2, 1, 2, 1, 3, 1, 1, 0},
    {2, 3, 14, 14, 16, 7, 2, 3},  {1, 3, 15, 13, 5, 7, 2, 3},  {5, 1, 8, 8, 17, 7, 1, 3},
    {1, 4, 7, 7, 6, 7, 1, 0},     {1, 2, 2, 2, 3, 7, 2, 3},    {2, 6, 9, 70, 4, 3, 1, 1},
    {2, 20, 6, 6, 24, 3, 1, 1},   {4, 128, 4, 4, 33, 3, 1, 1},
};

static void emit_affine(const struct conv_row *row, struct shape x, struct shape w, struct shape y,
                        struct case_sink *sink)
{
    for (int option = 0; option < 4; option++) {
        const struct shape vector = shape_1d(row->k);
        struct op_case c = {
            .op = OP_CONV2D_AFFINE,
            .n_in = AFFINE_N_IN,
            .out = {operand_result(y)},
            .n_out = 1,
        };
        c.attr.conv = (struct conv_attr){
            .stride = row->stride, .pad = row->pad, .eps = 1e-5F, .relu = option & 1};
        c.in[AFFINE_SRC] = operand_normal(x);
        c.in[AFFINE_WEIGHTS] = operand_normal(w);
        c.in[AFFINE_GAMMA] = operand_uniform(vector, -1.5, 1.5);
        c.in[AFFINE_BETA] = operand_normal(vector);
        c.in[AFFINE_MEAN] = operand_normal(vector);
        c.in[AFFINE_VAR] = operand_uniform(vector, 0.5, 2.0);
        c.in[AFFINE_RESIDUAL] = operand_if(option & 2, operand_normal(y));
        case_emit(sink, c);
    }
}

void cases_conv(enum op op, struct case_sink *sink)
{
    for (size_t i = 0; i < sizeof conv_rows / sizeof conv_rows[0]; i++) {
        const struct conv_row *row = &conv_rows[i];
        const int64_t out_h = (row->h + 2 * row->pad - row->kernel) / row->stride + 1;
        const int64_t out_w = (row->w + 2 * row->pad - row->kernel) / row->stride + 1;
        const struct shape x = shape_4d(row->n, row->c, row->h, row->w);
        const struct shape w = shape_4d(row->k, row->c, row->kernel, row->kernel);
        const struct shape y = shape_4d(row->n, row->k, out_h, out_w);
        struct op_case c = {.op = op, .n_in = 2, .n_out = 1};
        c.attr.conv = (struct conv_attr){.stride = row->stride, .pad = row->pad};
        switch (op) {
        case OP_CONV2D:
            c.in[CONV_SRC] = operand_normal(x);
            c.in[CONV_WEIGHTS] = operand_normal(w);
            c.out[0] = operand_result(y);
            break;
        case OP_CONV2D_D_SRC:
            c.in[CONV_D_SRC_D_DST] = operand_normal(y);
            c.in[CONV_D_SRC_WEIGHTS] = operand_normal(w);
            c.out[0] = operand_result(x);
            break;
        case OP_CONV2D_D_WEIGHTS:
            c.in[CONV_D_WEIGHTS_SRC] = operand_normal(x);
            c.in[CONV_D_WEIGHTS_D_DST] = operand_normal(y);
            c.out[0] = operand_result(w);
            break;
        default:
            emit_affine(row, x, w, y, sink);
            continue;
        }
        case_emit(sink, c);
    }
}

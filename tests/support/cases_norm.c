/*
 * Cases of batch normalisation: every combination of what may be fused into it.
 */
#include "support/cases.h"

static const struct shape norm_shapes[] = {
    {4, {2, 5, 3, 3}},  {4, {1, 17, 4, 5}}, {4, {5, 33, 1, 1}}, {4, {2, 64, 7, 7}},
    {4, {3, 16, 2, 5}}, {4, {2, 1, 8, 8}},  {2, {5, 17}},       {2, {2, 33}},
};
enum { N_NORM_SHAPES = sizeof norm_shapes / sizeof norm_shapes[0] };

static bool is_matrix(struct shape shape)
{
    return shape.rank == 2;
}

/* Matrices come with a pitch. */
static struct operand with_pitch(struct operand operand)
{
    return is_matrix(operand.shape) ? operand_with_gap(operand, 3) : operand;
}

void cases_batchnorm(enum op op, struct case_sink *sink)
{
    for (int i = 0; i < N_NORM_SHAPES; i++)
        for (unsigned option = 0; option < 16; option++) {
            const struct shape shape = norm_shapes[i];
            const struct shape vector = shape_1d(shape.dim[1]);
            struct op_case c = {.op = op, .n_in = BN_N_IN, .n_out = BN_N_OUT};
            c.attr.norm = (struct norm_attr){
                .eps = 1e-5F, .momentum = 0.1F, .training = option & 1, .relu = option & 2};
            c.in[BN_SRC] = with_pitch(operand_normal(shape));
            c.in[BN_GAMMA] = operand_uniform(vector, -1.5, 1.5);
            c.in[BN_BETA] = operand_normal(vector);
            c.in[BN_RUNNING_MEAN] = operand_normal(vector);
            c.in[BN_RUNNING_VAR] = operand_uniform(vector, 0.5, 2.0);
            c.in[BN_MASK] = operand_if(option & 4, operand_uniform(vector, 0.0, 1.0));
            c.in[BN_RESIDUAL] = operand_if(option & 8, with_pitch(operand_normal(shape)));
            c.out[BN_DST] = with_pitch(operand_result(shape));
            c.out[BN_MEAN] = operand_result(vector);
            c.out[BN_INV_STD] = operand_result(vector);
            case_emit(sink, c);
        }
}

/* Outputs that are asked for, as bits by position. */
enum {
    ASK_D_SRC = 1 << BNG_D_SRC,
    ASK_PARAMS = 1 << BNG_D_GAMMA | 1 << BNG_D_BETA,
    ASK_D_MASK = 1 << BNG_D_MASK,
    ASK_D_RESIDUAL = 1 << BNG_D_RESIDUAL,
};
static const unsigned asked_outputs[] = {
    ASK_D_SRC | ASK_PARAMS | ASK_D_MASK | ASK_D_RESIDUAL,
    ASK_D_SRC | ASK_PARAMS,
    ASK_D_SRC,
    ASK_PARAMS | ASK_D_RESIDUAL,
    ASK_D_MASK,
    1 << BNG_D_BETA,
};
enum { N_ASKED = sizeof asked_outputs / sizeof asked_outputs[0] };

static void emit_batchnorm_grad(struct shape shape, unsigned option, unsigned asked,
                                struct case_sink *sink)
{
    const struct shape vector = shape_1d(shape.dim[1]);
    const bool relu = option & 2;
    const bool masked = option & 4;
    struct op_case c = {.op = OP_BATCHNORM_GRAD, .n_in = BNG_N_IN, .n_out = BNG_N_OUT};
    c.attr.norm =
        (struct norm_attr){.eps = 1e-5F, .momentum = 0.1F, .training = option & 1, .relu = relu};
    c.in[BNG_D_DST] = with_pitch(operand_normal(shape));
    c.in[BNG_D_DST2] = operand_if(option & 8, with_pitch(operand_normal(shape)));
    c.in[BNG_SRC] = with_pitch(operand_normal(shape));
    c.in[BNG_DST] = operand_if(relu, with_pitch(operand_normal(shape)));
    c.in[BNG_GAMMA] = operand_uniform(vector, -1.5, 1.5);
    c.in[BNG_BETA] = operand_normal(vector);
    c.in[BNG_MEAN] = operand_normal(vector);
    c.in[BNG_INV_STD] = operand_uniform(vector, 0.5, 2.0);
    c.in[BNG_MASK] = operand_if(masked, operand_uniform(vector, 0.0, 1.0));
    c.out[BNG_D_SRC] = operand_if(asked & ASK_D_SRC, with_pitch(operand_result(shape)));
    c.out[BNG_D_GAMMA] = operand_if(asked & 1 << BNG_D_GAMMA, operand_result(vector));
    c.out[BNG_D_BETA] = operand_if(asked & 1 << BNG_D_BETA, operand_result(vector));
    c.out[BNG_D_MASK] = operand_if(masked && asked & ASK_D_MASK, operand_result(vector));
    c.out[BNG_D_RESIDUAL] = operand_if(asked & ASK_D_RESIDUAL, with_pitch(operand_result(shape)));
    case_emit(sink, c);
}

void cases_batchnorm_grad(enum op op, struct case_sink *sink)
{
    (void)op;
    for (int i = 0; i < N_NORM_SHAPES; i++)
        for (unsigned option = 0; option < 16; option++)
            for (int ask = 0; ask < N_ASKED; ask++) {
                const bool masked = option & 4;
                if (asked_outputs[ask] == ASK_D_MASK && !masked)
                    continue; /* it would ask for nothing */
                emit_batchnorm_grad(norm_shapes[i], option, asked_outputs[ask], sink);
            }
}

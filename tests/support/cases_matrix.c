/*
 * Cases of linear layers, losses and masks.
 */
#include "support/cases.h"

#include <math.h>

/* ---- linear layers ------------------------------------------------------------------------- */

struct linear_row {
    int64_t n, d, k;
    int64_t first, count; /* columns of d_src */
    int64_t gap;
};
static const struct linear_row linear_rows[] = {
    {1, 1, 1, 0, 1, 0},     {2, 5, 3, 0, 5, 0},    {5, 17, 10, 4, 13, 0},  {5, 33, 16, 0, 33, 7},
    {2, 64, 33, 16, 16, 5}, {1, 64, 10, 63, 1, 0}, {17, 48, 5, 32, 16, 1}, {3, 128, 20, 64, 64, 64},
};

void cases_linear(enum op op, struct case_sink *sink)
{
    for (size_t i = 0; i < sizeof linear_rows / sizeof linear_rows[0]; i++) {
        const struct linear_row *row = &linear_rows[i];
        const struct shape w = shape_2d(row->k, row->d);
        const struct operand src =
            operand_with_gap(operand_normal(shape_2d(row->n, row->d)), row->gap);
        const struct operand d_dst =
            operand_with_gap(operand_normal(shape_2d(row->n, row->k)), row->gap);
        for (int option = 1; option < 4; option++) {
            struct op_case c = {.op = op, .n_in = 2, .n_out = 1};
            if (op == OP_LINEAR) {
                c.in[0] = src;
                c.in[1] = operand_with_gap(operand_normal(w), option & 2 ? row->gap : 0);
                c.in[2] = operand_if(option & 1, operand_normal(shape_1d(row->k)));
                c.n_in = 3;
                c.out[0] = operand_with_gap(operand_result(shape_2d(row->n, row->k)), row->gap);
            } else if (op == OP_LINEAR_D_SRC) {
                c.attr.columns = (struct column_attr){row->first, row->count};
                c.in[0] = d_dst;
                c.in[1] = operand_with_gap(operand_normal(w), option & 2 ? row->gap : 0);
                c.out[0] = operand_with_gap(operand_result(shape_2d(row->n, row->count)),
                                            option & 1 ? row->gap : 0);
            } else {
                c.in[0] = src;
                c.in[1] = d_dst;
                c.out[0] = operand_if(option & 1, operand_result(w));
                c.out[1] = operand_if(option & 2, operand_result(shape_1d(row->k)));
                c.n_out = 2;
            }
            case_emit(sink, c);
        }
    }
}

void cases_l2norm(enum op op, struct case_sink *sink)
{
    static const struct shape shapes[] = {{2, {1, 1}}, {2, {5, 17}}, {2, {2, 64}}, {2, {3, 5}}};
    /* With the second eps some rows are shorter than it, with the third all are. */
    static const float eps[] = {1e-12F, 4.0F, 100.0F};
    for (int i = 0; i < 12; i++) {
        const struct shape shape = shapes[i % 4];
        struct op_case c = {.op = op, .attr.eps = eps[i / 4], .n_out = 1};
        const struct operand matrix = operand_with_gap(operand_normal(shape), i % 2 ? 3 : 0);
        c.in[0] = matrix;
        c.n_in = 1;
        c.out[0] = operand_with_gap(operand_result(shape), i % 2 ? 3 : 0);
        if (op == OP_L2NORM) {
            c.out[1] = operand_result(shape_1d(shape.dim[0]));
            c.n_out = 2;
        } else {
            c.in[1] = matrix;
            /* The op writes 1 / |src|, which never exceeds 1 / eps. */
            c.in[2] = i / 4 == 2 ? operand_uniform(shape_1d(shape.dim[0]), 0.01, 0.01)
                                 : operand_uniform(shape_1d(shape.dim[0]), 0.1, 0.24);
            c.n_in = 3;
        }
        case_emit(sink, c);
    }
}

/* ---- losses -------------------------------------------------------------------------------- */

/* Sizes, and every option that some loss reads. Labels are drawn from [label_low, label_high). */
struct loss_row {
    int64_t n, c;
    int64_t label_low, label_high;
    struct loss_attr attr;
    int64_t gap;
    bool value_only;
};

static const struct loss_row xent_rows[] = {
    {1, 1, 0, 1, {.count = 1, .temperature = 1.0F}, 0, false},
    {5, 10, 0, 10, {.count = 10, .temperature = 1.0F}, 0, false},
    {5, 17, 0, 17, {.count = 17, .temperature = 5.0F}, 3, false},
    {17, 33, 0, 33, {.first = 10, .count = 20, .label_shift = 10, .temperature = 2.0F}, 0, false},
    {8,
     6,
     0,
     20,
     {.count = 6, .label_shift = 14, .clamp_low = true, .temperature = 1.0F},
     2,
     false},
    {8, 6, 0, 20, {.count = 6, .label_shift = 14, .temperature = 1.0F}, 0, false},
    {3, 5, 0, 5, {.count = 5, .label_shift = 50, .temperature = 1.0F}, 0, false}, /* no row */
    {4, 7, -3, 12, {.first = 2, .count = 4, .temperature = 0.5F}, 1, true},
};
static const struct loss_row bce_rows[] = {
    {1, 1, 0, 1, {.n_old = 0}, 0, false},    {5, 10, 0, 10, {.n_old = 0}, 0, false},
    {5, 17, 0, 17, {.n_old = 10}, 3, false}, {7, 33, 0, 33, {.n_old = 33}, 0, false},
    {2, 6, 0, 6, {.n_old = 2}, 2, true},
};
static const struct loss_row margin_rows[] = {
    {5, 10, 0, 10, {.n_old = 5, .top_k = 2, .margin = 0.5F}, 0, false},
    {17, 33, 0, 20, {.n_old = 20, .top_k = 1, .margin = 0.5F}, 3, false},
    {4, 6, 0, 3, {.n_old = 3, .top_k = 3, .margin = 2.0F}, 0, false},
    {3, 8, 4, 8, {.n_old = 4, .top_k = 2, .margin = 0.5F}, 0, false}, /* no old row */
    {6, 9, 0, 9, {.n_old = 6, .top_k = 2, .margin = 1.0F}, 1, true},
};
static const struct loss_row rank_rows[] = {
    {1, 1, 0, 1, {.count = 1}, 0, false},
    {5, 10, 0, 10, {.count = 10}, 0, false},
    {17, 33, 0, 33, {.count = 33}, 5, false},
    {9, 20, 5, 15, {.first = 5, .count = 10}, 0, false},
    {9, 20, 0, 20, {.first = 5, .count = 10}, 1, false},
};

static void emit_logits_loss(enum op op, const struct loss_row *row, struct case_sink *sink)
{
    const struct shape logits = shape_2d(row->n, row->c);
    struct op_case c = {.op = op, .attr.loss = row->attr, .n_in = 3, .n_out = 2};
    c.in[LOSS_LOGITS] = operand_with_gap(operand_normal(logits), row->gap);
    c.in[LOSS_LABELS] = operand_labels(row->n, row->label_low, row->label_high);
    c.in[LOSS_WEIGHT] = operand_scalar(0.7);
    c.out[LOSS_VALUE] = operand_result(shape_1d(1));
    c.out[LOSS_D_LOGITS] =
        operand_if(!row->value_only, operand_with_gap(operand_result(logits), row->gap));
    if (op == OP_BCE) {
        c.n_in = 4;
        c.in[BCE_TEACHER] =
            operand_if(row->attr.n_old > 0, operand_with_gap(operand_normal(logits), row->gap));
        c.in[BCE_WEIGHT] = operand_scalar(0.7);
    }
    if (op == OP_RANK) {
        c.n_in = 2;
        c.n_out = 1;
        c.out[0] = operand_result_i32(shape_1d(row->n));
    }
    case_emit(sink, c);
}

/* Logits drawn from -1, 0, 1 (ties), with a NaN at the label of the first row and one elsewhere in
 * the second. */
static void emit_rank_with_ties(struct case_sink *sink)
{
    static const float logits[4][5] = {
        {1.0F, NAN, 0.0F, -1.0F, 0.0F},
        {NAN, 1.0F, 1.0F, 0.0F, 1.0F},
        {0.0F, 0.0F, 0.0F, 0.0F, 0.0F},
        {-1.0F, 1.0F, 0.0F, 1.0F, 0.0F},
    };
    static const int32_t labels[4] = {1, 2, 3, 4};
    struct op_case c = {.op = OP_RANK, .attr.loss.count = 5, .n_in = 2, .n_out = 1};
    c.in[LOSS_LOGITS] =
        (struct operand){.fill = FILL_GIVEN, .shape = shape_2d(4, 5), .given = logits};
    c.in[LOSS_LABELS] =
        (struct operand){.fill = FILL_GIVEN_I32, .shape = shape_1d(4), .given = labels};
    c.out[0] = operand_result_i32(shape_1d(4));
    case_emit(sink, c);
}

void cases_logits_loss(enum op op, struct case_sink *sink)
{
    static const struct {
        enum op op;
        const struct loss_row *rows;
        size_t n;
    } tables[] = {
        {OP_SOFTMAX_XENT, xent_rows, sizeof xent_rows / sizeof xent_rows[0]},
        {OP_BCE, bce_rows, sizeof bce_rows / sizeof bce_rows[0]},
        {OP_MARGIN_LOSS, margin_rows, sizeof margin_rows / sizeof margin_rows[0]},
        {OP_RANK, rank_rows, sizeof rank_rows / sizeof rank_rows[0]},
    };
    for (size_t t = 0; t < sizeof tables / sizeof tables[0]; t++)
        for (size_t i = 0; tables[t].op == op && i < tables[t].n; i++)
            emit_logits_loss(op, &tables[t].rows[i], sink);
    if (op == OP_RANK)
        emit_rank_with_ties(sink);
}

struct pair_row {
    int64_t n, c, teacher_c;
    struct loss_attr attr;
    int64_t gap;
};
static const struct pair_row distill_rows[] = {
    {1, 1, 1, {.count = 1, .temperature = 1.0F}, 0},
    {5, 10, 10, {.count = 10, .temperature = 2.0F}, 0},
    {5, 17, 10, {.count = 10, .temperature = 2.0F}, 3},
    {7, 33, 20, {.first = 12, .count = 16, .teacher_first = 4, .temperature = 1.0F}, 1},
    {2, 40, 40, {.first = 20, .count = 20, .teacher_first = 20, .temperature = 4.0F}, 0},
};
static const struct pair_row cosine_rows[] = {
    {1, 1, 1, {0}, 0},
    {5, 17, 17, {0}, 3},
    {2, 64, 64, {0}, 0},
    {9, 33, 33, {0}, 1},
};

static void emit_pair_loss(enum op op, const struct pair_row *row, bool value_only,
                           struct case_sink *sink)
{
    const struct shape logits = shape_2d(row->n, row->c);
    struct op_case c = {.op = op, .attr.loss = row->attr, .n_in = 3, .n_out = 2};
    c.in[PAIR_LOSS_LOGITS] = operand_with_gap(operand_normal(logits), row->gap);
    c.in[PAIR_LOSS_TEACHER] =
        operand_with_gap(operand_normal(shape_2d(row->n, row->teacher_c)), row->gap);
    c.in[PAIR_LOSS_WEIGHT] = operand_scalar(1.3);
    c.out[LOSS_VALUE] = operand_result(shape_1d(1));
    c.out[LOSS_D_LOGITS] =
        operand_if(!value_only, operand_with_gap(operand_result(logits), row->gap));
    /* One column: a and b are parallel, and what is left of the gradient is rounding alone. */
    if (op == OP_COSINE_LOSS && row->c == 1)
        c.out[LOSS_D_LOGITS] = operand_absent();
    case_emit(sink, c);
}

void cases_pair_loss(enum op op, struct case_sink *sink)
{
    const struct pair_row *rows = op == OP_DISTILL ? distill_rows : cosine_rows;
    const size_t n = op == OP_DISTILL ? sizeof distill_rows / sizeof distill_rows[0]
                                      : sizeof cosine_rows / sizeof cosine_rows[0];
    for (size_t i = 0; i < n; i++)
        for (int value_only = 0; value_only < 2; value_only++)
            emit_pair_loss(op, &rows[i], value_only, sink);
}

/* ---- masks --------------------------------------------------------------------------------- */

static const int64_t mask_sizes[] = {5, 16, 33};
enum { N_MASKS = sizeof mask_sizes / sizeof mask_sizes[0] };

static const struct sparsity_layer sparsity_layers[] = {
    {.in_mask = -1, .out_mask = 0, .kernel_area = 9, .in_channels = 3},
    {.in_mask = 0, .out_mask = 1, .kernel_area = 9},
    {.in_mask = 1, .out_mask = 1, .kernel_area = 9},
    {.in_mask = 1, .out_mask = 2, .kernel_area = 9},
    {.in_mask = 0, .out_mask = 2, .kernel_area = 1},
};

/* Of what is drawn from U(0, 1): the first mask must not shrink, of the others about half may close. */
static const int sparsity_least[N_MASKS] = {5, 0, 2};

static void emit_sparsity(struct case_sink *sink)
{
    for (int asked = 0; asked < 4;
         asked++) { /* all d_m, one, none; all but of those that are held */
        struct op_case c = {.op = OP_MASK_SPARSITY, .n_in = 1 + N_MASKS, .n_out = 1 + N_MASKS};
        c.attr.sparsity = (struct sparsity_attr){
            .layers = sparsity_layers,
            .n_layers = sizeof sparsity_layers / sizeof sparsity_layers[0],
            .total = 9.0 * (3 * 5 + 5 * 16 + 16 * 16 + 16 * 33) + 5 * 33,
            .least = asked == 3 ? sparsity_least : NULL,
        };
        c.in[0] = operand_scalar(0.75);
        c.out[0] = operand_result(shape_1d(1));
        for (int i = 0; i < N_MASKS; i++) {
            c.in[1 + i] = operand_uniform(shape_1d(mask_sizes[i]), 0.0, 1.0);
            c.out[1 + i] = operand_if(asked % 3 == 0 || (asked == 1 && i == 1),
                                      operand_result(shape_1d(mask_sizes[i])));
        }
        case_emit(sink, c);
    }
}

void cases_mask(enum op op, struct case_sink *sink)
{
    static const double sharpness[] = {0.0025, 1.0, 7.5, 400.0, INFINITY};
    if (op == OP_MASK_SPARSITY) {
        emit_sparsity(sink);
        return;
    }
    for (int i = 0; i < 10; i++) {
        const bool is_grad = op == OP_MASK_GATE_GRAD;
        struct op_case c = {
            .op = op, .n_out = N_MASKS, .n_in = is_grad ? 1 + 2 * N_MASKS : 1 + N_MASKS};
        c.attr.mask = (struct mask_attr){
            .gradient = i < 5 ? MASK_GRADIENT_EXACT : MASK_GRADIENT_HAT, .s_max = 400.0F};
        c.in[0] = operand_scalar(sharpness[i % 5]);
        for (int k = 0; k < N_MASKS; k++) {
            const struct shape shape = shape_1d(mask_sizes[k]);
            /* The last mask has no e > 0, so that its largest must stay. */
            c.in[1 + k] =
                k == 2 ? operand_uniform(shape, -6.0, -0.1) : operand_uniform(shape, -6.0, 6.0);
            c.in[1 + N_MASKS + k] = operand_normal(shape);
            c.out[k] = operand_result(shape);
        }
        case_emit(sink, c);
    }
}

/*
 * Gradient ops against central differences of their forward ops, on the reference back end.
 *
 * L(x) = <r, forward(x)> for a random r, the dot product taken in double; the gradient op, run with
 * d_dst = r, must give dL/dx. Differences are taken with two steps and extrapolated.
 *
 * Tolerance: results are floats, so L carries noise of about 1e-7 |L|, which a step of 1/32 turns
 * into 1e-5; the extrapolated difference is off by h^4, about 1e-5 too. 2e-3 of the gradient's
 * size leaves room for sums, and a wrong sign or factor is off by far more. Ops with kinks (ReLU,
 * maximum, margin) are compared within what a kink too small to be noticed may add.
 */
#include "support/opcase.h"
#include "support/test_ctx.h"

#include "core/rng.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double STEP = 1.0 / 16.0;
static const double STEP_WITH_KINKS = 1.0 / 64.0; /* shorter: meets fewer of them */
static const double TOLERANCE = 2e-3;
static const double KINK = 2e-2; /* what a kink near the point may change without being noticed */

enum { MAX_SAMPLES = 200, TEST_SEED = 5 };

/* Where an operand of the gradient op comes from. */
enum source_kind { SOURCE_NONE, SOURCE_R, SOURCE_IN, SOURCE_OUT };
struct source {
    enum source_kind kind;
    int index; /* among the forward op's inputs or outputs */
};

#define FROM_R                                                                                     \
    {                                                                                              \
        SOURCE_R, 0                                                                                \
    }
#define FROM_IN(i)                                                                                 \
    {                                                                                              \
        SOURCE_IN, (i)                                                                             \
    }
#define FROM_OUT(i)                                                                                \
    {                                                                                              \
        SOURCE_OUT, (i)                                                                            \
    }

enum { NOWHERE = 0 }; /* outputs that are no gradient; see `towards` */

struct grad_check {
    struct op_case forward; /* output 0 is differentiated */
    enum op grad_op;
    union op_attr grad_attr;
    struct source sources[OPCASE_MAX_OPERANDS]; /* per input of the gradient op */
    int n_sources;
    int towards[OPCASE_MAX_OPERANDS]; /* per output: 1 + the forward input it is the gradient of */
    int n_towards;
    double r_scale; /* L = r_scale <r, dst>; 0 means 1 */
    double weight;  /* losses: r is this number */
    bool is_smooth; /* no kinks: no point is left out */
};

struct fixture {
    struct der_ctx *ctx;
    struct backend *ref;
};

static int set_up(void **state)
{
    struct fixture *f = malloc(sizeof *f);
    assert_non_null(f);
    f->ctx = test_ctx_new(1);
    assert_ok(f->ctx, backend_open(f->ctx, "ref", NULL, &f->ref));
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    backend_close(f->ref);
    test_ctx_free(f->ctx);
    free(f);
    return 0;
}

/* ---- the check ----------------------------------------------------------------------------- */

/* A forward op whose inputs are moved about. */
struct probe {
    const struct grad_check *check;
    struct op_runner runner;
    struct op_data data;
    float *r; /* [count of output 0] */
    int n_sampled, n_skipped;
};

static double probe_loss(struct probe *p)
{
    op_runner_run(&p->runner, &p->data);
    const float *dst = p->data.out[0];
    double sum = 0.0;
    for (int64_t i = 0; i < shape_count(p->check->forward.out[0].shape); i++)
        sum += (double)p->r[i] * (double)dst[i];
    return sum * (p->check->r_scale > 0.0 ? p->check->r_scale : 1.0);
}

/* What two steps of +-h say about L at x. */
struct difference {
    double slope; /* (L(x + h) - L(x - h)) / 2h */
    double
        bend; /* (L(x + h) + L(x - h) - 2 L(x)) / h: h L'' where L is smooth, a constant at a kink */
};

static struct difference difference(struct probe *p, float *x, double h)
{
    const float middle = *x;
    const float above = (float)((double)middle + h);
    const float below = (float)((double)middle - h);
    const double loss = probe_loss(p);
    *x = above;
    const double loss_above = probe_loss(p);
    *x = below;
    const double loss_below = probe_loss(p);
    *x = middle;
    return (struct difference){
        .slope = (loss_above - loss_below) / ((double)above - (double)below),
        .bend = (loss_above + loss_below - 2.0 * loss) / h,
    };
}

static double root_mean_square(const float *x, int64_t n)
{
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)x[i] * (double)x[i];
    return sqrt(sum / (double)n);
}

/* Compares the gradient towards forward input `input`. */
static void check_input(struct probe *p, int input, const float *gradient)
{
    const struct operand *operand = &p->check->forward.in[input];
    const int64_t n = shape_count(operand->shape);
    const int64_t stride = n > MAX_SAMPLES ? n / MAX_SAMPLES + 1 : 1;
    const double typical = root_mean_square(gradient, n) + 1e-6;
    const double step = p->check->is_smooth ? STEP : STEP_WITH_KINKS;
    for (int64_t i = 0; i < n; i += stride, p->n_sampled++) {
        float *x = (float *)p->data.in[input] + i;
        const struct difference coarse = difference(p, x, step);
        const struct difference fine = difference(p, x, step / 2);
        const double actual = (double)gradient[i];
        const double scale = typical + fabs(fine.slope);
        if (!p->check->is_smooth && (fabs(coarse.slope - fine.slope) > KINK * scale ||
                                     fabs(coarse.bend - 2.0 * fine.bend) > KINK * scale)) {
            p->n_skipped++;
            continue;
        }
        const double expected = (4.0 * fine.slope - coarse.slope) / 3.0;
        const double tolerance = p->check->is_smooth ? TOLERANCE : KINK;
        if (!(fabs(actual - expected) <= tolerance * scale)) {
            char text[OPCASE_TEXT_MAX];
            print_error("%s: gradient towards input %d at %d: %.6g, differences give %.6g\n",
                        op_case_text(&p->check->forward, text), input, (int)i, actual, expected);
            fail();
        }
    }
}

/* The gradient op with its operands taken from where the check says. */
static struct op_case gradient_case(struct probe *p)
{
    const struct grad_check *check = p->check;
    const struct op_case *forward = &check->forward;
    struct op_case c = {.op = check->grad_op, .attr = check->grad_attr};
    c.n_in = check->n_sources;
    for (int i = 0; i < c.n_in; i++) {
        const struct source *source = &check->sources[i];
        if (source->kind == SOURCE_NONE)
            continue;
        c.in[i] =
            source->kind == SOURCE_IN ? forward->in[source->index] : forward->out[source->index];
        c.in[i].given = source->kind == SOURCE_R    ? p->r
                        : source->kind == SOURCE_IN ? p->data.in[source->index]
                                                    : p->data.out[source->index];
        const bool is_int = c.in[i].fill == FILL_LABELS || c.in[i].fill == FILL_GIVEN_I32 ||
                            c.in[i].fill == FILL_RESULT_I32;
        if (c.in[i].fill != FILL_ABSENT)
            c.in[i].fill = is_int ? FILL_GIVEN_I32 : FILL_GIVEN;
    }
    c.n_out = check->n_towards;
    for (int i = 0; i < c.n_out; i++)
        if (check->towards[i] != NOWHERE && forward->in[check->towards[i] - 1].fill != FILL_ABSENT)
            c.out[i] = operand_result(forward->in[check->towards[i] - 1].shape);
    return c;
}

static void run_check(void **state, const struct grad_check *check)
{
    struct fixture *f = *state;
    struct probe p = {.check = check};
    const int64_t n = shape_count(check->forward.out[0].shape);
    op_data_init(&p.data, &check->forward);
    op_runner_init(&p.runner, f->ref, &check->forward);
    p.r = malloc((size_t)n * sizeof *p.r);
    assert_non_null(p.r);
    rng_normal(p.r, n, 1.0, TEST_SEED, RNG_TEST, check->forward.stream);
    if (check->weight > 0.0)
        p.r[0] = (float)check->weight;
    (void)probe_loss(&p); /* fills the outputs that the gradient op reads */

    const struct op_case c = gradient_case(&p);
    struct op_data gradients;
    op_data_init(&gradients, &c);
    op_case_run(f->ref, &c, &gradients);
    for (int i = 0; i < c.n_out; i++)
        if (gradients.out[i])
            check_input(&p, check->towards[i] - 1, gradients.out[i]);
    assert_true(4 * p.n_skipped <= p.n_sampled);
    op_data_fini(&gradients);
    op_runner_fini(&p.runner);
    op_data_fini(&p.data);
    free(p.r);
}

/* ---- convolution and batch norm ---------------------------------------------------------------- */

static void test_conv2d(void **state)
{
    static const struct {
        int64_t n, c, h, w, k;
        int kernel, stride, pad;
    } rows[] = {{2, 3, 5, 4, 4, 3, 1, 1},
                {2, 2, 5, 6, 3, 3, 2, 1},
                {1, 3, 4, 4, 2, 1, 2, 0},
                {1, 2, 7, 8, 2, 7, 2, 3},
                {1, 2, 5, 5, 2, 3, 1, 0}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct grad_check check = {
            .forward = {.op = OP_CONV2D, .n_in = 2, .n_out = 1, .stream = (uint32_t)i},
            .grad_op = OP_CONV2D_D_SRC,
            .sources = {FROM_R, FROM_IN(CONV_WEIGHTS)},
            .n_sources = 2,
            .towards = {1 + CONV_SRC},
            .n_towards = 1,
            .is_smooth = true,
        };
        check.forward.attr.conv = (struct conv_attr){.stride = rows[i].stride, .pad = rows[i].pad};
        check.forward.in[0] = operand_normal(shape_4d(rows[i].n, rows[i].c, rows[i].h, rows[i].w));
        check.forward.in[1] =
            operand_normal(shape_4d(rows[i].k, rows[i].c, rows[i].kernel, rows[i].kernel));
        const int64_t cut = 2 * rows[i].pad - rows[i].kernel;
        check.forward.out[0] =
            operand_result(shape_4d(rows[i].n, rows[i].k, (rows[i].h + cut) / rows[i].stride + 1,
                                    (rows[i].w + cut) / rows[i].stride + 1));
        check.grad_attr = check.forward.attr;
        run_check(state, &check);

        check.grad_op = OP_CONV2D_D_WEIGHTS;
        check.sources[0] = (struct source)FROM_IN(CONV_SRC);
        check.sources[1] = (struct source)FROM_R;
        check.towards[0] = 1 + CONV_WEIGHTS;
        run_check(state, &check);
    }
}

/* option bits: training, ReLU, mask, residual, gradient in two parts */
static void check_batchnorm(void **state, struct shape shape, unsigned option)
{
    const struct shape vector = shape_1d(shape.dim[1]);
    const bool relu = option & 2;
    const bool in_two_parts = option & 16;
    struct grad_check check = {
        .forward = {.op = OP_BATCHNORM, .n_in = BN_N_IN, .n_out = BN_N_OUT, .stream = option},
        .grad_op = OP_BATCHNORM_GRAD,
        .sources = {[BNG_D_DST] = FROM_R,
                    [BNG_SRC] = FROM_IN(BN_SRC),
                    [BNG_GAMMA] = FROM_IN(BN_GAMMA),
                    [BNG_BETA] = FROM_IN(BN_BETA),
                    [BNG_MEAN] = FROM_OUT(BN_MEAN),
                    [BNG_INV_STD] = FROM_OUT(BN_INV_STD),
                    [BNG_MASK] = FROM_IN(BN_MASK)},
        .n_sources = BNG_N_IN,
        .towards = {[BNG_D_SRC] = 1 + BN_SRC,
                    [BNG_D_GAMMA] = 1 + BN_GAMMA,
                    [BNG_D_BETA] = 1 + BN_BETA,
                    [BNG_D_MASK] = 1 + BN_MASK,
                    [BNG_D_RESIDUAL] = 1 + BN_RESIDUAL},
        .n_towards = BNG_N_OUT,
        .r_scale = in_two_parts ? 2.0 : 1.0,
        .is_smooth = !relu,
    };
    if (in_two_parts)
        check.sources[BNG_D_DST2] = (struct source)FROM_R;
    if (relu)
        check.sources[BNG_DST] = (struct source)FROM_OUT(BN_DST);
    struct op_case *forward = &check.forward;
    forward->attr.norm =
        (struct norm_attr){.eps = 1e-5F, .momentum = 0.1F, .training = option & 1, .relu = relu};
    forward->in[BN_SRC] = operand_normal(shape);
    forward->in[BN_GAMMA] = operand_uniform(vector, 0.5, 1.5);
    forward->in[BN_BETA] = operand_normal(vector);
    forward->in[BN_RUNNING_MEAN] = operand_normal(vector);
    forward->in[BN_RUNNING_VAR] = operand_uniform(vector, 0.5, 2.0);
    forward->in[BN_MASK] = operand_if(option & 4, operand_uniform(vector, 0.2, 1.0));
    forward->in[BN_RESIDUAL] = operand_if(option & 8, operand_normal(shape));
    forward->out[BN_DST] = operand_result(shape);
    forward->out[BN_MEAN] = operand_result(vector);
    forward->out[BN_INV_STD] = operand_result(vector);
    check.grad_attr = forward->attr;
    run_check(state, &check);
}

static void test_batchnorm_in_all_combinations(void **state)
{
    for (unsigned option = 0; option < 32; option++) {
        check_batchnorm(state, shape_4d(3, 2, 3, 2), option);
        check_batchnorm(state, shape_2d(12, 3), option);
    }
}

/* ---- pointwise, pooling, matrices ------------------------------------------------------------- */

/* Forward ops with one or two inputs whose gradient op reads (r, then something). */
static void test_relu(void **state)
{
    run_check(state, &(struct grad_check){.forward = {.op = OP_RELU,
                                                      .in = {operand_normal(shape_4d(2, 3, 4, 5))},
                                                      .n_in = 1,
                                                      .out = {operand_result(shape_4d(2, 3, 4, 5))},
                                                      .n_out = 1},
                                          .grad_op = OP_RELU_GRAD,
                                          .sources = {FROM_R, FROM_OUT(0)},
                                          .n_sources = 2,
                                          .towards = {1},
                                          .n_towards = 1});
}

static void check_scaling(void **state, enum op op, enum op grad_op, struct operand factor)
{
    run_check(state,
              &(struct grad_check){.forward = {.op = op,
                                               .in = {operand_normal(shape_4d(2, 3, 4, 3)), factor},
                                               .n_in = 2,
                                               .out = {operand_result(shape_4d(2, 3, 4, 3))},
                                               .n_out = 1},
                                   .grad_op = grad_op,
                                   .sources = {FROM_R, FROM_IN(0), FROM_IN(1)},
                                   .n_sources = 3,
                                   .towards = {1, 2},
                                   .n_towards = 2,
                                   .is_smooth = true});
}

static void test_scale_and_scale_channel(void **state)
{
    check_scaling(state, OP_SCALE_CHANNEL, OP_SCALE_CHANNEL_GRAD, operand_normal(shape_1d(3)));
    check_scaling(state, OP_SCALE, OP_SCALE_GRAD, operand_scalar(0.7));
}

static void test_maxpool_with_overlapping_windows(void **state)
{
    struct grad_check check = {.forward = {.op = OP_MAXPOOL,
                                           .in = {operand_normal(shape_4d(2, 2, 7, 6))},
                                           .n_in = 1,
                                           .out = {operand_result(shape_4d(2, 2, 4, 3)),
                                                   operand_result_i32(shape_4d(2, 2, 4, 3))},
                                           .n_out = 2},
                               .grad_op = OP_MAXPOOL_GRAD,
                               .sources = {FROM_R, FROM_OUT(1)},
                               .n_sources = 2,
                               .towards = {1},
                               .n_towards = 1};
    check.forward.attr.pool = (struct pool_attr){.kernel = 3, .stride = 2, .pad = 1};
    check.grad_attr = check.forward.attr;
    run_check(state, &check);
}

static void test_avgpool(void **state)
{
    run_check(state, &(struct grad_check){.forward = {.op = OP_AVGPOOL,
                                                      .in = {operand_normal(shape_4d(2, 3, 4, 3))},
                                                      .n_in = 1,
                                                      .out = {operand_result(shape_2d(2, 3))},
                                                      .n_out = 1},
                                          .grad_op = OP_AVGPOOL_GRAD,
                                          .sources = {FROM_R},
                                          .n_sources = 1,
                                          .towards = {1},
                                          .n_towards = 1,
                                          .is_smooth = true});
}

static void test_linear(void **state)
{
    struct grad_check check = {
        .forward = {.op = OP_LINEAR,
                    .in = {operand_normal(shape_2d(4, 7)), operand_normal(shape_2d(3, 7)),
                           operand_normal(shape_1d(3))},
                    .n_in = 3,
                    .out = {operand_result(shape_2d(4, 3))},
                    .n_out = 1},
        .grad_op = OP_LINEAR_D_SRC,
        .sources = {FROM_R, FROM_IN(1)},
        .n_sources = 2,
        .towards = {1},
        .n_towards = 1,
        .is_smooth = true};
    check.grad_attr.columns = (struct column_attr){.first = 0, .count = 7};
    run_check(state, &check);

    check.grad_op = OP_LINEAR_D_WEIGHTS;
    check.sources[0] = (struct source)FROM_IN(0);
    check.sources[1] = (struct source)FROM_R;
    check.towards[0] = 2;
    check.towards[1] = 3;
    check.n_towards = 2;
    run_check(state, &check);
}

static void test_l2norm_of_long_and_short_rows(void **state)
{
    static const float eps[] = {1e-12F, 6.0F}; /* with the second every row is too short */
    for (int i = 0; i < 2; i++)
        run_check(state, &(struct grad_check){.forward = {.op = OP_L2NORM,
                                                          .attr.eps = eps[i],
                                                          .in = {operand_normal(shape_2d(4, 7))},
                                                          .n_in = 1,
                                                          .out = {operand_result(shape_2d(4, 7)),
                                                                  operand_result(shape_1d(4))},
                                                          .n_out = 2},
                                              .grad_op = OP_L2NORM_GRAD,
                                              .grad_attr.eps = eps[i],
                                              .sources = {FROM_R, FROM_OUT(0), FROM_OUT(1)},
                                              .n_sources = 3,
                                              .towards = {1},
                                              .n_towards = 1,
                                              .is_smooth = true});
}

/* ---- losses -------------------------------------------------------------------------------- */

/* The loss value against the gradient that the same op gives: forward asks for the value alone. */
static void check_loss(void **state, enum op op, struct loss_attr attr, const struct operand *in,
                       int n_in, bool is_smooth)
{
    struct grad_check check = {
        .forward = {.op = op,
                    .attr.loss = attr,
                    .n_in = n_in,
                    .out = {operand_result(shape_1d(1))},
                    .n_out = 2},
        .grad_op = op,
        .grad_attr.loss = attr,
        .n_sources = n_in,
        .towards = {NOWHERE, 1},
        .n_towards = 2,
        .weight = 0.7,
        .is_smooth = is_smooth,
    };
    for (int i = 0; i < n_in; i++) {
        check.forward.in[i] = in[i];
        check.sources[i] = (struct source)FROM_IN(i);
    }
    check.forward.in[n_in - 1] = operand_scalar(check.weight);
    run_check(state, &check);
}

static void test_softmax_xent(void **state)
{
    static const struct loss_attr attrs[] = {
        {.count = 9, .temperature = 1.0F},
        {.count = 9, .temperature = 3.0F},
        {.first = 2, .count = 5, .label_shift = 2, .temperature = 1.0F},
        {.first = 1, .count = 4, .label_shift = 5, .clamp_low = true, .temperature = 2.0F},
    };
    const struct operand in[] = {operand_normal(shape_2d(6, 9)), operand_labels(6, 0, 9),
                                 operand_absent()};
    for (size_t i = 0; i < sizeof attrs / sizeof attrs[0]; i++)
        check_loss(state, OP_SOFTMAX_XENT, attrs[i], in, 3, true);
}

static void test_distill(void **state)
{
    const struct operand in[] = {operand_normal(shape_2d(4, 9)), operand_normal(shape_2d(4, 6)),
                                 operand_absent()};
    check_loss(state, OP_DISTILL, (struct loss_attr){.count = 6, .temperature = 2.0F}, in, 3, true);
    check_loss(state, OP_DISTILL,
               (struct loss_attr){.first = 3, .count = 4, .teacher_first = 1, .temperature = 1.0F},
               in, 3, true);
}

static void test_bce(void **state)
{
    const struct operand in[] = {operand_normal(shape_2d(4, 9)), operand_labels(4, 0, 9),
                                 operand_normal(shape_2d(4, 5)), operand_absent()};
    check_loss(state, OP_BCE, (struct loss_attr){.n_old = 5}, in, 4, true);
    check_loss(state, OP_BCE, (struct loss_attr){.n_old = 0}, in, 4, true);
}

static void test_cosine_loss(void **state)
{
    const struct operand in[] = {operand_normal(shape_2d(4, 7)), operand_normal(shape_2d(4, 7)),
                                 operand_absent()};
    check_loss(state, OP_COSINE_LOSS, (struct loss_attr){0}, in, 3, true);
}

static void test_margin_loss(void **state)
{
    const struct operand in[] = {operand_normal(shape_2d(8, 9)), operand_labels(8, 0, 6),
                                 operand_absent()};
    check_loss(state, OP_MARGIN_LOSS, (struct loss_attr){.n_old = 5, .top_k = 2, .margin = 0.5F},
               in, 3, false);
}

/* ---- masks --------------------------------------------------------------------------------- */

/* With s = 1 the compensated gradient is the derivative of the gate itself. */
static void test_mask_gate_with_s_1(void **state)
{
    struct grad_check check = {.forward = {.op = OP_MASK_GATE,
                                           .in = {operand_scalar(1.0), operand_normal(shape_1d(9))},
                                           .n_in = 2,
                                           .out = {operand_result(shape_1d(9))},
                                           .n_out = 1},
                               .grad_op = OP_MASK_GATE_GRAD,
                               .sources = {FROM_IN(0), FROM_IN(1), FROM_R},
                               .n_sources = 3,
                               .towards = {2},
                               .n_towards = 1,
                               .is_smooth = true};
    run_check(state, &check);
}

/* The layers of a small network: stem, a block with projection, a block that feeds itself. */
static const struct sparsity_layer layers[] = {
    {.in_mask = -1, .out_mask = 0, .kernel_area = 9, .in_channels = 3},
    {.in_mask = 0, .out_mask = 1, .kernel_area = 9},
    {.in_mask = 1, .out_mask = 1, .kernel_area = 9},
    {.in_mask = 0, .out_mask = 1, .kernel_area = 1},
};

static void test_mask_sparsity(void **state)
{
    struct grad_check check = {
        .forward = {.op = OP_MASK_SPARSITY,
                    .in = {operand_scalar(0.75), operand_uniform(shape_1d(4), 0.1, 1.0),
                           operand_uniform(shape_1d(6), 0.1, 1.0)},
                    .n_in = 3,
                    .out = {operand_result(shape_1d(1))},
                    .n_out = 3},
        .grad_op = OP_MASK_SPARSITY,
        .sources = {FROM_IN(0), FROM_IN(1), FROM_IN(2)},
        .n_sources = 3,
        .towards = {NOWHERE, 2, 3},
        .n_towards = 3,
        .weight = 0.75,
        .is_smooth = true};
    check.forward.attr.sparsity = (struct sparsity_attr){
        .layers = layers,
        .n_layers = sizeof layers / sizeof layers[0],
        .total = 9.0 * (3 * 4 + 4 * 6 + 6 * 6) + 4 * 6,
    };
    check.grad_attr = check.forward.attr;
    run_check(state, &check);
}

/* What the literature prints, in double: DER's compensation of the gradient of sigmoid(s e), which
 * takes g = d_m s y (1 - y) and multiplies by sigma'(e) / (s sigma'(s e)), and HAT's. */
static double compensated(enum mask_gradient gradient, double s, double s_max, double e)
{
    if (isinf(s))
        return 0.0;
    const double y = 1.0 / (1.0 + exp(-s * e));
    const double y1 = 1.0 / (1.0 + exp(-e));
    if (gradient == MASK_GRADIENT_EXACT)
        return s * y * (1.0 - y) * (y1 * (1.0 - y1)) / (s * (y * (1.0 - y)));
    const double rounded = (double)(float)y;
    const double clipped = s * e > 50.0 ? 50.0 : s * e < -50.0 ? -50.0 : s * e;
    return rounded * (1.0 - rounded) * s * (s_max / s) * (cosh(clipped) + 1.0) / (cosh(e) + 1.0);
}

static void test_mask_gate_gradient_follows_its_formula(void **state)
{
    struct fixture *f = *state;
    static const double sharpness[] = {0.0025, 1.0, 4.0, INFINITY};
    for (int i = 0; i < 8; i++) {
        const double s = sharpness[i % 4];
        const enum mask_gradient gradient = i < 4 ? MASK_GRADIENT_EXACT : MASK_GRADIENT_HAT;
        struct op_case c = {.op = OP_MASK_GATE_GRAD,
                            .in = {operand_scalar(s), operand_uniform(shape_1d(16), -6.0, 6.0),
                                   operand_normal(shape_1d(16))},
                            .n_in = 3,
                            .out = {operand_result(shape_1d(16))},
                            .n_out = 1};
        c.attr.mask = (struct mask_attr){.gradient = gradient, .s_max = 400.0F};
        struct op_data data;
        op_data_init(&data, &c);
        op_case_run(f->ref, &c, &data);
        const float *e = data.in[1];
        const float *d_m = data.in[2];
        const float *d_e = data.out[0];
        for (int k = 0; k < 16; k++) {
            const double s_as_float = (double)(float)s;
            const double expected =
                (double)d_m[k] * compensated(gradient, s_as_float, 400.0, (double)e[k]);
            /* Both are computed in double; only the result is rounded to float. */
            assert_true(fabs((double)d_e[k] - expected) <= 1e-6 * fabs(expected) + 1e-30);
        }
        op_data_fini(&data);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_conv2d),
        cmocka_unit_test(test_batchnorm_in_all_combinations),
        cmocka_unit_test(test_relu),
        cmocka_unit_test(test_scale_and_scale_channel),
        cmocka_unit_test(test_maxpool_with_overlapping_windows),
        cmocka_unit_test(test_avgpool),
        cmocka_unit_test(test_linear),
        cmocka_unit_test(test_l2norm_of_long_and_short_rows),
        cmocka_unit_test(test_softmax_xent),
        cmocka_unit_test(test_distill),
        cmocka_unit_test(test_bce),
        cmocka_unit_test(test_cosine_loss),
        cmocka_unit_test(test_margin_loss),
        cmocka_unit_test(test_mask_gate_with_s_1),
        cmocka_unit_test(test_mask_sparsity),
        cmocka_unit_test(test_mask_gate_gradient_follows_its_formula),
    };
    return cmocka_run_group_tests_name("grad", tests, set_up, tear_down);
}

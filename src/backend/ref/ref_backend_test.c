/*
 * The oracle itself, against numbers worked out by hand, and how it fails.
 */
#include "backend/ref/ref.h"

#include "core/rng.h"
#include "support/opcase.h"
#include "support/tensor_check.h"
#include "support/test_ctx.h"
#include "support/test_net.h"

#include <math.h>
#include <string.h>

/* Numbers are exact or rounded once from double: NMSE of float rounding. */
static const double NMSE_MAX = 1e-13;

struct fixture {
    struct der_ctx *ctx;
    struct backend *be;
};

static struct fixture set_up(void)
{
    struct fixture f = {.ctx = test_ctx_new(1)};
    assert_ok(f.ctx, backend_open(f.ctx, "ref", NULL, &f.be));
    return f;
}

static void tear_down(struct fixture *f)
{
    backend_close(f->be);
    test_ctx_free(f->ctx);
}

static struct operand given(struct shape shape, const float *data)
{
    return (struct operand){.fill = FILL_GIVEN, .shape = shape, .given = data};
}

static struct operand given_i32(struct shape shape, const int32_t *data)
{
    return (struct operand){.fill = FILL_GIVEN_I32, .shape = shape, .given = data};
}

/* Runs the case; expected[i] belongs to output i, NULL is not compared. */
static void expect_outputs(const struct op_case *c, const float *const *expected)
{
    struct fixture f = set_up();
    struct op_data data;
    op_data_init(&data, c);
    op_case_run(f.be, c, &data);
    for (int i = 0; i < c->n_out; i++)
        if (expected[i])
            assert_tensor_close(data.out[i], expected[i], shape_count(c->out[i].shape), NMSE_MAX,
                                op_name(c->op));
    op_data_fini(&data);
    tear_down(&f);
}

/* ---- values by hand ------------------------------------------------------------------------ */

static const float one_to_nine[9] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
/* Correlation, not convolution: this kernel fetches the upper and, twice, the right neighbour. */
static const float neighbours[9] = {0, 1, 0, 0, 0, 2, 0, 0, 0};

static void test_conv2d_fetches_neighbours(void **state)
{
    (void)state;
    static const float expected[9] = {4, 6, 0, 11, 14, 3, 20, 23, 6};
    const struct shape image = shape_4d(1, 1, 3, 3);
    expect_outputs(&(struct op_case){.op = OP_CONV2D,
                                     .attr.conv = {.stride = 1, .pad = 1},
                                     .in = {given(image, one_to_nine), given(image, neighbours)},
                                     .n_in = 2,
                                     .out = {operand_result(image)},
                                     .n_out = 1},
                   (const float *[]){expected});
}

static void test_conv2d_gradients_send_back_what_was_fetched(void **state)
{
    (void)state;
    static const float d_dst[9] = {0, 0, 0, 0, 1, 0, 0, 0, 10};
    static const float d_src[9] = {0, 1, 0, 0, 0, 12, 0, 0, 0};
    static const float d_weights[9] = {51, 62, 3, 84, 95, 6, 7, 8, 9};
    const struct shape image = shape_4d(1, 1, 3, 3);
    expect_outputs(&(struct op_case){.op = OP_CONV2D_D_SRC,
                                     .attr.conv = {.stride = 1, .pad = 1},
                                     .in = {given(image, d_dst), given(image, neighbours)},
                                     .n_in = 2,
                                     .out = {operand_result(image)},
                                     .n_out = 1},
                   (const float *[]){d_src});
    expect_outputs(&(struct op_case){.op = OP_CONV2D_D_WEIGHTS,
                                     .attr.conv = {.stride = 1, .pad = 1},
                                     .in = {given(image, one_to_nine), given(image, d_dst)},
                                     .n_in = 2,
                                     .out = {operand_result(image)},
                                     .n_out = 1},
                   (const float *[]){d_weights});
}

static void test_conv2d_affine_normalises_adds_and_clips(void **state)
{
    (void)state;
    static const float src[2] = {3, -5};
    static const float weights[1] = {2};
    static const float gamma[1] = {4};
    static const float beta[1] = {1};
    static const float mean[1] = {1};
    static const float var[1] = {3};
    static const float residual[2] = {0.5F, 0.5F};
    /* a = 4 / sqrt(3 + 1) = 2, b = 1 - 1 * 2 = -1: 6 * 2 - 1 + 0.5 and -10 * 2 - 1 + 0.5 */
    static const float expected[2] = {11.5F, 0.0F};
    const struct shape image = shape_4d(1, 1, 1, 2);
    expect_outputs(&(struct op_case){.op = OP_CONV2D_AFFINE,
                                     .attr.conv = {.stride = 1, .eps = 1.0F, .relu = true},
                                     .in = {given(image, src), given(shape_4d(1, 1, 1, 1), weights),
                                            given(shape_1d(1), gamma), given(shape_1d(1), beta),
                                            given(shape_1d(1), mean), given(shape_1d(1), var),
                                            given(image, residual)},
                                     .n_in = AFFINE_N_IN,
                                     .out = {operand_result(image)},
                                     .n_out = 1},
                   (const float *[]){expected});
}

static void test_batchnorm_normalises_with_biased_and_remembers_unbiased_variance(void **state)
{
    (void)state;
    static const float src[2] = {1, 3};
    static const float gamma[1] = {2};
    static const float beta[1] = {0.5F};
    static const float running[2] = {0, 1};
    static const float dst[2] = {0, 2.5F}; /* 2 * -1 + 0.5 is clipped */
    static const float running_after[2] = {0.2F, 1.1F};
    const struct op_case c = {.op = OP_BATCHNORM,
                              .attr.norm = {.momentum = 0.1F, .training = true, .relu = true},
                              .in = {given(shape_2d(2, 1), src), given(shape_1d(1), gamma),
                                     given(shape_1d(1), beta), given(shape_1d(1), running),
                                     given(shape_1d(1), running + 1)},
                              .n_in = BN_N_IN,
                              .out = {operand_result(shape_2d(2, 1)), operand_result(shape_1d(1)),
                                      operand_result(shape_1d(1))},
                              .n_out = BN_N_OUT};
    struct fixture f = set_up();
    struct op_data data;
    op_data_init(&data, &c);
    op_case_run(f.be, &c, &data);
    assert_tensor_close(data.out[BN_DST], dst, 2, NMSE_MAX, "dst");
    assert_tensor_close(data.out[BN_MEAN], (const float[]){2}, 1, NMSE_MAX, "mean");
    assert_tensor_close(data.out[BN_INV_STD], (const float[]){1}, 1, NMSE_MAX, "inv_std");
    assert_tensor_close(data.in[BN_RUNNING_MEAN], running_after, 1, NMSE_MAX, "running mean");
    assert_tensor_close(data.in[BN_RUNNING_VAR], running_after + 1, 1, NMSE_MAX,
                        "running variance");
    op_data_fini(&data);
    tear_down(&f);
}

static void test_batchnorm_grad_with_mask(void **state)
{
    (void)state;
    static const float d_dst[4] = {1, 0, 0, 0};
    static const float src[4] = {-1, -1, 1, 1};
    static const float gamma[1] = {2};
    static const float beta[1] = {0.5F};
    static const float mean[1] = {0};
    static const float inv_std[1] = {1};
    static const float mask[1] = {0.5F};
    /* d_gamma' = -1, d_beta' = 1 */
    static const float d_src[4] = {0.5F, -0.5F, 0, 0};
    static const float d_gamma[1] = {-0.5F};
    static const float d_beta[1] = {0.5F};
    static const float d_mask[1] = {-1.5F};
    const struct shape matrix = shape_2d(4, 1);
    const struct shape vector = shape_1d(1);
    struct op_case c = {.op = OP_BATCHNORM_GRAD,
                        .attr.norm = {.training = true},
                        .n_in = BNG_N_IN,
                        .out = {operand_result(matrix), operand_result(vector),
                                operand_result(vector), operand_result(vector),
                                operand_result(matrix)},
                        .n_out = BNG_N_OUT};
    c.in[BNG_D_DST] = given(matrix, d_dst);
    c.in[BNG_SRC] = given(matrix, src);
    c.in[BNG_GAMMA] = given(vector, gamma);
    c.in[BNG_BETA] = given(vector, beta);
    c.in[BNG_MEAN] = given(vector, mean);
    c.in[BNG_INV_STD] = given(vector, inv_std);
    c.in[BNG_MASK] = given(vector, mask);
    expect_outputs(&c, (const float *[]){d_src, d_gamma, d_beta, d_mask, d_dst});
}

static void test_maxpool_points_at_first_maximum(void **state)
{
    (void)state;
    static const float src[9] = {1, 7, 0, 7, 2, 3, 4, 5, 6};
    const struct op_case c = {
        .op = OP_MAXPOOL,
        .attr.pool = {.kernel = 2, .stride = 1},
        .in = {given(shape_4d(1, 1, 3, 3), src)},
        .n_in = 1,
        .out = {operand_result(shape_4d(1, 1, 2, 2)), operand_result_i32(shape_4d(1, 1, 2, 2))},
        .n_out = 2};
    struct fixture f = set_up();
    struct op_data data;
    op_data_init(&data, &c);
    op_case_run(f.be, &c, &data);
    assert_tensor_close(data.out[0], (const float[]){7, 7, 7, 6}, 4, 0.0, "maximum");
    assert_ints_equal(data.out[1], (const int32_t[]){1, 1, 3, 8}, 4, "index");
    op_data_fini(&data);
    tear_down(&f);
}

static void test_linear_multiplies_by_rows_of_weights(void **state)
{
    (void)state;
    static const float src[2] = {1, 2};
    static const float weights[6] = {1, 0, 0, 1, 3, -1};
    static const float bias[3] = {10, 20, 30};
    static const float expected[3] = {11, 22, 31};
    expect_outputs(
        &(struct op_case){.op = OP_LINEAR,
                          .in = {given(shape_2d(1, 2), src), given(shape_2d(3, 2), weights),
                                 given(shape_1d(3), bias)},
                          .n_in = 3,
                          .out = {operand_result(shape_2d(1, 3))},
                          .n_out = 1},
        (const float *[]){expected});
}

/* A loss over one row or two; expected value and gradient. */
static void expect_loss(enum op op, struct loss_attr attr, const struct operand *in, int n_in,
                        float value, const float *gradient)
{
    struct op_case c = {.op = op,
                        .attr.loss = attr,
                        .n_in = n_in,
                        .out = {operand_result(shape_1d(1)), operand_result(in[0].shape)},
                        .n_out = 2};
    memcpy(c.in, in, (size_t)n_in * sizeof *in);
    expect_outputs(&c, (const float *[]){&value, gradient});
}

static void test_softmax_xent_of_equal_logits(void **state)
{
    (void)state;
    static const float logits[6] = {9, 5, 5, 9, 5, 5};
    static const int32_t labels[2] = {4, 9}; /* 9 - 3 lies outside: the row does not take part */
    static const float d_logits[6] = {0, 1, -1, 0, 0, 0};
    const struct operand in[] = {given(shape_2d(2, 3), logits), given_i32(shape_1d(2), labels),
                                 operand_scalar(2.0)};
    expect_loss(OP_SOFTMAX_XENT,
                (struct loss_attr){.first = 1, .count = 2, .label_shift = 3, .temperature = 1.0F},
                in, 3, 0.693147180559945F, d_logits);
}

static void test_softmax_xent_raises_old_labels_to_zero(void **state)
{
    (void)state;
    static const float logits[4] = {1, 1, 1, 1};
    static const int32_t labels[2] = {2, 6}; /* an old class, and the first new one */
    static const float d_logits[4] = {-0.25F, 0.25F, 0.25F, -0.25F};
    const struct operand in[] = {given(shape_2d(2, 2), logits), given_i32(shape_1d(2), labels),
                                 operand_scalar(1.0)};
    expect_loss(
        OP_SOFTMAX_XENT,
        (struct loss_attr){.count = 2, .label_shift = 5, .clamp_low = true, .temperature = 1.0F},
        in, 3, 0.693147180559945F, d_logits);
}

static void test_softmax_xent_without_rows_is_zero(void **state)
{
    (void)state;
    static const float logits[2] = {1, 2};
    static const int32_t labels[1] = {7};
    static const float d_logits[2] = {0, 0};
    const struct operand in[] = {given(shape_2d(1, 2), logits), given_i32(shape_1d(1), labels),
                                 operand_scalar(2.0)};
    expect_loss(OP_SOFTMAX_XENT, (struct loss_attr){.count = 2, .temperature = 1.0F}, in, 3, 0.0F,
                d_logits);
}

static void test_distill_from_the_opposite_teacher(void **state)
{
    (void)state;
    /* T = 2: p = (3/4, 1/4), q = (1/4, 3/4); loss = 3/4 ln 4 + 1/4 ln(4/3) */
    static const float logits[2] = {0.0F, 2.1972245773362196F};
    static const float teacher[2] = {2.1972245773362196F, 0.0F};
    static const float d_logits[2] = {-0.25F, 0.25F};
    const struct operand in[] = {given(shape_2d(1, 2), logits), given(shape_2d(1, 2), teacher),
                                 operand_scalar(1.0)};
    expect_loss(OP_DISTILL, (struct loss_attr){.count = 2, .temperature = 2.0F}, in, 3,
                1.1116412989544836F, d_logits);
}

static void test_bce_with_one_old_class(void **state)
{
    (void)state;
    static const float logits[2] = {0, 0};
    static const int32_t labels[1] = {1};
    static const float teacher[1] = {1.0986122886681098F}; /* sigmoid: 3/4 */
    static const float d_logits[2] = {-0.125F, -0.25F};
    const struct operand in[] = {given(shape_2d(1, 2), logits), given_i32(shape_1d(1), labels),
                                 given(shape_2d(1, 1), teacher), operand_scalar(1.0)};
    expect_loss(OP_BCE, (struct loss_attr){.n_old = 1}, in, 4, 0.693147180559945F, d_logits);
}

static void test_cosine_loss_of_right_angle(void **state)
{
    (void)state;
    static const float a[2] = {2, 0};
    static const float b[2] = {0, 3};
    static const float d_a[2] = {0, -0.5F};
    const struct operand in[] = {given(shape_2d(1, 2), a), given(shape_2d(1, 2), b),
                                 operand_scalar(1.0)};
    expect_loss(OP_COSINE_LOSS, (struct loss_attr){0}, in, 3, 1.0F, d_a);
}

static void test_margin_loss_counts_open_terms(void **state)
{
    (void)state;
    /* Row 0: terms 0.5 - 1 + 0.75 and 0.5 - 1 + 0.25 (closed). Row 1 is new. Two terms in all. */
    static const float scores[8] = {1, 0.25F, 0.0F, 0.75F, 1, 2, 3, 4};
    static const int32_t labels[2] = {0, 2};
    static const float d_scores[8] = {-0.5F, 0, 0, 0.5F, 0, 0, 0, 0};
    const struct operand in[] = {given(shape_2d(2, 4), scores), given_i32(shape_1d(2), labels),
                                 operand_scalar(1.0)};
    expect_loss(OP_MARGIN_LOSS, (struct loss_attr){.n_old = 1, .top_k = 2, .margin = 0.5F}, in, 3,
                0.125F, d_scores);
}

static void test_rank_counts_ties_from_the_left_and_nan_as_last(void **state)
{
    (void)state;
    static const float logits[12] = {1, 3, 1, 3, 1, 3, 1, 3, NAN, 3, 1, 3};
    static const int32_t labels[3] = {2, 1, 0};
    const struct op_case c = {.op = OP_RANK,
                              .attr.loss = {.count = 4},
                              .in = {given(shape_2d(3, 4), logits), given_i32(shape_1d(3), labels)},
                              .n_in = 2,
                              .out = {operand_result_i32(shape_1d(3))},
                              .n_out = 1};
    struct fixture f = set_up();
    struct op_data data;
    op_data_init(&data, &c);
    op_case_run(f.be, &c, &data);
    assert_ints_equal(data.out[0], (const int32_t[]){3, 0, 4}, 3, "rank");
    op_data_fini(&data);
    tear_down(&f);
}

static void test_hard_masks_keep_the_first_largest(void **state)
{
    (void)state;
    static const float e[8] = {-1, 0.5F, 0, 2, -3, -2, -2, -4};
    static const float m0[4] = {0, 1, 0, 1};
    static const float m1[4] = {0, 1, 0, 0};
    expect_outputs(
        &(struct op_case){
            .op = OP_MASK_GATE,
            .in = {operand_scalar(INFINITY), given(shape_1d(4), e), given(shape_1d(4), e + 4)},
            .n_in = 3,
            .out = {operand_result(shape_1d(4)), operand_result(shape_1d(4))},
            .n_out = 2},
        (const float *[]){m0, m1});
}

static void test_sparsity_counts_weights_in_use(void **state)
{
    (void)state;
    static const struct sparsity_layer layers[] = {
        {.in_mask = -1, .out_mask = 0, .kernel_area = 9, .in_channels = 3},
        {.in_mask = 0, .out_mask = 1, .kernel_area = 1},
    };
    static const float m0[2] = {1, 0.5F};
    static const float m1[1] = {0.5F};
    /* (9 * 3 * 1.5 + 1 * 1.5 * 0.5) / (9 * 3 * 2 + 1 * 2 * 1) */
    static const float value[1] = {41.25F / 56.0F};
    static const float d_m0[2] = {2 * 27.5F / 56.0F, 2 * 27.5F / 56.0F};
    static const float d_m1[1] = {2 * 1.5F / 56.0F};
    expect_outputs(
        &(struct op_case){
            .op = OP_MASK_SPARSITY,
            .attr.sparsity = {layers, 2, 56.0, NULL},
            .in = {operand_scalar(2.0), given(shape_1d(2), m0), given(shape_1d(1), m1)},
            .n_in = 3,
            .out = {operand_result(shape_1d(1)), operand_result(shape_1d(2)),
                    operand_result(shape_1d(1))},
            .n_out = 3},
        (const float *[]){value, d_m0, d_m1});
}

/* Open are channels above 1/2, whatever their sum. */
static void test_sparsity_leaves_masks_alone_that_must_not_shrink(void **state)
{
    (void)state;
    static const struct sparsity_layer layers[] = {{.in_mask = 0, .out_mask = 1, .kernel_area = 9}};
    static const float m0[4] = {0.75F, 0.5F, 0.5F, 0.625F};
    static const float m1[2] = {1, 0.75F};
    static const float held[4] = {0};
    static const float d_m1[2] = {9 * 2.375F / 72.0F, 9 * 2.375F / 72.0F};
    static const float value[1] = {9 * 2.375F * 1.75F / 72.0F};
    static const int least[2] = {2, 1};
    expect_outputs(
        &(struct op_case){
            .op = OP_MASK_SPARSITY,
            .attr.sparsity = {layers, 1, 72.0, least},
            .in = {operand_scalar(1.0), given(shape_1d(4), m0), given(shape_1d(2), m1)},
            .n_in = 3,
            .out = {operand_result(shape_1d(1)), operand_result(shape_1d(4)),
                    operand_result(shape_1d(2))},
            .n_out = 3},
        (const float *[]){value, held, d_m1});
}

static void test_sgd_decays_gathers_and_clamps(void **state)
{
    (void)state;
    static const float p[3] = {1, 3, -3};
    static const float g[3] = {0.5F, -50, 50};
    static const float v[3] = {0.25F, 0, 0};
    struct op_case c = {.op = OP_SGD,
                        .in = {operand_scalar(0.125), given(shape_1d(3), p), given(shape_1d(3), g),
                               given(shape_1d(3), v)},
                        .n_in = 4};
    c.attr.sgd = (struct sgd_attr){
        .momentum = 0.5F, .decay = 0.25F, .gain = 2.0F, .low = -6.0F, .high = 6.0F};
    struct fixture f = set_up();
    struct op_data data;
    op_data_init(&data, &c);
    op_case_run(f.be, &c, &data);
    /* v = 0.125 + 0.5 + 0.25, p = 1 - 0.25 v */
    assert_tensor_close(data.in[3], (const float[]){0.875F, -49.25F, 49.25F}, 3, 0.0, "velocity");
    assert_tensor_close(data.in[1], (const float[]){0.78125F, 6.0F, -6.0F}, 3, 0.0, "parameter");
    op_data_fini(&data);
    tear_down(&f);
}

/* conv2d of src [1,c,5,5] with weights [2,c,3,3], into dst [1,2,5,5] */
static void run_conv(float *dst, const float *src, const float *weights, int64_t c)
{
    const struct op_case conv = {
        .op = OP_CONV2D,
        .attr.conv = {.stride = 1, .pad = 1},
        .in = {given(shape_4d(1, c, 5, 5), src), given(shape_4d(2, c, 3, 3), weights)},
        .n_in = 2,
        .out = {operand_result(shape_4d(1, 2, 5, 5))},
        .n_out = 1};
    struct fixture f = set_up();
    struct op_data data;
    op_data_init(&data, &conv);
    op_case_run(f.be, &conv, &data);
    memcpy(dst, data.out[0], 50 * sizeof *dst);
    op_data_fini(&data);
    tear_down(&f);
}

/* What makes a pruned network equal to its masked original, bit for bit. */
static void test_channels_of_zeros_change_no_bit(void **state)
{
    (void)state;
    float src[3 * 25];
    float weights[2 * 3 * 9];
    rng_normal(src, 3 * 25, 1.0, 1, RNG_TEST, 0);
    rng_normal(weights, 2 * 3 * 9, 1.0, 1, RNG_TEST, 1);
    memset(src + 25, 0, 25 * sizeof *src);

    float pruned_src[2 * 25];
    float pruned_weights[2 * 2 * 9];
    memcpy(pruned_src, src, 25 * sizeof *src);
    memcpy(pruned_src + 25, src + 50, 25 * sizeof *src);
    for (int k = 0; k < 2; k++) {
        memcpy(pruned_weights + k * 18, weights + k * 27, 9 * sizeof *weights);
        memcpy(pruned_weights + k * 18 + 9, weights + k * 27 + 18, 9 * sizeof *weights);
    }
    float masked[50];
    float pruned[50];
    run_conv(masked, src, weights, 3);
    run_conv(pruned, pruned_src, pruned_weights, 2);
    assert_memory_equal(masked, pruned, sizeof masked);
}

/* ---- failing ------------------------------------------------------------------------------- */

/* relu of a matrix: two external values */
static struct program *compile_relu(struct fixture *f, int *src, int *dst)
{
    struct graph *g;
    struct program *program;
    assert_ok(f->ctx, graph_new(f->ctx, &g));
    assert_ok(f->ctx, graph_input(g, "source", DTYPE_F32, shape_2d(2, 3), src));
    assert_ok(f->ctx, graph_relu(g, *src, dst));
    assert_ok(f->ctx, graph_expose(g, *dst));
    assert_ok(f->ctx, program_compile(f->be, g, &program));
    graph_free(g);
    return program;
}

static void test_unbound_value_is_named(void **state)
{
    (void)state;
    struct fixture f = set_up();
    int src;
    int dst;
    struct program *program = compile_relu(&f, &src, &dst);
    struct buffer *buffer;
    struct sequence *sequence;
    assert_ok(f.ctx, buffer_new(f.be, 24, &buffer));
    assert_ok(f.ctx, program_bind(program, dst, (struct span){.buffer = buffer}));
    assert_ok(f.ctx, sequence_new(f.be, &(struct sequence_item){.program = program}, 1, &sequence));
    assert_int_equal(sequence_run(sequence), DER_STATE);
    assert_non_null(strstr(der_ctx_error(f.ctx), "'source'"));
    sequence_free(sequence);
    buffer_free(buffer);
    program_free(program);
    tear_down(&f);
}

static void test_bind_refuses_what_does_not_fit(void **state)
{
    (void)state;
    struct fixture f = set_up();
    int src;
    int dst;
    struct program *program = compile_relu(&f, &src, &dst);
    struct buffer *buffer;
    assert_ok(f.ctx, buffer_new(f.be, 28, &buffer));
    const struct span wrong[] = {
        {.buffer = buffer, .offset = 8},            /* past the end */
        {.buffer = buffer, .offset = 2},            /* between two floats */
        {.buffer = buffer, .pitch = 2},             /* shorter than a row */
        {.buffer = buffer, .offset = 4, .pitch = 4} /* the last row past the end */
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_int_equal(program_bind(program, src, wrong[i]), DER_ARG);
    assert_int_equal(program_bind(program, 99, (struct span){.buffer = buffer}), DER_ARG);
    assert_ok(f.ctx, program_bind(program, src, (struct span){.buffer = buffer, .pitch = 4}));
    buffer_free(buffer);
    program_free(program);
    tear_down(&f);
}

static void test_run_moves_versions_of_what_was_written_only(void **state)
{
    (void)state;
    struct fixture f = set_up();
    int src;
    int dst;
    struct program *program = compile_relu(&f, &src, &dst);
    struct buffer *from;
    struct buffer *to;
    struct sequence *sequence;
    assert_ok(f.ctx, buffer_new(f.be, 24, &from));
    assert_ok(f.ctx, buffer_new(f.be, 24, &to));
    assert_ok(f.ctx, program_bind(program, src, (struct span){.buffer = from}));
    assert_ok(f.ctx, program_bind(program, dst, (struct span){.buffer = to}));
    assert_ok(f.ctx, sequence_new(f.be, &(struct sequence_item){.program = program}, 1, &sequence));
    const uint64_t version_from = from->version;
    const uint64_t version_to = to->version;
    assert_ok(f.ctx, sequence_run(sequence));
    assert_true(from->version == version_from);
    assert_true(to->version > version_to);
    sequence_free(sequence);
    buffer_free(from);
    buffer_free(to);
    program_free(program);
    tear_down(&f);
}

static void test_other_precisions_are_refused(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    struct backend *be;
    const struct backend_options options = {.precision = PRECISION_BF16};
    assert_int_equal(backend_open(ctx, "ref", &options, &be), DER_UNSUPPORTED);
    assert_null(be);
    test_ctx_free(ctx);
}

/* Everything that takes memory, up to the first run. */
static enum der_status open_and_compile(struct der_ctx *ctx, const struct graph *g)
{
    struct backend *be = NULL;
    struct program *program = NULL;
    struct buffer *buffer = NULL;
    enum der_status status = backend_open(ctx, "ref", NULL, &be);
    if (status == DER_OK)
        status = buffer_new(be, 1000, &buffer);
    if (status == DER_OK)
        status = program_compile(be, g, &program);
    program_free(program);
    buffer_free(buffer);
    backend_close(be);
    return status;
}

static void test_every_failed_allocation_is_given_back(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    struct test_net net;
    test_net_init(&net, ctx, &(struct test_net_options){.masks = true, .backward = true});
    const uint64_t live = der_ctx_memory(ctx).n_live;
    enum der_status status = DER_NOMEM;
    int n_failures = 0;
    for (uint64_t request = 1; status != DER_OK; request++) {
        atomic_store(&ctx->mem.fail_at, der_ctx_memory(ctx).n_allocs + request);
        status = open_and_compile(ctx, net.g);
        assert_int_equal(der_ctx_memory(ctx).n_live, live);
        if (status != DER_OK) {
            assert_int_equal(status, DER_NOMEM);
            n_failures++;
        }
    }
    assert_true(n_failures >= 5);
    atomic_store(&ctx->mem.fail_at, 0);
    test_net_fini(&net);
    test_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_conv2d_fetches_neighbours),
        cmocka_unit_test(test_conv2d_gradients_send_back_what_was_fetched),
        cmocka_unit_test(test_conv2d_affine_normalises_adds_and_clips),
        cmocka_unit_test(test_batchnorm_normalises_with_biased_and_remembers_unbiased_variance),
        cmocka_unit_test(test_batchnorm_grad_with_mask),
        cmocka_unit_test(test_maxpool_points_at_first_maximum),
        cmocka_unit_test(test_linear_multiplies_by_rows_of_weights),
        cmocka_unit_test(test_softmax_xent_of_equal_logits),
        cmocka_unit_test(test_softmax_xent_raises_old_labels_to_zero),
        cmocka_unit_test(test_softmax_xent_without_rows_is_zero),
        cmocka_unit_test(test_distill_from_the_opposite_teacher),
        cmocka_unit_test(test_bce_with_one_old_class),
        cmocka_unit_test(test_cosine_loss_of_right_angle),
        cmocka_unit_test(test_margin_loss_counts_open_terms),
        cmocka_unit_test(test_rank_counts_ties_from_the_left_and_nan_as_last),
        cmocka_unit_test(test_hard_masks_keep_the_first_largest),
        cmocka_unit_test(test_sparsity_counts_weights_in_use),
        cmocka_unit_test(test_sparsity_leaves_masks_alone_that_must_not_shrink),
        cmocka_unit_test(test_sgd_decays_gathers_and_clamps),
        cmocka_unit_test(test_channels_of_zeros_change_no_bit),
        cmocka_unit_test(test_unbound_value_is_named),
        cmocka_unit_test(test_bind_refuses_what_does_not_fit),
        cmocka_unit_test(test_run_moves_versions_of_what_was_written_only),
        cmocka_unit_test(test_other_precisions_are_refused),
        cmocka_unit_test(test_every_failed_allocation_is_given_back),
    };
    return cmocka_run_group_tests_name("ref_backend", tests, NULL, NULL);
}

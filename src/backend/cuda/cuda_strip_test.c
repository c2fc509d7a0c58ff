/*
 * Kernels of strip.cu: every shape that there is, forwards and backwards, against the plain kernels (conv.cu), and within
 * the back end; and the rule that chooses them, which needs no GPU.
 */
#include "backend/cuda/cuda.h"

#include "support/cuda/conv_arrays.h"
#include "support/cuda/hand_program.h"
#include "support/opcase.h"
#include "support/tensor_check.h"
#include "support/test_ctx.h"

#include <stdio.h>

extern const struct backend_ops cuda_backend;

static const struct {
    int64_t c, k, size;
    bool forward_only;
} SHAPES[] = {{.c = 64, .k = 64, .size = 32},
              {.c = 32, .k = 64, .size = 32},
              {.c = 64, .k = 32, .size = 32},
              {.c = 32, .k = 32, .size = 32},
              {.c = 48, .k = 64, .size = 32},
              {.c = 48, .k = 48, .size = 32},
              {.c = 64, .k = 64, .size = 16},
              {.c = 64, .k = 128, .size = 16},
              {.c = 128, .k = 64, .size = 16},
              {.c = 128, .k = 128, .size = 16},
              {.c = 64, .k = 48, .size = 32, .forward_only = true}};

enum { N_SHAPES = sizeof SHAPES / sizeof *SHAPES };

static struct conv_layer layer_of(int shape, int64_t n)
{
    return (struct conv_layer){.n = n,
                               .h = SHAPES[shape].size,
                               .w = SHAPES[shape].size,
                               .c = SHAPES[shape].c,
                               .k = SHAPES[shape].k,
                               .kernel = 3,
                               .stride = 1};
}

/* ---- kernels ------------------------------------------------------------------------------------------- */

static cudaError_t launch_strip(struct conv_arrays *a, const void *user)
{
    const struct conv_pass *pass = user;
    const struct cuda_thin operands = conv_arrays_operands(a, pass);
    if (pass->backwards)
        return cuda_strip_d_src(&a->shape, a->actual, a->dst, a->weights, NULL);
    return cuda_strip(&a->shape, &operands, NULL);
}

static void compare_passes(const struct conv_pass *passes, int n)
{
    static const int64_t batches[] = {1, 3, 88};
    for (int i = 0; i < N_SHAPES * 3; i++) {
        const struct conv_layer layer = layer_of(i / 3, batches[i % 3]);
        struct conv_arrays a;
        char what[80];
        conv_arrays_init(&a, &layer);
        for (int j = 0; j < n && !(passes[j].backwards && SHAPES[i / 3].forward_only); j++) {
            const int64_t count = conv_arrays_count(&a, &passes[j]);
            (void)snprintf(what, sizeof what, "%lld -> %lld, %lld images of %lld, pass %d",
                           (long long)layer.c, (long long)layer.k, (long long)layer.n,
                           (long long)layer.h, j);
            conv_arrays_expect(&a, &passes[j]);
            conv_arrays_run(&a, (size_t)count * 2, launch_strip, &passes[j]);
            conv_arrays_compare(&a, count, true, what);
        }
        conv_arrays_fini(&a);
    }
}

static void test_forward(void **state)
{
    (void)state;
    static const struct conv_pass plain = {0};
    skip_without_hopper();
    compare_passes(&plain, 1);
}

static void test_forward_with_bias_residual_and_relu(void **state)
{
    (void)state;
    skip_without_hopper();
    compare_passes(CONV_EPILOGUES, N_CONV_EPILOGUES);
}

static void test_gradient_of_data(void **state)
{
    (void)state;
    static const struct conv_pass backwards = {.backwards = true};
    skip_without_hopper();
    compare_passes(&backwards, 1);
}

/* ---- the back end -------------------------------------------------------------------------------------- */

static struct op_case case_of(enum op op, const struct conv_layer *layer)
{
    const struct conv_layer l = *layer;
    const struct shape src = shape_4d(l.n, l.c, l.h, l.w);
    const struct shape weights = shape_4d(l.k, l.c, l.kernel, l.kernel);
    const struct shape dst = shape_4d(l.n, l.k, l.h / l.stride, l.w / l.stride);
    struct op_case c = {.op = op, .n_in = 2, .out = {operand_result(dst)}, .n_out = 1};
    c.attr.conv = (struct conv_attr){.stride = (int)l.stride, .pad = (int)l.kernel / 2};
    c.in[CONV_SRC] = operand_normal(src);
    c.in[CONV_WEIGHTS] = operand_normal(weights);
    if (op == OP_CONV2D_D_SRC) {
        c.in[CONV_D_SRC_D_DST] = operand_normal(dst);
        c.in[CONV_D_SRC_WEIGHTS] = operand_normal(weights);
        c.out[0] = operand_result(src);
    } else if (op == OP_CONV2D_D_WEIGHTS) {
        c.in[CONV_D_WEIGHTS_SRC] = operand_normal(src);
        c.in[CONV_D_WEIGHTS_D_DST] = operand_normal(dst);
        c.out[0] = operand_result(weights);
    } else if (op == OP_CONV2D_AFFINE) {
        const struct shape vector = shape_1d(l.k);
        c.n_in = AFFINE_N_IN;
        c.attr.conv.eps = 1e-5f;
        c.attr.conv.relu = true;
        c.in[AFFINE_GAMMA] = operand_uniform(vector, 0.5, 1.5);
        c.in[AFFINE_BETA] = operand_normal(vector);
        c.in[AFFINE_MEAN] = operand_normal(vector);
        c.in[AFFINE_VAR] = operand_uniform(vector, 0.5, 2.0);
        c.in[AFFINE_RESIDUAL] = operand_normal(dst);
    }
    return c;
}

static void run_case(const struct op_case *c, struct backend_tuning tuning, enum cuda_conv_way way,
                     struct op_data *data)
{
    struct der_ctx *ctx = test_ctx_new(1);
    struct backend *be = NULL;
    struct op_runner runner;
    const struct backend_options options = {.precision = PRECISION_BF16, .tuning = tuning};
    assert_ok(ctx, backend_open(ctx, cuda_backend.name, &options, &be));
    op_runner_init(&runner, be, c);
    const struct cuda_program *p = (const struct cuda_program *)runner.program;
    const enum cuda_conv_way met = p->steps[0].conv->way;
    assert_int_equal(met == CONV_BY_THIN ? CONV_BY_CUDNN : met,
                     way); /* either computes what is expected */
    op_runner_run(&runner, data);
    op_runner_fini(&runner);
    backend_close(be);
    test_ctx_free(ctx);
}

/* Either result is rounded to eight bits, and so is, without strips, perhaps the sum before the bias: relative 2^-9,
 * squared 4e-6, up to three times. */
static void compare_case(const struct op_case *c, struct backend_tuning without,
                         enum cuda_conv_way way)
{
    struct op_data expected;
    struct op_data actual;
    char text[OPCASE_TEXT_MAX];
    op_data_init(&expected, c);
    op_data_copy(&actual, &expected, c);
    run_case(c, without, CONV_BY_CUDNN, &expected);
    run_case(c, (struct backend_tuning){0}, way, &actual);
    assert_tensor_close(actual.out[0], expected.out[0], shape_count(c->out[0].shape), 1.2e-5,
                        op_case_text(c, text));
    op_data_fini(&expected);
    op_data_fini(&actual);
}

static void test_the_back_end_computes_the_same_with_strips(void **state)
{
    (void)state;
    enum { N = 64 };
    static const enum op ops[] = {OP_CONV2D, OP_CONV2D_AFFINE, OP_CONV2D_D_SRC,
                                  OP_CONV2D_D_WEIGHTS};
    static const int shapes[] = {0, 7, 1, 3}; /* all of them are whole tiles, two for weights too */
    skip_without_hopper();
    for (int i = 0; i < 4 * 4; i++) {
        if (ops[i % 4] == OP_CONV2D_D_WEIGHTS && i / 4 >= 2)
            continue;
        const struct conv_layer layer = layer_of(shapes[i / 4], N);
        const struct op_case c = case_of(ops[i % 4], &layer);
        compare_case(&c, (struct backend_tuning){.without_strips = true}, CONV_BY_STRIP);
    }
}

static void test_the_back_end_computes_the_same_gradients_of_shortcuts(void **state)
{
    (void)state;
    static const struct conv_layer layers[] = {{64, 32, 32, 64, 128, 1, 2},
                                               {65, 8, 8, 256, 512, 1, 2}};
    skip_without_hopper();
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
        const struct op_case c = case_of(OP_CONV2D_D_WEIGHTS, &layers[i]);
        compare_case(&c, (struct backend_tuning){.without_strips = true}, CONV_BY_STRIP);
    }
}

/* Channels are padded in one way with them, and in another without. */
static void test_the_back_end_computes_the_same_with_sheets(void **state)
{
    (void)state;
    static const struct conv_layer layers[] = {{64, 16, 16, 70, 67, 3, 1},
                                               {65, 8, 8, 200, 75, 3, 1},
                                               {64, 8, 8, 72, 137, 3, 1},
                                               {64, 32, 32, 30, 112, 3, 2},
                                               {65, 16, 16, 72, 200, 3, 2}};
    skip_without_hopper();
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
        const struct op_case c = case_of(OP_CONV2D_AFFINE, &layers[i]);
        compare_case(&c, (struct backend_tuning){.without_sheets = true}, CONV_BY_SHEET);
    }
}

/* A program of one convolution of c channels into as many, 32 x 32 pixels; no GPU is asked anything. */
struct one_step {
    struct hand_program hand;
    struct cuda_value values[3]; /* source, weights, result */
    struct cuda_derived derived;
    struct cuda_step step;
    int in[2], out;
};

enum { SRC, WEIGHTS, DST };

static void step_init(struct one_step *s, enum op op, int64_t n, int64_t c, bool strips)
{
    const struct conv_layer layer = {n, 32, 32, c, c, 3, 1};
    const struct hand_parts parts = {s->values, 3, WEIGHTS, &s->step, 1, &s->derived};
    *s = (struct one_step){0};
    hand_program_init(&s->hand, &parts, &layer, strips);
    s->out = op == OP_CONV2D_D_SRC ? SRC : op == OP_CONV2D_D_WEIGHTS ? WEIGHTS : DST;
    s->in[0] = op == OP_CONV2D_D_SRC ? DST : SRC;
    s->in[1] = op == OP_CONV2D_D_WEIGHTS ? DST : WEIGHTS;
    s->step.node = (struct node){.op = op, .in = s->in, .n_in = 2, .out = &s->out, .n_out = 1};
    s->step.node.attr.conv = (struct conv_attr){.stride = 1, .pad = 1};
    assert_ok(s->hand.ctx, cuda_conv_init(&s->hand.p, &s->step));
}

/* Without strips these layers are thin. */
static void test_steps_take_strips_where_they_are_wanted(void **state)
{
    (void)state;
    static const struct {
        enum op op;
        int64_t n;
        bool strips;
        enum cuda_conv_way way;
    } cases[] = {
        {OP_CONV2D, 128, true, CONV_BY_STRIP},         {OP_CONV2D, 128, false, CONV_BY_THIN},
        {OP_CONV2D, 32, true, CONV_BY_THIN},           {OP_CONV2D_D_SRC, 128, true, CONV_BY_STRIP},
        {OP_CONV2D_D_SRC, 128, false, CONV_BY_THIN},   {OP_CONV2D_D_SRC, 32, true, CONV_BY_THIN},
        {OP_CONV2D_D_WEIGHTS, 128, true, CONV_BY_THIN}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct one_step s;
        step_init(&s, cases[i].op, cases[i].n, 32, cases[i].strips);
        assert_int_equal(s.step.conv->way, cases[i].way);
        assert_null(s.step.conv->plan);
        hand_program_fini(&s.hand);
    }
}

/* cuDNN, which is not there, would be asked for these otherwise; and what runs is not what runs for thin layers. */
static void test_strips_need_no_plan(void **state)
{
    (void)state;
    static const enum op ops[] = {OP_CONV2D, OP_CONV2D_D_SRC, OP_CONV2D_D_WEIGHTS};
    for (int i = 0; i < 3; i++) {
        const bool is_gradient = ops[i] == OP_CONV2D_D_WEIGHTS;
        struct one_step strip;
        struct one_step thin;
        step_init(&strip, ops[i], 128, 64, true);
        step_init(&thin, ops[i], 128, 32, false);
        assert_int_equal(strip.step.conv->way, CONV_BY_STRIP);
        assert_null(strip.step.conv->plan);
        assert_int_equal(strip.step.conv->grad_type == CUDA_BF16, is_gradient);
        assert_int_equal(strip.step.scratch_bytes > 0, is_gradient);
        assert_true(strip.step.run != thin.step.run);
        hand_program_fini(&thin.hand);
        hand_program_fini(&strip.hand);
    }
}

/* Room for the gradient before it is written out, and for sums of blocks behind it. */
static void test_gradients_of_weights_have_their_scratch(void **state)
{
    (void)state;
    struct one_step s;
    step_init(&s, OP_CONV2D_D_WEIGHTS, 128, 64, true);
    const struct cuda_conv *conv = s.step.conv;
    const int splits = cuda_strip_splits(&conv->shape);
    assert_int_equal(cuda_conv_raw_bytes(conv), 64 * 9 * 64 * 2);
    assert_int_equal(s.step.scratch_bytes,
                     cuda_conv_raw_bytes(conv) + cuda_strip_grad_scratch(&conv->shape, splits));
    hand_program_fini(&s.hand);
}

/* ---- the rule ------------------------------------------------------------------------------------------ */

static void test_what_is_served(void **state)
{
    (void)state;
    for (int i = 0; i < N_SHAPES; i++) {
        const struct conv_layer layer = layer_of(i, 128);
        struct cuda_conv_shape s = conv_layer_shape(&layer);
        assert_true(cuda_strip_serves(&s, DNN_FORWARD));
        assert_int_equal(cuda_strip_serves(&s, DNN_D_SRC), !SHAPES[i].forward_only);
        assert_int_equal(cuda_strip_serves(&s, DNN_D_WEIGHTS), s.c % 64 == 0 && s.k % 64 == 0);
        s.n = 64;
        assert_true(cuda_strip_serves(&s, DNN_FORWARD));
        s.n = 63;
        assert_false(cuda_strip_serves(&s, DNN_FORWARD));
        assert_true(cuda_strip_exists(&s, false));
    }
}

static void assert_unknown(const struct cuda_conv_shape *s)
{
    assert_false(cuda_strip_serves(s, DNN_FORWARD));
    assert_false(cuda_strip_serves(s, DNN_D_SRC));
}

static void test_what_is_not_served(void **state)
{
    (void)state;
    const struct conv_layer layer = layer_of(0, 128);
    const struct cuda_conv_shape shape = conv_layer_shape(&layer);
    struct cuda_conv_shape s = shape;
    s.type = CUDA_F32;
    assert_unknown(&s);
    s = shape, s.c = 80;
    assert_unknown(&s);
    s = shape, s.k = 128;
    assert_unknown(&s);
    s = shape, s.h = 16;
    assert_unknown(&s);
    s = shape, s.w = 16;
    assert_unknown(&s);
    s = shape, s.stride = 2;
    assert_unknown(&s);
    s = shape, s.pad = 0;
    assert_unknown(&s);
    s = shape, s.r = 1;
    assert_unknown(&s);
    s = shape, s.s = 1;
    assert_unknown(&s);
    s = shape, s.n = INT32_MAX / 1024; /* more pixels than an int counts */
    assert_unknown(&s);
}

/* Such a launch fails; it does not begin. */
static void test_no_kernel_is_an_error(void **state)
{
    (void)state;
    const struct conv_layer layer = layer_of(0, 128);
    struct cuda_conv_shape s = conv_layer_shape(&layer);
    const struct cuda_thin operands = {0};
    s.c = 16;
    assert_int_equal(cuda_strip(&s, &operands, NULL), cudaErrorInvalidValue);
    assert_int_equal(cuda_strip_d_src(&s, NULL, NULL, NULL, NULL), cudaErrorInvalidValue);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forward),
        cmocka_unit_test(test_forward_with_bias_residual_and_relu),
        cmocka_unit_test(test_gradient_of_data),
        cmocka_unit_test(test_the_back_end_computes_the_same_with_strips),
        cmocka_unit_test(test_the_back_end_computes_the_same_gradients_of_shortcuts),
        cmocka_unit_test(test_the_back_end_computes_the_same_with_sheets),
        cmocka_unit_test(test_steps_take_strips_where_they_are_wanted),
        cmocka_unit_test(test_strips_need_no_plan),
        cmocka_unit_test(test_gradients_of_weights_have_their_scratch),
        cmocka_unit_test(test_what_is_served),
        cmocka_unit_test(test_what_is_not_served),
        cmocka_unit_test(test_no_kernel_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

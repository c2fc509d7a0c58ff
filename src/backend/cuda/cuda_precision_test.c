/*
 * Every op in bf16 and in TF32 against the reference.
 *
 * In bf16 the inputs of both sides are rounded to bf16 first, so that what remains is the rounding of
 * results (relative 2^-9, squared 4e-6 at most, a third of that on average) and of weights with a
 * batch norm folded in. Statistics over a handful of numbers amplify it. TF32 rounds the operands of
 * convolutions to 2^-11, which leaves about 2e-7 of the square.
 */
#include "support/cases.h"
#include "support/tensor_check.h"
#include "support/test_ctx.h"

#include <stdlib.h>
#include <string.h>

struct parity {
    struct der_ctx *ctx;
    struct backend *ref, *cuda;
    enum precision precision;
};

static double limit_of(enum precision precision, const struct op_case *c)
{
    if (precision == PRECISION_TF32)
        return 1e-6;
    if (c->op == OP_BATCHNORM || c->op == OP_BATCHNORM_GRAD)
        return 1e-4;
    /* Folded weights and the mean's share are rounded apart, and may cancel in a handful of results. */
    if (c->op == OP_CONV2D_AFFINE)
        return 1e-3;
    return 2e-5;
}

/* To the nearest number with eight bits, ties to even. */
static void round_to_bf16(float *data, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        uint32_t word;
        memcpy(&word, &data[i], sizeof word);
        if ((word & 0x7f800000U) != 0x7f800000U) /* finite */
            word += 0x7fffU + (word >> 16 & 1U);
        word &= 0xffff0000U;
        memcpy(&data[i], &word, sizeof word);
    }
}

static bool is_float(const struct operand *operand)
{
    return operand->fill != FILL_ABSENT && !operand_is_int(operand);
}

static void compare(void *user, const struct op_case *c)
{
    const struct parity *parity = user;
    struct op_data expected;
    struct op_data actual;
    char text[OPCASE_TEXT_MAX];
    op_data_init(&expected, c);
    for (int i = 0; i < c->n_in && parity->precision == PRECISION_BF16; i++)
        if (is_float(&c->in[i]))
            round_to_bf16(expected.in[i], shape_count(c->in[i].shape));
    op_data_copy(&actual, &expected, c);
    op_case_run(parity->ref, c, &expected);
    op_case_run(parity->cuda, c, &actual);
    for (int i = 0; i < c->n_out; i++) {
        const int64_t n = shape_count(c->out[i].shape);
        if (c->out[i].fill == FILL_RESULT_I32)
            assert_ints_equal(actual.out[i], expected.out[i], n, op_case_text(c, text));
        else if (c->out[i].fill != FILL_ABSENT)
            assert_tensor_close(actual.out[i], expected.out[i], n, limit_of(parity->precision, c),
                                op_case_text(c, text));
    }
    op_data_fini(&expected);
    op_data_fini(&actual);
}

static void compare_all(enum op op, enum precision precision)
{
    struct parity parity = {.ctx = test_ctx_new(1), .precision = precision};
    const struct backend_options options = {.precision = precision};
    assert_ok(parity.ctx, backend_open(parity.ctx, "ref", NULL, &parity.ref));
    assert_ok(parity.ctx, backend_open(parity.ctx, "cuda", &options, &parity.cuda));
    struct case_sink sink = {.visit = compare, .user = &parity};
    cases_of(op, &sink);
    backend_close(parity.cuda);
    backend_close(parity.ref);
    test_ctx_free(parity.ctx);
}

extern const struct backend_ops cuda_backend;

static void test_bf16(void **state)
{
    if (!backend_is_usable(&cuda_backend))
        skip();
    compare_all((enum op)(intptr_t)*state, PRECISION_BF16);
}

static void test_tf32(void **state)
{
    if (!backend_is_usable(&cuda_backend))
        skip();
    compare_all((enum op)(intptr_t)*state, PRECISION_TF32);
}

int main(void)
{
#define OP_TEST(constant, name)                                                                    \
    {"test_" name "_in_bf16", test_bf16, NULL, NULL, (void *)(intptr_t)(constant)},                \
        {"test_" name "_in_tf32", test_tf32, NULL, NULL, (void *)(intptr_t)(constant)},
    const struct CMUnitTest tests[] = {OP_LIST(OP_TEST)};
#undef OP_TEST
    /* Under a sanitizer a test takes minutes: several processes share them (tools/gpu_check.sh). */
    const char *names = getenv("DER_TEST_NAMES");
    if (names)
        cmocka_set_test_filter(names);
    return cmocka_run_group_tests_name("cuda_precision", tests, NULL, NULL);
}

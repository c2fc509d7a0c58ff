/*
 * Conformance: every back end against the reference, op by op.
 *
 * The tolerance is on the normalised mean squared error. Direct f32 kernels stay below 1e-13,
 * Winograd convolutions below 1e-11; 1e-10 leaves room for both and hides no real error.
 */
#include "support/test_backend.h"
#include "support/cases.h"
#include "support/tensor_check.h"
#include "support/test_ctx.h"

#include <stdlib.h>
#include <string.h>

static const double NMSE_MAX = 1e-10;

enum { TEST_THREADS = 2 };

/* The two back ends that are compared. */
struct parity {
    struct der_ctx *ctx;
    struct backend *ref;
    struct backend *other;
};

static void compare_operand(const struct op_case *c, const struct operand *operand,
                            const void *actual, const void *expected, const char *which)
{
    if (operand->fill == FILL_ABSENT)
        return;
    char text[2 * OPCASE_TEXT_MAX];
    (void)op_case_text(c, text);
    strcat(strcat(text, " "), which);
    const int64_t n = shape_count(operand->shape);
    if (operand_is_int(operand))
        assert_ints_equal(actual, expected, n, text);
    else
        assert_tensor_close(actual, expected, n, NMSE_MAX, text);
}

static void compare_back_ends(void *user, const struct op_case *c)
{
    static const char *const outputs[OPCASE_MAX_OPERANDS] = {
        "output 0", "output 1", "output 2", "output 3", "output 4",  "output 5",
        "output 6", "output 7", "output 8", "output 9", "output 10", "output 11"};
    const struct parity *parity = user;
    struct op_data expected;
    struct op_data actual;
    op_data_init(&expected, c);
    op_data_copy(&actual, &expected, c);
    op_case_run(parity->ref, c, &expected);
    op_case_run(parity->other, c, &actual);

    for (int i = 0; i < c->n_out; i++)
        compare_operand(c, &c->out[i], actual.out[i], expected.out[i], outputs[i]);
    /* Inputs that were not overwritten are known to be unchanged, NaN or not. */
    const struct node node = {.op = c->op, .attr = c->attr};
    for (int i = 0; i < c->n_in; i++)
        if (node_overwrites_input(&node, i))
            compare_operand(c, &c->in[i], actual.in[i], expected.in[i], "overwritten input");
    op_data_fini(&expected);
    op_data_fini(&actual);
}

/* Calls `test` for every back end but the reference; skips when this build has no other. */
static void for_each_back_end(void (*test)(struct parity *parity, enum op op), enum op op)
{
    int n_others = 0;
    for (const struct backend_ops *const *ops = test_backends(); *ops; ops++) {
        if (strcmp((*ops)->name, "ref") == 0)
            continue;
        struct parity parity = {.ctx = test_ctx_new(TEST_THREADS)};
        assert_ok(parity.ctx, backend_open(parity.ctx, "ref", NULL, &parity.ref));
        assert_ok(parity.ctx, backend_open(parity.ctx, (*ops)->name, NULL, &parity.other));
        test(&parity, op);
        backend_close(parity.other);
        backend_close(parity.ref);
        test_ctx_free(parity.ctx);
        n_others++;
    }
    if (n_others == 0) {
        print_message("this build has no back end but ref: nothing to compare\n");
        skip();
    }
}

static void run_cases(struct parity *parity, enum op op)
{
    struct case_sink sink = {.visit = compare_back_ends, .user = parity};
    cases_of(op, &sink);
}

/* ---- JOIN: a part that is written into its columns of a matrix ------------------------------- */

enum { JOIN_N = 3, JOIN_C = 5, JOIN_D = 13, JOIN_PITCH = 17, JOIN_COL = 6, JOIN_K = 4 };

struct join_result {
    float matrix[JOIN_N * JOIN_PITCH];
    float dst[JOIN_N * JOIN_K];
};

/* linear(join(avgpool(src), matrix), weights) with the matrix bound at a pitch */
static struct join_result run_join(struct backend *be)
{
    struct der_ctx *ctx = be->ctx;
    const struct shape shapes[] = {shape_4d(JOIN_N, JOIN_C, 2, 3), shape_2d(JOIN_N, JOIN_D),
                                   shape_2d(JOIN_K, JOIN_D)};
    const char *const names[] = {"src", "matrix", "weights"};
    struct graph *g;
    int in[3];
    int x;
    assert_ok(ctx, graph_new(ctx, &g));
    for (int i = 0; i < 3; i++)
        assert_ok(ctx, graph_input(g, names[i], DTYPE_F32, shapes[i], &in[i]));
    assert_ok(ctx, graph_avgpool(g, in[0], &x));
    assert_ok(ctx, graph_join(g, x, in[1], JOIN_COL, &x));
    assert_ok(ctx, graph_linear(g, x, in[2], NO_VALUE, &x));
    assert_ok(ctx, graph_expose(g, x));
    struct program *program;
    assert_ok(ctx, program_compile(be, g, &program));
    graph_free(g);

    float content[JOIN_N * JOIN_C * JOIN_PITCH];
    for (int i = 0; i < JOIN_N * JOIN_C * JOIN_PITCH; i++)
        content[i] = (float)(i * 37 % 23) - 11.0F;
    const int values[4] = {in[0], in[1], in[2], x};
    struct buffer *buffers[4];
    for (int i = 0; i < 4; i++) {
        assert_ok(ctx, buffer_new(be, sizeof content, &buffers[i]));
        assert_ok(ctx, buffer_write(buffers[i], 0, content, sizeof content));
        const struct span span = {.buffer = buffers[i], .pitch = i == 1 ? JOIN_PITCH : 0};
        assert_ok(ctx, program_bind(program, values[i], span));
    }
    struct sequence *sequence;
    struct join_result result;
    assert_ok(ctx, sequence_new(be, &(struct sequence_item){.program = program}, 1, &sequence));
    assert_ok(ctx, sequence_run(sequence));
    assert_ok(ctx, buffer_read(buffers[1], 0, result.matrix, sizeof result.matrix));
    assert_ok(ctx, buffer_read(buffers[3], 0, result.dst, sizeof result.dst));

    for (int i = 0; i < JOIN_N * JOIN_PITCH; i++) {
        const int column = i % JOIN_PITCH;
        if (column < JOIN_COL || column >= JOIN_COL + JOIN_C)
            assert_true(result.matrix[i] == content[i]);
    }
    sequence_free(sequence);
    program_free(program);
    for (int i = 0; i < 4; i++)
        buffer_free(buffers[i]);
    return result;
}

static void compare_join(struct parity *parity, enum op op)
{
    (void)op;
    const struct join_result expected = run_join(parity->ref);
    const struct join_result actual = run_join(parity->other);
    assert_tensor_close(actual.matrix, expected.matrix, JOIN_N * JOIN_PITCH, NMSE_MAX,
                        "join matrix");
    assert_tensor_close(actual.dst, expected.dst, JOIN_N * JOIN_K, NMSE_MAX, "linear after join");
}

/* ---- one test per op ------------------------------------------------------------------------ */

static void test_op(void **state)
{
    const enum op op = (enum op)(intptr_t)*state;
    for_each_back_end(op == OP_JOIN ? compare_join : run_cases, op);
}

static void count_case(void *user, const struct op_case *c)
{
    int *n_of_op = user;
    n_of_op[c->op]++;
}

static void test_every_op_has_cases(void **state)
{
    (void)state;
    int n_of_op[OP_COUNT] = {0};
    for (int op = 0; op < OP_COUNT; op++) {
        struct case_sink sink = {.visit = count_case, .user = n_of_op};
        cases_of((enum op)op, &sink);
        if (op != OP_JOIN && n_of_op[op] == 0) {
            print_error("%s has no case\n", op_name((enum op)op));
            fail();
        }
    }
}

int main(void)
{
#define OP_TEST(constant, name)                                                                    \
    {"test_" name "_equals_reference", test_op, NULL, NULL, (void *)(intptr_t)(constant)},
    const struct CMUnitTest tests[] = {OP_LIST(OP_TEST) cmocka_unit_test(test_every_op_has_cases)};
#undef OP_TEST
    return cmocka_run_group_tests_name("parity", tests, NULL, NULL);
}

/* Heads: how they start, what a new one takes over, what pruning leaves of one. */
#include "method/head.h"

#include "support/test_ctx.h"

#include <math.h>

enum { ROWS = 4, COLS = 6, MAX_WEIGHTS = 4096 };

struct fixture {
    struct der_ctx *ctx;
    struct backend *be;
};

static int set_up(void **state)
{
    static struct fixture f;
    f.ctx = test_ctx_new(1);
    assert_ok(f.ctx, backend_open(f.ctx, "ref", NULL, &f.be));
    *state = &f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    backend_close(f->be);
    test_ctx_free(f->ctx);
    return 0;
}

static struct param_set *make(struct fixture *f, int rows, int cols, enum param_init init,
                              uint32_t stream)
{
    struct param_set *head;
    assert_ok(f->ctx, head_new(f->be, "classifier.weight", rows, cols, init, 1, stream, &head));
    return head;
}

/* Weights that tell their place: row + column / 100. */
static void write_places(struct fixture *f, struct param_set *head)
{
    float weights[MAX_WEIGHTS];
    struct shape shape = head->items[0].shape;
    for (int64_t i = 0; i < shape_count(shape); i++)
        weights[i] = (float)(i / shape.dim[1]) + 0.01f * (float)(i % shape.dim[1]);
    assert_ok(f->ctx, param_write(head, 0, weights));
}

static void assert_within(const float *weights, int n, double bound)
{
    double largest = 0.0;
    for (int i = 0; i < n; i++)
        largest = fmax(largest, fabs((double)weights[i]));
    assert_true(largest <= bound);
    assert_true(largest > 0.9 * bound); /* of hundreds of uniform numbers one comes that near */
}

static void test_a_head_is_one_trainable_matrix(void **state)
{
    struct fixture *f = *state;
    struct param_set *head = make(f, 7, 100, INIT_LINEAR_UNIFORM, 0);
    float weights[700];
    assert_int_equal(head->n, 1);
    assert_int_equal(param_set_count(head), 700);
    assert_non_null(head->grads);
    assert_ok(f->ctx, param_read(head, 0, weights));
    assert_within(weights, 700, 0.1);
    param_set_free(head);
}

/* As the authors' code: it replaces the weights under the optimiser, which keeps its velocities. */
static void test_reset_draws_uniform_weights_and_leaves_the_velocity(void **state)
{
    struct fixture *f = *state;
    struct param_set *head = make(f, 7, 100, INIT_LINEAR_NORMAL, 0);
    float before[700];
    float after[700];
    float again[700];
    const float velocity = 3.5f;
    float kept;
    assert_ok(f->ctx, param_read(head, 0, before));
    assert_ok(f->ctx, buffer_write(head->velocity, 0, &velocity, sizeof velocity));
    assert_ok(f->ctx, head_reset(head, 1, 5));
    assert_ok(f->ctx, param_read(head, 0, after));
    assert_memory_not_equal(before, after, sizeof after);
    assert_within(after, 700, 0.1);
    assert_ok(f->ctx, buffer_read(head->velocity, 0, &kept, sizeof kept));
    assert_true(kept == velocity);
    assert_ok(f->ctx, head_reset(head, 1, 6));
    assert_ok(f->ctx, param_read(head, 0, again));
    assert_memory_not_equal(again, after, sizeof after);
    param_set_free(head);
}

/* Old classes keep their weights for old features; the rest is as it was drawn. */
static void check_inherit(struct fixture *f, int from_rows, int from_cols)
{
    struct param_set *from = make(f, from_rows, from_cols, INIT_ZERO, 0);
    struct param_set *head = make(f, ROWS, COLS, INIT_LINEAR_NORMAL, 1);
    float drawn[ROWS * COLS];
    float got[ROWS * COLS];
    write_places(f, from);
    assert_ok(f->ctx, param_read(head, 0, drawn));
    assert_ok(f->ctx, head_inherit(head, from));
    assert_ok(f->ctx, param_read(head, 0, got));
    for (int i = 0; i < ROWS * COLS; i++) {
        int row = i / COLS;
        int col = i % COLS;
        bool is_old = row < from_rows && col < from_cols;
        assert_true(got[i] == (is_old ? (float)row + 0.01f * (float)col : drawn[i]));
    }
    param_set_free(head);
    param_set_free(from);
}

static void test_inherit_copies_what_both_heads_have(void **state)
{
    check_inherit(*state, ROWS - 1, COLS - 2); /* a step of DER */
    check_inherit(*state, ROWS - 1, COLS);     /* one extractor, trained on */
    check_inherit(*state, ROWS + 2, COLS + 3);
}

static void test_select_keeps_the_listed_columns(void **state)
{
    struct fixture *f = *state;
    struct param_set *head = make(f, ROWS, COLS, INIT_ZERO, 0);
    struct param_set *selected;
    static const int32_t cols[] = {0, 2, 5};
    float velocity[ROWS * COLS];
    float got[ROWS * 3];
    for (int i = 0; i < ROWS * COLS; i++)
        velocity[i] = (float)-i;
    write_places(f, head);
    assert_ok(f->ctx, param_write_velocity(head, 0, velocity));
    assert_ok(f->ctx, head_select(head, cols, 3, &selected));
    assert_true(shape_equal(selected->items[0].shape, shape_2d(ROWS, 3)));
    assert_string_equal(selected->items[0].name, "classifier.weight");
    assert_ok(f->ctx, param_read(selected, 0, got));
    for (int i = 0; i < ROWS * 3; i++)
        assert_true(got[i] == (float)(i / 3) + 0.01f * (float)cols[i % 3]);
    assert_ok(f->ctx, param_read_velocity(selected, 0, got));
    for (int i = 0; i < ROWS * 3; i++)
        assert_true(got[i] == -(float)(i / 3 * COLS + cols[i % 3]));
    param_set_free(selected);
    param_set_freeze(head);
    assert_ok(f->ctx, head_select(head, cols, 3, &selected));
    assert_ok(f->ctx, param_read_velocity(selected, 0, got));
    for (int i = 0; i < ROWS * 3; i++)
        assert_true(got[i] == 0.0f);
    param_set_free(selected);
    param_set_free(head);
}

/* Rows of lengths 1 and 3 before, 5 and 3 behind: the mean of the new ones becomes 2, the others stay. */
static void test_align_gives_new_rows_the_length_of_old_ones(void **state)
{
    struct fixture *f = *state;
    static const float weights[ROWS * 2] = {1, 0, 0, -3, 3, 4, -3, 0};
    static const float want[ROWS * 2] = {1, 0, 0, -3, 1.5f, 2, -1.5f, 0};
    float got[ROWS * 2];
    struct param_set *head = make(f, ROWS, 2, INIT_ZERO, 0);
    assert_ok(f->ctx, head_align(head, 2)); /* nothing to go by: they stay 0 */
    assert_ok(f->ctx, param_read(head, 0, got));
    for (int i = 0; i < ROWS * 2; i++)
        assert_true(got[i] == 0.0f);
    assert_ok(f->ctx, param_write(head, 0, weights));
    assert_ok(f->ctx, head_align(head, 2));
    assert_ok(f->ctx, param_read(head, 0, got));
    for (int i = 0; i < ROWS * 2; i++)
        assert_true(got[i] == want[i]);
    param_set_free(head);
}

/* Rows of old classes stay, those of new ones are scaled, and have a bias; the head itself is what it was. */
static void test_correction_is_a_head_of_its_own(void **state)
{
    struct fixture *f = *state;
    struct param_set *head = make(f, ROWS, COLS, INIT_ZERO, 0);
    struct param_set *corrected;
    float before[ROWS * COLS];
    float got[ROWS * COLS];
    float bias[ROWS];
    write_places(f, head);
    assert_ok(f->ctx, param_read(head, 0, before));
    assert_ok(f->ctx, head_correct(head, 3, 0.5, -1.25, &corrected));
    assert_null(corrected->grads);
    assert_int_equal(corrected->n, 2);
    assert_string_equal(corrected->items[0].name, "classifier.weight");
    assert_string_equal(corrected->items[1].name, "classifier.bias");
    assert_ok(f->ctx, param_read(corrected, 0, got));
    for (int i = 0; i < ROWS * COLS; i++)
        assert_true(got[i] == (i < 3 * COLS ? before[i] : 0.5f * before[i]));
    assert_ok(f->ctx, param_read(corrected, 1, bias));
    for (int row = 0; row < ROWS; row++)
        assert_true(bias[row] == (row < 3 ? 0.0f : -1.25f));
    assert_ok(f->ctx, param_read(head, 0, got));
    assert_memory_equal(got, before, sizeof before);
    param_set_free(corrected);
    param_set_free(head);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_a_head_is_one_trainable_matrix),
        TEST(test_reset_draws_uniform_weights_and_leaves_the_velocity),
        TEST(test_inherit_copies_what_both_heads_have),
        TEST(test_align_gives_new_rows_the_length_of_old_ones),
        TEST(test_correction_is_a_head_of_its_own),
        TEST(test_select_keeps_the_listed_columns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

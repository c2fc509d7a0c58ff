/*
 * Losses, ranks, masks and rows of matrices against the formulas of graph/op.h written down
 * once more, in double and without care for overflow; gradients against central differences.
 */
#include "backend/cpu/cpu_test_image.h"

#include "support/tensor_check.h"

#include <math.h>

enum { ROWS = 6, COLS = 7, TEACHER_COLS = 9, ENTRIES = ROWS * COLS };

/* A step of 1e-5 in double leaves about 1e-10 of truncation and rounding, relative. */
#define DIFFERENCE_TOLERANCE 1e-14

static const int32_t LABELS[ROWS] = {0, 3, 6, 1, 2, 5};

/* ---- losses: each formula gives the value for logits [ROWS][COLS] ------------------------------- */

static double teacher_at(const struct cpu_loss *args, int64_t n, int64_t j)
{
    return (double)args->teacher.data[n * args->teacher.pitch + j];
}

static double softmax_at(const double *row, int64_t count, double temperature, int64_t j)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += exp(row[i] / temperature);
    return exp(row[j] / temperature) / sum;
}

static double xent_formula(const double *logits, const struct cpu_loss *args)
{
    const struct loss_attr *a = &args->attr;
    double sum = 0;
    int64_t rows = 0;
    for (int64_t n = 0; n < ROWS; n++) {
        int64_t t = args->labels[n] - a->label_shift;
        t = a->clamp_low && t < 0 ? 0 : t;
        if (t < 0 || t >= a->count)
            continue;
        sum -= log(softmax_at(logits + n * COLS + a->first, a->count, (double)a->temperature, t));
        rows++;
    }
    return rows > 0 ? sum / (double)rows : 0;
}

static double distill_formula(const double *logits, const struct cpu_loss *args)
{
    const struct loss_attr *a = &args->attr;
    double sum = 0;
    for (int64_t n = 0; n < ROWS; n++) {
        double teacher[TEACHER_COLS];
        for (int64_t j = 0; j < a->count; j++)
            teacher[j] = teacher_at(args, n, a->teacher_first + j);
        const double *student = logits + n * COLS + a->first;
        for (int64_t j = 0; j < a->count; j++)
            sum -= softmax_at(teacher, a->count, (double)a->temperature, j) *
                   log(softmax_at(student, a->count, (double)a->temperature, j));
    }
    return sum / ROWS;
}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static double bce_formula(const double *logits, const struct cpu_loss *args)
{
    double sum = 0;
    for (int64_t n = 0; n < ROWS; n++)
        for (int64_t j = 0; j < COLS; j++) {
            double t = j == args->labels[n];
            if (j < args->attr.n_old)
                t = sigmoid(teacher_at(args, n, j));
            const double y = sigmoid(logits[n * COLS + j]);
            sum -= t * log(y) + (1 - t) * log(1 - y);
        }
    return sum / ENTRIES;
}

static double cosine_formula(const double *logits, const struct cpu_loss *args)
{
    double sum = 0;
    for (int64_t n = 0; n < ROWS; n++) {
        double aa = 0;
        double bb = 0;
        double ab = 0;
        for (int64_t j = 0; j < COLS; j++) {
            const double a = logits[n * COLS + j];
            const double b = teacher_at(args, n, j);
            aa += a * a;
            bb += b * b;
            ab += a * b;
        }
        sum += 1 - ab / sqrt(aa * bb);
    }
    return sum / ROWS;
}

/* For top_k 2. */
static double margin_formula(const double *logits, const struct cpu_loss *args)
{
    const struct loss_attr *a = &args->attr;
    double sum = 0;
    int64_t terms = 0;
    for (int64_t n = 0; n < ROWS; n++) {
        if (args->labels[n] >= a->n_old)
            continue;
        const double *row = logits + n * COLS;
        double best[2] = {-INFINITY, -INFINITY};
        for (int64_t j = a->n_old; j < COLS; j++) {
            const double x = row[j];
            best[1] = x > best[0] ? best[0] : fmax(best[1], x);
            best[0] = fmax(best[0], x);
        }
        for (int k = 0; k < 2; k++)
            sum += fmax(0, (double)a->margin - row[args->labels[n]] + best[k]);
        terms += 2;
    }
    return terms > 0 ? sum / (double)terms : 0;
}

/* Logits and teacher with pitches, a weight, and room for the gradient between sentinels. */
static struct cpu_loss loss_args(struct fixture *f, struct loss_attr attr)
{
    static const float weight = 0.7F;
    float *d = take_guarded(f, ENTRIES);
    struct cpu_loss args = {
        .logits = {take_random(f, ROWS * (COLS + 4)), ROWS, COLS, COLS + 4},
        .teacher = {take_random(f, ROWS * TEACHER_COLS), ROWS, COLS, TEACHER_COLS},
        .labels = LABELS,
        .weight = &weight,
        .attr = attr,
        .loss = take(f, 1, sizeof(float)),
        .d_logits = {d, ROWS, COLS, COLS},
    };
    for (int64_t i = 0; i < ROWS * args.logits.pitch; i++)
        args.logits.data[i] *= 3;
    return args;
}

static void check_loss(const struct cpu_loss *args, void (*kernel)(const struct cpu_loss *),
                       double (*formula)(const double *, const struct cpu_loss *))
{
    double logits[ENTRIES];
    for (int64_t i = 0; i < ENTRIES; i++)
        logits[i] = (double)args->logits.data[i / COLS * args->logits.pitch + i % COLS];
    const float want = (float)formula(logits, args);
    float want_d[ENTRIES];
    for (int64_t i = 0; i < ENTRIES; i++) {
        const double step = 1e-5;
        const double x = logits[i];
        logits[i] = x + step;
        const double above = formula(logits, args);
        logits[i] = x - step;
        const double below = formula(logits, args);
        logits[i] = x;
        want_d[i] = (float)((double)*args->weight * (above - below) / (2 * step));
    }

    kernel(args);
    assert_tensor_close(args->loss, &want, 1, KERNEL_TOLERANCE, "loss");
    assert_tensor_close(args->d_logits.data, want_d, ENTRIES, DIFFERENCE_TOLERANCE, "d_logits");
    assert_guarded(args->d_logits.data, ENTRIES);

    const float value = *args->loss;
    struct cpu_loss bare = *args;
    bare.d_logits.data = NULL;
    *bare.loss = 0;
    kernel(&bare);
    assert_true(*bare.loss == value);
}

static void test_cross_entropy_over_all_columns(void **state)
{
    const struct loss_attr attr = {.count = COLS, .temperature = 1};
    const struct cpu_loss args = loss_args(fixture_of(state), attr);
    check_loss(&args, cpu_softmax_xent, xent_formula);
}

static void test_cross_entropy_leaves_out_labels_outside_the_range(void **state)
{
    const struct loss_attr attr = {.first = 2, .count = 4, .label_shift = 2, .temperature = 2};
    const struct cpu_loss args = loss_args(fixture_of(state), attr);
    check_loss(&args, cpu_softmax_xent, xent_formula);
}

static void test_cross_entropy_clamps_old_labels_to_the_first_column(void **state)
{
    const struct loss_attr attr = {
        .first = 1, .count = 4, .label_shift = 3, .clamp_low = true, .temperature = 1};
    const struct cpu_loss args = loss_args(fixture_of(state), attr);
    check_loss(&args, cpu_softmax_xent, xent_formula);
}

static void test_cross_entropy_without_rows_is_zero(void **state)
{
    const struct loss_attr attr = {.count = 2, .label_shift = 100, .temperature = 1};
    const struct cpu_loss args = loss_args(fixture_of(state), attr);
    cpu_softmax_xent(&args);
    assert_true(*args.loss == 0);
    for (int64_t i = 0; i < ENTRIES; i++)
        assert_true(args.d_logits.data[i] == 0);
}

static void test_cross_entropy_survives_huge_logits(void **state)
{
    const struct loss_attr attr = {.count = COLS, .temperature = 1};
    const struct cpu_loss args = loss_args(fixture_of(state), attr);
    for (int64_t i = 0; i < ROWS * args.logits.pitch; i++)
        args.logits.data[i] = i % 2 ? 1e30F : -1e30F;
    cpu_softmax_xent(&args);
    assert_true(isfinite(*args.loss));
    for (int64_t i = 0; i < ENTRIES; i++)
        assert_true(isfinite(args.d_logits.data[i]));
}

static void test_distillation_follows_the_formula(void **state)
{
    const struct loss_attr attr = {.first = 1, .count = 5, .teacher_first = 3, .temperature = 2};
    const struct cpu_loss args = loss_args(fixture_of(state), attr);
    check_loss(&args, cpu_distill, distill_formula);
}

static void test_sigmoid_cross_entropy_with_and_without_teacher(void **state)
{
    struct loss_attr attr = {.n_old = 3};
    struct cpu_loss args = loss_args(fixture_of(state), attr);
    check_loss(&args, cpu_bce, bce_formula);
    attr.n_old = 0;
    args = loss_args(fixture_of(state), attr);
    args.teacher.data = NULL;
    check_loss(&args, cpu_bce, bce_formula);
}

static void test_cosine_loss_follows_the_formula(void **state)
{
    const struct cpu_loss args = loss_args(fixture_of(state), (struct loss_attr){0});
    check_loss(&args, cpu_cosine_loss, cosine_formula);
}

static void test_margin_loss_follows_the_formula(void **state)
{
    struct loss_attr attr = {.n_old = 4, .top_k = 2, .margin = 0.5F};
    struct cpu_loss args = loss_args(fixture_of(state), attr);
    check_loss(&args, cpu_margin_loss, margin_formula);
    args.attr.n_old = 0; /* no row is old */
    cpu_margin_loss(&args);
    assert_true(*args.loss == 0);
}

static void test_rank_counts_what_beats_the_label(void **state)
{
    (void)state;
    float logits[] = {5, 1, 3, 3, NAN, 3, 2, 9};
    const struct cpu_matrix matrix = {logits, 2, 4, 4};
    const struct loss_attr all = {.count = 4};
    int32_t rank[2];
    cpu_rank(rank, matrix, (const int32_t[]){3, 0}, &all);
    assert_int_equal(rank[0], 2); /* the 5, and the equal 3 to the left */
    assert_int_equal(rank[1], 4); /* NaN comes last */
    const struct loss_attr right = {.first = 2, .count = 2};
    cpu_rank(rank, matrix, (const int32_t[]){2, 1}, &right);
    assert_int_equal(rank[0], 0);
    assert_int_equal(rank[1], 1);
}

/* ---- matrices ----------------------------------------------------------------------------------- */

static void test_l2norm_gives_rows_of_length_one(void **state)
{
    struct fixture *f = fixture_of(state);
    float *x = take_random(f, ROWS * (COLS + 2));
    float *y = take_guarded(f, ENTRIES);
    float inv_norm[ROWS];
    const struct cpu_matrix src = {x, ROWS, COLS, COLS + 2};
    const struct cpu_matrix dst = {y, ROWS, COLS, COLS};
    memset(x, 0, COLS * sizeof *x);
    cpu_l2norm(dst, inv_norm, src, 1e-12F);
    for (int n = 0; n < ROWS; n++) {
        double square = 0;
        for (int j = 0; j < COLS; j++)
            square += (double)y[n * COLS + j] * (double)y[n * COLS + j];
        assert_true(fabs(square - (n > 0)) < 1e-6); /* a row of zeros stays one */
    }
    assert_guarded(y, ENTRIES);
}

/* d_src against differences of sum(d_dst * dst). */
static void test_l2norm_gradient_matches_differences(void **state)
{
    struct fixture *f = fixture_of(state);
    const float eps = 0.5F;
    float *x = take_random(f, ENTRIES);
    float *d = take_random(f, ENTRIES);
    float *y = take(f, ENTRIES, sizeof *y);
    float *d_x = take_guarded(f, ENTRIES);
    float inv_norm[ROWS];
    float want[ENTRIES];
    for (int j = 0; j < COLS; j++)
        x[j] *= 0.1F; /* the first row is shorter than eps */
    const struct cpu_matrix src = {x, ROWS, COLS, COLS};
    const struct cpu_matrix dst = {y, ROWS, COLS, COLS};
    const struct cpu_matrix d_dst = {d, ROWS, COLS, COLS};
    const struct cpu_matrix d_src = {d_x, ROWS, COLS, COLS};
    for (int i = 0; i < ENTRIES; i++) {
        double sum[2] = {0};
        for (int side = 0; side < 2; side++) {
            double square = 0;
            double along = 0;
            for (int j = 0; j < COLS; j++) {
                const int k = i / COLS * COLS + j;
                const double moved = (double)x[k] + (k == i ? (side ? 1e-5 : -1e-5) : 0);
                square += moved * moved;
                along += moved * (double)d[k];
            }
            sum[side] = along / fmax(sqrt(square), (double)eps);
        }
        want[i] = (float)((sum[1] - sum[0]) / 2e-5);
    }
    cpu_l2norm(dst, inv_norm, src, eps);
    cpu_l2norm_grad(d_src, d_dst, dst, inv_norm, eps);
    assert_tensor_close(d_x, want, ENTRIES, KERNEL_TOLERANCE, "d_src");
    assert_guarded(d_x, ENTRIES);
}

static void test_bias_is_added_and_its_gradient_summed(void **state)
{
    enum { WIDE = 130 };
    struct fixture *f = fixture_of(state);
    float *x = take_random(f, ROWS * (WIDE + 3));
    const float *bias = take_random(f, WIDE);
    float *got = take_guarded(f, WIDE);
    float want[WIDE];
    const struct cpu_matrix matrix = {x, ROWS, WIDE, WIDE + 3};
    const float before = x[WIDE + 3 + 5];
    const float beyond = x[WIDE];
    cpu_bias_add(matrix, bias);
    assert_true(x[WIDE + 3 + 5] == before + bias[5]);
    assert_true(x[WIDE] == beyond);
    for (int j = 0; j < WIDE; j++) {
        double sum = 0;
        for (int n = 0; n < ROWS; n++)
            sum += (double)x[n * matrix.pitch + j];
        want[j] = (float)sum;
    }
    cpu_bias_grad(got, matrix);
    assert_same_bytes(got, want, WIDE);
    assert_guarded(got, WIDE);
}

/* ---- masks -------------------------------------------------------------------------------------- */

enum { N_MASKS = 3 };
static const int64_t SIZES[N_MASKS] = {4, 1, 6};

static void take_masks(struct fixture *f, float **masks)
{
    for (int i = 0; i < N_MASKS; i++)
        masks[i] = take_random(f, SIZES[i]);
}

static void test_gate_is_a_sigmoid_and_at_infinity_hard(void **state)
{
    struct fixture *f = fixture_of(state);
    float *e[N_MASKS];
    float *m[N_MASKS];
    take_masks(f, e);
    take_masks(f, m);
    for (int64_t c = 0; c < SIZES[0]; c++)
        e[0][c] = c == 0 ? -2.0F : -1.0F; /* none above 0 */
    float s = 3;
    const struct cpu_mask_gate gate = {N_MASKS, SIZES, &s, e, m};
    cpu_mask_gate(&gate);
    for (int i = 0; i < N_MASKS; i++)
        for (int64_t c = 0; c < SIZES[i]; c++)
            assert_true(fabs((double)m[i][c] - sigmoid(3 * (double)e[i][c])) < 1e-7);
    s = INFINITY;
    cpu_mask_gate(&gate);
    for (int64_t c = 0; c < SIZES[0]; c++)
        assert_true(m[0][c] == (c == 1 ? 1 : 0)); /* the first of the largest */
    assert_true(m[1][0] == 1);
    for (int64_t c = 0; c < SIZES[2]; c++)
        assert_true(m[2][c] == (e[2][c] > 0 ? 1 : 0));
}

static void test_gate_gradient_follows_both_formulas(void **state)
{
    struct fixture *f = fixture_of(state);
    float *e[N_MASKS];
    float *d_m[N_MASKS];
    float *d_e[N_MASKS];
    take_masks(f, e);
    take_masks(f, d_m);
    take_masks(f, d_e);
    float s = 20;
    struct cpu_mask_gate_grad grad = {N_MASKS, SIZES, &s, e, d_m, d_e, {MASK_GRADIENT_EXACT, 400}};
    cpu_mask_gate_grad(&grad);
    const double x = (double)e[2][3];
    const double exact = (double)d_m[2][3] * sigmoid(x) * sigmoid(-x);
    assert_true(fabs((double)d_e[2][3] - exact) < 1e-7 * fabs(exact));

    grad.attr.gradient = MASK_GRADIENT_HAT;
    cpu_mask_gate_grad(&grad);
    const double y = (double)(float)sigmoid(20 * x);
    const double clipped = fmin(fmax(20 * x, -50), 50);
    const double hat = (double)d_m[2][3] * y * (1 - y) * 400 * (cosh(clipped) + 1) / (cosh(x) + 1);
    assert_true(fabs((double)d_e[2][3] - hat) < 1e-6 * fabs(hat));

    s = INFINITY;
    cpu_mask_gate_grad(&grad);
    for (int64_t c = 0; c < SIZES[2]; c++)
        assert_true(d_e[2][c] == 0);
}

static void test_sparsity_counts_weights_in_use(void **state)
{
    static const struct sparsity_layer layers[] = {{-1, 0, 9, 3}, {0, 2, 9, 0}, {2, 2, 1, 0}};
    struct fixture *f = fixture_of(state);
    float *m[N_MASKS];
    float *d_m[N_MASKS];
    take_masks(f, m);
    take_masks(f, d_m);
    const double total = 9 * 3 * 4 + 9 * 4 * 6 + 6 * 6;
    const float weight = 2;
    float loss = 0;
    double sums[N_MASKS] = {0};
    for (int i = 0; i < N_MASKS; i++)
        for (int64_t c = 0; c < SIZES[i]; c++)
            sums[i] += (double)m[i][c];
    const struct cpu_mask_sparsity args = {
        N_MASKS,
        SIZES,
        &weight,
        m,
        d_m,
        &loss,
        {layers, 3, total, NULL},
        take(f, 4 * (int64_t)N_MASKS, sizeof(float)),
    };
    cpu_mask_sparsity(&args);
    const double value = 27 * sums[0] + 9 * sums[0] * sums[2] + sums[2] * sums[2];
    const double slope0 = 27 + 9 * sums[2];
    const double slope2 = 9 * sums[0] + 2 * sums[2];
    assert_true(fabs((double)loss - value / total) < 1e-6);
    for (int64_t c = 0; c < SIZES[0]; c++)
        assert_true(fabs((double)d_m[0][c] - 2 * slope0 / total) < 1e-6);
    assert_true(d_m[1][0] == 0);
    for (int64_t c = 0; c < SIZES[2]; c++)
        assert_true(fabs((double)d_m[2][c] - 2 * slope2 / total) < 1e-6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        KERNEL_TEST(test_cross_entropy_over_all_columns),
        KERNEL_TEST(test_cross_entropy_leaves_out_labels_outside_the_range),
        KERNEL_TEST(test_cross_entropy_clamps_old_labels_to_the_first_column),
        KERNEL_TEST(test_cross_entropy_without_rows_is_zero),
        KERNEL_TEST(test_cross_entropy_survives_huge_logits),
        KERNEL_TEST(test_distillation_follows_the_formula),
        KERNEL_TEST(test_sigmoid_cross_entropy_with_and_without_teacher),
        KERNEL_TEST(test_cosine_loss_follows_the_formula),
        KERNEL_TEST(test_margin_loss_follows_the_formula),
        KERNEL_TEST(test_rank_counts_what_beats_the_label),
        KERNEL_TEST(test_l2norm_gives_rows_of_length_one),
        KERNEL_TEST(test_l2norm_gradient_matches_differences),
        KERNEL_TEST(test_bias_is_added_and_its_gradient_summed),
        KERNEL_TEST(test_gate_is_a_sigmoid_and_at_infinity_hard),
        KERNEL_TEST(test_gate_gradient_follows_both_formulas),
        KERNEL_TEST(test_sparsity_counts_weights_in_use),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

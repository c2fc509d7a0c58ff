/*
 * Batch normalisation in both directions against plain loops in double, in every layout.
 */
#include "backend/cpu/cpu_test_image.h"

#include "support/tensor_check.h"

#include <math.h>

static const float EPS = 1e-5F;
static const float MOMENTUM = 0.1F;

/* Operands in plain layout; what an op leaves out is NULL. */
struct norm_case {
    struct cpu_image image;
    bool training, relu;
    const float *src, *residual, *gamma, *beta, *mask, *running_mean, *running_var;
    const float *d_dst, *d_dst2;
};

/* Results in plain layout. */
struct norm_result {
    float *dst, *mean, *inv_std, *running_mean, *running_var;
    float *d_src, *d_gamma, *d_beta, *d_mask, *g;
};

static struct norm_result result_new(struct fixture *f, struct cpu_image image)
{
    const size_t size = sizeof(float);
    return (struct norm_result){
        .dst = take(f, plain_count(image), size),
        .mean = take(f, image.c, size),
        .inv_std = take(f, image.c, size),
        .running_mean = take(f, image.c, size),
        .running_var = take(f, image.c, size),
        .d_src = take(f, plain_count(image), size),
        .d_gamma = take(f, image.c, size),
        .d_beta = take(f, image.c, size),
        .d_mask = take(f, image.c, size),
        .g = take(f, plain_count(image), size),
    };
}

/* ---- the loops that are believed ---------------------------------------------------------------- */

static int64_t at(struct cpu_image image, int64_t n, int64_t c, int64_t s)
{
    return (n * image.c + c) * image.spatial + s;
}

static void expect_statistics(const struct norm_case *in, const struct norm_result *out, int64_t c,
                              double *mean, double *inv_std)
{
    const struct cpu_image image = in->image;
    const double m = (double)(image.n * image.spatial);
    double var = 0;
    *mean = 0;
    for (int64_t n = 0; n < image.n; n++)
        for (int64_t s = 0; s < image.spatial; s++)
            *mean += (double)in->src[at(image, n, c, s)] / m;
    for (int64_t n = 0; n < image.n; n++)
        for (int64_t s = 0; s < image.spatial; s++)
            var += pow((double)in->src[at(image, n, c, s)] - *mean, 2) / m;
    if (in->training) {
        out->running_mean[c] = (float)(0.9 * (double)in->running_mean[c] + 0.1 * *mean);
        out->running_var[c] =
            (float)(0.9 * (double)in->running_var[c] + 0.1 * var * (m > 1 ? m / (m - 1) : 1));
    } else {
        *mean = (double)in->running_mean[c];
        var = (double)in->running_var[c];
        out->running_mean[c] = in->running_mean[c];
        out->running_var[c] = in->running_var[c];
    }
    *inv_std = 1 / sqrt(var + (double)EPS);
    out->mean[c] = (float)*mean;
    out->inv_std[c] = (float)*inv_std;
}

static void expect_forward(const struct norm_case *in, const struct norm_result *out)
{
    const struct cpu_image image = in->image;
    for (int64_t c = 0; c < image.c; c++) {
        double mean;
        double inv_std;
        expect_statistics(in, out, c, &mean, &inv_std);
        const double mask = in->mask ? (double)in->mask[c] : 1;
        for (int64_t n = 0; n < image.n; n++)
            for (int64_t s = 0; s < image.spatial; s++) {
                const int64_t i = at(image, n, c, s);
                const double x = ((double)in->src[i] - mean) * inv_std;
                double z = mask * ((double)in->gamma[c] * x + (double)in->beta[c]);
                z += in->residual ? (double)in->residual[i] : 0;
                out->dst[i] = (float)(in->relu && z < 0 ? 0 : z);
            }
    }
}

/* Takes dst, mean and inv_std from `out`. */
static void expect_backward(const struct norm_case *in, const struct norm_result *out)
{
    const struct cpu_image image = in->image;
    const double m = (double)(image.n * image.spatial);
    for (int64_t c = 0; c < image.c; c++) {
        const double mean = (double)out->mean[c];
        const double inv_std = (double)out->inv_std[c];
        const double mask = in->mask ? (double)in->mask[c] : 1;
        double d_beta = 0;
        double d_gamma = 0;
        for (int64_t n = 0; n < image.n; n++)
            for (int64_t s = 0; s < image.spatial; s++) {
                const int64_t i = at(image, n, c, s);
                double g = (double)in->d_dst[i] + (in->d_dst2 ? (double)in->d_dst2[i] : 0);
                if (in->relu && out->dst[i] <= 0)
                    g = 0;
                out->g[i] = (float)g;
                d_beta += g;
                d_gamma += g * ((double)in->src[i] - mean) * inv_std;
            }
        out->d_gamma[c] = (float)(mask * d_gamma);
        out->d_beta[c] = (float)(mask * d_beta);
        out->d_mask[c] = (float)((double)in->gamma[c] * d_gamma + (double)in->beta[c] * d_beta);
        for (int64_t n = 0; n < image.n; n++)
            for (int64_t s = 0; s < image.spatial; s++) {
                const int64_t i = at(image, n, c, s);
                const double x = ((double)in->src[i] - mean) * inv_std;
                const double pull = in->training ? (d_beta + x * d_gamma) / m : 0;
                out->d_src[i] =
                    (float)((double)in->gamma[c] * mask * inv_std * ((double)out->g[i] - pull));
            }
    }
}

/* ---- the kernels -------------------------------------------------------------------------------- */

static float *copy_of(struct fixture *f, const float *src, int64_t count)
{
    if (!src)
        return NULL;
    float *copy = take(f, count, sizeof *copy);
    memcpy(copy, src, (size_t)count * sizeof *copy);
    return copy;
}

static float *pack_or_null(struct fixture *f, const float *plain, struct cpu_image image)
{
    return plain ? pack(f, plain, image) : NULL;
}

/* in_place: dst is src. */
static struct norm_result run_forward(struct fixture *f, const struct norm_case *in, int threads,
                                      bool in_place)
{
    const struct cpu_image image = in->image;
    struct norm_result out = result_new(f, image);
    float *src = pack(f, in->src, image);
    const struct cpu_bn bn = {
        .image = image,
        .src = src,
        .gamma = in->gamma,
        .beta = in->beta,
        .running_mean = copy_of(f, in->running_mean, image.c),
        .running_var = copy_of(f, in->running_var, image.c),
        .mask = in->mask,
        .residual = pack_or_null(f, in->residual, image),
        .dst = in_place ? src : take_image(f, image),
        .mean = out.mean,
        .inv_std = out.inv_std,
        .eps = EPS,
        .momentum = MOMENTUM,
        .training = in->training,
        .relu = in->relu,
        .scratch = take_guarded(f, cpu_bn_scratch_floats(image)),
    };
    cpu_bn(&bn, threads);
    assert_guarded(bn.scratch, cpu_bn_scratch_floats(image));
    out.dst = unpack(f, bn.dst, image);
    out.running_mean = bn.running_mean;
    out.running_var = bn.running_var;
    return out;
}

/* residual: d_residual is wanted. in_place: that, or else d_src, is d_dst, as the memory plan has it.
 * Forward results come from `given`. */
static struct norm_result run_backward(struct fixture *f, const struct norm_case *in,
                                       const struct norm_result *given, int threads, bool residual,
                                       bool in_place)
{
    const struct cpu_image image = in->image;
    struct norm_result out = result_new(f, image);
    float *d_dst = pack(f, in->d_dst, image);
    const struct cpu_bn_grad bn = {
        .image = image,
        .d_dst = d_dst,
        .d_dst2 = pack_or_null(f, in->d_dst2, image),
        .src = pack(f, in->src, image),
        .dst = in->relu ? pack(f, given->dst, image) : NULL,
        .gamma = in->gamma,
        .beta = in->beta,
        .mean = given->mean,
        .inv_std = given->inv_std,
        .mask = in->mask,
        .d_src = in_place && !residual ? d_dst : take_image(f, image),
        .d_gamma = out.d_gamma,
        .d_beta = out.d_beta,
        .d_mask = out.d_mask,
        .d_residual = !residual  ? NULL
                      : in_place ? d_dst
                                 : take_image(f, image),
        .training = in->training,
        .relu = in->relu,
        .scratch = take_guarded(f, cpu_bn_scratch_floats(image)),
    };
    cpu_bn_grad(&bn, threads);
    assert_guarded(bn.scratch, cpu_bn_scratch_floats(image));
    out.d_src = unpack(f, bn.d_src, image);
    if (residual)
        out.g = unpack(f, bn.d_residual, image);
    return out;
}

/* ---- checks ------------------------------------------------------------------------------------- */

static struct norm_case random_case(struct fixture *f, struct cpu_image image, bool fused)
{
    struct norm_case in = {
        .image = image,
        .training = true,
        .relu = fused,
        .src = take_random(f, plain_count(image)),
        .gamma = take_random(f, image.c),
        .beta = take_random(f, image.c),
        .running_mean = take_random(f, image.c),
        .d_dst = take_random(f, plain_count(image)),
    };
    float *var = take_random(f, image.c);
    for (int64_t c = 0; c < image.c; c++)
        var[c] += 1.5F;
    in.running_var = var;
    if (fused) {
        in.mask = take_random(f, image.c);
        in.residual = take_random(f, plain_count(image));
        in.d_dst2 = take_random(f, plain_count(image));
    }
    return in;
}

static void check_forward(struct fixture *f, const struct norm_case *in)
{
    const int64_t count = plain_count(in->image);
    const int64_t c = in->image.c;
    const struct norm_result want = result_new(f, in->image);
    expect_forward(in, &want);
    const struct norm_result one = run_forward(f, in, 1, false);
    assert_tensor_close(one.dst, want.dst, count, KERNEL_TOLERANCE, "dst");
    assert_tensor_close(one.mean, want.mean, c, KERNEL_TOLERANCE, "mean");
    assert_tensor_close(one.inv_std, want.inv_std, c, KERNEL_TOLERANCE, "inv_std");
    assert_tensor_close(one.running_mean, want.running_mean, c, KERNEL_TOLERANCE, "running_mean");
    assert_tensor_close(one.running_var, want.running_var, c, KERNEL_TOLERANCE, "running_var");
    for (int threads = 1; threads <= MAX_THREADS; threads++) {
        const struct norm_result again = run_forward(f, in, threads, threads > 1);
        assert_same_bytes(again.dst, one.dst, count);
        assert_same_bytes(again.mean, one.mean, c);
        assert_same_bytes(again.running_var, one.running_var, c);
    }
}

static void check_forward_plain(struct fixture *f, struct cpu_image image)
{
    const struct norm_case in = random_case(f, image, false);
    check_forward(f, &in);
}

static void check_forward_fused(struct fixture *f, struct cpu_image image)
{
    const struct norm_case in = random_case(f, image, true);
    check_forward(f, &in);
}

static void check_forward_eval(struct fixture *f, struct cpu_image image)
{
    struct norm_case in = random_case(f, image, true);
    in.training = false;
    in.residual = NULL;
    check_forward(f, &in);
    in.relu = false;
    check_forward(f, &in);
}

/* With one value per channel x - mean is 0 and x^ the ratio of two roundings; skip. */
static bool has_variance(struct cpu_image image)
{
    return image.n * image.spatial > 1;
}

static void check_backward(struct fixture *f, const struct norm_case *in)
{
    if (!has_variance(in->image))
        return;
    const int64_t count = plain_count(in->image);
    const int64_t c = in->image.c;
    const struct norm_result want = result_new(f, in->image);
    expect_forward(in, &want);
    expect_backward(in, &want);
    for (int residual = 0; residual < 2; residual++) {
        const struct norm_result one = run_backward(f, in, &want, 1, residual, false);
        assert_tensor_close(one.d_src, want.d_src, count, KERNEL_TOLERANCE, "d_src");
        assert_tensor_close(one.d_gamma, want.d_gamma, c, KERNEL_TOLERANCE, "d_gamma");
        assert_tensor_close(one.d_beta, want.d_beta, c, KERNEL_TOLERANCE, "d_beta");
        assert_tensor_close(one.d_mask, want.d_mask, c, KERNEL_TOLERANCE, "d_mask");
        if (residual)
            assert_tensor_close(one.g, want.g, count, KERNEL_TOLERANCE, "d_residual");
        for (int threads = 2; threads <= MAX_THREADS; threads++) {
            const struct norm_result again =
                run_backward(f, in, &want, threads, residual, threads == MAX_THREADS);
            assert_same_bytes(again.d_src, one.d_src, count);
            assert_same_bytes(again.g, one.g, count);
            assert_same_bytes(again.d_gamma, one.d_gamma, c);
            assert_same_bytes(again.d_beta, one.d_beta, c);
            assert_same_bytes(again.d_mask, one.d_mask, c);
        }
    }
}

static void check_backward_plain(struct fixture *f, struct cpu_image image)
{
    const struct norm_case in = random_case(f, image, false);
    check_backward(f, &in);
}

static void check_backward_fused(struct fixture *f, struct cpu_image image)
{
    struct norm_case in = random_case(f, image, true);
    check_backward(f, &in);
    in.d_dst2 = NULL;
    check_backward(f, &in);
}

static void check_backward_unmasked(struct fixture *f, struct cpu_image image)
{
    struct norm_case in = random_case(f, image, true);
    in.relu = false;
    in.mask = NULL;
    check_backward(f, &in);
}

static void check_backward_eval(struct fixture *f, struct cpu_image image)
{
    struct norm_case in = random_case(f, image, true);
    in.training = false;
    check_backward(f, &in);
}

/* Squares of such values fill a float's 24 bits many times over. */
static void check_far_mean(struct fixture *f, struct cpu_image image)
{
    struct norm_case in = random_case(f, image, false);
    float *src = take_random(f, plain_count(image));
    for (int64_t i = 0; i < plain_count(image); i++)
        src[i] = src[i] * 0.01F + 1000;
    in.src = src;
    if (has_variance(image))
        check_forward(f, &in);
}

/* ---- tests -------------------------------------------------------------------------------------- */

static void test_forward_matches_loops(void **state)
{
    for_each_image(fixture_of(state), check_forward_plain);
}

static void test_forward_with_mask_residual_relu_matches_loops(void **state)
{
    for_each_image(fixture_of(state), check_forward_fused);
}

static void test_forward_with_running_statistics_matches_loops(void **state)
{
    for_each_image(fixture_of(state), check_forward_eval);
}

static void test_a_mean_far_from_zero_costs_no_digits(void **state)
{
    for_each_image(fixture_of(state), check_far_mean);
}

static void test_backward_matches_loops(void **state)
{
    for_each_image(fixture_of(state), check_backward_plain);
}

static void test_backward_with_mask_residual_relu_matches_loops(void **state)
{
    for_each_image(fixture_of(state), check_backward_fused);
}

static void test_backward_of_two_gradients_without_relu_matches_loops(void **state)
{
    for_each_image(fixture_of(state), check_backward_unmasked);
}

static void test_backward_with_running_statistics_matches_loops(void **state)
{
    for_each_image(fixture_of(state), check_backward_eval);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        KERNEL_TEST(test_forward_matches_loops),
        KERNEL_TEST(test_forward_with_mask_residual_relu_matches_loops),
        KERNEL_TEST(test_forward_with_running_statistics_matches_loops),
        KERNEL_TEST(test_a_mean_far_from_zero_costs_no_digits),
        KERNEL_TEST(test_backward_matches_loops),
        KERNEL_TEST(test_backward_with_mask_residual_relu_matches_loops),
        KERNEL_TEST(test_backward_of_two_gradients_without_relu_matches_loops),
        KERNEL_TEST(test_backward_with_running_statistics_matches_loops),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

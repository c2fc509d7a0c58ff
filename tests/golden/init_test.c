/*
 * How networks start: sizes as published, and the distribution of every initial parameter.
 */
#include "model/resnet.h"
#include "support/test_ctx.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct param_set *declare(struct der_ctx *ctx, const char *name, struct resnet_spec *spec)
{
    struct param_set *set;
    assert_ok(ctx, resnet_spec_init(ctx, spec, name, 3, 32, 32, 1.0));
    assert_ok(ctx, param_set_new(ctx, &set));
    assert_ok(ctx, resnet_declare(spec, set));
    return set;
}

static void test_networks_have_their_published_sizes(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int64_t n_params;
        int feature_dim;
    } networks[] = {
        {"resnet18-cifar", 11168832, 512}, /* convolutions 11,159,232, batch norm 9,600 */
        {"resnet32", 466256, 64},          /* 463,792 and 2,464 */
        {"resnet18", 11176512, 512},       /* torchvision's 11,689,512 without its classifier */
        {"resnet18-3x3", 11168832, 512},   /* the stem of the CIFAR network */
    };
    struct der_ctx *ctx = test_ctx_new(1);
    for (size_t i = 0; i < sizeof networks / sizeof *networks; i++) {
        struct resnet_spec spec;
        struct param_set *set = declare(ctx, networks[i].name, &spec);
        assert_int_equal(param_set_count(set), networks[i].n_params);
        assert_int_equal(resnet_count_params(&spec), networks[i].n_params);
        assert_int_equal(resnet_feature_dim(&spec), networks[i].feature_dim);
        param_set_free(set);
    }
    test_ctx_free(ctx);
}

/* Mean and standard deviation of n draws must lie within `sigmas` standard errors of what they
 * should be: std / sqrt(n) and about std / sqrt(2 n). A fixed seed, so no luck is involved. */
static void check_moments(const float *x, int64_t n, double std, const char *name)
{
    const double sigmas = 5.0;
    double sum = 0.0;
    double square = 0.0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)x[i];
    double mean = sum / (double)n;
    for (int64_t i = 0; i < n; i++)
        square += ((double)x[i] - mean) * ((double)x[i] - mean);
    double got = sqrt(square / (double)n);
    if (!(fabs(mean) <= sigmas * std / sqrt((double)n)))
        fail_msg("%s: mean %g of %lld draws", name, mean, (long long)n);
    if (!(fabs(got - std) <= sigmas * std / sqrt(2.0 * (double)n)))
        fail_msg("%s: standard deviation %g, want %g", name, got, std);
}

static void check_constant(const float *x, int64_t n, float want, const char *name)
{
    for (int64_t i = 0; i < n; i++)
        if (x[i] != want)
            fail_msg("%s[%lld] is %g, want %g", name, (long long)i, (double)x[i], (double)want);
}

/* Fourth moment of a normal distribution: 3 std^4, a uniform one has 1.8. */
static void check_normal(const float *x, int64_t n, double std, const char *name)
{
    double fourth = 0.0;
    for (int64_t i = 0; i < n; i++)
        fourth += pow((double)x[i] / std, 4.0);
    fourth /= (double)n;
    if (!(fabs(fourth - 3.0) <= 0.1))
        fail_msg("%s: fourth moment %g, want 3", name, fourth);
}

static bool ends_with(const char *text, const char *suffix)
{
    size_t length = strlen(text);
    size_t tail = strlen(suffix);
    return length >= tail && strcmp(text + length - tail, suffix) == 0;
}

static void check_param(const struct param *p, const float *x, bool zero_init_residual)
{
    int64_t n = shape_count(p->shape);
    if (p->shape.rank == 4) {
        double std = sqrt(2.0 / (double)(p->shape.dim[2] * p->shape.dim[3] * p->shape.dim[0]));
        check_moments(x, n, std, p->name);
        if (n >= 200000)
            check_normal(x, n, std, p->name);
        return;
    }
    bool is_gamma = ends_with(p->name, ".weight");
    bool is_var = ends_with(p->name, ".running_var");
    bool is_last_gamma = is_gamma && ends_with(p->name, ".bn2.weight");
    bool is_one = is_var || (is_gamma && !(zero_init_residual && is_last_gamma));
    check_constant(x, n, is_one ? 1.0f : 0.0f, p->name);
}

static void check_network(const char *name, bool zero_init_residual)
{
    struct der_ctx *ctx = test_ctx_new(1);
    struct backend *be;
    struct resnet_spec spec;
    struct param_set *set = declare(ctx, name, &spec);
    assert_ok(ctx, backend_open(ctx, "ref", NULL, &be));
    assert_ok(ctx, param_set_allocate(set, be));
    assert_ok(ctx, param_set_init(set, 1993, 0));
    assert_true(spec.zero_init_residual == zero_init_residual);
    for (int i = 0; i < set->n; i++) {
        float *x = malloc((size_t)shape_count(set->items[i].shape) * sizeof *x);
        assert_non_null(x);
        assert_ok(ctx, param_read(set, i, x));
        check_param(&set->items[i], x, zero_init_residual);
        free(x);
    }
    param_set_free(set);
    backend_close(be);
    test_ctx_free(ctx);
}

static void test_resnet18_starts_with_zero_residual_branches(void **state)
{
    (void)state;
    check_network("resnet18-cifar", true);
}

static void test_resnet32_starts_without_zero_residual_branches(void **state)
{
    (void)state;
    check_network("resnet32", false);
}

/* One matrix [rows, columns] started by `init`. */
static float *draw_matrix(struct der_ctx *ctx, struct backend *be, enum param_init init,
                          uint64_t seed, uint32_t stream)
{
    struct param_set *set;
    int index;
    assert_ok(ctx, param_set_new(ctx, &set));
    assert_ok(ctx, param_set_add(set, "w", shape_2d(100, 512), PARAM_LEARNT, init, &index));
    assert_ok(ctx, param_set_allocate(set, be));
    assert_ok(ctx, param_set_init(set, seed, stream));
    float *x = malloc(100 * 512 * sizeof *x);
    assert_non_null(x);
    assert_ok(ctx, param_read(set, index, x));
    param_set_free(set);
    return x;
}

static void test_heads_start_as_specified(void **state)
{
    (void)state;
    const int64_t n = 100 * 512;
    struct der_ctx *ctx = test_ctx_new(1);
    struct backend *be;
    assert_ok(ctx, backend_open(ctx, "ref", NULL, &be));
    float *x = draw_matrix(ctx, be, INIT_LINEAR_NORMAL, 7, 0);
    check_moments(x, n, 1.0 / sqrt(512.0), "linear normal");
    check_normal(x, n, 1.0 / sqrt(512.0), "linear normal");
    free(x);
    x = draw_matrix(ctx, be, INIT_STANDARD_NORMAL, 7, 0);
    check_moments(x, n, 1.0, "standard normal");
    free(x);
    x = draw_matrix(ctx, be, INIT_LINEAR_UNIFORM, 7, 0);
    check_moments(x, n, 1.0 / sqrt(3.0 * 512.0), "linear uniform");
    const float bound = 1.0f / sqrtf(512.0f);
    for (int64_t i = 0; i < n; i++)
        assert_true(x[i] >= -bound && x[i] <= bound);
    free(x);
    backend_close(be);
    test_ctx_free(ctx);
}

static void test_streams_and_seeds_draw_different_numbers(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    struct backend *be;
    assert_ok(ctx, backend_open(ctx, "ref", NULL, &be));
    const size_t bytes = 100 * 512 * sizeof(float);
    float *first = draw_matrix(ctx, be, INIT_LINEAR_NORMAL, 7, 0);
    float *again = draw_matrix(ctx, be, INIT_LINEAR_NORMAL, 7, 0);
    float *stream = draw_matrix(ctx, be, INIT_LINEAR_NORMAL, 7, 1);
    float *seed = draw_matrix(ctx, be, INIT_LINEAR_NORMAL, 8, 0);
    assert_memory_equal(first, again, bytes);
    assert_memory_not_equal(first, stream, bytes);
    assert_memory_not_equal(first, seed, bytes);
    free(first);
    free(again);
    free(stream);
    free(seed);
    backend_close(be);
    test_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_networks_have_their_published_sizes),
        cmocka_unit_test(test_resnet18_starts_with_zero_residual_branches),
        cmocka_unit_test(test_resnet32_starts_without_zero_residual_branches),
        cmocka_unit_test(test_heads_start_as_specified),
        cmocka_unit_test(test_streams_and_seeds_draw_different_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

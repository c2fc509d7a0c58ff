/*
 * Pointwise kernels, layouts, pooling and SGD against plain loops in double, in every layout.
 */
#include "backend/cpu/cpu_test_image.h"

#include "support/tensor_check.h"

#include <math.h>

/* ---- flat arrays -------------------------------------------------------------------------------- */

static const int64_t FLAT_COUNTS[] = {1, 7, 16, 1000, 5003};
enum { N_FLAT = sizeof FLAT_COUNTS / sizeof *FLAT_COUNTS };

static float *guarded_copy(struct fixture *f, const float *src, int64_t count)
{
    float *copy = take_guarded(f, count);
    memcpy(copy, src, (size_t)count * sizeof *copy);
    return copy;
}

static void test_relu_and_its_gradient_match_loops(void **state)
{
    struct fixture *f = fixture_of(state);
    for (int k = 0; k < N_FLAT; k++)
        for (int threads = 1; threads <= MAX_THREADS; threads++) {
            const int64_t count = FLAT_COUNTS[k];
            const float *x = take_random(f, count);
            const float *d = take_random(f, count);
            float *dst = guarded_copy(f, x, count);
            float *d_src = guarded_copy(f, d, count);
            cpu_relu(dst, dst, count, threads);
            cpu_relu_grad(d_src, d_src, dst, count, threads);
            for (int64_t i = 0; i < count; i++) {
                assert_true(dst[i] == (x[i] > 0 ? x[i] : 0));
                assert_true(d_src[i] == (x[i] > 0 ? d[i] : 0));
            }
            assert_guarded(dst, count);
            assert_guarded(d_src, count);
        }
}

static void test_relu_lets_nan_through(void **state)
{
    (void)state;
    const float x[2] = {NAN, -1};
    float dst[2];
    cpu_relu(dst, x, 2, 1);
    assert_true(isnan(dst[0]));
    assert_true(dst[1] == 0);
}

static void test_add_sums_any_number_of_operands(void **state)
{
    struct fixture *f = fixture_of(state);
    for (int n = 1; n <= 5; n++)
        for (int k = 0; k < N_FLAT; k++)
            for (int threads = 1; threads <= MAX_THREADS; threads++) {
                const int64_t count = FLAT_COUNTS[k];
                float *src[5];
                float *want = take(f, count, sizeof *want);
                for (int j = 0; j < n; j++) {
                    src[j] = take_random(f, count);
                    for (int64_t i = 0; i < count; i++)
                        want[i] = j == 0 ? src[j][i] : want[i] + src[j][i];
                }
                float *dst = take_guarded(f, count);
                cpu_add(dst, src, n, count, threads);
                assert_same_bytes(dst, want, count);
                assert_guarded(dst, count);
                cpu_add(src[n - 1], src, n, count, threads);
                assert_same_bytes(src[n - 1], want, count);
            }
}

static void test_scale_and_its_gradient_match_loops(void **state)
{
    struct fixture *f = fixture_of(state);
    const float factor = 1.7F;
    for (int k = 0; k < N_FLAT; k++) {
        const int64_t count = FLAT_COUNTS[k];
        const float *x = take_random(f, count);
        const float *d = take_random(f, count);
        double sum = 0;
        for (int64_t i = 0; i < count; i++)
            sum += (double)x[i] * (double)d[i];
        const float want = (float)sum;
        float first = 0;
        for (int threads = 1; threads <= MAX_THREADS; threads++) {
            float *dst = take_guarded(f, count);
            float *d_src = guarded_copy(f, x, count); /* in place of src */
            float d_factor = 0;
            cpu_scale(dst, x, &factor, count, threads);
            const struct cpu_scale_grad grad = {
                .count = count,
                .d_dst = d,
                .src = d_src,
                .factor = &factor,
                .d_src = d_src,
                .d_factor = &d_factor,
                .scratch = take(f, CPU_FLAT_SCRATCH_FLOATS, sizeof(float)),
            };
            cpu_scale_grad(&grad, threads);
            for (int64_t i = 0; i < count; i++) {
                assert_true(dst[i] == x[i] * factor);
                assert_true(d_src[i] == d[i] * factor);
            }
            assert_tensor_close(&d_factor, &want, 1, KERNEL_TOLERANCE, "d_factor");
            first = threads == 1 ? d_factor : first;
            assert_true(d_factor == first);
            assert_guarded(dst, count);
            assert_guarded(d_src, count);
        }
    }
}

/* ---- channels and layouts ----------------------------------------------------------------------- */

static void check_scale_channel(struct fixture *f, struct cpu_image image)
{
    const int64_t count = plain_count(image);
    const float *x = take_random(f, count);
    const float *d = take_random(f, count);
    const float *m = take_random(f, image.c);
    float *want = take(f, count, sizeof *want);
    float *want_d = take(f, count, sizeof *want_d);
    float *want_m = take(f, image.c, sizeof *want_m);
    for (int64_t c = 0; c < image.c; c++) {
        double sum = 0;
        for (int64_t i = 0; i < image.n * image.spatial; i++) {
            const int64_t n = i / image.spatial;
            const int64_t at = (n * image.c + c) * image.spatial + i % image.spatial;
            want[at] = x[at] * m[c];
            want_d[at] = d[at] * m[c];
            sum += (double)x[at] * (double)d[at];
        }
        want_m[c] = (float)sum;
    }
    float *first = NULL;
    for (int threads = 1; threads <= MAX_THREADS; threads++) {
        float *src = pack(f, x, image);
        float *d_dst = pack(f, d, image);
        float *d_m = take_guarded(f, image.c);
        const struct cpu_scale_channel_grad grad = {
            image, d_dst, src, m, d_dst, d_m, take_guarded(f, cpu_bn_scratch_floats(image)),
        };
        cpu_scale_channel_grad(&grad, threads);
        const struct cpu_scale_channel scale = {image, src, m, src};
        cpu_scale_channel(&scale, threads);
        assert_same_bytes(unpack(f, src, image), want, count);
        assert_same_bytes(unpack(f, d_dst, image), want_d, count);
        assert_tensor_close(d_m, want_m, image.c, KERNEL_TOLERANCE, "d_m");
        first = first ? first : d_m;
        assert_same_bytes(d_m, first, image.c);
        assert_guarded(d_m, image.c);
        assert_guarded(grad.scratch, cpu_bn_scratch_floats(image));
    }
}

static void test_scale_channel_and_its_gradient_match_loops(void **state)
{
    for_each_image(fixture_of(state), check_scale_channel);
}

static void check_reorder(struct fixture *f, struct cpu_image image)
{
    const float *x = take_random(f, plain_count(image));
    const float *src = pack(f, x, image);
    const int64_t blocks[] = {1, 8, 16, image.c};
    for (size_t k = 0; k < sizeof blocks / sizeof *blocks; k++)
        for (int threads = 1; threads <= MAX_THREADS; threads++) {
            struct cpu_image to = image;
            to.block = blocks[k];
            float *dst = take_image(f, to);
            cpu_reorder(dst, to.block, src, image, threads);
            assert_same_bytes(unpack(f, dst, to), x, plain_count(image));
        }
}

static void test_reorder_goes_from_any_layout_to_any(void **state)
{
    for_each_image(fixture_of(state), check_reorder);
}

/* ---- pooling ------------------------------------------------------------------------------------ */

static void check_avgpool(struct fixture *f, struct cpu_image image)
{
    const float *x = take_random(f, plain_count(image));
    const int64_t pitch = image.c + 5;
    float *d = take_random(f, image.n * pitch);
    const struct cpu_matrix d_dst = {d, image.n, image.c, pitch};
    float *want_d = take(f, plain_count(image), sizeof *want_d);
    const float *first = NULL;
    for (int threads = 1; threads <= MAX_THREADS; threads++) {
        float *data = take_guarded(f, image.n * pitch);
        const struct cpu_matrix dst = {data, image.n, image.c, pitch};
        float *d_src = take_image(f, image);
        cpu_avgpool(dst, pack(f, x, image), image, threads);
        cpu_avgpool_grad(d_src, d_dst, image, threads);
        for (int64_t n = 0; n < image.n; n++) {
            for (int64_t c = 0; c < image.c; c++) {
                double sum = 0;
                for (int64_t s = 0; s < image.spatial; s++) {
                    const int64_t at = (n * image.c + c) * image.spatial + s;
                    sum += (double)x[at];
                    want_d[at] = (float)((double)d[n * pitch + c] / (double)image.spatial);
                }
                const double mean = sum / (double)image.spatial;
                assert_true(fabs((double)data[n * pitch + c] - mean) <= 1e-7 * fabs(mean));
            }
            for (int64_t c = image.c; c < pitch; c++)
                assert_true(data[n * pitch + c] == SENTINEL);
        }
        assert_same_bytes(unpack(f, d_src, image), want_d, plain_count(image));
        assert_guarded(data, image.n * pitch);
        first = first ? first : data;
        assert_same_bytes(data, first, image.n * pitch);
    }
}

static void test_avgpool_and_its_gradient_match_loops(void **state)
{
    for_each_image(fixture_of(state), check_avgpool);
}

struct pool_case {
    int64_t h, w;
    struct pool_attr attr;
};

/* One plane in plain layout: the first maximum of each window, and its gradient. */
static void expect_maxpool(const struct cpu_pool_shape *shape, const float *x, const float *d,
                           float *dst, int32_t *index, float *d_src)
{
    const struct pool_attr *a = &shape->attr;
    for (int64_t i = 0; i < shape->h * shape->w; i++)
        d_src[i] = 0;
    for (int64_t oh = 0; oh < shape->out_h; oh++)
        for (int64_t ow = 0; ow < shape->out_w; ow++) {
            int64_t best = -1;
            for (int64_t h = oh * a->stride - a->pad; h < oh * a->stride - a->pad + a->kernel; h++)
                for (int64_t w = ow * a->stride - a->pad; w < ow * a->stride - a->pad + a->kernel;
                     w++) {
                    if (h < 0 || h >= shape->h || w < 0 || w >= shape->w)
                        continue;
                    if (best < 0 || x[h * shape->w + w] > x[best])
                        best = h * shape->w + w;
                }
            const int64_t at = oh * shape->out_w + ow;
            dst[at] = x[best];
            index[at] = (int32_t)best;
            d_src[best] += d[at];
        }
}

/* The same shape as an image, before and after. */
static struct cpu_image pool_image(const struct cpu_pool_shape *shape, bool out)
{
    return (struct cpu_image){
        .n = shape->n,
        .c = shape->c,
        .spatial = out ? shape->out_h * shape->out_w : shape->h * shape->w,
        .block = shape->block,
    };
}

static void assert_index_is(const struct cpu_pool_shape *shape, const int32_t *index,
                            const int32_t *want)
{
    const struct cpu_image out = pool_image(shape, true);
    for (int64_t n = 0; n < out.n; n++)
        for (int64_t c = 0; c < out.c; c++)
            for (int64_t s = 0; s < out.spatial; s++)
                assert_int_equal(index[position_of(out, n, c, s)],
                                 want[(n * out.c + c) * out.spatial + s]);
}

static void check_maxpool(struct fixture *f, const struct cpu_pool_shape *shape)
{
    const struct cpu_image in = pool_image(shape, false);
    const struct cpu_image out = pool_image(shape, true);
    float *x = take_random(f, plain_count(in));
    for (int64_t i = 0; i < plain_count(in); i++)
        x[i] = (float)round((double)x[i] * 4); /* many ties */
    const float *d = take_random(f, plain_count(out));
    float *want = take(f, plain_count(out), sizeof *want);
    int32_t *want_index = take(f, plain_count(out), sizeof *want_index);
    float *want_d = take(f, plain_count(in), sizeof *want_d);
    for (int64_t p = 0; p < in.n * in.c; p++)
        expect_maxpool(shape, x + p * in.spatial, d + p * out.spatial, want + p * out.spatial,
                       want_index + p * out.spatial, want_d + p * in.spatial);

    for (int threads = 1; threads <= MAX_THREADS; threads++) {
        int32_t *index = take(f, cpu_image_floats(out), sizeof *index);
        const struct cpu_maxpool pool = {*shape, pack(f, x, in), take_image(f, out), index};
        cpu_maxpool(&pool, threads);
        assert_same_bytes(unpack(f, pool.dst, out), want, plain_count(out));
        assert_index_is(shape, index, want_index);
        const struct cpu_maxpool_grad grad = {*shape, pack(f, d, out), index, take_image(f, in)};
        cpu_maxpool_grad(&grad, threads);
        assert_same_bytes(unpack(f, grad.d_src, in), want_d, plain_count(in));

        const struct cpu_maxpool bare = {*shape, pool.src, take_image(f, out), NULL};
        cpu_maxpool(&bare, threads);
        assert_same_bytes(bare.dst, pool.dst, cpu_image_floats(out));
    }
}

static void test_maxpool_and_its_gradient_match_loops(void **state)
{
    static const struct pool_case cases[] = {
        {8, 8, {3, 2, 1}}, {7, 5, {3, 2, 1}}, {6, 4, {2, 2, 0}},
        {5, 5, {3, 1, 1}}, {9, 9, {2, 3, 0}}, {1, 1, {3, 2, 1}},
    };
    static const int64_t channels[] = {1, 3, 16, 17, 33};
    struct fixture *f = fixture_of(state);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t j = 0; j < sizeof channels / sizeof *channels; j++) {
            const int64_t blocks[] = {1, 8, 16, channels[j]};
            const struct pool_attr attr = cases[i].attr;
            for (size_t k = 0; k < sizeof blocks / sizeof *blocks; k++) {
                const struct cpu_pool_shape shape = {
                    .n = 2,
                    .c = channels[j],
                    .h = cases[i].h,
                    .w = cases[i].w,
                    .out_h = (cases[i].h + 2 * attr.pad - attr.kernel) / attr.stride + 1,
                    .out_w = (cases[i].w + 2 * attr.pad - attr.kernel) / attr.stride + 1,
                    .block = blocks[k],
                    .attr = attr,
                };
                check_maxpool(f, &shape);
            }
        }
}

/* ---- SGD ---------------------------------------------------------------------------------------- */

static void check_sgd(struct fixture *f, const struct sgd_attr *attr)
{
    enum { STEPS = 3 };
    const float lr = 0.1F;
    float *first[N_FLAT] = {NULL};
    for (int threads = 1; threads <= MAX_THREADS; threads++) {
        struct cpu_sgd_span spans[N_FLAT];
        f->stream = 0; /* the same numbers for every thread count */
        float *want[N_FLAT];
        for (int k = 0; k < N_FLAT; k++) {
            const int64_t count = FLAT_COUNTS[k];
            const float *start = take_random(f, count);
            float *v = take_guarded(f, count);
            memset(v, 0, (size_t)count * sizeof *v);
            spans[k] = (struct cpu_sgd_span){
                guarded_copy(f, start, count),
                take_random(f, count),
                v,
                count,
            };
            want[k] = take(f, count, sizeof **want);
            for (int64_t i = 0; i < count; i++) {
                double p = (double)start[i];
                double velocity = 0;
                for (int step = 0; step < STEPS; step++) {
                    velocity = (double)attr->momentum * velocity + (double)spans[k].g[i] +
                               (double)attr->decay * p;
                    p -= (double)lr * (double)attr->gain * velocity;
                    p = fmin(fmax(p, (double)attr->low), (double)attr->high);
                }
                want[k][i] = (float)p;
            }
        }
        for (int step = 0; step < STEPS; step++)
            cpu_sgd(spans, N_FLAT, &lr, attr, threads);
        for (int k = 0; k < N_FLAT; k++) {
            assert_tensor_close(spans[k].p, want[k], spans[k].count, KERNEL_TOLERANCE, "p");
            first[k] = first[k] ? first[k] : spans[k].p;
            assert_same_bytes(spans[k].p, first[k], spans[k].count);
            assert_guarded(spans[k].p, spans[k].count);
            assert_guarded(spans[k].v, spans[k].count);
        }
    }
}

static void test_sgd_matches_loops(void **state)
{
    const struct sgd_attr attr = {0.9F, 5e-4F, 1, -INFINITY, INFINITY};
    check_sgd(fixture_of(state), &attr);
}

static void test_sgd_clamps_and_applies_its_gain(void **state)
{
    const struct sgd_attr attr = {0.9F, 0, 10, -0.5F, 0.75F};
    check_sgd(fixture_of(state), &attr);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        KERNEL_TEST(test_relu_and_its_gradient_match_loops),
        KERNEL_TEST(test_relu_lets_nan_through),
        KERNEL_TEST(test_add_sums_any_number_of_operands),
        KERNEL_TEST(test_scale_and_its_gradient_match_loops),
        KERNEL_TEST(test_scale_channel_and_its_gradient_match_loops),
        KERNEL_TEST(test_reorder_goes_from_any_layout_to_any),
        KERNEL_TEST(test_avgpool_and_its_gradient_match_loops),
        KERNEL_TEST(test_maxpool_and_its_gradient_match_loops),
        KERNEL_TEST(test_sgd_matches_loops),
        KERNEL_TEST(test_sgd_clamps_and_applies_its_gain),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * The kernel of the update against the same arithmetic on the host, to the bit: gradients in f32 or as convolutions
 * write them in bf16, with and without a copy of the weights in bf16, for kernels and channels that fill no block.
 */
#include "backend/cuda/kernels.h"
#include "core/rng.h"
#include "graph/backend.h"
#include "support/bf16.h"
#include "support/test_ctx.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { SEED = 5, GAP = 3 /* floats between spans */, NAN_BF16 = 0x7fc0, UNTOUCHED = 0x1234 };

/* Weights [k, c, area]; area 0: c numbers that are no weights of a convolution. */
static const struct size {
    int64_t k, c, area, k_stored, c_stored;
} SIZES[] = {
    {65, 33, 9, 128, 64},   {64, 64, 9, 64, 64},    {1, 1, 1, 8, 8},      {1, 5000, 0, 1, 0},
    {7, 3, 9, 8, 8},        {130, 77, 1, 192, 128}, {40, 34, 25, 64, 64}, {5, 6, 49, 8, 8},
    {257, 66, 9, 320, 128}, {33, 2, 121, 64, 8},    {1, 7, 0, 1, 0},      {6, 130, 4, 8, 192},
};

enum { N_SIZES = sizeof SIZES / sizeof *SIZES };

/* How an update is done. */
struct way {
    bool raw, copy;
    int64_t shift; /* floats by which parameters miss the boundary of 16 bytes */
};

/* Arrays of all spans, one behind the other, as the host has them. */
struct arrays {
    int64_t first[N_SIZES];  /* number of each span in p, v and g */
    int64_t stored[N_SIZES]; /* and in raw and copy */
    int64_t n, n_stored;
    float *p, *v, *g;
    uint16_t *raw, *copy;
};

static int64_t count_of(const struct size *s)
{
    return s->k * s->c * (s->area ? s->area : 1);
}

static void *array(int64_t count, size_t element)
{
    void *p = calloc((size_t)count, element);
    assert_non_null(p);
    return p;
}

/* Place of weight i of a convolution in bf16. */
static int64_t place_of(const struct size *s, int64_t i)
{
    const int64_t at = i % s->area;
    const int64_t c = i / s->area % s->c;
    const int64_t k = i / s->area / s->c;
    return (k * s->area + at) * s->c_stored + c;
}

/* ---- on the host -------------------------------------------------------------------------------------- */

static void place_spans(struct arrays *a, int64_t shift)
{
    for (int i = 0; i < N_SIZES; i++) {
        const struct size *s = &SIZES[i];
        a->first[i] = (a->n + GAP) / 4 * 4 + 4 + shift;
        a->n = a->first[i] + count_of(s);
        a->stored[i] = a->n_stored;
        a->n_stored += s->k_stored * s->area * s->c_stored;
    }
    a->n += GAP;
}

/* Gradients are numbers of bf16, so that both forms of them are the same; what is padding must not be read. */
static void arrays_init(struct arrays *a, const struct way *way)
{
    *a = (struct arrays){0};
    place_spans(a, way->shift);
    a->p = array(a->n, sizeof *a->p);
    a->v = array(a->n, sizeof *a->v);
    a->g = array(a->n, sizeof *a->g);
    a->raw = array(a->n_stored, sizeof *a->raw);
    a->copy = array(a->n_stored, sizeof *a->copy);
    rng_normal(a->p, a->n, 0.3, SEED, RNG_TEST, 0);
    rng_normal(a->v, a->n, 1.0, SEED, RNG_TEST, 1);
    rng_normal(a->g, a->n, 1.0, SEED, RNG_TEST, 2);
    for (int64_t i = 0; i < a->n; i++)
        a->g[i] = of_bf16(to_bf16(a->g[i]));
    for (int64_t i = 0; i < a->n_stored; i++) {
        a->raw[i] = NAN_BF16;
        a->copy[i] = UNTOUCHED;
    }
    for (int s = 0; s < N_SIZES; s++)
        for (int64_t i = 0; SIZES[s].area && i < count_of(&SIZES[s]); i++)
            a->raw[a->stored[s] + place_of(&SIZES[s], i)] = to_bf16(a->g[a->first[s] + i]);
}

static void arrays_fini(struct arrays *a)
{
    free(a->p);
    free(a->v);
    free(a->g);
    free(a->raw);
    free(a->copy);
}

/* What the kernel computes, operation by operation. */
static void update_host(struct arrays *a, const struct cuda_sgd *args, float lr, bool copies)
{
    const float step = lr * args->gain;
    for (int s = 0; s < N_SIZES; s++)
        for (int64_t k = 0; k < count_of(&SIZES[s]); k++) {
            const int64_t i = a->first[s] + k;
            a->v[i] = fmaf(args->momentum, a->v[i], fmaf(args->decay, a->p[i], a->g[i]));
            const float next = fmaf(-step, a->v[i], a->p[i]);
            a->p[i] = next < args->low ? args->low : next > args->high ? args->high : next;
            if (copies && SIZES[s].area)
                a->copy[a->stored[s] + place_of(&SIZES[s], k)] = to_bf16(a->p[i]);
        }
}

/* ---- on the GPU --------------------------------------------------------------------------------------- */

static void assert_cuda(cudaError_t error)
{
    if (error != cudaSuccess)
        fail_msg("%s", cudaGetErrorString(error));
}

static void *upload(const void *host, size_t bytes)
{
    void *device = NULL;
    assert_cuda(cudaMalloc(&device, bytes));
    assert_cuda(cudaMemcpy(device, host, bytes, cudaMemcpyHostToDevice));
    return device;
}

/* Compares and frees. */
static void check(void *device, const void *expected, size_t bytes, const char *what)
{
    char *actual = malloc(bytes);
    assert_non_null(actual);
    assert_cuda(cudaMemcpy(actual, device, bytes, cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < bytes; i++)
        if (actual[i] != ((const char *)expected)[i])
            fail_msg("%s: byte %zu of %zu differs", what, i, bytes);
    free(actual);
    assert_cuda(cudaFree(device));
}

static struct cuda_sgd_span span_of(const struct arrays *a, int i, const struct way *way)
{
    const struct size *s = &SIZES[i];
    const bool has_kernels = s->area > 0;
    const int64_t count = count_of(s);
    struct cuda_sgd_span span = {
        .count = count,
        .cols = count,
        .p_pitch = count,
        .g_pitch = count,
        .v_pitch = count,
        .per_block = cuda_sgd_per_block(way->raw || way->copy ? s->area : 0),
    };
    span.p = (float *)a->p + a->first[i];
    span.v = (float *)a->v + a->first[i];
    span.g = has_kernels && way->raw ? NULL : a->g + a->first[i];
    span.raw = has_kernels && way->raw ? a->raw + a->stored[i] : NULL;
    span.copy = has_kernels && way->copy ? a->copy + a->stored[i] : NULL;
    if (span.raw || span.copy) {
        span.c = s->c;
        span.area = s->area;
        span.c_stored = s->c_stored;
    }
    return span;
}

/* device: arrays of addresses there. */
static void update_device(const struct arrays *device, struct cuda_sgd args, float lr,
                          const struct way *way)
{
    struct cuda_sgd_span spans[N_SIZES];
    for (int i = 0; i < N_SIZES; i++) {
        spans[i] = span_of(device, i, way);
        spans[i].first_block = args.n_blocks;
        args.n_blocks += (spans[i].count + spans[i].per_block - 1) / spans[i].per_block;
    }
    void *table = upload(spans, sizeof spans);
    void *rate = upload(&lr, sizeof lr);
    args.spans = table;
    args.n = N_SIZES;
    args.lr = rate;
    assert_cuda(cuda_sgd(&args, NULL));
    assert_cuda(cudaDeviceSynchronize());
    assert_cuda(cudaFree(table));
    assert_cuda(cudaFree(rate));
}

static void try_way(const struct way *way)
{
    const struct cuda_sgd args = {
        .momentum = 0.9f, .decay = 5e-4f, .gain = 1.3f, .low = -0.75f, .high = 0.75f};
    const float lr = 0.07f;
    char what[64];
    struct arrays host;
    arrays_init(&host, way);
    const size_t floats = (size_t)host.n * sizeof(float);
    const size_t halves = (size_t)host.n_stored * sizeof(uint16_t);
    struct arrays device = host; /* places, and what is there */
    device.p = upload(host.p, floats);
    device.v = upload(host.v, floats);
    device.g = upload(host.g, floats);
    device.raw = upload(host.raw, halves);
    device.copy = upload(host.copy, halves);
    update_device(&device, args, lr, way);
    update_host(&host, &args, lr, way->copy);
    (void)snprintf(what, sizeof what, "raw %d, copy %d, shift %d", way->raw, way->copy,
                   (int)way->shift);
    check(device.p, host.p, floats, what);
    check(device.v, host.v, floats, what);
    check(device.g, host.g, floats, what);
    check(device.raw, host.raw, halves, what);
    check(device.copy, host.copy, halves, what);
    arrays_fini(&host);
}

extern const struct backend_ops cuda_backend;

static void test_every_way_gives_the_same_bits(void **state)
{
    (void)state;
    if (!backend_is_usable(&cuda_backend))
        skip();
    for (int64_t shift = 0; shift < 2; shift++)
        for (unsigned option = 0; option < 4; option++) {
            const struct way way = {option & 1, option & 2, shift};
            try_way(&way);
        }
}

/* Needs no GPU: the arithmetic that the kernel is held against does something at all, and clamps. */
static void test_the_host_changes_every_number(void **state)
{
    (void)state;
    const struct way way = {true, true, 0};
    const struct cuda_sgd args = {
        .momentum = 0.9f, .decay = 5e-4f, .gain = 1.3f, .low = -0.75f, .high = 0.75f};
    struct arrays before;
    struct arrays after;
    int64_t n_clamped = 0;
    int64_t n_written = 0;
    int64_t n = 0;
    arrays_init(&before, &way);
    arrays_init(&after, &way);
    update_host(&after, &args, 0.07f, true);
    for (int s = 0; s < N_SIZES; s++) {
        for (int64_t i = after.first[s]; i < after.first[s] + count_of(&SIZES[s]); i++) {
            assert_true(before.v[i] != after.v[i]);
            n_clamped += fabsf(after.p[i]) == 0.75f;
        }
        n += SIZES[s].area ? count_of(&SIZES[s]) : 0;
    }
    for (int64_t i = 0; i < after.n_stored; i++)
        n_written += after.copy[i] != UNTOUCHED;
    assert_true(n_clamped > 0);
    assert_int_equal(n_written, n);
    arrays_fini(&before);
    arrays_fini(&after);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_way_gives_the_same_bits),
        cmocka_unit_test(test_the_host_changes_every_number),
    };
    return cmocka_run_group_tests_name("cuda_sgd", tests, NULL, NULL);
}

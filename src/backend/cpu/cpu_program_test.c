/*
 * What compiled programs promise beyond right numbers: when derived weights are refreshed, what
 * binding anew does, that runs repeat to the byte, that denormals are flushed, that nobody's thread count or
 * mode changes, and that nothing waits for threads that it will not get.
 */
#include "backend/cpu/cpu.h"

#include "backend/cpu/cpu_tile.h"
#include "core/rng.h"
#include "support/tensor_check.h"
#include "support/test_ctx.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#ifdef _OPENMP
#include <omp.h>
#endif

enum { BATCH = 8, SIDE = 8, MAX_VALUES = 64 };

struct rig {
    struct der_ctx *ctx;
    struct backend *be;
    struct graph *g;
    struct program *program;
    struct sequence *sequence;
    struct buffer *buffers[MAX_VALUES]; /* of external values */
};

static void rig_init(struct rig *rig, const char *backend, int threads)
{
    *rig = (struct rig){.ctx = test_ctx_new(threads)};
    assert_ok(rig->ctx, backend_open(rig->ctx, backend, NULL, &rig->be));
    assert_ok(rig->ctx, graph_new(rig->ctx, &rig->g));
}

static struct buffer *new_buffer(struct rig *rig, int value, uint32_t stream)
{
    int64_t count = shape_count(rig->g->values[value].shape);
    struct buffer *buffer;
    assert_ok(rig->ctx, buffer_new(rig->be, (size_t)count * sizeof(float), &buffer));
    rng_uniform(buffer->data, count, 0.1, 1.0, 1, RNG_TEST, stream);
    return buffer;
}

static void rig_compile(struct rig *rig)
{
    assert_ok(rig->ctx, program_compile(rig->be, rig->g, &rig->program));
    struct sequence_item item = {rig->program, 0};
    assert_ok(rig->ctx, sequence_new(rig->be, &item, 1, &rig->sequence));
    assert_true(rig->g->n_values <= MAX_VALUES);
    for (int v = 0; v < rig->g->n_values; v++) {
        if (rig->g->values[v].kind != VALUE_EXTERNAL)
            continue;
        rig->buffers[v] = new_buffer(rig, v, (uint32_t)v);
        assert_ok(rig->ctx, program_bind(rig->program, v, (struct span){rig->buffers[v], 0, 0}));
    }
}

static void rig_fini(struct rig *rig)
{
    sequence_free(rig->sequence);
    program_free(rig->program);
    for (int v = 0; v < MAX_VALUES; v++)
        buffer_free(rig->buffers[v]);
    graph_free(rig->g);
    backend_close(rig->be);
    test_ctx_free(rig->ctx);
}

static struct batchnorm_params norm_params(struct rig *rig, int64_t c)
{
    struct batchnorm_params params;
    int *const ids[] = {&params.gamma, &params.beta, &params.running_mean, &params.running_var};
    for (int i = 0; i < 4; i++)
        assert_ok(rig->ctx, graph_input(rig->g, "norm", DTYPE_F32, shape_1d(c), ids[i]));
    return params;
}

/* relu(bn(conv(x, w)) + x?), with w trained or frozen. */
static int block(struct rig *rig, int x, int64_t channels, bool residual, int *weights)
{
    int64_t c = rig->g->values[x].shape.dim[1];
    int y;
    struct batchnorm_params norm = norm_params(rig, channels);
    assert_ok(rig->ctx, graph_param(rig->g, "w", shape_4d(channels, c, 3, 3), false, weights));
    assert_ok(rig->ctx, graph_conv2d(rig->g, x, *weights, 1, 1, &y));
    assert_ok(rig->ctx, graph_batchnorm(rig->g, y, &norm, false, &y));
    if (residual)
        assert_ok(rig->ctx, graph_add(rig->g, y, x, &y));
    assert_ok(rig->ctx, graph_relu(rig->g, y, &y));
    return y;
}

struct frozen {
    int x, weights, features;
};

/* Two folded blocks of odd width; the second adds its own input. */
static struct frozen build_frozen(struct rig *rig)
{
    struct frozen net;
    int unused;
    assert_ok(rig->ctx,
              graph_input(rig->g, "x", DTYPE_F32, shape_4d(BATCH, 3, SIDE, SIDE), &net.x));
    int y = block(rig, net.x, 21, false, &net.weights);
    y = block(rig, y, 21, true, &unused);
    assert_ok(rig->ctx, graph_avgpool(rig->g, y, &net.features));
    assert_ok(rig->ctx, graph_expose(rig->g, net.features));
    assert_ok(rig->ctx, graph_fuse(rig->g));
    return net;
}

enum { N_FEATURES = BATCH * 21 };

static void run(struct rig *rig, const struct frozen *net, float features[N_FEATURES])
{
    assert_ok(rig->ctx, sequence_run(rig->sequence));
    memcpy(features, rig->buffers[net->features]->data, N_FEATURES * sizeof *features);
}

static void test_derived_weights_are_refreshed_when_the_version_moves(void **state)
{
    (void)state;
    struct rig rig;
    rig_init(&rig, "cpu", 2);
    struct frozen net = build_frozen(&rig);
    rig_compile(&rig);
    float before[N_FEATURES], unnoticed[N_FEATURES], after[N_FEATURES];
    run(&rig, &net, before);
    struct buffer *weights = rig.buffers[net.weights];
    ((float *)weights->data)[0] += 1.0f;
    run(&rig, &net, unnoticed);
    assert_memory_equal(before, unnoticed, sizeof before);
    weights->version++;
    run(&rig, &net, after);
    assert_memory_not_equal(before, after, sizeof before);
    rig_fini(&rig);
}

static void test_binding_anew_refreshes_derived_weights(void **state)
{
    (void)state;
    struct rig rig;
    rig_init(&rig, "cpu", 2);
    struct frozen net = build_frozen(&rig);
    rig_compile(&rig);
    float before[N_FEATURES], after[N_FEATURES], back[N_FEATURES];
    run(&rig, &net, before);
    struct buffer *other = new_buffer(&rig, net.weights, 1000);
    assert_ok(rig.ctx, program_bind(rig.program, net.weights, (struct span){other, 0, 0}));
    run(&rig, &net, after);
    assert_memory_not_equal(before, after, sizeof before);
    assert_ok(rig.ctx, program_bind(rig.program, net.weights,
                                    (struct span){rig.buffers[net.weights], 0, 0}));
    run(&rig, &net, back);
    assert_memory_equal(before, back, sizeof before);
    buffer_free(other);
    rig_fini(&rig);
}

/* The residual must not be overwritten while the convolution still reads it as its source. */
static void test_a_residual_may_be_the_source(void **state)
{
    (void)state;
    struct rig cpu, ref;
    float actual[N_FEATURES], expected[N_FEATURES];
    rig_init(&cpu, "cpu", 2);
    rig_init(&ref, "ref", 1);
    struct frozen net = build_frozen(&cpu);
    build_frozen(&ref);
    rig_compile(&cpu);
    rig_compile(&ref);
    run(&cpu, &net, actual);
    run(&ref, &net, expected);
    /* Two convolutions of positive terms: hardly more than the rounding of a sum. */
    assert_tensor_close(actual, expected, N_FEATURES, 1e-11, "features");
    assert_int_equal(cpu.program->stats.n_reorders_activation, 0);
    assert_true(cpu.program->stats.derived_bytes > 0);
    rig_fini(&cpu);
    rig_fini(&ref);
}

static void test_runs_repeat_to_the_byte(void **state)
{
    (void)state;
    float first[N_FEATURES], again[N_FEATURES];
    for (int i = 0; i < 2; i++) {
        struct rig rig;
        rig_init(&rig, "cpu", 2);
        struct frozen net = build_frozen(&rig);
        rig_compile(&rig);
        run(&rig, &net, i ? again : first);
        rig_fini(&rig);
    }
    assert_memory_equal(first, again, sizeof first);
}

static void test_pitched_matrices_reach_dense_kernels(void **state)
{
    (void)state;
    enum { ROWS = 3, COLS = 5, PITCH = 7 };
    struct rig rig;
    int x, y;
    rig_init(&rig, "cpu", 1);
    assert_ok(rig.ctx, graph_input(rig.g, "x", DTYPE_F32, shape_2d(ROWS, COLS), &x));
    assert_ok(rig.ctx, graph_relu(rig.g, x, &y));
    assert_ok(rig.ctx, graph_expose(rig.g, y));
    rig_compile(&rig);
    struct buffer *wide;
    assert_ok(rig.ctx, buffer_new(rig.be, 2 * ROWS * PITCH * sizeof(float), &wide));
    float *data = wide->data;
    for (int i = 0; i < 2 * ROWS * PITCH; i++)
        data[i] = (float)(i % 2 ? -i : i);
    size_t half = ROWS * PITCH * sizeof(float);
    assert_ok(rig.ctx, program_bind(rig.program, x, (struct span){wide, 0, PITCH}));
    assert_ok(rig.ctx, program_bind(rig.program, y, (struct span){wide, half, PITCH}));
    assert_ok(rig.ctx, sequence_run(rig.sequence));
    for (int i = 0; i < ROWS * PITCH; i++) {
        float source = (float)(i % 2 ? -i : i);
        int at = ROWS * PITCH + i;
        float untouched = (float)(at % 2 ? -at : at);
        float expected = i % PITCH >= COLS ? untouched : source > 0 ? source : 0;
        assert_memory_equal(&data[at], &expected, sizeof expected);
        assert_memory_equal(&data[i], &source, sizeof source);
    }
    buffer_free(wide);
    rig_fini(&rig);
}

static void test_the_callers_thread_count_stays(void **state)
{
    (void)state;
#ifdef _OPENMP
    int before = omp_get_max_threads();
    struct rig rig;
    float features[N_FEATURES];
    rig_init(&rig, "cpu", before + 1);
    struct frozen net = build_frozen(&rig);
    rig_compile(&rig);
    run(&rig, &net, features);
    assert_int_equal(omp_get_max_threads(), before);
    rig_fini(&rig);
#else
    skip();
#endif
}

/* ---- denormals ---------------------------------------------------------------------------------- */

enum { WIDE = 1 << 16, MODE_THREADS = 4 };

/* A product by an own kernel, a convolution by oneDNN, both of `factor` and a constant `x`. */
/* A convolution that is trained, and its loss. */
static void build_trained(struct rig *rig)
{
    int x, weights, y, labels, factor, loss;
    assert_ok(rig->ctx, graph_input(rig->g, "x", DTYPE_F32, shape_4d(BATCH, 16, SIDE, SIDE), &x));
    assert_ok(rig->ctx, graph_input(rig->g, "labels", DTYPE_I32, shape_1d(BATCH), &labels));
    assert_ok(rig->ctx, graph_param(rig->g, "w", shape_4d(16, 16, 3, 3), true, &weights));
    assert_ok(rig->ctx, graph_conv2d(rig->g, x, weights, 1, 1, &y));
    assert_ok(rig->ctx, graph_avgpool(rig->g, y, &y));
    assert_ok(rig->ctx, graph_input(rig->g, "factor", DTYPE_F32, shape_1d(1), &factor));
    assert_ok(rig->ctx, graph_softmax_xent(rig->g, y, labels, factor, NULL, &loss));
    assert_ok(rig->ctx, graph_backward(rig->g));
    rig_compile(rig);
    memset(rig->buffers[labels]->data, 0, BATCH * sizeof(int32_t));
}

/* A step of training by this thread while it is one of two in a region of the caller's. */
static enum der_status run_in_a_region(struct rig *rig)
{
    enum der_status status = DER_UNSUPPORTED;
    CPU_PRAGMA(omp parallel num_threads(2))
    CPU_PRAGMA(omp master)
    status = sequence_run(rig->sequence);
    return status;
}

/* oneDNN's gradient of weights would wait for threads that OpenMP does not give it there, for ever. */
static void test_training_in_a_parallel_region_is_refused(void **state)
{
    (void)state;
#ifndef _OPENMP
    skip();
#endif
    struct rig rig;
    rig_init(&rig, "cpu", 2);
    build_trained(&rig);
    assert_ok(rig.ctx, sequence_run(rig.sequence));
    assert_int_equal(run_in_a_region(&rig), DER_STATE);
    assert_non_null(strstr(rig.ctx->error, "inside a parallel region of OpenMP"));
    assert_ok(rig.ctx, sequence_run(rig.sequence));
    rig_fini(&rig);
}

static void test_one_thread_may_train_in_a_parallel_region(void **state)
{
    (void)state;
    struct rig rig;
    rig_init(&rig, "cpu", 1);
    build_trained(&rig);
    assert_ok(rig.ctx, run_in_a_region(&rig));
    rig_fini(&rig);
}

struct products {
    int x, factor, scaled, images, weights, convolved;
};

static struct products build_products(struct rig *rig)
{
    struct products net;
    assert_ok(rig->ctx, graph_input(rig->g, "x", DTYPE_F32, shape_2d(BATCH, WIDE / BATCH), &net.x));
    assert_ok(rig->ctx, graph_input(rig->g, "factor", DTYPE_F32, shape_1d(1), &net.factor));
    assert_ok(rig->ctx, graph_scale(rig->g, net.x, net.factor, &net.scaled));
    assert_ok(rig->ctx, graph_expose(rig->g, net.scaled));
    assert_ok(rig->ctx, graph_input(rig->g, "images", DTYPE_F32, shape_4d(BATCH, 32, SIDE, SIDE),
                                    &net.images));
    assert_ok(rig->ctx,
              graph_param(rig->g, "weights", shape_4d(32, 32, 3, 3), false, &net.weights));
    assert_ok(rig->ctx, graph_conv2d(rig->g, net.images, net.weights, 1, 1, &net.convolved));
    assert_ok(rig->ctx, graph_expose(rig->g, net.convolved));
    return net;
}

static void fill(struct buffer *buffer, float value)
{
    float *data = buffer->data;
    for (size_t i = 0; i < buffer->bytes / sizeof *data; i++)
        data[i] = value;
    buffer->version++;
}

static int64_t count_zeros(const struct buffer *buffer)
{
    static const float zero;
    const float *data = buffer->data;
    int64_t n = 0;
    for (size_t i = 0; i < buffer->bytes / sizeof *data; i++)
        n += memcmp(&data[i], &zero, sizeof zero) == 0;
    return n;
}

/* Zeros among all results of x * factor. */
static int64_t zeros_of(const char *backend, int threads, float x, float factor)
{
    struct rig rig;
    rig_init(&rig, backend, threads);
    struct products net = build_products(&rig);
    rig_compile(&rig);
    fill(rig.buffers[net.x], x);
    fill(rig.buffers[net.factor], factor);
    fill(rig.buffers[net.images], x);
    fill(rig.buffers[net.weights], factor);
    if (strcmp(backend, "cpu") == 0)
        assert_true(rig.program->stats.n_primitives > 0); /* oneDNN's threads are meant, too */
    assert_ok(rig.ctx, sequence_run(rig.sequence));
    int64_t n = count_zeros(rig.buffers[net.scaled]) + count_zeros(rig.buffers[net.convolved]);
    rig_fini(&rig);
    return n;
}

/* This thread flushes from now on, or not; by the functions of a run, which leave alone what is so already. */
static void take_mode(bool flush)
{
    uint64_t mode = 0;
    if (flush)
        cpu_denormals_begin(&mode, 1);
    else
        cpu_denormals_end(&mode, 1);
}

static bool mode_exists(void)
{
    take_mode(true);
    bool exists = cpu_denormals_mode() != 0;
    take_mode(false);
    return exists;
}

static void test_denormals_are_zeros_on_every_thread(void **state)
{
    (void)state;
    if (!mode_exists())
        skip();
    const int64_t all = WIDE + BATCH * 32 * SIDE * SIDE;
    const float small = 1e-21f;    /* 288 products of it make 2.9e-40 */
    const float denormal = 1e-39f; /* times the next 1e-34 */
    const float large = 1e5f;
    assert_int_equal(zeros_of("ref", 1, small, small), 0);
    assert_int_equal(zeros_of("ref", 1, denormal, large), 0);
    for (int threads = 1; threads <= MODE_THREADS; threads++) {
        assert_int_equal(zeros_of("cpu", threads, small, small), all);
        assert_int_equal(zeros_of("cpu", threads, denormal, large), all);
        assert_int_equal(zeros_of("cpu", threads, small, large), 0);
    }
}

/* Modes of a pool's threads, the caller's first. */
static void pool_modes(uint64_t modes[MODE_THREADS])
{
    modes[0] = cpu_denormals_mode();
#ifdef _OPENMP
#pragma omp parallel num_threads(MODE_THREADS)
    modes[omp_get_thread_num()] = cpu_denormals_mode();
#else
    for (int i = 1; i < MODE_THREADS; i++)
        modes[i] = modes[0];
#endif
}

/* Every second thread of the pool flushes, beginning with the caller or the one after it. */
static void mix_modes(int first)
{
#ifdef _OPENMP
#pragma omp parallel num_threads(MODE_THREADS)
    take_mode(omp_get_thread_num() % 2 == first);
#else
    take_mode(first == 0);
#endif
}

static void test_the_modes_of_the_callers_threads_stay(void **state)
{
    (void)state;
    if (!mode_exists())
        skip();
    for (int first = 0; first < 2; first++) {
        uint64_t before[MODE_THREADS], after[MODE_THREADS];
        mix_modes(first);
        pool_modes(before);
        assert_int_equal(before[0] != 0, first == 0);
        zeros_of("cpu", MODE_THREADS, 1.0f, 1.0f);
        pool_modes(after);
        assert_memory_equal(before, after, sizeof before);
    }
#ifdef _OPENMP
#pragma omp parallel num_threads(MODE_THREADS)
#endif
    take_mode(false);
}

/* A thread that has never used OpenMP has no pool yet. */
static void *modes_after_the_first_run(void *modes)
{
    zeros_of("cpu", MODE_THREADS, 1.0f, 1.0f);
    pool_modes(modes);
    return NULL;
}

static void test_a_pool_made_by_a_run_has_the_callers_mode(void **state)
{
    (void)state;
    static const uint64_t ieee[MODE_THREADS];
    uint64_t modes[MODE_THREADS];
    memset(modes, 0xff, sizeof modes);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, modes_after_the_first_run, modes), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_memory_equal(modes, ieee, sizeof modes);
}

static void test_every_failed_allocation_leaves_nothing_behind(void **state)
{
    (void)state;
    struct rig rig;
    rig_init(&rig, "cpu", 1);
    build_frozen(&rig);
    struct mem *mem = &rig.ctx->mem;
    uint64_t live = mem->n_live;
    enum der_status status = DER_NOMEM;
    for (uint64_t n = 1; status != DER_OK; n++) {
        mem->fail_at = mem->n_allocs + n;
        status = program_compile(rig.be, rig.g, &rig.program);
        mem->fail_at = 0;
        if (status == DER_OK)
            break;
        assert_int_equal(status, DER_NOMEM);
        assert_null(rig.program);
        assert_int_equal(mem->n_live, live);
        assert_true(n < 10000);
    }
    rig_fini(&rig);
}

/* As `ulimit -v` does: so much more than the process has. */
static void limit_memory(rlim_t more)
{
    struct rlimit limit;
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%lu", &pages), 1);
    (void)fclose(file);
    assert_int_equal(getrlimit(RLIMIT_AS, &limit), 0);
    limit.rlim_cur = more == RLIM_INFINITY ? limit.rlim_max
                                           : (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE) + more;
    assert_int_equal(setrlimit(RLIMIT_AS, &limit), 0);
}

/* oneDNN would write its kernels through a null pointer. */
static void test_no_room_for_kernels_is_told_before_onednn_meets_it(void **state)
{
    (void)state;
    struct rig rig;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    skip(); /* a sanitizer needs the room itself */
#endif
    rig_init(&rig, "cpu", 1);
    build_frozen(&rig);
    limit_memory(8 << 20);
    enum der_status status = program_compile(rig.be, rig.g, &rig.program);
    limit_memory(RLIM_INFINITY);
    assert_int_equal(status, DER_NOMEM);
    assert_non_null(strstr(rig.ctx->error, "oneDNN ran out of memory"));
    assert_ok(rig.ctx, program_compile(rig.be, rig.g, &rig.program));
    rig_fini(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_derived_weights_are_refreshed_when_the_version_moves),
        cmocka_unit_test(test_binding_anew_refreshes_derived_weights),
        cmocka_unit_test(test_a_residual_may_be_the_source),
        cmocka_unit_test(test_runs_repeat_to_the_byte),
        cmocka_unit_test(test_pitched_matrices_reach_dense_kernels),
        cmocka_unit_test(test_the_callers_thread_count_stays),
        cmocka_unit_test(test_training_in_a_parallel_region_is_refused),
        cmocka_unit_test(test_one_thread_may_train_in_a_parallel_region),
        cmocka_unit_test(test_denormals_are_zeros_on_every_thread),
        cmocka_unit_test(test_the_modes_of_the_callers_threads_stay),
        cmocka_unit_test(test_a_pool_made_by_a_run_has_the_callers_mode),
        cmocka_unit_test(test_no_room_for_kernels_is_told_before_onednn_meets_it),
        cmocka_unit_test(test_every_failed_allocation_leaves_nothing_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * Plans on disk: what is read back is the plan that was made, whatever has become of its file in between.
 */
#include "backend/cuda/cudnn_keep.h"

#include "io/plan_cache.h"
#include "support/cuda/conv_arrays.h"
#include "support/rig.h"
#include "support/scratch.h"
#include "support/test_ctx.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern const struct backend_ops cuda_backend;

/* ---- keys, which need no GPU ---------------------------------------------------------------------------- */

static const struct dnn_machine MACHINE = {.cudnn = 91900,
                                           .driver = 13000,
                                           .runtime = 13000,
                                           .gpu = "NVIDIA H200",
                                           .major = 9,
                                           .multiprocessors = 132};

static void assert_other_key(const struct dnn_machine *machine, const struct dnn_conv *conv)
{
    char key[DNN_KEY_CHARS];
    char plain[DNN_KEY_CHARS];
    const struct dnn_conv zero = {0};
    dnn_key(plain, &MACHINE, &zero);
    dnn_key(key, machine, conv);
    assert_string_not_equal(key, plain);
}

static void test_every_field_is_part_of_the_key(void **state)
{
    (void)state;
#define CHANGED_CONV(field, value) assert_other_key(&MACHINE, &(struct dnn_conv){.field = (value)})
    CHANGED_CONV(pass, DNN_D_SRC);
    CHANGED_CONV(pass, DNN_D_WEIGHTS);
    CHANGED_CONV(shape.n, 1);
    CHANGED_CONV(shape.c, 1);
    CHANGED_CONV(shape.h, 1);
    CHANGED_CONV(shape.w, 1);
    CHANGED_CONV(shape.k, 1);
    CHANGED_CONV(shape.r, 1);
    CHANGED_CONV(shape.s, 1);
    CHANGED_CONV(shape.out_h, 1);
    CHANGED_CONV(shape.out_w, 1);
    CHANGED_CONV(shape.stride, 1);
    CHANGED_CONV(shape.pad, 1);
    CHANGED_CONV(shape.type, CUDA_BF16);
    CHANGED_CONV(d_weights_type, CUDA_BF16);
    CHANGED_CONV(tensor_cores, true);
    CHANGED_CONV(deterministic, true);
    CHANGED_CONV(bias, true);
    CHANGED_CONV(residual, true);
    CHANGED_CONV(relu, true);
    CHANGED_CONV(compiled, true);
#undef CHANGED_CONV
    const struct dnn_conv conv = {0};
    struct dnn_machine machine;
#define CHANGED_MACHINE(change)                                                                    \
    machine = MACHINE;                                                                             \
    change;                                                                                        \
    assert_other_key(&machine, &conv)
    CHANGED_MACHINE(machine.cudnn++);
    CHANGED_MACHINE(machine.driver++);
    CHANGED_MACHINE(machine.runtime++);
    CHANGED_MACHINE(machine.gpu[7] = 'B');
    CHANGED_MACHINE(machine.major++);
    CHANGED_MACHINE(machine.minor++);
    CHANGED_MACHINE(machine.multiprocessors--);
#undef CHANGED_MACHINE
}

static void test_the_longest_key_has_room(void **state)
{
    (void)state;
    char key[DNN_KEY_CHARS];
    const int64_t most = INT64_MIN;
    struct dnn_machine machine = {.cudnn = SIZE_MAX,
                                  .driver = INT32_MIN,
                                  .runtime = INT32_MIN,
                                  .major = INT32_MIN,
                                  .minor = INT32_MIN,
                                  .multiprocessors = INT32_MIN};
    const struct dnn_conv conv = {.pass = DNN_D_WEIGHTS,
                                  .shape = {.n = most,
                                            .c = most,
                                            .h = most,
                                            .w = most,
                                            .k = most,
                                            .r = most,
                                            .s = most,
                                            .out_h = most,
                                            .out_w = most,
                                            .stride = most,
                                            .pad = most,
                                            .type = CUDA_BF16},
                                  .d_weights_type = CUDA_BF16,
                                  .compiled = true};
    memset(machine.gpu, 'g', sizeof machine.gpu - 1);
    dnn_key(key, &machine, &conv);
    assert_string_equal(key + strlen(key) - strlen("compiled 1"), "compiled 1");
}

/* ---- sessions: what a process does with the folder --------------------------------------------------------- */

static const struct conv_layer LAYER = {
    .n = 8, .h = 16, .w = 16, .c = 64, .k = 64, .kernel = 3, .stride = 1};

enum { N_CONVS = 4 };

static void fill_convs(struct dnn_conv convs[N_CONVS])
{
    const struct dnn_conv plain = {.shape = conv_layer_shape(&LAYER),
                                   .d_weights_type = CUDA_BF16,
                                   .tensor_cores = true,
                                   .deterministic = true,
                                   .compiled = true};
    for (int i = 0; i < N_CONVS; i++)
        convs[i] = plain;
    convs[1].bias = convs[1].residual = convs[1].relu = true;
    convs[2].pass = DNN_D_SRC;
    convs[3].pass = DNN_D_WEIGHTS;
}

struct session {
    struct der_ctx *ctx;
    struct cuda_libs libs;
    struct dnn *dnn;
    struct dnn_conv convs[N_CONVS];
    const struct dnn_plan *plans[N_CONVS];
    int n_told; /* that something is not kept */
};

static void listen(void *user, enum der_log_level level, const char *text)
{
    struct session *s = user;
    assert_int_equal(level, DER_LOG_INFO);
    s->n_told += strstr(text, "are not kept") != NULL;
}

/* folder NULL: nothing is kept. */
static void session_open(struct session *s, const char *folder, int threads)
{
    *s = (struct session){0};
    const struct der_ctx_options options = {
        .threads = threads, .log = listen, .log_user = s, .cache_dir = folder};
    assert_int_equal(der_ctx_new(&options, &s->ctx), DER_OK);
    assert_int_equal(cudaSetDevice(0), cudaSuccess);
    assert_ok(s->ctx, cuda_libs_load(s->ctx, &s->libs));
    assert_ok(s->ctx, dnn_open(s->ctx, &s->libs, &s->dnn));
    fill_convs(s->convs);
    dnn_prefetch(s->dnn, s->convs, N_CONVS);
    for (int i = 0; i < N_CONVS; i++) {
        assert_ok(s->ctx, dnn_find(s->dnn, &s->convs[i], &s->plans[i]));
        assert_non_null(s->plans[i]);
    }
    assert_string_equal(der_ctx_error(s->ctx), "");
}

static void session_close(struct session *s)
{
    dnn_close(s->dnn);
    test_ctx_free(s->ctx);
}

/* What all of them compute, one result behind the other; the caller frees it. */
static char *session_results(struct session *s, size_t *size)
{
    struct conv_arrays a;
    conv_arrays_init(&a, &LAYER);
    const size_t bytes[N_CONVS] = {(size_t)a.n_dst * 2, (size_t)a.n_dst * 2, (size_t)a.n_src * 2,
                                   (size_t)a.n_weights * 2};
    *size = bytes[0] + bytes[1] + bytes[2] + bytes[3];
    char *results = malloc(*size);
    char *at = results;
    assert_non_null(results);
    for (int i = 0; i < N_CONVS; i++) {
        const enum dnn_pass pass = s->convs[i].pass;
        struct dnn_pointers p = {.image = pass == DNN_D_SRC ? a.actual : a.src,
                                 .weights = pass == DNN_D_WEIGHTS ? a.actual : a.weights,
                                 .result = pass == DNN_FORWARD ? a.actual : a.dst,
                                 .bias = a.bias,
                                 .residual = a.residual};
        assert_int_equal(cudaMalloc(&p.workspace, s->plans[i]->workspace + 1), cudaSuccess);
        assert_ok(s->ctx, dnn_run(s->dnn, s->plans[i], &p, NULL));
        assert_int_equal(cudaMemcpy(at, a.actual, bytes[i], cudaMemcpyDeviceToHost), cudaSuccess);
        assert_int_equal(cudaFree(p.workspace), cudaSuccess);
        at += bytes[i];
    }
    conv_arrays_fini(&a);
    return results;
}

static void assert_counts(const struct session *s, int compiled, int recalled)
{
    const struct dnn_counts counts = dnn_count(s->dnn);
    assert_int_equal(counts.compiled, compiled);
    assert_int_equal(counts.recalled, recalled);
}

static int count_plans(const char *folder)
{
    int n = 0;
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    const struct dirent *entry;
    while ((entry = readdir(dir)))
        n += strstr(entry->d_name, ".plan") != NULL;
    (void)closedir(dir);
    return n;
}

/* A session that fills a folder; how many plans are in it then, and what the convolutions give. */
static int fill_folder(const char *folder, char **results, size_t *size)
{
    struct session s;
    session_open(&s, folder, 4);
    const struct dnn_counts counts = dnn_count(s.dnn);
    assert_true(counts.compiled > 0);
    assert_int_equal(counts.recalled, 0);
    *results = session_results(&s, size);
    session_close(&s);
    const int n = count_plans(folder);
    assert_in_range(n, 1, N_CONVS);
    return n;
}

static void test_a_plan_that_was_kept_computes_the_same_bytes(void **state)
{
    (void)state;
    static const int threads[] = {1, 4};
    if (!backend_is_usable(&cuda_backend))
        skip();
    struct scratch scratch;
    scratch_init(&scratch);
    const char *folder = scratch_path(&scratch, "a/cache");
    struct session s;
    size_t size;
    char *expected;
    session_open(&s, NULL, 4);
    char *without = session_results(&s, &size);
    const struct dnn_plan plans[N_CONVS] = {*s.plans[0], *s.plans[1], *s.plans[2], *s.plans[3]};
    session_close(&s);
    const int n = fill_folder(folder, &expected, &size);
    assert_memory_equal(expected, without, size);
    for (int t = 0; t < 2; t++) {
        session_open(&s, folder, threads[t]);
        assert_counts(&s, 0, n); /* nothing is compiled, with any number of threads */
        for (int i = 0; i < N_CONVS; i++) {
            assert_int_equal(s.plans[i]->workspace, plans[i].workspace);
            assert_true(s.plans[i]->engine == plans[i].engine);
            assert_int_equal(s.plans[i]->notes, plans[i].notes);
            assert_int_equal(s.plans[i]->is_compiled_now, plans[i].is_compiled_now);
        }
        char *results = session_results(&s, &size);
        assert_memory_equal(results, expected, size);
        free(results);
        session_close(&s);
    }
    free(expected);
    free(without);
    scratch_fini(&scratch);
}

/* ---- what may become of files ------------------------------------------------------------------------------ */

/* Changes a byte in the middle of every file. */
static void damage(const char *folder)
{
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    const struct dirent *entry;
    while ((entry = readdir(dir))) {
        char path[SCRATCH_PATH_MAX * 2];
        if (entry->d_name[0] == '.')
            continue;
        (void)snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        FILE *file = fopen(path, "r+b");
        assert_non_null(file);
        assert_int_equal(fseek(file, 2000, SEEK_SET), 0);
        const int byte = fgetc(file);
        assert_int_equal(fseek(file, 2000, SEEK_SET), 0);
        assert_int_not_equal(fputc(byte ^ 1, file), EOF);
        assert_int_equal(fclose(file), 0);
    }
    (void)closedir(dir);
}

/* Whole files of ours, under the right keys, that cuDNN has never written. */
static void forge(const char *folder, const char *text)
{
    struct der_ctx *ctx = test_ctx_new(1);
    struct cuda_libs libs;
    struct dnn_machine machine;
    struct plan_cache *cache;
    struct dnn_conv convs[N_CONVS];
    fill_convs(convs);
    assert_ok(ctx, cuda_libs_load(ctx, &libs));
    assert_ok(ctx, dnn_machine_ask(ctx, &libs, &machine));
    assert_ok(ctx, plan_cache_open(ctx, NULL, folder, &PLAN_CACHE_LIMITS, &cache));
    for (int i = 0; i < N_CONVS; i++) {
        char key[DNN_KEY_CHARS];
        dnn_key(key, &machine, &convs[i]);
        assert_ok(ctx, plan_cache_store(cache, key, text, strlen(text)));
    }
    plan_cache_close(cache);
    test_ctx_free(ctx);
}

static void test_what_does_not_work_is_made_anew_and_replaced(void **state)
{
    (void)state;
    static const char *const forged[] = {
        NULL,
        "",
        "nonsense",
        "engine 7 notes 0 workspace 0\n",
        "engine 7 notes 0 workspace 0\n{}",
        "engine 7 notes 0 workspace 0\n{\"cudnnVersion\":91900,\"schemaVersion\":4}"};
    if (!backend_is_usable(&cuda_backend))
        skip();
    struct scratch scratch;
    scratch_init(&scratch);
    const char *folder = scratch_path(&scratch, "cache");
    size_t size;
    char *expected;
    const int n = fill_folder(folder, &expected, &size);
    for (size_t i = 0; i < sizeof forged / sizeof *forged; i++) {
        struct session s;
        if (forged[i])
            forge(folder, forged[i]);
        else
            damage(folder);
        session_open(&s, folder, 4);
        assert_true(dnn_count(s.dnn).compiled >= n);
        assert_int_equal(dnn_count(s.dnn).recalled, 0);
        char *results = session_results(&s, &size);
        assert_memory_equal(results, expected, size);
        free(results);
        session_close(&s);
        session_open(&s, folder, 4);
        assert_counts(&s, 0, n);
        session_close(&s);
    }
    free(expected);
    scratch_fini(&scratch);
}

static void test_a_folder_that_cannot_be_written_to_is_told_once_and_no_failure(void **state)
{
    (void)state;
    if (!backend_is_usable(&cuda_backend))
        skip();
    struct scratch scratch;
    struct session s;
    scratch_init(&scratch);
    scratch_text(&scratch, "file", "not a folder");
    session_open(&s, scratch_path(&scratch, "file"), 1);
    assert_int_equal(s.n_told, 1);
    session_close(&s);
    scratch_fini(&scratch);
}

static void test_every_failed_allocation_is_survived(void **state)
{
    (void)state;
    if (!backend_is_usable(&cuda_backend))
        skip();
    struct scratch scratch;
    struct session s;
    size_t size;
    char *results;
    scratch_init(&scratch);
    const char *folder = scratch_path(&scratch, "cache");
    (void)fill_folder(folder, &results, &size);
    free(results);
    session_open(&s, folder, 1);
    struct mem *mem = &s.ctx->mem;
    const uint64_t n_live = atomic_load(&mem->n_live);
    bool has_failed = true;
    for (uint64_t k = 1; has_failed; k++) {
        struct dnn *dnn = NULL;
        const struct dnn_plan *plan;
        atomic_store(&mem->fail_at, atomic_load(&mem->n_allocs) + k);
        enum der_status status = dnn_open(s.ctx, &s.libs, &dnn);
        if (status == DER_OK)
            status = dnn_find(dnn, &s.convs[0], &plan);
        has_failed = atomic_load(&mem->n_allocs) >= atomic_load(&mem->fail_at);
        atomic_store(&mem->fail_at, 0);
        assert_true(status == DER_NOMEM ? has_failed : status == DER_OK && plan);
        dnn_close(dnn);
        assert_int_equal(atomic_load(&mem->n_live), n_live);
    }
    session_close(&s);
    scratch_fini(&scratch);
}

/* ---- training ------------------------------------------------------------------------------------------------ */

/* A checksum over all that was learnt. */
static uint64_t train(const char *folder, struct dnn_counts *counts)
{
    static const struct rig_options options = {.backend = "cuda",
                                               .precision = PRECISION_BF16,
                                               .tuning = {.without_strips = true},
                                               .network = "resnet18-cifar",
                                               .width = 1.0,
                                               .batch = 8,
                                               .size = 16,
                                               .n_frozen = 2,
                                               .masks = true,
                                               .fuse = true};
    const struct der_ctx_options ctx_options = {.threads = 4, .cache_dir = folder};
    struct der_ctx *ctx;
    struct rig *rig;
    uint64_t sum;
    assert_int_equal(der_ctx_new(&ctx_options, &ctx), DER_OK);
    assert_ok(ctx, rig_open(ctx, &options, &rig));
    for (int i = 0; i < 4; i++) {
        float losses[3];
        assert_ok(ctx, rig_step(rig, i, losses));
    }
    assert_ok(ctx, rig_checksum(rig, &sum));
    *counts = dnn_count(((struct cuda_backend *)rig->be)->dnn);
    rig_close(rig);
    test_ctx_free(ctx);
    return sum;
}

static void test_training_is_the_same_with_and_without_a_folder(void **state)
{
    (void)state;
    if (!backend_is_usable(&cuda_backend))
        skip();
    struct scratch scratch;
    struct dnn_counts counts;
    scratch_init(&scratch);
    const char *folder = scratch_path(&scratch, "cache");
    const uint64_t sum = train(NULL, &counts);
    const int n_compiled = counts.compiled;
    assert_true(n_compiled > 0);
    assert_true(train(folder, &counts) == sum);
    assert_int_equal(counts.compiled, n_compiled);
    assert_int_equal(counts.recalled, 0);
    assert_true(train(folder, &counts) == sum);
    assert_int_equal(counts.compiled, 0);
    assert_true(counts.recalled > 0);
    scratch_fini(&scratch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_field_is_part_of_the_key),
        cmocka_unit_test(test_the_longest_key_has_room),
        cmocka_unit_test(test_a_plan_that_was_kept_computes_the_same_bytes),
        cmocka_unit_test(test_what_does_not_work_is_made_anew_and_replaced),
        cmocka_unit_test(test_a_folder_that_cannot_be_written_to_is_told_once_and_no_failure),
        cmocka_unit_test(test_every_failed_allocation_is_survived),
        cmocka_unit_test(test_training_is_the_same_with_and_without_a_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * Several pruned extractors on one picture, as a prediction runs them: right numbers, the same ones with any
 * number of threads, and nothing that would make the first prediction slow. Seconds are bench/predict.sh's.
 */
#include "core/rng.h"
#include "model/extractor.h"
#include "support/tensor_check.h"
#include "support/test_backend.h"
#include "support/test_ctx.h"

#include <string.h>

enum { EXTRACTORS = 5, SIDE = 32, PIXELS = 3 * SIDE * SIDE, MAX_FEATURES = EXTRACTORS * 128 };

/* A ResNet-18 for small images as pruning leaves it, of some hundred thousand parameters. */
static struct resnet_spec pruned(struct der_ctx *ctx, int number)
{
    static const int full[] = {23, 34, 51, 45};
    struct resnet_spec spec;
    assert_ok(ctx, resnet_spec_init(ctx, &spec, "resnet18-cifar", 3, SIDE, SIDE, 1.0));
    for (int k = 0; k < spec.n_stages; k++) {
        spec.stream[k] = full[k] + 7 * number;
        for (int b = 0; b < spec.n_blocks[k]; b++)
            spec.inner[k][b] = full[k] - 4 * number + 3 * b;
    }
    return spec;
}

struct ensemble {
    struct der_ctx *ctx;
    struct backend *be;
    struct buffer *image, *matrix;
    struct extractor *extractors[EXTRACTORS];
    const struct folded *folded[EXTRACTORS];
    struct sequence *sequence;
    int64_t dim;
};

/* The residual sums grow less with a small gamma, so that features stay near 1. */
static void draw(struct extractor *extractor, uint32_t stream)
{
    struct param_set *set = extractor->params;
    assert_ok(set->ctx, param_set_init(set, 1, stream));
    for (int i = 0; i < set->n; i++) {
        float host[256];
        if (set->items[i].shape.rank != 1)
            continue;
        rng_uniform(host, set->items[i].shape.dim[0], 0.2, 0.9, 2, RNG_TEST,
                    stream * 1000 + (uint32_t)i);
        assert_ok(set->ctx, param_write(set, i, host));
    }
}

static void ensemble_init(struct ensemble *e, const char *backend, int threads)
{
    static float image[PIXELS];
    struct sequence_item items[EXTRACTORS];
    int64_t col = 0;
    *e = (struct ensemble){.ctx = test_ctx_new(threads)};
    assert_ok(e->ctx, backend_open(e->ctx, backend, NULL, &e->be));
    rng_normal(image, PIXELS, 1.0, 5, RNG_TEST, 0);
    assert_ok(e->ctx, buffer_new(e->be, sizeof image, &e->image));
    assert_ok(e->ctx, buffer_write(e->image, 0, image, sizeof image));
    assert_ok(e->ctx, buffer_new(e->be, MAX_FEATURES * sizeof(float), &e->matrix));
    for (int i = 0; i < EXTRACTORS; i++) {
        struct resnet_spec spec = pruned(e->ctx, i);
        struct span feature = {e->matrix, (size_t)col * sizeof(float), MAX_FEATURES};
        assert_ok(e->ctx, extractor_new(e->be, &spec, &e->extractors[i]));
        draw(e->extractors[i], (uint32_t)i);
        assert_ok(e->ctx, extractor_folded(e->extractors[i], 1, &e->folded[i]));
        assert_ok(e->ctx, folded_bind(e->folded[i], (struct span){.buffer = e->image}, feature));
        items[i] = (struct sequence_item){e->folded[i]->program, 0};
        col += resnet_feature_dim(&spec);
    }
    e->dim = col;
    assert_true(col <= MAX_FEATURES);
    assert_ok(e->ctx, sequence_new(e->be, items, EXTRACTORS, &e->sequence));
}

static void ensemble_fini(struct ensemble *e)
{
    sequence_free(e->sequence);
    for (int i = 0; i < EXTRACTORS; i++)
        extractor_free(e->extractors[i]);
    buffer_free(e->image);
    buffer_free(e->matrix);
    backend_close(e->be);
    test_ctx_free(e->ctx);
}

/* Twice: the second run finds its weights prepared. */
static void features_of(const char *backend, int threads, float features[MAX_FEATURES],
                        int64_t *dim)
{
    struct ensemble e;
    float first[MAX_FEATURES];
    ensemble_init(&e, backend, threads);
    uint64_t version = e.matrix->version;
    assert_ok(e.ctx, sequence_run(e.sequence));
    assert_true(e.matrix->version > version);
    assert_ok(e.ctx, buffer_read(e.matrix, 0, first, sizeof first));
    assert_ok(e.ctx, sequence_run(e.sequence));
    assert_ok(e.ctx, buffer_read(e.matrix, 0, features, sizeof first));
    assert_memory_equal(first, features, sizeof first);
    *dim = e.dim;
    ensemble_fini(&e);
}

/* Other machines leave some layers to oneDNN. */
static bool has_own_kernels(void)
{
#if defined(__x86_64__) && defined(__GNUC__)
    bool is_built = false;
    for (const struct backend_ops *const *ops = test_backends(); *ops; ops++)
        is_built = is_built || strcmp((*ops)->name, "cpu") == 0;
    return is_built && __builtin_cpu_supports("avx512f");
#else
    return false;
#endif
}

static void test_features_are_the_references(void **state)
{
    (void)state;
    float expected[MAX_FEATURES];
    float actual[MAX_FEATURES];
    int64_t dim;
    features_of("ref", 1, expected, &dim);
    for (const struct backend_ops *const *ops = test_backends(); *ops; ops++) {
        if (strcmp((*ops)->name, "ref") == 0)
            continue;
        features_of((*ops)->name, 2, actual, &dim);
        /* 20 layers in float, a third of them by Winograd: 3e-14 was seen. */
        assert_tensor_close(actual, expected, dim, 1e-12, (*ops)->name);
    }
}

/* One after the other on all threads, or side by side on one each: 5 programs go either way here. */
static void test_threads_do_not_change_a_bit(void **state)
{
    (void)state;
    if (!has_own_kernels())
        skip();
    static const int threads[] = {2, 3, 9, 12};
    float alone[MAX_FEATURES];
    float actual[MAX_FEATURES];
    int64_t dim;
    features_of("cpu", 1, alone, &dim);
    for (size_t i = 0; i < sizeof threads / sizeof *threads; i++) {
        features_of("cpu", threads[i], actual, &dim);
        assert_memory_equal(alone, actual, sizeof alone);
    }
}

/* oneDNN makes its kernels at run time, and an extractor has 20 layers. */
static void test_the_first_prediction_makes_no_primitives(void **state)
{
    (void)state;
    if (!has_own_kernels())
        skip();
    struct ensemble e;
    ensemble_init(&e, "cpu", 1);
    for (int i = 0; i < EXTRACTORS; i++) {
        const struct program_stats *stats = &e.folded[i]->program->stats;
        size_t parameters = (size_t)resnet_count_params(&e.extractors[i]->spec) * sizeof(float);
        assert_int_equal(stats->n_primitives, 0);
        assert_int_equal(stats->n_reorders_activation, 0);
        /* Weights are read anew for every picture; all of them by Winograd would be four times as much. */
        assert_in_range(stats->derived_bytes, parameters / 2, 5 * parameters / 2);
        assert_in_range(stats->temp_bytes, 1, 1 << 20);
    }
    ensemble_fini(&e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_features_are_the_references),
        cmocka_unit_test(test_threads_do_not_change_a_bit),
        cmocka_unit_test(test_the_first_prediction_makes_no_primitives),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

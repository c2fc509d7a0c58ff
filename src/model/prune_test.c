/*
 * Pruning is exact: the small network equals the hard-masked one, to the bit where sums have a fixed
 * order.
 */
#include "core/rng.h"
#include "model/extractor.h"
#include "model/prune.h"
#include "support/test_backend.h"
#include "support/tensor_check.h"
#include "support/test_ctx.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { BATCH = 2, SIZE = 10, MAX_CHANNELS = 64 };

static const char *const NETWORKS[] = {"resnet18-cifar", "resnet32", "resnet18", "resnet18-3x3"};

struct fixture {
    struct der_ctx *ctx;
    struct backend *be;
    struct extractor *full, *small;
    struct param_set *masks; /* e, one vector per mask */
    struct kept kept;
    struct buffer *image;
};

/* Weights as initialised; batch norms and masks at random. share: how many channels stay, roughly. */
static void stir(struct fixture *f, uint32_t seed, double share)
{
    struct param_set *set = f->full->params;
    float host[MAX_CHANNELS];
    assert_ok(f->ctx, param_set_init(set, seed, 0));
    for (int i = 0; i < set->n; i++) {
        if (set->items[i].shape.rank != 1)
            continue;
        rng_uniform(host, set->items[i].shape.dim[0], 0.5, 1.5, seed, RNG_TEST, (uint32_t)i);
        assert_ok(f->ctx, param_write(set, i, host));
    }
    for (int i = 0; i < f->masks->n; i++) {
        rng_uniform(host, f->masks->items[i].shape.dim[0], share - 1.0, share, seed, RNG_TEST,
                    1000 + (uint32_t)i);
        assert_ok(f->ctx, param_write(f->masks, i, host));
    }
}

static void prune(struct fixture *f)
{
    float e[RESNET_MAX_MASKS][MAX_CHANNELS];
    const float *rows[RESNET_MAX_MASKS];
    for (int i = 0; i < f->masks->n; i++) {
        assert_ok(f->ctx, param_read(f->masks, i, e[i]));
        rows[i] = e[i];
    }
    assert_ok(f->ctx, kept_from_masks(f->ctx, &f->full->spec, rows, &f->kept));
    struct resnet_spec spec = pruned_spec(&f->full->spec, &f->kept);
    assert_ok(f->ctx, extractor_new(f->be, &spec, &f->small));
    assert_ok(f->ctx, prune_params(&f->full->spec, &f->kept, f->full->params, f->small->params));
}

static void open_fixture(struct fixture *f, const char *backend, const char *network, uint32_t seed,
                         double share)
{
    struct resnet_spec spec;
    float image[BATCH * 3 * SIZE * SIZE];
    *f = (struct fixture){.ctx = test_ctx_new(2)};
    assert_ok(f->ctx, backend_open(f->ctx, backend, NULL, &f->be));
    assert_ok(f->ctx, resnet_spec_init(f->ctx, &spec, network, 3, SIZE, SIZE, 0.1));
    assert_ok(f->ctx, extractor_new(f->be, &spec, &f->full));
    assert_ok(f->ctx, param_set_new(f->ctx, &f->masks));
    for (int i = 0; i < resnet_mask_count(&spec); i++) {
        char name[32];
        int index;
        (void)snprintf(name, sizeof name, "e%d", i);
        assert_ok(f->ctx, param_set_add(f->masks, name, shape_1d(resnet_mask_channels(&spec, i)),
                                        PARAM_LEARNT, INIT_ZERO, &index));
    }
    assert_ok(f->ctx, param_set_allocate(f->masks, f->be));
    stir(f, seed, share);
    prune(f);
    rng_normal(image, BATCH * 3 * SIZE * SIZE, 1.0, seed, RNG_TEST, 5000);
    assert_ok(f->ctx, buffer_new(f->be, sizeof image, &f->image));
    assert_ok(f->ctx, buffer_write(f->image, 0, image, sizeof image));
}

static void close_fixture(struct fixture *f)
{
    kept_fini(f->ctx, &f->kept);
    buffer_free(f->image);
    extractor_free(f->full);
    extractor_free(f->small);
    param_set_free(f->masks);
    backend_close(f->be);
    test_ctx_free(f->ctx);
}

/* Features of an extractor in evaluation mode, through hard masks when `masked`. */
static void features_of(struct fixture *f, struct extractor *extractor, bool masked,
                        float *features)
{
    struct der_ctx *ctx = f->ctx;
    struct graph *g;
    struct param_use use;
    struct param_use mask_use = {0};
    struct resnet_io io = {0};
    int m[RESNET_MAX_MASKS];
    int s = NO_VALUE;
    int feature;
    assert_ok(ctx, graph_new(ctx, &g));
    assert_ok(ctx, graph_input(g, "x", DTYPE_F32, shape_4d(BATCH, 3, SIZE, SIZE), &io.image));
    assert_ok(ctx, params_attach(extractor->params, g, false, &use));
    if (masked) {
        assert_ok(ctx, params_attach(f->masks, g, false, &mask_use));
        assert_ok(ctx, graph_input(g, "s", DTYPE_F32, shape_1d(1), &s));
        assert_ok(ctx, graph_mask_gate(g, s, mask_use.value, f->masks->n, MASK_GRADIENT_EXACT,
                                       400.0f, m));
        io.masks = m;
    }
    assert_ok(ctx, resnet_build(&extractor->spec, g, &use, &io, &feature));
    assert_ok(ctx, graph_expose(g, feature));

    struct program *program;
    struct buffer *out;
    struct buffer *steepness;
    struct sequence *sequence;
    const float infinity = INFINITY;
    size_t bytes = BATCH * (size_t)resnet_feature_dim(&extractor->spec) * sizeof(float);
    assert_ok(ctx, program_compile(f->be, g, &program));
    assert_ok(ctx, params_bind(&use, program));
    assert_ok(ctx, buffer_new(f->be, bytes, &out));
    assert_ok(ctx, buffer_new(f->be, sizeof infinity, &steepness));
    assert_ok(ctx, buffer_write(steepness, 0, &infinity, sizeof infinity));
    if (masked) {
        assert_ok(ctx, params_bind(&mask_use, program));
        assert_ok(ctx, program_bind(program, s, (struct span){.buffer = steepness}));
    }
    assert_ok(ctx, program_bind(program, io.image, (struct span){.buffer = f->image}));
    assert_ok(ctx, program_bind(program, feature, (struct span){.buffer = out}));
    struct sequence_item item = {program, 0};
    assert_ok(ctx, sequence_new(f->be, &item, 1, &sequence));
    assert_ok(ctx, sequence_run(sequence));
    assert_ok(ctx, buffer_read(out, 0, features, bytes));
    sequence_free(sequence);
    program_free(program);
    buffer_free(out);
    buffer_free(steepness);
    param_use_fini(&use);
    param_use_fini(&mask_use);
    graph_free(g);
}

/* Compares kept features; dropped ones must be zero. exact: to the bit. */
static void compare(struct fixture *f, bool exact, const char *what)
{
    float masked[BATCH * MAX_CHANNELS];
    float small[BATCH * MAX_CHANNELS];
    int dim = resnet_feature_dim(&f->full->spec);
    int last = f->full->spec.n_stages - 1;
    int n_kept = f->kept.count[last];
    features_of(f, f->full, true, masked);
    features_of(f, f->small, false, small);
    for (int r = 0; r < BATCH; r++) {
        float expected[MAX_CHANNELS];
        int next = 0;
        for (int c = 0; c < dim; c++) {
            if (next < n_kept && f->kept.channel[last][next] == c)
                expected[next++] = masked[r * dim + c];
            else
                assert_true(masked[r * dim + c] == 0.0f);
        }
        if (exact)
            assert_memory_equal(&small[r * n_kept], expected, (size_t)n_kept * sizeof(float));
        else /* 1e-5 relative, squared */
            assert_tensor_close(&small[r * n_kept], expected, n_kept, 1e-10, what);
    }
}

static void test_pruned_equals_masked_for_all_networks(void **state)
{
    (void)state;
    static const double shares[] = {0.7, 0.4,
                                    0.0}; /* with 0 every mask falls back on one channel */
    for (const struct backend_ops *const *be = test_backends(); *be; be++)
        for (int net = 0; net < 4; net++)
            for (int i = 0; i < 3; i++) {
                struct fixture f;
                open_fixture(&f, (*be)->name, NETWORKS[net], (uint32_t)(10 * net + i), shares[i]);
                if (shares[i] == 0.0)
                    for (int m = 0; m < f.kept.n_masks; m++)
                        assert_int_equal(f.kept.count[m], 1);
                compare(&f, strcmp((*be)->name, "ref") == 0, NETWORKS[net]);
                close_fixture(&f);
            }
}

/* What is left is what the sparsity loss counts, plus two batch-norm numbers per kept output. */
static void test_the_count_is_what_the_sparsity_loss_counts(void **state)
{
    (void)state;
    for (int net = 0; net < 4; net++) {
        struct fixture f;
        open_fixture(&f, "ref", NETWORKS[net], 77, 0.5);
        struct sparsity_layer layers[RESNET_MAX_LAYERS];
        int n = resnet_sparsity_layers(&f.full->spec, layers, RESNET_MAX_LAYERS);
        int64_t count = 0;
        for (int i = 0; i < n; i++) {
            int64_t in =
                layers[i].in_mask < 0 ? layers[i].in_channels : f.kept.count[layers[i].in_mask];
            int64_t out = f.kept.count[layers[i].out_mask];
            count += layers[i].kernel_area * in * out + 2 * out;
        }
        assert_int_equal(resnet_count_params(&f.small->spec), count);
        assert_int_equal(param_set_count(f.small->params), count);
        close_fixture(&f);
    }
}

/* A tensor of parameters, or of velocities; caller frees. */
static float *tensor_of(struct fixture *f, const struct param_set *set, int index, bool is_velocity)
{
    float *host =
        mem_alloc(&f->ctx->mem, (size_t)shape_count(set->items[index].shape), sizeof *host);
    assert_non_null(host);
    assert_ok(f->ctx,
              is_velocity ? param_read_velocity(set, index, host) : param_read(set, index, host));
    return host;
}

/* Numbers that no other place has: first, first + 1, ... */
static void number_all(struct fixture *f, struct param_set *set, float first)
{
    for (int i = 0; i < set->n; i++) {
        int64_t n = shape_count(set->items[i].shape);
        float *host = mem_alloc(&f->ctx->mem, (size_t)n, sizeof *host);
        assert_non_null(host);
        for (int64_t k = 0; k < n; k++)
            host[k] = first + (float)k;
        assert_ok(f->ctx, param_write(set, i, host));
        if (set->items[i].role == PARAM_LEARNT) {
            for (int64_t k = 0; k < n; k++)
                host[k] = -host[k];
            assert_ok(f->ctx, param_write_velocity(set, i, host));
        }
        mem_free(&f->ctx->mem, host);
    }
}

/* Of the whole tensor as many numbers have changed as the small one has, and they are its numbers in its order:
 * channels are ascending on both sides. */
static void check_put_back(struct fixture *f, int index, bool is_velocity)
{
    float *whole = tensor_of(f, f->full->params, index, is_velocity);
    float *small = tensor_of(f, f->small->params, index, is_velocity);
    int64_t n_small = 0;
    for (int64_t k = 0; k < shape_count(f->full->params->items[index].shape); k++)
        if (whole[k] != (is_velocity ? -1.0f : 1.0f) * (1.0f + (float)k))
            assert_true(whole[k] == small[n_small++]);
    assert_int_equal(n_small, shape_count(f->small->params->items[index].shape));
    mem_free(&f->ctx->mem, whole);
    mem_free(&f->ctx->mem, small);
}

/* The whole network counts from 1, the small one from a million. */
static void test_what_was_pruned_can_be_put_back(void **state)
{
    (void)state;
    for (int net = 0; net < 4; net++) {
        struct fixture f;
        open_fixture(&f, "ref", NETWORKS[net], 78, 0.5);
        struct param_set *whole = f.full->params;
        struct param_set *small = f.small->params;
        assert_ok(f.ctx, param_set_thaw(whole));
        assert_ok(f.ctx, param_set_thaw(small));
        number_all(&f, whole, 1.0f);
        number_all(&f, small, 1e6f);
        assert_ok(f.ctx, unprune_params(&f.full->spec, &f.kept, small, whole));
        for (int i = 0; i < whole->n; i++) {
            check_put_back(&f, i, false);
            if (whole->items[i].role == PARAM_LEARNT)
                check_put_back(&f, i, true);
        }
        number_all(&f, small, 0.0f);
        assert_ok(f.ctx, prune_params(&f.full->spec, &f.kept, whole, small));
        for (int i = 0; i < whole->n; i++) {
            check_put_back(&f, i, false);
            if (whole->items[i].role == PARAM_LEARNT)
                check_put_back(&f, i, true);
        }
        close_fixture(&f);
    }
}

static void test_velocities_stay_behind_where_a_set_is_frozen(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f, "ref", "resnet32", 79, 0.5);
    assert_ok(f.ctx, param_set_thaw(f.full->params));
    assert_ok(f.ctx, prune_params(&f.full->spec, &f.kept, f.full->params, f.small->params));
    assert_ok(f.ctx, unprune_params(&f.full->spec, &f.kept, f.small->params, f.full->params));
    assert_null(f.small->params->velocity);
    close_fixture(&f);
}

static void test_parameters_of_another_network_are_refused(void **state)
{
    (void)state;
    struct fixture f;
    struct extractor *other;
    struct resnet_spec spec;
    open_fixture(&f, "ref", "resnet32", 80, 0.5);
    assert_ok(f.ctx, resnet_spec_init(f.ctx, &spec, "resnet18", 3, SIZE, SIZE, 0.1));
    assert_ok(f.ctx, extractor_new(f.be, &spec, &other));
    assert_int_equal(prune_params(&f.full->spec, &f.kept, f.full->params, other->params),
                     DER_SHAPE);
    assert_int_equal(unprune_params(&f.full->spec, &f.kept, other->params, f.full->params),
                     DER_SHAPE);
    extractor_free(other);
    close_fixture(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pruned_equals_masked_for_all_networks),
        cmocka_unit_test(test_the_count_is_what_the_sparsity_loss_counts),
        cmocka_unit_test(test_what_was_pruned_can_be_put_back),
        cmocka_unit_test(test_velocities_stay_behind_where_a_set_is_frozen),
        cmocka_unit_test(test_parameters_of_another_network_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

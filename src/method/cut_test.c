/*
 * A network that is cut when its masks harden learns what it would have learnt at full width behind hard masks.
 */
#include "method/cut.h"

#include "core/rng.h"
#include "method/head.h"
#include "method/masks.h"
#include "support/tensor_check.h"
#include "support/test_backend.h"
#include "support/test_ctx.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { BATCH = 6, SIZE = 10, N_OLD = 3, N_NEW = 2, N_SOFT = 2, N_HARD = 5, N_LOSSES = 3 };
enum { MAX_CHANNELS = 64, SEED = 11 };

/* `cpu` and `cuda` sum the zeros of closed channels in other places than `ref`, and every update carries the
 * rounding on: some 3e-6 of a weight or velocity on `cpu` after these iterations, squared. */
#define NMSE 1e-10
#define LOSS_TOLERANCE 1e-5

static const struct config CONFIG = {.momentum = 0.9,
                                     .decay = 5e-4,
                                     .lambda_a = 0.6,
                                     .lambda_s = 0.75,
                                     .mask_gradient = MASK_GRADIENT_EXACT,
                                     .mask_gain = 5.0,
                                     .s_max = 400.0,
                                     .mask_clamp = 6.0};

/* One of two that are trained on the same batches. */
struct side {
    struct der_ctx *ctx;
    struct backend *be;
    struct extractor *frozen; /* of an earlier step */
    struct objective objective;
    struct desks desks;
    struct buffer *scalars;
    struct assembly_cache assemblies;
};

static void write_masks(const struct side *side)
{
    struct param_set *masks = side->objective.masks;
    for (int i = 0; i < masks->n; i++) {
        float e[MAX_CHANNELS];
        int64_t n = shape_count(masks->items[i].shape);
        assert_true(n <= MAX_CHANNELS);
        rng_uniform(e, n, -0.6, 0.4, SEED, RNG_TEST, (uint32_t)i);
        assert_ok(side->ctx, param_write(masks, i, e));
    }
}

static void open_objective(struct side *side, const struct resnet_spec *spec, int64_t n_before)
{
    struct der_ctx *ctx = side->ctx;
    struct backend *be = side->be;
    struct objective *o = &side->objective;
    int64_t own = resnet_feature_dim(spec);
    *o = (struct objective){.config = &CONFIG, .n_old = N_OLD};
    assert_ok(ctx, extractor_new(be, spec, &o->extractor));
    assert_ok(ctx, param_set_init(o->extractor->params, SEED, 2));
    assert_ok(ctx, param_set_thaw(o->extractor->params));
    assert_ok(ctx, head_new(be, "classifier.weight", N_OLD + N_NEW, n_before + own,
                            INIT_LINEAR_NORMAL, SEED, 3, &o->head));
    assert_ok(ctx, head_new(be, "auxiliary.weight", N_NEW + 1, own, INIT_LINEAR_NORMAL, SEED, 4,
                            &o->auxiliary));
    assert_ok(ctx, masks_new(be, spec, MASK_INIT_NORMAL, SEED, 5, &o->masks));
    write_masks(side);
}

static void close_objective(struct objective *o)
{
    extractor_free(o->extractor);
    extractor_free(o->whole);
    param_set_free(o->head);
    param_set_free(o->auxiliary);
    param_set_free(o->masks);
    *o = (struct objective){0};
}

static void open_side(struct side *side, struct backend *be, const char *network)
{
    struct der_ctx *ctx = be->ctx;
    struct resnet_spec spec;
    struct resnet_spec old;
    *side = (struct side){.ctx = ctx, .be = be};
    assert_ok(ctx, resnet_spec_init(ctx, &old, network, 3, SIZE, SIZE, 0.06));
    assert_ok(ctx, resnet_spec_init(ctx, &spec, network, 3, SIZE, SIZE, 0.1));
    assert_ok(ctx, extractor_new(be, &old, &side->frozen));
    assert_ok(ctx, param_set_init(side->frozen->params, SEED, 1));
    open_objective(side, &spec, resnet_feature_dim(&old));
    desks_init(&side->desks, be, &spec, resnet_feature_dim(&old) + resnet_feature_dim(&spec));
    assert_ok(ctx, buffer_new(be, ASSEMBLY_MAX_SCALARS * sizeof(float), &side->scalars));
}

static void close_side(struct side *side)
{
    assembly_cache_fini(&side->assemblies);
    desks_fini(&side->desks);
    buffer_free(side->scalars);
    extractor_free(side->frozen);
    close_objective(&side->objective);
}

static void cut(struct side *side)
{
    assembly_cache_fini(&side->assemblies);
    desks_fini(&side->desks);
    assert_ok(side->ctx, objective_cut(&side->objective));
    side->desks.feature_dim = side->objective.head->items[0].shape.dim[1];
}

/* One iteration on a batch that is drawn for it. */
static void iterate(struct side *side, int number, float losses[N_LOSSES])
{
    struct der_ctx *ctx = side->ctx;
    float image[BATCH * 3 * SIZE * SIZE];
    int32_t labels[BATCH];
    const float scalars[OBJECTIVE_SCALARS] = {[OBJECTIVE_LR] = 0.05f,
                                              [OBJECTIVE_MAIN] = 1.0f,
                                              [OBJECTIVE_LAMBDA_A] = (float)CONFIG.lambda_a,
                                              [OBJECTIVE_LAMBDA_S] = (float)CONFIG.lambda_s,
                                              [OBJECTIVE_S] = number < N_SOFT ? 2.0f : INFINITY};
    struct assembly_plan plan = {.be = side->be,
                                 .frozen = &side->frozen,
                                 .n_frozen = 1,
                                 .desks = &side->desks,
                                 .scalars = side->scalars,
                                 .self = &side->objective,
                                 .describe = objective_describe};
    struct assembly *a;
    rng_normal(image, BATCH * 3 * SIZE * SIZE, 1.0, SEED, RNG_TEST, 1000 + (uint32_t)number);
    for (int i = 0; i < BATCH; i++)
        labels[i] = (i + number) % (N_OLD + N_NEW);
    assert_ok(ctx, assembly_get(&side->assemblies, &plan, BATCH, &a));
    assert_ok(ctx, buffer_write(a->desk.image, 0, image, sizeof image));
    assert_ok(ctx, buffer_write(a->desk.labels, 0, labels, sizeof labels));
    assert_ok(ctx, buffer_write(side->scalars, 0, scalars, sizeof scalars));
    assert_ok(ctx, sequence_run(a->sequence));
    assert_ok(ctx, buffer_read(a->losses, 0, losses, N_LOSSES * sizeof *losses));
}

/* exact: to the bit. */
static void compare_tensors(const float *actual, const float *expected, int64_t n, bool exact,
                            const char *what)
{
    if (exact)
        assert_memory_equal(actual, expected, (size_t)n * sizeof *actual);
    else
        assert_tensor_close(actual, expected, n, NMSE, what);
}

static void compare_sets(struct der_ctx *ctx, const struct param_set *actual,
                         const struct param_set *expected, bool exact)
{
    assert_int_equal(actual->n, expected->n);
    for (int i = 0; i < actual->n; i++) {
        const struct param *item = &actual->items[i];
        int64_t n = shape_count(item->shape);
        assert_true(shape_equal(item->shape, expected->items[i].shape));
        float *x = mem_alloc(&ctx->mem, (size_t)n, sizeof *x);
        float *y = mem_alloc(&ctx->mem, (size_t)n, sizeof *y);
        assert_ok(ctx, param_read(actual, i, x));
        assert_ok(ctx, param_read(expected, i, y));
        compare_tensors(x, y, n, exact, item->name);
        if (item->role == PARAM_LEARNT) {
            assert_ok(ctx, param_read_velocity(actual, i, x));
            assert_ok(ctx, param_read_velocity(expected, i, y));
            compare_tensors(x, y, n, exact, item->name);
        }
        mem_free(&ctx->mem, x);
        mem_free(&ctx->mem, y);
    }
}

static void check_network(struct backend *be, const char *network)
{
    bool exact =
        strcmp(be->ops->name, "ref") == 0; /* adds zeros one by one, which changes nothing */
    struct side masked;                    /* hard masks, full width */
    struct side small;                     /* cut */
    float want[N_LOSSES];
    float got[N_LOSSES];
    open_side(&masked, be, network);
    open_side(&small, be, network);
    for (int number = 0; number < N_SOFT + N_HARD; number++) {
        if (number == N_SOFT) {
            assert_ok(be->ctx, param_set_rest(masked.objective.masks));
            cut(&small);
        }
        iterate(&masked, number, want);
        iterate(&small, number, got);
        for (int i = 0; i < N_LOSSES; i++)
            if (!(fabs((double)(got[i] - want[i])) <= (exact ? 0.0 : LOSS_TOLERANCE)))
                fail_msg("%s, %s, iteration %d, loss %d: %.8f, want %.8f", be->ops->name, network,
                         number, i, (double)got[i], (double)want[i]);
    }
    assert_true(resnet_count_params(&small.objective.extractor->spec) <
                resnet_count_params(&masked.objective.extractor->spec) / 2);
    cut(&masked);
    compare_sets(be->ctx, small.objective.extractor->params, masked.objective.extractor->params,
                 exact);
    compare_sets(be->ctx, small.objective.head, masked.objective.head, exact);
    compare_sets(be->ctx, small.objective.auxiliary, masked.objective.auxiliary, exact);
    close_side(&masked);
    close_side(&small);
}

static void test_a_cut_network_learns_what_a_masked_one_does(void **state)
{
    (void)state;
    static const char *const networks[] = {"resnet18-cifar", "resnet32"};
    for (const struct backend_ops *const *ops = test_backends(); *ops; ops++)
        for (size_t i = 0; i < sizeof networks / sizeof networks[0]; i++) {
            struct der_ctx *ctx = test_ctx_new(2);
            struct backend *be;
            assert_ok(ctx, backend_open(ctx, (*ops)->name, NULL, &be));
            check_network(be, networks[i]);
            backend_close(be);
            test_ctx_free(ctx);
        }
}

/* What is kept of the whole network is what was learnt since; the rest is as it was, which prune_test shows. */
static void test_the_whole_network_gets_what_was_learnt(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    struct side side;
    struct kept kept;
    struct backend *be;
    struct extractor *again;
    float losses[N_LOSSES];
    assert_ok(ctx, backend_open(ctx, "ref", NULL, &be));
    open_side(&side, be, "resnet32");
    struct objective *o = &side.objective;
    iterate(&side, 0, losses);
    cut(&side);
    assert_null(o->whole->params->velocity);
    assert_null(o->masks->velocity);
    iterate(&side, N_SOFT, losses);
    assert_ok(ctx, objective_mend(o));
    assert_ok(ctx, masks_kept(o->masks, &o->whole->spec, &kept));
    assert_ok(ctx, extractor_new(be, &o->extractor->spec, &again));
    assert_ok(ctx, prune_params(&o->whole->spec, &kept, o->whole->params, again->params));
    size_t bytes = again->params->values->bytes;
    void *values[2];
    for (int i = 0; i < 2; i++) {
        struct extractor *extractor = i == 0 ? again : o->extractor;
        values[i] = mem_alloc(&ctx->mem, bytes, 1);
        assert_ok(ctx, buffer_read(extractor->params->values, 0, values[i], bytes));
    }
    assert_memory_equal(values[0], values[1], bytes);
    mem_free(&ctx->mem, values[0]);
    mem_free(&ctx->mem, values[1]);
    kept_fini(ctx, &kept);
    extractor_free(again);
    close_side(&side);
    backend_close(be);
    test_ctx_free(ctx);
}

static void test_every_allocation_may_fail(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    struct side side = {.ctx = ctx};
    struct resnet_spec spec;
    uint64_t n = 0;
    assert_ok(ctx, backend_open(ctx, "ref", NULL, &side.be));
    assert_ok(ctx, resnet_spec_init(ctx, &spec, "resnet18-cifar", 3, SIZE, SIZE, 0.06));
    for (enum der_status status = DER_NOMEM; status != DER_OK; n++) {
        open_objective(&side, &spec, 7);
        ctx->mem.fail_at = ctx->mem.n_allocs + n + 1;
        status = objective_cut(&side.objective);
        if (status == DER_OK)
            status = objective_mend(&side.objective);
        ctx->mem.fail_at = 0;
        assert_true(status == DER_OK || status == DER_NOMEM);
        close_objective(&side.objective);
    }
    assert_true(n > 50);
    backend_close(side.be);
    test_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_cut_network_learns_what_a_masked_one_does),
        cmocka_unit_test(test_the_whole_network_gets_what_was_learnt),
        cmocka_unit_test(test_every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

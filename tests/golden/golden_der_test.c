/*
 * Three iterations of DER against PyTorch: frozen features and a masked, trained extractor side by
 * side in one matrix, main and auxiliary classifier, sparsity loss, compensated mask gradient, one
 * update of the weights and one of the masks.
 */
#include "support/test_backend.h"
#include "support/golden_net.h"
#include "support/test_ctx.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* The same numbers stand in tools/golden/nets.py. */
enum { N_OLD = 4, N_NEW = 3, N_FROZEN = 7, BATCH = 6, N_STEPS = 3, NAME_MAX_CHARS = 32 };
enum { MAX_LAYERS = 16 };
#define SPARSITY_WEIGHT 0.75f

/* A shallow network with soft masks; the reference back end stays below 1e-12. */
#define GRAD_NMSE 1e-9
/* Parameters after three updates: each adds the rounding of its gradient, times the rate. */
#define PARAM_NMSE 1e-9
#define LOSS_TOLERANCE 1e-5

struct der {
    struct golden_file *file;
    struct golden_rig rig;
    struct resnet_spec spec;
    uint32_t seed;
    int dim; /* features of the trained extractor */
    struct param_set *extractor, *heads, *masks;
};

enum { HEAD_MAIN, HEAD_AUXILIARY };

static void fill_masks(struct der *der)
{
    struct der_ctx *ctx = der->rig.ctx;
    assert_ok(ctx, param_set_new(ctx, &der->masks));
    for (int i = 0; i < resnet_mask_count(&der->spec); i++) {
        char name[NAME_MAX_CHARS];
        int index;
        (void)snprintf(name, sizeof name, "e%d", i);
        assert_ok(ctx,
                  param_set_add(der->masks, name, shape_1d(resnet_mask_channels(&der->spec, i)),
                                PARAM_LEARNT, INIT_STANDARD_NORMAL, &index));
    }
    assert_ok(ctx, param_set_allocate(der->masks, der->rig.be));
    assert_ok(ctx, param_set_thaw(der->masks));
    for (int i = 0; i < der->masks->n; i++) {
        float e[64];
        int64_t n = shape_count(der->masks->items[i].shape);
        assert_true(n <= 64);
        golden_noise(e, n, der->masks->items[i].name, der->seed, 0.3, 1.2);
        assert_ok(ctx, param_write(der->masks, i, e));
    }
}

static void der_init(struct der *der, const struct backend_ops *ops)
{
    der->file = golden_open("der_step");
    golden_rig_init(&der->rig, ops);
    golden_spec(&der->spec, golden_text(der->file, "spec"));
    der->seed = golden_seed(der->file);
    der->dim = resnet_feature_dim(&der->spec);
    const struct golden_matrix heads[] = {{"main", N_OLD + N_NEW, N_FROZEN + der->dim},
                                          {"auxiliary", N_NEW + 1, der->dim},
                                          {NULL, 0, 0}};
    der->extractor = golden_extractor(&der->rig, &der->spec, der->seed);
    der->heads = golden_head(&der->rig, heads, der->seed);
    fill_masks(der);
}

static void der_fini(struct der *der)
{
    param_set_free(der->extractor);
    param_set_free(der->heads);
    param_set_free(der->masks);
    golden_rig_fini(&der->rig);
    golden_close(der->file);
}

/* The iteration as one program. */
struct iteration {
    struct graph *g;
    struct param_use extractor, heads, masks;
    int image, labels, matrix;
    int s, lr, weight, sparsity_weight;
    int loss[3]; /* main, auxiliary, sparsity */
    struct golden_run run;
};

static void add_inputs(struct iteration *it, const struct der *der)
{
    struct der_ctx *ctx = der->rig.ctx;
    const struct shape one = shape_1d(1);
    struct shape image = shape_4d(BATCH, der->spec.in_channels, der->spec.height, der->spec.width);
    struct shape matrix = shape_2d(BATCH, N_FROZEN + der->dim);
    assert_ok(ctx, graph_input(it->g, "image", DTYPE_F32, image, &it->image));
    assert_ok(ctx, graph_input(it->g, "labels", DTYPE_I32, shape_1d(BATCH), &it->labels));
    assert_ok(ctx, graph_input(it->g, "matrix", DTYPE_F32, matrix, &it->matrix));
    assert_ok(ctx, graph_input(it->g, "s", DTYPE_F32, one, &it->s));
    assert_ok(ctx, graph_input(it->g, "lr", DTYPE_F32, one, &it->lr));
    assert_ok(ctx, graph_input(it->g, "weight", DTYPE_F32, one, &it->weight));
    assert_ok(ctx, graph_input(it->g, "sparsity_weight", DTYPE_F32, one, &it->sparsity_weight));
    assert_ok(ctx, params_attach(der->extractor, it->g, true, &it->extractor));
    assert_ok(ctx, params_attach(der->heads, it->g, true, &it->heads));
    assert_ok(ctx, params_attach(der->masks, it->g, true, &it->masks));
}

static void add_losses(struct iteration *it, const struct der *der)
{
    struct der_ctx *ctx = der->rig.ctx;
    int m[RESNET_MAX_MASKS];
    int n_masks = der->masks->n;
    assert_ok(ctx, graph_mask_gate(it->g, it->s, it->masks.value, n_masks, MASK_GRADIENT_EXACT,
                                   400.0f, m));
    struct resnet_io io = {.image = it->image, .masks = m, .training = true};
    int feature;
    int joined;
    int logits;
    assert_ok(ctx, resnet_build(&der->spec, it->g, &it->extractor, &io, &feature));
    assert_ok(ctx, graph_join(it->g, feature, it->matrix, N_FROZEN, &joined));
    assert_ok(ctx, graph_linear(it->g, joined, it->heads.value[HEAD_MAIN], NO_VALUE, &logits));
    assert_ok(ctx, graph_softmax_xent(it->g, logits, it->labels, it->weight, NULL, &it->loss[0]));

    const struct xent_options options = {.label_shift = N_OLD - 1, .clamp_low = true};
    assert_ok(ctx,
              graph_linear(it->g, feature, it->heads.value[HEAD_AUXILIARY], NO_VALUE, &logits));
    assert_ok(ctx,
              graph_softmax_xent(it->g, logits, it->labels, it->weight, &options, &it->loss[1]));

    struct sparsity_layer layers[MAX_LAYERS];
    int n_layers = resnet_sparsity_layers(&der->spec, layers, MAX_LAYERS);
    assert_ok(ctx, graph_mask_sparsity(it->g, it->sparsity_weight, m, n_masks, layers, n_layers,
                                       NULL, &it->loss[2]));
}

static void add_updates(struct iteration *it, const struct der *der)
{
    const struct sgd_attr weights = {
        .momentum = 0.9f, .decay = 5e-4f, .gain = 1.0f, .low = -INFINITY, .high = INFINITY};
    const struct sgd_attr masks = {.momentum = 0.9f, .gain = 5.0f, .low = -6.0f, .high = 6.0f};
    struct param_use *const learnt[] = {&it->extractor, &it->heads};
    struct param_use *const gates[] = {&it->masks};
    params_note_grads(&it->extractor, it->g);
    params_note_grads(&it->heads, it->g);
    params_note_grads(&it->masks, it->g);
    assert_ok(der->rig.ctx, params_sgd(learnt, 2, it->g, it->lr, &weights));
    assert_ok(der->rig.ctx, params_sgd(gates, 1, it->g, it->lr, &masks));
}

/* The frozen extractors' columns; the others are NaN until the program has filled them. */
static void write_matrix(struct iteration *it, const struct der *der)
{
    int columns = N_FROZEN + der->dim;
    float frozen[BATCH * N_FROZEN];
    float *matrix = malloc((size_t)(BATCH * columns) * sizeof *matrix);
    assert_non_null(matrix);
    golden_noise(frozen, BATCH * N_FROZEN, "frozen", der->seed, 0.5, 0.5);
    for (int i = 0; i < BATCH * columns; i++) {
        int row = i / columns;
        int column = i % columns;
        matrix[i] = column < N_FROZEN ? frozen[row * N_FROZEN + column] : NAN;
    }
    golden_run_write(&it->run, it->matrix, matrix);
    free(matrix);
}

static void iteration_init(struct iteration *it, struct der *der, bool fuse)
{
    struct der_ctx *ctx = der->rig.ctx;
    *it = (struct iteration){.image = NO_VALUE};
    assert_ok(ctx, graph_new(ctx, &it->g));
    add_inputs(it, der);
    add_losses(it, der);
    if (fuse)
        assert_ok(ctx, graph_fuse(it->g));
    assert_ok(ctx, graph_backward(it->g));
    add_updates(it, der);
    golden_run_init(&it->run, &der->rig, it->g);
    assert_ok(ctx, params_bind(&it->extractor, it->run.program));
    assert_ok(ctx, params_bind(&it->heads, it->run.program));
    assert_ok(ctx, params_bind(&it->masks, it->run.program));
    golden_run_scalar(&it->run, it->weight, 1.0f);
    golden_run_scalar(&it->run, it->sparsity_weight, SPARSITY_WEIGHT);
    write_matrix(it, der);
}

static void iteration_fini(struct iteration *it)
{
    golden_run_fini(&it->run);
    param_use_fini(&it->extractor);
    param_use_fini(&it->heads);
    param_use_fini(&it->masks);
    graph_free(it->g);
}

static void run_step(struct iteration *it, const struct der *der, int step)
{
    const struct shape shape = it->g->values[it->image].shape;
    int32_t labels[BATCH];
    char name[NAME_MAX_CHARS];
    float *image = malloc((size_t)shape_count(shape) * sizeof *image);
    assert_non_null(image);
    (void)snprintf(name, sizeof name, "image%d", step);
    golden_noise(image, shape_count(shape), name, der->seed, 0.0, 1.7);
    (void)snprintf(name, sizeof name, "labels%d", step);
    golden_labels(labels, BATCH, name, der->seed, N_OLD + N_NEW);
    golden_run_write(&it->run, it->image, image);
    golden_run_write(&it->run, it->labels, labels);
    free(image);
    golden_run_scalar(&it->run, it->s, ((const float *)golden_get(der->file, "s")->data)[step]);
    golden_run_scalar(&it->run, it->lr, ((const float *)golden_get(der->file, "lr")->data)[step]);
    golden_run_once(&it->run);
}

static void check_losses(const struct iteration *it, const struct der *der, int step)
{
    const float *want = golden_get(der->file, "losses")->data;
    for (int i = 0; i < 3; i++) {
        double value = (double)want[3 * step + i];
        double got = (double)golden_run_read_scalar(&it->run, it->loss[i]);
        if (!(fabs(got - value) <= LOSS_TOLERANCE * value))
            fail_msg("%s, step %d, loss %d: %.8f, want %.8f", der->rig.be->ops->name, step, i, got,
                     value);
    }
}

static void check_der(const struct backend_ops *ops, bool fuse)
{
    struct der der;
    struct iteration it;
    der_init(&der, ops);
    iteration_init(&it, &der, fuse);
    const struct param_set *const sets[] = {der.extractor, der.heads, der.masks};
    for (int step = 0; step < N_STEPS; step++) {
        run_step(&it, &der, step);
        check_losses(&it, &der, step);
        for (int i = 0; i < 3 && step == 0; i++)
            golden_check_grads(sets[i], der.file, "grad/", GRAD_NMSE);
    }
    for (int i = 0; i < 3; i++)
        golden_check_params(sets[i], PARAM_LEARNT, der.file, "after/", PARAM_NMSE);
    golden_check_params(der.extractor, PARAM_STATE, der.file, "after/", PARAM_NMSE);
    iteration_fini(&it);
    der_fini(&der);
}

static void test_three_iterations_of_der_agree_with_pytorch(void **state)
{
    (void)state;
    for (const struct backend_ops *const *ops = test_backends(); *ops; ops++)
        check_der(*ops, false);
}

static void test_fused_iterations_of_der_agree_with_pytorch(void **state)
{
    (void)state;
    for (const struct backend_ops *const *ops = test_backends(); *ops; ops++)
        check_der(*ops, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_three_iterations_of_der_agree_with_pytorch),
        cmocka_unit_test(test_fused_iterations_of_der_agree_with_pytorch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

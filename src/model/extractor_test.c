/*
 * Networks and extractors: published sizes, names, folding, and programs that outlive a growing
 * feature matrix.
 */
#include "core/rng.h"
#include "model/extractor.h"
#include "support/test_backend.h"
#include "support/tensor_check.h"
#include "support/test_ctx.h"

#include <string.h>

static struct resnet_spec spec_of(struct der_ctx *ctx, const char *name, int size, double width)
{
    struct resnet_spec spec;
    assert_ok(ctx, resnet_spec_init(ctx, &spec, name, 3, size, size, width));
    return spec;
}

static void test_networks_have_their_published_sizes(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    static const struct {
        const char *name;
        int64_t params;
        int features, masks;
    } expected[] = {
        {"resnet18-cifar", 11168832, 512, 12},
        {"resnet32", 466256, 64, 18},
        {"resnet18", 11176512, 512, 12},
        {"resnet18-3x3", 11168832, 512, 12},
    };
    for (int i = 0; i < 4; i++) {
        struct resnet_spec spec = spec_of(ctx, expected[i].name, 32, 1.0);
        struct param_set *set;
        assert_int_equal(resnet_count_params(&spec), expected[i].params);
        assert_int_equal(resnet_feature_dim(&spec), expected[i].features);
        assert_int_equal(resnet_mask_count(&spec), expected[i].masks);
        assert_ok(ctx, param_set_new(ctx, &set));
        assert_ok(ctx, resnet_declare(&spec, set));
        assert_int_equal(param_set_count(set), expected[i].params);
        param_set_free(set);
    }
    test_ctx_free(ctx);
}

/* Against the graph that is really run: every output of a convolution costs a row of its weights. */
static int64_t count_in_graph(struct der_ctx *ctx, const struct resnet_spec *spec)
{
    struct param_set *set;
    struct param_use use;
    struct graph *g;
    struct resnet_io io = {0};
    int feature;
    int64_t count = 0;
    assert_ok(ctx, param_set_new(ctx, &set));
    assert_ok(ctx, resnet_declare(spec, set));
    assert_ok(ctx, graph_new(ctx, &g));
    assert_ok(ctx,
              graph_input(g, "image", DTYPE_F32,
                          shape_4d(1, spec->in_channels, spec->height, spec->width), &io.image));
    assert_ok(ctx, params_attach(set, g, false, &use));
    assert_ok(ctx, resnet_build(spec, g, &use, &io, &feature));
    for (int i = 0; i < g->n_nodes; i++) {
        const struct node *node = &g->nodes[i];
        if (node->op != OP_CONV2D)
            continue;
        const struct shape *weights = &g->values[node_in(node, 1)].shape;
        count += shape_count(g->values[node_out(node, 0)].shape) * shape_count(*weights) /
                 weights->dim[0];
    }
    param_use_fini(&use);
    graph_free(g);
    param_set_free(set);
    return count;
}

static void test_multiply_adds_are_those_of_the_graph(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    for (const struct resnet_name *name = resnet_names(); name->name; name++) {
        for (int size = 17; size <= 64; size += 15) { /* odd sizes round on their way */
            struct resnet_spec spec = spec_of(ctx, name->name, size, 0.3);
            spec.width = size + 4;
            struct resnet_layer layers[RESNET_MAX_LAYERS];
            int n = resnet_layers(&spec, layers);
            int64_t params = 0;
            for (int i = 0; i < n; i++)
                params += layers[i].params;
            assert_int_equal(params, resnet_count_params(&spec));
            assert_int_equal(resnet_count_multiply_adds(&spec), count_in_graph(ctx, &spec));
        }
    }
    test_ctx_free(ctx);
}

static void test_parameters_carry_torchvisions_names(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    struct resnet_spec spec = spec_of(ctx, "resnet18", 64, 1.0);
    struct param_set *set;
    assert_ok(ctx, param_set_new(ctx, &set));
    assert_ok(ctx, resnet_declare(&spec, set));
    static const char *const names[] = {
        "conv1.weight",
        "bn1.running_var",
        "layer1.0.conv1.weight",
        "layer1.1.bn2.bias",
        "layer2.0.downsample.0.weight",
        "layer4.1.bn2.weight",
        "layer4.0.downsample.1.running_mean",
    };
    for (int i = 0; i < 7; i++)
        assert_true(param_set_find(set, names[i]) >= 0);
    assert_int_equal(param_set_find(set, "layer1.0.downsample.0.weight"), -1);
    assert_int_equal(param_set_find(set, "layer5.0.conv1.weight"), -1);
    param_set_free(set);
    test_ctx_free(ctx);
}

/* With all masks at one, the sparsity loss counts exactly the convolution weights. */
static void test_sparsity_layers_count_the_convolutions(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    struct resnet_spec spec = spec_of(ctx, "resnet32", 32, 1.0);
    struct sparsity_layer layers[128];
    int n = resnet_sparsity_layers(&spec, layers, 128);
    int64_t weights = 0;
    int64_t norm = 0;
    for (int i = 0; i < n; i++) {
        int64_t c_in = layers[i].in_mask < 0 ? layers[i].in_channels
                                             : resnet_mask_channels(&spec, layers[i].in_mask);
        int64_t c_out = resnet_mask_channels(&spec, layers[i].out_mask);
        weights += layers[i].kernel_area * c_in * c_out;
        norm += 2 * c_out;
    }
    assert_int_equal(weights, 463792);
    assert_int_equal(weights + norm, resnet_count_params(&spec));
    test_ctx_free(ctx);
}

static void test_unusable_networks_are_refused(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    struct resnet_spec spec;
    assert_int_equal(resnet_spec_init(ctx, &spec, "resnet19", 3, 32, 32, 1.0), DER_ARG);
    assert_non_null(strstr(der_ctx_error(ctx), "resnet18-cifar"));
    assert_int_equal(resnet_spec_init(ctx, &spec, "resnet32", 0, 32, 32, 1.0), DER_ARG);
    assert_int_equal(resnet_spec_init(ctx, &spec, "resnet32", 3, 32, 32, -1.0), DER_ARG);
    spec = spec_of(ctx, "resnet32", 32, 1.0);
    spec.inner[1][2] = 0;
    assert_int_equal(resnet_spec_check(ctx, &spec), DER_ARG);
    assert_non_null(strstr(der_ctx_error(ctx), "stage 2, block 3"));
    test_ctx_free(ctx);
}

enum { BATCH = 3, SIZE = 9, PIXELS = 3 * SIZE * SIZE };

static struct buffer *new_image(struct backend *be)
{
    struct buffer *image;
    float host[BATCH * PIXELS];
    assert_ok(be->ctx, buffer_new(be, sizeof host, &image));
    rng_normal(host, BATCH * PIXELS, 1.0, 5, RNG_TEST, 0);
    assert_ok(be->ctx, buffer_write(image, 0, host, sizeof host));
    return image;
}

/* Statistics and affine parameters away from their trivial start, so that folding has work to do. */
static void stir(struct extractor *extractor, uint32_t stream)
{
    struct param_set *set = extractor->params;
    assert_ok(set->ctx, param_set_init(set, 1, stream));
    for (int i = 0; i < set->n; i++) {
        if (set->items[i].shape.rank != 1)
            continue;
        float host[1024];
        assert_true(set->items[i].shape.dim[0] <= 1024);
        rng_uniform(host, set->items[i].shape.dim[0], 0.5, 1.5, 2, RNG_TEST,
                    stream * 1000 + (uint32_t)i);
        assert_ok(set->ctx, param_write(set, i, host));
    }
}

static void run_one(struct backend *be, struct program *program)
{
    struct sequence *sequence;
    struct sequence_item item = {program, 0};
    assert_ok(be->ctx, sequence_new(be, &item, 1, &sequence));
    assert_ok(be->ctx, sequence_run(sequence));
    sequence_free(sequence);
}

/* The same network with odd widths everywhere, in evaluation mode and without any fusion. */
static void reference_features(struct extractor *extractor, struct buffer *image, float *features)
{
    struct backend *be = extractor->be;
    struct der_ctx *ctx = be->ctx;
    struct graph *g;
    struct param_use use;
    struct program *program;
    struct buffer *out;
    struct resnet_io io = {0};
    int feature;
    size_t bytes = BATCH * (size_t)resnet_feature_dim(&extractor->spec) * sizeof(float);
    assert_ok(ctx, graph_new(ctx, &g));
    assert_ok(ctx, graph_input(g, "x", DTYPE_F32, shape_4d(BATCH, 3, SIZE, SIZE), &io.image));
    assert_ok(ctx, params_attach(extractor->params, g, false, &use));
    assert_ok(ctx, resnet_build(&extractor->spec, g, &use, &io, &feature));
    assert_ok(ctx, graph_expose(g, feature));
    assert_ok(ctx, program_compile(be, g, &program));
    assert_ok(ctx, params_bind(&use, program));
    assert_ok(ctx, buffer_new(be, bytes, &out));
    assert_ok(ctx, program_bind(program, io.image, (struct span){image, 0, 0}));
    assert_ok(ctx, program_bind(program, feature, (struct span){out, 0, 0}));
    run_one(be, program);
    assert_ok(ctx, buffer_read(out, 0, features, bytes));
    buffer_free(out);
    program_free(program);
    param_use_fini(&use);
    graph_free(g);
}

static struct resnet_spec odd_spec(struct der_ctx *ctx, const char *name)
{
    struct resnet_spec spec = spec_of(ctx, name, SIZE, 0.1);
    for (int k = 0; k < spec.n_stages; k++) {
        spec.stream[k] = 5 + 4 * k;
        for (int b = 0; b < spec.n_blocks[k]; b++)
            spec.inner[k][b] = 1 + 3 * k + b;
    }
    return spec;
}

static void test_folded_programs_equal_the_plain_network(void **state)
{
    (void)state;
    static const char *const networks[] = {"resnet18-cifar", "resnet32", "resnet18",
                                           "resnet18-3x3"};
    for (const struct backend_ops *const *ops = test_backends(); *ops; ops++) {
        struct der_ctx *ctx = test_ctx_new(2);
        struct backend *be;
        assert_ok(ctx, backend_open(ctx, (*ops)->name, NULL, &be));
        struct buffer *image = new_image(be);
        for (int i = 0; i < 4; i++) {
            struct resnet_spec spec = odd_spec(ctx, networks[i]);
            struct extractor *extractor;
            const struct folded *folded;
            float expected[BATCH * 32];
            float actual[BATCH * 32];
            struct buffer *out;
            size_t n = (size_t)(BATCH * resnet_feature_dim(&spec));
            assert_ok(ctx, extractor_new(be, &spec, &extractor));
            stir(extractor, (uint32_t)i);
            reference_features(extractor, image, expected);
            assert_ok(ctx, buffer_new(be, n * sizeof(float), &out));
            assert_ok(ctx, extractor_folded(extractor, BATCH, &folded));
            assert_ok(ctx,
                      folded_bind(folded, (struct span){image, 0, 0}, (struct span){out, 0, 0}));
            run_one(be, folded->program);
            assert_ok(ctx, buffer_read(out, 0, actual, n * sizeof(float)));
            /* Folding rounds scaled weights once more in each of up to 31 layers. */
            assert_tensor_close(actual, expected, (int64_t)n, 1e-11, networks[i]);
            assert_int_equal(folded->program->stats.n_reorders_activation, 0);
            buffer_free(out);
            extractor_free(extractor);
        }
        buffer_free(image);
        backend_close(be);
        test_ctx_free(ctx);
    }
}

/* A program is compiled once; when the matrix grows it is only bound anew, and gives the same bytes.
 * When its parameters change, so does what it folded from them. */
static void test_frozen_programs_are_reused_as_the_matrix_grows(void **state)
{
    (void)state;
    for (const struct backend_ops *const *ops = test_backends(); *ops; ops++) {
        struct der_ctx *ctx = test_ctx_new(2);
        struct backend *be;
        assert_ok(ctx, backend_open(ctx, (*ops)->name, NULL, &be));
        struct buffer *image = new_image(be);
        struct resnet_spec spec = odd_spec(ctx, "resnet32");
        struct extractor *extractor;
        const struct folded *folded;
        const struct folded *again;
        enum { DIM = 13, WIDE = 40, COL = 22 };
        assert_int_equal(resnet_feature_dim(&spec), DIM);
        assert_ok(ctx, extractor_new(be, &spec, &extractor));
        stir(extractor, 9);

        struct buffer *matrix;
        float narrow[BATCH * DIM];
        float wide[BATCH * WIDE];
        assert_ok(ctx, buffer_new(be, sizeof wide, &matrix));
        assert_ok(ctx, extractor_folded(extractor, BATCH, &folded));
        assert_ok(ctx,
                  folded_bind(folded, (struct span){image, 0, 0}, (struct span){matrix, 0, 0}));
        run_one(be, folded->program);
        assert_ok(ctx, buffer_read(matrix, 0, narrow, sizeof narrow));

        memset(wide, 0, sizeof wide);
        assert_ok(ctx, buffer_write(matrix, 0, wide, sizeof wide));
        assert_ok(ctx, extractor_folded(extractor, BATCH, &again));
        assert_ptr_equal(again, folded);
        struct span columns = {matrix, COL * sizeof(float), WIDE};
        assert_ok(ctx, folded_bind(folded, (struct span){image, 0, 0}, columns));
        run_one(be, folded->program);
        assert_ok(ctx, buffer_read(matrix, 0, wide, sizeof wide));
        for (int r = 0; r < BATCH; r++)
            for (int c = 0; c < WIDE; c++) {
                bool inside = c >= COL && c < COL + DIM;
                float expected = inside ? narrow[r * DIM + c - COL] : 0.0f;
                assert_memory_equal(&wide[r * WIDE + c], &expected, sizeof expected);
            }

        stir(extractor, 10);
        run_one(be, folded->program);
        float changed[BATCH * WIDE];
        float expected[BATCH * DIM];
        assert_ok(ctx, buffer_read(matrix, 0, changed, sizeof changed));
        reference_features(extractor, image, expected);
        for (int r = 0; r < BATCH; r++)
            assert_tensor_close(&changed[r * WIDE + COL], &expected[r * DIM], DIM, 1e-10,
                                "features after the parameters changed");
        buffer_free(matrix);
        buffer_free(image);
        extractor_free(extractor);
        backend_close(be);
        test_ctx_free(ctx);
    }
}

static void test_programs_for_other_batch_sizes_can_be_dropped(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    struct backend *be;
    struct extractor *extractor;
    const struct folded *folded;
    const int kept[] = {1, 5};
    assert_ok(ctx, backend_open(ctx, "ref", NULL, &be));
    struct resnet_spec spec = odd_spec(ctx, "resnet32");
    assert_ok(ctx, extractor_new(be, &spec, &extractor));
    for (int batch = 1; batch <= EXTRACTOR_MAX_FOLDED; batch++)
        assert_ok(ctx, extractor_folded(extractor, batch, &folded));
    assert_int_equal(extractor_folded(extractor, EXTRACTOR_MAX_FOLDED + 1, &folded), DER_STATE);
    const struct program *fifth = extractor->folded[4].program;
    extractor_trim(extractor, kept, 2);
    assert_int_equal(extractor->n_folded, 2);
    assert_ok(ctx, extractor_folded(extractor, 5, &folded));
    assert_ptr_equal(folded->program, fifth);
    assert_ok(ctx, extractor_folded(extractor, EXTRACTOR_MAX_FOLDED + 1, &folded));
    assert_int_equal(extractor->n_folded, 3);
    extractor_free(extractor);
    backend_close(be);
    test_ctx_free(ctx);
}

/* A back end that trains with few bits needs two programs for one batch size, any other needs one. */
static void test_training_and_answers_share_a_program_unless_their_bits_differ(void **state)
{
    (void)state;
    for (int coarse = 0; coarse < 2; coarse++) {
        struct der_ctx *ctx = test_ctx_new(1);
        const struct folded_use training = {.batch = BATCH, .in_training = true};
        const struct folded *trained;
        const struct folded *again;
        const struct folded *answer;
        const int kept[] = {BATCH};
        struct extractor *extractor;
        struct backend *be;
        assert_ok(ctx, backend_open(ctx, "ref", NULL, &be));
        be->is_coarse = coarse == 1;
        struct resnet_spec spec = odd_spec(ctx, "resnet32");
        assert_ok(ctx, extractor_new(be, &spec, &extractor));
        assert_ok(ctx, extractor_folded_for(extractor, &training, &trained));
        assert_ok(ctx, extractor_folded(extractor, BATCH, &answer));
        assert_ok(ctx, extractor_folded_for(extractor, &training, &again));
        assert_ptr_equal(again, trained);
        assert_int_equal(answer->is_precise, true);
        assert_int_equal(trained->is_precise, coarse == 0);
        assert_int_equal(trained == answer, coarse == 0);
        extractor_trim(extractor, kept, 1);
        assert_int_equal(extractor->n_folded, 1 + coarse);
        extractor_free(extractor);
        backend_close(be);
        test_ctx_free(ctx);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_networks_have_their_published_sizes),
        cmocka_unit_test(test_multiply_adds_are_those_of_the_graph),
        cmocka_unit_test(test_parameters_carry_torchvisions_names),
        cmocka_unit_test(test_sparsity_layers_count_the_convolutions),
        cmocka_unit_test(test_unusable_networks_are_refused),
        cmocka_unit_test(test_folded_programs_equal_the_plain_network),
        cmocka_unit_test(test_frozen_programs_are_reused_as_the_matrix_grows),
        cmocka_unit_test(test_programs_for_other_batch_sizes_can_be_dropped),
        cmocka_unit_test(test_training_and_answers_share_a_program_unless_their_bits_differ),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

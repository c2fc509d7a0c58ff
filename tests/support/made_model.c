#include "support/made_model.h"

#include "core/rng.h"
#include "support/test_ctx.h"

#include <stdlib.h>

const char *const made_classes[MADE_CLASSES] = {"cat", "caf\xc3\xa9", "a \"b\"\n", "dog", "cow"};

struct augment_spec made_input(void)
{
    return (struct augment_spec){.geometry = AUGMENT_PLAIN,
                                 .channels = 3,
                                 .height = MADE_SIZE,
                                 .width = MADE_SIZE,
                                 .mean = {0.5F, 0.25F, 0.75F},
                                 .std = {0.25F, 0.5F, 0.125F}};
}

static struct resnet_spec odd_spec(const struct augment_spec *input, int number)
{
    struct resnet_spec spec = {.stem = number == 0 ? RESNET_STEM_3X3 : RESNET_STEM_3X3_POOL,
                               .in_channels = input->channels,
                               .height = input->height,
                               .width = input->width,
                               .n_stages = 2,
                               .n_blocks = {1, 2},
                               .stream = {3, 5 + 2 * number},
                               .inner = {{5}, {2, 7}}};
    return spec;
}

/* Statistics that folding has to get right: neither 0 nor 1. */
static void draw_states(struct param_set *set)
{
    for (int i = 0; i < set->n; i++) {
        float values[64];
        int64_t n = shape_count(set->items[i].shape);
        if (set->items[i].role != PARAM_STATE)
            continue;
        assert_true(n <= 64);
        for (int64_t k = 0; k < n; k++)
            values[k] = 0.5F + (float)((k * 5 + i) % 7) / 8.0F;
        assert_ok(set->ctx, param_write(set, i, values));
    }
}

struct model *made_model_new(struct backend *be, const struct augment_spec *input,
                             double temperature)
{
    struct der_ctx *ctx = be->ctx;
    struct model *model = mem_zalloc(&ctx->mem, 1, sizeof *model);
    int index;
    assert_non_null(model);
    model->ctx = ctx;
    arena_init(&model->texts, &ctx->mem);
    for (int i = 0; i < MADE_EXTRACTORS; i++) {
        struct resnet_spec spec = odd_spec(input, i);
        assert_ok(ctx, extractor_new(be, &spec, &model->extractors[i]));
        model->n_extractors++;
        assert_ok(ctx, param_set_init(model->extractors[i]->params, 7, (uint32_t)i));
        draw_states(model->extractors[i]->params);
    }
    int64_t features = model_feature_dim(model);
    float weights[MADE_CLASSES * 64];
    assert_true(features <= 64);
    rng_normal(weights, MADE_CLASSES * features, 1.0, 3, RNG_TEST, 0);
    assert_ok(ctx, param_set_new(ctx, &model->classifier));
    assert_ok(ctx,
              param_set_add(model->classifier, "classifier.weight",
                            shape_2d(MADE_CLASSES, features), PARAM_LEARNT, INIT_ZERO, &index));
    assert_ok(ctx, param_set_add(model->classifier, "classifier.bias", shape_1d(MADE_CLASSES),
                                 PARAM_LEARNT, INIT_ZERO, &index));
    assert_ok(ctx, param_set_allocate(model->classifier, be));
    assert_ok(ctx, param_write(model->classifier, 0, weights));
    rng_normal(weights, MADE_CLASSES, 1.0, 3, RNG_TEST, 1);
    assert_ok(ctx, param_write(model->classifier, index, weights));
    model->info = (struct model_info){.classes = made_classes,
                                      .n_classes = MADE_CLASSES,
                                      .steps = {3, 2},
                                      .n_steps = 2,
                                      .input = *input,
                                      .network = "resnet18-cifar",
                                      .width = 0.25,
                                      .temperature = temperature,
                                      .version = "0.1.0",
                                      .preset = "custom",
                                      .seed = 1993};
    return model;
}

void made_model_write(struct der_ctx *ctx, const char *path, const struct augment_spec *input,
                      double temperature)
{
    struct backend *be;
    assert_ok(ctx, backend_open(ctx, "ref", NULL, &be));
    struct model *model = made_model_new(be, input, temperature);
    assert_ok(ctx, model_write(model, NULL, path));
    model_free(model);
    backend_close(be);
}

/* ---- the long way -------------------------------------------------------------------------------- */

static void copy_params(const struct param_set *from, struct param_set *to)
{
    assert_int_equal(from->n, to->n);
    for (int i = 0; i < from->n; i++) {
        float *values = malloc((size_t)shape_count(from->items[i].shape) * sizeof *values);
        assert_non_null(values);
        assert_ok(from->ctx, param_read(from, i, values));
        assert_ok(to->ctx, param_write(to, i, values));
        free(values);
    }
}

static void features_of(struct backend *ref, const struct extractor *extractor, const float *image,
                        float *features)
{
    struct der_ctx *ctx = ref->ctx;
    const struct resnet_spec *spec = &extractor->spec;
    size_t pixels = (size_t)spec->in_channels * (size_t)spec->height * (size_t)spec->width;
    size_t bytes = (size_t)resnet_feature_dim(spec) * sizeof *features;
    struct param_set *params;
    struct param_use use = {0};
    struct graph *g;
    struct program *program;
    struct sequence *sequence;
    struct buffer *in;
    struct buffer *out;
    struct resnet_io io = {0};
    int feature;
    assert_ok(ctx, param_set_new(ctx, &params));
    assert_ok(ctx, resnet_declare(spec, params));
    assert_ok(ctx, param_set_allocate(params, ref));
    copy_params(extractor->params, params);
    assert_ok(ctx, graph_new(ctx, &g));
    assert_ok(ctx,
              graph_input(g, "image", DTYPE_F32,
                          shape_4d(1, spec->in_channels, spec->height, spec->width), &io.image));
    assert_ok(ctx, params_attach(params, g, false, &use));
    assert_ok(ctx, resnet_build(spec, g, &use, &io, &feature));
    assert_ok(ctx, graph_expose(g, feature));
    assert_ok(ctx, program_compile(ref, g, &program));
    assert_ok(ctx, params_bind(&use, program));
    assert_ok(ctx, buffer_new(ref, pixels * sizeof *image, &in));
    assert_ok(ctx, buffer_new(ref, bytes, &out));
    assert_ok(ctx, buffer_write(in, 0, image, pixels * sizeof *image));
    assert_ok(ctx, program_bind(program, io.image, (struct span){.buffer = in}));
    assert_ok(ctx, program_bind(program, feature, (struct span){.buffer = out}));
    assert_ok(ctx, sequence_new(ref, &(struct sequence_item){program, 0}, 1, &sequence));
    assert_ok(ctx, sequence_run(sequence));
    assert_ok(ctx, buffer_read(out, 0, features, bytes));
    sequence_free(sequence);
    program_free(program);
    buffer_free(in);
    buffer_free(out);
    param_use_fini(&use);
    graph_free(g);
    param_set_free(params);
}

void made_model_logits(const struct model *model, const float *image, double *logits)
{
    struct backend *ref;
    float features[64];
    float weights[MADE_CLASSES * 64];
    float bias[MADE_CLASSES];
    int64_t dim = 0;
    assert_ok(model->ctx, backend_open(model->ctx, "ref", NULL, &ref));
    for (int i = 0; i < model->n_extractors; i++) {
        features_of(ref, model->extractors[i], image, features + dim);
        dim += resnet_feature_dim(&model->extractors[i]->spec);
    }
    assert_ok(model->ctx, param_read(model->classifier, 0, weights));
    assert_ok(model->ctx, param_read(model->classifier, 1, bias));
    for (int c = 0; c < MADE_CLASSES; c++) {
        logits[c] = (double)bias[c];
        for (int64_t k = 0; k < dim; k++)
            logits[c] += (double)weights[c * dim + k] * (double)features[k];
    }
    backend_close(ref);
}

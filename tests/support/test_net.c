#include "support/test_net.h"

#include "core/rng.h"
#include "support/test_ctx.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 3, IMAGE = 8, N_CLASSES = 6, N_OLD_CLASSES = 3, OLD_FEATURES = 4 };
enum { STEM = 5, BODY = 7 };
enum { N_MASKS = 4 };

struct builder {
    struct test_net *net;
    const struct test_net_options *options;
    int masks[N_MASKS]; /* m, or NO_VALUE */
};

static void remember_param(struct test_net *net, int value)
{
    assert_true(net->n_params < NET_MAX_VALUES);
    if (net->g->values[value].trainable)
        net->params[net->n_params++] = value;
}

static void remember_state(struct test_net *net, int value)
{
    assert_true(net->n_states < NET_MAX_VALUES);
    net->states[net->n_states++] = value;
}

static int param(struct builder *b, const char *name, const char *suffix, struct shape shape,
                 bool trainable)
{
    char full[64];
    (void)snprintf(full, sizeof full, "%s.%s", name, suffix);
    struct graph *g = b->net->g;
    int value;
    assert_ok(g->ctx, graph_param(g, full, shape, trainable, &value));
    remember_param(b->net, value);
    return value;
}

static int input(struct builder *b, const char *name, enum dtype dtype, struct shape shape)
{
    int value;
    assert_ok(b->net->g->ctx, graph_input(b->net->g, name, dtype, shape, &value));
    return value;
}

/* conv, batch norm, mask; m may be NO_VALUE */
static int conv_norm(struct builder *b, const char *name, int src, int64_t channels, int kernel,
                     int stride, int m)
{
    struct graph *g = b->net->g;
    const bool trainable = !b->options->frozen;
    const int64_t c = g->values[src].shape.dim[1];
    const struct shape vector = shape_1d(channels);
    const int weights = param(b, name, "weights", shape_4d(channels, c, kernel, kernel), trainable);
    const struct batchnorm_params params = {
        .gamma = param(b, name, "gamma", vector, trainable),
        .beta = param(b, name, "beta", vector, trainable),
        .running_mean = param(b, name, "running_mean", vector, false),
        .running_var = param(b, name, "running_var", vector, false),
    };
    if (trainable) {
        remember_state(b->net, params.running_mean);
        remember_state(b->net, params.running_var);
    }
    int x;
    assert_ok(g->ctx, graph_conv2d(g, src, weights, stride, kernel / 2, &x));
    assert_ok(g->ctx, graph_batchnorm(g, x, &params, trainable, &x));
    if (m != NO_VALUE)
        assert_ok(g->ctx, graph_scale_channel(g, x, m, &x));
    return x;
}

static int relu(struct builder *b, int src)
{
    int x;
    assert_ok(b->net->g->ctx, graph_relu(b->net->g, src, &x));
    return x;
}

static int residual_block(struct builder *b, const char *name, int src, int stride, int inner_mask)
{
    struct graph *g = b->net->g;
    char part[3][32];
    (void)snprintf(part[0], sizeof part[0], "%s.a", name);
    (void)snprintf(part[1], sizeof part[1], "%s.b", name);
    (void)snprintf(part[2], sizeof part[2], "%s.shortcut", name);
    const int stream = b->masks[2];

    int x = relu(b, conv_norm(b, part[0], src, BODY, 3, stride, inner_mask));
    x = conv_norm(b, part[1], x, BODY, 3, 1, stream);
    int shortcut = src;
    if (stride > 1)
        shortcut = conv_norm(b, part[2], src, BODY, 1, stride, stream);
    assert_ok(g->ctx, graph_add(g, x, shortcut, &x));
    return relu(b, x);
}

static void remember_loss(struct test_net *net, int loss, int weight)
{
    net->losses[net->n_losses] = loss;
    net->loss_weights[net->n_losses++] = weight;
    remember_state(net, loss);
}

static void add_masks(struct builder *b)
{
    static const int64_t sizes[N_MASKS] = {STEM, BODY, BODY, BODY};
    static const char *const names[N_MASKS] = {"stem", "inner1", "stream", "inner2"};
    static const struct sparsity_layer layers[] = {
        {.in_mask = -1, .out_mask = 0, .kernel_area = 9, .in_channels = 3},
        {.in_mask = 0, .out_mask = 1, .kernel_area = 9},
        {.in_mask = 1, .out_mask = 2, .kernel_area = 9},
        {.in_mask = 0, .out_mask = 2, .kernel_area = 1},
        {.in_mask = 2, .out_mask = 3, .kernel_area = 9},
        {.in_mask = 3, .out_mask = 2, .kernel_area = 9},
    };
    for (int i = 0; i < N_MASKS; i++)
        b->masks[i] = NO_VALUE;
    if (!b->options->masks || b->options->frozen)
        return;

    struct graph *g = b->net->g;
    int e[N_MASKS];
    for (int i = 0; i < N_MASKS; i++)
        e[i] = param(b, names[i], "mask", shape_1d(sizes[i]), true);
    const int s = input(b, "s", DTYPE_F32, shape_1d(1));
    const int weight = input(b, "sparsity weight", DTYPE_F32, shape_1d(1));
    int loss;
    assert_ok(g->ctx, graph_mask_gate(g, s, e, N_MASKS, MASK_GRADIENT_EXACT, 1.0F, b->masks));
    assert_ok(g->ctx, graph_mask_sparsity(g, weight, b->masks, N_MASKS, layers,
                                          sizeof layers / sizeof layers[0], NULL, &loss));
    remember_loss(b->net, loss, weight);
}

/* Features [BATCH, BODY] of the image. */
static int extractor(struct builder *b)
{
    struct graph *g = b->net->g;
    const int image = input(b, "image", DTYPE_F32, shape_4d(BATCH, 3, IMAGE, IMAGE));
    int x = relu(b, conv_norm(b, "stem", image, STEM, 3, 1, b->masks[0]));
    assert_ok(g->ctx, graph_maxpool(g, x, 3, 2, 1, &x));
    x = residual_block(b, "block1", x, 2, b->masks[1]);
    x = residual_block(b, "block2", x, 1, b->masks[3]);
    assert_ok(g->ctx, graph_avgpool(g, x, &x));
    return x;
}

/* Main head over all features: cross-entropy and distillation. */
static void main_head(struct builder *b, int features, int labels)
{
    struct graph *g = b->net->g;
    const int64_t d = g->values[features].shape.dim[1];
    const int weights = param(b, "head", "weights", shape_2d(N_CLASSES, d), true);
    const int bias = param(b, "head", "bias", shape_1d(N_CLASSES), true);
    const int teacher = input(b, "teacher", DTYPE_F32, shape_2d(BATCH, N_OLD_CLASSES));
    const int weight = input(b, "main weight", DTYPE_F32, shape_1d(1));
    const int distill_weight = input(b, "distill weight", DTYPE_F32, shape_1d(1));
    const struct distill_options distill = {.count = N_OLD_CLASSES, .temperature = 2.0F};
    int logits;
    int loss;
    assert_ok(g->ctx, graph_linear(g, features, weights, bias, &logits));
    assert_ok(g->ctx, graph_softmax_xent(g, logits, labels, weight, NULL, &loss));
    remember_loss(b->net, loss, weight);
    assert_ok(g->ctx, graph_distill(g, logits, teacher, distill_weight, &distill, &loss));
    remember_loss(b->net, loss, distill_weight);
}

/* Auxiliary head over the new features, of unit length: new classes against "any old class". */
static void auxiliary_head(struct builder *b, int features, int labels)
{
    struct graph *g = b->net->g;
    const int64_t n = N_CLASSES - N_OLD_CLASSES + 1;
    const int weights = param(b, "auxiliary", "weights", shape_2d(n, BODY), true);
    const int factor = param(b, "auxiliary", "factor", shape_1d(1), true);
    const int weight = input(b, "auxiliary weight", DTYPE_F32, shape_1d(1));
    const struct xent_options options = {.label_shift = N_OLD_CLASSES - 1, .clamp_low = true};
    int x;
    int loss;
    assert_ok(g->ctx, graph_l2norm(g, features, &x));
    assert_ok(g->ctx, graph_scale(g, x, factor, &x));
    assert_ok(g->ctx, graph_linear(g, x, weights, NO_VALUE, &x));
    assert_ok(g->ctx, graph_softmax_xent(g, x, labels, weight, &options, &loss));
    remember_loss(b->net, loss, weight);
}

void test_net_init(struct test_net *net, struct der_ctx *ctx,
                   const struct test_net_options *options)
{
    *net = (struct test_net){0};
    assert_ok(ctx, graph_new(ctx, &net->g));
    struct graph *g = net->g;
    struct builder b = {.net = net, .options = options};

    add_masks(&b);
    const int part = extractor(&b);
    const int matrix = input(&b, "matrix", DTYPE_F32, shape_2d(BATCH, OLD_FEATURES + BODY));
    const int labels = input(&b, "labels", DTYPE_I32, shape_1d(BATCH));
    remember_state(net, matrix);
    int features;
    assert_ok(ctx, graph_join(g, part, matrix, OLD_FEATURES, &features));
    main_head(&b, features, labels);
    auxiliary_head(&b, part, labels);

    if (options->fuse)
        assert_ok(ctx, graph_fuse(g));
    if (options->backward)
        assert_ok(ctx, graph_backward(g));
    if (options->sgd) {
        const struct sgd_attr sgd = {
            .momentum = 0.9F, .decay = 1e-3F, .gain = 1.0F, .low = -100.0F, .high = 100.0F};
        const int lr = input(&b, "lr", DTYPE_F32, shape_1d(1));
        assert_ok(ctx, graph_sgd(g, net->params, net->n_params, lr, &sgd, net->velocity));
    }
}

void test_net_fini(struct test_net *net)
{
    graph_free(net->g);
}

/* ---- running a whole graph ----------------------------------------------------------------- */

/* How values are filled, by the end of their name: N(0, a^2) or U[a, b) or the number a. */
static const struct fill_rule {
    const char *suffix;
    enum { RULE_NORMAL, RULE_UNIFORM, RULE_NUMBER } kind;
    double a, b;
} fill_rules[] = {
    {".weights", RULE_NORMAL, 0.4, 0},
    {".gamma", RULE_UNIFORM, 0.5, 1.5},
    {".beta", RULE_NORMAL, 0.5, 0},
    {".running_mean", RULE_NORMAL, 0.3, 0},
    {".running_var", RULE_UNIFORM, 0.5, 2},
    {".bias", RULE_NORMAL, 0.3, 0},
    {".mask", RULE_NORMAL, 1.0, 0},
    {".factor", RULE_NUMBER, 1.7, 0},
    {"image", RULE_NORMAL, 1.0, 0},
    {"matrix", RULE_NORMAL, 1.0, 0},
    {"teacher", RULE_NORMAL, 1.0, 0},
    {"main weight", RULE_NUMBER, 0.9, 0},
    {"sparsity weight", RULE_NUMBER, 0.6, 0},
    {"distill weight", RULE_NUMBER, 0.7, 0},
    {"auxiliary weight", RULE_NUMBER, 1.1, 0},
    {"lr", RULE_NUMBER, 0.1, 0},
    {"s", RULE_NUMBER, 1.0, 0},
};
enum { N_FILL_RULES = sizeof fill_rules / sizeof fill_rules[0], NET_SEED = 17 };

static bool ends_with(const char *text, const char *suffix)
{
    const size_t n = strlen(text);
    const size_t k = strlen(suffix);
    return n >= k && strcmp(text + n - k, suffix) == 0;
}

/* FNV-1a: draws depend on the name alone, not on how many values a rewrite has added. */
static uint32_t name_hash(const char *name)
{
    uint32_t hash = 2166136261U;
    for (; *name; name++)
        hash = (hash ^ (uint32_t)(unsigned char)*name) * 16777619U;
    return hash;
}

/* What no rule names (velocities, results) becomes 0. */
static float *initial_content(const struct value *value)
{
    const int64_t n = shape_count(value->shape);
    float *data = calloc((size_t)n, sizeof *data);
    assert_non_null(data);
    if (value->dtype == DTYPE_I32) {
        static const int32_t labels[BATCH] = {1, 5, 3};
        assert_int_equal(n, BATCH);
        memcpy(data, labels, sizeof labels);
        return data;
    }
    for (int i = 0; i < N_FILL_RULES; i++) {
        const struct fill_rule *rule = &fill_rules[i];
        if (!ends_with(value->name, rule->suffix))
            continue;
        if (rule->kind == RULE_NORMAL)
            rng_normal(data, n, rule->a, NET_SEED, RNG_TEST, name_hash(value->name));
        else if (rule->kind == RULE_UNIFORM)
            rng_uniform(data, n, rule->a, rule->b, NET_SEED, RNG_TEST, name_hash(value->name));
        else
            data[0] = (float)rule->a;
        break;
    }
    return data;
}

void graph_runner_init(struct graph_runner *runner, struct backend *be, const struct graph *g)
{
    *runner = (struct graph_runner){.g = g};
    assert_ok(be->ctx, program_compile(be, g, &runner->program));
    runner->buffers = calloc((size_t)g->n_values, sizeof *runner->buffers);
    assert_non_null(runner->buffers);
    for (int i = 0; i < g->n_values; i++) {
        const struct value *value = &g->values[i];
        if (value->kind != VALUE_EXTERNAL)
            continue;
        const size_t bytes = (size_t)shape_count(value->shape) * dtype_bytes(value->dtype);
        assert_ok(be->ctx, buffer_new(be, bytes, &runner->buffers[i]));
        const struct span span = {.buffer = runner->buffers[i]};
        assert_ok(be->ctx, program_bind(runner->program, i, span));
        float *data = initial_content(value);
        graph_runner_write(runner, i, data);
        free(data);
    }
    const struct sequence_item item = {.program = runner->program};
    assert_ok(be->ctx, sequence_new(be, &item, 1, &runner->sequence));
}

void graph_runner_fini(struct graph_runner *runner)
{
    sequence_free(runner->sequence);
    program_free(runner->program);
    for (int i = 0; i < runner->g->n_values; i++)
        buffer_free(runner->buffers[i]);
    free(runner->buffers);
}

void graph_runner_run(struct graph_runner *runner)
{
    assert_ok(runner->g->ctx, sequence_run(runner->sequence));
}

float *graph_runner_read(const struct graph_runner *runner, int value)
{
    const struct buffer *buffer = runner->buffers[value];
    assert_non_null(buffer);
    float *data = malloc(buffer->bytes);
    assert_non_null(data);
    assert_ok(runner->g->ctx, buffer_read(buffer, 0, data, buffer->bytes));
    return data;
}

void graph_runner_write(struct graph_runner *runner, int value, const float *data)
{
    struct buffer *buffer = runner->buffers[value];
    assert_non_null(buffer);
    assert_ok(runner->g->ctx, buffer_write(buffer, 0, data, buffer->bytes));
}

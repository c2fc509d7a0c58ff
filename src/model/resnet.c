#include "model/resnet.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    NAME_MAX_CHARS = RESNET_LAYER_NAME,
    POOL_KERNEL = 3, /* of the max-pool behind a stem that has one */
    POOL_STRIDE = 2,
    POOL_PAD = 1
};

enum layer_kind { LAYER_STEM, LAYER_CONV1, LAYER_CONV2, LAYER_SHORTCUT };

/* A convolution and its batch norm. The table of them, in the order of declaration, is what every
 * function below walks. */
struct layer {
    enum layer_kind kind;
    int stage, block;
    int c_in, c_out;
    int kernel, stride, pad;
    int in_mask, out_mask; /* as resnet_mask_count numbers them; -1: the image */
};

static const struct resnet_name NAMES[] = {
    {"resnet18-cifar", "ResNet-18 with a 3x3 stem and no max-pool, for 32x32 images"},
    {"resnet32", "the modified 32-layer ResNet, 16/32/64 channels"},
    {"resnet18", "ResNet-18 with the 7x7 stem and max-pool, for ImageNet"},
    {"resnet18-3x3", "ResNet-18 with a 3x3 stem and max-pool, for ImageNet"},
    {NULL, NULL},
};

const struct resnet_name *resnet_names(void)
{
    return NAMES;
}

static int scaled_width(int channels, double factor)
{
    int scaled = (int)lround(channels * factor);
    return scaled > 1 ? scaled : 1;
}

enum der_status resnet_spec_init(struct der_ctx *ctx, struct resnet_spec *spec, const char *name,
                                 int in_channels, int height, int width, double width_factor)
{
    static const enum resnet_stem stems[] = {RESNET_STEM_3X3, RESNET_STEM_3X3, RESNET_STEM_7X7_POOL,
                                             RESNET_STEM_3X3_POOL};
    *spec = (struct resnet_spec){.in_channels = in_channels, .height = height, .width = width};
    int which = 0;
    while (NAMES[which].name && strcmp(NAMES[which].name, name) != 0)
        which++;
    if (!NAMES[which].name)
        return ctx_fail(ctx, DER_ARG,
                        "unknown network '%s'; known: resnet18-cifar, resnet32, resnet18, "
                        "resnet18-3x3",
                        name);
    if (!(width_factor > 0.0 && width_factor <= 16.0))
        return ctx_fail(ctx, DER_ARG, "a width factor lies above 0 and at 16 or below");
    bool is_resnet32 = strcmp(name, "resnet32") == 0;
    spec->stem = stems[which];
    spec->zero_init_residual = !is_resnet32;
    spec->n_stages = is_resnet32 ? 3 : 4;
    for (int k = 0; k < spec->n_stages; k++) {
        spec->n_blocks[k] = is_resnet32 ? 5 : 2;
        spec->stream[k] = scaled_width((is_resnet32 ? 16 : 64) << k, width_factor);
        for (int b = 0; b < spec->n_blocks[k]; b++)
            spec->inner[k][b] = spec->stream[k];
    }
    return resnet_spec_check(ctx, spec);
}

enum der_status resnet_spec_check(struct der_ctx *ctx, const struct resnet_spec *spec)
{
    if (spec->in_channels < 1 || spec->height < 1 || spec->width < 1)
        return ctx_fail(ctx, DER_ARG, "images of %d channels, %d x %d pixels cannot be used",
                        spec->in_channels, spec->height, spec->width);
    if (spec->n_stages < 1 || spec->n_stages > RESNET_MAX_STAGES)
        return ctx_fail(ctx, DER_ARG, "a network has 1 to %d stages, not %d", RESNET_MAX_STAGES,
                        spec->n_stages);
    for (int k = 0; k < spec->n_stages; k++) {
        if (spec->n_blocks[k] < 1 || spec->n_blocks[k] > RESNET_MAX_BLOCKS || spec->stream[k] < 1)
            return ctx_fail(ctx, DER_ARG, "stage %d: %d blocks of %d channels cannot be used",
                            k + 1, spec->n_blocks[k], spec->stream[k]);
        for (int b = 0; b < spec->n_blocks[k]; b++)
            if (spec->inner[k][b] < 1)
                return ctx_fail(ctx, DER_ARG, "stage %d, block %d has no inner channels", k + 1,
                                b + 1);
    }
    return DER_OK;
}

int resnet_feature_dim(const struct resnet_spec *spec)
{
    return spec->stream[spec->n_stages - 1];
}

/* Fills `layers`; returns how many there are. */
static int list_layers(const struct resnet_spec *spec, struct layer layers[RESNET_MAX_LAYERS])
{
    bool wide_stem = spec->stem == RESNET_STEM_7X7_POOL;
    int n = 0;
    layers[n++] = (struct layer){.kind = LAYER_STEM,
                                 .c_in = spec->in_channels,
                                 .c_out = spec->stream[0],
                                 .kernel = wide_stem ? 7 : 3,
                                 .stride = wide_stem ? 2 : 1,
                                 .pad = wide_stem ? 3 : 1,
                                 .in_mask = -1};
    int inner_mask = spec->n_stages;
    for (int k = 0; k < spec->n_stages; k++) {
        for (int b = 0; b < spec->n_blocks[k]; b++, inner_mask++) {
            bool enters = k > 0 && b == 0; /* the stage: smaller image, other stream */
            int from = enters ? k - 1 : k;
            int stride = enters ? 2 : 1;
            struct layer conv = {.stage = k, .block = b, .kernel = 3, .stride = 1, .pad = 1};
            conv.kind = LAYER_CONV1;
            conv.c_in = spec->stream[from];
            conv.c_out = spec->inner[k][b];
            conv.stride = stride;
            conv.in_mask = from;
            conv.out_mask = inner_mask;
            layers[n++] = conv;
            conv.kind = LAYER_CONV2;
            conv.c_in = spec->inner[k][b];
            conv.c_out = spec->stream[k];
            conv.stride = 1;
            conv.in_mask = inner_mask;
            conv.out_mask = k;
            layers[n++] = conv;
            if (enters)
                layers[n++] = (struct layer){.kind = LAYER_SHORTCUT,
                                             .stage = k,
                                             .block = b,
                                             .c_in = spec->stream[from],
                                             .c_out = spec->stream[k],
                                             .kernel = 1,
                                             .stride = stride,
                                             .in_mask = from,
                                             .out_mask = k};
        }
    }
    return n;
}

static int64_t count_weights(const struct layer *layer)
{
    return (int64_t)layer->c_out * layer->c_in * layer->kernel * layer->kernel;
}

int64_t resnet_count_params(const struct resnet_spec *spec)
{
    struct layer layers[RESNET_MAX_LAYERS];
    int n = list_layers(spec, layers);
    int64_t count = 0;
    for (int i = 0; i < n; i++)
        count += count_weights(&layers[i]) + 2 * layers[i].c_out;
    return count;
}

/* torchvision's names of a convolution and of its batch norm. */
static void layer_names(const struct layer *layer, char conv[NAME_MAX_CHARS],
                        char norm[NAME_MAX_CHARS])
{
    static const char *const conv_names[] = {"conv1", "conv1", "conv2", "downsample.0"};
    static const char *const norm_names[] = {"bn1", "bn1", "bn2", "downsample.1"};
    char prefix[NAME_MAX_CHARS / 2] = "";
    if (layer->kind != LAYER_STEM)
        (void)snprintf(prefix, sizeof prefix, "layer%d.%d.", layer->stage + 1, layer->block);
    (void)snprintf(conv, NAME_MAX_CHARS, "%s%s", prefix, conv_names[layer->kind]);
    (void)snprintf(norm, NAME_MAX_CHARS, "%s%s", prefix, norm_names[layer->kind]);
}

/* Pixels of a side behind a window that is moved by `stride`. */
static int side_after(int side, int kernel, int stride, int pad)
{
    return (side + 2 * pad - kernel) / stride + 1;
}

int resnet_layers(const struct resnet_spec *spec, struct resnet_layer out[RESNET_MAX_LAYERS])
{
    struct layer layers[RESNET_MAX_LAYERS];
    int n = list_layers(spec, layers);
    int height = spec->height;
    int width = spec->width;
    for (int i = 0; i < n; i++) {
        const struct layer *layer = &layers[i];
        char norm[NAME_MAX_CHARS];
        /* A shortcut runs beside the first convolution of its block, which has done the same step. */
        if (layer->kind != LAYER_SHORTCUT) {
            height = side_after(height, layer->kernel, layer->stride, layer->pad);
            width = side_after(width, layer->kernel, layer->stride, layer->pad);
        }
        out[i] = (struct resnet_layer){.in_channels = layer->c_in,
                                       .out_channels = layer->c_out,
                                       .kernel = layer->kernel,
                                       .stride = layer->stride,
                                       .height = height,
                                       .width = width,
                                       .params = count_weights(layer) + 2 * layer->c_out,
                                       .multiply_adds = count_weights(layer) * height * width};
        layer_names(layer, out[i].name, norm);
        if (layer->kind == LAYER_STEM && spec->stem != RESNET_STEM_3X3) {
            height = side_after(height, POOL_KERNEL, POOL_STRIDE, POOL_PAD);
            width = side_after(width, POOL_KERNEL, POOL_STRIDE, POOL_PAD);
        }
    }
    return n;
}

int64_t resnet_count_multiply_adds(const struct resnet_spec *spec)
{
    struct resnet_layer layers[RESNET_MAX_LAYERS];
    int n = resnet_layers(spec, layers);
    int64_t count = 0;
    for (int i = 0; i < n; i++)
        count += layers[i].multiply_adds;
    return count;
}

enum der_status resnet_declare(const struct resnet_spec *spec, struct param_set *set)
{
    static const struct {
        const char *suffix;
        enum param_role role;
        enum param_init init;
    } norm_params[] = {
        {"weight", PARAM_LEARNT, INIT_ONE},
        {"bias", PARAM_LEARNT, INIT_ZERO},
        {"running_mean", PARAM_STATE, INIT_ZERO},
        {"running_var", PARAM_STATE, INIT_ONE},
    };
    TRY(resnet_spec_check(set->ctx, spec));
    struct layer layers[RESNET_MAX_LAYERS];
    int n = list_layers(spec, layers);
    for (int i = 0; i < n; i++) {
        const struct layer *layer = &layers[i];
        char conv[NAME_MAX_CHARS];
        char norm[NAME_MAX_CHARS];
        char name[2 * NAME_MAX_CHARS];
        int index;
        layer_names(layer, conv, norm);
        (void)snprintf(name, sizeof name, "%s.weight", conv);
        TRY(param_set_add(set, name,
                          shape_4d(layer->c_out, layer->c_in, layer->kernel, layer->kernel),
                          PARAM_LEARNT, INIT_KAIMING_FAN_OUT, &index));
        for (int p = 0; p < PARAMS_PER_LAYER - 1; p++) {
            enum param_init init = norm_params[p].init;
            if (p == 0 && layer->kind == LAYER_CONV2 && spec->zero_init_residual)
                init = INIT_ZERO;
            (void)snprintf(name, sizeof name, "%s.%s", norm, norm_params[p].suffix);
            TRY(param_set_add(set, name, shape_1d(layer->c_out), norm_params[p].role, init,
                              &index));
        }
    }
    return DER_OK;
}

int resnet_mask_count(const struct resnet_spec *spec)
{
    int n = spec->n_stages;
    for (int k = 0; k < spec->n_stages; k++)
        n += spec->n_blocks[k];
    return n;
}

int resnet_mask_channels(const struct resnet_spec *spec, int mask)
{
    assert(mask >= 0 && mask < resnet_mask_count(spec));
    if (mask < spec->n_stages)
        return spec->stream[mask];
    int block = mask - spec->n_stages;
    for (int k = 0;; k++) {
        if (block < spec->n_blocks[k])
            return spec->inner[k][block];
        block -= spec->n_blocks[k];
    }
}

int resnet_sparsity_layers(const struct resnet_spec *spec, struct sparsity_layer *out, int capacity)
{
    struct layer layers[RESNET_MAX_LAYERS];
    int n = list_layers(spec, layers);
    assert(n <= capacity);
    for (int i = 0; i < n && i < capacity; i++)
        out[i] = (struct sparsity_layer){.in_mask = layers[i].in_mask,
                                         .out_mask = layers[i].out_mask,
                                         .kernel_area = layers[i].kernel * layers[i].kernel,
                                         .in_channels = layers[i].c_in};
    return n;
}

/* What the layers of one network share while it is appended to a graph. */
struct builder {
    struct graph *g;
    const struct param_use *params;
    const struct resnet_io *io;
    const struct layer *layers;
    int n_layers;
};

/* z = m * bn(conv(src)), without m where there are no masks. */
static enum der_status build_layer(const struct builder *b, int index, int src, int *dst)
{
    const struct layer *layer = &b->layers[index];
    const int *values = b->params->value + PARAMS_PER_LAYER * index;
    const struct batchnorm_params norm = {.gamma = values[LAYER_GAMMA],
                                          .beta = values[LAYER_BETA],
                                          .running_mean = values[LAYER_MEAN],
                                          .running_var = values[LAYER_VAR]};
    int value;
    TRY(graph_conv2d(b->g, src, values[LAYER_WEIGHT], layer->stride, layer->pad, &value));
    TRY(graph_batchnorm(b->g, value, &norm, b->io->training, &value));
    if (b->io->masks)
        TRY(graph_scale_channel(b->g, value, b->io->masks[layer->out_mask], &value));
    *dst = value;
    return DER_OK;
}

/* One basic block whose layers start at *index, which moves past them. */
static enum der_status build_block(const struct builder *b, int *index, int *stream)
{
    int inner;
    int branch;
    int shortcut = *stream;
    TRY(build_layer(b, (*index)++, *stream, &inner));
    TRY(graph_relu(b->g, inner, &inner));
    TRY(build_layer(b, (*index)++, inner, &branch));
    if (*index < b->n_layers && b->layers[*index].kind == LAYER_SHORTCUT)
        TRY(build_layer(b, (*index)++, *stream, &shortcut));
    TRY(graph_add(b->g, branch, shortcut, stream));
    return graph_relu(b->g, *stream, stream);
}

enum der_status resnet_build(const struct resnet_spec *spec, struct graph *g,
                             const struct param_use *params, const struct resnet_io *io,
                             int *feature)
{
    *feature = NO_VALUE;
    struct layer layers[RESNET_MAX_LAYERS];
    struct builder b = {.g = g, .params = params, .io = io, .layers = layers};
    b.n_layers = list_layers(spec, layers);
    assert(params->set->n == PARAMS_PER_LAYER * b.n_layers);

    int index = 0;
    int stream;
    TRY(build_layer(&b, index++, io->image, &stream));
    TRY(graph_relu(g, stream, &stream));
    if (spec->stem != RESNET_STEM_3X3)
        TRY(graph_maxpool(g, stream, POOL_KERNEL, POOL_STRIDE, POOL_PAD, &stream));
    while (index < b.n_layers)
        TRY(build_block(&b, &index, &stream));
    return graph_avgpool(g, stream, feature);
}

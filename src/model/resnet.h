/*
 * Residual networks of basic blocks, with any width at any layer.
 *
 * One description covers the CIFAR ResNet-18, the modified 32-layer ResNet and the ImageNet
 * ResNet-18 with either stem, unpruned or pruned: the channels of a stage's residual stream and the
 * inner channels of every block are free, so that a pruned network is just another description.
 *
 *     h = relu(bn(conv_stem(x))) [maxpool]
 *     block: u = relu(bn1(conv1(h)));  r = bn2(conv2(u));  h = relu(r + (h or bn_d(conv_d(h))))
 *     feature = mean of h over height and width
 */
#ifndef MODEL_RESNET_H
#define MODEL_RESNET_H

#include "nn/params.h"

enum {
    RESNET_MAX_STAGES = 4,
    RESNET_MAX_BLOCKS = 8,
    RESNET_MAX_MASKS = RESNET_MAX_STAGES * (1 + RESNET_MAX_BLOCKS),
    RESNET_MAX_LAYERS = 1 + 3 * RESNET_MAX_STAGES * RESNET_MAX_BLOCKS,
};

/* A layer is a convolution and its batch norm; resnet_declare adds these parameters for each, in this
 * order, layer after layer. */
enum { LAYER_WEIGHT, LAYER_GAMMA, LAYER_BETA, LAYER_MEAN, LAYER_VAR, PARAMS_PER_LAYER };

enum resnet_stem {
    RESNET_STEM_3X3,      /* 3x3 stride 1: CIFAR */
    RESNET_STEM_7X7_POOL, /* 7x7 stride 2, max-pool: ImageNet */
    RESNET_STEM_3X3_POOL, /* 3x3 stride 1, max-pool: ImageNet after PODNet */
};

struct resnet_spec {
    enum resnet_stem stem;
    int in_channels;
    int height, width; /* of the image */
    int n_stages;
    int n_blocks[RESNET_MAX_STAGES];
    int stream[RESNET_MAX_STAGES]; /* channels of the residual stream */
    int inner[RESNET_MAX_STAGES]
             [RESNET_MAX_BLOCKS]; /* channels between the convolutions of a block */
    bool zero_init_residual;      /* gamma of every second batch norm starts at 0 */
};

/* A named network. */
struct resnet_name {
    const char *name;
    const char *summary;
};

/* "resnet18-cifar", "resnet32", "resnet18", "resnet18-3x3"; ends with a NULL name. */
const struct resnet_name *resnet_names(void);

/* The unpruned network of that name; `width` scales every layer (1.0 is the published one, at least
 * one channel remains). Unknown names are DER_ARG and the message lists the known ones. */
NODISCARD enum der_status resnet_spec_init(struct der_ctx *ctx, struct resnet_spec *spec,
                                           const char *name, int in_channels, int height, int width,
                                           double width_factor);

/* Positive sizes, counts within the limits, an image that survives the strides. */
NODISCARD enum der_status resnet_spec_check(struct der_ctx *ctx, const struct resnet_spec *spec);

/* Length of the feature vector. */
int resnet_feature_dim(const struct resnet_spec *spec);

/* Learnt parameters: convolutions, gamma and beta. */
int64_t resnet_count_params(const struct resnet_spec *spec);

enum { RESNET_LAYER_NAME = 64 };

/* A convolution with its batch norm, and what it costs. */
struct resnet_layer {
    char name[RESNET_LAYER_NAME]; /* torchvision's name of the convolution */
    int in_channels, out_channels, kernel, stride;
    int height, width;     /* of its result */
    int64_t params;        /* learnt: weights, gamma and beta */
    int64_t multiply_adds; /* of the convolution, for one image */
};

/* The layers in the order of declaration; returns how many. */
int resnet_layers(const struct resnet_spec *spec, struct resnet_layer layers[RESNET_MAX_LAYERS]);

/* Multiplications of all convolutions for one image. */
int64_t resnet_count_multiply_adds(const struct resnet_spec *spec);

/* Declares all parameters in `set`, named like torchvision's. */
NODISCARD enum der_status resnet_declare(const struct resnet_spec *spec, struct param_set *set);

/* Masks: first the n_stages streams S_k, then the inner masks I_kb in order of the blocks. */
int resnet_mask_count(const struct resnet_spec *spec);
int resnet_mask_channels(const struct resnet_spec *spec, int mask);
/* The layers, in the order of declaration, as masks and the sparsity loss see them; returns how many. */
int resnet_sparsity_layers(const struct resnet_spec *spec, struct sparsity_layer *layers,
                           int capacity);

struct resnet_io {
    int image;        /* [n, in_channels, height, width] */
    const int *masks; /* [resnet_mask_count] values, or NULL: no masks */
    bool training;    /* batch statistics, or the running ones */
};

/* Appends the network to a graph; *feature is [n, feature_dim], from graph_avgpool. */
NODISCARD enum der_status resnet_build(const struct resnet_spec *spec, struct graph *g,
                                       const struct param_use *params, const struct resnet_io *io,
                                       int *feature);

#endif

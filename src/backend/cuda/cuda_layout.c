/*
 * Which arrays of rank 4 are images, and how many channels are stored of one.
 *
 * Images have their channels last inside a program; weights of convolutions, their gradients and all
 * else that an optimiser touches stay as the caller sees them. What meets one of those element by
 * element (the sum of two shares of a gradient) is of its kind.
 */
#include "backend/cuda/cuda.h"

bool cuda_is_conv(enum op op)
{
    return op == OP_CONV2D || op == OP_CONV2D_D_SRC || op == OP_CONV2D_D_WEIGHTS ||
           op == OP_CONV2D_AFFINE;
}

static void mark(bool *image, int value)
{
    if (value != NO_VALUE)
        image[value] = false;
}

/* Operands that are weights whatever else they meet. */
static void mark_weights(const struct node *node, bool *image)
{
    switch (node->op) {
    case OP_CONV2D:
        mark(image, node->in[CONV_WEIGHTS]);
        break;
    case OP_CONV2D_D_SRC:
        mark(image, node->in[CONV_D_SRC_WEIGHTS]);
        break;
    case OP_CONV2D_D_WEIGHTS:
        mark(image, node->out[0]);
        break;
    case OP_CONV2D_AFFINE:
        mark(image, node->in[AFFINE_WEIGHTS]);
        break;
    case OP_SGD:
        for (int k = 0; k < node->n_in; k++)
            mark(image, node->in[k]);
        break;
    default:
        break;
    }
}

/* Element-by-element ops have operands of one kind; true when that changed anything. */
static bool spread(const struct graph *g, const struct node *node, bool *image)
{
    bool weights = false;
    bool changed = false;
    if (node->op != OP_ADD && node->op != OP_RELU && node->op != OP_RELU_GRAD &&
        node->op != OP_SCALE && node->op != OP_SCALE_GRAD)
        return false;
    for (int k = 0; k < node->n_in + node->n_out; k++) {
        int value = k < node->n_in ? node->in[k] : node->out[k - node->n_in];
        weights |= value != NO_VALUE && g->values[value].shape.rank == 4 && !image[value];
    }
    for (int k = 0; weights && k < node->n_in + node->n_out; k++) {
        int value = k < node->n_in ? node->in[k] : node->out[k - node->n_in];
        changed |= value != NO_VALUE && image[value];
        mark(image, value);
    }
    return changed;
}

void cuda_layout_choose(const struct graph *g, bool *image)
{
    for (int v = 0; v < g->n_values; v++)
        image[v] = g->values[v].shape.rank == 4;
    for (int i = 0; i < g->n_nodes; i++)
        mark_weights(&g->nodes[i], image);
    for (bool changed = true; changed;) {
        changed = false;
        for (int i = 0; i < g->n_nodes; i++)
            changed |= spread(g, &g->nodes[i], image);
    }
}

/* ---- zeros ------------------------------------------------------------------------------------- */

static bool leaves_zeros(const struct graph *g, const struct node *node)
{
    if (node->op != OP_CONV2D_D_SRC)
        return false;
    const int64_t *weights = g->values[node->in[CONV_D_SRC_WEIGHTS]].shape.dim;
    const int64_t *size = g->values[node->out[0]].shape.dim;
    return weights[2] == 1 && weights[3] == 1 && node->attr.conv.stride == 2 &&
           node->attr.conv.pad == 0 && size[2] % 2 == 0 && size[3] > 1 &&
           cuda_is_power_of_two(size[3]);
}

/* Of so many operands, those that have memory of a value. */
static int n_uses(const struct graph *g, const int *ids, int n, int value)
{
    int count = 0;
    for (int k = 0; k < n; k++)
        count += ids[k] != NO_VALUE && graph_storage_of(g, ids[k]) == value;
    return count;
}

static bool has_zeros(const struct graph *g, int value)
{
    for (int i = 0; i < g->n_nodes; i++)
        if (n_uses(g, g->nodes[i].out, g->nodes[i].n_out, value) > 0 &&
            leaves_zeros(g, &g->nodes[i]))
            return true;
    return false;
}

static bool adds_to_another(const struct graph *g, const struct node *node, int value)
{
    if (node->op != OP_BATCHNORM_GRAD)
        return false;
    const int first = node->in[BNG_D_DST];
    const int second = node->in[BNG_D_DST2];
    const int other = first == value ? second : first;
    return (first == value || second == value) && other != NO_VALUE && other != value &&
           !has_zeros(g, other);
}

bool cuda_is_sparse(const struct graph *g, int value)
{
    int n_reads = 0;
    int n_writes = 0;
    bool is_added = false;
    if (g->values[value].kind != VALUE_TEMP || !has_zeros(g, value))
        return false;
    for (int i = 0; i < g->n_nodes; i++) {
        n_reads += n_uses(g, g->nodes[i].in, g->nodes[i].n_in, value);
        n_writes += n_uses(g, g->nodes[i].out, g->nodes[i].n_out, value);
        is_added |= adds_to_another(g, &g->nodes[i], value);
    }
    return n_reads == 1 && n_writes == 1 && is_added;
}

/* ---- channels ------------------------------------------------------------------------------------ */

static bool is_picture(const struct graph *g, const bool *image, int value)
{
    return value != NO_VALUE && image[value] && g->values[value].kind == VALUE_EXTERNAL;
}

bool cuda_pads_few(const struct graph *g, const bool *image)
{
    for (int i = 0; i < g->n_nodes; i++) {
        const struct node *node = &g->nodes[i];
        if (node->op == OP_CONV2D_AFFINE && is_picture(g, image, node_in(node, AFFINE_RESIDUAL)))
            return false;
        if (cuda_is_conv(node->op))
            continue;
        for (int k = 0; k < node->n_in + node->n_out; k++)
            if (is_picture(g, image, k < node->n_in ? node->in[k] : node->out[k - node->n_in]))
                return false;
    }
    return true;
}

int64_t cuda_padded(enum cuda_type type, bool is_thin, int64_t channels)
{
    int64_t unit = CUDA_CHANNELS;
    if (type == CUDA_BF16)
        unit = is_thin || channels <= 16 ? 16 : channels <= 32 ? 32 : 64;
    return (channels + unit - 1) / unit * unit;
}

/* Own kernels need fewer products than cuDNN with its padding, but longer for each. */
static bool is_worth_it(int64_t from, int64_t to)
{
    enum { OURS = 5, THEIRS = 3 };
    const int64_t ours = cuda_padded(CUDA_BF16, true, from) * cuda_padded(CUDA_BF16, true, to);
    const int64_t theirs = cuda_padded(CUDA_BF16, false, from) * cuda_padded(CUDA_BF16, false, to);
    return OURS * ours <= THEIRS * theirs;
}

/* What reads the caller's picture has a kernel of its own. */
static bool is_stem(const struct graph *g, const struct node *node)
{
    const struct value *src = &g->values[node->in[AFFINE_SRC]];
    return src->kind == VALUE_EXTERNAL && src->shape.dim[1] <= CUDA_CHANNELS;
}

bool cuda_is_thin(const struct graph *g, int value, int64_t most)
{
    const int64_t *size = g->values[value].shape.dim;
    for (int i = 0; i < g->n_nodes; i++) {
        const struct node *node = &g->nodes[i];
        if (node->op != OP_CONV2D_AFFINE || node->attr.conv.stride > 1)
            continue;
        const int64_t *from = g->values[node->in[AFFINE_SRC]].shape.dim;
        const int64_t *to = g->values[node->out[0]].shape.dim;
        const bool is_here = to[2] == size[2] && to[3] == size[3] && !is_stem(g, node);
        if (is_here && (from[1] > most || to[1] > most || !is_worth_it(from[1], to[1])))
            return false;
    }
    return size[1] <= most;
}

/* ---- strips and sheets ---------------------------------------------------------------------------- */

/* What the table in strip.cu has between 32 and 64, and sixteens where pictures are small enough for sheet.cu. */
static int64_t narrow_channels(int64_t size, int64_t channels)
{
    enum { SMALL = 16, THREE_SIXTEENS = 48 };
    if (size <= SMALL)
        return cuda_padded(CUDA_BF16, true, channels);
    const int64_t whole = cuda_padded(CUDA_BF16, false, channels);
    return whole == 64 && channels <= THREE_SIXTEENS ? THREE_SIXTEENS : whole;
}

int64_t cuda_narrow_channels(const struct shape *image)
{
    return narrow_channels(image->dim[2], image->dim[1]);
}

/* What is larger is stored by the same rule. */
static int64_t source_channels(const struct graph *g, const struct node *node)
{
    const int source = node->in[AFFINE_SRC];
    const int64_t *from = g->values[source].shape.dim;
    const int64_t *to = g->values[node->out[0]].shape.dim;
    const bool is_narrow = from[2] == to[2] || (from[2] > to[2] && cuda_is_narrow(g, source));
    return is_narrow ? narrow_channels(from[2], from[1]) : cuda_padded(CUDA_BF16, false, from[1]);
}

static struct cuda_conv_shape narrow_shape(const struct graph *g, const struct node *node)
{
    const int64_t *from = g->values[node->in[AFFINE_SRC]].shape.dim;
    const int64_t *weights = g->values[node->in[AFFINE_WEIGHTS]].shape.dim;
    const int64_t *to = g->values[node->out[0]].shape.dim;
    return (struct cuda_conv_shape){.n = to[0],
                                    .c = source_channels(g, node),
                                    .h = from[2],
                                    .w = from[3],
                                    .k = narrow_channels(to[2], to[1]),
                                    .r = weights[2],
                                    .s = weights[3],
                                    .out_h = to[2],
                                    .out_w = to[3],
                                    .stride = node->attr.conv.stride,
                                    .pad = node->attr.conv.pad,
                                    .type = CUDA_BF16};
}

static bool is_served(const struct cuda_conv_shape *s)
{
    return cuda_strip_serves(s, DNN_FORWARD) || cuda_sheet_serves(s, DNN_FORWARD);
}

/* Others may do it: thin.cu with sixteens, or whoever does what has no padding to lose. */
static bool is_indifferent(const struct cuda_conv_shape *s)
{
    return cuda_sheet_leaves_to_thin(s) || (s->c == cuda_padded(CUDA_BF16, false, s->c) &&
                                            s->k == cuda_padded(CUDA_BF16, false, s->k));
}

bool cuda_is_narrow(const struct graph *g, int value)
{
    const int64_t *size = g->values[value].shape.dim;
    bool is_any_served = false;
    for (int i = 0; i < g->n_nodes; i++) {
        const struct node *node = &g->nodes[i];
        if (node->op != OP_CONV2D_AFFINE)
            continue;
        const int64_t *to = g->values[node->out[0]].shape.dim;
        if (to[2] != size[2] || to[3] != size[3] || is_stem(g, node))
            continue;
        const struct cuda_conv_shape shape = narrow_shape(g, node);
        if (!is_served(&shape) && !is_indifferent(&shape))
            return false;
        is_any_served |= is_served(&shape);
    }
    return is_any_served;
}

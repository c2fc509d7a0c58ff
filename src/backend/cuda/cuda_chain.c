/*
 * Folded networks of thin layers as one launch (kernels/chain.cu): which programs can be run so, where images and weights
 * lie in shared memory, and how warps share a layer. All of it follows from shapes alone.
 *
 * Such a program is a convolution of the caller's picture, which has its own launch, then convolutions of what
 * has come of it, one after the other, and the mean over the pixels of the last. That last step launches all that lies
 * between; the steps between have nothing left to do, and their results no memory.
 */
#include "backend/cuda/cuda.h"

#include "graph/memplan.h"

enum {
    UNIT = 16, /* channels, and pixels */
    WARPS = 8,
    RESERVED = 1 << 10, /* bytes that every block takes besides */
    FIRST = 1           /* node of the first layer of a chain */
};

/* ---- which ---------------------------------------------------------------------------------------------- */

static int whole(int64_t channels)
{
    return (int)cuda_padded(CUDA_BF16, true, channels);
}

static bool is_inside(const struct graph *g, int value)
{
    return value != NO_VALUE && g->values[value].kind == VALUE_TEMP;
}

/* A convolution of what lies inside, whose weights come from outside. */
static bool is_link(const struct graph *g, const struct node *node)
{
    if (node->op != OP_CONV2D_AFFINE || !is_inside(g, node->in[AFFINE_SRC]) ||
        !is_inside(g, node->out[0]))
        return false;
    for (int k = 0; k < DERIVED_SOURCES; k++)
        if (g->values[node->in[AFFINE_WEIGHTS + k]].kind != VALUE_EXTERNAL)
            return false;
    const int residual = node_in(node, AFFINE_RESIDUAL);
    return residual == NO_VALUE || is_inside(g, residual);
}

/* Whether the kernel can do it, as far as sizes go. */
static bool fits(const struct graph *g, const struct node *node)
{
    enum { MOST_CHANNELS = 256 };
    const int64_t *from = g->values[node->in[AFFINE_SRC]].shape.dim;
    const int64_t *to = g->values[node->out[0]].shape.dim;
    const int64_t *weights = g->values[node->in[AFFINE_WEIGHTS]].shape.dim;
    const struct conv_attr *attr = &node->attr.conv;
    const bool is_kernel = weights[2] == weights[3] && (weights[2] == 1 || weights[2] == 3) &&
                           attr->pad == weights[2] / 2;
    return is_kernel && (attr->stride == 1 || attr->stride == 2) &&
           from[2] == to[2] * attr->stride && from[3] == to[3] * attr->stride &&
           cuda_is_power_of_two(to[2]) && cuda_is_power_of_two(to[3]) &&
           to[2] * to[3] % UNIT == 0 && from[1] <= MOST_CHANNELS && to[1] <= MOST_CHANNELS;
}

static bool is_chain(const struct graph *g)
{
    const int last = g->n_nodes - 1;
    if (last <= FIRST || last - FIRST > CUDA_CHAIN_MOST)
        return false;
    const struct node *pool = &g->nodes[last];
    if (g->nodes[0].op != OP_CONV2D_AFFINE || is_inside(g, g->nodes[0].in[AFFINE_SRC]) ||
        node_in(&g->nodes[0], AFFINE_RESIDUAL) != NO_VALUE || !is_inside(g, g->nodes[0].out[0]) ||
        pool->op != OP_AVGPOOL || pool->in[0] != g->nodes[last - 1].out[0])
        return false;
    for (int i = FIRST; i < last; i++)
        if (!is_link(g, &g->nodes[i]) || !fits(g, &g->nodes[i]))
            return false;
    return true;
}

/* ---- how warps share a layer ------------------------------------------------------------------------------- */

/* In cycles of a multiprocessor, roughly: what fragments are read in, and what they are multiplied in, for a step of
 * the products of one item; and the turns that it takes until all warps have had their items. */
static int64_t cost_of(int64_t units, int64_t parts, int rows, int columns)
{
    enum { READ = 4, MULTIPLIED = 3, BETWEEN = 4 };
    const int64_t items = units / rows * (parts / columns);
    const int64_t turns = (items + WARPS - 1) / WARPS;
    const int read = READ * (rows + columns);
    const int multiplied = MULTIPLIED * rows * columns;
    return turns * ((read > multiplied ? read : multiplied) + BETWEEN);
}

static void share(struct cuda_chain_layer *l)
{
    static const struct {
        int rows, columns;
    } ways[] = {{1, 1}, {2, 1}, {4, 1}, {1, 2}, {2, 2}};
    const int64_t units = ((int64_t)1 << (l->log_w + l->log_h)) / UNIT;
    const int64_t parts = l->k / UNIT;
    int64_t best = INT64_MAX;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        if (units % ways[i].rows != 0 || parts % ways[i].columns != 0)
            continue;
        const int64_t cost = cost_of(units, parts, ways[i].rows, ways[i].columns);
        if (cost >= best)
            continue;
        best = cost;
        l->rows = (int8_t)ways[i].rows;
        l->columns = (int8_t)ways[i].columns;
    }
}

static struct cuda_chain_layer layer_of(const struct graph *g, const struct node *node)
{
    const int64_t *from = g->values[node->in[AFFINE_SRC]].shape.dim;
    const int64_t *to = g->values[node->out[0]].shape.dim;
    const int64_t *weights = g->values[node->in[AFFINE_WEIGHTS]].shape.dim;
    struct cuda_chain_layer l = {.c = (int16_t)whole(from[1]),
                                 .k = (int16_t)whole(to[1]),
                                 .log_w = (int8_t)cuda_log2(to[3]),
                                 .log_h = (int8_t)cuda_log2(to[2]),
                                 .stride = (int8_t)node->attr.conv.stride,
                                 .taps = (int8_t)(weights[2] * weights[3]),
                                 .relu = node->attr.conv.relu};
    share(&l);
    return l;
}

/* ---- shared memory ----------------------------------------------------------------------------------------- */

/* What lies in it, and from which node to which: images from the one that makes them to the last that reads them, weights
 * while their layer is computed and, if they come early, the one before. */
struct places {
    const struct graph *g;
    struct memplan_item items[2 * CUDA_CHAIN_MOST + 2]; /* image and weights by node, then zeros */
    int image[CUDA_CHAIN_MOST + 1];                     /* [node] the item of its result */
};

static int producer(const struct graph *g, int value)
{
    int i = 0;
    while (g->nodes[i].out[0] != value)
        i++;
    return i;
}

/* Or the node itself, if nothing reads what it makes. */
static int last_reader(const struct graph *g, int value)
{
    int last = producer(g, value);
    for (int i = last + 1; i < g->n_nodes; i++)
        for (int k = 0; k < g->nodes[i].n_in; k++)
            if (g->nodes[i].in[k] == value)
                last = i;
    return last;
}

/* A result may lie where its residual was, if that is needed no longer: the thread that reads a number writes it. */
static int inherited(const struct places *at, int node)
{
    const struct graph *g = at->g;
    const int residual = node_in(&g->nodes[node], AFFINE_RESIDUAL);
    if (node < FIRST || residual == NO_VALUE || residual == g->nodes[node].in[AFFINE_SRC] ||
        last_reader(g, residual) != node)
        return -1;
    return at->image[producer(g, residual)];
}

static enum der_status place(struct places *at, const struct cuda_chain *chain, size_t *total)
{
    const struct graph *g = at->g;
    const int end = g->n_nodes - 1; /* of the layers */
    for (int i = 0; i < end; i++) {
        const struct shape *shape = &g->values[g->nodes[i].out[0]].shape;
        const int last = last_reader(g, g->nodes[i].out[0]);
        const int taken = inherited(at, i);
        at->image[i] = taken < 0 ? i : taken;
        at->items[i] = (struct memplan_item){.first = i, .last = last};
        if (taken < 0)
            at->items[i].bytes = cuda_chain_image(shape_spatial(*shape), whole(shape->dim[1]));
        else
            at->items[taken].last = last;
    }
    for (int i = FIRST; i < end; i++) {
        const struct cuda_chain_layer *l = &chain->layers[i - FIRST];
        at->items[end + i] = (struct memplan_item){.bytes = cuda_chain_weights(l->k, l->taps, l->c),
                                                   .first = l->is_early ? i - 1 : i,
                                                   .last = i};
    }
    at->items[end] = (struct memplan_item){.bytes = cuda_chain_zeros(), .last = end};
    return memplan(g->ctx, at->items, 2 * end, total);
}

static size_t bytes_during(const struct places *at, int node)
{
    size_t bytes = 0;
    for (int i = 0; i < 2 * (at->g->n_nodes - 1); i++)
        if (at->items[i].first <= node && node <= at->items[i].last)
            bytes += at->items[i].bytes;
    return bytes;
}

/* Weights that come early when there is the least room no longer do; false: none did. */
static bool delay(const struct places *at, struct cuda_chain *chain)
{
    struct cuda_chain_layer *fullest = NULL;
    size_t most = 0;
    for (int i = 0; i < chain->n; i++) {
        const size_t bytes = bytes_during(at, FIRST + i - 1);
        if (!chain->layers[i].is_early || bytes <= most)
            continue;
        most = bytes;
        fullest = &chain->layers[i];
    }
    if (fullest)
        fullest->is_early = false;
    return fullest;
}

static void write_places(const struct places *at, struct cuda_chain *chain)
{
    const struct graph *g = at->g;
    const int end = g->n_nodes - 1;
    chain->zeros_at = (int)at->items[end].offset;
    for (int i = FIRST; i < end; i++) {
        struct cuda_chain_layer *l = &chain->layers[i - FIRST];
        const int *in = g->nodes[i].in;
        const int residual = node_in(&g->nodes[i], AFFINE_RESIDUAL);
        l->src_at = (int)at->items[at->image[producer(g, in[AFFINE_SRC])]].offset;
        l->dst_at = (int)at->items[at->image[i]].offset;
        l->weights_at = (int)at->items[end + i].offset;
        l->residual_at =
            residual == NO_VALUE ? -1 : (int)at->items[at->image[producer(g, residual)]].offset;
    }
}

/* Into `most` bytes. A chain that has to wait for the weights of several layers is no faster than these one by one
 * (docs/KERNELS.md). */
static enum der_status place_all(const struct graph *g, struct cuda_chain *chain, size_t most,
                                 bool *is_worth_it)
{
    enum { MOST_LATE = 1 };
    struct places at = {.g = g};
    int n_late = 0;
    for (int i = 1; i < chain->n; i++)
        chain->layers[i].is_early = true;
    TRY(place(&at, chain, &chain->shared));
    while (chain->shared > most && n_late < MOST_LATE && delay(&at, chain)) {
        n_late++;
        TRY(place(&at, chain, &chain->shared));
    }
    *is_worth_it = chain->shared <= most;
    if (*is_worth_it)
        write_places(&at, chain);
    return DER_OK;
}

/* ---- programs ------------------------------------------------------------------------------------------------ */

enum der_status cuda_chain_make(const struct graph *g, size_t shared, struct cuda_chain *chain,
                                bool *is_worth_it)
{
    *chain = (struct cuda_chain){0};
    *is_worth_it = false;
    if (!is_chain(g))
        return DER_OK;
    chain->n = g->n_nodes - 1 - FIRST;
    chain->pixels = (int)shape_spatial(g->values[g->nodes[0].out[0]].shape);
    for (int i = 0; i < chain->n; i++)
        chain->layers[i] = layer_of(g, &g->nodes[FIRST + i]);
    return place_all(g, chain, (shared - RESERVED) / 2,
                     is_worth_it); /* two blocks to a multiprocessor */
}

enum der_status cuda_chain_plan(struct cuda_program *p, const struct graph *g)
{
    struct cuda_chain chain;
    bool is_worth_it = false;
    if (!p->folded || p->type != CUDA_BF16 || !cuda_of(p)->chains)
        return DER_OK;
    TRY(cuda_chain_make(g, cuda_of(p)->shared, &chain, &is_worth_it));
    if (!is_worth_it)
        return DER_OK;
    p->chain = arena_zalloc(&p->arena, 1, sizeof *p->chain);
    if (!p->chain)
        return ctx_nomem(p->base.be->ctx);
    *p->chain = chain;
    return DER_OK;
}

bool cuda_chain_has(const struct cuda_program *p, int i)
{
    return p->chain && i >= FIRST && i < FIRST + p->chain->n;
}

static enum der_status run_nothing(struct cuda_program *p, const struct cuda_step *step,
                                   cudaStream_t stream)
{
    (void)p;
    (void)step;
    (void)stream;
    return DER_OK;
}

static enum der_status run_chain(struct cuda_program *p, const struct cuda_step *step,
                                 cudaStream_t stream)
{
    struct cuda_chain chain = *p->chain;
    const struct cuda_value *src = step_out(p, &p->steps[0], 0);
    chain.src = src->data;
    chain.features = value_rows(p, step_out(p, step, 0));
    for (int i = 0; i < chain.n; i++) {
        const struct cuda_weights row = cuda_derived_row(p, p->steps[FIRST + i].conv->derived);
        chain.layers[i].weights = row.dst;
        chain.layers[i].bias = row.bias;
    }
    return cuda_check(p->base.be->ctx, cuda_chain(&chain, src->slot.shape.dim[0], stream),
                      "the layers of a thin network");
}

void cuda_chain_finish(struct cuda_program *p)
{
    const int last = p->n_steps - 1;
    if (!p->chain)
        return;
    for (int i = FIRST; i < last; i++) {
        p->steps[i].run = run_nothing;
        p->steps[i].last_step = last; /* what the first of them reads is read there */
    }
    p->steps[last].run = run_chain;
}

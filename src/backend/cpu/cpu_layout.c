/*
 * Which layout each image has.
 *
 * Images that meet in an element-by-element op must share a layout, so they form classes; a class
 * takes the layout that the first convolution touching it is fastest in. In a residual network
 * all convolutions ask for the same blocks, and nothing is ever reordered. What the caller sees is
 * plain, and makes its class plain.
 */
#include "backend/cpu/cpu.h"

struct classes {
    const struct graph *g;
    int *parent;   /* [n_values] */
    int64_t *vote; /* [n_values] at the root: block, 0 while nobody asked */
};

static int root_of(struct classes *classes, int value)
{
    while (classes->parent[value] != value) {
        classes->parent[value] = classes->parent[classes->parent[value]];
        value = classes->parent[value];
    }
    return value;
}

/* Joins the classes of all images among some operands; `with` is one of them, or NO_VALUE. */
static int link_images(struct classes *classes, const int *operands, int n, int with)
{
    for (int k = 0; k < n; k++) {
        int value = operands[k];
        if (value == NO_VALUE || classes->g->values[value].shape.rank != 4)
            continue;
        if (with != NO_VALUE)
            classes->parent[root_of(classes, value)] = root_of(classes, with);
        with = value;
    }
    return with;
}

static void link_node(struct classes *classes, const struct node *node)
{
    switch (node->op) {
    case OP_CONV2D:
    case OP_CONV2D_D_SRC:
    case OP_CONV2D_D_WEIGHTS:
    case OP_SGD: /* parameters are no images */
        return;
    case OP_CONV2D_AFFINE: {
        const int images[] = {node->in[AFFINE_RESIDUAL], node->out[0]};
        link_images(classes, images, 2, NO_VALUE);
        return;
    }
    default:
        link_images(classes, node->out, node->n_out,
                    link_images(classes, node->in, node->n_in, NO_VALUE));
    }
}

static void vote(struct classes *classes, int value, int64_t block)
{
    int root = root_of(classes, value);
    if (classes->vote[root] == 0)
        classes->vote[root] = block;
}

static enum der_status vote_of_convolution(struct classes *classes, struct cpu_backend *be,
                                           const struct node *node)
{
    if (!cpu_is_conv(node->op))
        return DER_OK;
    struct conv_operands at = cpu_conv_operands(node);
    const struct value *values = classes->g->values;
    struct conv_geometry geometry = cpu_conv_geometry(
        values[at.src].shape, values[at.weights].shape, values[at.dst].shape, &node->attr.conv);
    int64_t src_block = 1;
    int64_t dst_block = 1;
    TRY(cpu_conv_prefers(be, cpu_conv_pass(node->op), &geometry, &src_block, &dst_block));
    vote(classes, at.src, src_block);
    vote(classes, at.dst, dst_block);
    return DER_OK;
}

enum der_status cpu_layout_choose(struct cpu_backend *be, const struct graph *g, int64_t *block)
{
    struct mem *mem = &be->base.ctx->mem;
    struct classes classes = {.g = g};
    enum der_status status = DER_OK;
    classes.parent = mem_alloc(mem, (size_t)g->n_values, sizeof *classes.parent);
    classes.vote = mem_zalloc(mem, (size_t)g->n_values, sizeof *classes.vote);
    if (!classes.parent || !classes.vote) {
        status = ctx_nomem(be->base.ctx);
        goto done;
    }
    for (int v = 0; v < g->n_values; v++)
        classes.parent[v] = v;
    for (int i = 0; i < g->n_nodes; i++)
        link_node(&classes, &g->nodes[i]);
    for (int v = 0; v < g->n_values; v++)
        if (g->values[v].kind != VALUE_TEMP)
            vote(&classes, v, 1);
    for (int i = 0; i < g->n_nodes && status == DER_OK; i++)
        status = vote_of_convolution(&classes, be, &g->nodes[i]);
    for (int v = 0; v < g->n_values; v++) {
        int64_t chosen = classes.vote[root_of(&classes, v)];
        block[v] = chosen > 0 && g->values[v].shape.rank == 4 ? chosen : 1;
    }

done:
    mem_free(mem, classes.parent);
    mem_free(mem, classes.vote);
    return status;
}

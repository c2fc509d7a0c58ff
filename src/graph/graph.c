#include "graph/graph.h"

#include <assert.h>
#include <string.h>

enum { FIRST_CAPACITY = 64 };

enum der_status graph_new(struct der_ctx *ctx, struct graph **out)
{
    *out = NULL;
    struct graph *g = mem_zalloc(&ctx->mem, 1, sizeof *g);
    if (!g)
        return ctx_nomem(ctx);
    g->ctx = ctx;
    arena_init(&g->arena, &ctx->mem);
    *out = g;
    return DER_OK;
}

void graph_free(struct graph *g)
{
    if (!g)
        return;
    struct mem *mem = &g->ctx->mem;
    mem_free(mem, g->values);
    mem_free(mem, g->nodes);
    arena_fini(&g->arena);
    mem_free(mem, g);
}

/* Makes room for one more element; false when memory is short. */
static bool grow(struct mem *mem, void **array, int count, int *capacity, size_t size)
{
    if (count < *capacity)
        return true;
    int wanted = *capacity ? 2 * *capacity : FIRST_CAPACITY;
    void *larger = mem_realloc(mem, *array, (size_t)wanted, size);
    if (!larger)
        return false;
    *array = larger;
    *capacity = wanted;
    return true;
}

enum der_status graph_add_value(struct graph *g, const char *name, enum dtype dtype,
                                struct shape shape, enum value_kind kind, int *out)
{
    *out = NO_VALUE;
    if (!shape_is_valid(shape)) {
        char text[SHAPE_TEXT_MAX];
        return ctx_fail(g->ctx, DER_SHAPE, "'%s': shape %s is not usable", name,
                        shape_text(shape, text));
    }
    char *copy = arena_strdup(&g->arena, name);
    if (!copy || !grow(&g->ctx->mem, (void **)&g->values, g->n_values, &g->value_capacity,
                       sizeof *g->values))
        return ctx_nomem(g->ctx);
    g->values[g->n_values] = (struct value){
        .name = copy,
        .shape = shape,
        .dtype = dtype,
        .kind = kind,
        .producer = -1,
        .grad = NO_VALUE,
        .alias_of = NO_VALUE,
    };
    *out = g->n_values++;
    return DER_OK;
}

static int *copy_ids(struct arena *arena, const int *ids, int n)
{
    int *copy = arena_zalloc(arena, (size_t)n, sizeof *copy);
    if (copy && n > 0)
        memcpy(copy, ids, (size_t)n * sizeof *copy);
    return copy;
}

bool node_copy(struct arena *arena, const struct node *from, struct node *to)
{
    *to = *from;
    to->in = copy_ids(arena, from->in, from->n_in);
    to->out = copy_ids(arena, from->out, from->n_out);
    if (!to->in || !to->out)
        return false;
    if (from->op != OP_MASK_SPARSITY)
        return true;
    size_t n = (size_t)from->attr.sparsity.n_layers;
    struct sparsity_layer *layers = arena_zalloc(arena, n, sizeof *layers);
    if (!layers)
        return false;
    if (n > 0)
        memcpy(layers, from->attr.sparsity.layers, n * sizeof *layers);
    to->attr.sparsity.layers = layers;
    if (!from->attr.sparsity.least)
        return true;
    to->attr.sparsity.least = copy_ids(arena, from->attr.sparsity.least, from->n_in - 1);
    return to->attr.sparsity.least;
}

enum der_status graph_add_node(struct graph *g, enum op op, const int *in, int n_in, const int *out,
                               int n_out, const union op_attr *attr)
{
    struct node node = {.op = op, .n_in = n_in, .n_out = n_out};
    if (attr)
        node.attr = *attr;
    node.in = copy_ids(&g->arena, in, n_in);
    node.out = copy_ids(&g->arena, out, n_out);
    if (!node.in || !node.out ||
        !grow(&g->ctx->mem, (void **)&g->nodes, g->n_nodes, &g->node_capacity, sizeof *g->nodes))
        return ctx_nomem(g->ctx);
    for (int i = 0; i < n_out; i++)
        if (out[i] != NO_VALUE)
            g->values[out[i]].producer = g->n_nodes;
    g->nodes[g->n_nodes++] = node;
    return DER_OK;
}

enum der_status graph_input(struct graph *g, const char *name, enum dtype dtype, struct shape shape,
                            int *out)
{
    return graph_add_value(g, name, dtype, shape, VALUE_EXTERNAL, out);
}

enum der_status graph_param(struct graph *g, const char *name, struct shape shape, bool trainable,
                            int *out)
{
    TRY(graph_add_value(g, name, DTYPE_F32, shape, VALUE_EXTERNAL, out));
    g->values[*out].trainable = trainable;
    return DER_OK;
}

enum der_status graph_expose(struct graph *g, int value)
{
    assert(value >= 0 && value < g->n_values);
    struct value *v = &g->values[value];
    if (v->kind != VALUE_TEMP || v->producer < 0)
        return ctx_fail(g->ctx, DER_ARG, "'%s' is not the result of an op and cannot be exposed",
                        v->name);
    v->kind = VALUE_EXTERNAL;
    return DER_OK;
}

int graph_storage_of(const struct graph *g, int value)
{
    while (g->values[value].kind == VALUE_ALIAS)
        value = g->values[value].alias_of;
    return value;
}

int64_t graph_column_of(const struct graph *g, int value)
{
    int64_t column = 0;
    for (; g->values[value].kind == VALUE_ALIAS; value = g->values[value].alias_of)
        column += g->values[value].alias_col;
    return column;
}

bool node_overwrites_input(const struct node *node, int position)
{
    switch (node->op) {
    case OP_BATCHNORM:
        return node->attr.norm.training &&
               (position == BN_RUNNING_MEAN || position == BN_RUNNING_VAR);
    case OP_JOIN:
        return position == 1;
    case OP_SGD: /* lr, then p g v, p g v, ... */
        return position > 0 && (position - 1) % 3 != 1;
    case OP_TALLY: /* clock, then src table, src table, ... */
        return position % 2 == 0;
    default:
        return false;
    }
}

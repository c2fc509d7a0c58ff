/*
 * Compiling: values get layouts, nodes become steps, temporaries and scratch get memory.
 */
#include "backend/cpu/cpu.h"

#include "graph/memplan.h"

#include <assert.h>

/* ---- copies of what the graph says -------------------------------------------------------------- */

static enum der_status copy_values(struct cpu_program *p, const struct graph *g,
                                   const int64_t *block)
{
    p->n_values = g->n_values;
    p->values = arena_zalloc(&p->arena, (size_t)g->n_values, sizeof *p->values);
    if (!p->values)
        return ctx_nomem(p->base.be->ctx);
    for (int v = 0; v < g->n_values; v++) {
        const struct value *from = &g->values[v];
        struct cpu_value *to = &p->values[v];
        TRY(slot_init(p->base.be->ctx, &p->arena, from, &to->slot));
        to->kind = from->kind;
        to->block = block[v];
        to->owner = graph_storage_of(g, v);
        to->col = graph_column_of(g, v);
    }
    return DER_OK;
}

static void mark_written(struct cpu_program *p, const struct node *node)
{
    for (int k = 0; k < node->n_out; k++)
        if (node->out[k] != NO_VALUE)
            p->values[p->values[node->out[k]].owner].slot.written = true;
    for (int k = 0; k < node->n_in; k++)
        if (node->in[k] != NO_VALUE && node_overwrites_input(node, k))
            p->values[p->values[node->in[k]].owner].slot.written = true;
}

/* Step i belongs to node i, so that liveness by node holds for steps. */
static enum der_status make_steps(struct cpu_program *p, const struct graph *g)
{
    p->steps = arena_zalloc(&p->arena, (size_t)g->n_nodes, sizeof *p->steps);
    p->derived = arena_zalloc(&p->arena, (size_t)g->n_nodes, sizeof *p->derived);
    if (!p->steps || !p->derived)
        return ctx_nomem(p->base.be->ctx);
    for (int i = 0; i < g->n_nodes; i++) {
        struct cpu_step *step = &p->steps[i];
        p->n_steps = i + 1;
        if (!node_copy(&p->arena, &g->nodes[i], &step->node))
            return ctx_nomem(p->base.be->ctx);
        mark_written(p, &step->node);
        if (cpu_is_conv(step->node.op))
            TRY(cpu_conv_init(p, step));
        else
            TRY(cpu_step_init(p, step));
    }
    return DER_OK;
}

/* What oneDNN made for a step but for its derived weights, which steps may share. */
static int count_primitives(const struct cpu_step *step)
{
    const struct cpu_conv *conv = step->conv;
    if (!conv)
        return 0;
    return (conv->primitive != NULL) + (conv->src_reorder != NULL) + (conv->dst_reorder != NULL) +
           (conv->residual_reorder != NULL) + (conv->weights_reorder != NULL);
}

/* Matrix products are oneDNN's without a primitive. */
static bool is_product(enum op op)
{
    return op == OP_LINEAR || op == OP_LINEAR_D_SRC || op == OP_LINEAR_D_WEIGHTS;
}

static void note_kernels(struct cpu_program *p)
{
    int *n_primitives = &p->base.stats.n_primitives;
    bool products = false;
    for (int i = 0; i < p->n_steps; i++) {
        *n_primitives += count_primitives(&p->steps[i]);
        products = products || is_product(p->steps[i].node.op);
    }
    for (int i = 0; i < p->n_derived; i++)
        *n_primitives += p->derived[i].reorder != NULL;
    p->own = !products && *n_primitives == 0;
}

/* ---- memory ------------------------------------------------------------------------------------- */

struct planner {
    struct cpu_program *p;
    const struct graph *g;
    int *first, *last;          /* [n_values] nodes */
    int *item_of;               /* [n_values] index into items, -1: no memory of its own */
    struct memplan_item *items; /* [n_values + n_steps] */
    int n_items;
};

static size_t value_bytes(const struct cpu_value *value)
{
    return (size_t)value_floats(value) * dtype_bytes(value->slot.dtype);
}

/* A convolution writes its result while it still reads src, so that src and the residual it may
 * overwrite have to be different images. */
static bool reads_elsewhere(const struct node *node, int position)
{
    return node->op == OP_CONV2D_AFFINE && node->in[AFFINE_SRC] == node->in[position];
}

/* The item that `value`, written by node i as output k, may take over; -1: none. */
static int inherited_item(const struct planner *plan, int i, int k)
{
    const struct node *node = &plan->g->nodes[i];
    int position = node_inplace_input(node, k);
    int source = position < 0 ? NO_VALUE : node_in(node, position);
    if (source == NO_VALUE || plan->p->values[source].kind != VALUE_TEMP ||
        reads_elsewhere(node, position))
        return -1;
    const struct cpu_value *from = &plan->p->values[source];
    const struct cpu_value *to = &plan->p->values[node->out[k]];
    int item = plan->item_of[source];
    if (item < 0 || plan->items[item].last != i || from->block != to->block ||
        value_bytes(from) != value_bytes(to))
        return -1;
    return item;
}

static void plan_outputs(struct planner *plan, int i)
{
    const struct node *node = &plan->g->nodes[i];
    for (int k = 0; k < node->n_out; k++) {
        int value = node->out[k];
        if (value == NO_VALUE || plan->p->values[value].kind != VALUE_TEMP ||
            plan->item_of[value] >= 0)
            continue;
        int item = inherited_item(plan, i, k);
        if (item < 0) {
            item = plan->n_items++;
            plan->items[item].bytes = value_bytes(&plan->p->values[value]);
            plan->items[item].first = plan->first[value];
        }
        plan->items[item].last = plan->last[value];
        plan->item_of[value] = item;
    }
}

static enum der_status plan_items(struct planner *plan)
{
    struct cpu_program *p = plan->p;
    graph_liveness(plan->g, plan->first, plan->last);
    for (int v = 0; v < p->n_values; v++)
        plan->item_of[v] = -1;
    for (int i = 0; i < p->n_steps; i++)
        plan_outputs(plan, i);
    int n_values_items = plan->n_items;
    for (int i = 0; i < p->n_steps; i++)
        plan->items[plan->n_items++] =
            (struct memplan_item){.bytes = p->steps[i].scratch_bytes, .first = i, .last = i};

    TRY(memplan(p->base.be->ctx, plan->items, plan->n_items, &p->base.stats.temp_bytes));
    for (int v = 0; v < p->n_values; v++)
        if (plan->item_of[v] >= 0)
            p->values[v].offset = plan->items[plan->item_of[v]].offset;
    for (int i = 0; i < p->n_steps; i++)
        p->steps[i].scratch = plan->items[n_values_items + i].offset;
    return DER_OK;
}

static enum der_status plan_memory(struct cpu_program *p, const struct graph *g)
{
    struct der_ctx *ctx = p->base.be->ctx;
    size_t n_values = (size_t)p->n_values;
    struct planner plan = {.p = p, .g = g};
    enum der_status status;
    int *numbers = mem_alloc(&ctx->mem, 3 * n_values, sizeof *numbers);
    plan.items = mem_zalloc(&ctx->mem, n_values + (size_t)p->n_steps, sizeof *plan.items);
    if (!numbers || !plan.items) {
        status = ctx_nomem(ctx);
        goto done;
    }
    plan.first = numbers;
    plan.last = numbers + n_values;
    plan.item_of = numbers + 2 * n_values;
    status = plan_items(&plan);
    if (status != DER_OK)
        goto done;
    p->base.stats.derived_bytes = p->derived_bytes;
    p->block = mem_alloc(&ctx->mem, p->base.stats.temp_bytes, 1);
    p->derived_block = mem_alloc(&ctx->mem, p->derived_bytes, 1);
    if (!p->block || !p->derived_block)
        status = ctx_nomem(ctx);

done:
    mem_free(&ctx->mem, numbers);
    mem_free(&ctx->mem, plan.items);
    return status;
}

/* ---- programs ------------------------------------------------------------------------------------ */

static enum der_status build(struct cpu_program *p, const struct graph *g, int64_t *block)
{
    TRY(shim_check_room(cpu_backend_of(p)->shim));
    TRY(cpu_layout_choose(cpu_backend_of(p), g, block));
    TRY(copy_values(p, g, block));
    TRY(make_steps(p, g));
    note_kernels(p);
    TRY(plan_memory(p, g));
    /* Once more, since products make their kernels when they first run, which must not fail. */
    return shim_check_room(cpu_backend_of(p)->shim);
}

enum der_status cpu_compile(struct backend *be, const struct graph *g, struct program **out)
{
    *out = NULL;
    struct mem *mem = &be->ctx->mem;
    struct cpu_program *p = mem_zalloc(mem, 1, sizeof *p);
    if (!p)
        return ctx_nomem(be->ctx);
    p->base.be = be;
    p->threads = be->ctx->threads;
    arena_init(&p->arena, mem);

    int64_t *block = mem_alloc(mem, (size_t)g->n_values, sizeof *block);
    int saved = cpu_threads_enter(p->threads);
    enum der_status status = block ? build(p, g, block) : ctx_nomem(be->ctx);
    cpu_threads_leave(saved);
    mem_free(mem, block);
    if (status != DER_OK) {
        cpu_program_free(be, &p->base);
        return status;
    }
    *out = &p->base;
    return DER_OK;
}

void cpu_program_free(struct backend *be, struct program *program)
{
    struct cpu_program *p = (struct cpu_program *)program;
    if (!p)
        return;
    for (int i = 0; i < p->n_steps; i++)
        cpu_conv_free(p, p->steps[i].conv);
    for (int i = 0; i < p->n_derived; i++)
        shim_reorder_free(p->derived[i].reorder);
    mem_free(&be->ctx->mem, p->block);
    mem_free(&be->ctx->mem, p->derived_block);
    arena_fini(&p->arena);
    mem_free(&be->ctx->mem, p);
}

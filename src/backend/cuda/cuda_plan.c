/*
 * Compiling: values get layouts, nodes become steps, and everything gets its place in one block of
 * device memory.
 */
#include "backend/cuda/cuda.h"

#include "graph/memplan.h"

/* ---- copies of what the graph says -------------------------------------------------------------- */

/* Folded networks are small, and run by own kernels where that wins. */
static int64_t stored_channels(const struct cuda_program *p, const struct graph *g, int value)
{
    const struct cuda_backend *cuda = cuda_of(p);
    const bool is_ours = p->folded && p->type == CUDA_BF16;
    const int64_t channels = g->values[value].shape.dim[1];
    if (channels <= CUDA_CHANNELS &&
        (!p->pads_few || g->values[value].kind == VALUE_EXTERNAL)) /* a picture, and its like */
        return CUDA_CHANNELS;
    if (p->chain)
        return cuda_padded(p->type, true, channels);
    if (is_ours && cuda->sheets && cuda_is_narrow(g, value))
        return cuda_narrow_channels(&g->values[value].shape);
    const bool is_thin = is_ours && cuda_is_thin(g, value, cuda->thin_most);
    return cuda_padded(p->type, is_thin, channels);
}

static enum der_status copy_values(struct cuda_program *p, const struct graph *g, const bool *image)
{
    p->n_values = g->n_values;
    p->values = arena_zalloc(&p->arena, (size_t)g->n_values, sizeof *p->values);
    if (!p->values)
        return ctx_nomem(p->base.be->ctx);
    for (int v = 0; v < g->n_values; v++) {
        const struct value *from = &g->values[v];
        struct cuda_value *to = &p->values[v];
        TRY(slot_init(p->base.be->ctx, &p->arena, from, &to->slot));
        to->kind = from->kind;
        to->image = image[v];
        to->stored = image[v] ? stored_channels(p, g, v) : 0;
        to->sparse =
            image[v] && p->type == CUDA_BF16 && !cuda_of(p)->zeros_stored && cuda_is_sparse(g, v);
        to->owner = graph_storage_of(g, v);
        to->col = graph_column_of(g, v);
    }
    return DER_OK;
}

static void mark_written(struct cuda_program *p, const struct node *node)
{
    for (int k = 0; k < node->n_out; k++)
        if (node->out[k] != NO_VALUE)
            p->values[p->values[node->out[k]].owner].slot.written = true;
    for (int k = 0; k < node->n_in; k++)
        if (node->in[k] != NO_VALUE && node_overwrites_input(node, k))
            p->values[p->values[node->in[k]].owner].slot.written = true;
}

/* Images of the caller are read in before the first step that reads them, and written out after every
 * step that writes them. inside: [n_values], those that are up to date by now. */
static enum der_status plan_copies(struct cuda_program *p, struct cuda_step *step, bool *inside)
{
    const struct node *node = &step->node;
    step->import = arena_zalloc(&p->arena, (size_t)node->n_in, sizeof *step->import);
    step->export = arena_zalloc(&p->arena, (size_t)node->n_out, sizeof *step->export);
    if (!step->import || !step->export)
        return ctx_nomem(p->base.be->ctx);
    for (int k = 0; k < node->n_in; k++) {
        int v = node->in[k];
        if (v == NO_VALUE || !p->values[v].image || !p->values[v].slot.is_external || inside[v])
            continue;
        if (k == 0 && cuda_conv_reads_outside(p, node)) /* src comes first */
            continue;
        step->import[step->n_import++] = v;
        inside[v] = true;
    }
    for (int k = 0; k < node->n_out; k++) {
        int v = node->out[k];
        if (v == NO_VALUE || !p->values[v].image || !p->values[v].slot.is_external)
            continue;
        step->export[step->n_export++] = v;
        inside[v] = true;
    }
    return DER_OK;
}

/* Step i belongs to node i, so that liveness by node holds for steps. */
static enum der_status make_steps(struct cuda_program *p, const struct graph *g, bool *inside)
{
    p->steps = arena_zalloc(&p->arena, (size_t)g->n_nodes, sizeof *p->steps);
    p->derived = arena_zalloc(&p->arena, (size_t)g->n_nodes, sizeof *p->derived);
    if (!p->steps || !p->derived)
        return ctx_nomem(p->base.be->ctx);
    for (int v = 0; v < g->n_values; v++)
        inside[v] = false;
    p->n_steps = g->n_nodes;
    for (int i = 0; i < g->n_nodes; i++) {
        struct cuda_step *step = &p->steps[i];
        if (!node_copy(&p->arena, &g->nodes[i], &step->node))
            return ctx_nomem(p->base.be->ctx);
        mark_written(p, &step->node);
        TRY(plan_copies(p, step, inside));
        if (cuda_is_conv(step->node.op))
            TRY(cuda_conv_init(p, step));
        else if (step->node.op == OP_LINEAR || step->node.op == OP_LINEAR_D_SRC ||
                 step->node.op == OP_LINEAR_D_WEIGHTS)
            TRY(cuda_gemm_init(p, step));
        else
            TRY(cuda_step_init(p, step));
    }
    return DER_OK;
}

/* ---- memory ------------------------------------------------------------------------------------- */

struct planner {
    struct cuda_program *p;
    const struct graph *g;
    int *first, *last;          /* [n_values] nodes */
    int *item_of;               /* [n_values] index into items, -1: no memory of its own */
    struct memplan_item *items; /* [n_values + n_steps] */
    int n_items;
};

size_t cuda_value_bytes(const struct cuda_program *p, const struct cuda_value *value)
{
    if (value->raw)
        return cuda_conv_raw_bytes(value->raw);
    const struct shape *shape = &value->slot.shape;
    size_t element = value_type(p, value) == CUDA_BF16 ? 2 : 4;
    if (!value->image)
        return (size_t)shape_count(*shape) * element;
    const int64_t pixels = shape->dim[0] * shape_spatial(*shape) / (value->sparse ? 4 : 1);
    return (size_t)(pixels * value->stored) * element;
}

/* The item that `value`, written by node i as output k, may take over; -1: none. A convolution writes
 * where it still reads, so it takes over nothing. */
static int inherited_item(const struct planner *plan, int i, int k)
{
    const struct node *node = &plan->g->nodes[i];
    int position = node_inplace_input(node, k);
    int source = position < 0 ? NO_VALUE : node_in(node, position);
    if (source == NO_VALUE || plan->p->values[source].kind != VALUE_TEMP || cuda_is_conv(node->op))
        return -1;
    const struct cuda_value *from = &plan->p->values[source];
    const struct cuda_value *to = &plan->p->values[node->out[k]];
    int item = plan->item_of[source];
    if (item < 0 || plan->items[item].last != i || from->image != to->image ||
        cuda_value_bytes(plan->p, from) != cuda_value_bytes(plan->p, to))
        return -1;
    return item;
}

static void add_item(struct planner *plan, int value)
{
    int item = plan->n_items++;
    plan->items[item] =
        (struct memplan_item){.bytes = cuda_value_bytes(plan->p, &plan->p->values[value]),
                              .first = plan->first[value],
                              .last = plan->last[value]};
    plan->item_of[value] = item;
}

static void plan_outputs(struct planner *plan, int i)
{
    const struct node *node = &plan->g->nodes[i];
    for (int k = 0; k < node->n_out; k++) {
        int value = node->out[k];
        if (value == NO_VALUE || plan->p->values[value].kind != VALUE_TEMP ||
            plan->item_of[value] >= 0 || cuda_chain_has(plan->p, i))
            continue;
        int item = inherited_item(plan, i, k);
        if (item < 0) {
            add_item(plan, value);
            continue;
        }
        plan->items[item].last = plan->last[value];
        plan->item_of[value] = item;
    }
}

/* What a step of another lane touches has to stay until the main lane has waited for it. */
static void extend_lives(struct planner *plan)
{
    for (int i = 0; i < plan->p->n_steps; i++) {
        const struct cuda_step *step = &plan->p->steps[i];
        for (int k = 0; k < step->node.n_in + step->node.n_out; k++) {
            int value =
                k < step->node.n_in ? step->node.in[k] : step->node.out[k - step->node.n_in];
            if (value == NO_VALUE)
                continue;
            int *last = &plan->last[plan->p->values[value].owner];
            *last = *last > step->last_step ? *last : step->last_step;
        }
    }
}

static enum der_status plan_items(struct planner *plan)
{
    struct cuda_program *p = plan->p;
    graph_liveness(plan->g, plan->first, plan->last);
    extend_lives(plan);
    for (int v = 0; v < p->n_values; v++) {
        plan->item_of[v] = -1;
        if (p->values[v].kind == VALUE_EXTERNAL && p->values[v].image && plan->first[v] >= 0)
            add_item(plan, v);
    }
    for (int i = 0; i < p->n_steps; i++)
        plan_outputs(plan, i);
    int n_values_items = plan->n_items;
    for (int i = 0; i < p->n_steps; i++)
        plan->items[plan->n_items++] = (struct memplan_item){.bytes = p->steps[i].scratch_bytes,
                                                             .first = cuda_statistics_first(p, i),
                                                             .last = p->steps[i].last_step};

    TRY(memplan(p->base.be->ctx, plan->items, plan->n_items, &p->base.stats.temp_bytes));
    for (int v = 0; v < p->n_values; v++)
        if (plan->item_of[v] >= 0)
            p->values[v].offset = plan->items[plan->item_of[v]].offset;
    for (int i = 0; i < p->n_steps; i++)
        p->steps[i].scratch = plan->items[n_values_items + i].offset;
    return DER_OK;
}

/* Temporaries, derived weights, tables and counters, one behind the other. */
static enum der_status take_block(struct cuda_program *p)
{
    p->derived_table = p->tables_bytes;
    p->tables_bytes += (size_t)p->n_derived * sizeof(struct cuda_weights);
    p->tables = arena_zalloc(&p->arena, p->tables_bytes, 1);
    if (!p->tables)
        return ctx_nomem(p->base.be->ctx);
    p->base.stats.derived_bytes = p->derived_bytes;
    p->derived_offset = cuda_aligned(p->base.stats.temp_bytes);
    p->tables_offset = p->derived_offset + cuda_aligned(p->derived_bytes);
    p->counters_offset = p->tables_offset + cuda_aligned(p->tables_bytes);
    void *block;
    TRY(cuda_alloc(cuda_of(p), p->counters_offset + p->n_counters * sizeof(unsigned), &block));
    p->block = block;
    return DER_OK;
}

static enum der_status plan_memory(struct cuda_program *p, const struct graph *g)
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
    if (status == DER_OK)
        status = take_block(p);

done:
    mem_free(&ctx->mem, numbers);
    mem_free(&ctx->mem, plan.items);
    return status;
}

/* ---- programs ------------------------------------------------------------------------------------ */

static enum der_status build(struct cuda_program *p, const struct graph *g, bool *flags)
{
    cuda_layout_choose(g, flags);
    p->pads_few = cuda_pads_few(g, flags);
    TRY(cuda_chain_plan(p, g));
    TRY(copy_values(p, g, flags));
    TRY(cuda_conv_prefetch(p, g));
    TRY(make_steps(p, g, flags));
    cuda_derived_finish(p);
    TRY(cuda_update_plan(p));
    cuda_statistics_plan(p);
    cuda_lanes_plan(p);
    cuda_chain_finish(p);
    return plan_memory(p, g);
}

/* The same graph with its nodes in our order. */
static enum der_status reorder(struct cuda_program *p, const struct graph *g, struct graph *out)
{
    *out = *g;
    out->nodes = arena_zalloc(&p->arena, (size_t)g->n_nodes, sizeof *out->nodes);
    if (!out->nodes)
        return ctx_nomem(p->base.be->ctx);
    cuda_lanes_order(g, out->nodes);
    return DER_OK;
}

/* Answers in bf16 would differ from those in f32 for more than one image in a thousand, so they are computed in
 * TF32. They are a small share of a run: its tests are not worth kernels made at run time. */
static void choose_kind(struct cuda_program *p, const struct graph *g)
{
    const bool is_refined = g->is_precise && p->base.be->is_coarse;
    p->precision = is_refined ? PRECISION_TF32 : cuda_of(p)->precision;
    p->type = p->precision == PRECISION_BF16 ? CUDA_BF16 : CUDA_F32;
    p->seldom = g->runs_seldom || is_refined;
    p->hides_gradients = g->hides_gradients;
    p->folded = true;
    for (int i = 0; i < g->n_nodes; i++)
        p->folded &= !cuda_is_conv(g->nodes[i].op) || g->nodes[i].op == OP_CONV2D_AFFINE;
}

enum der_status cuda_compile(struct backend *be, const struct graph *g, struct program **out)
{
    *out = NULL;
    TRY(cuda_enter((struct cuda_backend *)be));
    struct mem *mem = &be->ctx->mem;
    struct cuda_program *p = mem_zalloc(mem, 1, sizeof *p);
    if (!p)
        return ctx_nomem(be->ctx);
    p->base.be = be;
    choose_kind(p, g);
    arena_init(&p->arena, mem);
    bool *flags = mem_alloc(mem, (size_t)g->n_values, sizeof *flags);
    struct graph ordered;
    enum der_status status = flags ? reorder(p, g, &ordered) : ctx_nomem(be->ctx);
    if (status == DER_OK)
        status = build(p, &ordered, flags);
    mem_free(mem, flags);
    if (status != DER_OK) {
        cuda_program_free(be, &p->base);
        return status;
    }
    *out = &p->base;
    return DER_OK;
}

void cuda_program_free(struct backend *be, struct program *program)
{
    struct cuda_program *p = (struct cuda_program *)program;
    if (!p)
        return;
    (void)cudaSetDevice(cuda_of(p)->device);
    (void)cudaFree(p->block);
    arena_fini(&p->arena);
    mem_free(&be->ctx->mem, p);
}

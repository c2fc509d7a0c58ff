/*
 * The reference back end as the rest of the library sees it: buffers on the heap, programs that
 * are the graph's nodes with their operands looked up before each run.
 *
 * Every temporary has memory of its own, in one block per program: nothing is shared, nothing is
 * allocated while a program runs.
 */
#include "backend/ref/ref.h"

#include "core/arena.h"
#include "graph/host.h"

#include <assert.h>

/* Where a value's numbers are. */
struct ref_value {
    int storage;           /* value whose memory it uses: itself but for aliases */
    int64_t column;        /* aliases: first column in it */
    size_t temp_offset;    /* temporaries: place in the block */
    struct ref_tensor now; /* filled before each run */
};

struct ref_node {
    struct node node;       /* copy; its lists lie in the program's arena */
    struct ref_tensor *in;  /* [n_in], filled before each run */
    struct ref_tensor *out; /* [n_out] */
};

struct ref_program {
    struct program base;
    struct arena arena;       /* everything below but `temps` */
    struct slot *slots;       /* [n_values] */
    struct ref_value *values; /* [n_values] */
    int n_values;
    struct ref_node *nodes; /* [n_nodes] */
    int n_nodes;
    char *temps; /* block of all temporaries */
};

static void (*const ref_ops[OP_COUNT])(const struct ref_call *call) = {
    [OP_CONV2D] = ref_conv2d,
    [OP_CONV2D_D_SRC] = ref_conv2d_d_src,
    [OP_CONV2D_D_WEIGHTS] = ref_conv2d_d_weights,
    [OP_CONV2D_AFFINE] = ref_conv2d_affine,
    [OP_BATCHNORM] = ref_batchnorm,
    [OP_BATCHNORM_GRAD] = ref_batchnorm_grad,
    [OP_RELU] = ref_relu,
    [OP_RELU_GRAD] = ref_relu_grad,
    [OP_ADD] = ref_add,
    [OP_SCALE_CHANNEL] = ref_scale_channel,
    [OP_SCALE_CHANNEL_GRAD] = ref_scale_channel_grad,
    [OP_SCALE] = ref_scale,
    [OP_SCALE_GRAD] = ref_scale_grad,
    [OP_MAXPOOL] = ref_maxpool,
    [OP_MAXPOOL_GRAD] = ref_maxpool_grad,
    [OP_AVGPOOL] = ref_avgpool,
    [OP_AVGPOOL_GRAD] = ref_avgpool_grad,
    [OP_JOIN] = ref_join,
    [OP_LINEAR] = ref_linear,
    [OP_LINEAR_D_SRC] = ref_linear_d_src,
    [OP_LINEAR_D_WEIGHTS] = ref_linear_d_weights,
    [OP_L2NORM] = ref_l2norm,
    [OP_L2NORM_GRAD] = ref_l2norm_grad,
    [OP_SOFTMAX_XENT] = ref_softmax_xent,
    [OP_DISTILL] = ref_distill,
    [OP_BCE] = ref_bce,
    [OP_COSINE_LOSS] = ref_cosine_loss,
    [OP_MARGIN_LOSS] = ref_margin_loss,
    [OP_RANK] = ref_rank,
    [OP_MASK_GATE] = ref_mask_gate,
    [OP_MASK_GATE_GRAD] = ref_mask_gate_grad,
    [OP_MASK_SPARSITY] = ref_mask_sparsity,
    [OP_SGD] = ref_sgd,
    [OP_FEED] = ref_feed,
    [OP_TALLY] = ref_tally,
};

/* ---- the back end and its buffers ---------------------------------------------------------- */

static enum der_status open_backend(struct der_ctx *ctx, const struct backend_options *options,
                                    struct backend **out)
{
    *out = NULL;
    if (options && options->precision != PRECISION_F32)
        return ctx_fail(ctx, DER_UNSUPPORTED, "back end ref computes in f32 only");
    struct backend *be = mem_zalloc(&ctx->mem, 1, sizeof *be);
    if (!be)
        return ctx_nomem(ctx);
    be->ops = &ref_backend;
    be->ctx = ctx;
    *out = be;
    return DER_OK;
}

static void close_backend(struct backend *be)
{
    if (be)
        mem_free(&be->ctx->mem, be);
}

/* ---- compiling ----------------------------------------------------------------------------- */

static void free_program(struct backend *be, struct program *program)
{
    struct ref_program *p = (struct ref_program *)program;
    if (!p)
        return;
    arena_fini(&p->arena);
    mem_free(&be->ctx->mem, p->temps);
    mem_free(&be->ctx->mem, p);
}

static enum der_status copy_nodes(struct ref_program *p, const struct graph *g)
{
    p->nodes = arena_zalloc(&p->arena, (size_t)g->n_nodes, sizeof *p->nodes);
    if (!p->nodes)
        return ctx_nomem(p->base.be->ctx);
    for (int i = 0; i < g->n_nodes; i++) {
        const struct node *from = &g->nodes[i];
        struct ref_node *to = &p->nodes[i];
        to->in = arena_zalloc(&p->arena, (size_t)from->n_in, sizeof *to->in);
        to->out = arena_zalloc(&p->arena, (size_t)from->n_out, sizeof *to->out);
        if (!to->in || !to->out || !node_copy(&p->arena, from, &to->node))
            return ctx_nomem(p->base.be->ctx);
    }
    p->n_nodes = g->n_nodes;
    return DER_OK;
}

static enum der_status copy_values(struct ref_program *p, const struct graph *g)
{
    p->values = arena_zalloc(&p->arena, (size_t)g->n_values, sizeof *p->values);
    p->slots = arena_zalloc(&p->arena, (size_t)g->n_values, sizeof *p->slots);
    if (!p->values || !p->slots)
        return ctx_nomem(p->base.be->ctx);
    for (int i = 0; i < g->n_values; i++) {
        const struct value *value = &g->values[i];
        TRY(slot_init(p->base.be->ctx, &p->arena, value, &p->slots[i]));
        p->values[i].storage = graph_storage_of(g, i);
        p->values[i].column = graph_column_of(g, i);
    }
    p->n_values = g->n_values;
    return DER_OK;
}

/* Which external values some node writes, aliases counted for their owner. */
static void mark_written(struct ref_program *p)
{
    for (int i = 0; i < p->n_nodes; i++) {
        const struct node *node = &p->nodes[i].node;
        for (int k = 0; k < node->n_out; k++)
            if (node->out[k] != NO_VALUE)
                p->slots[p->values[node->out[k]].storage].written = true;
        for (int k = 0; k < node->n_in; k++)
            if (node->in[k] != NO_VALUE && node_overwrites_input(node, k))
                p->slots[p->values[node->in[k]].storage].written = true;
    }
}

/* Gives every temporary that a node writes its own place in one block. */
static enum der_status place_temps(struct ref_program *p)
{
    struct der_ctx *ctx = p->base.be->ctx;
    size_t total = 0;
    for (int i = 0; i < p->n_values; i++) {
        const struct slot *slot = &p->slots[i];
        if (slot->is_external || !slot->written || p->values[i].storage != i)
            continue;
        size_t bytes;
        if (!size_mul((size_t)shape_count(slot->shape), dtype_bytes(slot->dtype), &bytes) ||
            !size_add(bytes, MEM_ALIGNMENT - 1, &bytes))
            return ctx_nomem(ctx);
        p->values[i].temp_offset = total;
        if (!size_add(total, bytes - bytes % MEM_ALIGNMENT, &total))
            return ctx_nomem(ctx);
    }
    p->temps = mem_zalloc(&ctx->mem, total, 1);
    if (!p->temps)
        return ctx_nomem(ctx);
    p->base.stats.temp_bytes = total;
    return DER_OK;
}

static enum der_status compile(struct backend *be, const struct graph *g, struct program **out)
{
    *out = NULL;
    struct ref_program *p = mem_zalloc(&be->ctx->mem, 1, sizeof *p);
    if (!p)
        return ctx_nomem(be->ctx);
    p->base.be = be;
    arena_init(&p->arena, &be->ctx->mem);

    enum der_status status = copy_nodes(p, g);
    if (status == DER_OK)
        status = copy_values(p, g);
    if (status == DER_OK) {
        mark_written(p);
        status = place_temps(p);
    }
    if (status != DER_OK) {
        free_program(be, &p->base);
        return status;
    }
    *out = &p->base;
    return DER_OK;
}

static enum der_status bind_value(struct backend *be, struct program *program, int value,
                                  struct span span)
{
    struct ref_program *p = (struct ref_program *)program;
    if (value < 0 || value >= p->n_values)
        return ctx_fail(be->ctx, DER_ARG, "value %d is none of the program's %d", value,
                        p->n_values);
    TRY(slot_check(be->ctx, &p->slots[value], span));
    p->slots[value].span = span;
    return DER_OK;
}

/* ---- running ------------------------------------------------------------------------------- */

/* Finds the memory of a value. Aliases of a matrix keep its distance from row to row. */
static struct ref_tensor locate(const struct ref_program *p, int value)
{
    const struct slot *slot = &p->slots[value];
    const struct ref_value *at = &p->values[value];
    const struct slot *owner = &p->slots[at->storage];
    const char *start = p->temps + p->values[at->storage].temp_offset;
    if (owner->is_external)
        start = (const char *)owner->span.buffer->data + owner->span.offset;

    struct ref_tensor tensor = {.shape = slot->shape};
    if (owner->shape.rank == 2)
        tensor.pitch =
            owner->is_external && owner->span.pitch > 0 ? owner->span.pitch : owner->shape.dim[1];
    if (slot->dtype == DTYPE_I32)
        tensor.ints = (int32_t *)start + at->column;
    else
        tensor.data = (float *)start + at->column;
    return tensor;
}

static enum der_status check_bound(const struct ref_program *p)
{
    for (int i = 0; i < p->n_values; i++)
        TRY(slot_require(p->base.be->ctx, &p->slots[i]));
    return DER_OK;
}

static void gather(const struct ref_program *p, struct ref_tensor *tensors, const int *ids, int n)
{
    static const struct ref_tensor absent = {0};
    for (int i = 0; i < n; i++)
        tensors[i] = ids[i] == NO_VALUE ? absent : p->values[ids[i]].now;
}

static void run_program(struct ref_program *p)
{
    for (int i = 0; i < p->n_values; i++)
        p->values[i].now = locate(p, i);
    for (int i = 0; i < p->n_nodes; i++) {
        struct ref_node *step = &p->nodes[i];
        gather(p, step->in, step->node.in, step->node.n_in);
        gather(p, step->out, step->node.out, step->node.n_out);
        const struct ref_call call = {
            .attr = &step->node.attr,
            .in = step->in,
            .out = step->out,
            .n_in = step->node.n_in,
            .n_out = step->node.n_out,
        };
        assert(ref_ops[step->node.op]);
        ref_ops[step->node.op](&call);
    }
    for (int i = 0; i < p->n_values; i++)
        if (p->slots[i].is_external && p->slots[i].written)
            p->slots[i].span.buffer->version++;
}

static enum der_status run(struct backend *be, struct sequence *sequence)
{
    (void)be;
    for (int i = 0; i < sequence->n_items; i++)
        TRY(check_bound((const struct ref_program *)sequence->items[i].program));
    for (int i = 0; i < sequence->n_items; i++)
        run_program((struct ref_program *)sequence->items[i].program);
    return DER_OK;
}

const struct backend_ops ref_backend = {
    .name = "ref",
    .open = open_backend,
    .close = close_backend,
    .buffer_new = host_buffer_new,
    .buffer_free = host_buffer_free,
    .write = host_write,
    .read = host_read,
    .compile = compile,
    .program_free = free_program,
    .bind = bind_value,
    .run = run,
    .sequence_drop = host_sequence_drop,
    .sync = host_sync,
};

#include "train/assembly.h"

#include <assert.h>

enum { MAX_FROZEN = SEQUENCE_MAX - 3 }; /* beside them: feed, trained part, tally */

void desks_init(struct desks *desks, struct backend *be, const struct resnet_spec *spec,
                int64_t feature_dim)
{
    *desks = (struct desks){.be = be,
                            .channels = spec->in_channels,
                            .height = spec->height,
                            .width = spec->width,
                            .feature_dim = feature_dim};
}

void desks_fini(struct desks *desks)
{
    for (int i = 0; i < desks->n; i++) {
        buffer_free(desks->item[i].image);
        buffer_free(desks->item[i].labels);
        buffer_free(desks->item[i].matrix);
    }
    desks->n = 0;
}

static enum der_status desk_get(struct desks *desks, int batch, struct desk *out)
{
    for (int i = 0; i < desks->n; i++) {
        if (desks->item[i].batch == batch) {
            *out = desks->item[i];
            return DER_OK;
        }
    }
    if (desks->n == DESKS_MAX)
        return ctx_fail(desks->be->ctx, DER_STATE, "more than %d batch sizes in one step",
                        DESKS_MAX);
    /* Counted before it is complete, so that desks_fini releases whatever there is. */
    struct desk *desk = &desks->item[desks->n++];
    *desk = (struct desk){.batch = batch};
    size_t rows = (size_t)batch;
    size_t pixels = (size_t)desks->channels * (size_t)desks->height * (size_t)desks->width;
    TRY(buffer_new(desks->be, rows * pixels * sizeof(float), &desk->image));
    TRY(buffer_new(desks->be, rows * sizeof(int32_t), &desk->labels));
    TRY(buffer_new(desks->be, rows * (size_t)desks->feature_dim * sizeof(float), &desk->matrix));
    *out = *desk;
    return DER_OK;
}

enum der_status assembly_scalar(struct graph *g, struct assembly_io *io, int which,
                                const char *name, int *value)
{
    assert(which >= 0 && which < ASSEMBLY_MAX_SCALARS);
    if (io->scalar[which] == NO_VALUE)
        TRY(graph_input(g, name, DTYPE_F32, shape_1d(1), &io->scalar[which]));
    *value = io->scalar[which];
    return DER_OK;
}

enum der_status assembly_attach(struct graph *g, struct assembly_io *io, struct param_set *set,
                                bool trainable, struct param_use **use)
{
    assert(io->n_uses < ASSEMBLY_MAX_USES);
    *use = &io->use[io->n_uses];
    TRY(params_attach(set, g, trainable, *use));
    io->n_uses++;
    return DER_OK;
}

/* A matter of settings alone, so that a resumed run compiles what an unbroken one had. */
static bool is_seldom(const struct desks *desks, int batch)
{
    return desks->usual[0] > 0 && batch != desks->usual[0] && batch != desks->usual[1];
}

static enum der_status declare_inputs(const struct assembly_plan *plan, struct graph *g,
                                      struct assembly_io *io)
{
    const struct desks *desks = plan->desks;
    struct shape image = shape_4d(io->batch, desks->channels, desks->height, desks->width);
    TRY(graph_input(g, "image", DTYPE_F32, image, &io->image));
    TRY(graph_input(g, "labels", DTYPE_I32, shape_1d(io->batch), &io->labels));
    return graph_input(g, "features", DTYPE_F32, shape_2d(io->batch, desks->feature_dim),
                       &io->matrix);
}

/* A buffer for an exposed value, and the binding of it. */
static enum der_status bind_result(const struct graph *g, struct program *program, int value,
                                   struct buffer **buffer)
{
    if (value == NO_VALUE)
        return DER_OK;
    size_t bytes = (size_t)shape_count(g->values[value].shape) * sizeof(float);
    TRY(buffer_new(program->be, bytes, buffer));
    return program_bind(program, value, (struct span){.buffer = *buffer});
}

static enum der_status bind_all(const struct assembly_plan *plan, const struct graph *g,
                                const struct assembly_io *io, struct assembly *a)
{
    struct program *p = a->program;
    TRY(program_bind(p, io->image, (struct span){.buffer = a->desk.image}));
    TRY(program_bind(p, io->labels, (struct span){.buffer = a->desk.labels}));
    TRY(program_bind(p, io->matrix, (struct span){.buffer = a->desk.matrix}));
    TRY(bind_result(g, p, io->rank, &a->rank));
    TRY(bind_result(g, p, io->logits, &a->logits));
    if (a->logits)
        a->n_logits = (int)g->values[io->logits].shape.dim[1];
    for (int i = 0; i < io->n_uses; i++)
        TRY(params_bind(&io->use[i], p));
    for (int i = 0; i < ASSEMBLY_MAX_SCALARS; i++) {
        struct span span = {.buffer = plan->scalars, .offset = (size_t)i * sizeof(float)};
        if (io->scalar[i] == NO_VALUE)
            continue;
        TRY(program_bind(p, io->scalar[i], span));
        a->scalars = plan->scalars;
    }
    if (io->n_losses == 0)
        return DER_OK;
    TRY(buffer_new(plan->be, (size_t)io->n_losses * sizeof(float), &a->losses));
    for (int i = 0; i < io->n_losses; i++) {
        struct span span = {.buffer = a->losses, .offset = (size_t)i * sizeof(float)};
        if (io->loss[i] == NO_VALUE)
            TRY(buffer_write(a->losses, span.offset, &io->known_loss[i], sizeof(float)));
        else
            TRY(program_bind(p, io->loss[i], span));
    }
    return DER_OK;
}

static enum der_status compile(const struct assembly_plan *plan, struct assembly *a)
{
    struct assembly_io io = {.batch = a->desk.batch, .rank = NO_VALUE, .logits = NO_VALUE};
    for (int i = 0; i < ASSEMBLY_MAX_SCALARS; i++)
        io.scalar[i] = NO_VALUE;
    struct graph *g;
    TRY(graph_new(plan->be->ctx, &g));
    g->runs_seldom = is_seldom(plan->desks, a->desk.batch);
    enum der_status status = declare_inputs(plan, g, &io);
    if (status == DER_OK)
        status = plan->describe(plan->self, g, &io);
    a->trains = io.n_losses > 0;
    g->is_precise = !a->trains;
    g->hides_gradients = !plan->shows_gradients;
    if (status == DER_OK)
        status = program_compile(plan->be, g, &a->program);
    if (status == DER_OK)
        status = bind_all(plan, g, &io, a);
    for (int i = 0; i < io.n_uses; i++)
        param_use_fini(&io.use[i]);
    graph_free(g);
    return status;
}

/* Frozen extractors are independent of each other: group 0. What reads their features: group 1. */
static enum der_status make_sequence(const struct assembly_plan *plan, struct assembly *a)
{
    struct sequence_item items[MAX_FROZEN + 1];
    const struct folded_use use = {.batch = a->desk.batch,
                                   .in_training = a->trains,
                                   .is_seldom = is_seldom(plan->desks, a->desk.batch)};
    if (plan->n_frozen > MAX_FROZEN)
        return ctx_fail(plan->be->ctx, DER_ARG, "at most %d extractors can run together",
                        MAX_FROZEN);
    int64_t col = 0;
    for (int i = 0; i < plan->n_frozen; i++) {
        const struct folded *folded;
        TRY(extractor_folded_for(plan->frozen[i], &use, &folded));
        struct span feature = {a->desk.matrix, (size_t)col * sizeof(float),
                               plan->desks->feature_dim};
        TRY(folded_bind(folded, (struct span){.buffer = a->desk.image}, feature));
        items[i] = (struct sequence_item){folded->program, 0};
        col += resnet_feature_dim(&plan->frozen[i]->spec);
    }
    items[plan->n_frozen] = (struct sequence_item){a->program, 1};
    return sequence_new(plan->be, items, plan->n_frozen + 1, &a->sequence);
}

static void assembly_free(struct mem *mem, struct assembly *a)
{
    sequence_free(a->sequence);
    program_free(a->program);
    buffer_free(a->losses);
    buffer_free(a->rank);
    buffer_free(a->logits);
    mem_free(mem, a);
}

enum der_status assembly_get(struct assembly_cache *cache, const struct assembly_plan *plan,
                             int batch, struct assembly **out)
{
    *out = NULL;
    for (int i = 0; i < cache->n; i++) {
        if (cache->item[i]->desk.batch == batch) {
            *out = cache->item[i];
            return DER_OK;
        }
    }
    struct der_ctx *ctx = plan->be->ctx;
    if (cache->n == ASSEMBLY_MAX_SIZES)
        return ctx_fail(ctx, DER_STATE, "more than %d batch sizes in one stage",
                        ASSEMBLY_MAX_SIZES);
    struct desk desk;
    TRY(desk_get(plan->desks, batch, &desk));
    struct assembly *a = mem_zalloc(&ctx->mem, 1, sizeof *a);
    if (!a)
        return ctx_nomem(ctx);
    a->desk = desk;
    enum der_status status = compile(plan, a);
    if (status == DER_OK)
        status = make_sequence(plan, a);
    if (status != DER_OK) {
        assembly_free(&ctx->mem, a);
        return status;
    }
    cache->mem = &ctx->mem;
    cache->item[cache->n++] = a;
    *out = a;
    return DER_OK;
}

void assembly_cache_fini(struct assembly_cache *cache)
{
    for (int i = 0; i < cache->n; i++)
        assembly_free(cache->mem, cache->item[i]);
    cache->n = 0;
}

struct stage_program assembly_program(const struct assembly *assembly)
{
    return (struct stage_program){.sequence = assembly->sequence,
                                  .image = assembly->desk.image,
                                  .labels = assembly->desk.labels,
                                  .scalars = assembly->scalars,
                                  .losses = assembly->losses,
                                  .rank = assembly->rank,
                                  .logits = assembly->logits,
                                  .n_logits = assembly->n_logits,
                                  .matrix = assembly->desk.matrix};
}

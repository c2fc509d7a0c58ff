#include "nn/params.h"

#include "nn/init.h"

#include <assert.h>
#include <string.h>

/* Every tensor starts on a cache line of its flat buffer; the gaps stay zero. */
enum { OFFSET_FLOATS = MEM_ALIGNMENT / sizeof(float), FIRST_CAPACITY = 64 };

enum der_status param_set_new(struct der_ctx *ctx, struct param_set **out)
{
    *out = mem_zalloc(&ctx->mem, 1, sizeof **out);
    if (!*out)
        return ctx_nomem(ctx);
    (*out)->ctx = ctx;
    return DER_OK;
}

void param_set_free(struct param_set *set)
{
    if (!set)
        return;
    struct mem *mem = &set->ctx->mem;
    param_set_freeze(set);
    buffer_free(set->values);
    buffer_free(set->states);
    for (int i = 0; i < set->n; i++)
        mem_free(mem, set->items[i].name);
    mem_free(mem, set->items);
    mem_free(mem, set);
}

enum der_status param_set_add(struct param_set *set, const char *name, struct shape shape,
                              enum param_role role, enum param_init init, int *index)
{
    assert(!set->be);
    struct der_ctx *ctx = set->ctx;
    if (!shape_is_valid(shape) || param_set_find(set, name) >= 0)
        return ctx_fail(ctx, DER_ARG, "parameter '%s' has an unusable shape or exists already",
                        name);
    if (set->n == set->capacity) {
        int capacity = set->capacity ? 2 * set->capacity : FIRST_CAPACITY;
        struct param *items =
            mem_realloc(&ctx->mem, set->items, (size_t)capacity, sizeof *set->items);
        if (!items)
            return ctx_nomem(ctx);
        set->items = items;
        set->capacity = capacity;
    }
    char *copy = mem_strdup(&ctx->mem, name);
    if (!copy)
        return ctx_nomem(ctx);
    size_t *length = role == PARAM_LEARNT ? &set->learnt_floats : &set->state_floats;
    set->items[set->n] =
        (struct param){.name = copy, .shape = shape, .role = role, .init = init, .offset = *length};
    size_t count = (size_t)shape_count(shape);
    *length += (count + OFFSET_FLOATS - 1) / OFFSET_FLOATS * OFFSET_FLOATS;
    *index = set->n++;
    return DER_OK;
}

int param_set_find(const struct param_set *set, const char *name)
{
    for (int i = 0; i < set->n; i++)
        if (strcmp(set->items[i].name, name) == 0)
            return i;
    return -1;
}

int64_t param_set_count(const struct param_set *set)
{
    int64_t count = 0;
    for (int i = 0; i < set->n; i++)
        if (set->items[i].role == PARAM_LEARNT)
            count += shape_count(set->items[i].shape);
    return count;
}

/* A set may lack one role altogether; its buffer then holds a single unused float. */
static size_t span_bytes(size_t floats)
{
    return (floats ? floats : 1) * sizeof(float);
}

enum der_status param_set_allocate(struct param_set *set, struct backend *be)
{
    assert(!set->be);
    TRY(buffer_new(be, span_bytes(set->learnt_floats), &set->values));
    TRY(buffer_new(be, span_bytes(set->state_floats), &set->states));
    set->be = be;
    return DER_OK;
}

enum der_status param_set_thaw(struct param_set *set)
{
    assert(set->be && !set->grads && !set->velocity);
    TRY(buffer_new(set->be, span_bytes(set->learnt_floats), &set->grads));
    TRY(buffer_new(set->be, span_bytes(set->learnt_floats), &set->velocity));
    return DER_OK;
}

void param_set_freeze(struct param_set *set)
{
    buffer_free(set->grads);
    buffer_free(set->velocity);
    set->grads = NULL;
    set->velocity = NULL;
}

enum der_status param_set_rest(struct param_set *set)
{
    struct mem *mem = &set->ctx->mem;
    float *zeros = mem_zalloc(mem, set->learnt_floats, sizeof *zeros);
    if (!zeros)
        return ctx_nomem(set->ctx);
    enum der_status status =
        buffer_write(set->velocity, 0, zeros, set->learnt_floats * sizeof *zeros);
    mem_free(mem, zeros);
    return status;
}

enum der_status param_set_init(struct param_set *set, uint64_t seed, uint32_t stream)
{
    struct mem *mem = &set->ctx->mem;
    for (int i = 0; i < set->n; i++) {
        float *host = mem_alloc(mem, (size_t)shape_count(set->items[i].shape), sizeof *host);
        if (!host)
            return ctx_nomem(set->ctx);
        init_fill(host, set->items[i].shape, set->items[i].init, seed, stream, i);
        enum der_status status = param_write(set, i, host);
        mem_free(mem, host);
        TRY(status);
    }
    return DER_OK;
}

static struct buffer *buffer_of(const struct param_set *set, int index)
{
    return set->items[index].role == PARAM_LEARNT ? set->values : set->states;
}

static size_t bytes_of(const struct param_set *set, int index)
{
    return (size_t)shape_count(set->items[index].shape) * sizeof(float);
}

enum der_status param_write(struct param_set *set, int index, const float *host)
{
    return buffer_write(buffer_of(set, index), set->items[index].offset * sizeof(float), host,
                        bytes_of(set, index));
}

enum der_status param_read(const struct param_set *set, int index, float *host)
{
    return buffer_read(buffer_of(set, index), set->items[index].offset * sizeof(float), host,
                       bytes_of(set, index));
}

enum der_status param_read_grad(const struct param_set *set, int index, float *host)
{
    if (!set->grads || set->items[index].role != PARAM_LEARNT)
        return ctx_fail(set->ctx, DER_STATE, "parameter '%s' has no gradient",
                        set->items[index].name);
    return buffer_read(set->grads, set->items[index].offset * sizeof(float), host,
                       bytes_of(set, index));
}

enum der_status param_write_velocity(struct param_set *set, int index, const float *host)
{
    assert(set->velocity && set->items[index].role == PARAM_LEARNT);
    return buffer_write(set->velocity, set->items[index].offset * sizeof(float), host,
                        bytes_of(set, index));
}

enum der_status param_read_velocity(const struct param_set *set, int index, float *host)
{
    assert(set->velocity && set->items[index].role == PARAM_LEARNT);
    return buffer_read(set->velocity, set->items[index].offset * sizeof(float), host,
                       bytes_of(set, index));
}

/* Through the host: back ends may differ, and it happens once a step. */
static enum der_status copy_buffer(struct der_ctx *ctx, struct buffer *dst,
                                   const struct buffer *src)
{
    void *host = mem_alloc(&ctx->mem, src->bytes, 1);
    if (!host)
        return ctx_nomem(ctx);
    enum der_status status = buffer_read(src, 0, host, src->bytes);
    if (status == DER_OK)
        status = buffer_write(dst, 0, host, src->bytes);
    mem_free(&ctx->mem, host);
    return status;
}

enum der_status param_set_copy(struct param_set *dst, const struct param_set *src)
{
    bool same = dst->n == src->n;
    for (int i = 0; same && i < dst->n; i++)
        same = strcmp(dst->items[i].name, src->items[i].name) == 0 &&
               dst->items[i].role == src->items[i].role &&
               shape_equal(dst->items[i].shape, src->items[i].shape);
    if (!same)
        return ctx_fail(dst->ctx, DER_SHAPE,
                        "parameters can be copied only between networks of equal shape");
    TRY(copy_buffer(dst->ctx, dst->values, src->values));
    return copy_buffer(dst->ctx, dst->states, src->states);
}

enum der_status params_attach(struct param_set *set, struct graph *g, bool trainable,
                              struct param_use *use)
{
    struct mem *mem = &set->ctx->mem;
    size_t n = (size_t)set->n;
    *use = (struct param_use){.set = set};
    use->value = mem_alloc(mem, 3 * n, sizeof *use->value);
    if (!use->value)
        return ctx_nomem(set->ctx);
    use->grad = use->value + n;
    use->velocity = use->grad + n;
    for (size_t i = 0; i < 3 * n; i++)
        use->value[i] = NO_VALUE;
    for (int i = 0; i < set->n; i++) {
        const struct param *p = &set->items[i];
        enum der_status status =
            graph_param(g, p->name, p->shape, trainable && p->role == PARAM_LEARNT, &use->value[i]);
        if (status != DER_OK) {
            param_use_fini(use);
            return status;
        }
    }
    return DER_OK;
}

void param_use_fini(struct param_use *use)
{
    if (use->set)
        mem_free(&use->set->ctx->mem, use->value);
    *use = (struct param_use){0};
}

void params_note_grads(struct param_use *use, const struct graph *g)
{
    for (int i = 0; i < use->set->n; i++)
        use->grad[i] = g->values[use->value[i]].grad;
}

enum der_status params_sgd(struct param_use *const *uses, int n_uses, struct graph *g, int lr,
                           const struct sgd_attr *attr)
{
    int most = 0;
    for (int u = 0; u < n_uses; u++)
        most += uses[u]->set->n;
    int *params = arena_zalloc(&g->arena, (size_t)most, sizeof *params);
    int *velocity = arena_zalloc(&g->arena, (size_t)most, sizeof *velocity);
    if (!params || !velocity)
        return ctx_nomem(g->ctx);
    int n = 0;
    for (int u = 0; u < n_uses; u++)
        for (int i = 0; i < uses[u]->set->n; i++)
            if (uses[u]->grad[i] != NO_VALUE)
                params[n++] = uses[u]->value[i];
    TRY(graph_sgd(g, params, n, lr, attr, velocity));
    n = 0;
    for (int u = 0; u < n_uses; u++)
        for (int i = 0; i < uses[u]->set->n; i++)
            if (uses[u]->grad[i] != NO_VALUE)
                uses[u]->velocity[i] = velocity[n++];
    return DER_OK;
}

static enum der_status bind_one(struct program *program, int value, struct buffer *buffer,
                                const struct param *param)
{
    if (value == NO_VALUE)
        return DER_OK;
    assert(buffer);
    return program_bind(program, value, (struct span){buffer, param->offset * sizeof(float), 0});
}

enum der_status params_linear(const struct param_use *use, struct graph *g, int src, int *dst)
{
    const int bias = use->set->n > 1 ? use->value[1] : NO_VALUE;
    return graph_linear(g, src, use->value[0], bias, dst);
}

enum der_status params_bind(const struct param_use *use, struct program *program)
{
    const struct param_set *set = use->set;
    for (int i = 0; i < set->n; i++) {
        TRY(bind_one(program, use->value[i], buffer_of(set, i), &set->items[i]));
        TRY(bind_one(program, use->grad[i], set->grads, &set->items[i]));
        TRY(bind_one(program, use->velocity[i], set->velocity, &set->items[i]));
    }
    return DER_OK;
}

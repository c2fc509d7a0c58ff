#include "backend/cuda/cudnn_graph.h"

#include "backend/cuda/cudnn_describe.h"

enum { MAX_CONFIGS = 32 };
enum { OLD_FUSION_ENGINE = 7, CONVERTING_ENGINE = 40 };

struct plan {
    struct dnn_plan base;
    struct dnn_conv conv;
    cudnnBackendDescriptor_t handle;
    cudnnBackendDescriptor_t config; /* lives as long as the plan, and so does the graph */
    struct plan *next;
};

/* One convolution and what was found for it; without plans: no engine serves. */
struct entry {
    struct dnn_conv conv;
    struct plan *plan; /* NULL: none */
    struct entry *next;
};

struct dnn {
    struct der_ctx *ctx;
    const struct cuda_libs *libs;
    cudnnHandle_t handle;
    cudaStream_t stream; /* that the handle has */
    struct entry *entries;
    struct plan *plans;      /* all, to be freed */
    struct dnn_parts *parts; /* likewise */
};

static enum der_status check(struct dnn *dnn, cudnnStatus_t status, const char *what)
{
    if (status == CUDNN_STATUS_SUCCESS)
        return DER_OK;
    return ctx_fail(dnn->ctx, DER_DEVICE, "cuDNN: %s failed: %s", what,
                    dnn->libs->cudnnGetErrorString(status));
}

/* ---- engines -------------------------------------------------------------------------------------- */

/* Fills in what cuDNN says about the engine of a configuration. */
static bool describe_engine(struct dnn *dnn, cudnnBackendDescriptor_t config, struct dnn_plan *plan)
{
    const struct cuda_libs *libs = dnn->libs;
    cudnnBackendDescriptor_t engine;
    if (libs->cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine) !=
        CUDNN_STATUS_SUCCESS)
        return false;
    cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    cudnnBackendBehaviorNote_t behaviour[CUDNN_BEHAVIOR_NOTE_TYPE_COUNT];
    int64_t n = 0;
    int64_t n_notes = 0;
    int64_t n_behaviour = 0;
    const bool known =
        libs->cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE,
                                       CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &n,
                                       (void *)&engine) == CUDNN_STATUS_SUCCESS &&
        libs->cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1,
                                       &n, &plan->engine) == CUDNN_STATUS_SUCCESS &&
        libs->cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                       CUDNN_TYPE_NUMERICAL_NOTE, CUDNN_NUMERICAL_NOTE_TYPE_COUNT,
                                       &n_notes, notes) == CUDNN_STATUS_SUCCESS &&
        libs->cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE,
                                       CUDNN_TYPE_BEHAVIOR_NOTE, CUDNN_BEHAVIOR_NOTE_TYPE_COUNT,
                                       &n_behaviour, behaviour) == CUDNN_STATUS_SUCCESS;
    for (int64_t i = 0; known && i < n_notes; i++)
        plan->notes |= 1U << notes[i];
    for (int64_t i = 0; known && i < n_behaviour; i++)
        plan->is_compiled_now |= behaviour[i] == CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION;
    (void)libs->cudnnBackendDestroyDescriptor(engine);
    return known;
}

/* Whether the numbers an engine gives are those that were asked for. */
static bool is_allowed(const struct dnn_conv *conv, const struct dnn_plan *plan)
{
    unsigned forbidden = 1U << CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION |
                         1U << CUDNN_NUMERICAL_NOTE_FFT |
                         1U << CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13;
    if (conv->deterministic)
        forbidden |= 1U << CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC;
    if (conv->shape.type == CUDA_F32 && !conv->tensor_cores)
        forbidden |= 1U << CUDNN_NUMERICAL_NOTE_TENSOR_CORE |
                     1U << CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS |
                     1U << CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6;
    return (plan->notes & forbidden) == 0;
}

/* The heuristics sometimes put first what was never the fastest in the table of der_cuda_spike: the
 * older of two generators of kernels, and gradients of narrow layers by way of TF32. */
static bool is_second_choice(const struct dnn_conv *conv, const struct dnn_plan *plan)
{
    const bool is_fused = conv->compiled || conv->bias;
    return (is_fused && conv->pass == DNN_FORWARD && conv->shape.c % 32 == 0 &&
            plan->engine == OLD_FUSION_ENGINE) ||
           (conv->pass == DNN_D_WEIGHTS && conv->shape.type == CUDA_BF16 &&
            plan->engine == CONVERTING_ENGINE);
}

/* A plan for one engine configuration; *out stays NULL when it does not work for this shape. */
static enum der_status make_plan(struct dnn *dnn, const struct dnn_conv *conv, bool picky,
                                 cudnnBackendDescriptor_t config, struct plan **out)
{
    const struct cuda_libs *libs = dnn->libs;
    struct dnn_plan found = {0};
    *out = NULL;
    if (!describe_engine(dnn, config, &found) || !is_allowed(conv, &found) ||
        (picky && is_second_choice(conv, &found)))
        return DER_OK;
    cudnnBackendDescriptor_t handle;
    TRY(check(dnn,
              libs->cudnnBackendCreateDescriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &handle),
              "making a plan"));
    int64_t workspace = 0;
    int64_t n;
    const bool works =
        libs->cudnnBackendSetAttribute(handle, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE,
                                       1, &dnn->handle) == CUDNN_STATUS_SUCCESS &&
        libs->cudnnBackendSetAttribute(handle, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
                                       CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                                       (const void *)&config) == CUDNN_STATUS_SUCCESS &&
        libs->cudnnBackendFinalize(handle) == CUDNN_STATUS_SUCCESS &&
        libs->cudnnBackendGetAttribute(handle, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                       CUDNN_TYPE_INT64, 1, &n, &workspace) == CUDNN_STATUS_SUCCESS;
    struct plan *plan = works ? mem_zalloc(&dnn->ctx->mem, 1, sizeof *plan) : NULL;
    if (!plan) {
        (void)libs->cudnnBackendDestroyDescriptor(handle);
        return works ? ctx_nomem(dnn->ctx) : DER_OK;
    }
    found.workspace = (size_t)workspace;
    *plan = (struct plan){
        .base = found, .conv = *conv, .handle = handle, .config = config, .next = dnn->plans};
    dnn->plans = plan;
    *out = plan;
    return DER_OK;
}

/* What the heuristics propose, best first. */
static int propose(struct dnn_builder *b, cudnnBackendDescriptor_t g, cudnnBackendHeurMode_t mode,
                   cudnnBackendDescriptor_t configs[MAX_CONFIGS])
{
    const struct cuda_libs *libs = b->libs;
    int64_t n = 0;
    int n_made = 0;
    cudnnBackendDescriptor_t heuristics = dnn_add(b, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    dnn_set_descriptor(b, heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, g);
    dnn_set(b, heuristics, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    dnn_finalize(b, heuristics);
    for (; b->status == CUDNN_STATUS_SUCCESS && n_made < MAX_CONFIGS; n_made++)
        if (libs->cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR,
                                               &configs[n_made]) != CUDNN_STATUS_SUCCESS)
            break;
    if (n_made == 0 || libs->cudnnBackendGetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                                      CUDNN_TYPE_BACKEND_DESCRIPTOR, n_made, &n,
                                                      (void *)configs) != CUDNN_STATUS_SUCCESS)
        n = 0;
    for (int i = (int)n; i < n_made; i++)
        (void)libs->cudnnBackendDestroyDescriptor(configs[i]);
    return (int)n;
}

static enum der_status find_plans(struct dnn *dnn, const struct dnn_conv *conv, int max,
                                  struct plan **plans, int *n_plans)
{
    static const struct {
        cudnnBackendHeurMode_t mode;
        bool picky;
    } attempts[] = {
        {CUDNN_HEUR_MODE_A, true}, {CUDNN_HEUR_MODE_A, false}, {CUDNN_HEUR_MODE_FALLBACK, false}};
    enum der_status status = DER_OK;
    *n_plans = 0;
    struct dnn_parts *parts = mem_zalloc(&dnn->ctx->mem, 1, sizeof *parts);
    if (!parts)
        return ctx_nomem(dnn->ctx);
    struct dnn_builder b = {.libs = dnn->libs, .handle = dnn->handle, .parts = parts};
    cudnnBackendDescriptor_t g = dnn_describe(&b, conv);
    for (int attempt = 0; attempt < 3 && *n_plans == 0 && status == DER_OK; attempt++) {
        cudnnBackendDescriptor_t configs[MAX_CONFIGS];
        const cudnnStatus_t made = b.status;
        int n = propose(&b, g, attempts[attempt].mode, configs);
        b.status = made; /* heuristics that know no answer leave the others their turn */
        for (int i = 0; i < n; i++) {
            struct plan *plan = NULL;
            if (status == DER_OK && *n_plans < max)
                status = make_plan(dnn, conv, attempts[attempt].picky, configs[i], &plan);
            if (plan)
                plans[(*n_plans)++] = plan;
            else
                (void)dnn->libs->cudnnBackendDestroyDescriptor(configs[i]);
        }
    }
    parts->next = dnn->parts;
    dnn->parts = parts;
    return status;
}

/* ---- what others call -------------------------------------------------------------------------------- */

enum der_status dnn_open(struct der_ctx *ctx, const struct cuda_libs *libs, struct dnn **out)
{
    *out = NULL;
    struct dnn *dnn = mem_zalloc(&ctx->mem, 1, sizeof *dnn);
    if (!dnn)
        return ctx_nomem(ctx);
    dnn->ctx = ctx;
    dnn->libs = libs;
    enum der_status status = check(dnn, libs->cudnnCreate(&dnn->handle), "starting");
    if (status != DER_OK) {
        mem_free(&ctx->mem, dnn);
        return status;
    }
    *out = dnn;
    return DER_OK;
}

void dnn_close(struct dnn *dnn)
{
    if (!dnn)
        return;
    struct mem *mem = &dnn->ctx->mem;
    while (dnn->plans) {
        struct plan *next = dnn->plans->next;
        (void)dnn->libs->cudnnBackendDestroyDescriptor(dnn->plans->handle);
        (void)dnn->libs->cudnnBackendDestroyDescriptor(dnn->plans->config);
        mem_free(mem, dnn->plans);
        dnn->plans = next;
    }
    while (dnn->parts) {
        struct dnn_parts *next = dnn->parts->next;
        for (int i = dnn->parts->n - 1; i >= 0; i--)
            (void)dnn->libs->cudnnBackendDestroyDescriptor(dnn->parts->all[i]);
        mem_free(mem, dnn->parts);
        dnn->parts = next;
    }
    while (dnn->entries) {
        struct entry *next = dnn->entries->next;
        mem_free(mem, dnn->entries);
        dnn->entries = next;
    }
    (void)dnn->libs->cudnnDestroy(dnn->handle);
    mem_free(mem, dnn);
}

static bool is_same(const struct dnn_conv *a, const struct dnn_conv *b)
{
    const struct cuda_conv_shape *s = &a->shape;
    const struct cuda_conv_shape *t = &b->shape;
    return a->pass == b->pass && a->d_weights_type == b->d_weights_type &&
           a->tensor_cores == b->tensor_cores && a->deterministic == b->deterministic &&
           a->bias == b->bias && a->residual == b->residual && a->relu == b->relu &&
           a->compiled == b->compiled && s->n == t->n && s->c == t->c && s->h == t->h &&
           s->w == t->w && s->k == t->k && s->r == t->r && s->s == t->s && s->out_h == t->out_h &&
           s->out_w == t->out_w && s->stride == t->stride && s->pad == t->pad && s->type == t->type;
}

enum der_status dnn_find(struct dnn *dnn, const struct dnn_conv *conv, const struct dnn_plan **plan)
{
    *plan = NULL;
    struct entry *entry = dnn->entries;
    while (entry && !is_same(&entry->conv, conv))
        entry = entry->next;
    if (!entry) {
        int n;
        entry = mem_zalloc(&dnn->ctx->mem, 1, sizeof *entry);
        if (!entry)
            return ctx_nomem(dnn->ctx);
        entry->conv = *conv;
        enum der_status status = find_plans(dnn, conv, 1, &entry->plan, &n);
        if (status != DER_OK) {
            mem_free(&dnn->ctx->mem, entry);
            return status;
        }
        entry->next = dnn->entries;
        dnn->entries = entry;
    }
    *plan = entry->plan ? &entry->plan->base : NULL;
    return DER_OK;
}

enum der_status dnn_find_all(struct dnn *dnn, const struct dnn_conv *conv, int max,
                             const struct dnn_plan **plans, int *n)
{
    struct plan *found[MAX_CONFIGS];
    *n = 0;
    TRY(find_plans(dnn, conv, max < MAX_CONFIGS ? max : MAX_CONFIGS, found, n));
    for (int i = 0; i < *n; i++)
        plans[i] = &found[i]->base;
    return DER_OK;
}

static enum der_status execute(struct dnn *dnn, const struct plan *plan,
                               const struct dnn_pointers *p, cudnnBackendDescriptor_t pack)
{
    const struct cuda_libs *libs = dnn->libs;
    int64_t ids[5] = {ID_IMAGE, ID_WEIGHTS, ID_RESULT};
    void *data[5] = {p->image, p->weights, p->result};
    int n = 3;
    if (plan->conv.bias) {
        ids[n] = ID_BIAS;
        data[n++] = (void *)(uintptr_t)p->bias;
    }
    if (plan->conv.residual) {
        ids[n] = ID_RESIDUAL;
        data[n++] = p->residual;
    }
    TRY(check(dnn,
              libs->cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS,
                                             CUDNN_TYPE_INT64, n, ids),
              "naming operands"));
    TRY(check(dnn,
              libs->cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS,
                                             CUDNN_TYPE_VOID_PTR, n, (const void *)data),
              "passing operands"));
    TRY(check(dnn,
              libs->cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE,
                                             CUDNN_TYPE_VOID_PTR, 1, (const void *)&p->workspace),
              "passing a workspace"));
    TRY(check(dnn, libs->cudnnBackendFinalize(pack), "passing operands"));
    return check(dnn, libs->cudnnBackendExecute(dnn->handle, plan->handle, pack), "a convolution");
}

enum der_status dnn_run(struct dnn *dnn, const struct dnn_plan *plan,
                        const struct dnn_pointers *pointers, cudaStream_t stream)
{
    const struct cuda_libs *libs = dnn->libs;
    if (stream != dnn->stream) {
        TRY(check(dnn, libs->cudnnSetStream(dnn->handle, stream), "changing the stream"));
        dnn->stream = stream;
    }
    cudnnBackendDescriptor_t pack;
    TRY(check(dnn, libs->cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack),
              "passing operands"));
    enum der_status status = execute(dnn, (const struct plan *)plan, pointers, pack);
    (void)libs->cudnnBackendDestroyDescriptor(pack);
    return status;
}

#include "backend/cuda/cudnn_build.h"

enum { OLD_FUSION_ENGINE = 7, CONVERTING_ENGINE = 40 };

/* ---- engines -------------------------------------------------------------------------------------- */

/* Fills in what cuDNN says about the engine of a configuration. */
static bool describe_engine(const struct workshop *shop, cudnnBackendDescriptor_t config,
                            struct dnn_plan *plan)
{
    const struct cuda_libs *libs = shop->libs;
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

/* A plan for one engine configuration, or NULL when it does not work for this shape. */
static struct plan *make_plan(struct workshop *shop, const struct dnn_conv *conv, bool picky,
                              cudnnBackendDescriptor_t config)
{
    const struct cuda_libs *libs = shop->libs;
    struct dnn_plan found = {0};
    cudnnBackendDescriptor_t handle;
    if (shop->is_short || !describe_engine(shop, config, &found) || !is_allowed(conv, &found) ||
        (picky && is_second_choice(conv, &found)) ||
        libs->cudnnBackendCreateDescriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &handle) !=
            CUDNN_STATUS_SUCCESS)
        return NULL;
    int64_t workspace = 0;
    int64_t n;
    const bool works =
        libs->cudnnBackendSetAttribute(handle, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE,
                                       1, &shop->handle) == CUDNN_STATUS_SUCCESS &&
        libs->cudnnBackendSetAttribute(handle, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
                                       CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                                       (const void *)&config) == CUDNN_STATUS_SUCCESS &&
        libs->cudnnBackendFinalize(handle) == CUDNN_STATUS_SUCCESS &&
        libs->cudnnBackendGetAttribute(handle, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                       CUDNN_TYPE_INT64, 1, &n, &workspace) == CUDNN_STATUS_SUCCESS;
    struct plan *plan = works ? mem_zalloc(shop->mem, 1, sizeof *plan) : NULL;
    if (!plan) {
        shop->is_short = works;
        (void)libs->cudnnBackendDestroyDescriptor(handle);
        return NULL;
    }
    found.workspace = (size_t)workspace;
    *plan = (struct plan){
        .base = found, .conv = *conv, .handle = handle, .config = config, .next = shop->plans};
    shop->plans = plan;
    return plan;
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

int workshop_make(struct workshop *shop, const struct dnn_conv *conv, int max, struct plan **plans)
{
    static const struct {
        cudnnBackendHeurMode_t mode;
        bool picky;
    } attempts[] = {
        {CUDNN_HEUR_MODE_A, true}, {CUDNN_HEUR_MODE_A, false}, {CUDNN_HEUR_MODE_FALLBACK, false}};
    int n_plans = 0;
    struct dnn_parts *parts = mem_zalloc(shop->mem, 1, sizeof *parts);
    if (!parts) {
        shop->is_short = true;
        return 0;
    }
    struct dnn_builder b = {.libs = shop->libs, .handle = shop->handle, .parts = parts};
    cudnnBackendDescriptor_t g = dnn_describe(&b, conv);
    for (int attempt = 0; attempt < 3 && n_plans == 0 && !shop->is_short; attempt++) {
        cudnnBackendDescriptor_t configs[MAX_CONFIGS];
        const cudnnStatus_t made = b.status;
        int n = propose(&b, g, attempts[attempt].mode, configs);
        b.status = made; /* heuristics that know no answer leave the others their turn */
        for (int i = 0; i < n; i++) {
            struct plan *plan = NULL;
            if (n_plans < max)
                plan = make_plan(shop, conv, attempts[attempt].picky, configs[i]);
            if (plan)
                plans[n_plans++] = plan;
            else
                (void)shop->libs->cudnnBackendDestroyDescriptor(configs[i]);
        }
    }
    parts->next = shop->parts;
    shop->parts = parts;
    return n_plans;
}

void workshop_clear(struct workshop *shop)
{
    while (shop->plans) {
        struct plan *next = shop->plans->next;
        (void)shop->libs->cudnnBackendDestroyDescriptor(shop->plans->handle);
        (void)shop->libs->cudnnBackendDestroyDescriptor(shop->plans->config);
        mem_free(shop->mem, shop->plans);
        shop->plans = next;
    }
    while (shop->parts) {
        struct dnn_parts *next = shop->parts->next;
        for (int i = shop->parts->n - 1; i >= 0; i--)
            (void)shop->libs->cudnnBackendDestroyDescriptor(shop->parts->all[i]);
        mem_free(shop->mem, shop->parts);
        shop->parts = next;
    }
}

#include "backend/cuda/cudnn_build.h"

#include <stdio.h>

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

/* Whether the numbers an engine gives are those that were asked for. With the next function this decides which plan it
 * is: DNN_RECIPE counts their changes. */
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

/* ---- plans ---------------------------------------------------------------------------------------- */

/* Whether something went wrong that need not go wrong the next time, as when memory of the GPU is short. That an engine
 * does not serve is no such thing. */
static bool is_mishap(cudnnStatus_t status)
{
    return status != CUDNN_STATUS_SUCCESS &&
           CUDNN_STATUS_CATEGORY(status) != CUDNN_STATUS_NOT_SUPPORTED;
}

/* The last step of making a plan, in which kernels are compiled; and what it takes to run it. */
static cudnnStatus_t finalize(const struct workshop *shop, cudnnBackendDescriptor_t handle,
                              size_t *workspace)
{
    int64_t bytes = 0;
    int64_t n;
    cudnnStatus_t status = shop->libs->cudnnBackendFinalize(handle);
    if (status == CUDNN_STATUS_SUCCESS)
        status = shop->libs->cudnnBackendGetAttribute(
            handle, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &n, &bytes);
    *workspace = (size_t)bytes;
    return status;
}

/* Takes the descriptors of a draft over; NULL: memory is short. */
static struct plan *add_plan(struct workshop *shop, const struct plan *draft)
{
    struct plan *plan = mem_zalloc(shop->mem, 1, sizeof *plan);
    if (!plan) {
        shop->is_short = true;
        return NULL;
    }
    *plan = *draft;
    plan->next = shop->plans;
    shop->plans = plan;
    return plan;
}

/* A plan for one engine configuration, or NULL when it does not work for this shape. */
static struct plan *make_plan(struct workshop *shop, const struct dnn_conv *conv, bool picky,
                              cudnnBackendDescriptor_t config)
{
    const struct cuda_libs *libs = shop->libs;
    struct plan draft = {.conv = *conv, .config = config};
    if (shop->is_short || !describe_engine(shop, config, &draft.base) ||
        !is_allowed(conv, &draft.base) || (picky && is_second_choice(conv, &draft.base)) ||
        libs->cudnnBackendCreateDescriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR,
                                           &draft.handle) != CUDNN_STATUS_SUCCESS)
        return NULL;
    cudnnStatus_t status = libs->cudnnBackendSetAttribute(
        draft.handle, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &shop->handle);
    if (status == CUDNN_STATUS_SUCCESS)
        status =
            libs->cudnnBackendSetAttribute(draft.handle, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
                                           CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, (const void *)&config);
    if (status == CUDNN_STATUS_SUCCESS)
        status = finalize(shop, draft.handle, &draft.base.workspace);
    shop->had_mishap |= is_mishap(status);
    shop->counts.compiled +=
        draft.base.is_compiled_now && (status == CUDNN_STATUS_SUCCESS || is_mishap(status));
    struct plan *plan = status == CUDNN_STATUS_SUCCESS ? add_plan(shop, &draft) : NULL;
    if (!plan)
        (void)libs->cudnnBackendDestroyDescriptor(draft.handle);
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

/* ---- plans that are kept --------------------------------------------------------------------------- */

/* What is kept of a plan: a line of ours, and cuDNN's own text, which has the compiled kernel. */
#define KEPT_LINE "engine %lld notes %u workspace %zu\n"
enum { KEPT_LINE_MAX = 80 };

/* The way back from text, or NULL: cuDNN does not take it, or makes something else of it. */
static struct plan *restore(struct workshop *shop, const struct dnn_conv *conv, const char *text,
                            size_t size)
{
    const struct cuda_libs *libs = shop->libs;
    struct plan draft = {.conv = *conv, .base = {.is_compiled_now = true}};
    long long engine;
    size_t workspace;
    int line = 0;
    if (sscanf(text, KEPT_LINE "%n", &engine, &draft.base.notes, &workspace, &line) != 3 ||
        line == 0 ||
        libs->cudnnBackendCreateDescriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR,
                                           &draft.handle) != CUDNN_STATUS_SUCCESS)
        return NULL;
    draft.base.engine = engine;
    const bool works =
        libs->cudnnBackendSetAttribute(draft.handle, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION,
                                       CUDNN_TYPE_CHAR, (int64_t)size - line,
                                       text + line) == CUDNN_STATUS_SUCCESS &&
        libs->cudnnBackendSetAttribute(draft.handle, CUDNN_ATTR_EXECUTION_PLAN_HANDLE,
                                       CUDNN_TYPE_HANDLE, 1,
                                       &shop->handle) == CUDNN_STATUS_SUCCESS &&
        finalize(shop, draft.handle, &draft.base.workspace) == CUDNN_STATUS_SUCCESS &&
        draft.base.workspace == workspace;
    struct plan *plan = works ? add_plan(shop, &draft) : NULL;
    if (!plan)
        (void)libs->cudnnBackendDestroyDescriptor(draft.handle);
    return plan;
}

static struct plan *recall(struct workshop *shop, const struct dnn_conv *conv)
{
    struct file_bytes file = {0};
    size_t size;
    const char *text = dnn_keep_find(shop->keep, conv, &file, &size);
    struct plan *plan = text ? restore(shop, conv, text, size) : NULL;
    shop->counts.recalled += plan != NULL;
    file_bytes_free(shop->mem, &file);
    return plan;
}

/* Leaves the text with the plan. cuDNN need not have one; that, or short memory, is no failure. */
static void write_down(struct workshop *shop, struct plan *plan)
{
    const struct cuda_libs *libs = shop->libs;
    const cudnnBackendAttributeName_t name = CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION;
    int64_t room = 0;
    int64_t n = 0;
    if (libs->cudnnBackendGetAttribute(plan->handle, name, CUDNN_TYPE_CHAR, 0, &room, NULL) !=
            CUDNN_STATUS_SUCCESS ||
        room <= 0)
        return;
    char *text = mem_alloc(shop->mem, KEPT_LINE_MAX + (size_t)room, 1);
    if (!text)
        return;
    const int line = snprintf(text, KEPT_LINE_MAX, KEPT_LINE, (long long)plan->base.engine,
                              plan->base.notes, plan->base.workspace);
    if (libs->cudnnBackendGetAttribute(plan->handle, name, CUDNN_TYPE_CHAR, room, &n,
                                       text + line) != CUDNN_STATUS_SUCCESS ||
        n <= 0 || n > room) {
        mem_free(shop->mem, text);
        return;
    }
    plan->text = text;
    plan->text_size = (size_t)line + (size_t)n;
}

/* A plan is kept if it is the one that will be made the next time, too. */
struct plan *workshop_find(struct workshop *shop, const struct dnn_conv *conv)
{
    struct plan *plan = shop->keep ? recall(shop, conv) : NULL;
    if (plan)
        return plan;
    shop->had_mishap = false;
    (void)workshop_make(shop, conv, 1, &plan);
    if (plan && shop->keep && plan->base.is_compiled_now && !shop->had_mishap)
        write_down(shop, plan);
    return plan;
}

void workshop_clear(struct workshop *shop)
{
    while (shop->plans) {
        struct plan *next = shop->plans->next;
        (void)shop->libs->cudnnBackendDestroyDescriptor(shop->plans->handle);
        if (shop->plans->config)
            (void)shop->libs->cudnnBackendDestroyDescriptor(shop->plans->config);
        mem_free(shop->mem, shop->plans->text);
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

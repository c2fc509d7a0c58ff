#include "backend/cuda/cudnn_graph.h"

#include "backend/cuda/cudnn_build.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

enum { MAX_SHOPS = 16, DETAIL_CHARS = 200 };

/* One convolution and what was found for it. */
struct entry {
    struct dnn_conv conv;
    struct plan *plan; /* NULL: no engine serves */
    bool is_made;      /* while threads are at it */
    struct entry *next;
};

struct dnn {
    struct der_ctx *ctx;
    const struct cuda_libs *libs;
    cudaStream_t stream; /* that the handle of the first shop has */
    struct entry *entries;
    struct dnn_keep *keep;           /* plans on disk; NULL: none */
    struct workshop shop[MAX_SHOPS]; /* the first one is the owner's own and runs the plans */
    int n_shops;
};

static enum der_status check(struct dnn *dnn, cudnnStatus_t status, const char *what)
{
    char detail[DETAIL_CHARS] = "";
    if (status == CUDNN_STATUS_SUCCESS)
        return DER_OK;
    dnn->libs->cudnnGetLastErrorString(detail, sizeof detail);
    return ctx_fail(dnn->ctx, DER_DEVICE, "cuDNN: %s failed: %s (%s)", what,
                    dnn->libs->cudnnGetErrorString(status), detail);
}

/* ---- opening and closing ----------------------------------------------------------------------------- */

static cudnnStatus_t add_shop(struct dnn *dnn)
{
    struct workshop *shop = &dnn->shop[dnn->n_shops];
    *shop = (struct workshop){.mem = &dnn->ctx->mem, .libs = dnn->libs, .keep = dnn->keep};
    const cudnnStatus_t status = dnn->libs->cudnnCreate(&shop->handle);
    dnn->n_shops += status == CUDNN_STATUS_SUCCESS;
    return status;
}

enum der_status dnn_open(struct der_ctx *ctx, const struct cuda_libs *libs, struct dnn **out)
{
    *out = NULL;
    struct dnn *dnn = mem_zalloc(&ctx->mem, 1, sizeof *dnn);
    if (!dnn)
        return ctx_nomem(ctx);
    dnn->ctx = ctx;
    dnn->libs = libs;
    enum der_status status = dnn_keep_open(ctx, libs, &dnn->keep);
    if (status == DER_OK)
        status = check(dnn, add_shop(dnn), "starting");
    if (status != DER_OK) {
        dnn_close(dnn);
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
    for (int i = 0; i < dnn->n_shops; i++) {
        workshop_clear(&dnn->shop[i]);
        (void)dnn->libs->cudnnDestroy(dnn->shop[i].handle);
    }
    while (dnn->entries) {
        struct entry *next = dnn->entries->next;
        mem_free(mem, dnn->entries);
        dnn->entries = next;
    }
    dnn_keep_close(dnn->keep);
    mem_free(mem, dnn);
}

struct dnn_counts dnn_count(const struct dnn *dnn)
{
    struct dnn_counts counts = {0};
    for (int i = 0; i < dnn->n_shops; i++) {
        counts.compiled += dnn->shop[i].counts.compiled;
        counts.recalled += dnn->shop[i].counts.recalled;
    }
    return counts;
}

/* ---- what was found before --------------------------------------------------------------------------- */

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

static struct entry *find_entry(struct entry *entries, const struct dnn_conv *conv)
{
    while (entries && !is_same(&entries->conv, conv))
        entries = entries->next;
    return entries;
}

/* Brings the text of a new plan to the disk. Only for the thread that owns dnn, as what comes of it is told to the
 * context. */
static void put_away(struct dnn *dnn, struct plan *plan)
{
    if (!plan || !plan->text)
        return;
    dnn_keep_store(dnn->keep, &plan->conv, plan->text, plan->text_size);
    mem_free(&dnn->ctx->mem, plan->text);
    plan->text = NULL;
}

enum der_status dnn_find(struct dnn *dnn, const struct dnn_conv *conv, const struct dnn_plan **plan)
{
    *plan = NULL;
    struct entry *entry = find_entry(dnn->entries, conv);
    if (!entry) {
        struct workshop *shop = &dnn->shop[0];
        entry = mem_zalloc(&dnn->ctx->mem, 1, sizeof *entry);
        if (!entry)
            return ctx_nomem(dnn->ctx);
        entry->conv = *conv;
        shop->is_short = false;
        entry->plan = workshop_find(shop, conv);
        if (shop->is_short) {
            mem_free(&dnn->ctx->mem, entry);
            return ctx_nomem(dnn->ctx);
        }
        put_away(dnn, entry->plan);
        entry->next = dnn->entries;
        dnn->entries = entry;
    }
    *plan = entry->plan ? &entry->plan->base : NULL;
    return DER_OK;
}

enum der_status dnn_find_all(struct dnn *dnn, const struct dnn_conv *conv, int max,
                             const struct dnn_plan **plans, int *n)
{
    struct plan *found[MAX_CONFIGS] = {NULL};
    struct workshop *shop = &dnn->shop[0];
    shop->is_short = false;
    *n = workshop_make(shop, conv, max < MAX_CONFIGS ? max : MAX_CONFIGS, found);
    if (shop->is_short)
        return ctx_nomem(dnn->ctx);
    for (int i = 0; i < *n; i++)
        plans[i] = &found[i]->base;
    return DER_OK;
}

/* ---- many at once ---------------------------------------------------------------------------------------- */

/* What the threads share: a list of entries, taken one by one. */
struct order {
    struct entry **todo; /* [n] */
    int n;
    atomic_int next;
    int device;
};

struct maker {
    struct order *order;
    struct workshop *shop;
    pthread_t thread;
    bool is_running;
};

static void *maker_main(void *argument)
{
    const struct maker *maker = argument;
    struct order *order = maker->order;
    if (cudaSetDevice(order->device) != cudaSuccess)
        return NULL;
    maker->shop->is_short = false;
    for (;;) {
        int i = atomic_fetch_add(&order->next, 1);
        if (i >= order->n)
            return NULL;
        struct entry *entry = order->todo[i];
        entry->plan = workshop_find(maker->shop, &entry->conv);
        entry->is_made = !maker->shop->is_short;
    }
}

/* The calling thread works too; threads that the system refuses are done without. */
static void make_together(struct dnn *dnn, struct order *order)
{
    struct maker makers[MAX_SHOPS];
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are for the program's own thread */
    for (int i = 0; i < dnn->n_shops; i++) {
        makers[i] = (struct maker){.order = order, .shop = &dnn->shop[i]};
        if (i > 0)
            makers[i].is_running =
                pthread_create(&makers[i].thread, NULL, maker_main, &makers[i]) == 0;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    (void)maker_main(&makers[0]);
    for (int i = 1; i < dnn->n_shops; i++)
        if (makers[i].is_running)
            (void)pthread_join(makers[i].thread, NULL);
}

/* What could not be made is tried again by dnn_find, which can say what is wrong. */
static void keep_made(struct dnn *dnn, const struct order *order)
{
    for (int i = 0; i < order->n; i++) {
        struct entry *entry = order->todo[i];
        if (!entry->is_made) {
            mem_free(&dnn->ctx->mem, entry);
            continue;
        }
        put_away(dnn, entry->plan);
        entry->next = dnn->entries;
        dnn->entries = entry;
    }
}

static bool is_new(const struct dnn *dnn, const struct order *order, const struct dnn_conv *conv)
{
    for (int i = 0; i < order->n; i++)
        if (is_same(&order->todo[i]->conv, conv))
            return false;
    return !find_entry(dnn->entries, conv);
}

void dnn_prefetch(struct dnn *dnn, const struct dnn_conv *convs, int n)
{
    struct mem *mem = &dnn->ctx->mem;
    const int n_shops = dnn->ctx->threads < MAX_SHOPS ? dnn->ctx->threads : MAX_SHOPS;
    struct order order = {.todo = mem_alloc(mem, (size_t)n, sizeof *order.todo)};
    if (n_shops < 2 || !order.todo || cudaGetDevice(&order.device) != cudaSuccess) {
        mem_free(mem, order.todo);
        return;
    }
    atomic_init(&order.next, 0);
    for (int i = 0; i < n; i++) {
        struct entry *entry =
            is_new(dnn, &order, &convs[i]) ? mem_zalloc(mem, 1, sizeof *entry) : NULL;
        if (!entry)
            continue;
        entry->conv = convs[i];
        order.todo[order.n++] = entry;
    }
    while (order.n > 1 && dnn->n_shops < n_shops && dnn->n_shops < order.n)
        if (add_shop(dnn) != CUDNN_STATUS_SUCCESS)
            break;
    if (order.n > 1)
        make_together(dnn, &order);
    keep_made(dnn, &order);
    mem_free(mem, order.todo);
}

/* ---- running ------------------------------------------------------------------------------------------------ */

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
    return check(dnn, libs->cudnnBackendExecute(dnn->shop[0].handle, plan->handle, pack),
                 "a convolution");
}

enum der_status dnn_run(struct dnn *dnn, const struct dnn_plan *plan,
                        const struct dnn_pointers *pointers, cudaStream_t stream)
{
    const struct cuda_libs *libs = dnn->libs;
    if (stream != dnn->stream) {
        TRY(check(dnn, libs->cudnnSetStream(dnn->shop[0].handle, stream), "changing the stream"));
        dnn->stream = stream;
    }
    cudnnBackendDescriptor_t pack;
    TRY(check(dnn, libs->cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack),
              "passing operands"));
    enum der_status status = execute(dnn, (const struct plan *)plan, pointers, pack);
    (void)libs->cudnnBackendDestroyDescriptor(pack);
    return status;
}

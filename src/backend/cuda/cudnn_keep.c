#include "backend/cuda/cudnn_keep.h"

#include "backend/cuda/cuda.h"
#include "io/plan_cache.h"

#include <der/version.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct dnn_keep {
    struct der_ctx *ctx;
    struct plan_cache *cache;
    struct dnn_machine machine;
    bool is_closed; /* storing has failed: it is not tried again */
};

enum der_status dnn_machine_ask(struct der_ctx *ctx, const struct cuda_libs *libs,
                                struct dnn_machine *out)
{
    static const char WHAT[] = "asking what the GPU is";
    int device;
    struct cudaDeviceProp gpu;
    *out = (struct dnn_machine){.cudnn = libs->cudnnGetVersion()};
    TRY(cuda_check(ctx, cudaDriverGetVersion(&out->driver), WHAT));
    TRY(cuda_check(ctx, cudaRuntimeGetVersion(&out->runtime), WHAT));
    TRY(cuda_check(ctx, cudaGetDevice(&device), WHAT));
    TRY(cuda_check(ctx, cudaGetDeviceProperties(&gpu, device), WHAT));
    (void)snprintf(out->gpu, sizeof out->gpu, "%s", gpu.name);
    out->major = gpu.major;
    out->minor = gpu.minor;
    out->multiprocessors = gpu.multiProcessorCount;
    return DER_OK;
}

void dnn_key(char key[DNN_KEY_CHARS], const struct dnn_machine *machine,
             const struct dnn_conv *conv)
{
    static const char *const passes[] = {
        [DNN_FORWARD] = "forward", [DNN_D_SRC] = "d_src", [DNN_D_WEIGHTS] = "d_weights"};
    static const char *const types[] = {
        [CUDA_F32] = "f32", [CUDA_BF16] = "bf16", [CUDA_I32] = "i32"};
    const struct cuda_conv_shape *s = &conv->shape;
    (void)snprintf(key, DNN_KEY_CHARS,
                   "der %d.%d.%d recipe %d; cuDNN %zu, CUDA driver %d, runtime %d; %s, compute "
                   "capability %d.%d, "
                   "%d multiprocessors; %s of %s, n %" PRId64 " c %" PRId64 " h %" PRId64
                   " w %" PRId64 " k %" PRId64 " r %" PRId64 " s %" PRId64 " out_h %" PRId64
                   " out_w %" PRId64 " stride %" PRId64 " pad %" PRId64
                   "; d_weights %s, tensor_cores %d, deterministic %d, "
                   "bias %d, residual %d, relu %d, compiled %d",
                   DER_VERSION_MAJOR, DER_VERSION_MINOR, DER_VERSION_PATCH, DNN_RECIPE,
                   machine->cudnn, machine->driver, machine->runtime, machine->gpu, machine->major,
                   machine->minor, machine->multiprocessors, passes[conv->pass], types[s->type],
                   s->n, s->c, s->h, s->w, s->k, s->r, s->s, s->out_h, s->out_w, s->stride, s->pad,
                   types[conv->d_weights_type], conv->tensor_cores, conv->deterministic, conv->bias,
                   conv->residual, conv->relu, conv->compiled);
}

enum der_status dnn_keep_open(struct der_ctx *ctx, const struct cuda_libs *libs,
                              struct dnn_keep **out)
{
    *out = NULL;
    if (!ctx->cache_dir)
        return DER_OK;
    struct dnn_keep *keep = mem_zalloc(&ctx->mem, 1, sizeof *keep);
    if (!keep)
        return ctx_nomem(ctx);
    keep->ctx = ctx;
    enum der_status status = dnn_machine_ask(ctx, libs, &keep->machine);
    if (status == DER_OK)
        status = plan_cache_open(ctx, NULL, ctx->cache_dir, &PLAN_CACHE_LIMITS, &keep->cache);
    if (status != DER_OK) {
        dnn_keep_close(keep);
        return status;
    }
    *out = keep;
    return DER_OK;
}

void dnn_keep_close(struct dnn_keep *keep)
{
    if (!keep)
        return;
    struct mem *mem = &keep->ctx->mem;
    plan_cache_close(keep->cache);
    mem_free(mem, keep);
}

const char *dnn_keep_find(const struct dnn_keep *keep, const struct dnn_conv *conv,
                          struct file_bytes *file, size_t *size)
{
    char key[DNN_KEY_CHARS];
    dnn_key(key, &keep->machine, conv);
    return plan_cache_find(keep->cache, key, file, size);
}

void dnn_keep_store(struct dnn_keep *keep, const struct dnn_conv *conv, const char *text,
                    size_t size)
{
    struct der_ctx *ctx = keep->ctx;
    char key[DNN_KEY_CHARS];
    char error[CTX_ERROR_MAX];
    if (keep->is_closed)
        return;
    dnn_key(key, &keep->machine, conv);
    memcpy(error, ctx->error, sizeof error);
    if (plan_cache_store(keep->cache, key, text, size) == DER_OK)
        return;
    keep->is_closed = true;
    ctx_log(ctx, DER_LOG_INFO, "kernels of convolutions are not kept for the next time: %s",
            ctx->error);
    memcpy(ctx->error, error, sizeof error); /* nobody has failed */
}

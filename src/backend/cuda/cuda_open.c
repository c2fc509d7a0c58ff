/*
 * The cuda back end: a device, its streams, the vendor's libraries, and the table that makes it a
 * back end.
 */
#include "backend/cuda/cuda.h"

#include <stdio.h>

extern const struct backend_ops cuda_backend;

enum { OLDEST_MAJOR = 8 }; /* compute capability 8.0: bf16 on tensor cores */

enum der_status cuda_enter(const struct cuda_backend *cuda)
{
    return cuda_check(cuda->base.ctx, cudaSetDevice(cuda->device), "choosing the GPU");
}

/* Whether there is a GPU that this code can run on, and if not, why. */
static enum der_status find_device(struct der_ctx *ctx, int device)
{
    int n = 0;
    int major = 0;
    cudaError_t error = cudaGetDeviceCount(&n);
    if (error == cudaErrorInsufficientDriver || error == cudaErrorSystemDriverMismatch)
        return ctx_fail(
            ctx, DER_UNSUPPORTED,
            "back end 'cuda' finds no NVIDIA driver, or one that is too old for CUDA %d",
            CUDART_VERSION / 1000);
    if (error == cudaErrorNoDevice || (error == cudaSuccess && n == 0))
        return ctx_fail(ctx, DER_UNSUPPORTED, "back end 'cuda' finds no NVIDIA GPU");
    TRY(cuda_check(ctx, error, "looking for GPUs"));
    if (device < 0 || device >= n)
        return ctx_fail(ctx, DER_ARG, "there is no GPU %d: they are numbered 0 to %d", device,
                        n - 1);
    TRY(cuda_check(ctx, cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device),
                   "asking the GPU what it can do"));
    if (major < OLDEST_MAJOR)
        return ctx_fail(ctx, DER_UNSUPPORTED,
                        "GPU %d has compute capability %d.x, back end 'cuda' needs %d.0", device,
                        major, OLDEST_MAJOR);
    return DER_OK;
}

static void cuda_close(struct backend *be)
{
    struct cuda_backend *cuda = (struct cuda_backend *)be;
    if (cuda->stream)
        (void)cudaStreamSynchronize(cuda->stream);
    dnn_close(cuda->dnn);
    if (cuda->gemm)
        (void)cuda->libs.cublasLtDestroy(cuda->gemm);
    for (int i = 0; i < CUDA_STAGES; i++) {
        if (cuda->stage[i].done)
            (void)cudaEventDestroy(cuda->stage[i].done);
        if (cuda->stage[i].data)
            (void)cudaFreeHost(cuda->stage[i].data);
    }
    for (int i = 0; i < CUDA_SIDE_STREAMS; i++) {
        if (cuda->side[i])
            (void)cudaStreamDestroy(cuda->side[i]);
        if (cuda->join[i])
            (void)cudaEventDestroy(cuda->join[i]);
    }
    cudaEvent_t events[] = {cuda->fork, cuda->order};
    for (int i = 0; i < 2; i++)
        if (events[i])
            (void)cudaEventDestroy(events[i]);
    if (cuda->stream)
        (void)cudaStreamDestroy(cuda->stream);
    for (int lane = 0; lane < N_LANES; lane++)
        if (cuda->lane[lane])
            (void)cudaStreamDestroy(cuda->lane[lane]);
    mem_free(&be->ctx->mem, cuda);
}

static enum der_status make_streams(struct cuda_backend *cuda)
{
    struct der_ctx *ctx = cuda->base.ctx;
    static const char WHAT[] = "making a stream";
    int low;
    int high; /* what others wait for goes before what they do not */
    TRY(cuda_check(ctx, cudaDeviceGetStreamPriorityRange(&low, &high), WHAT));
    const struct {
        cudaStream_t *stream;
        int priority;
    } streams[N_LANES] = {[LANE_MAIN] = {&cuda->stream, high},
                          [LANE_BRANCH] = {&cuda->lane[LANE_BRANCH], high},
                          [LANE_SINK] = {&cuda->lane[LANE_SINK], low}};
    for (int i = 0; i < N_LANES; i++)
        TRY(cuda_check(ctx,
                       cudaStreamCreateWithPriority(streams[i].stream, cudaStreamNonBlocking,
                                                    streams[i].priority),
                       WHAT));
    TRY(cuda_check(ctx, cudaEventCreateWithFlags(&cuda->fork, cudaEventDisableTiming), WHAT));
    TRY(cuda_check(ctx, cudaEventCreateWithFlags(&cuda->order, cudaEventDisableTiming), WHAT));
    for (int i = 0; i < CUDA_SIDE_STREAMS; i++) {
        TRY(cuda_check(ctx, cudaStreamCreateWithFlags(&cuda->side[i], cudaStreamNonBlocking),
                       WHAT));
        TRY(cuda_check(ctx, cudaEventCreateWithFlags(&cuda->join[i], cudaEventDisableTiming),
                       WHAT));
    }
    return DER_OK;
}

static enum der_status make_stages(struct cuda_backend *cuda)
{
    static const char WHAT[] = "taking pinned memory of the host";
    for (int i = 0; i < CUDA_STAGES; i++) {
        struct cuda_stage *stage = &cuda->stage[i];
        TRY(cuda_check(cuda->base.ctx, cudaMallocHost(&stage->data, CUDA_STAGE_BYTES), WHAT));
        TRY(cuda_check(cuda->base.ctx,
                       cudaEventCreateWithFlags(&stage->done, cudaEventDisableTiming), WHAT));
    }
    return DER_OK;
}

static enum der_status start(struct cuda_backend *cuda)
{
    struct der_ctx *ctx = cuda->base.ctx;
    int shared;
    TRY(cuda_libs_load(ctx, &cuda->libs));
    TRY(cuda_enter(cuda));
    TRY(cuda_check(
        ctx, cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, cuda->device),
        "asking the GPU for its shared memory"));
    cuda->shared = (size_t)shared;
    if (cuda->strips)
        TRY(cuda_strip_runs_on(ctx, cuda->device, &cuda->strips));
    cuda->sheets = cuda->sheets && cuda->strips;
    TRY(make_streams(cuda));
    TRY(make_stages(cuda));
    TRY(dnn_open(ctx, &cuda->libs, &cuda->dnn));
    if (cuda->libs.cublasLtCreate(&cuda->gemm) != CUBLAS_STATUS_SUCCESS) {
        cuda->gemm = NULL;
        return ctx_fail(ctx, DER_DEVICE, "cuBLASLt does not start");
    }
    return DER_OK;
}

static enum der_status cuda_open(struct der_ctx *ctx, const struct backend_options *options,
                                 struct backend **out)
{
    *out = NULL;
    TRY(find_device(ctx, options->device));
    struct cuda_backend *cuda = mem_zalloc(&ctx->mem, 1, sizeof *cuda);
    if (!cuda)
        return ctx_nomem(ctx);
    cuda->base = (struct backend){
        .ops = &cuda_backend, .ctx = ctx, .is_coarse = options->precision == PRECISION_BF16};
    cuda->device = options->device;
    cuda->precision = options->precision;
    cuda->deterministic = options->deterministic;
    cuda->weights_apart = options->tuning.weights_apart;
    cuda->gradients_apart = options->tuning.gradients_apart;
    cuda->statistics_apart = options->tuning.statistics_apart;
    cuda->slopes_apart = options->tuning.slopes_apart;
    cuda->norm_in_passes = options->tuning.norm_in_passes;
    cuda->zeros_stored = options->tuning.zeros_stored;
    cuda->strips = !options->tuning.without_strips;
    cuda->sheets = !options->tuning.without_sheets;
    cuda->chains = !options->tuning.without_chains;
    cuda->thin_most = options->tuning.thin_most > 0 ? options->tuning.thin_most : CUDA_THIN_MOST;
    cuda->n_side = options->tuning.side_streams;
    if (cuda->n_side < 1 || cuda->n_side > CUDA_SIDE_STREAMS)
        cuda->n_side = CUDA_SIDE_STREAMS;
    enum der_status status = start(cuda);
    if (status != DER_OK) {
        cuda_close(&cuda->base);
        return status;
    }
    *out = &cuda->base;
    return DER_OK;
}

static bool cuda_is_usable(void)
{
    int n = 0;
    int major = 0;
    return cudaGetDeviceCount(&n) == cudaSuccess && n > 0 &&
           cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0) == cudaSuccess &&
           major >= OLDEST_MAJOR;
}

const struct backend_ops cuda_backend = {
    .name = "cuda",
    .is_device = true,
    .is_usable = cuda_is_usable,
    .open = cuda_open,
    .close = cuda_close,
    .buffer_new = cuda_buffer_new,
    .buffer_free = cuda_buffer_free,
    .write = cuda_write,
    .read = cuda_read,
    .compile = cuda_compile,
    .program_free = cuda_program_free,
    .bind = cuda_bind,
    .run = cuda_run,
    .sequence_drop = cuda_sequence_drop,
    .sync = cuda_sync,
};

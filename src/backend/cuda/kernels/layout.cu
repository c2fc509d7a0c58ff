/*
 * Between what the caller sees, dense [n, c, h, w] and [k, c, r, s] in f32, and what convolutions
 * want: channels last, in eights, perhaps in bf16, perhaps with a batch norm folded in.
 */
#include "backend/cuda/kernels/device.cuh"

/* ---- images --------------------------------------------------------------------------------- */

__device__ static void set(float *dst, float x)
{
    *dst = x;
}

__device__ static void set(bf16 *dst, float x)
{
    *dst = __float2bfloat16(x);
}

__device__ static void set(int32_t *dst, int32_t x)
{
    *dst = x;
}

__device__ static void set_outside(float *dst, const bf16 *x)
{
    *dst = __bfloat162float(*x);
}

__device__ static void set_outside(float *dst, const float *x)
{
    *dst = *x;
}

__device__ static void set_outside(int32_t *dst, const int32_t *x)
{
    *dst = *x;
}

/* A thread takes eight channels of one pixel: neighbours read neighbouring pixels of a plane. */
template <typename T, typename S>
__global__ void import_kernel(T *dst, const S *src, const struct cuda_image image)
{
    const int64_t pixel = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (pixel >= image.n * image.area)
        return;
    const int64_t n = pixel / image.area;
    const int64_t at = pixel % image.area;
    const int64_t first = (int64_t)blockIdx.y * CUDA_CHANNELS;
#pragma unroll
    for (int64_t c = first; c < first + CUDA_CHANNELS; c++) {
        const S x = c < image.c ? src[(n * image.c + c) * image.area + at] : S(0);
        set(&dst[pixel * image.stored + c], x);
    }
}

template <typename T, typename S>
__global__ void export_kernel(S *dst, const T *src, const struct cuda_image image)
{
    const int64_t count = image.n * image.c * image.area;
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count)
        return;
    const int64_t at = i % image.area;
    const int64_t c = i / image.area % image.c;
    const int64_t n = i / image.area / image.c;
    set_outside(&dst[i], &src[(n * image.area + at) * image.stored + c]);
}

cudaError_t cuda_import_image(void *dst, const void *src, const struct cuda_image *image,
                              cudaStream_t stream)
{
    const dim3 grid((unsigned)((image->n * image->area + 127) / 128),
                    (unsigned)(image->stored / CUDA_CHANNELS));
    if (image->type == CUDA_BF16)
        import_kernel<<<grid, 128, 0, stream>>>((bf16 *)dst, (const float *)src, *image);
    else if (image->type == CUDA_F32)
        import_kernel<<<grid, 128, 0, stream>>>((float *)dst, (const float *)src, *image);
    else
        import_kernel<<<grid, 128, 0, stream>>>((int32_t *)dst, (const int32_t *)src, *image);
    return cudaGetLastError();
}

cudaError_t cuda_export_image(void *dst, const void *src, const struct cuda_image *image,
                              cudaStream_t stream)
{
    const unsigned blocks = (unsigned)((image->n * image->c * image->area + 127) / 128);
    if (image->type == CUDA_BF16)
        export_kernel<<<blocks, 128, 0, stream>>>((float *)dst, (const bf16 *)src, *image);
    else if (image->type == CUDA_F32)
        export_kernel<<<blocks, 128, 0, stream>>>((float *)dst, (const float *)src, *image);
    else
        export_kernel<<<blocks, 128, 0, stream>>>((int32_t *)dst, (const int32_t *)src, *image);
    return cudaGetLastError();
}

/* ---- weights -------------------------------------------------------------------------------- */

enum { ROOM = 4608 }; /* floats of shared memory: 512 channels of a 3x3 kernel */

/* A block for every row k of every item, some channels at a time through shared memory, so that both sides are read
 * and written in order. */
template <typename T>
__global__ void derive_kernel(const struct cuda_weights *weights)
{
    __shared__ float room[ROOM];
    const struct cuda_weights w = weights[blockIdx.y];
    const int64_t k = blockIdx.x;
    if (k >= w.k_stored)
        return;
    const bool real = k < w.k;
    float scale = 1.0f;
    if (w.gamma && real)
        scale = (float)((double)w.gamma[k] / sqrt((double)w.var[k] + (double)w.eps));
    if (w.gamma && threadIdx.x == 0)
        w.bias[k] = real ? (float)((double)w.beta[k] - (double)w.mean[k] * (double)scale) : 0.0f;

    const int area = (int)w.area;
    const int step = ROOM / area > 0 ? ROOM / area : 1;
    T *dst = (T *)w.dst + k * area * w.c_stored;
    for (int first = 0; first < (int)w.c_stored; first += step) {
        const int here = (int)w.c_stored - first < step ? (int)w.c_stored - first : step;
        __syncthreads();
        const int there = real ? ((int)w.c - first) * area : 0; /* numbers that exist */
        for (int i = threadIdx.x; i < here * area; i += blockDim.x)
            room[i] = i < there ? scale * w.src[k * w.c * area + first * area + i] : 0.0f;
        __syncthreads();
        for (int at = 0; at < area; at++)
            for (int c = threadIdx.x; c < here; c += blockDim.x)
                dst[(int64_t)at * w.c_stored + first + c] = from_float<T>(room[c * area + at]);
    }
}

template <typename T>
__global__ void export_weights_kernel(float *dst, const T *src, const struct cuda_weights w)
{
    __shared__ float room[ROOM];
    const int64_t k = blockIdx.x;
    const int area = (int)w.area;
    const int step = ROOM / area > 0 ? ROOM / area : 1;
    src += k * area * w.c_stored;
    dst += k * area * w.c;
    for (int first = 0; first < (int)w.c; first += step) {
        const int here = (int)w.c - first < step ? (int)w.c - first : step;
        __syncthreads();
        for (int at = 0; at < area; at++)
            for (int c = threadIdx.x; c < here; c += blockDim.x)
                room[c * area + at] = to_float(src[(int64_t)at * w.c_stored + first + c]);
        __syncthreads();
        for (int i = threadIdx.x; i < here * area; i += blockDim.x)
            dst[first * area + i] = room[i];
    }
}

cudaError_t cuda_derive_weights(const struct cuda_weights *weights, int n, int64_t most_rows,
                                enum cuda_type type, cudaStream_t stream)
{
    const dim3 grid((unsigned)most_rows, (unsigned)n);
    if (type == CUDA_BF16)
        derive_kernel<bf16><<<grid, BLOCK_THREADS, 0, stream>>>(weights);
    else
        derive_kernel<float><<<grid, BLOCK_THREADS, 0, stream>>>(weights);
    return cudaGetLastError();
}

cudaError_t cuda_export_weights(float *dst, const void *src, enum cuda_type type,
                                const struct cuda_weights *weights, cudaStream_t stream)
{
    const unsigned blocks = (unsigned)weights->k;
    if (type == CUDA_BF16)
        export_weights_kernel<<<blocks, BLOCK_THREADS, 0, stream>>>(dst, (const bf16 *)src,
                                                                    *weights);
    else
        export_weights_kernel<<<blocks, BLOCK_THREADS, 0, stream>>>(dst, (const float *)src,
                                                                    *weights);
    return cudaGetLastError();
}

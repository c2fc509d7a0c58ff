/*
 * Any convolution, one thread for every number that is written.
 *
 * It serves where cuDNN has no engine for a shape: slow, but right for all of them.
 */
#include "backend/cuda/kernels/device.cuh"

template <typename T>
__global__ void conv_kernel(const struct cuda_conv_shape shape, T *dst, const T *src,
                            const T *weights)
{
    const int64_t count = shape.n * shape.out_h * shape.out_w * shape.k;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count;
         i += (int64_t)gridDim.x * blockDim.x) {
        const int64_t k = i % shape.k;
        const int64_t out_w = i / shape.k % shape.out_w;
        const int64_t out_h = i / shape.k / shape.out_w % shape.out_h;
        const int64_t n = i / shape.k / shape.out_w / shape.out_h;
        typename accumulator<T>::type sum = 0;
        for (int64_t r = 0; r < shape.r; r++) {
            const int64_t h = out_h * shape.stride - shape.pad + r;
            for (int64_t s = 0; s < shape.s && h >= 0 && h < shape.h; s++) {
                const int64_t w = out_w * shape.stride - shape.pad + s;
                if (w < 0 || w >= shape.w)
                    continue;
                const T *x = src + ((n * shape.h + h) * shape.w + w) * shape.c;
                const T *y = weights + ((k * shape.r + r) * shape.s + s) * shape.c;
                for (int64_t c = 0; c < shape.c; c++)
                    sum += to_float(x[c]) * (typename accumulator<T>::type)to_float(y[c]);
            }
        }
        dst[i] = from_float<T>((float)sum);
    }
}

/* Where output position `at` was stride times, plus kernel position, minus pad: -1 if nowhere. */
__device__ static int64_t output_of(int64_t at, int64_t kernel, int64_t size,
                                    const struct cuda_conv_shape &shape)
{
    const int64_t scaled = at + shape.pad - kernel;
    if (scaled < 0 || scaled % shape.stride != 0 || scaled / shape.stride >= size)
        return -1;
    return scaled / shape.stride;
}

template <typename T>
__global__ void d_src_kernel(const struct cuda_conv_shape shape, T *d_src, const T *d_dst,
                             const T *weights)
{
    const int64_t count = shape.n * shape.h * shape.w * shape.c;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count;
         i += (int64_t)gridDim.x * blockDim.x) {
        const int64_t c = i % shape.c;
        const int64_t w = i / shape.c % shape.w;
        const int64_t h = i / shape.c / shape.w % shape.h;
        const int64_t n = i / shape.c / shape.w / shape.h;
        typename accumulator<T>::type sum = 0;
        for (int64_t r = 0; r < shape.r; r++)
            for (int64_t s = 0; s < shape.s; s++) {
                const int64_t out_h = output_of(h, r, shape.out_h, shape);
                const int64_t out_w = output_of(w, s, shape.out_w, shape);
                if (out_h < 0 || out_w < 0)
                    continue;
                const T *g = d_dst + ((n * shape.out_h + out_h) * shape.out_w + out_w) * shape.k;
                const T *y = weights + (r * shape.s + s) * shape.c + c;
                for (int64_t k = 0; k < shape.k; k++)
                    sum += to_float(g[k]) * (typename accumulator<T>::type)to_float(
                                                y[k * shape.r * shape.s * shape.c]);
            }
        d_src[i] = from_float<T>((float)sum);
    }
}

template <typename T>
__global__ void d_weights_kernel(const struct cuda_conv_shape shape, float *d_weights, const T *src,
                                 const T *d_dst)
{
    const int64_t count = shape.k * shape.r * shape.s * shape.c;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count;
         i += (int64_t)gridDim.x * blockDim.x) {
        const int64_t c = i % shape.c;
        const int64_t s = i / shape.c % shape.s;
        const int64_t r = i / shape.c / shape.s % shape.r;
        const int64_t k = i / shape.c / shape.s / shape.r;
        double sum = 0.0;
        for (int64_t n = 0; n < shape.n; n++)
            for (int64_t out_h = 0; out_h < shape.out_h; out_h++) {
                const int64_t h = out_h * shape.stride - shape.pad + r;
                for (int64_t out_w = 0; out_w < shape.out_w && h >= 0 && h < shape.h; out_w++) {
                    const int64_t w = out_w * shape.stride - shape.pad + s;
                    if (w < 0 || w >= shape.w)
                        continue;
                    const int64_t from = ((n * shape.h + h) * shape.w + w) * shape.c + c;
                    const int64_t to = ((n * shape.out_h + out_h) * shape.out_w + out_w) * shape.k + k;
                    sum += (double)to_float(src[from]) * (double)to_float(d_dst[to]);
                }
            }
        d_weights[i] = (float)sum;
    }
}

cudaError_t cuda_conv(const struct cuda_conv_shape *shape, void *dst, const void *src,
                      const void *weights, cudaStream_t stream)
{
    const unsigned blocks =
        blocks_for(shape->n * shape->out_h * shape->out_w * shape->k, BLOCK_THREADS);
    if (shape->type == CUDA_BF16)
        conv_kernel<<<blocks, BLOCK_THREADS, 0, stream>>>(*shape, (bf16 *)dst, (const bf16 *)src,
                                                          (const bf16 *)weights);
    else
        conv_kernel<<<blocks, BLOCK_THREADS, 0, stream>>>(*shape, (float *)dst, (const float *)src,
                                                          (const float *)weights);
    return cudaGetLastError();
}

cudaError_t cuda_conv_d_src(const struct cuda_conv_shape *shape, void *d_src, const void *d_dst,
                            const void *weights, cudaStream_t stream)
{
    const unsigned blocks = blocks_for(shape->n * shape->h * shape->w * shape->c, BLOCK_THREADS);
    if (shape->type == CUDA_BF16)
        d_src_kernel<<<blocks, BLOCK_THREADS, 0, stream>>>(
            *shape, (bf16 *)d_src, (const bf16 *)d_dst, (const bf16 *)weights);
    else
        d_src_kernel<<<blocks, BLOCK_THREADS, 0, stream>>>(
            *shape, (float *)d_src, (const float *)d_dst, (const float *)weights);
    return cudaGetLastError();
}

cudaError_t cuda_conv_d_weights(const struct cuda_conv_shape *shape, float *d_weights,
                                const void *src, const void *d_dst, cudaStream_t stream)
{
    const unsigned blocks = blocks_for(shape->k * shape->r * shape->s * shape->c, BLOCK_THREADS);
    if (shape->type == CUDA_BF16)
        d_weights_kernel<<<blocks, BLOCK_THREADS, 0, stream>>>(*shape, d_weights, (const bf16 *)src,
                                                               (const bf16 *)d_dst);
    else
        d_weights_kernel<<<blocks, BLOCK_THREADS, 0, stream>>>(
            *shape, d_weights, (const float *)src, (const float *)d_dst);
    return cudaGetLastError();
}

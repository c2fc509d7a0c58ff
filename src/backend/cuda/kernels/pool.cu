/*
 * Pooling over images [n, h, w, channels]: a thread for every number that is written.
 */
#include "backend/cuda/kernels/device.cuh"

/* Position of number i of an array [n, h, w, channels]. */
struct pixel {
    int64_t n, h, w, c;
};

__device__ static struct pixel pixel_of(int64_t i, int64_t h, int64_t w, int64_t channels)
{
    struct pixel at;
    at.c = i % channels;
    i /= channels;
    at.w = i % w;
    i /= w;
    at.h = i % h;
    at.n = i / h;
    return at;
}

template <typename T>
__global__ void maxpool_kernel(const struct cuda_pool pool, T *dst, int32_t *index, const T *src)
{
    const int64_t count = pool.n * pool.out_h * pool.out_w * pool.dst_stored;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count;
         i += (int64_t)gridDim.x * blockDim.x) {
        const struct pixel at = pixel_of(i, pool.out_h, pool.out_w, pool.dst_stored);
        const T *image = src + at.n * pool.h * pool.w * pool.src_stored + at.c;
        const int64_t top = at.h * pool.stride - pool.pad;
        const int64_t left = at.w * pool.stride - pool.pad;
        int64_t best = -1;
        float largest = 0.0f;
        /* Padding that src lacks is zero. */
        const int64_t bottom = at.c < pool.src_stored ? top + pool.kernel : 0;
        for (int64_t h = top < 0 ? 0 : top; h < bottom && h < pool.h; h++)
            for (int64_t w = left < 0 ? 0 : left; w < left + pool.kernel && w < pool.w; w++) {
                const float x = to_float(image[(h * pool.w + w) * pool.src_stored]);
                if (best < 0 || x > largest) {
                    best = h * pool.w + w;
                    largest = x;
                }
            }
        dst[i] = from_float<T>(largest);
        if (index)
            index[i] = (int32_t)best;
    }
}

/* Windows that may have taken their maximum here are visited in ascending order. */
template <typename T>
__global__ void maxpool_grad_kernel(const struct cuda_pool pool, T *d_src, const T *d_dst,
                                    const int32_t *index)
{
    const int64_t count = pool.n * pool.h * pool.w * pool.src_stored;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count;
         i += (int64_t)gridDim.x * blockDim.x) {
        const struct pixel at = pixel_of(i, pool.h, pool.w, pool.src_stored);
        const int64_t here = at.h * pool.w + at.w;
        const int64_t first_h = at.h + pool.pad - pool.kernel + 1;
        const int64_t first_w = at.w + pool.pad - pool.kernel + 1;
        int64_t h = first_h <= 0 ? 0 : (first_h + pool.stride - 1) / pool.stride;
        float sum = 0.0f;
        for (; at.c < pool.dst_stored && h < pool.out_h && h * pool.stride - pool.pad <= at.h;
             h++) {
            int64_t w = first_w <= 0 ? 0 : (first_w + pool.stride - 1) / pool.stride;
            for (; w < pool.out_w && w * pool.stride - pool.pad <= at.w; w++) {
                const int64_t window =
                    ((at.n * pool.out_h + h) * pool.out_w + w) * pool.dst_stored + at.c;
                if (index[window] == here)
                    sum += to_float(d_dst[window]);
            }
        }
        d_src[i] = from_float<T>(sum);
    }
}

template <typename T>
__global__ void avgpool_kernel(const struct cuda_rows dst, const struct cuda_rows src, int64_t area)
{
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= dst.rows * dst.cols)
        return;
    const int64_t n = i / dst.cols;
    const int64_t c = i % dst.cols;
    typename accumulator<T>::type sum = 0;
    for (int64_t p = 0; p < area; p++)
        sum += to_float(((const T *)src.data)[(n * area + p) * src.pitch + c]);
    ((float *)dst.data)[n * dst.pitch + c] = (float)(sum / (typename accumulator<T>::type)area);
}

/* Channels of images come in eights: a thread takes as many. */
template <typename T>
__global__ void avgpool_grad_kernel(const struct cuda_rows d_src, const struct cuda_rows d_dst,
                                    int64_t area)
{
    const int64_t i = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * CUDA_CHANNELS;
    if (i >= d_src.rows * d_src.stored)
        return;
    const int64_t row = i / d_src.stored;
    const int64_t c = i % d_src.stored;
    const float *g = (const float *)d_dst.data + row / area * d_dst.pitch + c;
    float slope[CUDA_CHANNELS];
#pragma unroll
    for (int k = 0; k < CUDA_CHANNELS; k++)
        slope[k] = c + k < d_dst.cols ? g[k] / (float)area : 0.0f;
    vec<T, CUDA_CHANNELS>::store((T *)d_src.data + row * d_src.pitch + c, slope);
}

cudaError_t cuda_maxpool(const struct cuda_pool *pool, void *dst, int32_t *index, const void *src,
                         cudaStream_t stream)
{
    const unsigned blocks =
        blocks_for(pool->n * pool->out_h * pool->out_w * pool->dst_stored, BLOCK_THREADS);
    if (pool->type == CUDA_BF16)
        maxpool_kernel<<<blocks, BLOCK_THREADS, 0, stream>>>(*pool, (bf16 *)dst, index,
                                                             (const bf16 *)src);
    else
        maxpool_kernel<<<blocks, BLOCK_THREADS, 0, stream>>>(*pool, (float *)dst, index,
                                                             (const float *)src);
    return cudaGetLastError();
}

cudaError_t cuda_maxpool_grad(const struct cuda_pool *pool, void *d_src, const void *d_dst,
                              const int32_t *index, cudaStream_t stream)
{
    const unsigned blocks =
        blocks_for(pool->n * pool->h * pool->w * pool->src_stored, BLOCK_THREADS);
    if (pool->type == CUDA_BF16)
        maxpool_grad_kernel<<<blocks, BLOCK_THREADS, 0, stream>>>(*pool, (bf16 *)d_src,
                                                                  (const bf16 *)d_dst, index);
    else
        maxpool_grad_kernel<<<blocks, BLOCK_THREADS, 0, stream>>>(*pool, (float *)d_src,
                                                                  (const float *)d_dst, index);
    return cudaGetLastError();
}

static unsigned whole_grid(int64_t count)
{
    return (unsigned)((count + BLOCK_THREADS - 1) / BLOCK_THREADS);
}

cudaError_t cuda_avgpool(struct cuda_rows dst, struct cuda_rows src, int64_t area,
                         cudaStream_t stream)
{
    const unsigned blocks = whole_grid(dst.rows * dst.cols);
    if (src.type == CUDA_BF16)
        avgpool_kernel<bf16><<<blocks, BLOCK_THREADS, 0, stream>>>(dst, src, area);
    else
        avgpool_kernel<float><<<blocks, BLOCK_THREADS, 0, stream>>>(dst, src, area);
    return cudaGetLastError();
}

cudaError_t cuda_avgpool_grad(struct cuda_rows d_src, struct cuda_rows d_dst, int64_t area,
                              cudaStream_t stream)
{
    const unsigned blocks = whole_grid(d_src.rows * d_src.stored / CUDA_CHANNELS);
    if (d_src.type == CUDA_BF16)
        avgpool_grad_kernel<bf16><<<blocks, BLOCK_THREADS, 0, stream>>>(d_src, d_dst, area);
    else
        avgpool_grad_kernel<float><<<blocks, BLOCK_THREADS, 0, stream>>>(d_src, d_dst, area);
    return cudaGetLastError();
}

/*
 * Matrices in f32, a block for every row: rows of unit length, and the gradient of a bias.
 */
#include "backend/cuda/kernels/device.cuh"

__device__ static float *row_of(const struct cuda_rows &m, int64_t row)
{
    return (float *)m.data + row * m.pitch;
}

/* inv_norm = 1 / max(|src|, eps);  dst = src inv_norm */
__global__ void l2norm_kernel(const struct cuda_rows dst, float *inv_norm,
                              const struct cuda_rows src, float eps)
{
    const float *x = row_of(src, blockIdx.x);
    double sum = 0.0;
    for (int64_t d = threadIdx.x; d < src.cols; d += blockDim.x)
        sum += (double)x[d] * (double)x[d];
    const double inverse = 1.0 / fmax(sqrt(block_sum(sum)), (double)eps);
    for (int64_t d = threadIdx.x; d < src.cols; d += blockDim.x)
        row_of(dst, blockIdx.x)[d] = (float)((double)x[d] * inverse);
    if (inv_norm && threadIdx.x == 0)
        inv_norm[blockIdx.x] = (float)inverse;
}

/* d_src = inv_norm (d_dst - dst <dst, d_dst>); rows that eps held up have a constant divisor. */
__global__ void l2norm_grad_kernel(const struct cuda_rows d_src, const struct cuda_rows d_dst,
                                   const struct cuda_rows dst, const float *inv_norm, float eps)
{
    const float *g = row_of(d_dst, blockIdx.x);
    const float *y = row_of(dst, blockIdx.x);
    const float largest = (float)(1.0 / (double)eps);
    const float inverse = inv_norm[blockIdx.x];
    double along = 0.0;
    for (int64_t d = threadIdx.x; d < dst.cols; d += blockDim.x)
        along += (double)y[d] * (double)g[d];
    along = block_sum(along);
    if (inverse >= largest)
        along = 0.0;
    for (int64_t d = threadIdx.x; d < dst.cols; d += blockDim.x)
        row_of(d_src, blockIdx.x)[d] =
            (float)((double)inverse * ((double)g[d] - (double)y[d] * along));
}

__global__ void bias_grad_kernel(float *d_bias, const struct cuda_rows d_dst)
{
    const int64_t k = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (k >= d_dst.cols)
        return;
    double sum = 0.0;
    for (int64_t n = 0; n < d_dst.rows; n++)
        sum += (double)row_of(d_dst, n)[k];
    d_bias[k] = (float)sum;
}

__global__ void bias_rows_kernel(const struct cuda_rows dst, const float *bias)
{
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < dst.rows * dst.cols)
        row_of(dst, i / dst.cols)[i % dst.cols] = bias[i % dst.cols];
}

cudaError_t cuda_l2norm(struct cuda_rows dst, float *inv_norm, struct cuda_rows src, float eps,
                        cudaStream_t stream)
{
    l2norm_kernel<<<(unsigned)src.rows, BLOCK_THREADS, 0, stream>>>(dst, inv_norm, src, eps);
    return cudaGetLastError();
}

cudaError_t cuda_l2norm_grad(struct cuda_rows d_src, struct cuda_rows d_dst, struct cuda_rows dst,
                             const float *inv_norm, float eps, cudaStream_t stream)
{
    l2norm_grad_kernel<<<(unsigned)dst.rows, BLOCK_THREADS, 0, stream>>>(d_src, d_dst, dst, inv_norm,
                                                                         eps);
    return cudaGetLastError();
}

cudaError_t cuda_bias_grad(float *d_bias, struct cuda_rows d_dst, cudaStream_t stream)
{
    bias_grad_kernel<<<blocks_for(d_dst.cols, 32), 32, 0, stream>>>(d_bias, d_dst);
    return cudaGetLastError();
}

cudaError_t cuda_bias_rows(struct cuda_rows dst, const float *bias, cudaStream_t stream)
{
    const unsigned blocks = (unsigned)((dst.rows * dst.cols + BLOCK_THREADS - 1) / BLOCK_THREADS);
    bias_rows_kernel<<<blocks, BLOCK_THREADS, 0, stream>>>(dst, bias);
    return cudaGetLastError();
}

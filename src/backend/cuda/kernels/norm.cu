/*
 * Batch norm with mask, residual and ReLU: one pass for the statistics, one to apply.
 *
 *   x^ = (src - mean) inv_std;  dst = relu?(mask (gamma x^ + beta) + residual)
 *
 * The last block of the first pass turns sums into statistics and leaves three numbers per channel,
 * mean, a = mask gamma inv_std and b = mask beta, that the second pass applies.
 */
#include "backend/cuda/kernels/tile.cuh"

static float *coefficients(void *scratch, int64_t stored)
{
    return reinterpret_cast<float *>(reinterpret_cast<double *>(scratch) +
                                     2 * TILE_GY_MAX * stored);
}

size_t cuda_bn_scratch(int64_t rows, int64_t stored)
{
    (void)rows;
    return (size_t)(2 * TILE_GY_MAX * stored) * sizeof(double) +
           (size_t)(4 * stored) * sizeof(float);
}

size_t cuda_bn_counters(int64_t stored)
{
    return (size_t)(stored + 7) / 8; /* blocks that reduce are at least so many channels wide */
}

/* From the statistics of channel c to everything that depends on them. */
__device__ static void finish_channel(const struct cuda_bn bn, int64_t c, double mean, double var,
                                      float *coef)
{
    const int64_t stored = bn.src.stored;
    if (c >= bn.src.cols) {
        if (c < stored)
            coef[c] = coef[stored + c] = coef[2 * stored + c] = 0.0f;
        return;
    }
    const double inv_std = 1.0 / sqrt(var + (double)bn.eps);
    const double m = bn.mask ? (double)bn.mask[c] : 1.0;
    if (bn.mean)
        bn.mean[c] = (float)mean;
    if (bn.inv_std)
        bn.inv_std[c] = (float)inv_std;
    coef[c] = (float)mean;
    coef[stored + c] = (float)(m * (double)bn.gamma[c] * inv_std);
    coef[2 * stored + c] = (float)(m * (double)bn.beta[c]);
}

template <typename T, int V>
__global__ void __launch_bounds__(reduce_threads<T>())
    stats_kernel(const struct cuda_bn bn, const struct tile t, double *partial, float *coef)
{
    typedef typename accumulator<T>::type A;
    A sum[V] = {0};
    A squares[V] = {0};
    const int chunk = blockIdx.x * t.cx + threadIdx.x;
    const T *src = (const T *)bn.src.data + (int64_t)chunk * V;
    if (chunk < t.chunks) {
#pragma unroll 4
        for (int64_t row = blockIdx.y * t.ry + threadIdx.y; row < t.rows; row += t.gy * t.ry) {
            float x[V];
            vec<T, V>::load(x, src + row * bn.src.pitch);
#pragma unroll
            for (int i = 0; i < V; i++) {
                sum[i] += (A)x[i];
                squares[i] += (A)x[i] * (A)x[i];
            }
        }
    }
    double *totals[2];
    if (!tile_reduce<A, V>(t, sum, squares, partial, bn.counters, totals))
        return;
    const double count = (double)t.rows;
    const double unbias = count > 1.0 ? count / (count - 1.0) : 1.0;
    const double momentum = (double)bn.momentum;
    for (int i = threadIdx.y * t.cx + threadIdx.x; i < t.cx * V; i += t.cx * t.ry) {
        const int64_t c = (int64_t)blockIdx.x * t.cx * V + i;
        const double mean = totals[0][i] / count;
        const double var = fmax(totals[1][i] / count - mean * mean, 0.0);
        finish_channel(bn, c, mean, var, coef);
        if (c >= bn.src.cols)
            continue;
        bn.running_mean[c] =
            (float)((1.0 - momentum) * (double)bn.running_mean[c] + momentum * mean);
        bn.running_var[c] =
            (float)((1.0 - momentum) * (double)bn.running_var[c] + momentum * var * unbias);
    }
}

/* Without training the running statistics serve. */
__global__ void running_kernel(const struct cuda_bn bn, float *coef)
{
    const int64_t c = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (c < bn.src.cols)
        finish_channel(bn, c, (double)bn.running_mean[c], (double)bn.running_var[c], coef);
    else
        finish_channel(bn, c, 0.0, 0.0, coef);
}

template <typename T, int V, bool RESIDUAL>
__global__ void apply_kernel(const struct cuda_bn bn, const struct tile t, const float *coef)
{
    const int chunk = blockIdx.x * t.cx + threadIdx.x;
    if (chunk >= t.chunks)
        return;
    const int64_t c = (int64_t)chunk * V;
    float mean[V];
    float a[V];
    float b[V];
#pragma unroll
    for (int i = 0; i < V; i++) {
        mean[i] = coef[c + i];
        a[i] = coef[t.stored + c + i];
        b[i] = coef[2 * t.stored + c + i];
    }
    const T *src = (const T *)bn.src.data + c;
    const T *residual = (const T *)bn.residual.data + c;
    T *dst = (T *)bn.dst.data + c;
#pragma unroll 2
    for (int64_t row = blockIdx.y * t.ry + threadIdx.y; row < t.rows; row += t.gy * t.ry) {
        float x[V];
        float added[V];
        vec<T, V>::load(x, src + row * bn.src.pitch);
        if (RESIDUAL)
            vec<T, V>::load(added, residual + row * bn.residual.pitch);
#pragma unroll
        for (int i = 0; i < V; i++) {
            float z = (x[i] - mean[i]) * a[i] + b[i];
            if (RESIDUAL)
                z += added[i];
            x[i] = bn.relu && z < 0.0f ? 0.0f : z;
        }
        vec<T, V>::store(dst + row * bn.dst.pitch, x);
    }
}

template <typename T, int V>
static cudaError_t launch(const struct cuda_bn *bn, cudaStream_t stream)
{
    typedef typename accumulator<T>::type A;
    float *coef = coefficients(bn->scratch, bn->src.stored);
    if (bn->training) {
        const struct tile t =
            tile_of(bn->src.rows, bn->src.stored, V, wish_to_reduce<T>());
        stats_kernel<T, V><<<dim3(t.gx, t.gy), dim3(t.cx, t.ry), tile_shared<A, V>(&t), stream>>>(
            *bn, t, reinterpret_cast<double *>(bn->scratch), coef);
    } else {
        running_kernel<<<blocks_for(bn->src.stored, 128), 128, 0, stream>>>(*bn, coef);
    }
    const struct tile t = tile_of(bn->src.rows, bn->src.stored, V, wish_to_apply());
    if (bn->residual.data)
        apply_kernel<T, V, true>
            <<<dim3(t.gx, t.gy), dim3(t.cx, t.ry), 0, stream>>>(*bn, t, coef);
    else
        apply_kernel<T, V, false>
            <<<dim3(t.gx, t.gy), dim3(t.cx, t.ry), 0, stream>>>(*bn, t, coef);
    return cudaGetLastError();
}

cudaError_t cuda_bn(const struct cuda_bn *bn, cudaStream_t stream)
{
    const bool wide =
        vectors_fit(&bn->src) && vectors_fit(&bn->residual) && vectors_fit(&bn->dst);
    if (bn->src.type == CUDA_BF16)
        return wide ? launch<bf16, VECTOR>(bn, stream) : launch<bf16, 1>(bn, stream);
    return wide ? launch<float, VECTOR>(bn, stream) : launch<float, 1>(bn, stream);
}

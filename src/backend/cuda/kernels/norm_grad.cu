/*
 * The gradient of batch norm with everything fused into it, in two passes.
 *
 * The first sums g and g src over the rows of every channel, and writes d_residual = g where it is
 * wanted; its last block makes d_gamma, d_beta, d_mask and four numbers per channel of them. The
 * second writes d_src = k (g - c0 - (src - mean) c1), reading g back if the first wrote it.
 */
#include "backend/cuda/kernels/tile.cuh"


/* One row of a channel group as memory has it, so that loads of several rows are under way at once,
 * whatever is written between them. */
template <typename T, int V, bool SECOND> struct grad_row {
    typename vec<T, V>::raw d_dst, d_dst2, dst, src;

    __device__ void fetch(const struct cuda_bn_grad &bn, int64_t row, int64_t c)
    {
        d_dst = vec<T, V>::fetch((const T *)bn.d_dst.data + row * bn.d_dst.pitch + c);
        if (SECOND)
            d_dst2 = vec<T, V>::fetch((const T *)bn.d_dst2.data + row * bn.d_dst2.pitch + c);
        if (bn.relu)
            dst = vec<T, V>::fetch((const T *)bn.dst.data + row * bn.dst.pitch + c);
        src = vec<T, V>::fetch((const T *)bn.src.data + row * bn.src.pitch + c);
    }

    /* g = d_dst + d_dst2, 0 where the ReLU was closed. */
    __device__ void combine(float (&g)[V], const struct cuda_bn_grad &bn) const
    {
        float more[V];
        vec<T, V>::expand(g, d_dst);
        if (SECOND) {
            vec<T, V>::expand(more, d_dst2);
#pragma unroll
            for (int i = 0; i < V; i++)
                g[i] += more[i];
        }
        if (bn.relu) {
            vec<T, V>::expand(more, dst);
#pragma unroll
            for (int i = 0; i < V; i++)
                g[i] = more[i] <= 0.0f ? 0.0f : g[i];
        }
    }
};

/* Sums of g and of g src; those of g x^ follow from them. */
template <typename T, int V, bool SECOND>
__global__ void __launch_bounds__(reduce_threads<T>())
    reduce_kernel(const struct cuda_bn_grad bn, const struct tile t, double *partial, float *coef)
{
    typedef typename accumulator<T>::type A;
    A sum[V] = {0};
    A along[V] = {0};
    const int chunk = blockIdx.x * t.cx + threadIdx.x;
    const int64_t c = (int64_t)chunk * V;
    const int64_t step = (int64_t)t.gy * t.ry;
    int64_t row = chunk < t.chunks ? (int64_t)blockIdx.y * t.ry + threadIdx.y : t.rows;
    for (; row < t.rows; row += 2 * step) {
        grad_row<T, V, SECOND> rows[2];
        rows[0].fetch(bn, row, c);
        if (row + step < t.rows)
            rows[1].fetch(bn, row + step, c);
#pragma unroll
        for (int k = 0; k < 2; k++) {
            if (row + k * step >= t.rows)
                break;
            float g[V];
            float x[V];
            rows[k].combine(g, bn);
            vec<T, V>::expand(x, rows[k].src);
            if (bn.d_residual.data)
                vec<T, V>::store(
                    (T *)bn.d_residual.data + (row + k * step) * bn.d_residual.pitch + c, g);
#pragma unroll
            for (int i = 0; i < V; i++) {
                sum[i] += (A)g[i];
                along[i] += (A)g[i] * (A)x[i];
            }
        }
    }
    double *totals[2];
    if (!tile_reduce<A, V>(t, sum, along, partial, bn.counters, totals))
        return;
    const double count = (double)t.rows;
    for (int i = threadIdx.y * t.cx + threadIdx.x; i < t.cx * V; i += t.cx * t.ry) {
        const int64_t c = (int64_t)blockIdx.x * t.cx * V + i;
        if (c >= t.stored)
            continue;
        if (c >= bn.src.cols) {
            for (int k = 0; k < 4; k++)
                coef[k * t.stored + c] = 0.0f;
            continue;
        }
        const double gamma = (double)bn.gamma[c];
        const double inv_std = (double)bn.inv_std[c];
        const double d_beta = totals[0][i];
        const double d_gamma = inv_std * (totals[1][i] - (double)bn.mean[c] * d_beta);
        const double m = bn.mask ? (double)bn.mask[c] : 1.0;
        if (bn.d_gamma)
            bn.d_gamma[c] = (float)(m * d_gamma);
        if (bn.d_beta)
            bn.d_beta[c] = (float)(m * d_beta);
        if (bn.d_mask)
            bn.d_mask[c] = (float)(gamma * d_gamma + (double)bn.beta[c] * d_beta);
        coef[c] = (float)(gamma * m * inv_std);
        coef[t.stored + c] = bn.training ? (float)(d_beta / count) : 0.0f;
        coef[2 * t.stored + c] = bn.mean[c];
        coef[3 * t.stored + c] = bn.training ? (float)(d_gamma * inv_std / count) : 0.0f;
    }
}

template <typename T, int V, bool SECOND>
__global__ void apply_kernel(const struct cuda_bn_grad bn, const struct tile t, const float *coef)
{
    const int chunk = blockIdx.x * t.cx + threadIdx.x;
    if (chunk >= t.chunks)
        return;
    const int64_t c = (int64_t)chunk * V;
    float factor[V];
    float shift[V];
    float mean[V];
    float slope[V];
#pragma unroll
    for (int i = 0; i < V; i++) {
        factor[i] = coef[c + i];
        shift[i] = coef[t.stored + c + i];
        mean[i] = coef[2 * t.stored + c + i];
        slope[i] = coef[3 * t.stored + c + i];
    }
#pragma unroll 2
    for (int64_t row = blockIdx.y * t.ry + threadIdx.y; row < t.rows; row += t.gy * t.ry) {
        float g[V];
        float x[V];
        vec<T, V>::load(x, (const T *)bn.src.data + row * bn.src.pitch + c);
        if (bn.d_residual.data) {
            vec<T, V>::load(g, (const T *)bn.d_residual.data + row * bn.d_residual.pitch + c);
        } else {
            grad_row<T, V, SECOND> at;
            at.fetch(bn, row, c);
            at.combine(g, bn);
        }
#pragma unroll
        for (int i = 0; i < V; i++)
            g[i] = factor[i] * (g[i] - shift[i] - (x[i] - mean[i]) * slope[i]);
        vec<T, V>::store((T *)bn.d_src.data + row * bn.d_src.pitch + c, g);
    }
}

template <typename T, int V, bool SECOND>
static cudaError_t launch(const struct cuda_bn_grad *bn, cudaStream_t stream)
{
    typedef typename accumulator<T>::type A;
    const struct tile t = tile_of(bn->src.rows, bn->src.stored, V, wish_to_reduce<T>());
    double *partial = reinterpret_cast<double *>(bn->scratch);
    float *coef = reinterpret_cast<float *>(partial + 2 * TILE_GY_MAX * t.stored);
    reduce_kernel<T, V, SECOND>
        <<<dim3(t.gx, t.gy), dim3(t.cx, t.ry), tile_shared<A, V>(&t), stream>>>(*bn, t, partial,
                                                                                coef);
    if (bn->d_src.data) {
        const struct tile a = tile_of(bn->src.rows, bn->src.stored, V, wish_to_apply());
        apply_kernel<T, V, SECOND>
            <<<dim3(a.gx, a.gy), dim3(a.cx, a.ry), 0, stream>>>(*bn, a, coef);
    }
    return cudaGetLastError();
}

template <typename T, int V>
static cudaError_t launch_any(const struct cuda_bn_grad *bn, cudaStream_t stream)
{
    return bn->d_dst2.data ? launch<T, V, true>(bn, stream) : launch<T, V, false>(bn, stream);
}

cudaError_t cuda_bn_grad(const struct cuda_bn_grad *bn, cudaStream_t stream)
{
    const bool wide = vectors_fit(&bn->d_dst) && vectors_fit(&bn->d_dst2) &&
                      vectors_fit(&bn->src) && vectors_fit(&bn->dst) && vectors_fit(&bn->d_src) &&
                      vectors_fit(&bn->d_residual);
    if (bn->src.type == CUDA_BF16)
        return wide ? launch_any<bf16, VECTOR>(bn, stream) : launch_any<bf16, 1>(bn, stream);
    return wide ? launch_any<float, VECTOR>(bn, stream) : launch_any<float, 1>(bn, stream);
}

/*
 * The gradient of batch norm with everything fused into it, in two passes.
 *
 * The first sums g and g x^ over the rows of every channel, and writes d_residual = g where it is
 * wanted; its last block makes d_gamma, d_beta, d_mask and four numbers per channel of them. The
 * second writes d_src = k (g - c0 - (src - mean) c1), reading g back if the first wrote it.
 */
#include "tile.cuh"


/* g = d_dst + d_dst2, 0 where the ReLU was closed. */
template <typename T, int V>
__device__ static void load_grad(float (&g)[V], const struct cuda_bn_grad &bn, int64_t row, int64_t c)
{
    vec<T, V>::load(g, (const T *)bn.d_dst.data + row * bn.d_dst.pitch + c);
    if (bn.d_dst2.data) {
        float more[V];
        vec<T, V>::load(more, (const T *)bn.d_dst2.data + row * bn.d_dst2.pitch + c);
#pragma unroll
        for (int i = 0; i < V; i++)
            g[i] += more[i];
    }
    if (bn.relu) {
        float y[V];
        vec<T, V>::load(y, (const T *)bn.dst.data + row * bn.dst.pitch + c);
#pragma unroll
        for (int i = 0; i < V; i++)
            g[i] = y[i] <= 0.0f ? 0.0f : g[i];
    }
}

template <typename T, int V>
__global__ void reduce_kernel(const struct cuda_bn_grad bn, const struct tile t, double *partial,
                              float *coef)
{
    typedef typename accumulator<T>::type A;
    A sum[V] = {0};
    A along[V] = {0};
    const int chunk = blockIdx.x * t.cx + threadIdx.x;
    if (chunk < t.chunks) {
        const int64_t c = (int64_t)chunk * V;
        float mean[V];
        float inv_std[V];
#pragma unroll
        for (int i = 0; i < V; i++) {
            mean[i] = c + i < bn.src.cols ? bn.mean[c + i] : 0.0f;
            inv_std[i] = c + i < bn.src.cols ? bn.inv_std[c + i] : 0.0f;
        }
#pragma unroll 4
        for (int64_t row = blockIdx.y * t.ry + threadIdx.y; row < t.rows; row += t.gy * t.ry) {
            float g[V];
            float x[V];
            load_grad<T, V>(g, bn, row, c);
            vec<T, V>::load(x, (const T *)bn.src.data + row * bn.src.pitch + c);
            if (bn.d_residual.data)
                vec<T, V>::store((T *)bn.d_residual.data + row * bn.d_residual.pitch + c, g);
#pragma unroll
            for (int i = 0; i < V; i++) {
                sum[i] += (A)g[i];
                along[i] += (A)g[i] * (((A)x[i] - (A)mean[i]) * (A)inv_std[i]);
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
        const double d_beta = totals[0][i];
        const double d_gamma = totals[1][i];
        const double gamma = (double)bn.gamma[c];
        const double inv_std = (double)bn.inv_std[c];
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

template <typename T, int V>
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
        if (bn.d_residual.data)
            vec<T, V>::load(g, (const T *)bn.d_residual.data + row * bn.d_residual.pitch + c);
        else
            load_grad<T, V>(g, bn, row, c);
        vec<T, V>::load(x, (const T *)bn.src.data + row * bn.src.pitch + c);
#pragma unroll
        for (int i = 0; i < V; i++)
            g[i] = factor[i] * (g[i] - shift[i] - (x[i] - mean[i]) * slope[i]);
        vec<T, V>::store((T *)bn.d_src.data + row * bn.d_src.pitch + c, g);
    }
}

template <typename T, int V>
static cudaError_t launch(const struct cuda_bn_grad *bn, cudaStream_t stream)
{
    typedef typename accumulator<T>::type A;
    const struct tile t = tile_of(bn->src.rows, bn->src.stored, V, wish_to_reduce<A>());
    double *partial = reinterpret_cast<double *>(bn->scratch);
    float *coef = reinterpret_cast<float *>(partial + 2 * TILE_GY_MAX * t.stored);
    reduce_kernel<T, V><<<dim3(t.gx, t.gy), dim3(t.cx, t.ry), tile_shared<A, V>(&t), stream>>>(
        *bn, t, partial, coef);
    if (bn->d_src.data) {
        const struct tile a = tile_of(bn->src.rows, bn->src.stored, V, wish_to_apply());
        apply_kernel<T, V><<<dim3(a.gx, a.gy), dim3(a.cx, a.ry), 0, stream>>>(*bn, a, coef);
    }
    return cudaGetLastError();
}

cudaError_t cuda_bn_grad(const struct cuda_bn_grad *bn, cudaStream_t stream)
{
    const bool wide = vectors_fit(&bn->d_dst) && vectors_fit(&bn->d_dst2) &&
                      vectors_fit(&bn->src) && vectors_fit(&bn->dst) && vectors_fit(&bn->d_src) &&
                      vectors_fit(&bn->d_residual);
    if (bn->src.type == CUDA_BF16)
        return wide ? launch<bf16, VECTOR>(bn, stream) : launch<bf16, 1>(bn, stream);
    return wide ? launch<float, VECTOR>(bn, stream) : launch<float, 1>(bn, stream);
}

/*
 * Channel masks: the gate (Serra et al. 2018), its compensated gradient, and the sparsity loss
 * (Yan et al. 2021, eq. 9). All masks of an extractor in one launch, a block each.
 */
#include "backend/cuda/kernels/device.cuh"

#include <math.h>

__device__ static double sigmoid(double x)
{
    return 1.0 / (1.0 + exp(-x));
}

/* The first of the largest, the same for all threads. */
__device__ static int64_t first_largest(const float *e, int64_t n)
{
    __shared__ float values[BLOCK_THREADS];
    __shared__ int64_t places[BLOCK_THREADS];
    int64_t best = threadIdx.x < n ? threadIdx.x : 0;
    for (int64_t c = threadIdx.x; c < n; c += blockDim.x)
        if (e[c] > e[best])
            best = c;
    values[threadIdx.x] = e[best];
    places[threadIdx.x] = best;
    __syncthreads();
    if (threadIdx.x == 0)
        for (int i = 1; i < (int)blockDim.x; i++)
            if (values[i] > values[0] || (values[i] == values[0] && places[i] < places[0])) {
                values[0] = values[i];
                places[0] = places[i];
            }
    __syncthreads();
    return places[0];
}

__global__ void gate_kernel(const struct cuda_mask *masks, const float *s, double floor)
{
    const struct cuda_mask mask = masks[blockIdx.x];
    const double steepness = (double)*s;
    const bool hard = isinf(steepness);
    const int64_t largest = hard ? first_largest(mask.e, mask.n) : 0;
    for (int64_t c = threadIdx.x; c < mask.n; c += blockDim.x) {
        float m = 0.0f;
        if (!hard)
            m = (float)fmax(sigmoid(steepness * (double)mask.e[c]), floor);
        else if (mask.e[c] > 0.0f || c == largest)
            m = 1.0f;
        mask.out[c] = m;
    }
}

/* exact: sigmoid(e) (1 - sigmoid(e))
 * hat:   y (1 - y) s_max (cosh(clip(s e, 50)) + 1) / (cosh(e) + 1), y = sigmoid(s e) as a float */
__global__ void gate_grad_kernel(const struct cuda_mask *masks, const float *s, bool hat,
                                 float s_max)
{
    const struct cuda_mask mask = masks[blockIdx.x];
    if (!mask.out)
        return;
    const double steepness = (double)*s;
    for (int64_t c = threadIdx.x; c < mask.n; c += blockDim.x) {
        const double e = (double)mask.e[c];
        double slope = sigmoid(e) * (1.0 - sigmoid(e));
        if (hat) {
            const double y = (double)(float)sigmoid(steepness * e);
            const double clipped = fmax(-50.0, fmin(50.0, steepness * e));
            slope = y * (1.0 - y) * (double)s_max * (cosh(clipped) + 1.0) / (cosh(e) + 1.0);
        }
        mask.out[c] = isinf(steepness) ? 0.0f : (float)((double)mask.d_m[c] * slope);
    }
}

/* One block: sums of the masks (a warp each), the loss, then the slope of every mask. What the one thread in the middle
 * goes through lies in shared memory: sums, slopes, layers. Masks that must not shrink have no slope. */
__global__ void sparsity_kernel(const struct cuda_mask *masks, int n,
                                const struct cuda_sparsity_layer *layers, int n_layers,
                                double total, const float *weight, float *loss)
{
    extern __shared__ double sums[];
    double *slopes = sums + n;
    double *shrinks = slopes + n; /* 1 or 0 */
    struct cuda_sparsity_layer *near = (struct cuda_sparsity_layer *)(shrinks + n);
    for (int l = threadIdx.x; l < n_layers; l += blockDim.x)
        near[l] = layers[l];
    const int warp = threadIdx.x / 32;
    const int n_warps = blockDim.x / 32;
    for (int i = warp; i < n; i += n_warps) {
        double sum = 0.0;
        int n_open = 0;
        for (int64_t c = threadIdx.x % 32; c < masks[i].n; c += 32) {
            sum += (double)masks[i].e[c];
            n_open += masks[i].e[c] > 0.5f;
        }
        for (int step = 16; step > 0; step /= 2) {
            sum += __shfl_xor_sync(0xffffffffu, sum, step);
            n_open += __shfl_xor_sync(0xffffffffu, n_open, step);
        }
        if (threadIdx.x % 32 == 0) {
            sums[i] = sum;
            slopes[i] = 0.0;
            shrinks[i] = n_open > masks[i].least ? 1.0 : 0.0;
        }
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        double used = 0.0;
        for (int l = 0; l < n_layers; l++) {
            const struct cuda_sparsity_layer layer = near[l];
            const double n_in = layer.in_mask < 0 ? layer.in_channels : sums[layer.in_mask];
            const double n_out = sums[layer.out_mask];
            used += layer.kernel_area * n_in * n_out;
            slopes[layer.out_mask] += layer.kernel_area * n_in;
            if (layer.in_mask >= 0)
                slopes[layer.in_mask] += layer.kernel_area * n_out;
        }
        if (loss)
            *loss = (float)(used / total);
    }
    __syncthreads();
    for (int i = warp; i < n; i += n_warps)
        for (int64_t c = threadIdx.x % 32; masks[i].out && c < masks[i].n; c += 32)
            masks[i].out[c] = (float)((double)*weight * (shrinks[i] * slopes[i]) / total);
}

cudaError_t cuda_mask_gate(const struct cuda_mask *masks, int n, const float *s, double floor,
                           cudaStream_t stream)
{
    gate_kernel<<<(unsigned)n, BLOCK_THREADS, 0, stream>>>(masks, s, floor);
    return cudaGetLastError();
}

cudaError_t cuda_mask_gate_grad(const struct cuda_mask *masks, int n, const float *s, bool hat,
                                float s_max, cudaStream_t stream)
{
    gate_grad_kernel<<<(unsigned)n, BLOCK_THREADS, 0, stream>>>(masks, s, hat, s_max);
    return cudaGetLastError();
}

cudaError_t cuda_mask_sparsity(const struct cuda_mask *masks, int n,
                               const struct cuda_sparsity_layer *layers, int n_layers, double total,
                               const float *weight, float *loss, cudaStream_t stream)
{
    const size_t shared = 3 * (size_t)n * sizeof(double) + (size_t)n_layers * sizeof *layers;
    sparsity_kernel<<<1, 1024, shared, stream>>>(masks, n, layers, n_layers, total, weight, loss);
    return cudaGetLastError();
}

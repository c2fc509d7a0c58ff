/*
 * What the kernels share: numbers in and out of memory, sums over a block, the block that is last.
 */
#ifndef CUDA_DEVICE_CUH
#define CUDA_DEVICE_CUH

#include "backend/cuda/kernels.h"

#include <cuda_bf16.h>

typedef __nv_bfloat16 bf16;

enum { BLOCK_THREADS = 256 };

/* Sums of f32 images are kept in double, those of bf16 images in float: a thread adds up few. */
template <typename T> struct accumulator {
    typedef float type;
};
template <> struct accumulator<float> {
    typedef double type;
};

__device__ inline float to_float(float x)
{
    return x;
}

__device__ inline float to_float(bf16 x)
{
    return __bfloat162float(x);
}

template <typename T> __device__ inline T from_float(float x);

template <> __device__ inline float from_float<float>(float x)
{
    return x;
}

template <> __device__ inline bf16 from_float<bf16>(float x)
{
    return __float2bfloat16(x);
}

/* V neighbouring channels; with V = 8 in accesses of 16 bytes. `raw` is what memory holds: loads can be
 * under way for many of them in few registers. */
template <typename T, int V> struct vec {
    struct raw {
        T x[V];
    };
    __device__ static raw fetch(const T *p)
    {
        raw r;
        for (int i = 0; i < V; i++)
            r.x[i] = p[i];
        return r;
    }
    __device__ static void expand(float (&x)[V], const raw &r)
    {
        for (int i = 0; i < V; i++)
            x[i] = to_float(r.x[i]);
    }
    __device__ static void load(float (&x)[V], const T *p)
    {
        for (int i = 0; i < V; i++)
            x[i] = to_float(p[i]);
    }
    __device__ static void store(T *p, const float (&x)[V])
    {
        for (int i = 0; i < V; i++)
            p[i] = from_float<T>(x[i]);
    }
    __device__ static raw rounded(const float (&x)[V])
    {
        raw r;
        for (int i = 0; i < V; i++)
            r.x[i] = from_float<T>(x[i]);
        return r;
    }
};

template <> struct vec<float, 8> {
    struct raw {
        float4 low, high;
    };
    __device__ static raw fetch(const float *p)
    {
        raw r = {*reinterpret_cast<const float4 *>(p), *reinterpret_cast<const float4 *>(p + 4)};
        return r;
    }
    __device__ static void expand(float (&x)[8], const raw &r)
    {
        x[0] = r.low.x, x[1] = r.low.y, x[2] = r.low.z, x[3] = r.low.w;
        x[4] = r.high.x, x[5] = r.high.y, x[6] = r.high.z, x[7] = r.high.w;
    }
    __device__ static void load(float (&x)[8], const float *p)
    {
        expand(x, fetch(p));
    }
    __device__ static void store(float *p, const float (&x)[8])
    {
        *reinterpret_cast<float4 *>(p) = make_float4(x[0], x[1], x[2], x[3]);
        *reinterpret_cast<float4 *>(p + 4) = make_float4(x[4], x[5], x[6], x[7]);
    }
};

template <> struct vec<bf16, 8> {
    typedef uint4 raw;
    __device__ static raw fetch(const bf16 *p)
    {
        return *reinterpret_cast<const uint4 *>(p);
    }
    __device__ static void load(float (&x)[8], const bf16 *p)
    {
        expand(x, fetch(p));
    }
    __device__ static void expand(float (&x)[8], const raw &r)
    {
        const unsigned words[4] = {r.x, r.y, r.z, r.w};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            x[2 * i] = __uint_as_float(words[i] << 16);
            x[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000u);
        }
    }
    __device__ static raw rounded(const float (&x)[8])
    {
        unsigned words[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const __nv_bfloat162 pair = __floats2bfloat162_rn(x[2 * i], x[2 * i + 1]);
            words[i] = *reinterpret_cast<const unsigned *>(&pair);
        }
        return make_uint4(words[0], words[1], words[2], words[3]);
    }
    __device__ static void store(bf16 *p, const float (&x)[8])
    {
        *reinterpret_cast<uint4 *>(p) = rounded(x);
    }
};

/* Sum over all threads of a block, the same for all of them; 1-d blocks of whole warps. */
__device__ inline double block_sum(double x)
{
    __shared__ double parts[32];
    for (int step = 16; step > 0; step /= 2)
        x += __shfl_xor_sync(0xffffffffu, x, step);
    __syncthreads();
    if (threadIdx.x % 32 == 0)
        parts[threadIdx.x / 32] = x;
    __syncthreads();
    double sum = 0.0;
    for (int i = 0; i < (int)blockDim.x / 32; i++)
        sum += parts[i];
    return sum;
}

/* True in all threads of the block that arrives last of `total`; what the others wrote before is
 * visible to it. The counter is zero again afterwards. */
__device__ inline bool is_last_block(unsigned *counter, unsigned total)
{
    __shared__ bool last;
    __syncthreads(); /* what this block wrote comes before the fence of its first thread */
    if (threadIdx.x == 0 && threadIdx.y == 0) {
        __threadfence();
        last = atomicAdd(counter, 1u) == total - 1;
        if (last)
            *counter = 0;
        __threadfence();
    }
    __syncthreads();
    return last;
}

static inline unsigned blocks_for(int64_t count, int64_t per_block)
{
    const int64_t blocks = (count + per_block - 1) / per_block;
    return (unsigned)(blocks < 1 ? 1 : blocks < 65535 ? blocks : 65535);
}

#endif

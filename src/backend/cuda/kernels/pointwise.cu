/*
 * Element by element. Fusion leaves few of these in a network, so they are plain: one thread an
 * element, operands of any pitch, and 0 stays 0 in the channels that are padding.
 */
#include "backend/cuda/kernels/device.cuh"

struct place {
    int64_t row, col;
};

__device__ static struct place place_of(int64_t i, const struct cuda_rows &m)
{
    struct place at = {i / m.stored, i % m.stored};
    return at;
}

template <typename T> __device__ static float get(const struct cuda_rows &m, struct place at)
{
    return to_float(((const T *)m.data)[at.row * m.pitch + at.col]);
}

template <typename T> __device__ static void put(const struct cuda_rows &m, struct place at, float x)
{
    ((T *)m.data)[at.row * m.pitch + at.col] = from_float<T>(x);
}

/* Calls f(place) for every element of an operand that is shaped like m. */
template <typename F> __global__ void each_kernel(const struct cuda_rows m, const F f)
{
    const int64_t count = m.rows * m.stored;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count;
         i += (int64_t)gridDim.x * blockDim.x)
        f(place_of(i, m));
}

template <typename F>
static cudaError_t each(const struct cuda_rows &m, const F &f, cudaStream_t stream)
{
    each_kernel<<<blocks_for(m.rows * m.stored, BLOCK_THREADS), BLOCK_THREADS, 0, stream>>>(m, f);
    return cudaGetLastError();
}

template <typename T> struct relu_op {
    struct cuda_rows dst, src;
    __device__ void operator()(struct place at) const
    {
        const float x = get<T>(src, at);
        put<T>(dst, at, x < 0.0f ? 0.0f : x);
    }
};

template <typename T> struct relu_grad_op {
    struct cuda_rows d_src, d_dst, dst;
    __device__ void operator()(struct place at) const
    {
        put<T>(d_src, at, get<T>(dst, at) > 0.0f ? get<T>(d_dst, at) : 0.0f);
    }
};

template <typename T> struct add_op {
    struct cuda_rows dst;
    struct cuda_rows src[CUDA_ADD_MAX];
    int n;
    __device__ void operator()(struct place at) const
    {
        float sum = get<T>(src[0], at);
        for (int i = 1; i < n; i++)
            sum += get<T>(src[i], at);
        put<T>(dst, at, sum);
    }
};

template <typename T> struct scale_op {
    struct cuda_rows dst, src;
    const float *factor;
    __device__ void operator()(struct place at) const
    {
        put<T>(dst, at, at.col < src.cols ? get<T>(src, at) * *factor : 0.0f);
    }
};

template <typename T> struct scale_channel_op {
    struct cuda_rows dst, src;
    const float *m;
    __device__ void operator()(struct place at) const
    {
        put<T>(dst, at, at.col < src.cols ? get<T>(src, at) * m[at.col] : 0.0f);
    }
};

template <typename T> struct epilogue_op {
    struct cuda_rows dst, src, residual;
    const float *bias;
    bool relu;
    __device__ void operator()(struct place at) const
    {
        float x = get<T>(src, at) + bias[at.col];
        if (residual.data)
            x += get<T>(residual, at);
        put<T>(dst, at, relu && x < 0.0f ? 0.0f : x);
    }
};

/* sum over all elements of a * b, by one block */
template <typename T>
__global__ void dot_kernel(float *out, const struct cuda_rows a, const struct cuda_rows b)
{
    double sum = 0.0;
    for (int64_t i = threadIdx.x; i < a.rows * a.stored; i += blockDim.x) {
        const struct place at = place_of(i, a);
        sum += (double)get<T>(a, at) * (double)get<T>(b, at);
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        *out = (float)sum;
}

/* the same for every channel, a block each */
template <typename T>
__global__ void channel_dot_kernel(float *out, const struct cuda_rows a, const struct cuda_rows b)
{
    double sum = 0.0;
    for (int64_t row = threadIdx.x; row < a.rows; row += blockDim.x) {
        const struct place at = {row, (int64_t)blockIdx.x};
        sum += (double)get<T>(a, at) * (double)get<T>(b, at);
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        out[blockIdx.x] = (float)sum;
}

/* Picks the template by the type of the first operand. */
#define BY_TYPE(rows, f32_call, bf16_call) ((rows).type == CUDA_BF16 ? (bf16_call) : (f32_call))

cudaError_t cuda_relu(struct cuda_rows dst, struct cuda_rows src, cudaStream_t stream)
{
    const relu_op<float> f = {dst, src};
    const relu_op<bf16> b = {dst, src};
    return BY_TYPE(dst, each(dst, f, stream), each(dst, b, stream));
}

cudaError_t cuda_relu_grad(struct cuda_rows d_src, struct cuda_rows d_dst, struct cuda_rows dst,
                           cudaStream_t stream)
{
    const relu_grad_op<float> f = {d_src, d_dst, dst};
    const relu_grad_op<bf16> b = {d_src, d_dst, dst};
    return BY_TYPE(d_src, each(d_src, f, stream), each(d_src, b, stream));
}

cudaError_t cuda_add(struct cuda_rows dst, const struct cuda_rows *src, int n, cudaStream_t stream)
{
    add_op<float> f = {dst, {}, n};
    add_op<bf16> b = {dst, {}, n};
    for (int i = 0; i < n; i++)
        f.src[i] = b.src[i] = src[i];
    return BY_TYPE(dst, each(dst, f, stream), each(dst, b, stream));
}

cudaError_t cuda_scale(struct cuda_rows dst, struct cuda_rows src, const float *factor,
                       cudaStream_t stream)
{
    const scale_op<float> f = {dst, src, factor};
    const scale_op<bf16> b = {dst, src, factor};
    return BY_TYPE(dst, each(dst, f, stream), each(dst, b, stream));
}

/* The sum comes first: d_src may take the place of d_dst. */
cudaError_t cuda_scale_grad(struct cuda_rows d_src, float *d_factor, struct cuda_rows d_dst,
                            struct cuda_rows src, const float *factor, cudaStream_t stream)
{
    if (d_factor && d_dst.type == CUDA_BF16)
        dot_kernel<bf16><<<1, 1024, 0, stream>>>(d_factor, d_dst, src);
    else if (d_factor)
        dot_kernel<float><<<1, 1024, 0, stream>>>(d_factor, d_dst, src);
    return d_src.data ? cuda_scale(d_src, d_dst, factor, stream) : cudaGetLastError();
}

cudaError_t cuda_scale_channel(struct cuda_rows dst, struct cuda_rows src, const float *m,
                               cudaStream_t stream)
{
    const scale_channel_op<float> f = {dst, src, m};
    const scale_channel_op<bf16> b = {dst, src, m};
    return BY_TYPE(dst, each(dst, f, stream), each(dst, b, stream));
}

cudaError_t cuda_scale_channel_grad(struct cuda_rows d_src, float *d_m, struct cuda_rows d_dst,
                                    struct cuda_rows src, const float *m, cudaStream_t stream)
{
    const unsigned channels = (unsigned)d_dst.cols;
    if (d_m && d_dst.type == CUDA_BF16)
        channel_dot_kernel<bf16><<<channels, BLOCK_THREADS, 0, stream>>>(d_m, d_dst, src);
    else if (d_m)
        channel_dot_kernel<float><<<channels, BLOCK_THREADS, 0, stream>>>(d_m, d_dst, src);
    return d_src.data ? cuda_scale_channel(d_src, d_dst, m, stream) : cudaGetLastError();
}

cudaError_t cuda_epilogue(struct cuda_rows dst, struct cuda_rows src, const float *bias,
                          struct cuda_rows residual, bool relu, cudaStream_t stream)
{
    const epilogue_op<float> f = {dst, src, residual, bias, relu};
    const epilogue_op<bf16> b = {dst, src, residual, bias, relu};
    return BY_TYPE(dst, each(dst, f, stream), each(dst, b, stream));
}

/*
 * Stochastic gradient descent with momentum and decay, over any number of parameters in one launch.
 *
 *   v = momentum v + (g + decay p);  p = clamp(p - lr gain v, low, high)
 *
 * Weights of convolutions are also written as the next iteration wants them (layout.cu), from what is at hand, and
 * their gradients read as convolutions write them: launches of their own would read all of them again.
 */
#include "backend/cuda/kernels/device.cuh"

enum { PER_THREAD = 16, PER_BLOCK = BLOCK_THREADS * PER_THREAD };

__device__ static void update(const struct cuda_sgd &args, float step, float *p, float g, float *v)
{
    *v = fmaf(args.momentum, *v, fmaf(args.decay, *p, g));
    const float next = fmaf(-step, *v, *p);
    *p = next < args.low ? args.low : next > args.high ? args.high : next; /* NaN stays */
}

/* The span that a block works on: the last one that begins at or before it. */
__device__ static int span_of(const struct cuda_sgd &args, int64_t block)
{
    int low = 0;
    int high = args.n - 1;
    while (low < high) {
        const int middle = (low + high + 1) / 2;
        if (args.spans[middle].first_block <= block)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

__device__ static bool is_wide(const struct cuda_sgd_span &span)
{
    const bool dense =
        span.p_pitch == span.cols && span.g_pitch == span.cols && span.v_pitch == span.cols;
    return dense && ((uintptr_t)span.p | (uintptr_t)span.g | (uintptr_t)span.v) % 16 == 0;
}

/* A block has the numbers [first, last) of weights in `room`, as [c, area]. In bf16 they lie as [k, area, c_stored]:
 * calls visit(where a channel is in room, where it is there, whether the next one comes along). Two neighbouring
 * channels are one word, so that they go together where their number is even. */
template <typename Visit>
__device__ static void visit_channels(const struct cuda_sgd_span &span, int64_t first, int64_t last,
                                      Visit visit)
{
    const unsigned c = (unsigned)span.c;
    const unsigned begin = (unsigned)(first / span.area); /* the first row of `area` numbers */
    const unsigned n = (unsigned)((last - first) / span.area);
    const unsigned width = c % 2 == 0 ? 2 : 1;
    for (unsigned i = width * threadIdx.x; i < n; i += width * BLOCK_THREADS) {
        const unsigned k = (begin + i) / c;
        visit(i * (unsigned)span.area, k * span.area * span.c_stored + (begin + i) % c, width == 2);
    }
}

__device__ static void read_raw(const struct cuda_sgd_span &span, float *room, int64_t first,
                                int64_t last)
{
    const unsigned area = (unsigned)span.area;
    visit_channels(span, first, last, [&](unsigned to, int64_t from, bool is_pair) {
        const bf16 *src = (const bf16 *)span.raw + from;
        float *dst = room + to;
        /* __ldg: no store changes what is read, so that loads need not wait for them. */
#pragma unroll 3
        for (unsigned at = 0; at < area; at++, src += span.c_stored) {
            if (is_pair) {
                const __nv_bfloat162 pair = __ldg((const __nv_bfloat162 *)src);
                dst[at] = __low2float(pair);
                dst[area + at] = __high2float(pair);
            } else {
                dst[at] = __bfloat162float(__ldg(src));
            }
        }
    });
}

__device__ static void write_copy(const struct cuda_sgd_span &span, const float *room,
                                  int64_t first, int64_t last)
{
    const unsigned area = (unsigned)span.area;
    visit_channels(span, first, last, [&](unsigned from, int64_t to, bool is_pair) {
        bf16 *dst = (bf16 *)span.copy + to;
        const float *src = room + from;
        for (unsigned at = 0; at < area; at++, dst += span.c_stored) {
            if (is_pair)
                *(__nv_bfloat162 *)dst = __floats2bfloat162_rn(src[at], src[area + at]);
            else
                *dst = __float2bfloat16(src[at]);
        }
    });
}

/* room: raw gradients on their way in, new weights on their way out. A thread puts the latter only where it has read
 * the former. */
__global__ void sgd_kernel(const struct cuda_sgd args)
{
    __shared__ __align__(16) float room[PER_BLOCK];
    const struct cuda_sgd_span span = args.spans[span_of(args, blockIdx.x)];
    const float step = *args.lr * args.gain;
    const int64_t first = (blockIdx.x - span.first_block) * span.per_block;
    const int64_t last =
        first + span.per_block < span.count ? first + span.per_block : span.count;
    int64_t i = first;
    if (span.raw) {
        read_raw(span, room, first, last);
        __syncthreads();
    }
    if (is_wide(span)) {
        const int64_t whole = first + (last - first) / 4 * 4;
        for (int64_t at = first + 4 * threadIdx.x; at < whole; at += 4 * BLOCK_THREADS) {
            float4 *here = (float4 *)(room + (at - first));
            float4 p = *(float4 *)(span.p + at);
            const float4 g = span.raw ? *here : *(const float4 *)(span.g + at);
            float4 v = *(float4 *)(span.v + at);
            update(args, step, &p.x, g.x, &v.x);
            update(args, step, &p.y, g.y, &v.y);
            update(args, step, &p.z, g.z, &v.z);
            update(args, step, &p.w, g.w, &v.w);
            *(float4 *)(span.p + at) = p;
            *(float4 *)(span.v + at) = v;
            *here = p;
        }
        i = whole;
    }
    for (i += threadIdx.x; i < last; i += BLOCK_THREADS) {
        const int64_t row = i / span.cols;
        const int64_t col = i % span.cols;
        float *p = span.p + row * span.p_pitch + col;
        const float g = span.raw ? room[i - first] : span.g[row * span.g_pitch + col];
        update(args, step, p, g, span.v + row * span.v_pitch + col);
        room[i - first] = *p;
    }
    if (!span.copy)
        return;
    __syncthreads();
    write_copy(span, room, first, last);
}

/* Whole kernels, in even numbers of 16 bytes. */
int64_t cuda_sgd_per_block(int64_t area)
{
    if (area == 0)
        return PER_BLOCK;
    return PER_BLOCK / area / 32 * 32 * area;
}

cudaError_t cuda_sgd(const struct cuda_sgd *args, cudaStream_t stream)
{
    sgd_kernel<<<(unsigned)args->n_blocks, BLOCK_THREADS, 0, stream>>>(*args);
    return cudaGetLastError();
}

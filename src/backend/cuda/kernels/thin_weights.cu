/*
 * The gradient of a thin layer's weights in bf16 on tensor cores: 3x3 and 1x1, stride 1 or 2, channels in sixteens.
 *
 * d_weights [k, tap, c] = sum over pixels of d_dst [pixel, k] times what the tap sees of src [pixel, c]. A block walks
 * over boxes of pixels (thin.cuh) for all k and some c, the next box on its way while one is multiplied; a warp
 * has MT * 16 channels k, 16 channels c and all taps in its registers, and warps that have the same ones share the
 * pixels. What blocks have added up is added in a launch of its own, always in the same order.
 */
#include "backend/cuda/kernels/partial.cuh"
#include "backend/cuda/kernels/thin.cuh"

enum { GRAD_THREADS = 256, GRAD_WARPS = GRAD_THREADS / 32 };

struct grad_args {
    struct thin_box box;
    int k;
    int grads_at, grads_pitch; /* bytes; d_dst lies behind the source pixels */
    int stage_bytes;
    struct divider per_grad; /* words of a pixel of d_dst */
    const bf16 *src, *d_dst;
    float *partial; /* [blocks, k, taps, c] */
};

__device__ static void fetch_grads(const struct grad_args &a, const struct box_place &at,
                                   unsigned to)
{
    const int words = (int)a.per_grad.by;
    for (int i = threadIdx.x; i < a.box.pixels * words; i += GRAD_THREADS) {
        const int row = divide(i, a.per_grad);
        const int word = i - row * words;
        const int64_t pixel = result_pixel(a.box, at, row);
        copy_16(to + row * a.grads_pitch + word * WORD,
                a.d_dst + (pixel >= 0 ? pixel * a.k + word * WORD_CHANNELS : 0), pixel >= 0);
    }
}

__device__ static void fetch(const struct grad_args &a, int index, unsigned stage)
{
    if (index < a.box.boxes) {
        const struct box_place at = place_of(a.box, index);
        fetch_box(a.box, at, stage, a.src, (int)blockIdx.y * a.box.chunk, a.box.chunk);
        fetch_grads(a, at, stage + a.grads_at);
    }
    copies_commit();
}

/* What a warp does: channels k and c from here on, every n_parts-th step of 16 pixels. */
struct grad_share {
    int k, c, part, n_parts; /* part >= n_parts: nothing */
};

template <int MT> __device__ static struct grad_share share_of(const struct grad_args &a, int warp)
{
    const int n_k = a.k / (MT * 16);
    const int n_c = a.box.chunk / 16;
    const struct grad_share share = {warp % n_k * MT * 16, warp / n_k % n_c * 16,
                                     warp / (n_k * n_c), GRAD_WARPS / (n_k * n_c)};
    return share;
}

template <int MT, int TAPS>
__device__ static void multiply_box(float (&sums)[MT][TAPS][2][4], const struct grad_args &a,
                                    const struct grad_share &share, unsigned stage)
{
    const int lane = threadIdx.x % 32;
    for (int step = share.part; step < a.box.pixels / 16; step += share.n_parts) {
        const unsigned grads = stage + a.grads_at +
                               (step * 16 + lane % 8 + lane / 16 * 8) * a.grads_pitch +
                               (share.k + lane / 8 % 2 * 8) * 2;
        const unsigned pixels =
            stage + source_at(a.box, step * 16 + lane % 16) + (share.c + lane / 16 * 8) * 2;
        unsigned x[MT][4];
#pragma unroll
        for (int m = 0; m < MT; m++)
            load_matrices<true>(x[m], grads + m * 32);
#pragma unroll
        for (int tap = 0; tap < TAPS; tap++) {
            unsigned y[4];
            load_matrices<true>(y, pixels + a.box.tap_at[tap]);
#pragma unroll
            for (int m = 0; m < MT; m++) {
                multiply(sums[m][tap][0], x[m], y[0], y[1]);
                multiply(sums[m][tap][1], x[m], y[2], y[3]);
            }
        }
    }
}

template <int MT, int TAPS>
__global__ void __launch_bounds__(GRAD_THREADS) thin_grad_kernel(const struct grad_args a)
{
    extern __shared__ uint4 room[];
    const unsigned start = shared_address(room);
    const struct grad_share share = share_of<MT>(a, threadIdx.x / 32);
    const int chunk = a.box.chunk;
    float sums[MT][TAPS][2][4] = {};

    fetch(a, blockIdx.x, start);
    int turn = 0;
    for (int i = blockIdx.x; i < a.box.boxes; i += gridDim.x, turn ^= 1) {
        copies_wait<0>();
        __syncthreads();
        fetch(a, i + gridDim.x, start + (turn ^ 1) * a.stage_bytes);
        if (share.part < share.n_parts)
            multiply_box<MT, TAPS>(sums, a, share, start + turn * a.stage_bytes);
    }

    /* Warps that have shared the pixels add up one after the other, as [k, tap, chunk]. */
    float *total = reinterpret_cast<float *>(room);
    const int lane = threadIdx.x % 32;
    for (int part = 0; part < share.n_parts; part++) {
        __syncthreads();
        if (share.part != part)
            continue;
#pragma unroll
        for (int i = 0; i < MT * TAPS * 8; i++) {
            const int m = i / (TAPS * 8), tap = i / 8 % TAPS, n = i / 4 % 2;
            const int k = share.k + m * 16 + lane / 4 + i / 2 % 2 * 8;
            float *sum = &total[(k * TAPS + tap) * chunk + share.c + n * 8 + lane % 4 * 2 + i % 2];
            *sum = part == 0 ? sums[m][tap][n][i % 4] : *sum + sums[m][tap][n][i % 4];
        }
    }
    __syncthreads();
    float *out = a.partial + (int64_t)blockIdx.x * a.k * TAPS * a.box.c + blockIdx.y * chunk;
    for (int i = threadIdx.x; i < a.k * TAPS * chunk; i += GRAD_THREADS)
        out[(int64_t)(i / chunk) * a.box.c + i % chunk] = total[i];
}

/* ---- launching ------------------------------------------------------------------------------------ */

size_t cuda_thin_scratch(const struct cuda_conv_shape *shape, const struct cuda_thin_grad_tile *tile)
{
    return (size_t)(tile->blocks * shape->k * shape->r * shape->s * shape->c) * sizeof(float);
}

cudaError_t cuda_thin_d_weights(const struct cuda_conv_shape *shape,
                                const struct cuda_thin_grad_tile *tile, float *d_weights,
                                const struct cuda_weights *sizes, const void *src,
                                const void *d_dst, void *scratch, cudaStream_t stream)
{
    const bool is_double = shape->k % 32 == 0;
    const bool is_point = shape->r == 1;
    const int taps = (int)(shape->r * shape->s);
    const int shares = (int)(shape->k / (is_double ? 32 : 16)) * (tile->chunk / 16);
    if (shares > GRAD_WARPS || shape->c % tile->chunk != 0)
        return cudaErrorInvalidValue;
    struct grad_args a = {};
    a.box = thin_box_of(shape, log2_above(tile->pixels, 9), tile->chunk);
    a.k = (int)shape->k;
    a.grads_at = (int)thin_box_bytes(&a.box);
    a.grads_pitch = a.k * 2 + WORD;
    a.stage_bytes = a.grads_at + tile->pixels * a.grads_pitch;
    a.per_grad = divider_of(a.k / WORD_CHANNELS);
    a.src = (const bf16 *)src;
    a.d_dst = (const bf16 *)d_dst;
    a.partial = (float *)scratch;
    const int blocks = a.box.boxes < tile->blocks ? a.box.boxes : tile->blocks;
    const int total = a.k * taps * tile->chunk * (int)sizeof(float);
    const int bytes = 2 * a.stage_bytes > total ? 2 * a.stage_bytes : total;
    void (*const function)(const struct grad_args) =
        is_point ? (is_double ? thin_grad_kernel<2, 1> : thin_grad_kernel<1, 1>)
                 : (is_double ? thin_grad_kernel<2, 9> : thin_grad_kernel<1, 9>);
    const cudaError_t error =
        cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    if (error != cudaSuccess)
        return error;
    const dim3 grid((unsigned)blocks, (unsigned)(shape->c / tile->chunk));
    function<<<grid, GRAD_THREADS, (size_t)bytes, stream>>>(a);
    return add_partial(d_weights, a.partial, blocks, sizes, stream);
}

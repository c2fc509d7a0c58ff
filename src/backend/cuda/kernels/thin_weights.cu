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
    int grads_turn;          /* pixels of it that all threads fetch at a time */
    const bf16 *src, *d_dst;
    float *partial; /* [blocks, k, taps, c] */
};

/* A thread copies the same word of every `turn`th pixel. */
__device__ static void fetch_grads(const struct grad_args &a, const struct box_place &at,
                                   unsigned to)
{
    const int turn = a.grads_turn;
    int row = divide(threadIdx.x, a.per_grad);
    const int word = (int)threadIdx.x - row * (int)a.per_grad.by;
    if (row >= turn)
        return;
    to += word * WORD;
    for (; row < a.box.places; row += turn) {
        const int pixel = result_pixel(a.box, at, row);
        copy_16<false>(to + row * a.grads_pitch,
                       a.d_dst + (int64_t)(pixel < 0 ? 0 : pixel) * a.k + word * WORD_CHANNELS,
                       pixel >= 0);
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
    int k, c;
    int part, n_parts; /* part >= n_parts: nothing */
    int n_shares;      /* warps of one part, which are neighbours */
};

template <int MT> __device__ static struct grad_share share_of(const struct grad_args &a, int warp)
{
    const int n_k = a.k / (MT * 16);
    const int n_c = a.box.chunk / 16;
    const struct grad_share share = {warp % n_k * MT * 16, warp / n_k % n_c * 16,
                                     warp / (n_k * n_c), GRAD_WARPS / (n_k * n_c), n_k * n_c};
    return share;
}

template <int MT, int TAPS>
__device__ static void multiply_box(float (&sums)[MT][TAPS][2][4], const struct grad_args &a,
                                    const struct grad_share &share, unsigned stage)
{
    const int lane = threadIdx.x % 32;
    for (int step = share.part; step < a.box.places / 16; step += share.n_parts) {
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

/* Sums of warps that have shared the pixels, into those of the first of them: the upper half of the parts gives its sums to
 * the lower half until one is left. */
template <int N>
__device__ static void join_parts(float *sums, const struct grad_share &share, float *room)
{
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32 % share.n_shares;
    int left = share.n_parts;
    while (left > 1) {
        const int half = (left + 1) / 2;
        __syncthreads();
        if (share.part >= half && share.part < left) {
            float *to = room + ((share.part - half) * share.n_shares + warp) * N * 32 + lane;
#pragma unroll
            for (int i = 0; i < N; i++)
                to[i * 32] = sums[i];
        }
        __syncthreads();
        if (share.part + half < left) {
            const float *from = room + (share.part * share.n_shares + warp) * N * 32 + lane;
#pragma unroll
            for (int i = 0; i < N; i++)
                sums[i] += from[i * 32];
        }
        left = half;
    }
}

template <int MT, int TAPS>
__global__ void __launch_bounds__(GRAD_THREADS) thin_grad_kernel(const struct grad_args a)
{
    extern __shared__ uint4 room[];
    const unsigned start = shared_address(room);
    const struct grad_share share = share_of<MT>(a, threadIdx.x / 32);
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
    join_parts<MT * TAPS * 8>(&sums[0][0][0][0], share, reinterpret_cast<float *>(room));
    if (share.part != 0)
        return;
    const int lane = threadIdx.x % 32;
    float *out = a.partial + (int64_t)blockIdx.x * a.k * TAPS * a.box.c +
                 (int)blockIdx.y * a.box.chunk + share.c + lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < MT * TAPS * 4; i++) {
        const int m = i / (TAPS * 4), tap = i / 4 % TAPS, n = i / 2 % 2, row = i % 2;
        const int k = share.k + m * 16 + row * 8 + lane / 4;
        *reinterpret_cast<float2 *>(out + (k * TAPS + tap) * a.box.c + n * 8) =
            make_float2(sums[m][tap][n][2 * row], sums[m][tap][n][2 * row + 1]);
    }
}

/* ---- launching ------------------------------------------------------------------------------------ */

/* Warps have 32 channels k where these divide all of them. */
static bool is_double(const struct cuda_conv_shape *shape)
{
    return shape->k % 32 == 0;
}

/* Fills in all but the pointers; returns the bytes of shared memory. */
static size_t arrange(const struct cuda_conv_shape *shape, const struct cuda_thin_grad_tile *tile,
                      struct grad_args *a)
{
    a->box = thin_box_of(shape, false, log2_above(tile->pixels, MAX_LOG_PLACES), tile->chunk,
                         GRAD_THREADS);
    a->k = (int)shape->k;
    a->grads_at = (int)thin_box_bytes(&a->box);
    a->grads_pitch = a->k * 2 + WORD;
    a->stage_bytes = a->grads_at + a->box.places * a->grads_pitch;
    a->per_grad = divider_of(a->k / WORD_CHANNELS);
    a->grads_turn = GRAD_THREADS / (a->k / WORD_CHANNELS);
    const int sums = (is_double(shape) ? 2 : 1) * (int)(shape->r * shape->s) * 8; /* of a thread */
    const int joined = GRAD_THREADS / 2 * sums * (int)sizeof(float);
    return (size_t)(2 * a->stage_bytes > joined ? 2 * a->stage_bytes : joined);
}

size_t cuda_thin_grad_shared(const struct cuda_conv_shape *shape,
                             const struct cuda_thin_grad_tile *tile)
{
    struct grad_args a = {};
    if (tile->chunk <= 0 || tile->chunk % 16 != 0 || shape->c % tile->chunk != 0 ||
        shape->k / (is_double(shape) ? 32 : 16) * (tile->chunk / 16) > GRAD_WARPS)
        return 0;
    return arrange(shape, tile, &a);
}

size_t cuda_thin_scratch(const struct cuda_conv_shape *shape,
                         const struct cuda_thin_grad_tile *tile)
{
    return (size_t)(tile->blocks * shape->k * shape->r * shape->s * shape->c) * sizeof(float);
}

cudaError_t cuda_thin_d_weights(const struct cuda_conv_shape *shape,
                                const struct cuda_thin_grad_tile *tile, float *d_weights,
                                const struct cuda_weights *sizes, const void *src,
                                const void *d_dst, void *scratch, cudaStream_t stream)
{
    struct grad_args a = {};
    if (cuda_thin_grad_shared(shape, tile) == 0)
        return cudaErrorInvalidValue;
    const size_t bytes = arrange(shape, tile, &a);
    a.src = (const bf16 *)src;
    a.d_dst = (const bf16 *)d_dst;
    a.partial = (float *)scratch;
    void (*const function)(const struct grad_args) =
        shape->r == 1 ? (is_double(shape) ? thin_grad_kernel<2, 1> : thin_grad_kernel<1, 1>)
                      : (is_double(shape) ? thin_grad_kernel<2, 9> : thin_grad_kernel<1, 9>);
    const cudaError_t error = allow_shared((const void *)function);
    if (error != cudaSuccess)
        return error;
    const int blocks = a.box.boxes < tile->blocks ? a.box.boxes : tile->blocks;
    const dim3 grid((unsigned)blocks, (unsigned)(shape->c / tile->chunk));
    function<<<grid, GRAD_THREADS, bytes, stream>>>(a);
    return add_partial(d_weights, a.partial, blocks, sizes, stream);
}

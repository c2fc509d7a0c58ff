/*
 * The first convolution: 3x3, stride 1, a picture of at most eight channels, in bf16 on tensor cores.
 *
 * Both passes read the caller's picture, [n, c, h, w] in f32, straight into shared memory as pixels of
 * eight channels: 16 bytes, of which every thread takes the two channels that its fragment of the
 * matrix needs. A pair of taps of the 3x3 window is one step of 16 along the inner dimension. What is
 * left is the time it takes to write dst, or to read d_dst.
 */
#include "backend/cuda/kernels/mma.cuh"
#include "backend/cuda/kernels/partial.cuh"

enum {
    STRIP_H = 8,
    STRIP_W = 32,
    TILE_H = STRIP_H + 2,
    TILE_W = STRIP_W + 2,
    TAPS = 9,
    STEM_THREADS = 256,
    N_WARPS = STEM_THREADS / 32,
    GRAD_BLOCKS = 264,
    ROW = TAPS * 8 /* one output channel's weights */
};

/* Strips of 8 x 32 pixels: where one begins. */
struct strip {
    int64_t n, y, x;
};

__device__ static struct strip strip_at(const struct cuda_stem &stem, int64_t i)
{
    const int64_t across = (stem.w + STRIP_W - 1) / STRIP_W;
    const int64_t down = (stem.h + STRIP_H - 1) / STRIP_H;
    const struct strip at = {i / across / down, i / across % down * STRIP_H, i % across * STRIP_W};
    return at;
}

static int64_t n_strips(const struct cuda_stem *stem)
{
    return stem->n * ((stem->h + STRIP_H - 1) / STRIP_H) * ((stem->w + STRIP_W - 1) / STRIP_W);
}

/* The strip's pixels and those around it. */
__device__ static void load_tile(uint4 *tile, const struct cuda_stem &stem, struct strip at)
{
    for (int i = threadIdx.x; i < TILE_H * TILE_W; i += STEM_THREADS) {
        const int64_t y = at.y + i / TILE_W - 1;
        const int64_t x = at.x + i % TILE_W - 1;
        const bool inside = y >= 0 && y < stem.h && x >= 0 && x < stem.w;
        float pixel[8];
#pragma unroll
        for (int c = 0; c < 8; c++)
            pixel[c] = inside && c < stem.c
                           ? stem.image[((at.n * stem.c + c) * stem.h + y) * stem.w + x]
                           : 0.0f;
        vec<bf16, 8>::store(reinterpret_cast<bf16 *>(&tile[i]), pixel);
    }
}

/* A warp computes one row of 32 pixels for NT * 8 output channels. */
template <int NT>
__global__ void __launch_bounds__(STEM_THREADS)
    stem_kernel(const struct cuda_stem stem, bf16 *dst, const bf16 *weights, const float *bias,
                bool relu)
{
    enum { STAGE_ROW = NT + 1 }; /* 16-byte words; one more keeps the banks apart */
    __shared__ uint4 tile[TILE_H * TILE_W];
    __shared__ uint4 filters[NT * 8 * TAPS];
    __shared__ uint4 stage[N_WARPS * 16 * STAGE_ROW];
    const struct strip at = strip_at(stem, blockIdx.x);
    const int64_t first_k = (int64_t)blockIdx.y * NT * 8;
    const int warp = threadIdx.x / 32;
    const int g = threadIdx.x % 32 / 4;
    const int t = threadIdx.x % 4;

    load_tile(tile, stem, at);
    for (int i = threadIdx.x; i < NT * 8 * TAPS; i += STEM_THREADS)
        filters[i] = reinterpret_cast<const uint4 *>(weights)[first_k * TAPS + i];
    __syncthreads();

    const unsigned *pixels = reinterpret_cast<const unsigned *>(tile);
    const unsigned *taps = reinterpret_cast<const unsigned *>(filters);
    float sums[2][NT][4] = {};
#pragma unroll
    for (int step = 0; step < (TAPS + 1) / 2; step++) {
        unsigned a[2][4];
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int tap = 2 * step + half;
            const int base = (warp + tap / 3) * TILE_W + tap % 3 + g;
#pragma unroll
            for (int m = 0; m < 2; m++) {
                a[m][2 * half] = tap < TAPS ? pixels[(base + 16 * m) * 4 + t] : 0u;
                a[m][2 * half + 1] = tap < TAPS ? pixels[(base + 16 * m + 8) * 4 + t] : 0u;
            }
        }
#pragma unroll
        for (int n = 0; n < NT; n++) {
            const int row = (n * 8 + g) * TAPS + 2 * step;
            const unsigned b[2] = {taps[row * 4 + t],
                                   2 * step + 1 < TAPS ? taps[(row + 1) * 4 + t] : 0u};
            multiply(sums[0][n], a[0], b[0], b[1]);
            multiply(sums[1][n], a[1], b[0], b[1]);
        }
    }

    unsigned *mine = reinterpret_cast<unsigned *>(stage + warp * 16 * STAGE_ROW);
    const int64_t y = at.y + warp;
#pragma unroll
    for (int m = 0; m < 2; m++) {
#pragma unroll
        for (int n = 0; n < NT; n++) {
            const int64_t k = first_k + n * 8 + 2 * t;
            const float low = bias ? bias[k] : 0.0f;
            const float high = bias ? bias[k + 1] : 0.0f;
#pragma unroll
            for (int half = 0; half < 2; half++) {
                float u = sums[m][n][2 * half] + low;
                float v = sums[m][n][2 * half + 1] + high;
                u = relu && u < 0.0f ? 0.0f : u;
                v = relu && v < 0.0f ? 0.0f : v;
                const __nv_bfloat162 pair = __floats2bfloat162_rn(u, v);
                mine[((g + 8 * half) * STAGE_ROW + n) * 4 + t] =
                    *reinterpret_cast<const unsigned *>(&pair);
            }
        }
        __syncwarp();
        for (int i = threadIdx.x % 32; i < 16 * NT; i += 32) {
            const int64_t x = at.x + 16 * m + i / NT;
            if (y < stem.h && x < stem.w)
                reinterpret_cast<uint4 *>(dst + ((at.n * stem.h + y) * stem.w + x) * stem.k +
                                          first_k)[i % NT] =
                    reinterpret_cast<const uint4 *>(mine)[i / NT * STAGE_ROW + i % NT];
        }
        __syncwarp();
    }
}

/* ---- the gradient of its weights ------------------------------------------------------------------- */

/* d_weights [k, taps, 8] = sum over pixels of d_dst [pixel, k] times the picture around it. A block
 * walks over strips; its warps share the MT * 16 output channels and the rows of the strip. */
template <int MT>
__global__ void __launch_bounds__(STEM_THREADS)
    stem_grad_kernel(const struct cuda_stem stem, float *partial, const bf16 *d_dst,
                     int64_t strips)
{
    enum { PARTS = N_WARPS / MT, GRAD_ROW = MT * 2 + 1, PIXELS = STRIP_H * STRIP_W };
    __shared__ uint4 tile[TILE_H * TILE_W];
    __shared__ uint4 grads[PIXELS * GRAD_ROW];
    const int64_t first_k = (int64_t)blockIdx.y * MT * 16;
    const int warp = threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    const int m = warp % MT;
    const int part = warp / MT;
    float sums[TAPS][4] = {};

    for (int64_t i = blockIdx.x; i < strips; i += gridDim.x) {
        const struct strip at = strip_at(stem, i);
        __syncthreads();
        load_tile(tile, stem, at);
        for (int j = threadIdx.x; j < PIXELS * MT * 2; j += STEM_THREADS) {
            const int pixel = j / (MT * 2);
            const int64_t y = at.y + pixel / STRIP_W;
            const int64_t x = at.x + pixel % STRIP_W;
            uint4 g = make_uint4(0, 0, 0, 0);
            if (y < stem.h && x < stem.w)
                g = reinterpret_cast<const uint4 *>(
                    d_dst + ((at.n * stem.h + y) * stem.w + x) * stem.k + first_k)[j % (MT * 2)];
            grads[pixel * GRAD_ROW + j % (MT * 2)] = g;
        }
        __syncthreads();
        for (int first = part * (PIXELS / PARTS); first < (part + 1) * (PIXELS / PARTS);
             first += 16) {
            unsigned a[4];
            const int row = first + lane % 8 + lane / 16 * 8;
            load_matrices<true>(a, shared_address(&grads[row * GRAD_ROW + 2 * m + lane / 8 % 2]));
            const int pixel = first / STRIP_W * TILE_W + first % STRIP_W + lane % 16;
#pragma unroll
            for (int tap = 0; tap < TAPS; tap++) {
                unsigned b[2];
                asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                             : "=r"(b[0]), "=r"(b[1])
                             : "r"(shared_address(&tile[pixel + tap / 3 * TILE_W + tap % 3])));
                multiply(sums[tap], a, b[0], b[1]);
            }
        }
    }
    /* Parts add up one after the other, in the memory of d_dst. */
    float *total = reinterpret_cast<float *>(grads); /* [MT * 16][ROW] */
    for (int turn = 0; turn < PARTS; turn++) {
        __syncthreads();
        for (int tap = 0; tap < TAPS && part == turn; tap++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int k = m * 16 + lane / 4 + i / 2 * 8;
                float *sum = &total[k * ROW + tap * 8 + lane % 4 * 2 + i % 2];
                *sum = turn == 0 ? sums[tap][i] : *sum + sums[tap][i];
            }
    }
    __syncthreads();
    for (int i = threadIdx.x; i < MT * 16 * ROW; i += STEM_THREADS)
        partial[((int64_t)blockIdx.x * stem.k + first_k) * ROW + i] = total[i];
}

bool cuda_stem_serves(int64_t c, int64_t k_stored)
{
    return c <= 8 && k_stored % 16 == 0;
}

/* Output channels of a block. */
static int64_t width_of(const struct cuda_stem *stem)
{
    return stem->k % 64 == 0 ? 64 : stem->k % 32 == 0 ? 32 : 16;
}

cudaError_t cuda_stem(const struct cuda_stem *stem, void *dst, const void *weights,
                      const float *bias, bool relu, cudaStream_t stream)
{
    const int64_t width = width_of(stem);
    const dim3 grid((unsigned)n_strips(stem), (unsigned)(stem->k / width));
    bf16 *to = (bf16 *)dst;
    const bf16 *filters = (const bf16 *)weights;
    if (width == 16)
        stem_kernel<2><<<grid, STEM_THREADS, 0, stream>>>(*stem, to, filters, bias, relu);
    else if (width == 32)
        stem_kernel<4><<<grid, STEM_THREADS, 0, stream>>>(*stem, to, filters, bias, relu);
    else
        stem_kernel<8><<<grid, STEM_THREADS, 0, stream>>>(*stem, to, filters, bias, relu);
    return cudaGetLastError();
}

size_t cuda_stem_scratch(const struct cuda_stem *stem)
{
    return (size_t)(GRAD_BLOCKS * stem->k * ROW) * sizeof(float);
}

cudaError_t cuda_stem_d_weights(const struct cuda_stem *stem, float *d_weights, int64_t k,
                                const void *d_dst, void *scratch, cudaStream_t stream)
{
    const int64_t strips = n_strips(stem);
    const int64_t width = width_of(stem);
    const int blocks = strips < GRAD_BLOCKS ? (int)strips : (int)GRAD_BLOCKS;
    const dim3 grid((unsigned)blocks, (unsigned)(stem->k / width));
    float *partial = (float *)scratch;
    const bf16 *g = (const bf16 *)d_dst;
    if (width == 16)
        stem_grad_kernel<1><<<grid, STEM_THREADS, 0, stream>>>(*stem, partial, g, strips);
    else if (width == 32)
        stem_grad_kernel<2><<<grid, STEM_THREADS, 0, stream>>>(*stem, partial, g, strips);
    else
        stem_grad_kernel<4><<<grid, STEM_THREADS, 0, stream>>>(*stem, partial, g, strips);
    struct cuda_weights sizes = {};
    sizes.k = k, sizes.c = stem->c, sizes.area = TAPS;
    sizes.k_stored = stem->k, sizes.c_stored = 8;
    return add_partial(d_weights, partial, blocks, &sizes, stream);
}

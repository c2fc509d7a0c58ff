/*
 * A folded network of thin layers, from the result of its first convolution to its features, in one launch.
 *
 * A block has a picture to itself. All images that the network makes of it lie in shared memory, one on top of the other
 * where they are not needed at the same time (cuda_chain.c says where), so that nothing is written but the features;
 * the weights of a layer come while the one before it is computed. A pixel's channels lie together, pixels an odd
 * number of 16-byte words apart, so that eight neighbours meet all banks (with a stride half of them do). The rows of a
 * product are 16 pixels one after the other, a tap is another distance to where they are read; pixels beyond the border
 * are read from a few zeros.
 */
#include "backend/cuda/kernels/mma.cuh"
#include "backend/cuda/kernels/pairs.cuh"

enum {
    CHAIN_WARPS = 8,
    CHAIN_THREADS = 32 * CHAIN_WARPS,
    UNIT = 16, /* pixels, and channels of either side, of a product; two products of eight result channels */
    WORD = 16, /* bytes */
    WORD_CHANNELS = 8,
    ALL_TAPS = 9
};

/* ---- sizes ---------------------------------------------------------------------------------------------- */

__host__ __device__ static inline int pixel_pitch(int channels)
{
    return channels * 2 + WORD;
}

/* From one result channel to the next. */
__host__ __device__ static inline int weights_pitch(int taps, int channels)
{
    return taps * channels * 2 + WORD;
}

size_t cuda_chain_image(int64_t pixels, int channels)
{
    return (size_t)pixels * (size_t)pixel_pitch(channels);
}

size_t cuda_chain_weights(int k, int taps, int c)
{
    return (size_t)k * (size_t)weights_pitch(taps, c);
}

size_t cuda_chain_zeros(void)
{
    return WORD;
}

/* ---- what comes from outside ---------------------------------------------------------------------------- */

/* [k, taps, c], a warp a row at a time. */
__device__ static void fetch_weights(const struct cuda_chain_layer &l, unsigned memory)
{
    const int words = l.taps * l.c / WORD_CHANNELS;
    const int pitch = weights_pitch(l.taps, l.c);
    const uint4 *from = (const uint4 *)l.weights;
    for (int row = (int)threadIdx.x / 32; row < l.k; row += CHAIN_WARPS)
        for (int i = (int)threadIdx.x % 32; i < words; i += 32)
            copy_16<true>(memory + l.weights_at + row * pitch + i * WORD, from + row * words + i,
                          true);
}

__device__ static void fetch_picture(const struct cuda_chain &chain, unsigned memory)
{
    const int words = chain.layers[0].c / WORD_CHANNELS;
    const int pitch = pixel_pitch(chain.layers[0].c);
    const uint4 *from = (const uint4 *)chain.src + (int64_t)blockIdx.x * chain.pixels * words;
    for (int i = (int)threadIdx.x; i < chain.pixels * words; i += CHAIN_THREADS)
        copy_16<false>(memory + chain.layers[0].src_at + i / words * pitch + i % words * WORD,
                       from + i, true);
}

/* ---- a layer --------------------------------------------------------------------------------------------- */

/* Taps of a 3x3 window, a bit each, that a pixel of the source finds within the image. */
__device__ static unsigned open_taps(int y, int x, int h, int w)
{
    unsigned open = (1u << ALL_TAPS) - 1;
    if (y == 0)
        open &= ~0007u;
    if (y + 1 == h)
        open &= ~0700u;
    if (x == 0)
        open &= ~0111u;
    if (x + 1 == w)
        open &= ~0444u;
    return open;
}

/* What a lane reads of ROWS * 16 pixels and COLUMNS * 16 result channels. */
template <int ROWS, int COLUMNS, int TAPS> struct reader {
    unsigned pixels[ROWS]; /* address of its word of its pixel of 16, without a tap */
    unsigned open[ROWS];
    unsigned weights;
    unsigned zeros;
    int across, down; /* bytes to the neighbours */
    int tap_bytes;    /* of a row of weights */
    int columns_pitch;

    __device__ void load(unsigned (&a)[ROWS][4], unsigned (&b)[COLUMNS][4], int tap, int step) const
    {
        const int away = TAPS == 1 ? 0 : (tap / 3 - 1) * down + (tap % 3 - 1) * across;
#pragma unroll
        for (int n = 0; n < COLUMNS; n++)
            load_matrices<false>(b[n], weights + n * columns_pitch + tap * tap_bytes +
                                           step * UNIT * 2);
#pragma unroll
        for (int m = 0; m < ROWS; m++)
            load_matrices<false>(a[m], TAPS == 1 || open[m] >> tap & 1u
                                           ? pixels[m] + away + step * UNIT * 2
                                           : zeros);
    }
};

template <int ROWS, int COLUMNS, int TAPS>
__device__ static reader<ROWS, COLUMNS, TAPS> reader_of(const struct cuda_chain_layer &l,
                                                        unsigned memory, unsigned zeros, int pixel,
                                                        int channel)
{
    const int lane = (int)threadIdx.x % 32;
    const int w = l.stride << l.log_w;
    const int h = l.stride << l.log_h;
    const int pitch = pixel_pitch(l.c);
    reader<ROWS, COLUMNS, TAPS> r;
#pragma unroll
    for (int m = 0; m < ROWS; m++) {
        const int i = pixel + m * UNIT + lane % UNIT;
        const int y = (i >> l.log_w) * l.stride;
        const int x = (i & ((1 << l.log_w) - 1)) * l.stride;
        r.pixels[m] = memory + l.src_at + (y * w + x) * pitch + lane / UNIT * WORD;
        r.open[m] = open_taps(y, x, h, w);
    }
    /* Matrices: eight result channels by eight of the source, those that come next in the source, the same of the
     * eight result channels behind. */
    const int row = channel + lane / UNIT * 8 + lane % 8;
    r.weights =
        memory + l.weights_at + row * weights_pitch(TAPS, l.c) + lane / 8 % 2 * WORD;
    r.zeros = zeros;
    r.across = pitch;
    r.down = w * pitch;
    r.tap_bytes = l.c * 2;
    r.columns_pitch = UNIT * weights_pitch(TAPS, l.c);
    return r;
}

template <int ROWS, int COLUMNS>
__device__ static void multiply_all(float (&sums)[ROWS][2 * COLUMNS][4],
                                    const unsigned (&a)[ROWS][4], const unsigned (&b)[COLUMNS][4])
{
#pragma unroll
    for (int m = 0; m < ROWS; m++)
#pragma unroll
        for (int n = 0; n < COLUMNS; n++) {
            multiply(sums[m][2 * n], a[m], b[n][0], b[n][1]);
            multiply(sums[m][2 * n + 1], a[m], b[n][2], b[n][3]);
        }
}

/* The result channels whose sums a lane has: two of every eight. */
__device__ static int channel_of(int channel, int n)
{
    return channel + n * 8 + (int)threadIdx.x % 4 * 2;
}

/* dst = relu?(sums + bias + residual), rounded once. */
template <int ROWS, int COLUMNS>
__device__ static void finish(const struct cuda_chain_layer &l, unsigned char *memory,
                              const float (&sums)[ROWS][2 * COLUMNS][4],
                              const float2 (&bias)[2 * COLUMNS], int pixel, int channel)
{
    const int lane = (int)threadIdx.x % 32;
    const int pitch = pixel_pitch(l.k);
    const float least = l.relu ? 0.0f : -INFINITY;
#pragma unroll
    for (int n = 0; n < 2 * COLUMNS; n++) {
        const int k = channel_of(channel, n);
#pragma unroll
        for (int m = 0; m < ROWS; m++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const int at = (pixel + m * UNIT + lane / 4 + half * 8) * pitch + k * 2;
                float low = sums[m][n][2 * half] + bias[n].x;
                float high = sums[m][n][2 * half + 1] + bias[n].y;
                if (l.residual_at >= 0) {
                    const unsigned residual = *(const unsigned *)(memory + l.residual_at + at);
                    low += low_of(residual);
                    high += high_of(residual);
                }
                *(unsigned *)(memory + l.dst_at + at) =
                    packed(larger_or_nan(low, least), larger_or_nan(high, least));
            }
    }
}

/* Fragments of the next tap are read while those of the last one are multiplied, and the bias while all are. */
template <int ROWS, int COLUMNS, int TAPS>
__device__ static void run_layer(const struct cuda_chain_layer &l, unsigned char *memory,
                                 unsigned zeros)
{
    const int log_rows = l.log_w + l.log_h - (ROWS == 4 ? 6 : ROWS == 2 ? 5 : 4); /* of items */
    const int items = (l.k / (UNIT * COLUMNS)) << log_rows;
    for (int item = (int)threadIdx.x / 32; item < items; item += CHAIN_WARPS) {
        const int pixel = (item & ((1 << log_rows) - 1)) * ROWS * UNIT;
        const int channel = (item >> log_rows) * COLUMNS * UNIT;
        const reader<ROWS, COLUMNS, TAPS> r =
            reader_of<ROWS, COLUMNS, TAPS>(l, shared_address(memory), zeros, pixel, channel);
        float sums[ROWS][2 * COLUMNS][4] = {};
        float2 bias[2 * COLUMNS];
#pragma unroll
        for (int n = 0; n < 2 * COLUMNS; n++)
            bias[n] = __ldg((const float2 *)(l.bias + channel_of(channel, n)));
        for (int step = 0; step < l.c / UNIT; step++) {
            unsigned a[2][ROWS][4];
            unsigned b[2][COLUMNS][4];
            r.load(a[0], b[0], 0, step);
#pragma unroll
            for (int tap = 0; tap < TAPS; tap++) {
                if (tap + 1 < TAPS)
                    r.load(a[(tap + 1) % 2], b[(tap + 1) % 2], tap + 1, step);
                multiply_all<ROWS, COLUMNS>(sums, a[tap % 2], b[tap % 2]);
            }
        }
        finish<ROWS, COLUMNS>(l, memory, sums, bias, pixel, channel);
    }
}

template <int TAPS>
__device__ static void run_taps(const struct cuda_chain_layer &l, unsigned char *memory,
                                unsigned zeros)
{
    if (l.columns == 2) {
        if (l.rows == 2)
            run_layer<2, 2, TAPS>(l, memory, zeros);
        else
            run_layer<1, 2, TAPS>(l, memory, zeros);
    } else if (l.rows == 4) {
        run_layer<4, 1, TAPS>(l, memory, zeros);
    } else if (l.rows == 2) {
        run_layer<2, 1, TAPS>(l, memory, zeros);
    } else {
        run_layer<1, 1, TAPS>(l, memory, zeros);
    }
}

/* ---- the whole --------------------------------------------------------------------------------------------- */

/* The mean over all pixels, channel by channel. */
__device__ static void pool(const struct cuda_chain &chain, const unsigned char *memory)
{
    const struct cuda_chain_layer &l = chain.layers[chain.n - 1];
    const int pixels = 1 << (l.log_w + l.log_h);
    const int pitch = pixel_pitch(l.k);
    float *features = (float *)chain.features.data + (int64_t)blockIdx.x * chain.features.pitch;
    for (int c = (int)threadIdx.x; c < (int)chain.features.cols; c += CHAIN_THREADS) {
        float sum = 0.0f;
        for (int i = 0; i < pixels; i++)
            sum += to_float(*(const bf16 *)(memory + l.dst_at + i * pitch + c * 2));
        features[c] = sum / (float)pixels;
    }
}

__global__ void __launch_bounds__(CHAIN_THREADS, 2)
    chain_kernel(const __grid_constant__ struct cuda_chain chain)
{
    extern __shared__ __align__(128) unsigned char memory[];
    const unsigned start = shared_address(memory);
    const unsigned zeros = start + chain.zeros_at;
    fetch_picture(chain, start);
    if (threadIdx.x == 0)
        *(uint4 *)(memory + chain.zeros_at) = make_uint4(0, 0, 0, 0);
    for (int i = 0; i < chain.n; i++) {
        const struct cuda_chain_layer &l = chain.layers[i];
        if (i == 0 || !l.is_early) {
            fetch_weights(l, start);
            copies_commit();
            copies_wait<0>();
            __syncthreads();
        }
        if (i + 1 < chain.n && chain.layers[i + 1].is_early)
            fetch_weights(chain.layers[i + 1], start);
        copies_commit();
        if (l.taps == ALL_TAPS)
            run_taps<ALL_TAPS>(l, memory, zeros);
        else
            run_taps<1>(l, memory, zeros);
        copies_wait<0>();
        __syncthreads();
    }
    pool(chain, memory);
}

cudaError_t cuda_chain(const struct cuda_chain *chain, int64_t n, cudaStream_t stream)
{
    cudaError_t error = allow_shared((const void *)chain_kernel);
    if (error != cudaSuccess)
        return error;
    chain_kernel<<<(unsigned)n, CHAIN_THREADS, chain->shared, stream>>>(*chain);
    return cudaGetLastError();
}

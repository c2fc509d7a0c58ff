/*
 * 3x3 convolutions of small images on Hopper's tensor cores (wgmma): an experiment, not part of the back end.
 *
 * Result channels are the rows of a product, 64 at a time; pixels are its columns. A strip of a picture lies in shared
 * memory once, with a border of zeros; eight neighbouring pixels are a group, groups below each other are one row
 * of the picture apart. A tap is another address to begin at. So a product covers eight columns of a strip.
 *
 * Pictures lie in one of two ways. PLANES: eight channels of all pixels, then the next eight; pixels are 16 bytes apart,
 * and nothing is swizzled. SWIZZLED: as outside, 64 channels (or 32) of a pixel next to each other, swizzled by
 * the address; the copy engine (TMA) brings that, zeros and all.
 *
 * Weights are arranged beforehand (arrange_weights), so that a tap's are one piece of memory.
 */
#ifndef BENCH_CUDA_STRIP_CUH
#define BENCH_CUDA_STRIP_CUH

#include "cuda_strip_wgmma.cuh"

#include <cuda.h>

enum strip_layout { PLANES, SWIZZLED };

/* How a lane's results are written: 4 bytes of two pixels, or, after a transposition, 8 bytes of one. */
enum strip_writing { PAIRS, QUADS };

enum {
    MAX_SHARED = 227 << 10,
    TAPS = 9,
    GROUP = 8 /* pixels */,
    ROWS_16 = 16,
    WORD = 16 /* bytes */
};

__host__ __device__ constexpr int round_up(int x, int to)
{
    return (x + to - 1) / to * to;
}

/* Words of a plane: more than `least`, such that the words of neighbouring channels and pixels lie in different banks. */
__host__ __device__ constexpr int plane_words(int least, int channels)
{
    const int apart = channels == 32 ? 2 : 1;
    return least + ((apart - least) % 8 + 8) % 8;
}

/* What a kernel is made for.
 * tiles_m   64 result channels each, of a block
 * rows      of a strip; strips are as wide as the picture
 * strips    of a block, all in shared memory at once
 * groups    of four warps; each computes tiles of 64 channels by 8 columns
 * slots     taps whose weights are in shared memory at once
 * in_turn   a group begins when the one before has handed in all its products
 * paired    32 result channels: rows 32 to 63 of a product are those of the next row of pixels */
template <int C_, int K_, int SIZE_, strip_layout LAYOUT_, int TILES_M_, int ROWS_, int STRIPS_,
          int GROUPS_, int SLOTS_, bool IN_TURN_, strip_writing WRITING_, int BLOCKS_,
          bool PAIRED_ = false>
struct plan {
    static constexpr int C = C_, K = K_, SIZE = SIZE_, TILES_M = TILES_M_, ROWS = ROWS_;
    static constexpr int STRIPS = STRIPS_, GROUPS = GROUPS_, BLOCKS = BLOCKS_;
    static constexpr strip_layout LAYOUT = LAYOUT_;
    static constexpr strip_writing WRITING = WRITING_;
    static constexpr bool IN_TURN = IN_TURN_, PAIRED = PAIRED_;

    static constexpr int STEPS = C / 16;
    static constexpr int N = 8 * ROWS / (PAIRED ? 2 : 1); /* columns of a product */
    static constexpr int THREADS = GROUPS * 128;
    static constexpr int TILES = STRIPS * SIZE / 8 * TILES_M;
    static constexpr int TURNS = TILES / GROUPS;

    static constexpr int PITCH = SIZE + 2; /* pixels */
    static constexpr int PIXELS = PITCH * (ROWS + 2);
    static constexpr int PIXEL = C == 32 ? 64 : 128; /* bytes, swizzled */
    static constexpr int PIECES = (C + 63) / 64;     /* swizzled pictures of up to 64 channels */
    static constexpr int PIECE = round_up(PIXELS * PIXEL, 1024);
    static constexpr int PLANE = plane_words(PIXELS, C) * WORD;
    static constexpr int STRIP =
        LAYOUT == PLANES ? round_up(C / 8 * PLANE, 128) : PIECES * PIECE; /* bytes */

    static constexpr int STAGES = PAIRED ? 3 : TAPS; /* pieces that weights come in */
    static constexpr int WINDOWS = PAIRED ? 4 : 1; /* of a stage: the same weights, further down */
    static constexpr int WEIGHT_ROWS = PAIRED ? 5 * 32 : 64 * TILES_M;
    static constexpr int HALF_STEP = WEIGHT_ROWS * WORD; /* eight source channels */
    static constexpr int STAGE = STEPS * 2 * HALF_STEP;
    static constexpr int SLOTS = SLOTS_ < STAGES ? SLOTS_ : STAGES;
    static constexpr bool STAYS = SLOTS == STAGES; /* weights are fetched once */

    static constexpr int WEIGHTS_AT = STRIPS * STRIP;
    static constexpr int BARRIERS_AT = WEIGHTS_AT + SLOTS * STAGE;
    static constexpr int SHARED = BARRIERS_AT + (STRIPS + 2 * SLOTS) * 8;

    static constexpr int STRIPS_PER_IMAGE = SIZE / ROWS;
    static constexpr int PARTS =
        K <= 64 ? 1 : K / (64 * TILES_M); /* of the result channels: blocks */

    static_assert(C % 16 == 0 && (LAYOUT == PLANES || C <= 64 || C % 64 == 0), "channels");
    static_assert(SIZE % ROWS == 0 && TILES % GROUPS == 0, "whole tiles");
    static_assert(GROUPS <= SIZE / 8 * TILES_M, "first tiles are of the first strip");
    static_assert(STRIPS <= 2 && !(PAIRED && (K != 32 || TILES_M != 1)), "cases");
    static_assert(STAYS || (!IN_TURN && TURNS == 1), "all go through the weights together, once");
    static_assert(SHARED <= MAX_SHARED, "shared memory");
};

/* Upper and lower half of a descriptor but for the address. */
struct strip_fields {
    unsigned low, high;
};

struct strip_args {
    __nv_bfloat16 *dst;            /* [n, size, size, k] */
    const __nv_bfloat16 *src;      /* [n, size, size, c] */
    const __nv_bfloat16 *weights;  /* arranged */
    const float *bias;             /* or NULL */
    const __nv_bfloat16 *residual; /* or NULL */
    int relu;
    int repeat; /* products none or so many times, to see what they take; 1 is right */
    struct strip_fields a, b;
    int base_sign; /* 0: no base offset; else times the row of the swizzle where a tap begins */
};

/* ---- fetching ------------------------------------------------------------------------------------- */

/* The strip's pixels and its border, a word for each thread at a time. */
template <class P>
__device__ static void fetch_planes(const struct strip_args &a, unsigned to, int image, int y0)
{
    constexpr int words = P::C / 8;
#pragma unroll 4
    for (int i = threadIdx.x; i < P::PIXELS * words; i += P::GROUPS * 128) {
        const int word = i % words;
        const int pixel = i / words;
        const int row = pixel / P::PITCH;
        const int y = y0 + row - 1;
        const int x = pixel - row * P::PITCH - 1;
        const bool exists = (unsigned)y < P::SIZE && (unsigned)x < P::SIZE;
        const int from = exists ? (image * P::SIZE + y) * P::SIZE + x : 0;
        copy_16(to + word * P::PLANE + pixel * WORD, a.src + (int64_t)from * P::C + word * 8,
                exists);
    }
    copies_commit();
}

/* What a block knows of itself. */
struct strip_block {
    unsigned room; /* shared memory */
    int first_strip;
    int part;
};

template <class P> __device__ static unsigned strip_barrier(unsigned room, int strip)
{
    return room + P::BARRIERS_AT + strip * 8;
}

template <class P> __device__ static unsigned full_barrier(unsigned room, int slot)
{
    return room + P::BARRIERS_AT + (P::STRIPS + slot) * 8;
}

template <class P> __device__ static unsigned empty_barrier(unsigned room, int slot)
{
    return room + P::BARRIERS_AT + (P::STRIPS + P::SLOTS + slot) * 8;
}

template <class P>
__device__ static void fetch_stage(const struct strip_args &a, const struct strip_block &block,
                                   int count)
{
    const int slot = count % P::SLOTS;
    const unsigned barrier = full_barrier<P>(block.room, slot);
    if (count >= P::SLOTS)
        barrier_wait(empty_barrier<P>(block.room, slot), (count / P::SLOTS - 1) & 1);
    barrier_expect(barrier, P::STAGE);
    const int from = block.part * P::STAGES + count;
    copy_bulk(block.room + P::WEIGHTS_AT + slot * P::STAGE,
              reinterpret_cast<const char *>(a.weights) + (int64_t)from * P::STAGE, P::STAGE,
              barrier);
}

template <class P>
__device__ static void fetch_swizzled(const CUtensorMap *map, const struct strip_block &block,
                                      int strip)
{
    const int index = block.first_strip + strip;
    const int image = index / P::STRIPS_PER_IMAGE;
    const int y0 = index % P::STRIPS_PER_IMAGE * P::ROWS;
    const unsigned barrier = strip_barrier<P>(block.room, strip);
    barrier_expect(barrier, P::PIECES * P::PIXELS * P::PIXEL);
    for (int piece = 0; piece < P::PIECES; piece++)
        copy_box(block.room + strip * P::STRIP + piece * P::PIECE, map, piece * 64, -1, y0 - 1,
                 image, barrier);
}

/* One thread begins all copies of the copy engine that have room. Weights come before what the launch before has
 * written, as they do not depend on it. */
template <class P>
__device__ static void fetch_all(const struct strip_args &a, const CUtensorMap *map,
                                 const struct strip_block &block)
{
    constexpr int early = 2;
    for (int i = 0; i < early; i++)
        fetch_stage<P>(a, block, i);
    if (P::LAYOUT == SWIZZLED) {
        wait_for_launch_before();
        fetch_swizzled<P>(map, block, 0);
    }
    for (int i = early; i < P::SLOTS; i++)
        fetch_stage<P>(a, block, i);
    if (P::LAYOUT == SWIZZLED)
        for (int strip = 1; strip < P::STRIPS; strip++)
            fetch_swizzled<P>(map, block, strip);
}

/* Stage `count` has been read by this group; what comes into its place begins to come when all have. */
template <class P>
__device__ static void give_back_stage(const struct strip_args &a, const struct strip_block &block,
                                       int count)
{
    if (threadIdx.x % 32 == 0)
        barrier_arrive(empty_barrier<P>(block.room, count % P::SLOTS));
    if (threadIdx.x == 0 && count + P::SLOTS < P::STAGES)
        fetch_stage<P>(a, block, count + P::SLOTS);
    __syncwarp();
}

/* ---- products ------------------------------------------------------------------------------------- */

/* Products of one stage: a tap, or a column of taps of paired rows. Lower halves of descriptors: `weights` of the
 * stage, `pixels` of the first pixel of the tile; distances are added to them in words. */
template <class P>
__device__ static void multiply_stage(float (&sums)[P::N / 2], const struct strip_args &a,
                                      unsigned weights, unsigned pixels, int stage, bool is_first)
{
    constexpr int pixel_words = P::LAYOUT == PLANES ? 1 : P::PIXEL / WORD;
#pragma unroll
    for (int window = 0; window < P::WINDOWS; window++) {
        const int row = P::PAIRED ? window : stage / 3;
        const int column = P::PAIRED ? stage : stage % 3;
        const unsigned from = weights + (P::PAIRED ? (3 - window) * 32 : 0);
        const unsigned first = pixels + (row * P::PITCH + column) * pixel_words;
        const unsigned base = (unsigned)(a.base_sign * (int)(first >> 3)) & 7;
        const unsigned high = a.b.high | base << 17;
#pragma unroll
        for (int step = 0; step < P::STEPS; step++) {
            const int ahead =
                P::LAYOUT == PLANES ? step * 2 * P::PLANE : step / 4 * P::PIECE + step % 4 * 32;
            product<P::N>::add(sums, descriptor(from + step * 2 * P::WEIGHT_ROWS, a.a.high),
                               descriptor(first + ahead / WORD, high),
                               !(is_first && window == 0 && step == 0));
        }
    }
}

/* Hands in all products of a tile; `weights` and `pixels`: lower halves of descriptors. */
template <class P>
__device__ static void multiply(float (&sums)[P::N / 2], const struct strip_args &a,
                                const struct strip_block &block, unsigned weights, unsigned pixels)
{
    keep_in_place(sums);
    for (int slot = 0; P::STAYS && a.repeat == 0 && slot < P::SLOTS; slot++)
        barrier_wait(full_barrier<P>(block.room, slot), 0); /* copies end before the block does */
    for (int again = 0; again < (P::STAYS ? a.repeat : 1); again++) {
#pragma unroll
        for (int stage = 0; stage < P::STAGES; stage++) {
            const int slot = stage % P::SLOTS;
            barrier_wait(full_barrier<P>(block.room, slot), stage / P::SLOTS & 1);
            asm volatile("" : "+r"(pixels), "+r"(weights)); /* addresses are made here, not kept */
            products_begin();
            multiply_stage<P>(sums, a, weights + slot * P::STAGE / WORD, pixels, stage,
                              again == 0 && stage == 0);
            products_commit();
            if (!P::STAYS && stage > 0) {
                products_wait<1>();
                give_back_stage<P>(a, block, stage - 1);
            }
        }
    }
}

/* ---- results -------------------------------------------------------------------------------------- */

/* Where a lane's numbers belong. The rows of a product are channels in such an order (strip_channel) that a lane has
 * neighbouring ones. */
template <class P> struct lane_place {
    int channel; /* first that is written */
    int bias[2]; /* channels of the lane's sums */
    bool counts;
    int64_t at; /* of group 0 */
    __device__ lane_place(const struct strip_block &block, int strip, int tile_m, int column)
    {
        const int lane = threadIdx.x % 32;
        const int warp = threadIdx.x / 32 % 4;
        const int high = lane / 4;
        const int low = lane % 4;
        const int first =
            (block.part * P::TILES_M + tile_m) * 64 + (P::PAIRED ? warp % 2 : warp) * 16;
        const int index = block.first_strip + strip;
        const int image = index / P::STRIPS_PER_IMAGE;
        const int y = index % P::STRIPS_PER_IMAGE * P::ROWS + (P::PAIRED ? warp / 2 : 0);
        const int x = column * 8 + (P::WRITING == PAIRS ? 2 * low : high);
        channel = first + (P::WRITING == PAIRS ? 2 * high : 4 * low);
        bias[0] = first + (P::WRITING == PAIRS ? 2 * high : high / 2 * 4 + high % 2);
        bias[1] = bias[0] + (P::WRITING == PAIRS ? 1 : 2);
        counts = first < P::K;
        at = (int64_t)((image * P::SIZE + y) * P::SIZE + x) * P::K + channel;
    }
    /* Numbers from one group to the next. */
    static constexpr int STEP = P::SIZE * (P::PAIRED ? 2 : 1) * P::K;
};

/* Residuals of a lane, two words for each group of pixels. */
template <class P>
__device__ static void fetch_residual(unsigned (&words)[P::N / 8][2], const struct strip_args &a,
                                      const lane_place<P> &place)
{
    if (!a.residual || !place.counts)
        return;
    const __nv_bfloat16 *from = a.residual + place.at;
#pragma unroll
    for (int j = 0; j < P::N / 8; j++, from += place.STEP) {
        if (P::WRITING == PAIRS) {
            words[j][0] = *reinterpret_cast<const unsigned *>(from);
            words[j][1] = *reinterpret_cast<const unsigned *>(from + P::K);
        } else {
            const uint2 both = *reinterpret_cast<const uint2 *>(from);
            words[j][0] = both.x;
            words[j][1] = both.y;
        }
    }
}

/* x: sums of a word's lower and upper half. */
__device__ static unsigned finish(float low, float high, unsigned residual, float least)
{
    return packed(larger_or_nan(low + lower_half(residual), least),
                  larger_or_nan(high + upper_half(residual), least));
}

template <class P>
__device__ static void write_results(const float (&sums)[P::N / 2],
                                     const unsigned (&residual)[P::N / 8][2],
                                     const struct strip_args &a, const lane_place<P> &place)
{
    const float least = a.relu ? 0.0f : -INFINITY;
    const float b0 = a.bias && place.counts ? a.bias[place.bias[0]] : 0.0f;
    const float b1 = a.bias && place.counts ? a.bias[place.bias[1]] : 0.0f;
    __nv_bfloat16 *to = a.dst + place.at;
#pragma unroll
    for (int j = 0; j < P::N / 8; j++, to += place.STEP) {
        const float s0 = sums[4 * j] + b0;
        const float s1 = sums[4 * j + 1] + b0;
        const float s2 = sums[4 * j + 2] + b1;
        const float s3 = sums[4 * j + 3] + b1;
        if (P::WRITING == PAIRS) {
            const unsigned w0 = finish(s0, s2, residual[j][0], least);
            const unsigned w1 = finish(s1, s3, residual[j][1], least);
            if (place.counts) {
                *reinterpret_cast<unsigned *>(to) = w0;
                *reinterpret_cast<unsigned *>(to + P::K) = w1;
            }
        } else {
            unsigned r0 = 0;
            unsigned r1 = 0;
            if (a.residual) {
                r0 = transposed(residual[j][0]);
                r1 = transposed(residual[j][1]);
            }
            const unsigned w0 = transposed(finish(s0, s1, r0, least));
            const unsigned w1 = transposed(finish(s2, s3, r1, least));
            if (place.counts)
                *reinterpret_cast<uint2 *>(to) = make_uint2(w0, w1);
        }
    }
}

/* ---- all ------------------------------------------------------------------------------------------ */

template <class P> __device__ static void prepare_barriers(unsigned room)
{
    if (threadIdx.x == 0) {
        for (int i = 0; i < P::STRIPS; i++)
            barrier_init(strip_barrier<P>(room, i), P::LAYOUT == SWIZZLED ? 1 : P::GROUPS * 128);
        for (int i = 0; i < P::SLOTS; i++) {
            barrier_init(full_barrier<P>(room, i), 1);
            barrier_init(empty_barrier<P>(room, i), P::GROUPS * 4);
        }
        barriers_publish();
    }
    __syncthreads();
}

/* This thread's copies of a strip have come and may be read by the tensor cores. */
template <class P, int LEFT> __device__ static void strip_has_come(unsigned room, int strip)
{
    copies_wait<LEFT>();
    fence_for_tensor_cores();
    barrier_arrive(strip_barrier<P>(room, strip));
}

template <class P>
__device__ static void compute(const struct strip_args &a, const struct strip_block &block)
{
    const int group = threadIdx.x / 128;
    for (int turn = 0; turn < P::TURNS; turn++) {
        const int tile = group + turn * P::GROUPS;
        const int tile_m = tile % P::TILES_M;
        const int column = tile / P::TILES_M % (P::SIZE / 8);
        const int strip = tile / P::TILES_M / (P::SIZE / 8);
        const unsigned pixels = block.room + strip * P::STRIP +
                                column * GROUP * (P::LAYOUT == PLANES ? WORD : P::PIXEL);
        const unsigned weights = block.room + P::WEIGHTS_AT + tile_m * 64 * WORD;
        float sums[P::N / 2];
        barrier_wait(strip_barrier<P>(block.room, strip), 0);
        if (P::IN_TURN && !(turn == 0 && group == 0))
            named_wait(1 + group, 256);
        multiply<P>(sums, a, block, a.a.low | weights / WORD, a.b.low | pixels / WORD);
        if (P::IN_TURN && !(turn == P::TURNS - 1 && group == P::GROUPS - 1))
            named_arrive(1 + (group + 1) % P::GROUPS, 256);
        if (P::LAYOUT == PLANES && P::STRIPS == 2 && turn == 0)
            strip_has_come<P, 0>(block.room, 1);

        const lane_place<P> place(block, strip, tile_m, column);
        unsigned residual[P::N / 8][2] = {};
        fetch_residual<P>(residual, a, place);
        products_wait<0>();
        keep_in_place(sums);
        write_results<P>(sums, residual, a, place);
    }
}

template <class P>
__global__ void __launch_bounds__(P::THREADS, P::BLOCKS)
    strip_kernel(const struct strip_args a, const __grid_constant__ CUtensorMap map)
{
    extern __shared__ __align__(1024) char shared[];
    const struct strip_block block = {shared_address(shared), (int)blockIdx.x * P::STRIPS,
                                      (int)blockIdx.y};
    if (block.room % 1024 != 0)
        __trap(); /* swizzles count from there */
    prepare_barriers<P>(block.room);
    let_next_launch_begin();
    if (threadIdx.x == 0)
        fetch_all<P>(a, &map, block);
    __syncwarp();
    wait_for_launch_before();
    if (P::LAYOUT == PLANES) {
        for (int strip = 0; strip < P::STRIPS; strip++) {
            const int index = block.first_strip + strip;
            fetch_planes<P>(a, block.room + strip * P::STRIP, index / P::STRIPS_PER_IMAGE,
                            index % P::STRIPS_PER_IMAGE * P::ROWS);
        }
        strip_has_come<P, P::STRIPS - 1>(block.room, 0);
    }
    compute<P>(a, block);
}

#endif

/*
 * A 3x3 convolution of a small picture on Hopper's tensor cores, or the gradient of its data.
 *
 * Result channels are the rows of a product, 64 at a time; pixels are its columns, 128 at a time: eight columns of 16
 * rows of the picture. A block computes one picture. It lies in shared memory once, in one strip or two, with a border of
 * zeros: eight neighbouring pixels are a group, and groups below each other are one row of the picture apart, so a
 * tap is only another address to begin at. Nothing is copied for the products.
 *
 * The copy engine brings pictures and weights as they lie outside, 64 (or 32) channels of a pixel or of a tap next to each
 * other, swizzled by the address. What it finds outside of the array, it makes zeros: the border, channels past the last.
 *
 * The gradient of the data is the same sum with the taps the other way round, and with weights that are read
 * transposed.
 *
 * Of 32 result channels two rows of the picture make 64: rows 32 to 63 of a product are those of the next row of
 * pixels. Then the taps of a column of the kernel lie below each other with zeros at both ends, and the weights for a row
 * of the source are a window over them that moves up from row to row.
 *
 * Where batch norm follows, the sums that it begins with are added up here, while results are in registers: one
 * part of them for each picture. Backwards what follows is the gradient of batch norm; its sums are those of what reaches
 * it behind the second gradient and the ReLU, which is then the result.
 */
#ifndef CUDA_STRIP_CUH
#define CUDA_STRIP_CUH

#include "backend/cuda/kernels/hopper.cuh"
#include "backend/cuda/kernels/slices.cuh"
#include "backend/cuda/kernels/slope.cuh"

enum {
    PRODUCT = 128, /* columns of a product */
    GROUP = 8,     /* pixels */
    STEP = 16,     /* source channels of a product */
    TAPS = 9
};

/* Bytes of a row of `channels`, which is as wide as its swizzle. */
__host__ __device__ constexpr int row_bytes(int channels)
{
    return channels == 32 ? 64 : 128;
}

/* FROM channels of pictures of SIZE x SIZE pixels become TO channels. */
template <int FROM_, int TO_, int SIZE_, bool BACKWARDS_> struct strip_plan {
    static constexpr int FROM = FROM_, TO = TO_, SIZE = SIZE_;
    static constexpr bool BACKWARDS = BACKWARDS_;
    static constexpr bool PAIRED = TO == 32;
    static constexpr int STEPS = FROM / STEP;

    /* Pictures: strips, pieces of up to 64 channels, pixels. */
    static constexpr int STEP_DOWN = PAIRED ? 2 : 1;         /* rows from group to group */
    static constexpr int ROWS = PRODUCT / GROUP * STEP_DOWN; /* of a strip */
    static constexpr int STRIPS = SIZE / ROWS;
    static constexpr int PITCH = SIZE + 2; /* pixels */
    static constexpr int PIXEL = row_bytes(FROM);
    static constexpr int PIECES = (FROM + 63) / 64;
    static constexpr int NEXT_GROUP = STEP_DOWN * PITCH * PIXEL; /* bytes */
    static constexpr int BOX = PITCH * (ROWS + 2) * PIXEL;       /* bytes that come */
    static constexpr int PIECE = (BOX + ATOM - 1) / ATOM * ATOM;
    static constexpr int STRIP = PIECES * PIECE;

    /* Tiles: 64 result channels by eight columns of a strip, each computed by a group of four warps. */
    static constexpr int TILES_M = (TO + 63) / 64;
    static constexpr int COLUMNS = SIZE / GROUP;
    static constexpr int GROUPS = COLUMNS * TILES_M < 4 ? COLUMNS * TILES_M : 4;
    static constexpr int TURNS = STRIPS * COLUMNS * TILES_M / GROUPS;
    static constexpr int THREADS = GROUPS * 128;

    /* Weights: stages, which are a tap, or a column of taps of paired rows; panels, which come as one box. Rows of
     * panels are result channels; backwards they are source channels. */
    static constexpr int STAGES = PAIRED ? 3 : TAPS;
    static constexpr int WINDOWS = PAIRED ? 4 : 1;
    static constexpr int PANELS = PAIRED ? 5 : BACKWARDS ? TILES_M : PIECES;
    static constexpr int PANEL_ROW = BACKWARDS ? row_bytes(TO) : PIXEL; /* bytes */
    static constexpr int PANEL_ROWS = BACKWARDS ? FROM : PAIRED ? 32 : 64 * TILES_M;
    static constexpr int PANEL = PANEL_ROWS * PANEL_ROW;
    static constexpr int STAGE = PANELS * PANEL;
    static constexpr int WEIGHTS_STEP = STEP * PANEL_ROW; /* backwards */
    static constexpr int WEIGHTS_TILE = BACKWARDS ? PANEL : 64 * PANEL_ROW;
    /* Stages in shared memory. Where there is no room for all of them, they come in a ring. */
    static constexpr int SLOTS = FROM + TO > 192 ? 4 : STAGES;
    static constexpr bool STAYS = SLOTS == STAGES;

    /* Descriptors but for addresses. Where rows are 32 channels wide, the other 32 are in the next panel. */
    static constexpr unsigned WEIGHTS_LOW = (BACKWARDS && PAIRED ? PANEL / WORD : 1u) << 16;
    static constexpr unsigned WEIGHTS_HIGH = descriptor_high(PANEL_ROW, 8 * PANEL_ROW);
    static constexpr unsigned PIXELS_LOW = 1u << 16;
    static constexpr unsigned PIXELS_HIGH = descriptor_high(PIXEL, NEXT_GROUP);

    /* Sums for batch norm: each channel's are in this many warps, then in one place of shared memory each. */
    static constexpr int SHARES = GROUPS / TILES_M * (PAIRED ? 2 : 1);
    static constexpr int SLICE = slice_width(TO);
    static constexpr int SLICES = (TO + SLICE - 1) / SLICE;

    static constexpr int WEIGHTS_AT = STRIPS * STRIP;
    static constexpr int BARRIERS_AT = WEIGHTS_AT + SLOTS * STAGE;
    static constexpr int SHARED = BARRIERS_AT + (STRIPS + 2 * SLOTS + GROUPS) * 8;

    static_assert(FROM % STEP == 0 && (FROM <= 64 || FROM % 64 == 0), "whole steps");
    static_assert(TO <= 64 || TO % 64 == 0, "whole tiles");
    static_assert(SIZE % ROWS == 0 && STRIPS * COLUMNS * TILES_M % GROUPS == 0, "whole strips");
    static_assert(PANEL % ATOM == 0, "panels begin where swizzles do");
    static_assert(!PAIRED || PIECES == 1, "panels are rows of the kernel or pieces, not both");
    static_assert(STAYS || TURNS == 1, "all go through a ring together, once");
    static_assert(GROUPS % TILES_M == 0, "a group has the same channels at every turn");
    static_assert(SLICES * SLICE * 2 <= THREADS, "a thread for each sum");
    static_assert(SHARES * 2 * TO * 4 <= STRIP, "sums have room where a picture was");
    static_assert(SHARED <= 227 << 10, "shared memory");
};

struct strip_args {
    bf16 *dst;            /* [n, size, size, to] */
    const float *bias;    /* [to] or NULL */
    const bf16 *residual; /* as dst, or NULL */
    bool relu;
    float *sums; /* for batch norm, one part for each block; or NULL */
};

/* ---- into shared memory --------------------------------------------------------------------------- */

/* What a block knows of itself. */
struct strip_block {
    const CUtensorMap *src, *weights;
    unsigned room; /* shared memory */
    int image;
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

/* Where a group waits for the one before it. */
template <class P> __device__ static unsigned turn_barrier(unsigned room, int group)
{
    return room + P::BARRIERS_AT + (P::STRIPS + 2 * P::SLOTS + group) * 8;
}

/* Panels of paired rows that are no tap of the kernel are outside of the array, and so zeros. */
template <class P> __device__ static int tap_of(int stage, int panel)
{
    const int tap = P::PAIRED ? (3 - panel) * 3 + stage : stage;
    return P::BACKWARDS ? TAPS - 1 - tap : tap;
}

template <class P> __device__ static void fetch_stage(const struct strip_block &block, int stage)
{
    const int slot = stage % P::SLOTS;
    const unsigned barrier = full_barrier<P>(block.room, slot);
    if (stage >= P::SLOTS)
        barrier_wait(empty_barrier<P>(block.room, slot), (stage / P::SLOTS - 1) & 1);
    barrier_expect(barrier, P::STAGE);
    for (int panel = 0; panel < P::PANELS; panel++) {
        const int at[5] = {P::PAIRED ? 0 : panel * 64, 0, 0, 0, tap_of<P>(stage, panel)};
        copy_box(block.room + P::WEIGHTS_AT + slot * P::STAGE + panel * P::PANEL, block.weights, at,
                 barrier);
    }
}

template <class P> __device__ static void fetch_strip(const struct strip_block &block, int strip)
{
    const unsigned barrier = strip_barrier<P>(block.room, strip);
    barrier_expect(barrier, P::PIECES * P::BOX);
    for (int piece = 0; piece < P::PIECES; piece++) {
        const int at[4] = {piece * 64, -1, strip * P::ROWS - 1, block.image};
        copy_box(block.room + strip * P::STRIP + piece * P::PIECE, block.src, at, barrier);
    }
}

/* One thread begins all copies that have room, in the order in which they are wanted. */
template <class P> __device__ static void fetch_all(const struct strip_block &block)
{
    constexpr int first = 2;
    for (int stage = 0; stage < first; stage++)
        fetch_stage<P>(block, stage);
    fetch_strip<P>(block, 0);
    for (int stage = first; stage < P::SLOTS; stage++)
        fetch_stage<P>(block, stage);
    for (int strip = 1; strip < P::STRIPS; strip++)
        fetch_strip<P>(block, strip);
}

/* A stage of a ring has been read by this group; what comes into its place begins to come when all have. */
template <class P>
__device__ static void give_back_stage(const struct strip_block &block, int stage)
{
    if (threadIdx.x % 32 == 0)
        barrier_arrive(empty_barrier<P>(block.room, stage % P::SLOTS));
    if (threadIdx.x == 0 && stage + P::SLOTS < P::STAGES)
        fetch_stage<P>(block, stage + P::SLOTS);
    __syncwarp();
}

/* ---- products ------------------------------------------------------------------------------------- */

/* Lower halves of descriptors: `weights` of the stage, `pixels` of the tile's first pixel. Distances are added to them in
 * words. */
template <class P>
__device__ static void multiply_stage(float (&sums)[PRODUCT / 2], unsigned weights, unsigned pixels,
                                      int stage)
{
#pragma unroll
    for (int window = 0; window < P::WINDOWS; window++) {
        const int row = P::PAIRED ? window : stage / 3;
        const int column = P::PAIRED ? stage : stage % 3;
        const unsigned from = weights + (P::PAIRED ? (3 - window) * P::PANEL / WORD : 0);
        const unsigned first = pixels + (row * P::PITCH + column) * P::PIXEL / WORD;
#pragma unroll
        for (int step = 0; step < P::STEPS; step++) {
            const int within = step % 4 * STEP * 2;
            const int ahead = P::BACKWARDS ? step * P::WEIGHTS_STEP : step / 4 * P::PANEL + within;
            multiply_wide<P::BACKWARDS>(
                sums, descriptor(from + ahead / WORD, P::WEIGHTS_HIGH),
                descriptor(first + (step / 4 * P::PIECE + within) / WORD, P::PIXELS_HIGH),
                stage + window + step > 0);
        }
    }
}

/* Hands in all products of a tile. */
template <class P>
__device__ static void multiply_tile(float (&sums)[PRODUCT / 2], const struct strip_block &block,
                                     unsigned weights, unsigned pixels)
{
    keep_in_place(sums);
#pragma unroll(P::STAYS ? P::STAGES : 1)
    for (int stage = 0; stage < P::STAGES; stage++) {
        const int slot = stage % P::SLOTS;
        barrier_wait(full_barrier<P>(block.room, slot), stage / P::SLOTS & 1);
        forget(weights);
        forget(pixels);
        products_begin();
        multiply_stage<P>(sums, weights + slot * P::STAGE / WORD, pixels, stage);
        products_commit();
        if (!P::STAYS && stage > 0) {
            products_wait<1>();
            give_back_stage<P>(block, stage - 1);
        }
    }
}

/* ---- results -------------------------------------------------------------------------------------- */

/* What a lane writes: 4 bytes of two neighbouring pixels for each group; backwards, 8 bytes of one.
 *
 * A lane has sums of two pixels and two rows of a product, eight apart. Forwards the copy engine has put neighbouring
 * channels into such rows (strip.cu). Backwards rows are channels as they come, and lanes have to exchange numbers. */
template <class P> struct lane_place {
    static constexpr int NEXT = P::SIZE * P::STEP_DOWN * P::TO; /* numbers to the next group */
    int channel;
    bool counts;
    int64_t at; /* of group 0 */
    __device__ lane_place(int image, int strip, int tile_m, int column)
    {
        const int high = threadIdx.x % 32 / 4;
        const int low = threadIdx.x % 4;
        const int warp = threadIdx.x / 32 % 4;
        const int first = tile_m * 64 + (P::PAIRED ? warp % 2 : warp) * 16;
        const int y = strip * P::ROWS + (P::PAIRED ? warp / 2 : 0);
        const int x = column * GROUP + (P::BACKWARDS ? high : 2 * low);
        channel = first + (P::BACKWARDS ? low % 2 * 8 + low / 2 * 4 : 2 * high);
        counts = first < P::TO;
        at = (int64_t)((image * P::SIZE + y) * P::SIZE + x) * P::TO + channel;
    }
};

/* A word of a result. */
__device__ inline unsigned finished(float low, float high, unsigned residual, float least)
{
    return packed(larger_or_nan(low + __uint_as_float(residual << 16), least),
                  larger_or_nan(high + __uint_as_float(residual & 0xffff0000u), least));
}

/* Residuals are on their way while products are computed. */
template <class P>
__device__ static void write_forwards(float (&sums)[PRODUCT / 2], const struct strip_args &a,
                                      const lane_place<P> &place)
{
    const float least = a.relu ? 0.0f : -INFINITY;
    unsigned residual[PRODUCT / 8][2] = {};
    float2 bias = make_float2(0.0f, 0.0f);
    if (a.residual && place.counts) {
        const bf16 *from = a.residual + place.at;
#pragma unroll
        for (int j = 0; j < PRODUCT / 8; j++, from += place.NEXT) {
            residual[j][0] = *reinterpret_cast<const unsigned *>(from);
            residual[j][1] = *reinterpret_cast<const unsigned *>(from + P::TO);
        }
    }
    if (a.bias && place.counts)
        bias = *reinterpret_cast<const float2 *>(a.bias + place.channel);
    products_wait<0>();
    keep_in_place(sums);
    if (!place.counts)
        return;
    bf16 *to = a.dst + place.at;
#pragma unroll
    for (int j = 0; j < PRODUCT / 8; j++, to += place.NEXT) {
        const float *s = &sums[4 * j];
        *reinterpret_cast<unsigned *>(to) =
            finished(s[0] + bias.x, s[2] + bias.y, residual[j][0], least);
        *reinterpret_cast<unsigned *>(to + P::TO) =
            finished(s[1] + bias.x, s[3] + bias.y, residual[j][1], least);
    }
}

/* Of a lane's channels, over the pixels that it has written: sums of them, and of their products with others. */
template <class P> struct lane_sums {
    static constexpr int CHANNELS = P::BACKWARDS ? 4 : 2;
    float first[CHANNELS], second[CHANNELS];

    __device__ void add(int at, unsigned word, unsigned times)
    {
        first[at] += low_of(word);
        first[at + 1] += high_of(word);
        second[at] += low_of(word) * low_of(times);
        second[at + 1] += high_of(word) * high_of(times);
    }
};

/* Sums are those of numbers as they are written: that is what batch norm reads. */
template <class P>
__device__ static void write_summed(float (&sums)[PRODUCT / 2], const struct strip_args &a,
                                    const lane_place<P> &place, lane_sums<P> &seen)
{
    products_wait<0>();
    keep_in_place(sums);
    if (!place.counts)
        return;
    bf16 *to = a.dst + place.at;
#pragma unroll
    for (int j = 0; j < PRODUCT / 8; j++, to += place.NEXT) {
        const float *s = &sums[4 * j];
        const unsigned left = packed(s[0], s[2]);
        const unsigned right = packed(s[1], s[3]);
        *reinterpret_cast<unsigned *>(to) = left;
        *reinterpret_cast<unsigned *>(to + P::TO) = right;
        seen.add(0, left, left);
        seen.add(0, right, right);
    }
}

/* Four channels of a pixel, from the sums of four lanes. */
__device__ inline uint2 exchanged(const float *s)
{
    const bool is_odd = threadIdx.x % 2;
    const unsigned lower = transposed(packed(s[0], s[1]));
    const unsigned upper = transposed(packed(s[2], s[3]));
    const unsigned other = __shfl_xor_sync(0xffffffffu, is_odd ? lower : upper, 1);
    return is_odd ? make_uint2(other, upper) : make_uint2(lower, other);
}

template <class P>
__device__ static void write_backwards(float (&sums)[PRODUCT / 2], const struct strip_args &a,
                                       const lane_place<P> &place)
{
    bf16 *to = a.dst + place.at;
    products_wait<0>();
    keep_in_place(sums);
#pragma unroll
    for (int j = 0; j < PRODUCT / 8; j++, to += place.NEXT) {
        const uint2 result = exchanged(&sums[4 * j]);
        if (place.counts)
            *reinterpret_cast<uint2 *>(to) = result;
    }
}

/* ---- what reaches batch norm -------------------------------------------------------------------------- */

/* Results of a tile as a lane has them, or what lies beside them. */
template <class P> struct lane_words {
    uint2 x[PRODUCT / 8];

    __device__ void read(const bf16 *image, const lane_place<P> &place)
    {
#pragma unroll
        for (int j = 0; j < PRODUCT / 8; j++)
            x[j] = place.counts
                       ? *reinterpret_cast<const uint2 *>(image + place.at + j * place.NEXT)
                       : make_uint2(0, 0);
    }
};

/* Of a lane's four channels. */
__device__ inline slope_lines<4> lines_from(const struct norm_slope &slope, int first)
{
    slope_lines<4> lines;
#pragma unroll
    for (int i = 0; i < 4; i++)
        slope_line(slope, first + i, lines.a[i], lines.b[i]);
    return lines;
}

/* One array after the other, so that there are registers for all of a tile; the source is on its way while products are
 * computed. */
template <class P>
__device__ static void write_slope(float (&sums)[PRODUCT / 2], const struct strip_args &a,
                                   const struct norm_slope &slope, const lane_place<P> &place,
                                   const slope_lines<4> &norm, lane_sums<P> &seen)
{
    lane_words<P> src, more, result;
    src.read(slope.src, place);
    products_wait<0>();
    keep_in_place(sums);
#pragma unroll
    for (int j = 0; j < PRODUCT / 8; j++)
        result.x[j] = exchanged(&sums[4 * j]);
    if (slope.other) {
        more.read(slope.other, place);
#pragma unroll
        for (int j = 0; j < PRODUCT / 8; j++)
            result.x[j] =
                make_uint2(added(result.x[j].x, more.x[j].x), added(result.x[j].y, more.x[j].y));
    }
    if (slope.dst) {
        more.read(slope.dst, place);
#pragma unroll
        for (int j = 0; j < PRODUCT / 8; j++) {
            result.x[j].x = opened_by(result.x[j].x, more.x[j].x);
            result.x[j].y = opened_by(result.x[j].y, more.x[j].y);
        }
    } else if (slope.relu) {
#pragma unroll
        for (int j = 0; j < PRODUCT / 8; j++) {
            result.x[j].x = norm.open(0, result.x[j].x, src.x[j].x);
            result.x[j].y = norm.open(2, result.x[j].y, src.x[j].y);
        }
    }
#pragma unroll
    for (int j = 0; j < PRODUCT / 8; j++) {
        seen.add(0, result.x[j].x, src.x[j].x);
        seen.add(2, result.x[j].y, src.x[j].y);
        if (place.counts)
            *reinterpret_cast<uint2 *>(a.dst + place.at + j * place.NEXT) = result.x[j];
    }
}

/* ---- sums for batch norm ------------------------------------------------------------------------------ */

/* Over the lanes that have the same channels: four that follow each other, or, backwards, every fourth. */
template <class P> __device__ static float sum_of_lanes(float x)
{
#pragma unroll
    for (int mask = P::BACKWARDS ? 4 : 1; mask < (P::BACKWARDS ? 32 : 4); mask *= 2)
        x += __shfl_xor_sync(0xffffffffu, x, mask);
    return x;
}

/* room: [SHARES][first, second][TO], where the picture was. */
template <class P> __device__ static void share_sums(const lane_sums<P> &seen, float *room)
{
    const int group = threadIdx.x / 128;
    const int warp = threadIdx.x / 32 % 4;
    const int share = P::PAIRED ? group * 2 + warp / 2 : group / P::TILES_M;
    const lane_place<P> place(0, 0, group % P::TILES_M, 0);
    const bool writes =
        place.counts && (P::BACKWARDS ? threadIdx.x % 32 < 4 : threadIdx.x % 4 == 0);
    float *to = room + share * 2 * P::TO + place.channel;
#pragma unroll
    for (int i = 0; i < seen.CHANNELS; i++) {
        const float first = sum_of_lanes<P>(seen.first[i]);
        const float second = sum_of_lanes<P>(seen.second[i]);
        if (!writes)
            continue;
        to[i] = first;
        to[P::TO + i] = second;
    }
}

/* One part of what slices.cuh describes. */
template <class P> __device__ static void leave_sums(float *sums, const float *room)
{
    constexpr int columns = 2 * P::SLICE;
    const int slice = threadIdx.x / columns;
    const int column = threadIdx.x % columns;
    const int channel = slice * P::SLICE + column % P::SLICE;
    float sum = 0.0f;
    if (slice >= P::SLICES)
        return;
    if (channel < P::TO) {
#pragma unroll
        for (int share = 0; share < P::SHARES; share++)
            sum += room[(share * 2 + column / P::SLICE) * P::TO + channel];
    }
    slice_part(sums, P::SLICE, slice, (int)gridDim.x, (int)blockIdx.x)[column] = sum;
}

/* When all products of the block are done, and the picture is no longer wanted. */
template <class P> __device__ static void add_up(const lane_sums<P> &seen, float *sums, float *room)
{
    __syncthreads();
    share_sums<P>(seen, room);
    __syncthreads();
    leave_sums<P>(sums, room);
}

/* ---- all ------------------------------------------------------------------------------------------ */

template <class P> __device__ static void prepare_barriers(unsigned room)
{
    if (threadIdx.x == 0) {
        for (int i = 0; i < P::STRIPS; i++)
            barrier_init(strip_barrier<P>(room, i), 1);
        for (int i = 0; i < P::SLOTS; i++) {
            barrier_init(full_barrier<P>(room, i), 1);
            barrier_init(empty_barrier<P>(room, i), P::GROUPS * 4);
        }
        for (int i = 0; i < P::GROUPS; i++)
            barrier_init(turn_barrier<P>(room, i), 4);
        barriers_publish();
    }
    __syncthreads();
}

/* Where weights stay, a group begins when the one before has handed in its products, so that one writes while the
 * next computes. The first group begins by itself, and then behind the last. */
template <class P> __device__ static void wait_for_turn(unsigned room, int group, int turn)
{
    if (P::STAYS && group + turn > 0)
        barrier_wait(turn_barrier<P>(room, group), (group > 0 ? turn : turn - 1) & 1);
}

template <class P> __device__ static void end_turn(unsigned room, int group)
{
    __syncwarp(); /* all lanes have seen this turn's phase before the next one can come */
    if (P::STAYS && threadIdx.x % 32 == 0)
        barrier_arrive(turn_barrier<P>(room, (group + 1) % P::GROUPS));
    __syncwarp();
}

template <class P, bool SUMMED>
__device__ static void compute_tile(const struct strip_args &a, const struct norm_slope &slope,
                                    const struct strip_block &block, int group, int turn,
                                    const slope_lines<4> &norm, lane_sums<P> &seen)
{
    const int tile = group + turn * P::GROUPS;
    const int tile_m = tile % P::TILES_M;
    const int column = tile / P::TILES_M % P::COLUMNS;
    const int strip = tile / P::TILES_M / P::COLUMNS;
    const unsigned pixels = block.room + strip * P::STRIP + column * GROUP * P::PIXEL;
    const unsigned weights = block.room + P::WEIGHTS_AT + tile_m * P::WEIGHTS_TILE;
    float sums[PRODUCT / 2];
    barrier_wait(strip_barrier<P>(block.room, strip), 0);
    wait_for_turn<P>(block.room, group, turn);
    multiply_tile<P>(sums, block, P::WEIGHTS_LOW | weights / WORD, P::PIXELS_LOW | pixels / WORD);
    end_turn<P>(block.room, group);
    const lane_place<P> place(block.image, strip, tile_m, column);
    if constexpr (P::BACKWARDS && SUMMED)
        write_slope<P>(sums, a, slope, place, norm, seen);
    else if constexpr (P::BACKWARDS)
        write_backwards<P>(sums, a, place);
    else if constexpr (SUMMED)
        write_summed<P>(sums, a, place, seen);
    else
        write_forwards<P>(sums, a, place);
}

/* SUMMED: with sums for batch norm, and without what else may follow a convolution. */
template <class P, bool SUMMED>
__global__ void __launch_bounds__(P::THREADS, 1)
    strip_kernel(const struct strip_args a, const struct norm_slope slope,
                 const __grid_constant__ CUtensorMap src,
                 const __grid_constant__ CUtensorMap weights)
{
    extern __shared__ __align__(1024) char room[];
    lane_sums<P> seen = {};
    const struct strip_block block = {&src, &weights, shared_address(room), (int)blockIdx.x};
    prepare_barriers<P>(block.room);
    if (threadIdx.x == 0)
        fetch_all<P>(block);
    __syncwarp();
    const int group = (int)threadIdx.x / 128;
    const lane_place<P> place(0, 0, group % P::TILES_M,
                              0); /* its channels are those of every turn */
    const slope_lines<4> norm = lines_from(slope, place.channel);
    for (int turn = 0; turn < P::TURNS; turn++)
        compute_tile<P, SUMMED>(a, slope, block, group, turn, norm, seen);
    if (SUMMED)
        add_up<P>(seen, a.sums, reinterpret_cast<float *>(room));
}

#endif

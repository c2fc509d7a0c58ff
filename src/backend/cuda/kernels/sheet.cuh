/*
 * A convolution of small pictures on Hopper's tensor cores, of any sixteens of channels into any sixteens.
 *
 * Pixels are the rows of a product, a sheet of 8 x 8 of them; result channels are its columns, as many as there are. So
 * no product is computed for channels that do not exist, as in strip.cuh, where 64 of them are rows. Pictures lie in shared
 * memory as there: with a border of zeros, and a tap is only another address to begin at.
 *
 * Channels come in pieces of 64, which are rows of 128 bytes, and a rest in rows as short as a swizzle can be. Where the
 * stride is 2, the copy engine takes the picture apart, into even and odd rows of even and odd columns, within each of which
 * the pixels of a tap are neighbours.
 *
 * Of pictures of 4 x 4 eight lie in shared memory between each other, pixel by pixel. A sheet is then eight neighbouring pixels
 * of each, border and all: results there are computed in vain.
 *
 * Weights come tap by tap through a ring of slots.
 */
#ifndef CUDA_SHEET_CUH
#define CUDA_SHEET_CUH

#include "backend/cuda/kernels/hopper.cuh"

enum {
    SIDE = 8,        /* pixels of a sheet */
    CHANNELS = 16,   /* of a step */
    PIECE_STEPS = 4, /* of a piece */
    PIECE_ROW = 128, /* bytes */
    MOST_TAPS = 9
};

/* Pieces of a picture or of weights that have rows of one length. */
struct sheet_rows {
    int pieces;
    int steps;          /* of a piece */
    int row;            /* bytes: 32, 64 or 128 */
    int picture_piece;  /* bytes of a piece of a picture, or of one of its four parts */
    int weights_piece;  /* bytes */
    int picture_at;     /* bytes from the beginning of a picture */
    int weights_at;     /* bytes from the beginning of a slot */
    int tap[MOST_TAPS]; /* words from the pixel of a result to that of a tap */
    unsigned pixels_high, weights_high; /* upper halves of descriptors */
};

/* What a block computes, and how its shared memory is laid out. */
struct sheet_layout {
    int images, size, from, to; /* size: of results */
    int pictures;               /* of a block; what lies between each other counts as one */
    int images_each;            /* of a picture: 1 or 8 */
    int sheets_each;
    int taps, first; /* first: row and column that copies begin at */
    int parts;       /* of a picture: 1, or 4 where the stride is 2 */
    int pitch;       /* pixels */
    struct sheet_rows whole, rest;
    int picture, pictures_bytes; /* bytes; of all pictures, those that come */
    int slots, slot, slot_bytes; /* bytes of a slot; those that come */
    int weights_at, bias_at, barriers_at;
};

struct sheet_args {
    struct sheet_layout layout;
    bf16 *dst;            /* [n, size, size, to] */
    const float *bias;    /* [to] or NULL */
    const bf16 *residual; /* as dst, or NULL */
    bool relu;
};

struct sheet_maps {
    CUtensorMap whole_pixels, rest_pixels, whole_weights, rest_weights;
};

/* ---- into shared memory --------------------------------------------------------------------------- */

/* What a block knows of itself. */
struct sheet_block {
    const struct sheet_layout &l;
    const struct sheet_maps &maps;
    unsigned room; /* shared memory */
    int first_image;
    int first_column; /* result channel */
};

__device__ inline unsigned pictures_barrier(const struct sheet_block &b)
{
    return b.room + b.l.barriers_at;
}

__device__ inline unsigned full_barrier(const struct sheet_block &b, int slot)
{
    return b.room + b.l.barriers_at + (1 + slot) * 8;
}

__device__ inline unsigned empty_barrier(const struct sheet_block &b, int slot)
{
    return b.room + b.l.barriers_at + (1 + b.l.slots + slot) * 8;
}

__device__ inline void fetch_weights(const struct sheet_block &b, const struct sheet_rows &rows,
                                     const CUtensorMap *map, int channel, unsigned slot,
                                     unsigned barrier)
{
#pragma unroll 1
    for (int piece = 0; piece < rows.pieces; piece++) {
        const int at[5] = {channel + piece * PIECE_STEPS * CHANNELS, 0, 0, 0,
                           b.first_column / CHANNELS};
        copy_box(slot + rows.weights_at + piece * rows.weights_piece, map, at, barrier);
    }
}

__device__ inline void fetch_tap(const struct sheet_block &b, int tap)
{
    const struct sheet_layout &l = b.l;
    const int index = tap % l.slots;
    const unsigned slot = b.room + l.weights_at + index * l.slot;
    const unsigned barrier = full_barrier(b, index);
    if (tap >= l.slots)
        barrier_wait(empty_barrier(b, index), (tap / l.slots - 1) & 1);
    barrier_expect(barrier, l.slot_bytes);
    const int rest = l.whole.pieces * PIECE_STEPS * CHANNELS;
    fetch_weights(b, l.whole, &b.maps.whole_weights, tap * l.from, slot, barrier);
    fetch_weights(b, l.rest, &b.maps.rest_weights, tap * l.from + rest, slot, barrier);
}

__device__ inline void fetch_pixels(const struct sheet_block &b, const struct sheet_rows &rows,
                                    const CUtensorMap *map, int channel, int picture)
{
    unsigned to = b.room + picture * b.l.picture + rows.picture_at;
#pragma unroll 1
    for (int piece = 0; piece < rows.pieces; piece++)
#pragma unroll 1
        for (int part = 0; part < b.l.parts; part++, to += rows.picture_piece) {
            const int from = channel + piece * PIECE_STEPS * CHANNELS;
            const int x = b.l.first + part % 2;
            const int y = b.l.first + part / 2;
            const int image = b.first_image + picture * b.l.images_each;
            const bool is_alone = b.l.images_each == 1;
            const int at[4] = {from, is_alone ? x : image, is_alone ? y : x, is_alone ? image : y};
            copy_box(to, map, at, pictures_barrier(b));
        }
}

/* One thread begins all copies that have room, in the order in which they are wanted. */
__device__ inline void fetch_all(const struct sheet_block &b)
{
    const int rest = b.l.whole.pieces * PIECE_STEPS * CHANNELS;
    const int slots = b.l.slots < b.l.taps ? b.l.slots : b.l.taps;
    fetch_tap(b, 0);
    barrier_expect(pictures_barrier(b), b.l.pictures_bytes);
#pragma unroll 1
    for (int picture = 0; picture < b.l.pictures; picture++) {
        fetch_pixels(b, b.l.whole, &b.maps.whole_pixels, 0, picture);
        fetch_pixels(b, b.l.rest, &b.maps.rest_pixels, rest, picture);
    }
#pragma unroll 1
    for (int tap = 1; tap < slots; tap++)
        fetch_tap(b, tap);
}

/* The weights of a tap have been read by this group; what comes into their place begins to come when all have. */
__device__ inline void give_back_tap(const struct sheet_block &b, int tap)
{
    if (tap + b.l.slots >= b.l.taps)
        return;
    if (threadIdx.x % 32 == 0)
        barrier_arrive(empty_barrier(b, tap % b.l.slots));
    if (threadIdx.x == 0)
        fetch_tap(b, tap + b.l.slots);
    __syncwarp();
}

/* Read from shared memory behind the block's next barrier. */
__device__ inline void keep_bias(const struct sheet_block &b, const struct sheet_args &a, int count,
                                 float *kept)
{
    for (int i = (int)threadIdx.x; i < count; i += (int)blockDim.x) {
        const int channel = b.first_column + i;
        kept[i] = a.bias && channel < b.l.to ? a.bias[channel] : 0.0f;
    }
}

/* ---- products ------------------------------------------------------------------------------------- */

/* A sheet's first pixel in its picture. */
struct sheet_place {
    int picture; /* of the block */
    int x, y; /* y: 0 where pictures lie between each other, and x counts on into the rows below */
};

__device__ inline struct sheet_place place_of(const struct sheet_layout &l, int sheet)
{
    const int picture = sheet / l.sheets_each;
    const int rest = sheet % l.sheets_each;
    const int across = l.size / SIDE;
    if (l.images_each > 1)
        return {picture, rest * SIDE, 0};
    return {picture, rest % across * SIDE, rest / across * SIDE};
}

/* Lower half of a descriptor of it. */
__device__ inline unsigned pixels_of(const struct sheet_block &b, const struct sheet_rows &rows,
                                     const struct sheet_place &at)
{
    const unsigned address = b.room + at.picture * b.l.picture + rows.picture_at +
                             (at.y * b.l.pitch + at.x) * b.l.images_each * rows.row;
    return 1u << 16 | address / WORD;
}

/* Products of a piece, which the compiler is to see one behind the other. */
template <int STEPS, int HALF>
__device__ static void multiply_piece(float (&sums)[HALF], const struct sheet_rows &rows,
                                      unsigned pixels, unsigned weights, bool more)
{
    products_begin();
#pragma unroll
    for (int step = 0; step < STEPS; step++) {
        const int ahead = step * CHANNELS * 2 / WORD;
        multiply_rows(sums, descriptor(pixels + ahead, rows.pixels_high),
                      descriptor(weights + ahead, rows.weights_high), more || step > 0);
    }
}

/* whole, rest: lower halves of descriptors of the sheet's first pixel; weights: of the slot. */
template <int HALF>
__device__ static void multiply_tap(float (&sums)[HALF], const struct sheet_layout &l,
                                    unsigned whole, unsigned rest, unsigned weights, int tap)
{
    bool more = tap > 0;
    unsigned pixels = whole + l.whole.tap[tap];
    unsigned from = weights;
#pragma unroll 1
    for (int piece = 0; piece < l.whole.pieces; piece++) {
        multiply_piece<PIECE_STEPS>(sums, l.whole, pixels, from, more);
        more = true;
        pixels += l.parts * l.whole.picture_piece / WORD;
        from += l.whole.weights_piece / WORD;
    }
    pixels = rest + l.rest.tap[tap];
    from = weights + l.rest.weights_at / WORD;
    if (l.rest.steps == 1)
        multiply_piece<1>(sums, l.rest, pixels, from, more);
    else if (l.rest.steps == 2)
        multiply_piece<2>(sums, l.rest, pixels, from, more);
    else if (l.rest.steps == 3)
        multiply_piece<3>(sums, l.rest, pixels, from, more);
}

/* Hands in all products of a group's sheets. */
template <int HALF, int SHEETS>
__device__ static void multiply_sheets(float (&sums)[SHEETS][HALF], const struct sheet_block &b,
                                       int first)
{
    const struct sheet_layout &l = b.l;
    unsigned whole[SHEETS], rest[SHEETS];
#pragma unroll
    for (int i = 0; i < SHEETS; i++) {
        const struct sheet_place at = place_of(l, first + i);
        whole[i] = pixels_of(b, l.whole, at);
        rest[i] = pixels_of(b, l.rest, at);
        keep_in_place(sums[i]);
    }
    barrier_wait(pictures_barrier(b), 0);
#pragma unroll 1
    for (int tap = 0; tap < l.taps; tap++) {
        const int slot = tap % l.slots;
        const unsigned weights = 1u << 16 | (b.room + l.weights_at + slot * l.slot) / WORD;
        barrier_wait(full_barrier(b, slot), tap / l.slots & 1);
#pragma unroll
        for (int i = 0; i < SHEETS; i++)
            multiply_tap(sums[i], l, whole[i], rest[i], weights, tap);
        products_begin(); /* behind branches; the compiler would say that it has put one here */
        products_commit();
        if (tap > 0) {
            products_wait<1>();
            give_back_tap(b, tap - 1);
        }
    }
}

/* ---- results -------------------------------------------------------------------------------------- */

__device__ inline unsigned packed_sum(float low, float high, unsigned residual, float least)
{
    const __nv_bfloat162 pair =
        __floats2bfloat162_rn(larger_or_nan(low + __uint_as_float(residual << 16), least),
                              larger_or_nan(high + __uint_as_float(residual & 0xffff0000u), least));
    return *reinterpret_cast<const unsigned *>(&pair);
}

/* Where a lane writes a pixel of its sheet. */
struct lane_place {
    int64_t at;
    int count; /* sixteens of channels that there are; 0: the pixel does not exist */
};

/* row: of eight in a sheet; column: of eight in a row. */
__device__ inline struct lane_place lane_place_of(const struct sheet_block &b,
                                                  const struct sheet_place &place, int row,
                                                  int column)
{
    const struct sheet_layout &l = b.l;
    const bool is_alone = l.images_each == 1;
    const int x = is_alone ? place.x + column : (place.x + row) % l.pitch;
    const int y = is_alone ? place.y + row : (place.x + row) / l.pitch;
    const int image = b.first_image + place.picture * l.images_each + (is_alone ? 0 : column);
    const bool exists = image < l.images && x < l.size && y < l.size;
    return {(((int64_t)image * l.size + y) * l.size + x) * l.to + b.first_column,
            exists ? (l.to - b.first_column) / CHANNELS : 0};
}

/* A lane has two pixels, and of sixteen channels four neighbours: the copy engine has put them into the columns of which
 * it has the sums (sheet.cu). Residuals are on their way while products are computed. */
template <int COLUMNS>
__device__ static void write_sheet(float (&sums)[COLUMNS / 2], const struct sheet_block &b,
                                   const struct sheet_args &a, int sheet, const float *bias)
{
    constexpr int N = COLUMNS / CHANNELS;
    const struct sheet_place place = place_of(b.l, sheet);
    const int column = threadIdx.x % 32 / 4;
    const int row = threadIdx.x / 32 % 4 * 2;
    const int channel = threadIdx.x % 4 * 4;
    const struct lane_place lane[2] = {lane_place_of(b, place, row, column),
                                       lane_place_of(b, place, row + 1, column)};
    const float least = a.relu ? 0.0f : -INFINITY;
    uint2 residual[N][2] = {};
#pragma unroll
    for (int i = 0; i < 2 * N; i++)
        if (a.residual && i / 2 < lane[i % 2].count)
            residual[i / 2][i % 2] = *reinterpret_cast<const uint2 *>(a.residual + lane[i % 2].at +
                                                                      i / 2 * CHANNELS + channel);
    products_wait<0>();
    keep_in_place(sums);
#pragma unroll
    for (int i = 0; i < 2 * N; i++) {
        const float4 add = *reinterpret_cast<const float4 *>(bias + i / 2 * CHANNELS + channel);
        const float *s = &sums[i / 2 * 8 + i % 2 * 2];
        const uint2 more = residual[i / 2][i % 2];
        const uint2 result = {packed_sum(s[0] + add.x, s[1] + add.y, more.x, least),
                              packed_sum(s[4] + add.z, s[5] + add.w, more.y, least)};
        if (i / 2 < lane[i % 2].count)
            *reinterpret_cast<uint2 *>(a.dst + lane[i % 2].at + i / 2 * CHANNELS + channel) =
                result;
    }
}

/* ---- all ------------------------------------------------------------------------------------------ */

__device__ inline void prepare_barriers(const struct sheet_block &b)
{
    if (threadIdx.x == 0) {
        barrier_init(pictures_barrier(b), 1);
#pragma unroll 1
        for (int i = 0; i < b.l.slots; i++) {
            barrier_init(full_barrier(b, i), 1);
            barrier_init(empty_barrier(b, i), (int)blockDim.x / 32);
        }
        barriers_publish();
    }
    __syncthreads();
}

/* COLUMNS: result channels of a block. SHEETS: of a group of four warps; two blocks to a multiprocessor if there are two. */
template <int COLUMNS, int SHEETS>
__global__ void __launch_bounds__(512 / SHEETS, SHEETS)
    sheet_kernel(const __grid_constant__ struct sheet_args a,
                 const __grid_constant__ struct sheet_maps maps)
{
    extern __shared__ __align__(1024) char room[];
    const struct sheet_block b = {a.layout, maps, shared_address(room),
                                  (int)blockIdx.x * a.layout.pictures * a.layout.images_each,
                                  (int)blockIdx.y * COLUMNS};
    const int first = (int)threadIdx.x / 128 * SHEETS;
    float *bias = reinterpret_cast<float *>(room + a.layout.bias_at);
    float sums[SHEETS][COLUMNS / 2];
    prepare_barriers(b);
    if (threadIdx.x == 0)
        fetch_all(b);
    __syncwarp();
    keep_bias(b, a, COLUMNS, bias);
    multiply_sheets(sums, b, first);
    __syncthreads();
#pragma unroll
    for (int i = 0; i < SHEETS; i++)
        write_sheet<COLUMNS>(sums[i], b, a, first + i, bias);
}

#endif

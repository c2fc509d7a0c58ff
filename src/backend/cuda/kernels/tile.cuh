/*
 * How the batch-norm kernels walk an image: a thread owns V neighbouring channels and goes down the
 * rows; a block is cx threads wide and ry deep; the grid covers channels by x and rows by y.
 */
#ifndef CUDA_TILE_CUH
#define CUDA_TILE_CUH

#include "backend/cuda/kernels/device.cuh"

enum { VECTOR = 8 };
enum { TILE_GY_MAX = 132 }; /* blocks that reduce: one for each multiprocessor of an H200 */

struct tile {
    int64_t rows, stored;
    int chunks; /* of V channels */
    int cx, ry;
    int gx, gy;
};

/* How a kernel wants its tile. */
struct tile_wish {
    int threads; /* of a block, at most */
    int cx_max;
    int depth;  /* rows that a thread takes at least, so that what a block costs once is shared */
    int blocks; /* of the grid, about */
};

static inline struct tile tile_of(int64_t rows, int64_t stored, int v, struct tile_wish wish)
{
    struct tile t = {rows, stored, (int)((stored + v - 1) / v), 0, 0, 0, 0};
    t.cx = t.chunks < wish.cx_max ? t.chunks : wish.cx_max;
    t.ry = wish.threads / t.cx;
    t.gx = (t.chunks + t.cx - 1) / t.cx;
    const int64_t rows_of_block = (int64_t)t.ry * wish.depth;
    const int64_t steps = (rows + rows_of_block - 1) / rows_of_block;
    const int64_t most = wish.blocks / t.gx > 1 ? wish.blocks / t.gx : 1;
    t.gy = (int)(steps < most ? steps : most);
    return t;
}

/* Blocks that add up are deep, so that few partial sums are left for the last of them, and narrow, so
 * that several share the work of the last. */
template <typename T> constexpr int reduce_threads()
{
    return sizeof(typename accumulator<T>::type) == 8 ? 256 : 512; /* sums in double take room */
}

template <typename T> static inline struct tile_wish wish_to_reduce(void)
{
    const struct tile_wish wish = {reduce_threads<T>(), 8, 1, TILE_GY_MAX};
    return wish;
}

static inline struct tile_wish wish_to_apply(void)
{
    const struct tile_wish wish = {256, 32, 2, 1056};
    return wish;
}

static inline bool vectors_fit(const struct cuda_rows *m)
{
    return !m->data ||
           ((uintptr_t)m->data % 16 == 0 && m->pitch % VECTOR == 0 && m->stored % VECTOR == 0);
}

/* Adds up two sums per channel over all rows. On entry each thread has those of its own rows; partial
 * is [gy][2][stored] in double. Returns true in the block that came last for these channels, with the
 * totals of its cx * V channels in totals[0] and totals[1] (shared memory). */
template <typename A, int V>
__device__ bool tile_reduce(const struct tile t, A (&first)[V], A (&second)[V], double *partial,
                            unsigned *counters, double *(&totals)[2])
{
    extern __shared__ double shared[];
    A *room = reinterpret_cast<A *>(shared); /* [2][n_rows][cx * V] */
    const int width = t.cx * V;
    const int thread = threadIdx.y * t.cx + threadIdx.x;
    const int n_threads = t.cx * t.ry;
    /* Rows that one warp holds are added within it first. */
    const bool by_warps = 32 % t.cx == 0 && n_threads % 32 == 0;
    const int n_rows = by_warps ? n_threads / 32 : t.ry;
    const int row = by_warps ? thread / 32 : (int)threadIdx.y;
    if (by_warps) {
        for (int step = t.cx; step < 32; step *= 2)
#pragma unroll
            for (int i = 0; i < V; i++) {
                first[i] += __shfl_xor_sync(0xffffffffu, first[i], step);
                second[i] += __shfl_xor_sync(0xffffffffu, second[i], step);
            }
    }
    if (!by_warps || thread % 32 < t.cx) {
#pragma unroll
        for (int i = 0; i < V; i++) {
            room[row * width + threadIdx.x * V + i] = first[i];
            room[(n_rows + row) * width + threadIdx.x * V + i] = second[i];
        }
    }
    __syncthreads();
    for (int column = thread; column < 2 * width; column += n_threads) {
        const int which = column / width;
        const int64_t channel = (int64_t)blockIdx.x * width + column % width;
        double sum = 0.0;
#pragma unroll 8
        for (int y = 0; y < n_rows; y++)
            sum += (double)room[(which * n_rows + y) * width + column % width];
        if (channel < t.stored)
            partial[((int64_t)blockIdx.y * 2 + which) * t.stored + channel] = sum;
    }
    if (!is_last_block(counters + blockIdx.x, gridDim.y))
        return false;

    /* Several threads share a column where there are more threads than columns. */
    const int slices = n_threads / (2 * width) > 1 ? n_threads / (2 * width) : 1;
    for (int item = thread; item < slices * 2 * width; item += n_threads) {
        const int column = item % (2 * width);
        const int which = column / width;
        const int64_t channel = (int64_t)blockIdx.x * width + column % width;
        double sum = 0.0;
        if (channel < t.stored) {
#pragma unroll 8
            for (int y = item / (2 * width); y < t.gy; y += slices)
                sum += __ldcg(&partial[((int64_t)y * 2 + which) * t.stored + channel]);
        }
        shared[item] = sum;
    }
    __syncthreads();
    for (int column = thread; column < 2 * width; column += n_threads) {
        double sum = shared[column];
        for (int slice = 1; slice < slices; slice++)
            sum += shared[slice * 2 * width + column];
        shared[column] = sum;
    }
    __syncthreads();
    totals[0] = shared;
    totals[1] = shared + width;
    return true;
}

/* Shared memory that tile_reduce needs. */
template <typename A, int V> static inline size_t tile_shared(const struct tile *t)
{
    const int n_threads = t->cx * t->ry;
    const bool by_warps = 32 % t->cx == 0 && n_threads % 32 == 0;
    const size_t n_rows = (size_t)(by_warps ? n_threads / 32 : t->ry);
    const size_t sums = 2 * n_rows * (size_t)(t->cx * V) * sizeof(A);
    const size_t totals = (size_t)(2 * t->cx * V + n_threads) * sizeof(double);
    return sums > totals ? sums : totals;
}

#endif

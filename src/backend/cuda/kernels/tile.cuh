/*
 * How the batch-norm kernels walk an image: a thread owns V neighbouring channels and goes down the
 * rows; a block is cx threads wide and ry deep; the grid covers channels by x and rows by y.
 */
#ifndef CUDA_TILE_CUH
#define CUDA_TILE_CUH

#include "device.cuh"

enum { TILE_CX_MAX = 32, TILE_GY_MAX = 264, VECTOR = 8 };

struct tile {
    int64_t rows, stored;
    int chunks; /* of V channels */
    int cx, ry;
    int gx, gy;
};

/* depth: rows that a thread takes at least, so that what a block costs once is shared. */
static inline struct tile tile_of(int64_t rows, int64_t stored, int v, int depth, int gy_max)
{
    struct tile t = {rows, stored, (int)((stored + v - 1) / v), 0, 0, 0, 0};
    t.cx = t.chunks < TILE_CX_MAX ? t.chunks : TILE_CX_MAX;
    t.ry = BLOCK_THREADS / t.cx;
    t.gx = (t.chunks + t.cx - 1) / t.cx;
    const int64_t steps = (rows + (int64_t)t.ry * depth - 1) / ((int64_t)t.ry * depth);
    const int64_t most = gy_max / t.gx > 1 ? gy_max / t.gx : 1;
    t.gy = (int)(steps < most ? steps : most);
    return t;
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
__device__ bool tile_reduce(const struct tile t, const A (&first)[V], const A (&second)[V],
                            double *partial, unsigned *counters, double *(&totals)[2])
{
    extern __shared__ double shared[];
    A *room = reinterpret_cast<A *>(shared); /* [2][ry][cx * V] */
    const int width = t.cx * V;
    const int thread = threadIdx.y * t.cx + threadIdx.x;
    const int n_threads = t.cx * t.ry;
#pragma unroll
    for (int i = 0; i < V; i++) {
        room[threadIdx.y * width + threadIdx.x * V + i] = first[i];
        room[(t.ry + threadIdx.y) * width + threadIdx.x * V + i] = second[i];
    }
    __syncthreads();
    for (int column = thread; column < 2 * width; column += n_threads) {
        const int which = column / width;
        const int64_t channel = (int64_t)blockIdx.x * width + column % width;
        double sum = 0.0;
        for (int y = 0; y < t.ry; y++)
            sum += (double)room[(which * t.ry + y) * width + column % width];
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
        if (channel < t.stored)
            for (int y = item / (2 * width); y < t.gy; y += slices)
                sum += partial[((int64_t)y * 2 + which) * t.stored + channel];
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
    const size_t sums = (size_t)2 * t->ry * t->cx * V * sizeof(A);
    const size_t totals = (size_t)(2 * t->cx * V + BLOCK_THREADS) * sizeof(double);
    return sums > totals ? sums : totals;
}

#endif

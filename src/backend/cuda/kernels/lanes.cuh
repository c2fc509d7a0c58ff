/*
 * Sums over the lanes of a warp that stand for the same channels.
 */
#ifndef CUDA_LANES_CUH
#define CUDA_LANES_CUH

/* Halves of N numbers change hands between lanes until each lane has the warp's sums of REST, from `index` on. */
template <typename A, int N, int REST, int MASK> struct scatter {
    __device__ static void sum(const A (&x)[N], A (&out)[REST], int &index)
    {
        const bool upper = threadIdx.x & MASK;
        A half[N / 2];
#pragma unroll
        for (int i = 0; i < N / 2; i++) {
            const A other =
                __shfl_xor_sync(0xffffffffu, upper ? x[i] : x[N / 2 + i], (unsigned)MASK);
            half[i] = (upper ? x[N / 2 + i] : x[i]) + other;
        }
        index += upper ? N / 2 : 0;
        scatter<A, N / 2, REST, MASK / 2>::sum(half, out, index);
    }
};
template <typename A, int REST, int MASK> struct scatter<A, REST, REST, MASK> {
    __device__ static void sum(const A (&x)[REST], A (&out)[REST], int &)
    {
#pragma unroll
        for (int i = 0; i < REST; i++)
            out[i] = x[i];
    }
};

#endif

/*
 * Instructions of Hopper (sm_90a): products of a group of four warps (wgmma), barriers in shared memory, boxes of
 * arrays brought by the copy engine (TMA).
 */
#ifndef CUDA_HOPPER_CUH
#define CUDA_HOPPER_CUH

#include "backend/cuda/kernels/mma.cuh"

#include <cuda.h>

enum {
    WORD = 16,  /* bytes */
    ATOM = 1024 /* bytes: what swizzles want pieces to begin at */
};

/* ---- products ------------------------------------------------------------------------------------- */

/* Where a matrix lies in shared memory. Bits 0-13 the address, 16-29 the leading offset, 32-45 the stride (all three in
 * words of 16 bytes), 62-63 the swizzle. */
__device__ inline uint64_t descriptor(unsigned low, unsigned high)
{
    return (uint64_t)high << 32 | low;
}

/* Upper half of a descriptor of rows that are as wide as their swizzle; stride: bytes from eight of them to the next
 * eight. */
__host__ __device__ constexpr unsigned descriptor_high(int row, int stride)
{
    return (unsigned)stride / WORD | (row == 32 ? 3u : row == 64 ? 2u : 1u) << 30;
}

#define SUMS_4(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define SUMS_16(d, i) SUMS_4(d, i), SUMS_4(d, i + 4), SUMS_4(d, i + 8), SUMS_4(d, i + 12)

/* d [64, 128] = a [64, 16] * b [16, 128], added to d if there is `more`. TRANSPOSED: a lies as [16, 64]. */
template <bool TRANSPOSED>
__device__ inline void multiply_wide(float (&d)[64], uint64_t a, uint64_t b, bool more)
{
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %66, 0; "
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, "
        "%19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, "
        "%36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, "
        "%53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
        "%64, %65, p, 1, 1, %67, 0; }"
        : SUMS_16(d, 0), SUMS_16(d, 16), SUMS_16(d, 32), SUMS_16(d, 48)
        : "l"(a), "l"(b), "r"((int)more), "n"(TRANSPOSED ? 1 : 0));
}

/* Sums of a product of 64 rows: ALL_n are operands 0 to n - 1, and LIST_n is how they are called. */
#define SUMS_8(d, i) SUMS_4(d, i), SUMS_4(d, i + 4)
#define ALL_16(d) SUMS_16(d, 0)
#define ALL_24(d) SUMS_16(d, 0), SUMS_8(d, 16)
#define ALL_32(d) SUMS_16(d, 0), SUMS_16(d, 16)
#define ALL_40(d) ALL_32(d), SUMS_8(d, 32)
#define ALL_48(d) ALL_32(d), SUMS_16(d, 32)
#define ALL_56(d) ALL_48(d), SUMS_8(d, 48)
#define LIST_16 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define LIST_24 LIST_16 ", %16, %17, %18, %19, %20, %21, %22, %23"
#define LIST_32 LIST_24 ", %24, %25, %26, %27, %28, %29, %30, %31"
#define LIST_40 LIST_32 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define LIST_48 LIST_40 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define LIST_56 LIST_48 ", %48, %49, %50, %51, %52, %53, %54, %55"

/* d [64, n] = a [64, 16] * b [16, n], added to d if there is `more`. first, second, third: numbers of the operands behind
 * the sums. */
#define MULTIPLY_ROWS(n, half, first, second, third)                                               \
    __device__ inline void multiply_rows(float(&d)[half], uint64_t a, uint64_t b, bool more)       \
    {                                                                                              \
        asm volatile("{ .reg .pred p; setp.ne.b32 p, %" #third ", 0; "                             \
                     "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32.bf16.bf16 {" LIST_##half      \
                     "}, %" #first ", %" #second ", p, 1, 1, 0, 0; }"                              \
                     : ALL_##half(d)                                                               \
                     : "l"(a), "l"(b), "r"((int)more));                                            \
    }
MULTIPLY_ROWS(32, 16, 16, 17, 18)
MULTIPLY_ROWS(48, 24, 24, 25, 26)
MULTIPLY_ROWS(64, 32, 32, 33, 34)
MULTIPLY_ROWS(80, 40, 40, 41, 42)
MULTIPLY_ROWS(96, 48, 48, 49, 50)
MULTIPLY_ROWS(112, 56, 56, 57, 58)
#undef MULTIPLY_ROWS
__device__ inline void multiply_rows(float (&d)[64], uint64_t a, uint64_t b, bool more)
{
    multiply_wide<false>(d, a, b, more);
}

/* d [64, 192] += a [64, 16] * b [16, 192]; a lies as [16, 64], b as three of [16, 64]. */
__device__ inline void multiply_columns(float (&d)[96], uint64_t a, uint64_t b)
{
    asm volatile(
        "{ .reg .pred p; setp.eq.b32 p, 0, 0; "
        "wgmma.mma_async.sync.aligned.m64n192k16.f32.bf16.bf16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, "
        "%19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, "
        "%36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, "
        "%53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, %65, %66, %67, %68, %69, "
        "%70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, %86, "
        "%87, %88, %89, %90, %91, %92, %93, %94, %95}, "
        "%96, %97, p, 1, 1, 1, 1; }"
        : SUMS_16(d, 0), SUMS_16(d, 16), SUMS_16(d, 32), SUMS_16(d, 48), SUMS_16(d, 64),
          SUMS_16(d, 80)
        : "l"(a), "l"(b));
}

/* d [64, 64] += a [64, 16] * b [16, 64]; both lie transposed, as [16, 64]. */
__device__ inline void multiply_columns(float (&d)[32], uint64_t a, uint64_t b)
{
    asm volatile("{ .reg .pred p; setp.eq.b32 p, 0, 0; "
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" LIST_32
                 "}, %32, %33, p, 1, 1, 1, 1; }"
                 : ALL_32(d)
                 : "l"(a), "l"(b));
}

__device__ inline void products_begin()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ inline void products_commit()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

template <int LEFT> __device__ inline void products_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" : : "n"(LEFT) : "memory");
}

/* Sums are not looked at, or moved, across this place. */
template <int COUNT> __device__ inline void keep_in_place(float (&sums)[COUNT])
{
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        asm volatile("" : "+f"(sums[i])::"memory");
}

/* Addresses are computed anew behind this place, rather than all of them kept. */
__device__ inline void forget(unsigned &address)
{
    asm volatile("" : "+r"(address));
}

/* Lane i holds numbers 2 * (i % 4) and the next of row i / 4 of an 8 x 8 matrix, and gets those of its transpose. */
__device__ inline unsigned transposed(unsigned word)
{
    unsigned result;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(result) : "r"(word));
    return result;
}

/* ---- barriers ------------------------------------------------------------------------------------- */

__device__ inline void barrier_init(unsigned barrier, int count)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" : : "r"(barrier), "r"(count) : "memory");
}

/* The copy engine sees barriers that this thread has made. */
__device__ inline void barriers_publish()
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

__device__ inline void barrier_arrive(unsigned barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" : : "r"(barrier) : "memory");
}

/* Arrives, and so many bytes are to come. */
__device__ inline void barrier_expect(unsigned barrier, int bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                 :
                 : "r"(barrier), "r"(bytes)
                 : "memory");
}

__device__ inline bool barrier_try(unsigned barrier, unsigned phase)
{
    unsigned done;
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; "
                 "selp.b32 %0, 1, 0, p; }"
                 : "=r"(done)
                 : "r"(barrier), "r"(phase)
                 : "memory");
    return done;
}

__device__ inline void barrier_wait(unsigned barrier, unsigned phase)
{
    while (!barrier_try(barrier, phase))
        continue;
}

/* ---- copies --------------------------------------------------------------------------------------- */

/* A box of an array of four dimensions into shared memory; what is outside the array is zeros. */
__device__ inline void copy_box(unsigned to, const CUtensorMap *map, const int (&at)[4],
                                unsigned barrier)
{
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3, %4, %5}], [%6];"
                 :
                 : "r"(to), "l"(map), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]), "r"(barrier)
                 : "memory");
}

/* Of five dimensions. */
__device__ inline void copy_box(unsigned to, const CUtensorMap *map, const int (&at)[5],
                                unsigned barrier)
{
    asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3, %4, %5, %6}], [%7];"
                 :
                 : "r"(to), "l"(map), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]), "r"(at[4]),
                   "r"(barrier)
                 : "memory");
}

#endif

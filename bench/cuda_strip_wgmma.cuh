/*
 * Hopper's instructions that cuda_strip.cuh is made of: products of a group of four warps, barriers in shared
 * memory, copies.
 */
#ifndef BENCH_CUDA_STRIP_WGMMA_CUH
#define BENCH_CUDA_STRIP_WGMMA_CUH

#include <cuda.h>
#include <cuda_bf16.h>

#include <math.h>
#include <stdint.h>

__device__ inline unsigned shared_address(const void *p)
{
    return (unsigned)__cvta_generic_to_shared(p);
}

/* ---- products ------------------------------------------------------------------------------------- */

/* Bits 0-13 the address, 16-29 the leading offset, 32-45 the stride (all three in words of 16 bytes), 49-51 the base
 * offset, 62-63 the swizzle. */
__device__ inline uint64_t descriptor(unsigned low, unsigned high)
{
    return (uint64_t)high << 32 | low;
}

#define SUMS_4(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define SUMS_16(d, i) SUMS_4(d, i), SUMS_4(d, i + 4), SUMS_4(d, i + 8), SUMS_4(d, i + 12)
#define SUMS_32(d, i) SUMS_16(d, i), SUMS_16(d, i + 16)

/* d [64, N] = a [64, 16] * b [16, N], added to d if there is `more`. */
template <int N> struct product;

template <> struct product<64> {
    __device__ static void add(float (&d)[32], uint64_t a, uint64_t b, int more)
    {
        asm volatile(
            "{ .reg .pred p; setp.ne.b32 p, %34, 0; "
            "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
            "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, "
            "%19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
            "%32, %33, p, 1, 1, 0, 0; }"
            : SUMS_32(d, 0)
            : "l"(a), "l"(b), "r"(more));
    }
};

template <> struct product<128> {
    __device__ static void add(float (&d)[64], uint64_t a, uint64_t b, int more)
    {
        asm volatile(
            "{ .reg .pred p; setp.ne.b32 p, %66, 0; "
            "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
            "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, "
            "%19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, "
            "%36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, "
            "%53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
            "%64, %65, p, 1, 1, 0, 0; }"
            : SUMS_32(d, 0), SUMS_32(d, 32)
            : "l"(a), "l"(b), "r"(more));
    }
};

template <> struct product<256> {
    __device__ static void add(float (&d)[128], uint64_t a, uint64_t b, int more)
    {
        asm volatile(
            "{ .reg .pred p; setp.ne.b32 p, %130, 0; "
            "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {"
            "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, "
            "%19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, "
            "%36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, "
            "%53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, %65, %66, %67, %68, %69, "
            "%70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, %86, "
            "%87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, "
            "%103, %104, %105, %106, %107, %108, %109, %110, %111, %112, %113, %114, %115, %116, "
            "%117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127}, "
            "%128, %129, p, 1, 1, 0, 0; }"
            : SUMS_32(d, 0), SUMS_32(d, 32), SUMS_32(d, 64), SUMS_32(d, 96)
            : "l"(a), "l"(b), "r"(more));
    }
};

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

/* What threads wrote into shared memory may be read by tensor cores and the copy engine. */
__device__ inline void fence_for_tensor_cores()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* ---- barriers ------------------------------------------------------------------------------------- */

__device__ inline void barrier_init(unsigned barrier, int count)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" : : "r"(barrier), "r"(count) : "memory");
}

__device__ inline void barriers_publish()
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    fence_for_tensor_cores();
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

/* A mistake is to end in an error, not in a program that never ends. */
__device__ inline void barrier_wait(unsigned barrier, unsigned phase)
{
    if (barrier_try(barrier, phase))
        return;
    const long long begin = clock64();
    while (!barrier_try(barrier, phase))
        if (clock64() - begin > 1000000000ll)
            __trap();
}

__device__ inline void named_wait(int id, int threads)
{
    asm volatile("bar.sync %0, %1;" : : "r"(id), "r"(threads) : "memory");
}

__device__ inline void named_arrive(int id, int threads)
{
    asm volatile("bar.arrive %0, %1;" : : "r"(id), "r"(threads) : "memory");
}

/* ---- copies --------------------------------------------------------------------------------------- */

/* 16 bytes, or zeros. */
__device__ inline void copy_16(unsigned to, const void *from, bool exists)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :
                 : "r"(to), "l"(__cvta_generic_to_global(from)), "r"(exists ? 16 : 0)
                 : "memory");
}

__device__ inline void copies_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

template <int LEFT> __device__ inline void copies_wait()
{
    asm volatile("cp.async.wait_group %0;" : : "n"(LEFT) : "memory");
}

__device__ inline void copy_bulk(unsigned to, const void *from, int bytes, unsigned barrier)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1], %2, [%3];"
                 :
                 : "r"(to), "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(barrier)
                 : "memory");
}

/* A box of a picture: channels, columns, rows, images. */
__device__ inline void copy_box(unsigned to, const CUtensorMap *map, int c, int x, int y, int n,
                                unsigned barrier)
{
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3, %4, %5}], [%6];"
                 :
                 : "r"(to), "l"(map), "r"(c), "r"(x), "r"(y), "r"(n), "r"(barrier)
                 : "memory");
}

/* Where launches may overlap: what the one before wrote can be read from here on. */
__device__ inline void wait_for_launch_before()
{
    asm volatile("griddepcontrol.wait;" ::: "memory");
}

__device__ inline void let_next_launch_begin()
{
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

/* ---- numbers -------------------------------------------------------------------------------------- */

__device__ inline float lower_half(unsigned word)
{
    return __uint_as_float(word << 16);
}

__device__ inline float upper_half(unsigned word)
{
    return __uint_as_float(word & 0xffff0000u);
}

__device__ inline unsigned packed(float low, float high)
{
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<const unsigned *>(&pair);
}

__device__ inline float larger_or_nan(float x, float y)
{
    float z;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(z) : "f"(x), "f"(y));
    return z;
}

/* Lane i holds numbers 2 * (i % 4) and the next of row i / 4 of an 8 x 8 matrix, and gets those of its transpose. */
__device__ inline unsigned transposed(unsigned word)
{
    unsigned result;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(result) : "r"(word));
    return result;
}

#endif

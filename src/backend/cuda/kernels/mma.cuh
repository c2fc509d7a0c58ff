/*
 * Tensor cores: fragments of matrices out of shared memory, and their products; copies that run beside the work.
 */
#ifndef CUDA_MMA_CUH
#define CUDA_MMA_CUH

#include "backend/cuda/kernels/device.cuh"

__device__ inline unsigned shared_address(const void *p)
{
    return (unsigned)__cvta_generic_to_shared(p);
}

/* d [16, 8] += a [16, 16] * b [16, 8] */
__device__ inline void multiply(float (&d)[4], const unsigned (&a)[4], const unsigned b0,
                                const unsigned b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ inline float larger_or_nan(float x, float y)
{
    float z;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(z) : "f"(x), "f"(y));
    return z;
}

/* Four matrices of 8 x 8; lane i gives the address of row i % 8 of matrix i / 8. */
template <bool TRANSPOSED> __device__ inline void load_matrices(unsigned (&m)[4], unsigned address)
{
    if (TRANSPOSED)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
                     : "r"(address)
                     : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
                     : "r"(address)
                     : "memory");
}

/* 16 bytes into shared memory, or zeros; `from` must be an address of the array even then. SHARED: other blocks of
 * the multiprocessor want them too. */
template <bool SHARED> __device__ inline void copy_16(unsigned to, const void *from, bool exists)
{
    if (SHARED)
        asm volatile("cp.async.ca.shared.global [%0], [%1], 16, %2;"
                     :
                     : "r"(to), "l"(__cvta_generic_to_global(from)), "r"(exists ? 16 : 0)
                     : "memory");
    else
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                     :
                     : "r"(to), "l"(__cvta_generic_to_global(from)), "r"(exists ? 16 : 0)
                     : "memory");
}

/* Copies since the last call become one group. */
__device__ inline void copies_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/* Waits for this thread's groups but the last `LEFT`. */
template <int LEFT> __device__ inline void copies_wait()
{
    asm volatile("cp.async.wait_group %0;" : : "n"(LEFT) : "memory");
}

/* Lets a kernel have as much dynamic shared memory as there is, and asks for all that a multiprocessor has, so that
 * several of its blocks fit. Never what one launch needs: the limit is one for all threads of a process, and another may be
 * about to launch the kernel with more. */
static inline cudaError_t allow_shared(const void *function)
{
    struct cudaFuncAttributes own;
    int device = 0;
    int most = 0;
    cudaError_t error = cudaGetDevice(&device);
    if (error == cudaSuccess)
        error = cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    if (error == cudaSuccess)
        error = cudaFuncGetAttributes(&own, function);
    if (error == cudaSuccess)
        error = cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     most - (int)own.sharedSizeBytes);
    if (error != cudaSuccess)
        return error;
    return cudaFuncSetAttribute(function, cudaFuncAttributePreferredSharedMemoryCarveout,
                                cudaSharedmemCarveoutMaxShared);
}

#endif

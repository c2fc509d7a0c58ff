/*
 * What tells the copy engine how an array lies in memory.
 */
#ifndef CUDA_TENSOR_MAP_CUH
#define CUDA_TENSOR_MAP_CUH

#include <cuda.h>
#include <cuda_runtime.h>

/* The driver is not linked, so that programs start without one. */
static cudaError_t find_encoder(decltype(&cuTensorMapEncodeTiled) *encode)
{
    void *function = NULL;
    cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
    const cudaError_t error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function,
                                                               12000, cudaEnableDefault, &found);
#else
    const cudaError_t error =
        cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &function, cudaEnableDefault, &found);
#endif
    if (error != cudaSuccess)
        return error;
    *encode = reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(function);
    return found == cudaDriverEntryPointSuccess && function ? cudaSuccess : cudaErrorNotSupported;
}

/* Boxes of an array in bf16. steps[i]: bytes from one to the next in dimension i + 1. A box is as wide in its first
 * dimension as the swizzle. */
template <int RANK>
static cudaError_t make_map(CUtensorMap *map, const void *data, const cuuint64_t (&sizes)[RANK],
                            const cuuint64_t (&steps)[RANK - 1], const cuuint32_t (&box)[RANK])
{
    const cuuint32_t ones[] = {1, 1, 1, 1, 1};
    decltype(&cuTensorMapEncodeTiled) encode = NULL;
    const cudaError_t error = find_encoder(&encode);
    if (error != cudaSuccess)
        return error;
    const CUresult result =
        encode(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, RANK, const_cast<void *>(data), sizes, steps,
               box, ones, CU_TENSOR_MAP_INTERLEAVE_NONE,
               box[0] == 32 ? CU_TENSOR_MAP_SWIZZLE_64B : CU_TENSOR_MAP_SWIZZLE_128B,
               CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

#endif

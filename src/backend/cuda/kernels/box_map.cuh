/*
 * What tells the copy engine where an array lies and which boxes of it are wanted.
 */
#ifndef CUDA_BOX_MAP_CUH
#define CUDA_BOX_MAP_CUH

#include "backend/cuda/kernels/hopper.cuh"

/* The driver is not linked, so that programs start without one. */
inline cudaError_t find_encoder(decltype(&cuTensorMapEncodeTiled) *encode)
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

inline CUtensorMapSwizzle swizzle_of(cuuint32_t channels)
{
    return channels == 16   ? CU_TENSOR_MAP_SWIZZLE_32B
           : channels == 32 ? CU_TENSOR_MAP_SWIZZLE_64B
                            : CU_TENSOR_MAP_SWIZZLE_128B;
}

/* Boxes of an array in bf16. steps[i]: bytes from one to the next in dimension i + 1. A box is as wide in its first
 * dimension as the swizzle, 16, 32 or 64. every[i]: of so many in dimension i one comes, the first. */
template <int RANK>
cudaError_t make_map(CUtensorMap *map, const void *data, const cuuint64_t (&sizes)[RANK],
                     const cuuint64_t (&steps)[RANK - 1], const cuuint32_t (&box)[RANK],
                     const cuuint32_t (&every)[RANK])
{
    decltype(&cuTensorMapEncodeTiled) encode = NULL;
    const cudaError_t error = find_encoder(&encode);
    if (error != cudaSuccess)
        return error;
    const CUresult result =
        encode(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, RANK, const_cast<void *>(data), sizes, steps,
               box, every, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle_of(box[0]),
               CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

#endif

/*
 * Errors of the CUDA runtime as statuses, with what a person can do about them.
 */
#include "backend/cuda/cuda.h"

static const struct advice {
    cudaError_t error;
    enum der_status status;
    const char *text;
} ADVICE[] = {
    {cudaErrorMemoryAllocation, DER_NOMEM, "a smaller batch needs less memory"},
    {cudaErrorNoKernelImageForDevice, DER_UNSUPPORTED,
     "this build has no code for that GPU; build with its architecture in "
     "CMAKE_CUDA_ARCHITECTURES"},
    {cudaErrorUnsupportedPtxVersion, DER_UNSUPPORTED, "the NVIDIA driver is too old for that GPU"},
    {cudaErrorInsufficientDriver, DER_UNSUPPORTED, "the NVIDIA driver is too old"},
    {cudaErrorDevicesUnavailable, DER_DEVICE, "another program has the GPU to itself"},
};

/* After these every call of the process fails alike: the context is lost. */
static const cudaError_t STICKY[] = {
    cudaErrorIllegalAddress,
    cudaErrorLaunchFailure,
    cudaErrorLaunchTimeout,
    cudaErrorIllegalInstruction,
    cudaErrorMisalignedAddress,
    cudaErrorInvalidAddressSpace,
    cudaErrorInvalidPc,
    cudaErrorHardwareStackError,
    cudaErrorAssert,
    cudaErrorECCUncorrectable,
    cudaErrorNvlinkUncorrectable,
    cudaErrorContained,
    cudaErrorUnknown,
};

static const char LOST[] = "this process cannot use the GPU any more; what was saved is whole, and "
                           "a run goes on from there";

enum der_status cuda_check(struct der_ctx *ctx, cudaError_t error, const char *what)
{
    enum der_status status = DER_DEVICE;
    const char *text = NULL;
    if (error == cudaSuccess)
        return DER_OK;
    (void)cudaGetLastError(); /* an error that passes must not be met again */
    for (size_t i = 0; i < sizeof ADVICE / sizeof *ADVICE; i++)
        if (ADVICE[i].error == error) {
            status = ADVICE[i].status;
            text = ADVICE[i].text;
        }
    for (size_t i = 0; i < sizeof STICKY / sizeof *STICKY; i++)
        if (STICKY[i] == error)
            text = LOST;
    return ctx_fail(ctx, status, "CUDA: %s failed: %s%s%s", what, cudaGetErrorString(error),
                    text ? "; " : "", text ? text : "");
}

/*
 * What a person is told when the GPU fails; none of it needs a GPU.
 */
#include "backend/cuda/cuda.h"
#include "support/test_ctx.h"

#include <string.h>

static const struct expectation {
    cudaError_t error;
    enum der_status status;
    const char *part; /* of the sentence */
} EXPECTED[] = {
    {cudaErrorMemoryAllocation, DER_NOMEM, "smaller batch"},
    {cudaErrorNoKernelImageForDevice, DER_UNSUPPORTED, "no code for that GPU"},
    {cudaErrorUnsupportedPtxVersion, DER_UNSUPPORTED, "driver is too old"},
    {cudaErrorDevicesUnavailable, DER_DEVICE, "another program"},
    {cudaErrorIllegalAddress, DER_DEVICE, "cannot use the GPU any more; what was saved is whole"},
    {cudaErrorLaunchFailure, DER_DEVICE, "cannot use the GPU any more"},
    {cudaErrorECCUncorrectable, DER_DEVICE, "cannot use the GPU any more"},
    {cudaErrorInvalidValue, DER_DEVICE, "invalid argument"},
};

static void test_errors_are_told_with_what_helps(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    for (size_t i = 0; i < sizeof EXPECTED / sizeof *EXPECTED; i++) {
        const struct expectation *e = &EXPECTED[i];
        assert_int_equal(cuda_check(ctx, e->error, "work on the GPU"), e->status);
        assert_non_null(strstr(der_ctx_error(ctx), "CUDA: work on the GPU failed: "));
        assert_non_null(strstr(der_ctx_error(ctx), e->part));
    }
    assert_null(strstr(der_ctx_error(ctx), ";")); /* the last one: nothing is known to help */
    assert_int_equal(cuda_check(ctx, cudaSuccess, "nothing"), DER_OK);
    test_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_errors_are_told_with_what_helps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

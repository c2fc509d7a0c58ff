/*
 * The version and the record of the build, from the header that the build writes.
 */
#include <der/version.h>

#include "der_build.h"

static const struct der_build_info build_info = {
    .version = DER_BUILD_VERSION,
    .build_type = DER_BUILD_TYPE,
    .compiler = DER_BUILD_COMPILER,
    .back_ends = DER_BUILD_BACK_ENDS,
    .formats = DER_BUILD_FORMATS,
    .dnnl = DER_BUILD_DNNL,
    .openmp = DER_BUILD_OPENMP,
    .cuda = DER_BUILD_CUDA,
    .downloads = DER_BUILD_FETCH,
};

const char *der_version(void)
{
    return build_info.version;
}

const struct der_build_info *der_build_info(void)
{
    return &build_info;
}

# Finds oneDNN, 2.x or 3.x, and makes the imported target DNNL::dnnl.
#
# DER_DNNL_ROOT or DNNL_ROOT select another copy than the system's. The package files that
# oneDNN installs are not used: they differ between versions and pull in OpenCL.
set(dnnl_hints ${DER_DNNL_ROOT} ${DNNL_ROOT} $ENV{DNNL_ROOT})
if(DER_DNNL_ROOT)
    set(dnnl_only NO_DEFAULT_PATH)
endif()
# A changed root must not meet the cached answer for the old one.
if(NOT "${dnnl_hints}" STREQUAL "${DNNL_SEARCHED}")
    unset(DNNL_INCLUDE_DIR CACHE)
    unset(DNNL_LIBRARY CACHE)
endif()
set(DNNL_SEARCHED "${dnnl_hints}" CACHE INTERNAL "")

find_path(DNNL_INCLUDE_DIR oneapi/dnnl/dnnl.h HINTS ${dnnl_hints} PATH_SUFFIXES include ${dnnl_only})
find_library(DNNL_LIBRARY dnnl HINTS ${dnnl_hints} PATH_SUFFIXES lib lib64 ${dnnl_only})
mark_as_advanced(DNNL_INCLUDE_DIR DNNL_LIBRARY)

if(DNNL_INCLUDE_DIR)
    file(STRINGS ${DNNL_INCLUDE_DIR}/oneapi/dnnl/dnnl_version.h dnnl_lines
         REGEX "^#define DNNL_VERSION_(MAJOR|MINOR|PATCH) ")
    list(TRANSFORM dnnl_lines REPLACE ".* ([0-9]+)$" "\\1")
    list(JOIN dnnl_lines "." DNNL_VERSION)
    file(STRINGS ${DNNL_INCLUDE_DIR}/oneapi/dnnl/dnnl_config.h dnnl_threading
         REGEX "^#define DNNL_CPU_THREADING_RUNTIME ")
    string(REGEX REPLACE ".*DNNL_RUNTIME_" "" DNNL_THREADING "${dnnl_threading}")
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(DNNL REQUIRED_VARS DNNL_LIBRARY DNNL_INCLUDE_DIR
                                  VERSION_VAR DNNL_VERSION)

# The library and the back end must share one pool of threads.
if(DNNL_FOUND AND NOT DNNL_THREADING MATCHES "^(OMP|SEQ)$")
    message(WARNING "oneDNN in ${DNNL_INCLUDE_DIR} is built for ${DNNL_THREADING}, want OpenMP: "
                    "not used")
    set(DNNL_FOUND FALSE)
endif()

if(DNNL_FOUND AND NOT TARGET DNNL::dnnl)
    add_library(DNNL::dnnl UNKNOWN IMPORTED)
    set_target_properties(DNNL::dnnl PROPERTIES
        IMPORTED_LOCATION ${DNNL_LIBRARY}
        INTERFACE_INCLUDE_DIRECTORIES ${DNNL_INCLUDE_DIR})
endif()

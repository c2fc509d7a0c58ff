# What this configuration will build, for a person to read.
if(cpu_built)
    set(cpu_note "oneDNN ${DNNL_VERSION} (${DNNL_LIBRARY})")
elseif(DER_CPU STREQUAL "OFF")
    set(cpu_note "off")
elseif(dnnl_found)
    set(cpu_note "oneDNN ${DNNL_VERSION} (found; no sources in src/backend/cpu)")
else()
    set(cpu_note "no oneDNN found")
endif()
set(openmp_note "off")
if(DER_OPENMP)
    set(openmp_note "${OpenMP_C_VERSION}")
endif()
list(LENGTH test_sources n_tests)
foreach(line
        "der ${PROJECT_VERSION}"
        "  build      ${CMAKE_BUILD_TYPE}, ${DER_BUILD_COMPILER}, warnings as errors ${DER_WERROR}"
        "  sanitizer  ${DER_SANITIZE}"
        "  back ends  ${DER_BUILD_BACK_ENDS}"
        "  formats    ${DER_BUILD_FORMATS}"
        "  downloads  ${fetch_note}"
        "  cpu        ${cpu_note}"
        "  OpenMP     ${openmp_note}"
        "  cuda       ${cuda_note}"
        "  tests      ${n_tests} programs")
    message(STATUS "${line}")
endforeach()

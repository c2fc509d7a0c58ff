# The flags every C file of the project is compiled with, as the interface target der_flags.
add_library(der_flags INTERFACE)
target_compile_definitions(der_flags INTERFACE _POSIX_C_SOURCE=200809L)
target_compile_options(der_flags INTERFACE
    -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wstrict-prototypes -Wmissing-prototypes
    -Wvla -Wwrite-strings -Wundef
    # Neither changes a value: they only drop errno and floating-point traps, which nobody reads.
    -fno-math-errno -fno-trapping-math)
if(CMAKE_C_COMPILER_ID MATCHES "Clang")
    # assert(!"sentence") is how the impossible is marked.
    target_compile_options(der_flags INTERFACE -Wno-string-conversion)
endif()
if(DER_WERROR)
    target_compile_options(der_flags INTERFACE -Werror)
endif()

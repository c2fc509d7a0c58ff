# DER_SANITIZE=address (with undefined behaviour) or thread. Every finding ends the program, so
# that a test cannot pass over it. A fuzz build asks for address and adds libFuzzer's coverage.
if(DER_SANITIZE STREQUAL "address")
    set(sanitizer_flags -fsanitize=address,undefined -fno-sanitize-recover=all)
    # The sanitizer watches the stack more closely than the stack protector, which is on by default on some systems.
    # With both of them gcc up to 13.2 puts variables that want 64 bytes of alignment, as our vectors do, where they
    # have 32 (GCC bug 110027), and the first access to one dies.
    add_compile_options(-fno-stack-protector)
elseif(DER_SANITIZE STREQUAL "thread")
    set(sanitizer_flags -fsanitize=thread)
elseif(DER_SANITIZE)
    message(FATAL_ERROR "DER_SANITIZE is '${DER_SANITIZE}', want address, thread or nothing")
endif()

if(DER_FUZZ)
    if(NOT CMAKE_C_COMPILER_ID MATCHES "Clang")
        message(FATAL_ERROR "DER_FUZZ=ON wants clang, the compiler is ${CMAKE_C_COMPILER_ID}")
    endif()
    list(APPEND sanitizer_flags -fsanitize=fuzzer-no-link)
endif()

if(sanitizer_flags)
    add_compile_options(${sanitizer_flags} -fno-omit-frame-pointer)
    add_link_options(${sanitizer_flags})
endif()

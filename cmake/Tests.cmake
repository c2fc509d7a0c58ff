# Tests: one program per *_test.c (beside the code or under tests/), one entry per tests/*/t*.sh.
#
# The ctest label is the group: the room for src/<room> ("backend-cpu" for src/backend/cpu), the
# folder for tests/<folder>. Further labels come from a line of the test file that reads
# "/* labels: slow tsan */" ("# labels: slow" in a script):
#   slow  only in `make test-slow`     tsan  also run under the thread sanitizer
#   long  trains networks: left out where everything takes many times as long (asan)
#   first takes long: begun before the others, so that no core waits for it in the end
find_path(CMOCKA_INCLUDE_DIR cmocka.h REQUIRED)
find_library(CMOCKA_LIBRARY cmocka REQUIRED)

file(GLOB support_sources CONFIGURE_DEPENDS tests/support/*.c)
list(FILTER support_sources EXCLUDE REGEX "_test\\.c$")
add_library(der_test_base INTERFACE)
target_include_directories(der_test_base INTERFACE tests ${CMOCKA_INCLUDE_DIR})
target_link_libraries(der_test_base INTERFACE der_flags der_static ${CMOCKA_LIBRARY})
target_compile_definitions(der_test_base INTERFACE
                           DER_TESTS_DIR="${CMAKE_CURRENT_SOURCE_DIR}/tests")
# What is tested is the release; the tests themselves need not be fast, but compiled soon.
target_compile_options(der_test_base INTERFACE $<$<CONFIG:Release>:-O1>)
add_library(der_test_support STATIC ${support_sources})
target_link_libraries(der_test_support PUBLIC der_test_base)
if(cuda_built)
    file(GLOB cuda_support_sources CONFIGURE_DEPENDS tests/support/cuda/*.c)
    add_library(der_test_cuda STATIC ${cuda_support_sources})
    target_include_directories(der_test_cuda SYSTEM PUBLIC ${CUDAToolkit_INCLUDE_DIRS}
                               ${CUDNN_INCLUDE_DIR})
    target_link_libraries(der_test_cuda PUBLIC der_test_support)
endif()

# der_group(FILE OUT): the label that a file's place gives it.
function(der_group file out)
    file(RELATIVE_PATH path ${CMAKE_CURRENT_SOURCE_DIR} ${file})
    get_filename_component(folder ${path} DIRECTORY)
    string(REGEX REPLACE "^(src|tests)/" "" folder ${folder})
    string(REPLACE "/" "-" folder ${folder})
    string(REGEX REPLACE "^backend-cuda$" "cuda" folder ${folder})
    set(${out} ${folder} PARENT_SCOPE)
endfunction()

# der_register(NAME FILE GROUP COMMAND...): every test runs through tools/run_test.sh, which counts
# its cases and leaves the count where tools/test.sh adds them up, in the folder of the group.
function(der_register name file group)
    set(labels ${group})
    file(STRINGS ${file} extra REGEX "^(/\\*|#) labels: ")
    if(extra)
        string(REGEX REPLACE "^(/\\*|#) labels: *| *\\*/" "" extra "${extra}")
        string(REPLACE " " ";" extra "${extra}")
        list(APPEND labels ${extra})
    endif()
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
    add_test(NAME ${name} WORKING_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR}
             COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/tools/run_test.sh
                     ${CMAKE_CURRENT_BINARY_DIR}/results/${group}/${name} ${ARGN})
    set_tests_properties(${name} PROPERTIES LABELS "${labels}" TIMEOUT 600
                         ENVIRONMENT "OMP_WAIT_POLICY=passive;DER_CACHE_DIR=")
    if("first" IN_LIST labels)
        set_tests_properties(${name} PROPERTIES COST 100)
    endif()
endfunction()

file(GLOB_RECURSE test_sources CONFIGURE_DEPENDS src/*_test.c tests/*_test.c)
if(NOT cpu_built)
    list(FILTER test_sources EXCLUDE REGEX "/src/backend/cpu/")
endif()
if(NOT cuda_built)
    list(FILTER test_sources EXCLUDE REGEX "/src/backend/cuda/")
endif()
if(NOT fetch_usable)
    list(FILTER test_sources EXCLUDE REGEX "/src/fetch/")
endif()
if(DER_FUZZ)
    set(test_sources) # a build for the fuzz targets alone
endif()
foreach(file IN LISTS test_sources)
    get_filename_component(name ${file} NAME_WE)
    add_executable(${name} ${file})
    target_link_libraries(${name} PRIVATE der_test_support)
    set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY tests)
    if(file MATCHES "/src/backend/cuda/")
        target_link_libraries(${name} PRIVATE der_test_cuda)
    endif()
    der_group(${file} group)
    der_register(${name} ${file} ${group} $<TARGET_FILE:${name}>)
    get_property(labels TEST ${name} PROPERTY LABELS)
    foreach(label IN LISTS labels)
        if(NOT TARGET tests-${label})
            add_custom_target(tests-${label}) # the programs with a label, to build them alone
        endif()
        add_dependencies(tests-${label} ${name})
    endforeach()
endforeach()

# The group cuda: the suites of cuda_suites.txt, which every back end must pass, once more on the GPU. Skipped
# where there is none. tools/gpu_check.sh reads the same list.
if(cuda_built AND NOT DER_FUZZ)
    file(STRINGS cmake/cuda_suites.txt cuda_suites)
    foreach(name IN LISTS cuda_suites)
        set(file ${test_sources})
        list(FILTER file INCLUDE REGEX "/${name}\\.c$")
        der_register(cuda_${name} ${file} cuda $<TARGET_FILE:${name}>)
        set_tests_properties(cuda_${name} PROPERTIES LABELS cuda)
        set_property(TEST cuda_${name} APPEND PROPERTY ENVIRONMENT "DER_TEST_BACKENDS=cuda")
    endforeach()
endif()

# Scripts get the program and the library under test in their environment.
file(GLOB test_scripts CONFIGURE_DEPENDS tests/*/t[0-9]*.sh)
foreach(file IN LISTS test_scripts)
    get_filename_component(name ${file} NAME_WE)
    der_group(${file} group)
    der_register(${name} ${file} ${group} bash ${file})
    set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT
                 "DER=$<TARGET_FILE:der_cli>" "LIBDER=$<TARGET_FILE:der>")
endforeach()

# Fuzz targets: libFuzzer's main in the fuzz preset, elsewhere a main that replays the corpus.
file(GLOB fuzz_sources CONFIGURE_DEPENDS tests/fuzz/fuzz_*.c)
if(NOT fetch_usable)
    list(FILTER fuzz_sources EXCLUDE REGEX "/fuzz_(range_header|unpack)\\.c$")
endif()
foreach(file IN LISTS fuzz_sources)
    get_filename_component(name ${file} NAME_WE)
    add_executable(${name} ${file})
    target_link_libraries(${name} PRIVATE der_test_support)
    set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY fuzz)
    set(corpus ${CMAKE_CURRENT_SOURCE_DIR}/tests/fuzz/corpus/${name})
    if(DER_FUZZ)
        target_link_options(${name} PRIVATE -fsanitize=fuzzer)
    else()
        target_sources(${name} PRIVATE tests/fuzz/replay_main.c)
        der_group(${file} group)
        der_register(${name} ${file} ${group} $<TARGET_FILE:${name}> ${corpus})
    endif()
endforeach()

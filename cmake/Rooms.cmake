# The library: every src/<room>/*.c except *_test.c, one object library per room, so that vendor
# headers and flags reach the room that needs them and no other.
set(der_rooms core json graph backend/ref backend/cpu backend/cuda nn model data train metrics config
              io store fetch predict dist method learn experiment exchange report api)
set(der_back_ends)
set(room_targets)
set(cpu_built FALSE)
set(cuda_built FALSE)
set(generated_dir ${CMAKE_CURRENT_BINARY_DIR}/generated)

# der_room_sources(ROOM OUT): the sources of a room without its tests.
function(der_room_sources room out)
    file(GLOB sources CONFIGURE_DEPENDS src/${room}/*.c)
    list(FILTER sources EXCLUDE REGEX "_test\\.c$")
    if(room STREQUAL "fetch" AND NOT fetch_usable)
        list(FILTER sources INCLUDE REGEX "/offer\\.c$") # what there is to download can still be listed
    endif()
    set(${out} ${sources} PARENT_SCOPE)
endfunction()

# der_embed(TARGET FOLDER HEADER TYPE NAME): the files of a folder become part of a target, as the header declares.
function(der_embed target folder header type name)
    set(folder ${CMAKE_CURRENT_SOURCE_DIR}/${folder})
    set(script ${CMAKE_CURRENT_SOURCE_DIR}/cmake/Embed.cmake)
    file(GLOB files CONFIGURE_DEPENDS ${folder}/*)
    set(source ${generated_dir}/${type}s.c)
    add_custom_command(OUTPUT ${source}
                       COMMAND ${CMAKE_COMMAND} -DOUT=${source} -DFOLDER=${folder} -DHEADER=${header} -DTYPE=${type}
                               -DNAME=${name} -P ${script}
                       DEPENDS ${files} ${script} VERBATIM)
    target_sources(${target} PRIVATE ${source})
endfunction()

foreach(room IN LISTS der_rooms)
    der_room_sources(${room} sources)
    if(NOT sources OR (room STREQUAL "backend/cpu" AND NOT dnnl_found) OR
       (room STREQUAL "backend/cuda" AND NOT cuda_usable))
        continue()
    endif()
    string(REPLACE "/" "_" target room_${room})
    add_library(${target} OBJECT ${sources})
    target_include_directories(${target} PRIVATE include src ${generated_dir} ${CJSON_INCLUDE_DIR})
    target_link_libraries(${target} PRIVATE der_flags)
    if(room STREQUAL "report")
        der_embed(${target} src/report/page report/page.h page_file PAGE_FILES)
    endif()
    list(APPEND room_targets ${target})
    if(room MATCHES "^backend/(.*)")
        list(APPEND der_back_ends ${CMAKE_MATCH_1})
    endif()
endforeach()

if(TARGET room_backend_ref)
    # The oracle rounds after every operation, whatever the compiler would like to fuse.
    target_compile_options(room_backend_ref PRIVATE -ffp-contract=off)
endif()
if(TARGET room_backend_cpu)
    set(cpu_built TRUE)
    target_link_libraries(room_backend_cpu PRIVATE DNNL::dnnl)
    if(DER_OPENMP)
        target_link_libraries(room_backend_cpu PRIVATE OpenMP::OpenMP_C)
    else()
        target_compile_options(room_backend_cpu PRIVATE -Wno-unknown-pragmas)
    endif()
    if(DER_SANITIZE)
        # Where sanitizers spend their time: half of what a training run takes with them.
        target_compile_options(room_backend_cpu PRIVATE -O2)
    endif()
endif()

if(TARGET room_backend_cuda)
    set(cuda_built TRUE)
    target_include_directories(room_backend_cuda SYSTEM PRIVATE
                               ${CUDAToolkit_INCLUDE_DIRS} ${CUDNN_INCLUDE_DIR})
    target_compile_definitions(room_backend_cuda PRIVATE
                               CUDA_LIBRARY_DIR="${CUDAToolkit_LIBRARY_DIR}")
    # The kernels are a target of their own: der_flags are for C.
    file(GLOB kernel_sources CONFIGURE_DEPENDS src/backend/cuda/kernels/*.cu)
    set(hopper_sources ${kernel_sources})
    list(FILTER hopper_sources INCLUDE REGEX "/(strip|strip_weights|sheet)\\.cu$")
    list(REMOVE_ITEM kernel_sources ${hopper_sources})
    add_library(room_backend_cuda_kernels OBJECT ${kernel_sources})
    add_library(room_backend_cuda_hopper OBJECT ${hopper_sources})
    set_target_properties(room_backend_cuda_hopper PROPERTIES
                          CUDA_ARCHITECTURES ${hopper_architecture})
    foreach(target room_backend_cuda_kernels room_backend_cuda_hopper)
        target_include_directories(${target} PRIVATE src)
        target_compile_options(${target} PRIVATE
                               -Xcompiler=-Wall,-Wextra,-fno-exceptions,-fno-rtti)
        if(DER_WERROR)
            target_compile_options(${target} PRIVATE -Werror=all-warnings)
        endif()
        list(APPEND room_targets ${target})
    endforeach()
endif()

# Formats that the room data can read, and their libraries.
set(data_libraries)
set(data_formats)
foreach(format ZLIB JPEG PNG)
    set(DER_HAVE_${format} 0)
    if(TARGET room_data AND ${format}_FOUND)
        set(DER_HAVE_${format} 1)
        list(APPEND data_libraries ${format}::${format})
        list(APPEND data_formats ${format})
    endif()
endforeach()
if(TARGET room_data)
    target_link_libraries(room_data PRIVATE ${data_libraries})
endif()

# Downloads: all three libraries or none.
set(DER_HAVE_FETCH 0)
set(fetch_libraries)
if(fetch_usable)
    set(DER_HAVE_FETCH 1)
    set(DER_BUILD_FETCH "${fetch_note}")
    set(fetch_libraries CURL::libcurl LibArchive::LibArchive ${NETTLE_LIBRARY})
    target_link_libraries(room_fetch PRIVATE ${fetch_libraries})
    target_include_directories(room_fetch SYSTEM PRIVATE ${NETTLE_INCLUDE_DIR})
endif()

# What the library needs at link time, for the shared and the static form alike.
add_library(der_link INTERFACE)
target_link_libraries(der_link INTERFACE Threads::Threads m ${CJSON_LIBRARY} ${data_libraries}
                      ${fetch_libraries})
if(cpu_built)
    target_link_libraries(der_link INTERFACE DNNL::dnnl)
    if(DER_OPENMP)
        target_link_libraries(der_link INTERFACE OpenMP::OpenMP_C)
    endif()
endif()

if(cuda_built)
    target_link_libraries(der_link INTERFACE CUDA::cudart_static ${CMAKE_DL_LIBS})
endif()

set(room_objects)
foreach(target IN LISTS room_targets)
    list(APPEND room_objects $<TARGET_OBJECTS:${target}>)
endforeach()

# The name that programs ask the loader for changes with every release that may break them: the minor
# ones before 1.0, as Semantic Versioning has it, the major ones from then on. tools/check_abi.sh
# holds the releases in between to it.
set(der_soversion ${PROJECT_VERSION_MAJOR})
if(PROJECT_VERSION_MAJOR EQUAL 0)
    set(der_soversion ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
endif()

add_library(der SHARED ${room_objects})
add_library(der::der ALIAS der)
set_target_properties(der PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${der_soversion}
                      LINKER_LANGUAGE C)
target_include_directories(der INTERFACE $<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}/include>)
target_link_libraries(der PRIVATE der_link)
if(NOT DER_SANITIZE)
    target_link_options(der PRIVATE -Wl,--no-undefined)
endif()
if(cuda_built)
    target_link_options(der PRIVATE -Wl,--exclude-libs,libcudart_static.a)
endif()

add_library(der_static STATIC EXCLUDE_FROM_ALL ${room_objects})
target_include_directories(der_static INTERFACE include src ${generated_dir}
                                                ${CJSON_INCLUDE_DIR})
target_link_libraries(der_static PUBLIC der_link)
set_target_properties(der_static PROPERTIES LINKER_LANGUAGE C)

# der_build.h: what api/ shows as der_build_info(), graph/registry.c and data/ decide on.
# Defined to 0 or 1, never left out, so that -Wundef catches a spelling mistake.
set(DER_HAVE_DNNL 0)
set(DER_HAVE_OPENMP 0)
set(DER_HAVE_CUDA 0)
if(cpu_built)
    set(DER_HAVE_DNNL 1)
    set(DER_BUILD_DNNL ${DNNL_VERSION})
    if(DER_OPENMP)
        set(DER_HAVE_OPENMP 1)
        set(DER_BUILD_OPENMP ${OpenMP_C_VERSION})
    endif()
endif()
if(cuda_built)
    set(DER_HAVE_CUDA 1)
    set(DER_BUILD_CUDA "${CUDAToolkit_VERSION}, cuDNN ${cudnn_version}")
endif()
string(REPLACE ";" ", " DER_BUILD_BACK_ENDS "${der_back_ends}")
string(REPLACE ";" ", " DER_BUILD_FORMATS "${data_formats}")
string(REPLACE "ZLIB" "gzip" DER_BUILD_FORMATS "${DER_BUILD_FORMATS}")
string(TOLOWER ${CMAKE_BUILD_TYPE} DER_BUILD_TYPE)
set(DER_BUILD_COMPILER "${CMAKE_C_COMPILER_ID} ${CMAKE_C_COMPILER_VERSION}")
configure_file(cmake/der_build.h.in ${generated_dir}/der_build.h @ONLY)

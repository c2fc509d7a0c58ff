# What `cmake --install` leaves: the program, the library, its headers, the man page, and how other
# builds find the library (pkg-config, CMake). All of it is found from where it lies, so that an
# installed tree can be moved. There is no static archive: it would hand oneDNN, OpenMP, cJSON and the
# image libraries, of this very build, on to every program; libder.so brings them itself.
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/der)
set(pkgconfig_dir ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# der_way(OUT FROM TO): the relative path from one installed folder to another, neither of which need
# be below the prefix by one step (lib/x86_64-linux-gnu).
function(der_way out from to)
    foreach(end from to)
        cmake_path(ABSOLUTE_PATH ${end} BASE_DIRECTORY ${CMAKE_INSTALL_PREFIX})
    endforeach()
    file(RELATIVE_PATH way ${from} ${to})
    string(REGEX REPLACE "/$" "" way ${way})
    set(${out} ${way} PARENT_SCOPE)
endfunction()

# The program finds the library beside it; the library, what it was linked with outside the system's
# folders (DER_DNNL_ROOT).
der_way(libdir_from_bindir ${CMAKE_INSTALL_BINDIR} ${CMAKE_INSTALL_LIBDIR})
set_target_properties(der_cli PROPERTIES INSTALL_RPATH "$ORIGIN/${libdir_from_bindir}")
set_target_properties(der PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON)

install(TARGETS der EXPORT der_targets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
        INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(TARGETS der_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(DIRECTORY include/der DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
file(GLOB man_pages CONFIGURE_DEPENDS man/*.1)
install(FILES ${man_pages} DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES cli/shell/der.bash RENAME der DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
install(FILES cli/shell/der.zsh RENAME _der DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)

# pkg-config
der_way(prefix_from_pkgconfig ${pkgconfig_dir} .)
der_way(libdir_from_pkgconfig ${pkgconfig_dir} ${CMAKE_INSTALL_LIBDIR})
der_way(includedir_from_pkgconfig ${pkgconfig_dir} ${CMAKE_INSTALL_INCLUDEDIR})
configure_file(cmake/der.pc.in generated/der.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/generated/der.pc DESTINATION ${pkgconfig_dir})

# find_package(der): the rule of versions is that of the soname.
if(PROJECT_VERSION_MAJOR EQUAL 0)
    set(compatibility SameMinorVersion)
else()
    set(compatibility SameMajorVersion)
endif()
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/generated/derConfigVersion.cmake
                                 COMPATIBILITY ${compatibility})
install(EXPORT der_targets FILE derConfig.cmake NAMESPACE der:: DESTINATION ${package_dir})
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/generated/derConfigVersion.cmake
        DESTINATION ${package_dir})

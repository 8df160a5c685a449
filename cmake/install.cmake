# What `cmake --install` lays out of the library: itself, its headers, a CMake package, pkg-config
# files. Programs that are installed too say so themselves (tutti_program), and so do the engines
# (parallel/CMakeLists.txt) and other bindings.
tutti_install_headers(library ${TUTTI_PUBLIC_HEADERS})
foreach(header IN LISTS TUTTI_INTERNAL_HEADERS)
  cmake_path(GET header PARENT_PATH folder)
  install(FILES ${header} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/tutti/internal/${folder}
          COMPONENT library)
endforeach()

install(TARGETS tutti EXPORT tuttiTargets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library
  INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})

install(EXPORT tuttiTargets NAMESPACE tutti:: DESTINATION ${TUTTI_PACKAGE_DIR} COMPONENT library)
configure_package_config_file(cmake/tuttiConfig.cmake.in tuttiConfig.cmake
  INSTALL_DESTINATION ${TUTTI_PACKAGE_DIR})
write_basic_package_version_file(tuttiConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/tuttiConfig.cmake ${PROJECT_BINARY_DIR}/tuttiConfigVersion.cmake
        DESTINATION ${TUTTI_PACKAGE_DIR} COMPONENT library)

# A shared library brings its own dependencies; a static one leaves them to whoever links it.
set(requires "")
if(NOT BUILD_SHARED_LIBS)
  set(requires "spdlog fmt pugixml hwloc libsodium")
endif()
tutti_install_pkg_config(library tutti "${requires}")

# The Python package has the same below its own folder (bindings/python): a component that pip installs,
# and that is no part of `cmake --install`, whose prefix is no package.
if(TUTTI_PYTHON)
  set(component COMPONENT python EXCLUDE_FROM_ALL)
  foreach(header IN LISTS TUTTI_PUBLIC_HEADERS TUTTI_ENGINE_HEADERS)
    cmake_path(GET header PARENT_PATH folder)
    install(FILES ${header} DESTINATION include/tutti/${folder} ${component})
  endforeach()
  foreach(targets IN ITEMS tuttiTargets tutti_parallelTargets)
    install(EXPORT ${targets} NAMESPACE tutti:: DESTINATION lib/cmake/tutti ${component})
  endforeach()
  install(FILES ${PROJECT_BINARY_DIR}/tuttiConfig.cmake ${PROJECT_BINARY_DIR}/tuttiConfigVersion.cmake
          DESTINATION lib/cmake/tutti ${component})
  install(TARGETS tutti tutti_c tutti_parallel LIBRARY DESTINATION lib NAMELINK_SKIP ${component})
  install(FILES bindings/c/tutti_c.h DESTINATION include/tutti ${component})
  if(TARGET tutti_windows)
    install(TARGETS tutti_windows LIBRARY DESTINATION lib/tutti ${component})
  endif()
  if(TUTTI_NCCL)
    install(TARGETS nccl LIBRARY DESTINATION lib/tutti NAMELINK_SKIP ${component})
    install(FILES bindings/nccl/nccl.h bindings/nccl/nccl_device.h
            DESTINATION include/tutti/nccl ${component})
  endif()
endif()

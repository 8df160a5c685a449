# How the library and what is built upon it are installed: one CMake package and one folder of headers, in
# components. `library`; `engines`, which need it; `programs`, which need both.
include(CMakePackageConfigHelpers)
include(${CMAKE_CURRENT_LIST_DIR}/headers.cmake)
include(${CMAKE_CURRENT_LIST_DIR}/../parallel/headers.cmake)

set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME programs)  # those of the rules that name none
set(TUTTI_PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/tutti)
file(REMOVE_RECURSE ${PROJECT_BINARY_DIR}/include/tutti)  # with links to headers that have gone

# tutti_install_headers(component headers...): below include/tutti, in the folders that they have here. In
# the build tree as well, as links: so <tutti/...> has one spelling.
function(tutti_install_headers component)
  cmake_path(SET root NORMALIZE ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/..)
  foreach(header IN LISTS ARGN)
    cmake_path(GET header PARENT_PATH folder)
    install(FILES ${root}/${header} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/tutti/${folder}
            COMPONENT ${component})
    file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/include/tutti/${folder})
    file(CREATE_LINK ${root}/${header} ${PROJECT_BINARY_DIR}/include/tutti/${header} SYMBOLIC)
  endforeach()
endfunction()

# tutti_install_pkg_config(component package requires): cmake/PACKAGE.pc.in, whose @pc_requires@ is `requires`.
function(tutti_install_pkg_config component package pc_requires)
  # Relative to the .pc file, so that a tree that was staged or moved still works.
  file(RELATIVE_PATH prefix_from_pc /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
  configure_file(${CMAKE_CURRENT_FUNCTION_LIST_DIR}/${package}.pc.in
                 ${PROJECT_BINARY_DIR}/${package}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/${package}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig
          COMPONENT ${component})
endfunction()

# Modules: shared objects that the library opens where it needs them (core/module.h).
#
# tutti_interface(NAME headers...): makes tutti_NAME_interface.h, which has a hash of these headers,
#     the ones that a module and whoever opens it share.
# tutti_shares(NAME target...): targets that include it.
# tutti_module(NAME sources...): the target tutti_NAME, libtutti_NAME.so. It has all that it needs of
#     Tutti inside, hidden, and of other libraries those of C and C++ and fmt alone.
# tutti_module_options(target): for libraries that it is made of.
set(TUTTI_INTERFACES ${PROJECT_BINARY_DIR}/interfaces)

function(tutti_interface name)
  set(header ${TUTTI_INTERFACES}/tutti_${name}_interface.h)
  set(headers "")
  foreach(wanted IN LISTS ARGN)
    # Engines by themselves have the library's where it is installed (cmake/engines).
    find_file(file NAMES ${wanted} PATHS ${TUTTI_ROOT} ${TUTTI_INSTALLED_HEADERS}
              NO_DEFAULT_PATH NO_CACHE REQUIRED)
    list(APPEND headers ${file})
    unset(file)
  endforeach()
  add_custom_command(OUTPUT ${header}
    COMMAND ${CMAKE_COMMAND} -DOUT=${header} -DNAME=${name} -DVERSION=${PROJECT_VERSION}
            "-DHEADERS=${headers}" -P ${TUTTI_ROOT}/cmake/interface.cmake
    DEPENDS ${headers} ${TUTTI_ROOT}/cmake/interface.cmake
    VERBATIM)
  add_custom_target(tutti_${name}_interface DEPENDS ${header})
endfunction()

function(tutti_shares name)
  foreach(target IN LISTS ARGN)
    target_include_directories(${target} PRIVATE ${TUTTI_INTERFACES})
    add_dependencies(${target} tutti_${name}_interface)
  endforeach()
endfunction()

function(tutti_module_options target)
  tutti_options(${target})
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${target} PRIVATE fmt::fmt)
endfunction()

function(tutti_module name)
  set(target tutti_${name})
  set(map ${TUTTI_ROOT}/cmake/module.map)
  add_library(${target} MODULE ${ARGN})
  tutti_module_options(${target})
  tutti_shares(${name} ${target})
  set_target_properties(${target} PROPERTIES
    LINKER_LANGUAGE CXX LINK_DEPENDS ${map}
    LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib/tutti
    INSTALL_RPATH $ORIGIN/..)
  target_link_options(${target} PRIVATE -Wl,--version-script=${map})
  if(NOT TUTTI_SANITIZE)
    target_link_options(${target} PRIVATE -Wl,--no-undefined)
  endif()
  install(TARGETS ${target} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/tutti)
  if(TUTTI_PYTHON)
    install(TARGETS ${target} LIBRARY DESTINATION lib/tutti COMPONENT python EXCLUDE_FROM_ALL)
  endif()
endfunction()

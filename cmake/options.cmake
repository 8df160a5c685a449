# How everything here is compiled.

if(PROJECT_IS_TOP_LEVEL)
  if(NOT CMAKE_BUILD_TYPE)
    set(CMAKE_BUILD_TYPE Release CACHE STRING "Debug, Release or RelWithDebInfo" FORCE)
  endif()
  set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
  find_program(CCACHE ccache)
  mark_as_advanced(CCACHE)
  if(CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
    set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
  endif()
endif()

# GCC collects its own garbage once it holds more than this many KiB (by default 128 MiB): a tenth of the time
# of compiling what uses the standard library much, for 250 MB more of a compiler's memory at most.
if(PROJECT_IS_TOP_LEVEL AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:--param=ggc-min-heapsize=524288>")
endif()

set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)

# A first build has headers parsed once for many files, and several files of a library compiled as one.
# With a compiler cache that brings little, and the cache would have to be told what it may overlook.
set(TUTTI_PCH AUTO CACHE STRING "Precompiled headers: ON, OFF, or AUTO (without a compiler cache)")
set(TUTTI_UNITY AUTO CACHE STRING "Unity builds: ON, OFF, or AUTO (without a compiler cache)")
set(TUTTI_COMMON_HEADERS <algorithm> <array> <atomic> <chrono> <functional> <map> <memory> <mutex>
                         <optional> <set> <span> <string> <string_view> <thread> <vector>
                         <fmt/format.h>)

# tutti_wants(setting result): what ON, OFF or AUTO comes to.
function(tutti_wants setting result)
  if(setting STREQUAL "AUTO")
    if(CMAKE_CXX_COMPILER_LAUNCHER)
      set(setting OFF)
    else()
      set(setting ON)
    endif()
  endif()
  set(${result} ${setting} PARENT_SCOPE)
endfunction()

# tutti_unity(target): files of one folder are compiled a few at a time; so what they have in unnamed
# namespaces had better differ. Not those with SKIP_UNITY_BUILD_INCLUSION. To be called where the
# target was made, and has all its sources.
function(tutti_unity target)
  tutti_wants(${TUTTI_UNITY} wanted)
  if(NOT wanted)
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  get_target_property(sources ${target} SOURCES)
  foreach(source IN LISTS sources)
    get_source_file_property(skip ${source} SKIP_UNITY_BUILD_INCLUSION)
    if(NOT source MATCHES "[.]cpp$" OR skip)
      continue()
    endif()
    get_filename_component(folder ${source} DIRECTORY)
    if(IS_ABSOLUTE "${folder}")
      # The order of the link follows these names, which are not to depend on where the sources lie.
      file(RELATIVE_PATH folder ${PROJECT_SOURCE_DIR} ${folder})
    endif()
    string(MAKE_C_IDENTIFIER "${folder}" folder)
    math(EXPR count_${folder} "0${count_${folder}} + 1")
    math(EXPR part "(${count_${folder}} - 1) / 8")
    set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${folder}_${part})
  endforeach()
endfunction()

# tutti_alone(target sources...): these are not compiled together with others (tutti_unity).
function(tutti_alone target)
  set_source_files_properties(${ARGN} TARGET_DIRECTORY ${target} PROPERTIES
    SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

# tutti_precompile(target kind headers...): where they are wanted. Targets of one kind share those of the first
# one: so all have its options, and its definitions (the compiler warns of a file that they do not fit).
function(tutti_precompile target kind)
  tutti_wants(${TUTTI_PCH} wanted)
  if(NOT wanted)
    return()
  endif()
  get_property(other GLOBAL PROPERTY tutti_precompiled_${kind})
  if(other)
    target_precompile_headers(${target} REUSE_FROM ${other})
  else()
    set_property(GLOBAL PROPERTY tutti_precompiled_${kind} ${target})
    target_precompile_headers(${target} PRIVATE ${TUTTI_COMMON_HEADERS} ${ARGN})
  endif()
endfunction()

# tutti_options(target): the language, the warnings, the sanitizers.
function(tutti_options target)
  target_compile_features(${target} PRIVATE cxx_std_20)
  set_target_properties(${target} PROPERTIES CXX_EXTENSIONS OFF POSITION_INDEPENDENT_CODE ON)
  # Reductions promise equal bits, so a * b + c is not to become one rounding on some machines only.
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wpedantic -Wshadow -ffp-contract=off)
  if(TUTTI_WERROR)
    target_compile_options(${target} PRIVATE -Werror)
  endif()
  if(TUTTI_SANITIZE)
    target_compile_options(${target} PRIVATE -fsanitize=${TUTTI_SANITIZE} -fno-omit-frame-pointer
                                             -fno-sanitize-recover=all)
    target_link_options(${target} PRIVATE -fsanitize=${TUTTI_SANITIZE})
    if(TUTTI_SANITIZE MATCHES address)
      # It warns of what std::regex does to its std::function.
      target_compile_options(${target} PRIVATE -Wno-maybe-uninitialized)
    endif()
    if(TUTTI_SANITIZE MATCHES thread)
      # It does not see fences. Where there is one, it orders accesses to other ranks' memory.
      target_compile_options(${target} PRIVATE -Wno-tsan)
    endif()
  endif()
endfunction()

# tutti_program(target): a program that is installed, and finds the library beside it.
function(tutti_program target)
  tutti_install_program(${target} bin ${CMAKE_INSTALL_BINDIR})
endfunction()

# tutti_inner_program(target): one that users do not start themselves, as `tutti` does: ../libexec/tutti, seen
# from its folder.
cmake_path(GET CMAKE_INSTALL_BINDIR PARENT_PATH TUTTI_LIBEXEC)
cmake_path(APPEND TUTTI_LIBEXEC libexec/tutti)
function(tutti_inner_program target)
  tutti_install_program(${target} libexec/tutti ${TUTTI_LIBEXEC})
endfunction()

function(tutti_install_program target in_build installed)
  file(RELATIVE_PATH libraries /${installed} /${CMAKE_INSTALL_LIBDIR})
  set_target_properties(${target} PROPERTIES
    RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/${in_build}
    INSTALL_RPATH $ORIGIN/${libraries})
  install(TARGETS ${target} RUNTIME DESTINATION ${installed})
endfunction()

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

set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)

# Headers that most files include are parsed once for many. With a compiler cache that brings nothing,
# and the cache would have to be told what it may overlook.
set(TUTTI_PCH AUTO CACHE STRING "Precompiled headers: ON, OFF, or AUTO (without a compiler cache)")
set(TUTTI_COMMON_HEADERS <algorithm> <array> <atomic> <chrono> <functional> <map> <memory> <mutex>
                         <optional> <set> <span> <string> <string_view> <thread> <vector>
                         <fmt/format.h>)

# tutti_precompile(target kind headers...): where they are wanted. Targets of one kind, which are all
# compiled with the same options, share theirs; a file that they do not fit does without.
function(tutti_precompile target kind)
  if(TUTTI_PCH STREQUAL "AUTO")
    if(CMAKE_CXX_COMPILER_LAUNCHER)
      return()
    endif()
  elseif(NOT TUTTI_PCH)
    return()
  endif()
  set_target_properties(${target} PROPERTIES PCH_WARN_INVALID OFF)
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
    if(TUTTI_SANITIZE MATCHES thread)
      # It does not see fences. Where there is one, it orders accesses to other ranks' memory.
      target_compile_options(${target} PRIVATE -Wno-tsan)
    endif()
  endif()
endfunction()

# tutti_program(target): a program that is installed, and finds the library beside it.
function(tutti_program target)
  file(RELATIVE_PATH lib_from_bin /${CMAKE_INSTALL_BINDIR} /${CMAKE_INSTALL_LIBDIR})
  set_target_properties(${target} PROPERTIES
    RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin
    INSTALL_RPATH $ORIGIN/${lib_from_bin})
  install(TARGETS ${target} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endfunction()

# A folder includes only what stands before it in this list. (The picture in docs/design.md has the
# first at the bottom.) What is built upon an installed library, too, includes only what is installed.
# Run by ctest in the project's folder (ROOT).
cmake_minimum_required(VERSION 3.25)
set(layers
    core
    topology
    collectives
    transport/sockets transport/gpu transport/host transport/network
    transport/tcp transport/verbs transport/ucx transport/netplugin
    transport  # the ranks of a communicator
    execute
    bootstrap device
    comm
    parallel
    tutti.h
    bindings
    tools/command_line
    bench
    examples
    bench/train  # measures examples/train
    tools
    laboratory
    tests)

include("${ROOT}/cmake/headers.cmake")
include("${ROOT}/parallel/headers.cmake")
set(library core topology collectives transport execute bootstrap device comm tutti.h)
# What cmake/engines builds. Of others it has no more than this.
set(engines parallel bindings/torch bench/nccl examples bindings/nccl/nccl.h
            tools/command_line/usage_error.h)

# The place in the list of what `path` is or lies in; -1: it is in none.
function(layer_of path result)
  list(FIND layers "${path}" index)
  while(index EQUAL -1 AND path MATCHES "/")
    get_filename_component(path "${path}" DIRECTORY)
    list(FIND layers "${path}" index)
  endwhile()
  set(${result} ${index} PARENT_SCOPE)
endfunction()

# Whether `path` is, or lies in, one of the others.
function(lies_in path result)
  set(${result} FALSE PARENT_SCOPE)
  foreach(place IN LISTS ARGN)
    if(path STREQUAL place OR path MATCHES "^${place}/")
      set(${result} TRUE PARENT_SCOPE)
    endif()
  endforeach()
endfunction()

# What is wrong with it that `source` includes `include`, for whom the library or the engines are installed;
# nothing: "". `spelled`: as the source has it, from < or " on.
function(check_installed source include spelled result)
  set(${result} "" PARENT_SCOPE)
  lies_in("${include}" of_library ${library})
  if(source IN_LIST TUTTI_PUBLIC_HEADERS)
    set(allowed ${TUTTI_PUBLIC_HEADERS})
  elseif(source IN_LIST TUTTI_INTERNAL_HEADERS)
    set(allowed ${TUTTI_PUBLIC_HEADERS} ${TUTTI_INTERNAL_HEADERS})
  elseif(source IN_LIST TUTTI_ENGINE_HEADERS)
    set(allowed ${TUTTI_PUBLIC_HEADERS} ${TUTTI_ENGINE_HEADERS})
    if(of_library AND NOT spelled MATCHES "^<tutti/")
      set(${result} ": installed headers of engines spell it <tutti/${include}>" PARENT_SCOPE)
    endif()
  else()
    lies_in("${source}" of_engines ${engines})
    if(NOT of_engines)
      return()
    endif()
    set(allowed ${TUTTI_PUBLIC_HEADERS} ${TUTTI_INTERNAL_HEADERS})
    if(of_library AND spelled MATCHES "^.[.]")
      set(${result} ": by a relative path, which finds nothing that is installed" PARENT_SCOPE)
    endif()
    lies_in("${include}" of_engines ${engines})
    if(of_engines)
      return()
    endif()
  endif()
  if(NOT include IN_LIST allowed)
    set(${result} ", which is not installed for it (cmake/headers.cmake, parallel/headers.cmake)"
        PARENT_SCOPE)
  endif()
endfunction()

set(wrong "")
set(seen 0)
foreach(room IN LISTS layers)
  if(room MATCHES "/")  # a part of another one
    continue()
  endif()
  file(GLOB_RECURSE sources RELATIVE "${ROOT}" "${ROOT}/${room}/*.h" "${ROOT}/${room}/*.cpp"
       "${ROOT}/${room}/*.cu" "${ROOT}/${room}/*.cuh")
  foreach(source IN LISTS sources)
    layer_of("${source}" from)
    get_filename_component(folder "${source}" DIRECTORY)
    file(READ "${ROOT}/${source}" text)
    string(REGEX REPLACE "[][;]" " " text "${text}")  # they mean something to CMake's lists
    string(REGEX MATCHALL "\n[ \t]*#[ \t]*include[ \t]*[<\"][^>\"\n]+" includes "\n${text}")
    foreach(include IN LISTS includes)
      string(REGEX MATCH "[<\"].*" spelled "${include}")
      string(REGEX REPLACE "^[^<\"]*[<\"](tutti/)?" "" include "${include}")
      if(NOT include MATCHES "^[.]" AND EXISTS "${ROOT}/${include}")
        set(include "${ROOT}/${include}")
      else()
        get_filename_component(include "${ROOT}/${folder}/${include}" ABSOLUTE)
      endif()
      if(EXISTS "${include}" AND NOT IS_DIRECTORY "${include}")
        file(RELATIVE_PATH include "${ROOT}" "${include}")
        layer_of("${include}" to)
        math(EXPR seen "${seen} + 1")
        if(to GREATER from OR to EQUAL -1)
          string(APPEND wrong "\n${source} includes ${include}, which stands behind it in the list")
        endif()
        check_installed("${source}" "${include}" "${spelled}" fault)
        if(fault)
          string(APPEND wrong "\n${source} includes ${include}${fault}")
        endif()
      endif()
    endforeach()
  endforeach()
endforeach()

if(wrong)
  message(FATAL_ERROR "folders include what they may not:${wrong}")
elseif(seen LESS 4000)
  message(FATAL_ERROR "only ${seen} includes were found")
endif()
message(STATUS "${seen} includes lead to the same folder or to one before it")

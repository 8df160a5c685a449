# A folder includes only what stands before it in this list. (The picture in docs/design.md has the
# first at the bottom.) Run by ctest in the project's folder (ROOT).
set(layers
    core
    topology
    transport/sockets transport/gpu transport/host transport/network
    transport/tcp transport/verbs transport/ucx transport/netplugin
    transport  # the ranks of a communicator
    collectives
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

# The place in the list of what `path` is or lies in; -1: it is in none.
function(layer_of path result)
  list(FIND layers "${path}" index)
  while(index EQUAL -1 AND path MATCHES "/")
    get_filename_component(path "${path}" DIRECTORY)
    list(FIND layers "${path}" index)
  endwhile()
  set(${result} ${index} PARENT_SCOPE)
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
          string(APPEND wrong "\n${source} includes ${include}")
        endif()
      endif()
    endforeach()
  endforeach()
endforeach()

if(wrong)
  message(FATAL_ERROR "includes of what does not stand before the folder in the list:${wrong}")
elseif(seen LESS 4000)
  message(FATAL_ERROR "only ${seen} includes were found")
endif()
message(STATUS "${seen} includes lead to the same folder or to one before it")

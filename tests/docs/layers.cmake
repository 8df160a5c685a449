# A folder includes only what stands above it in this list. Run by ctest in the project's folder (ROOT).
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
    bindings
    bench
    tools)

# The place in the list of the folder that `path` lies in; "": in none.
function(layer_of path result)
  set(folder "${path}")
  set(index -1)
  while(index EQUAL -1 AND folder MATCHES "/")
    get_filename_component(folder "${folder}" DIRECTORY)
    list(FIND layers "${folder}" index)
  endwhile()
  set(${result} ${index} PARENT_SCOPE)
endfunction()

set(wrong "")
set(seen 0)
foreach(room IN ITEMS core topology transport collectives bootstrap device comm parallel bindings bench tools)
  file(GLOB_RECURSE sources RELATIVE "${ROOT}" "${ROOT}/${room}/*.h" "${ROOT}/${room}/*.cpp"
       "${ROOT}/${room}/*.cu" "${ROOT}/${room}/*.cuh")
  foreach(source IN LISTS sources)
    layer_of("${source}" from)
    file(STRINGS "${ROOT}/${source}" includes REGEX "^#include \"")
    foreach(include IN LISTS includes)
      string(REGEX REPLACE "^#include \"([^\"]+)\".*" "\\1" include "${include}")
      if(include MATCHES "^\\.")
        get_filename_component(folder "${source}" DIRECTORY)
        get_filename_component(include "${ROOT}/${folder}/${include}" ABSOLUTE)
        file(RELATIVE_PATH include "${ROOT}" "${include}")
      endif()
      layer_of("${include}" to)
      if(to GREATER from)
        string(APPEND wrong "\n${source} includes ${include}")
      elseif(to GREATER -1)
        math(EXPR seen "${seen} + 1")
      endif()
    endforeach()
  endforeach()
endforeach()

if(wrong)
  message(FATAL_ERROR "a folder includes what stands below it in the list:${wrong}")
elseif(seen LESS 1000)
  message(FATAL_ERROR "only ${seen} includes were found")
endif()

# libtorch's C++ libraries, out of the folder of a PyTorch package: for this build and, installed
# beside tuttiConfig.cmake, for projects that use tutti::torch. PyTorch's own package
# (find_package(Torch)) wants CUDA's libraries as well, where its wheel has any.

# tutti_torch_version(variable folder): that of the PyTorch there; 0 where there is none.
function(tutti_torch_version variable folder)
  set(version 0)
  set(file ${folder}/include/torch/headeronly/version.h)
  if(EXISTS ${file})
    file(STRINGS ${file} parts REGEX "define TORCH_VERSION_(MAJOR|MINOR|PATCH) ")
    list(TRANSFORM parts REPLACE ".* " "")
    list(JOIN parts . version)
  endif()
  foreach(library IN ITEMS torch_cpu c10)
    if(NOT EXISTS ${folder}/lib/lib${library}.so)
      set(version 0)
    endif()
  endforeach()
  set(${variable} ${version} PARENT_SCOPE)
endfunction()

# tutti_python_torch(variable): the folder of the PyTorch that python3 would import, or nothing.
function(tutti_python_torch variable)
  set(found "")
  find_package(Python3 COMPONENTS Interpreter QUIET)
  if(Python3_FOUND)
    # Not imported: that takes seconds, and more libraries than C++ needs.
    execute_process(
      COMMAND ${Python3_EXECUTABLE} -c
              "import importlib.util as u; s = u.find_spec('torch'); print(s.submodule_search_locations[0] if s else '')"
      OUTPUT_VARIABLE found OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  endif()
  set(${variable} "${found}" PARENT_SCOPE)
endfunction()

# tutti_use_torch(target folder): links `target`, an interface library, with what is there.
function(tutti_use_torch target folder)
  set_property(TARGET ${target} APPEND PROPERTY INTERFACE_SYSTEM_INCLUDE_DIRECTORIES
    ${folder}/include ${folder}/include/torch/csrc/api/include)
  set_property(TARGET ${target} APPEND PROPERTY INTERFACE_INCLUDE_DIRECTORIES
    ${folder}/include ${folder}/include/torch/csrc/api/include)
  set_property(TARGET ${target} APPEND PROPERTY INTERFACE_LINK_LIBRARIES
    ${folder}/lib/libtorch_cpu.so ${folder}/lib/libc10.so)
  # libtorch_cpu.so finds what it needs by its own path; so does the linker, when told.
  set_property(TARGET ${target} APPEND PROPERTY INTERFACE_LINK_OPTIONS
    -Wl,-rpath-link,${folder}/../nvidia/cu13/lib)
endfunction()

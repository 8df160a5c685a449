# CUDA: where there is nvcc, unless TUTTI_CUDA is OFF, the modules are compiled that the library opens
# at the first memory of a GPU (modules.cmake). They contain CUDA's runtime, which finds the driver by
# itself. Nothing else needs anything of CUDA.
#
# tutti_cuda(target sources...): adds kernels to a target.
# tutti_cuda_headers(target sources...): C++ sources of a target that include the toolkit's headers.
set(TUTTI_CUDA AUTO CACHE STRING "The modules for GPUs: ON, OFF, or AUTO (on where nvcc is found)")
set_property(CACHE TUTTI_CUDA PROPERTY STRINGS AUTO ON OFF)
# One alone takes a third of the time of three. Packages name three (pyproject.toml).
set(TUTTI_CUDA_ARCHITECTURES AUTO CACHE STRING
    "GPU architectures to compile for, as CMAKE_CUDA_ARCHITECTURES takes them, or AUTO: this machine's GPU, else 90")

set(TUTTI_HAS_CUDA OFF)
set(TUTTI_CUDA_STATE "off (TUTTI_CUDA)")
if(TUTTI_CUDA STREQUAL AUTO AND TUTTI_SANITIZE)
  set(TUTTI_CUDA_STATE "off (sanitizers)")
elseif(TUTTI_CUDA)
  # nvcc is often installed beside the PATH.
  if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
    find_program(TUTTI_NVCC nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda PATH_SUFFIXES bin)
    mark_as_advanced(TUTTI_NVCC)
    if(TUTTI_NVCC)
      set(CMAKE_CUDA_COMPILER ${TUTTI_NVCC})
    endif()
  endif()
  set(CMAKE_CUDA_ARCHITECTURES ${TUTTI_CUDA_ARCHITECTURES})
  if(TUTTI_CUDA_ARCHITECTURES STREQUAL AUTO)
    set(CMAKE_CUDA_ARCHITECTURES 90)
  endif()
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    enable_language(CUDA)
    find_package(CUDAToolkit 12 REQUIRED)
    set(TUTTI_HAS_CUDA ON)
    if(TUTTI_CUDA_ARCHITECTURES STREQUAL AUTO)
      execute_process(COMMAND ${CUDAToolkit_BIN_DIR}/__nvcc_device_query RESULT_VARIABLE result
                      OUTPUT_VARIABLE here ERROR_QUIET)
      if(result EQUAL 0 AND here MATCHES "^[0-9]+")
        set(CMAKE_CUDA_ARCHITECTURES ${CMAKE_MATCH_0})
      endif()
    endif()
    list(JOIN CMAKE_CUDA_ARCHITECTURES ", " state)
    set(TUTTI_CUDA_STATE "CUDA ${CUDAToolkit_VERSION}, for ${state}")
  elseif(TUTTI_CUDA STREQUAL AUTO)
    set(TUTTI_CUDA_STATE "off (no nvcc was found)")
  else()
    message(FATAL_ERROR "TUTTI_CUDA is ON, but no CUDA compiler was found (CUDACXX, CUDA_HOME)")
  endif()
endif()

# A library of its own, because flags of the two compilers do not mix.
function(tutti_cuda target)
  add_library(${target}_kernels OBJECT ${ARGN})
  set_target_properties(${target}_kernels PROPERTIES
    POSITION_INDEPENDENT_CODE ON CUDA_ARCHITECTURES "${CMAKE_CUDA_ARCHITECTURES}")
  target_include_directories(${target}_kernels PRIVATE ${PROJECT_SOURCE_DIR})
  # The language as a flag: CMake 3.25 does not know it of nvcc 13.
  # No fused multiply-add, as on the host (cmake/options.cmake): a * b + c is two roundings.
  target_compile_options(${target}_kernels PRIVATE
    -std=c++20 --expt-relaxed-constexpr -fmad=false -Xcompiler=-Wall,-Wextra)
  if(TUTTI_WERROR)
    target_compile_options(${target}_kernels PRIVATE -Werror=all-warnings -Xcompiler=-Werror)
  endif()
  target_sources(${target} PRIVATE $<TARGET_OBJECTS:${target}_kernels>)
endfunction()

function(tutti_cuda_headers target)
  set_source_files_properties(${ARGN} TARGET_DIRECTORY ${target} PROPERTIES
    COMPILE_OPTIONS "-isystem;${CUDAToolkit_INCLUDE_DIRS}")
endfunction()

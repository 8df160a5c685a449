# Installs the library alone into a stage, copies the engines to where nothing of the library lies
# beside them, and builds them there (cmake/engines). A few of their files, which have what is special
# in their includes; or, with ALL, everything, which is then installed into the same stage, and used.
# Called by ctest with BUILD, ROOT, GENERATOR, CXX, FLAGS; for ALL with TORCH (a folder, or OFF) and CUDA.
cmake_minimum_required(VERSION 3.25)
set(work ${BUILD}/engines)
if(ALL)
  string(APPEND work "_all")
endif()
set(stage ${work}/stage)
file(REMOVE_RECURSE ${work})

function(run)
  execute_process(COMMAND ${ARGV} COMMAND_ECHO STDOUT COMMAND_ERROR_IS_FATAL ANY)
endfunction()

run(${CMAKE_COMMAND} --install ${BUILD} --component library --prefix ${stage})
file(GLOB_RECURSE engines RELATIVE ${stage} ${stage}/*parallel*)
if(engines)
  message(FATAL_ERROR "installed with the library, without being part of it: ${engines}")
endif()

foreach(part IN ITEMS cmake parallel bindings/torch bindings/nccl/nccl.h bench/nccl tools/command_line/usage_error.h
                      examples/train)
  cmake_path(GET part PARENT_PATH folder)
  file(COPY ${ROOT}/${part} DESTINATION ${work}/tree/${folder})
endforeach()

set(configure ${CMAKE_COMMAND} -G ${GENERATOR} -DCMAKE_CXX_COMPILER=${CXX} -DCMAKE_CXX_FLAGS=${FLAGS}
    -DCMAKE_PREFIX_PATH=${stage})
set(engines ${configure} -S ${work}/tree/cmake/engines -B ${work}/build -DTUTTI_WERROR=ON)
if(NOT ALL)
  run(${engines} -DCMAKE_BUILD_TYPE=Debug -DTUTTI_PCH=OFF -DTUTTI_UNITY=OFF -DTUTTI_TORCH=OFF
      -DTUTTI_CUDA=OFF)
  set(objects axis gpu throttled_axis memory_pool checkpoint/new_file optimizer/kernels pipeline/text
              pipeline/timeline)
  list(TRANSFORM objects REPLACE "(.+)" "parallel/CMakeFiles/tutti_parallel.dir/\\1.cpp.o")
  run(${CMAKE_COMMAND} --build ${work}/build --parallel 2 --target ${objects})
  return()
endif()

run(${engines} -DTUTTI_TORCH=${TORCH} -DTUTTI_CUDA=${CUDA})
run(${CMAKE_COMMAND} --build ${work}/build --parallel 2)
run(${CMAKE_COMMAND} --install ${work}/build --prefix ${stage})
run(${configure} -S ${ROOT}/tests/install/consumer -B ${work}/consumer)
run(${CMAKE_COMMAND} --build ${work}/consumer --parallel 2 --target parallel_consumer)
run(${work}/consumer/parallel_consumer)
if(TORCH)
  run(${configure} -S ${ROOT}/tests/install/consumer/torch -B ${work}/torch_consumer)
  run(${CMAKE_COMMAND} --build ${work}/torch_consumer)
  set(ENV{OMP_NUM_THREADS} 1)
  run(${BUILD}/bin/tutti run -n 2 ${work}/torch_consumer/torch_consumer)
endif()

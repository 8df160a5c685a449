# Installs the build into a stage, then builds tests/install/consumer, and the examples, against the stage, by
# find_package and by pkg-config, and runs both. Called by ctest with BUILD, SOURCE, EXAMPLES (a
# folder), GENERATOR, CC, CXX, FLAGS and LIBDIR (relative to the prefix).
cmake_minimum_required(VERSION 3.25)
set(stage ${BUILD}/stage)
file(REMOVE_RECURSE ${stage} ${BUILD}/consumer)

function(run)
  execute_process(COMMAND ${ARGV} COMMAND_ECHO STDOUT COMMAND_ERROR_IS_FATAL ANY)
endfunction()

run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${stage})
foreach(header IN ITEMS core/combine.h collectives/plan.h)
  if(EXISTS ${stage}/include/tutti/${header})
    message(FATAL_ERROR "${header} is not public, but it was installed")
  endif()
endforeach()

# Nothing lies beside the folders of a prefix, whatever else was built.
file(GLOB others RELATIVE ${stage} ${stage}/*)
list(REMOVE_ITEM others bin include lib lib64 libexec)
if(others)
  message(FATAL_ERROR "installed into the root of the prefix: ${others}")
endif()

run(${CMAKE_COMMAND} -S ${SOURCE} -B ${BUILD}/consumer -G ${GENERATOR}
    -DCMAKE_C_COMPILER=${CC} -DCMAKE_C_FLAGS=${FLAGS} -DCMAKE_CXX_COMPILER=${CXX} -DCMAKE_CXX_FLAGS=${FLAGS} -DCMAKE_PREFIX_PATH=${stage}
    -DEXAMPLES=${EXAMPLES})
run(${CMAKE_COMMAND} --build ${BUILD}/consumer --parallel 2)
run(${BUILD}/consumer/consumer)
run(${BUILD}/consumer/c_consumer)
run(${BUILD}/consumer/parallel_consumer)
if(EXISTS ${BUILD}/consumer/nccl_consumer)
  run(${BUILD}/consumer/nccl_consumer)
endif()

set(packages tutti tutti_parallel)
set(mains main parallel_main)
set(ENV{PKG_CONFIG_PATH} ${stage}/${LIBDIR}/pkgconfig)
separate_arguments(FLAGS UNIX_COMMAND "${FLAGS}")
foreach(package main IN ZIP_LISTS packages mains)
  execute_process(COMMAND pkg-config --cflags --libs ${package} OUTPUT_VARIABLE from_pkg_config
                  OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  separate_arguments(from_pkg_config UNIX_COMMAND "${from_pkg_config}")
  run(${CXX} -std=c++20 ${FLAGS} ${SOURCE}/${main}.cpp -o ${BUILD}/consumer/${package}_by_pkg_config
      ${from_pkg_config} -Wl,-rpath,${stage}/${LIBDIR})
  run(${BUILD}/consumer/${package}_by_pkg_config)
endforeach()
execute_process(COMMAND pkg-config --cflags --libs tutti_c OUTPUT_VARIABLE from_pkg_config
                OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
separate_arguments(from_pkg_config UNIX_COMMAND "${from_pkg_config}")
run(${CC} -std=c11 ${FLAGS} ${SOURCE}/c_main.c -o ${BUILD}/consumer/tutti_c_by_pkg_config ${from_pkg_config}
    -Wl,-rpath,${stage}/${LIBDIR})
run(${BUILD}/consumer/tutti_c_by_pkg_config)
run(${stage}/bin/tutti version)

# The commands find their programs, and those the library, wherever the tree lies.
file(REMOVE_RECURSE ${BUILD}/moved)
file(RENAME ${stage} ${BUILD}/moved)
run(env -u LD_LIBRARY_PATH ${BUILD}/moved/bin/tutti plan verify all_reduce --algorithm ring --ranks 3)
run(env -u LD_LIBRARY_PATH ${BUILD}/moved/bin/tutti run -n 2 ${BUILD}/moved/bin/tutti settings)
file(RENAME ${BUILD}/moved ${stage})

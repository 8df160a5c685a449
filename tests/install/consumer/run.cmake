# Installs the build into a stage, then builds tests/install/consumer against the stage, by find_package
# and by pkg-config, and runs both. Called by ctest with BUILD, SOURCE, GENERATOR, CXX, FLAGS
# and LIBDIR (relative to the prefix).
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

run(${CMAKE_COMMAND} -S ${SOURCE} -B ${BUILD}/consumer -G ${GENERATOR}
    -DCMAKE_CXX_COMPILER=${CXX} -DCMAKE_CXX_FLAGS=${FLAGS} -DCMAKE_PREFIX_PATH=${stage})
run(${CMAKE_COMMAND} --build ${BUILD}/consumer)
run(${BUILD}/consumer/consumer)
run(${BUILD}/consumer/parallel_consumer)
if(EXISTS ${BUILD}/consumer/nccl_consumer)
  run(${BUILD}/consumer/nccl_consumer)
endif()

set(ENV{PKG_CONFIG_PATH} ${stage}/${LIBDIR}/pkgconfig)
execute_process(COMMAND pkg-config --cflags --libs tutti OUTPUT_VARIABLE from_pkg_config
                OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
separate_arguments(from_pkg_config UNIX_COMMAND "${from_pkg_config}")
separate_arguments(FLAGS UNIX_COMMAND "${FLAGS}")
run(${CXX} -std=c++20 ${FLAGS} ${SOURCE}/main.cpp -o ${BUILD}/consumer/by_pkg_config
    ${from_pkg_config} -Wl,-rpath,${stage}/${LIBDIR})
run(${BUILD}/consumer/by_pkg_config)
run(${stage}/bin/tutti version)

# Installs the build into a stage, builds tests/install/consumer/torch against it, and runs that on two ranks.
# Called by ctest with BUILD, SOURCE, GENERATOR, CXX and FLAGS.
cmake_minimum_required(VERSION 3.25)
set(stage ${BUILD}/stage_torch)
set(consumer ${BUILD}/torch_consumer)
file(REMOVE_RECURSE ${stage} ${consumer})

function(run)
  execute_process(COMMAND ${ARGV} COMMAND_ECHO STDOUT COMMAND_ERROR_IS_FATAL ANY)
endfunction()

run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${stage})
set(configure ${CMAKE_COMMAND} -S ${SOURCE} -G ${GENERATOR} -DCMAKE_CXX_COMPILER=${CXX}
    -DCMAKE_CXX_FLAGS=${FLAGS} -DCMAKE_PREFIX_PATH=${stage})
run(${configure} -B ${consumer})
run(${CMAKE_COMMAND} --build ${consumer})
set(ENV{OMP_NUM_THREADS} 1)
run(${stage}/bin/tutti run -n 2 ${consumer}/torch_consumer)

# A PyTorch that is another one, or none, is named.
execute_process(COMMAND ${configure} -B ${consumer}/without -DTUTTI_TORCH=/nowhere
                RESULT_VARIABLE code OUTPUT_QUIET ERROR_VARIABLE said)
string(REGEX REPLACE "[ \n]+" " " said "${said}")
if(code EQUAL 0 OR NOT said MATCHES "was built for PyTorch [0-9.]+, which \"/nowhere\" is not")
  message(FATAL_ERROR "with a PyTorch that is not there, find_package said: ${said}")
endif()

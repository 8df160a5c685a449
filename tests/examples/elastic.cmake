# examples/elastic.cpp, whose ranks die at random: the job ends well, and the loss has fallen. Run by
# ctest.
foreach(again RANGE 2)
  execute_process(COMMAND ${TUTTI} run --elastic 2:4 --timeout 60 ${ELASTIC} 200 --kill-every 100
                  OUTPUT_VARIABLE output ERROR_VARIABLE report
                  COMMAND_ECHO STDOUT COMMAND_ERROR_IS_FATAL ANY)
  if(NOT output MATCHES "ranks go on from step 0\n" OR
     NOT output MATCHES "step 1[68]0 on [1-4] ranks: loss [0-9][0-9]?[.]")
    message(FATAL_ERROR "no training:\n${output}${report}")
  endif()
endforeach()

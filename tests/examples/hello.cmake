# examples/hello.cpp on three ranks says what it should. Run by ctest.
execute_process(COMMAND ${TUTTI} run -n 3 ${HELLO} OUTPUT_VARIABLE output
                COMMAND_ECHO STDOUT COMMAND_ERROR_IS_FATAL ANY)
foreach(rank RANGE 2)
  if(NOT output MATCHES "rank ${rank} of 3: the sum is 6\n")
    message(FATAL_ERROR "rank ${rank} did not print its sum:\n${output}")
  endif()
endforeach()

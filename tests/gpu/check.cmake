# gpu-check where there is no GPU: one line that says so, exit status 77. Run by ctest.
execute_process(COMMAND ${CMAKE_COMMAND} -E env CUDA_VISIBLE_DEVICES= ${PYTHON} ${CHECK} --root ${BUILD}
                OUTPUT_VARIABLE output ERROR_VARIABLE output RESULT_VARIABLE status)
if(NOT status EQUAL 77)
  message(FATAL_ERROR "gpu-check ended with ${status}, not 77:\n${output}")
endif()
if(NOT output MATCHES "^gpu-check: no CUDA device[^\n]*\n$")
  message(FATAL_ERROR "gpu-check did not say in one line that there is no GPU:\n${output}")
endif()

# A program that is compiled as older C++, as compilers do by default, or without exceptions, hears
# what is missing in one error. Run by ctest.
function(expect_error flags text)
  execute_process(COMMAND ${COMPILER} ${flags} -fsyntax-only -x c++ ${ROOT}/tutti.h -I ${ROOT}
                  RESULT_VARIABLE result ERROR_VARIABLE errors)
  string(REGEX MATCHALL "error:" count "${errors}")
  list(LENGTH count count)
  if(result EQUAL 0 OR NOT count EQUAL 1 OR NOT errors MATCHES "${text}")
    message(FATAL_ERROR "${flags}: expected one error, \"${text}\", found ${count}:\n${errors}")
  endif()
endfunction()

expect_error("-std=c++17" "Tutti needs C[+][+]20")
expect_error("-std=c++20;-fno-exceptions" "compile without -fno-exceptions")

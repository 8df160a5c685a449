# How tests are declared. A test's file, its program and its name in ctest are one word: `ctest -R
# chaos_test` runs build/tests/chaos_test, whose source is tests/transport/chaos_test.cpp.
#
#     tutti_test(NAME [sources...] [LINK library...] [ARGS argument...] [property...])
#         A GoogleTest program of NAME.cpp and the other sources, and a test that runs it.
#     tutti_test_program(NAME [sources...] [LINK library...])
#         A program that tests start, of NAME.cpp and the other sources.
#     tutti_add_test(NAME COMMAND program [argument...] [RANKS n [PER_HOST n] [KEEP_GOING]]
#                    [PASS regex] [property...])
#         A test that runs a program. RANKS: `tutti run` starts it n times. PER_HOST: so many of the
#         ranks believe that they share a host. PASS: the test passes if it prints this.
#
# Properties: LABELS label..., TIMEOUT seconds (120 unless given; sanitizers get five times as long),
# SERIAL (nothing else runs beside it), ENVIRONMENT variable=value...
#
# Labels: `long` (make test-long), `torch` (make test-torch) and `rdma` (make test-rdma) are not part
# of `make test`; `processes`, `network` and `gpu` say what a test needs.
find_package(GTest 1.12 REQUIRED)

set(TUTTI_TESTS ${PROJECT_SOURCE_DIR}/tests)

# The library is compiled as users have it. The tests are compiled with -Og, which takes a quarter less
# time than -O1; -O0 takes longer than both, as nothing of the headers' small functions is removed.
function(tutti_test_options target)
  tutti_options(${target})
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-Og>)
endfunction()

# tutti_test_library(NAME sources... [LINK library...]): what several tests share, compiled once. With
# -O1, as among them are the loops that tests spend their time in.
function(tutti_test_library name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "LINK")
  add_library(${name} STATIC ${arg_UNPARSED_ARGUMENTS})
  tutti_options(${name})
  target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-O1>)
  target_link_libraries(${name} PUBLIC tutti fmt::fmt ${arg_LINK})
endfunction()

function(tutti_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "SERIAL" "TIMEOUT" "LABELS;LINK;ARGS;ENVIRONMENT")
  add_executable(${name} ${name}.cpp ${arg_UNPARSED_ARGUMENTS})
  tutti_test_options(${name})
  target_link_libraries(${name} PRIVATE tutti fmt::fmt GTest::gtest GTest::gtest_main ${arg_LINK})
  tutti_precompile(${name} test <random> <fmt/ranges.h> <gtest/gtest.h>)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  add_test(NAME ${name} COMMAND ${name} --gtest_brief=1 ${arg_ARGS})
  tutti_test_properties(${name} TIMEOUT "${arg_TIMEOUT}" LABELS ${arg_LABELS} SERIAL ${arg_SERIAL}
                        ENVIRONMENT ${arg_ENVIRONMENT})
endfunction()

function(tutti_test_program name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "LINK")
  add_executable(${name} ${name}.cpp ${arg_UNPARSED_ARGUMENTS})
  tutti_test_options(${name})
  target_link_libraries(${name} PRIVATE tutti tutti_perf fmt::fmt CLI11::CLI11 ${arg_LINK})
  tutti_precompile(${name} program)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
endfunction()

function(tutti_add_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "SERIAL;KEEP_GOING" "RANKS;PER_HOST;TIMEOUT;PASS"
                        "COMMAND;LABELS;ENVIRONMENT")
  set(command ${arg_COMMAND})
  list(POP_FRONT command program)
  if(TARGET ${program})
    set(program $<TARGET_FILE:${program}>)
  endif()
  list(PREPEND command ${program})
  if(arg_PER_HOST)
    list(PREPEND command ${TUTTI_TESTS}/support/on_hosts.sh ${arg_PER_HOST})
  endif()
  if(arg_RANKS)
    set(run $<TARGET_FILE:tutti_command> run -n ${arg_RANKS})
    if(arg_KEEP_GOING)
      list(APPEND run --keep-going)
    endif()
    list(PREPEND command ${run} --)
  endif()
  add_test(NAME ${name} COMMAND ${command})
  tutti_test_properties(${name} TIMEOUT "${arg_TIMEOUT}" LABELS ${arg_LABELS} SERIAL ${arg_SERIAL}
                        ENVIRONMENT ${arg_ENVIRONMENT})
  if(arg_PASS)
    set_tests_properties(${name} PROPERTIES PASS_REGULAR_EXPRESSION "${arg_PASS}")
  endif()
endfunction()

function(tutti_test_properties name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "TIMEOUT;SERIAL" "LABELS;ENVIRONMENT")
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  if(TUTTI_SANITIZE)
    math(EXPR arg_TIMEOUT "${arg_TIMEOUT} * 5")
  endif()
  set_tests_properties(${name} PROPERTIES TIMEOUT ${arg_TIMEOUT} LABELS "${arg_LABELS}")
  if(arg_SERIAL)
    set_tests_properties(${name} PROPERTIES RUN_SERIAL ON)
  endif()
  if(arg_ENVIRONMENT)
    set_tests_properties(${name} PROPERTIES ENVIRONMENT "${arg_ENVIRONMENT}")
  endif()
endfunction()

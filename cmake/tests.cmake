# How tests are declared. A test's file, its program and its name in ctest are one word: `ctest -R
# chaos_test` runs build/tests/chaos_test, whose source is tests/transport/chaos_test.cpp. Most files of a
# room share one GoogleTest program, ROOM_tests, as that compiles and links much faster; build/tests/NAME
# is a link to it, under which it runs the cases of NAME.cpp alone (support/main.cpp). Each has a process
# of its own, and `ctest -R tests.complete` says whether every case is run by some test (cases.py).
#
#     tutti_tests(ROOM [LINK library...])
#         The program of a room: of the tests that are declared after it, here and in folders below.
#     tutti_test(NAME [sources...] [ALONE] [LINK library...] [STARTS target...]
#                [ARGS argument...] [property...])
#         A test of the cases in NAME.cpp, which needs the other sources. ALONE: it is not part of the
#         room's program, as it replaces what a library has, or has a main() of its own. STARTS:
#         programs, or libraries, which are built as well; MATRIX_RANK is the path of matrix_rank in C++.
#     tutti_test_program(NAME [sources...] [LINK library...])
#         A program that tests start, of NAME.cpp and the other sources.
#     tutti_add_test(NAME COMMAND program [argument...] [RANKS n [PER_HOST n] [KEEP_GOING]]
#                    [PASS regex] [property...])
#         A test that runs a program, or another test with other arguments. RANKS: `tutti run` starts it
#         n times. PER_HOST: so many of the ranks believe that they share a host. PASS: the test passes
#         if it prints this.
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
  tutti_unity(${name})
endfunction()

# The main() of the rooms' programs, which owns the precompiled header of all tests: they may define more
# than it does, and not less, or the compiler would parse the headers for each file; so it warns of that.
add_library(tutti_test_main STATIC ${TUTTI_TESTS}/support/main.cpp)
tutti_test_options(tutti_test_main)
set_target_properties(tutti_test_main PROPERTIES POSITION_INDEPENDENT_CODE OFF)
target_compile_options(tutti_test_main PRIVATE -fPIE)  # as programs are compiled
target_link_libraries(tutti_test_main PRIVATE fmt::fmt GTest::gtest)
tutti_precompile(tutti_test_main test <random> <fmt/ranges.h> <gtest/gtest.h>)

function(tutti_test_target program)
  tutti_test_options(${program})
  target_link_libraries(${program} PRIVATE fmt::fmt GTest::gtest)
  tutti_precompile(${program} test)
  set_target_properties(${program} PROPERTIES PCH_WARN_INVALID ON
                                              RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  set_property(GLOBAL APPEND PROPERTY TUTTI_TEST_PROGRAMS ${program})
endfunction()

function(tutti_tests room)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "LINK")
  set(program ${room}_tests)
  add_executable(${program})
  tutti_test_target(${program})
  target_link_libraries(${program} PRIVATE tutti_test_main ${arg_LINK})
  tutti_wants(${TUTTI_UNITY} unity)
  set_target_properties(${program} PROPERTIES UNITY_BUILD ${unity} UNITY_BUILD_BATCH_SIZE 6)
  set(TUTTI_TESTS_PROGRAM ${program} PARENT_SCOPE)
  set(TUTTI_TESTS_LINK ${arg_LINK} PARENT_SCOPE)
  # When all of its tests have been declared.
  cmake_language(EVAL CODE "cmake_language(DEFER CALL tutti_test_links ${program})")
endfunction()

# tutti_test_links(program): its names.
function(tutti_test_links program)
  get_target_property(names ${program} TUTTI_TEST_NAMES)
  list(TRANSFORM names PREPEND ${PROJECT_BINARY_DIR}/tests/ OUTPUT_VARIABLE links)
  add_custom_command(TARGET ${program} POST_BUILD
    COMMAND sh -c "for name in \"$@\"; do ln -sf ${program} \"$name\" || exit; done" sh ${names}
    BYPRODUCTS ${links} WORKING_DIRECTORY ${PROJECT_BINARY_DIR}/tests VERBATIM)
endfunction()

function(tutti_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "ALONE;SERIAL" "TIMEOUT"
                        "LINK;STARTS;LABELS;ARGS;ENVIRONMENT")
  if(arg_ALONE)
    set(program ${name})
    add_executable(${program})
    tutti_test_target(${program})
    target_link_libraries(${program} PRIVATE GTest::gtest_main ${TUTTI_TESTS_LINK})
  else()
    set(program ${TUTTI_TESTS_PROGRAM})
    set_property(TARGET ${program} APPEND PROPERTY TUTTI_TEST_NAMES ${name})
    add_custom_target(${name} DEPENDS ${program})
  endif()
  target_sources(${program} PRIVATE ${name}.cpp ${arg_UNPARSED_ARGUMENTS})
  target_link_libraries(${program} PRIVATE ${arg_LINK})
  foreach(started IN LISTS arg_STARTS)
    string(TOUPPER ${started} definition)
    target_compile_definitions(${program} PRIVATE ${definition}="$<TARGET_FILE:${started}>")
    add_dependencies(${program} ${started})
  endforeach()
  add_test(NAME ${name} COMMAND ${PROJECT_BINARY_DIR}/tests/${name} --gtest_brief=1 ${arg_ARGS})
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
    get_target_property(type ${program} TYPE)
    if(type STREQUAL "UTILITY")  # a test of a room
      set(program ${PROJECT_BINARY_DIR}/tests/${program})
    else()
      set(program $<TARGET_FILE:${program}>)
    endif()
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

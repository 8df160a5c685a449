# The example in the README is examples/hello.cpp, which is compiled and run; and `make demo`, which
# the README names first, and the line before it build all that the first program needs. Run by ctest.
file(READ ${README} readme)
file(READ ${EXAMPLE} example)
string(FIND "${readme}" "```cpp\n${example}```\n" at)
if(at EQUAL -1)
  message(FATAL_ERROR "README.md does not contain examples/hello.cpp as it is")
endif()

# "$ build/bin/tutti run -n 4 build/examples/hello"
string(REGEX MATCH "\\$ build/bin/tutti run -n [0-9]+ build/examples/([a-z_]+)\n" command "${readme}")
set(program "${CMAKE_MATCH_1}")
if(NOT command)
  message(FATAL_ERROR "README.md does not start its first program by 'build/bin/tutti run'")
endif()
file(READ ${MAKEFILE} makefile)
string(REGEX MATCH "\ndemo:[^#]*" demo "${makefile}")
if(NOT demo MATCHES "--target[^\n]* tutti_command ")
  message(FATAL_ERROR "`make demo` does not build tutti_command, which README.md then runs")
endif()
if(NOT readme MATCHES "\\$ ninja -C build ${program}\n +\\$ build/bin/tutti run")
  message(FATAL_ERROR "README.md does not build ${program} before it runs it")
endif()

# The example in the README is examples/hello.cpp, which is compiled and run. Run by ctest.
file(READ ${README} readme)
file(READ ${EXAMPLE} example)
string(FIND "${readme}" "```cpp\n${example}```\n" at)
if(at EQUAL -1)
  message(FATAL_ERROR "README.md does not contain examples/hello.cpp as it is")
endif()

// The stacks of a process's threads, by a debugger that is installed here: py-spy for Python (with
// the C++ below it), else eu-stack or gdb.
#pragma once

#include <string>

namespace tutti::top {

/// For people. Where nothing can show the stack, the text says what to install, or to allow.
std::string stack_of(int pid);

}  // namespace tutti::top

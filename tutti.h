// Everything a program needs: communicators, and memory that the collectives move fastest.
#pragma once

// One line instead of what an older language makes of the headers.
#if __cplusplus < 202002L
#error "Tutti needs C++20: compile with -std=c++20, or link with tutti::tutti in CMake"
#elif !defined(__cpp_exceptions)
#error "Tutti reports errors as exceptions: compile without -fno-exceptions"
#else

#include "comm/communicator.h"
#include "comm/elastic.h"
#include "comm/window.h"
#include "core/memory.h"

#endif

// A library with a constructor that registers handlers of fork(), which allocate large blocks,
// before the program has done anything, as libraries do that have threads of their own.
#include <pthread.h>

#include <atomic>
#include <cstdlib>

namespace {

std::atomic<int> ran{0};

void allocate() {
  constexpr std::size_t kBytes = std::size_t{1} << 20;
  void* volatile block = std::malloc(kBytes);  // the compiler would leave it out
  std::free(block);
  ran.fetch_add(1);
}

[[maybe_unused]] const int registered = pthread_atfork(allocate, allocate, allocate);

}  // namespace

/// How many handlers have run in this process and, before it was forked, in its parent.
extern "C" int windows_fork_handlers_ran() { return ran.load(); }

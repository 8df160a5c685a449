#include "process.h"

#include <pthread.h>
#include <unistd.h>

#include <atomic>

namespace tutti::pytorch {
namespace {

std::atomic<pid_t> number_of_process = [] {
  pthread_atfork(nullptr, nullptr, [] { number_of_process = ::getpid(); });
  return ::getpid();
}();

}  // namespace

pid_t process_id() { return number_of_process.load(std::memory_order_relaxed); }

}  // namespace tutti::pytorch

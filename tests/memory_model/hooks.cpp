// What the code under test calls: the functions of ThreadSanitizer's interface, which the compiler
// puts in for each access of memory (-fsanitize=thread), and those of the system that wait or wake,
// which the linker leads here (--wrap). Outside of a program of the explorer they do what the
// machine does. This file itself is compiled without.
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdarg>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <new>
#include <unordered_map>
#include <utility>

#include "tests/memory_model/explorer.h"
#include "tests/memory_model/sites.h"
#include "tests/memory_model/thread.h"

namespace model = tutti::model;
using model::Kind;

namespace {

std::memory_order order_from(int order) { return static_cast<std::memory_order>(order); }

template <class T>
std::uintptr_t address(const volatile T* at) {
  return reinterpret_cast<std::uintptr_t>(at);
}

template <class T>
T load(const volatile T* at, int order, void* call) {
  if (!model::runs()) return __atomic_load_n(at, __ATOMIC_SEQ_CST);
  const auto o = model::order_of(address(static_cast<char*>(call)), Kind::load, order_from(order));
  model::may_switch("load", address(at));
  return static_cast<T>(model::memory().load(model::this_thread(), address(at), sizeof(T), o));
}

template <class T>
void store(volatile T* at, T value, int order, void* call) {
  if (!model::runs()) return __atomic_store_n(at, value, __ATOMIC_SEQ_CST);
  const auto o = model::order_of(address(static_cast<char*>(call)), Kind::store, order_from(order));
  model::may_switch("store", address(at));
  model::memory().store(model::this_thread(), address(at), sizeof(T), value, o);
}

template <class T, class Change>
T modify(volatile T* at, int order, void* call, Change change) {
  if (!model::runs()) {
    T found = __atomic_load_n(at, __ATOMIC_SEQ_CST);
    while (!__atomic_compare_exchange_n(at, &found, change(found), false, __ATOMIC_SEQ_CST,
                                        __ATOMIC_SEQ_CST)) {
    }
    return found;
  }
  const auto o =
      model::order_of(address(static_cast<char*>(call)), Kind::modify, order_from(order));
  model::may_switch("exchange", address(at));
  return static_cast<T>(
      model::memory().modify(model::this_thread(), address(at), sizeof(T), o,
                             [&](std::uint64_t found) { return change(static_cast<T>(found)); }));
}

template <class T>
int compare(volatile T* at, T* expected, T value, int order, int otherwise, bool weak, void* call) {
  if (!model::runs()) {
    return __atomic_compare_exchange_n(at, expected, value, false, __ATOMIC_SEQ_CST,
                                       __ATOMIC_SEQ_CST);
  }
  const auto o =
      model::order_of(address(static_cast<char*>(call)), Kind::modify, order_from(order));
  // A mutant's failure is as weak as its success.
  const auto f = o == order_from(order) ? order_from(otherwise) : std::memory_order_relaxed;
  model::may_switch(weak ? "weak compare-exchange" : "compare-exchange", address(at));
  std::uint64_t found = *expected;
  const bool stored = model::memory().exchange(model::this_thread(), address(at), sizeof(T), found,
                                               value, o, f, weak);
  *expected = static_cast<T>(found);
  return stored ? 1 : 0;
}

const robust_list_head* robust = nullptr;

void plain(std::uintptr_t at, std::size_t bytes, bool writes) {
  if (model::runs()) model::memory().plain(model::this_thread(), at, bytes, writes);
}

}  // namespace

const robust_list_head* tutti::model::held_list() { return robust; }

#define CALL __builtin_return_address(0)
#define WORD(bits, T)                                                                              \
  T __tsan_atomic##bits##_load(const volatile T* at, int order) { return load(at, order, CALL); }  \
  void __tsan_atomic##bits##_store(volatile T* at, T value, int order) {                           \
    store(at, value, order, CALL);                                                                 \
  }                                                                                                \
  T __tsan_atomic##bits##_exchange(volatile T* at, T value, int order) {                           \
    return modify(at, order, CALL, [&](T) { return value; });                                      \
  }                                                                                                \
  T __tsan_atomic##bits##_fetch_add(volatile T* at, T value, int order) {                          \
    return modify(at, order, CALL, [&](T v) { return static_cast<T>(v + value); });                \
  }                                                                                                \
  T __tsan_atomic##bits##_fetch_sub(volatile T* at, T value, int order) {                          \
    return modify(at, order, CALL, [&](T v) { return static_cast<T>(v - value); });                \
  }                                                                                                \
  T __tsan_atomic##bits##_fetch_and(volatile T* at, T value, int order) {                          \
    return modify(at, order, CALL, [&](T v) { return static_cast<T>(v & value); });                \
  }                                                                                                \
  T __tsan_atomic##bits##_fetch_or(volatile T* at, T value, int order) {                           \
    return modify(at, order, CALL, [&](T v) { return static_cast<T>(v | value); });                \
  }                                                                                                \
  T __tsan_atomic##bits##_fetch_xor(volatile T* at, T value, int order) {                          \
    return modify(at, order, CALL, [&](T v) { return static_cast<T>(v ^ value); });                \
  }                                                                                                \
  int __tsan_atomic##bits##_compare_exchange_strong(volatile T* at, T* expected, T value,          \
                                                    int order, int otherwise) {                    \
    return compare(at, expected, value, order, otherwise, false, CALL);                            \
  }                                                                                                \
  int __tsan_atomic##bits##_compare_exchange_weak(volatile T* at, T* expected, T value, int order, \
                                                  int otherwise) {                                 \
    return compare(at, expected, value, order, otherwise, true, CALL);                             \
  }
#define PLAIN(bytes)                                                                          \
  void __tsan_read##bytes(void* at) { plain(address(static_cast<char*>(at)), bytes, false); } \
  void __tsan_write##bytes(void* at) { plain(address(static_cast<char*>(at)), bytes, true); } \
  void __tsan_unaligned_read##bytes(void* at) { __tsan_read##bytes(at); }                     \
  void __tsan_unaligned_write##bytes(void* at) { __tsan_write##bytes(at); }

extern "C" {
WORD(8, std::uint8_t)
WORD(16, std::uint16_t)
WORD(32, std::uint32_t)
WORD(64, std::uint64_t)
PLAIN(1)
PLAIN(2)
PLAIN(4)
PLAIN(8)
PLAIN(16)
void __tsan_read_range(void* at, std::size_t bytes) {
  plain(address(static_cast<char*>(at)), bytes, false);
}
void __tsan_write_range(void* at, std::size_t bytes) {
  plain(address(static_cast<char*>(at)), bytes, true);
}
void __tsan_vptr_update(void** at, void*) { plain(address(at), sizeof(void*), true); }
void __tsan_vptr_read(void** at) { plain(address(at), sizeof(void*), false); }
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_init() {}

void __tsan_atomic_thread_fence(int order) {
  if (!model::runs()) return __atomic_thread_fence(__ATOMIC_SEQ_CST);
  const auto o = model::order_of(address(static_cast<char*>(CALL)), Kind::fence, order_from(order));
  model::may_switch("fence", 0);
  if (o != std::memory_order_relaxed) model::memory().fence(model::this_thread(), o);
}
/// Beside membarrier(2) it is the light one of two asymmetric fences.
void __tsan_atomic_signal_fence(int order) {
  if (!model::runs()) return;
  const auto o =
      model::order_of(address(static_cast<char*>(CALL)), Kind::light_fence, order_from(order));
  model::may_switch("light fence", 0);
  if (o != std::memory_order_relaxed) model::memory().light_fence(model::this_thread());
}

// --- The system ----------------------------------------------------------------------------------

long __real_syscall(long number, ...);
long __wrap_syscall(long number, ...) {
  va_list arguments;
  va_start(arguments, number);
  std::uintptr_t a[6];
  for (std::uintptr_t& value : a) value = va_arg(arguments, std::uintptr_t);
  va_end(arguments);
  if (number == SYS_set_robust_list) robust = reinterpret_cast<const robust_list_head*>(a[0]);
  if (!model::runs()) return __real_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
  const std::size_t me = model::this_thread();
  model::Memory& memory = model::memory();
  // The kernel passes a full fence before it looks at a word, or at who sleeps.
  const auto shows = [&](std::uintptr_t at, std::uint32_t value) {
    return memory.load(me, at, sizeof value, std::memory_order_relaxed) == value;
  };
  if (number == SYS_membarrier) {
    model::may_switch("membarrier", 0);
    if (a[0] == MEMBARRIER_CMD_GLOBAL_EXPEDITED) memory.heavy_fence(me);
    return 0;
  }
  if (number == SYS_futex && (a[1] & FUTEX_CMD_MASK) == FUTEX_WAKE) {
    model::may_switch("futex wake", a[0]);
    memory.fence(me, std::memory_order_seq_cst);
    model::wake(a[0], a[2]);
    return 0;
  }
  if (number == SYS_futex && (a[1] & FUTEX_CMD_MASK) == FUTEX_WAIT) {
    model::may_switch("futex wait", a[0]);
    memory.fence(me, std::memory_order_seq_cst);
    if (!shows(a[0], static_cast<std::uint32_t>(a[2]))) return errno = EAGAIN, -1;
    if (!model::sleep_on(a[0], a[3] != 0)) return errno = ETIMEDOUT, -1;
    return 0;
  }
  return errno = ENOSYS, -1;
}

// A mutex: what its last holder knew.
namespace {
struct Lock {
  std::size_t execution = 0;
  bool held = false;
  model::View left;
};
Lock& lock_at(pthread_mutex_t* mutex) {
  static std::unordered_map<std::uintptr_t, Lock> all;
  Lock& lock = all[address(mutex)];
  if (lock.execution != model::execution()) lock = {model::execution(), false, {}};
  return lock;
}
}  // namespace

int __real_pthread_mutex_lock(pthread_mutex_t* mutex);
int __wrap_pthread_mutex_lock(pthread_mutex_t* mutex) {
  if (!model::runs()) return __real_pthread_mutex_lock(mutex);
  model::may_switch("lock", address(mutex));
  while (lock_at(mutex).held) model::sleep_on(address(mutex), false);
  Lock& lock = lock_at(mutex);
  lock.held = true;
  model::memory().acquire(model::this_thread(), lock.left);
  return 0;
}
int __real_pthread_mutex_unlock(pthread_mutex_t* mutex);
int __wrap_pthread_mutex_unlock(pthread_mutex_t* mutex) {
  if (!model::runs()) return __real_pthread_mutex_unlock(mutex);
  Lock& lock = lock_at(mutex);
  lock.held = false;
  lock.left = model::memory().release(model::this_thread());
  model::wake(address(mutex), SIZE_MAX);
  return 0;
}
int __real_pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex,
                                  clockid_t clock, const timespec* until);
int __wrap_pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex,
                                  clockid_t clock, const timespec* until) {
  if (!model::runs()) return __real_pthread_cond_clockwait(condition, mutex, clock, until);
  __wrap_pthread_mutex_unlock(mutex);
  // Where the time is over already, nobody has to have stopped for it to be.
  const std::int64_t end = std::int64_t{until->tv_sec} * 1'000'000'000 + until->tv_nsec;
  const bool woken = end > model::now() && model::sleep_on(address(condition), true);
  __wrap_pthread_mutex_lock(mutex);
  return woken ? 0 : ETIMEDOUT;
}
// std::condition_variable::wait(std::unique_lock<std::mutex>&), notify_one() and notify_all()
void __real__ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE(void* condition, void* lock);
void __wrap__ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE(void* condition, void* lock) {
  if (!model::runs()) {
    return __real__ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE(condition, lock);
  }
  auto* const mutex = *static_cast<pthread_mutex_t**>(lock);
  __wrap_pthread_mutex_unlock(mutex);
  model::sleep_on(address(static_cast<char*>(condition)), false);
  __wrap_pthread_mutex_lock(mutex);
}
void __real__ZNSt18condition_variable10notify_allEv(void* condition);
void __wrap__ZNSt18condition_variable10notify_allEv(void* condition) {
  if (!model::runs()) return __real__ZNSt18condition_variable10notify_allEv(condition);
  model::may_switch("notify", address(static_cast<char*>(condition)));
  model::wake(address(static_cast<char*>(condition)), SIZE_MAX);
}

/// A number of the thread (thread.h).
void* tutti_model_thread() {
  static char threads[model::kMostThreads + 1];
  return &threads[model::runs() ? model::this_thread() : model::kMostThreads];
}

int __real_sched_yield();
int __wrap_sched_yield() {
  if (!model::runs()) return __real_sched_yield();
  model::pause();
  return 0;
}
// tutti::pause_in_wait(std::chrono::steady_clock::time_point, std::size_t)
void __real__ZN5tutti13pause_in_waitENSt6chrono10time_pointINS0_3_V212steady_clockENS0_8durationIlSt5ratioILl1ELl1000000000EEEEEEm(
    std::int64_t since, std::size_t ranks);
void __wrap__ZN5tutti13pause_in_waitENSt6chrono10time_pointINS0_3_V212steady_clockENS0_8durationIlSt5ratioILl1ELl1000000000EEEEEEm(
    std::int64_t since, std::size_t ranks) {
  if (!model::runs())
    return __real__ZN5tutti13pause_in_waitENSt6chrono10time_pointINS0_3_V212steady_clockENS0_8durationIlSt5ratioILl1ELl1000000000EEEEEEm(
        since, ranks);
  model::pause();
}
std::int64_t __real__ZNSt6chrono3_V212steady_clock3nowEv();
std::int64_t __wrap__ZNSt6chrono3_V212steady_clock3nowEv() {
  return model::runs() ? model::now() : __real__ZNSt6chrono3_V212steady_clock3nowEv();
}

void* __real_memcpy(void* to, const void* from, std::size_t bytes);
void* __wrap_memcpy(void* to, const void* from, std::size_t bytes) {
  plain(address(static_cast<const char*>(from)), bytes, false);
  plain(address(static_cast<char*>(to)), bytes, true);
  return __real_memcpy(to, from, bytes);
}
}

// --- Memory goes back when the execution has ended, so no address has two lives in it
// --------------

namespace {
struct Freed {
  Freed* next;
};
Freed* freed = nullptr;

void give_back(void* memory) noexcept {
  if (memory != nullptr && model::runs()) {
    freed = new (memory) Freed{freed};
    return;
  }
  while (freed != nullptr) std::free(std::exchange(freed, freed->next));
  std::free(memory);
}
}  // namespace

void* operator new(std::size_t bytes) {
  void* const memory = std::malloc(bytes < sizeof(Freed) ? sizeof(Freed) : bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void operator delete(void* memory) noexcept { give_back(memory); }
void operator delete(void* memory, std::size_t) noexcept { give_back(memory); }

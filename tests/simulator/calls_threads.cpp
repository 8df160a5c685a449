// Threads, locks and futexes of the simulated system (calls.h). Locks are fair to nobody: who waits
// gets one by chance. A lock's word is its owner's number and one.
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <climits>
#include <cstdarg>
#include <cstring>
#include <unordered_map>

#include "tests/simulator/calls.h"

namespace {

using namespace tutti::simulator;

constexpr int kNoFiber = 1 << 20;  // the owner, where no world is

int own_mark() {
  const Fiber* const fiber = caller();
  return fiber == nullptr ? kNoFiber : fiber->number + 1;
}

int& owner(pthread_mutex_t* mutex) { return mutex->__data.__lock; }
bool is_recursive(const pthread_mutex_t* mutex) {
  return (mutex->__data.__kind & 3) == PTHREAD_MUTEX_RECURSIVE;
}

bool take(pthread_mutex_t* mutex) {
  const int mark = own_mark();
  if (owner(mutex) != 0 && !(owner(mutex) == mark && is_recursive(mutex))) return false;
  owner(mutex) = mark;
  ++mutex->__data.__count;
  return true;
}

void lock(pthread_mutex_t* mutex) {
  while (!take(mutex)) {
    if (caller() == nullptr) std::abort();
    world().wait_at(mutex, kNever);
  }
}

void unlock(pthread_mutex_t* mutex) {
  if (--mutex->__data.__count > 0) return;
  owner(mutex) = 0;
  if (caller() != nullptr) world().wake(mutex, 1);
}

Time time_of(const timespec& t) {
  return static_cast<Time>(t.tv_sec) * kSecond + static_cast<Time>(t.tv_nsec);
}

/// A time of one of the process's clocks, in the world's.
Time deadline_of(clockid_t clock, const timespec& at) {
  const Process& process = *caller()->process;
  const auto offset = clock == CLOCK_REALTIME ? process.wall_offset : process.clock_offset;
  const auto of_world = static_cast<std::int64_t>(time_of(at)) - offset;
  return of_world < 0 ? 0 : static_cast<Time>(of_world);
}

int wait_on(pthread_cond_t* condition, pthread_mutex_t* mutex, Time deadline) {
  const unsigned depth = mutex->__data.__count;
  mutex->__data.__count = 1;
  unlock(mutex);
  // Nobody can come in between: this thread hands over when it waits.
  const bool woken = world().wait_at(condition, deadline);
  lock(mutex);
  mutex->__data.__count = depth;
  return woken ? 0 : ETIMEDOUT;
}

Fiber* fiber_of(pthread_t thread) {
  for (const auto& fiber : world().fibers) {
    if (seat(fiber->seat).thread == thread) return fiber.get();
  }
  return nullptr;
}

long futex(std::uint32_t* word, int operation, std::uint32_t value, const timespec* time) {
  World& w = world();
  switch (operation & FUTEX_CMD_MASK) {
    case FUTEX_WAIT:
    case FUTEX_WAIT_BITSET: {
      begin_call();
      if (__atomic_load_n(word, __ATOMIC_ACQUIRE) != value) return failed(EAGAIN);
      Time deadline = kNever;
      if (time != nullptr) {
        deadline = (operation & FUTEX_CMD_MASK) == FUTEX_WAIT
                       ? w.now() + time_of(*time)
                       : deadline_of((operation & FUTEX_CLOCK_REALTIME) != 0 ? CLOCK_REALTIME
                                                                             : CLOCK_MONOTONIC,
                                     *time);
      }
      return w.wait_at(word, deadline) ? 0 : failed(ETIMEDOUT);
    }
    case FUTEX_WAKE:
    case FUTEX_WAKE_BITSET: {
      const int woken = w.wake(word, static_cast<int>(value > INT_MAX ? INT_MAX : value));
      begin_call();
      return woken;
    }
    default:
      return failed(ENOSYS);
  }
}

}  // namespace

extern "C" {

// --- threads -------------------------------------------------------------------------------------

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*start)(void*),
                   void* argument) {
  if (caller() == nullptr) return REAL(pthread_create)(thread, attributes, start, argument);
  Fiber& made = world().start_fiber(*caller()->process, start, argument);
  *thread = seat(made.seat).thread;
  begin_call();
  return 0;
}

int pthread_join(pthread_t thread, void** result) {
  if (caller() == nullptr) return REAL(pthread_join)(thread, result);
  Fiber* const other = fiber_of(thread);
  world().join(*other);
  if (result != nullptr) *result = other->result;
  return 0;
}

int pthread_detach(pthread_t thread) {
  if (caller() == nullptr) return REAL(pthread_detach)(thread);
  fiber_of(thread)->detached = true;
  return 0;
}

int pthread_setname_np(pthread_t thread, const char* name) {
  if (caller() == nullptr) return REAL(pthread_setname_np)(thread, name);
  fiber_of(thread)->name = name;
  return 0;
}

int pthread_sigmask(int how, const sigset_t* set, sigset_t* before) {
  if (caller() == nullptr) return REAL(pthread_sigmask)(how, set, before);
  if (before != nullptr) std::memset(before, 0, sizeof *before);
  return 0;
}

int __cxa_thread_atexit_impl(void (*destroy)(void*), void* object, void* library) {
  if (caller() == nullptr) {
    using Function = int (*)(void (*)(void*), void*, void*);
    static const auto real =
        reinterpret_cast<Function>(dlsym(RTLD_NEXT, "__cxa_thread_atexit_impl"));
    return real(destroy, object, library);
  }
  caller()->at_end.emplace_back(destroy, object);
  return 0;
}

int sched_yield() {
  if (caller() == nullptr) return REAL(sched_yield)();
  world().spend(kMicrosecond);
  world().let_pass();
  return 0;
}

int pause() {
  if (caller() == nullptr) return REAL(pause)();
  world().wait_at(nullptr, kNever);
  return failed(EINTR);
}

// --- locks ---------------------------------------------------------------------------------------

int pthread_mutex_lock(pthread_mutex_t* mutex) {
  if (caller() != nullptr) begin_call(20);
  lock(mutex);
  return 0;
}

int pthread_mutex_trylock(pthread_mutex_t* mutex) {
  if (caller() != nullptr) begin_call(20);
  return take(mutex) ? 0 : EBUSY;
}

int pthread_mutex_unlock(pthread_mutex_t* mutex) {
  unlock(mutex);
  if (caller() != nullptr) begin_call(20);
  return 0;
}

int pthread_cond_wait(pthread_cond_t* condition, pthread_mutex_t* mutex) {
  return wait_on(condition, mutex, kNever);
}

int pthread_cond_timedwait(pthread_cond_t* condition, pthread_mutex_t* mutex,
                           const timespec* until) {
  return wait_on(condition, mutex, deadline_of(CLOCK_REALTIME, *until));
}

int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                           const timespec* until) {
  return wait_on(condition, mutex, deadline_of(clock, *until));
}

int pthread_cond_signal(pthread_cond_t* condition) {
  if (caller() != nullptr) world().wake(condition, 1);
  return 0;
}

int pthread_cond_broadcast(pthread_cond_t* condition) {
  if (caller() != nullptr) world().wake(condition, INT_MAX);
  return 0;
}

int pthread_cond_destroy(pthread_cond_t*) { return 0; }

int pthread_once(pthread_once_t* once, void (*begin)()) {
  constexpr int kRuns = 1, kDone = 2;
  while (*once == kRuns) world().wait_at(once, kNever);
  if (*once == kDone) return 0;
  *once = kRuns;
  try {
    begin();
  } catch (...) {
    *once = 0;
    if (caller() != nullptr) world().wake(once, INT_MAX);
    throw;
  }
  *once = kDone;
  if (caller() != nullptr) world().wake(once, INT_MAX);
  return 0;
}

// --- system calls without a function -------------------------------------------------------------

long syscall(long number, ...) {
  va_list list;
  va_start(list, number);
  long a[6];
  for (long& value : a) value = va_arg(list, long);
  va_end(list);
  Fiber* const fiber = caller();
  if (fiber == nullptr) return REAL(syscall)(number, a[0], a[1], a[2], a[3], a[4], a[5]);
  switch (number) {
    case SYS_futex:
      return futex(reinterpret_cast<std::uint32_t*>(a[0]), static_cast<int>(a[1]),
                   static_cast<std::uint32_t>(a[2]), reinterpret_cast<const timespec*>(a[3]));
    case SYS_set_robust_list:
      fiber->process->robust_list = reinterpret_cast<void*>(a[0]);
      fiber->process->robust_holder = static_cast<std::uint32_t>(fiber->number + 5000);
      return 0;
    case SYS_gettid:
      return fiber->number + 5000;
    case SYS_geteuid:
      return 1000;
    case SYS_membarrier:
      return 0;
    case SYS_pidfd_open: {
      for (const auto& process : world().processes) {
        if (process->id() == a[0] && process->host == fiber->process->host && process->alive) {
          return add_file(*fiber->process, *new ProcessFile(*fiber->process, *process));
        }
      }
      return failed(ESRCH);
    }
    default:
      return failed(ENOSYS);  // as where a sandbox refuses it
  }
}

}  // extern "C"

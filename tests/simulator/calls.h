// What the functions share by which the simulated system takes the place of the real one. The
// program defines them, so the dynamic linker gives them to the library; they do what libc's do
// where no thread of the simulated world runs.
#pragma once

#include <dlfcn.h>

#include <cerrno>

#include "tests/simulator/files.h"
#include "tests/simulator/world.h"

namespace tutti::simulator {

/// The thread of the world that makes this call; null: none, the call is the real system's.
inline Fiber* caller() { return is_world() ? world().current() : nullptr; }

/// Begins a call: it takes time, and another thread may come first.
inline void begin_call(Time time = 200) {
  World& w = world();
  w.spend(time);
  if (w.random.once_in(8)) w.yield();
}

template <class Result = int>
Result failed(int error, Result result = -1) {
  errno = error;
  return result;
}

/// The object behind a descriptor of the caller; null: there is no caller, or the descriptor is the
/// real kernel's.
inline Object* simulated(int fd) {
  return caller() == nullptr ? nullptr : file(*caller()->process, fd);
}

inline bool is_readable(void* object) {
  return (static_cast<Object*>(object)->ready() & (EPOLLIN | EPOLLERR | EPOLLHUP)) != 0;
}
inline bool is_writable(void* object) {
  return (static_cast<Object*>(object)->ready() & (EPOLLOUT | EPOLLERR | EPOLLHUP)) != 0;
}

}  // namespace tutti::simulator

/// libc's function of this name.
#define REAL(name)                                                                          \
  ([] {                                                                                     \
    static auto* const real = reinterpret_cast<decltype(&::name)>(dlsym(RTLD_NEXT, #name)); \
    return real;                                                                            \
  }())

// What a backend has to know about the interpreter: that nobody waits with its lock, and that
// Ctrl-C ends what the main thread waits for.
#pragma once

#include <Python.h>
#include <tutti/core/background.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>

namespace tutti::pytorch {

/// Callbacks of what is still under way may need Python's lock, so nobody waits with it.
class WithoutPython {
 public:
  WithoutPython()
      : state_(Py_IsInitialized() && PyGILState_Check() ? PyEval_SaveThread() : nullptr) {}
  ~WithoutPython() {
    if (state_ != nullptr) PyEval_RestoreThread(state_);
  }
  WithoutPython(const WithoutPython&) = delete;
  WithoutPython& operator=(const WithoutPython&) = delete;

 private:
  PyThreadState* state_;
};

/// As long as it lives, Ctrl-C ends what Tutti waits for on this thread, where it is the one that
/// Python's signal handlers run on.
class EndedByCtrlC {
 public:
  EndedByCtrlC();

 private:
  std::optional<Interruptible> interruptible_;
};

/// Whether this thread was interrupted. Then Python's exception is set, to be thrown.
bool was_interrupted();
/// Throws that exception, if this thread was interrupted.
void throw_if_interrupted();

/// changed.wait_until(), which Ctrl-C ends with its exception; `lock` is free meanwhile.
template <class Over>
bool wait_until(std::unique_lock<std::mutex>& lock, std::condition_variable& changed,
                std::chrono::steady_clock::time_point deadline, Over over) {
  constexpr std::chrono::milliseconds kMoment(50);
  const EndedByCtrlC interruptible;
  while (!over()) {
    const auto now = std::chrono::steady_clock::now();
    if (now >= deadline) return false;
    if (!Interruptible::any()) return changed.wait_until(lock, deadline, over);
    changed.wait_until(lock, std::min(deadline, now + kMoment), over);
    if (over()) break;
    lock.unlock();
    throw_if_interrupted();
    lock.lock();
  }
  return true;
}

}  // namespace tutti::pytorch

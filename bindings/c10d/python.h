// The backend and the interpreter: no thread waits while it holds the interpreter's lock, and
// Ctrl-C ends a wait of the main thread.
//
// One binary serves every version of Python. So the backend calls Python by functions that each
// version exports (no macros that look into objects), and takes nothing of pybind11 but a class of
// exceptions.
#pragma once

#include <Python.h>
#include <pybind11/detail/common.h>
#include <tutti/core/background.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>

/// A function that tutti/torch/module.py calls.
#define TUTTI_C10D_EXPORT extern "C" __attribute__((visibility("default")))

namespace tutti::pytorch {

/// Gives the interpreter the C++ exception that is being handled, as PyTorch's own functions do.
/// The caller holds Python's lock.
void raise_in_python();

/// Callbacks of operations under way may need Python's lock, so no thread waits while it holds the
/// lock.
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

/// On which thread Python's signal handlers run: threading.main_thread().ident.
void set_main_thread(unsigned long ident);

/// While it lives, Ctrl-C ends Tutti's waits on this thread, if it is the thread of Python's signal
/// handlers.
class EndedByCtrlC {
 public:
  EndedByCtrlC();

 private:
  std::optional<Interruptible> interruptible_;
};

/// Whether this thread was interrupted. Then Python's exception is set; throw it.
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

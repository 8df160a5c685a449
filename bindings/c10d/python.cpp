#include "python.h"

#include <pthread.h>
#include <pybind11/pybind11.h>
#include <unistd.h>

namespace tutti::pytorch {
namespace {

/// Python's handlers run on the main thread alone: in a child of fork(), on the one that has
/// forked.
pthread_t main_thread = [] {
  pthread_atfork(nullptr, nullptr, [] { main_thread = pthread_self(); });
  const pybind11::gil_scoped_acquire acquire;
  const auto threading = pybind11::module_::import("threading");
  return threading.attr("main_thread")().attr("ident").cast<pthread_t>();
}();

}  // namespace

EndedByCtrlC::EndedByCtrlC() {
  if (pthread_equal(pthread_self(), main_thread)) interruptible_.emplace(was_interrupted);
}

bool was_interrupted() {
  if (!Py_IsInitialized()) return false;
  const pybind11::gil_scoped_acquire acquire;
  return PyErr_Occurred() != nullptr || PyErr_CheckSignals() != 0;
}

void throw_if_interrupted() {
  if (!was_interrupted()) return;
  const pybind11::gil_scoped_acquire acquire;
  throw pybind11::error_already_set();
}

}  // namespace tutti::pytorch

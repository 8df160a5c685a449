#include "bindings/python/errors.h"

#include <pthread.h>
#include <unistd.h>

#include <exception>
#include <string>

#include "core/error.h"

namespace tutti::python {

namespace nb = nanobind;

namespace {

/// Whether a signal's handler has thrown, as Ctrl-C's does: the exception is then set on this
/// thread.
bool interrupted() {
  const nb::gil_scoped_acquire acquire;
  return PyErr_Occurred() != nullptr || PyErr_CheckSignals() != 0;
}

void translate(const std::exception_ptr& thrown, void*) {
  try {
    std::rethrow_exception(thrown);
  } catch (const Error& e) {
    // An error of Python's, such as Ctrl-C's, comes first; its handler may also run in _make().
    if (PyErr_Occurred() != nullptr || PyErr_CheckSignals() != 0) return;
    try {
      nb::object made = nb::module_::import_("tutti.errors")
                            .attr("_make")(std::string(name(e.code())).c_str(), e.what(), e.rank());
      PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(made.ptr())), made.ptr());
    } catch (nb::python_error& raised) {
      raised.restore();
    }
  }
}

}  // namespace

void translate_errors(nb::module_&) { nb::register_exception_translator(translate); }

Waiting::Waiting() {
  if (getpid() == gettid()) interruptible_.emplace(interrupted);
}

}  // namespace tutti::python

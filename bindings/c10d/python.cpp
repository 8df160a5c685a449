#include "python.h"

#include <c10/util/Exception.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <exception>
#include <memory>
#include <utility>

namespace tutti::pytorch {
namespace {

/// Python's handlers run on the main thread alone: in a child of fork(), on the one that has
/// forked.
std::atomic<pthread_t> main_thread = [] {
  pthread_atfork(nullptr, nullptr, [] { main_thread = pthread_self(); });
  return pthread_t();
}();

/// Holds Python's lock, on any thread.
class WithPython {
 public:
  WithPython() : state_(PyGILState_Ensure()) {}
  ~WithPython() { PyGILState_Release(state_); }
  WithPython(const WithPython&) = delete;
  WithPython& operator=(const WithPython&) = delete;

 private:
  PyGILState_STATE state_;
};

/// The exception that is set in Python, taken out of there. Copies share it.
struct Taken {
  Taken() { PyErr_Fetch(&type, &value, &trace); }
  ~Taken() {
    if (type == nullptr || !Py_IsInitialized()) return;
    const WithPython python;
    Py_DecRef(type);
    Py_DecRef(value);
    Py_DecRef(trace);
  }
  Taken(const Taken&) = delete;
  Taken& operator=(const Taken&) = delete;

  PyObject* type = nullptr;
  PyObject* value = nullptr;
  PyObject* trace = nullptr;
};

/// pybind11, which calls the backend, sets what set_error() sets. (error_already_set would do, but
/// its inline functions differ between versions of Python.)
class Interrupted final : public pybind11::builtin_exception {
 public:
  Interrupted()
      : builtin_exception("a signal handler of Python ended the call"),
        taken_(std::make_shared<Taken>()) {}
  void set_error() const override {
    PyErr_Restore(std::exchange(taken_->type, nullptr), std::exchange(taken_->value, nullptr),
                  std::exchange(taken_->trace, nullptr));
  }

 private:
  std::shared_ptr<Taken> taken_;
};

/// Gives the interpreter an exception of a type that torch.distributed has.
void raise_distributed(const char* type, const c10::Error& error) {
  PyObject* module = PyImport_ImportModule("torch.distributed");
  PyObject* found = module == nullptr ? nullptr : PyObject_GetAttrString(module, type);
  if (found != nullptr) PyErr_SetString(found, error.what_without_backtrace());
  Py_DecRef(found);
  Py_DecRef(module);
}

}  // namespace

void raise_in_python() {
  try {
    throw;
  } catch (const pybind11::builtin_exception& error) {
    error.set_error();
  } catch (const c10::DistBackendError& error) {
    raise_distributed("DistBackendError", error);
  } catch (const c10::DistNetworkError& error) {
    raise_distributed("DistNetworkError", error);
  } catch (const c10::DistStoreError& error) {
    raise_distributed("DistStoreError", error);
  } catch (const c10::DistError& error) {
    raise_distributed("DistError", error);
  } catch (const c10::Error& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what_without_backtrace());
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
}

void set_main_thread(unsigned long ident) { main_thread = ident; }

EndedByCtrlC::EndedByCtrlC() {
  if (pthread_equal(pthread_self(), main_thread)) interruptible_.emplace(was_interrupted);
}

bool was_interrupted() {
  if (!Py_IsInitialized()) return false;
  const WithPython python;
  return PyErr_Occurred() != nullptr || PyErr_CheckSignals() != 0;
}

void throw_if_interrupted() {
  if (!was_interrupted()) return;
  const WithPython python;
  throw Interrupted();
}

}  // namespace tutti::pytorch

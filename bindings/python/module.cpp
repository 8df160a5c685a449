// The extension module tutti._tutti; what users see of it is in tutti/__init__.py.
#include "core/module.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <cstddef>
#include <string>

#include "bindings/python/communicator.h"
#include "bindings/python/errors.h"
#include "bindings/python/future.h"
#include "bindings/python/weights.h"
#include "bindings/python/window.h"
#include "core/error.h"
#include "core/memory.h"

namespace {

namespace nb = nanobind;

/// What Python calls it where there is no memory.
void* allocate(std::size_t bytes) {
  try {
    return tutti::allocate(bytes);
  } catch (const tutti::Error& e) {
    PyErr_SetString(PyExc_MemoryError, e.what());
    throw nb::python_error();
  }
}

/// Window memory, with the buffer protocol.
class Memory {
 public:
  explicit Memory(std::size_t bytes) : data_(allocate(bytes)), bytes_(bytes) {}
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() { tutti::deallocate(data_); }
  void* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

 private:
  void* data_;
  std::size_t bytes_;
};

int get_buffer(PyObject* self, Py_buffer* view, int flags) {
  const auto* const memory = nb::inst_ptr<Memory>(self);
  return PyBuffer_FillInfo(view, self, memory->data(), static_cast<Py_ssize_t>(memory->bytes()), 0,
                           flags);
}

PyType_Slot memory_slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(get_buffer)}, {0, nullptr}};

}  // namespace

NB_MODULE(_tutti, module) {
  // A program that exits while a daemon thread is in a call, or that has cycles, would get warnings
  // of leaks.
  nb::set_leak_warnings(false);
  module.attr("__version__") = TUTTI_VERSION;
  tutti::log_release("Python package " TUTTI_VERSION);
  module.def("_log_release", [](const std::string& binding) { tutti::log_release(binding); });
  tutti::python::translate_errors(module);
  tutti::python::bind_future(module);
  tutti::python::bind_window(module);
  tutti::python::bind_communicator(module);
  tutti::python::bind_elastic(module);
  tutti::python::bind_weights(module);
  nb::class_<Memory>(module, "_Memory", nb::type_slots(memory_slots))
      .def(nb::init<std::size_t>(), nb::arg("bytes"));
}

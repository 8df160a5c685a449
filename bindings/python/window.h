// tutti.Window, as Python sees it: an array of each rank, to which the others put.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <optional>

#include "bindings/python/buffer.h"
#include "bindings/python/communicator.h"
#include "comm/window.h"

namespace tutti::python {

class PythonWindow {
 public:
  /// Collective. `comm`: a PythonCommunicator.
  PythonWindow(nb::object comm, nb::object array);
  PythonWindow(PythonWindow&&) = default;
  ~PythonWindow() { end(); }

  Window& get() { return window_; }
  const nb::object& array() const { return array_; }
  PythonCommunicator& comm() const { return nb::cast<PythonCommunicator&>(comm_); }

  /// Runs or starts `call`, or keeps it for the end of a group; `from`: the memory that it reads.
  nb::any call(WindowCall call, std::optional<nb::handle> from, bool async_op);
  nb::object map(int peer, nb::handle dtype);
  void close();
  /// Without the other ranks.
  void end();

 private:
  nb::object comm_, array_;
  std::unique_ptr<Buffer> memory_;
  Window window_;
};

/// Of Communicator.window().
PythonWindow open_window(nb::object comm, nb::object array);
void bind_window(nb::module_& module);

}  // namespace tutti::python

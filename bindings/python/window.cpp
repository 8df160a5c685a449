// See window.h.
#include "bindings/python/window.h"

#include <fmt/format.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <string>
#include <utility>

#include "bindings/python/errors.h"
#include "bindings/python/future.h"
#include "core/error.h"

namespace tutti::python {
namespace {

using namespace nb::literals;
using Kind = WindowCall::Kind;

void check_host_memory(const Buffer& buffer, const char* what) {
  if (!buffer.on_gpu()) return;
  throw nb::type_error(fmt::format("{} is GPU memory; windows are host memory", what).c_str());
}

/// A peer's memory, with the buffer protocol.
class MappedMemory {
 public:
  MappedMemory(const Window& window, std::byte* data, std::size_t bytes)
      : keeps_(window.keep_mapped()), data_(data), bytes_(bytes) {}
  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

 private:
  std::shared_ptr<const void> keeps_;
  std::byte* data_;
  std::size_t bytes_;
};

int get_mapped(PyObject* self, Py_buffer* view, int flags) {
  const auto* const memory = nb::inst_ptr<MappedMemory>(self);
  return PyBuffer_FillInfo(view, self, memory->data(), static_cast<Py_ssize_t>(memory->bytes()), 0,
                           flags);
}

PyType_Slot mapped_slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(get_mapped)}, {0, nullptr}};

}  // namespace

PythonWindow::PythonWindow(nb::object comm, nb::object array)
    : comm_(std::move(comm)), array_(std::move(array)) {
  memory_ = std::make_unique<Buffer>(array_, Buffer::Access::write, "x");
  check_host_memory(*memory_, "x");
  PythonCommunicator& c = this->comm();
  Communicator& native = c.get();
  const Callers::Call in_call(c.callers());
  const Waiting waiting;
  window_ = native.window(memory_->data(), memory_->bytes());
}

nb::any PythonWindow::call(WindowCall call, std::optional<nb::handle> from, bool async_op) {
  const Callers::Call in_call(comm().callers());
  PythonFuture::tidy();
  auto operation = std::make_unique<Operation>();
  if (from) {
    operation->in.emplace(*from, Buffer::Access::read, "x");
    check_host_memory(*operation->in, "x");
    call.from = operation->in->data();
    call.bytes = operation->in->bytes();
    const std::size_t element = operation->in->element().bytes;
    // One that overflows is more than there is, too.
    call.offset = call.offset <= SIZE_MAX / element ? call.offset * element : SIZE_MAX;
  }
  if (async_op) {
    Future future;
    {
      const Waiting waiting;
      future = window_.start(call);
    }
    return any_of(nb::cast(PythonFuture(std::move(future), std::move(operation))));
  }
  if (open_groups().depth > 0) {
    window_.run(call);  // which keeps it
    open_groups().operations.push_back(std::move(operation));
  } else {
    const Waiting waiting;
    window_.run(call);
  }
  return any_of(nb::none());
}

nb::object PythonWindow::map(int peer, nb::handle dtype) {
  const Callers::Call in_call(comm().callers());
  std::byte* const data = window_.map(peer);
  const nb::module_ numpy = nb::module_::import_("numpy");
  if (data == nullptr) return nb::none();
  const nb::object memory = nb::cast(MappedMemory(window_, data, window_.bytes_of(peer)));
  return numpy.attr("frombuffer")(memory, "dtype"_a = dtype);
}

void PythonWindow::close() {
  {
    const Callers::Call in_call(comm().callers());
    const Waiting waiting;
    window_.close();
  }
  memory_.reset();
}

void PythonWindow::end() {
  if (window_) {
    const Waiting waiting;
    window_.end();
  }
  memory_.reset();
}

PythonWindow open_window(nb::object comm, nb::object array) {
  return PythonWindow(std::move(comm), std::move(array));
}

void bind_window(nb::module_& module) {
  using Self = PythonWindow&;
  nb::class_<MappedMemory>(module, "_MappedMemory", nb::type_slots(mapped_slots));
  nb::class_<PythonWindow> c(
      module, "Window",
      "An array of each rank, to which the other ranks put, one-sided: Communicator.window().\n\n"
      "The owner calls nothing for that; a signal tells it that the data is there. A signal comes\n"
      "after all that the same rank has put to the same peer before. Signals are counted, of each\n"
      "rank and index by themselves. When put() returns, its source may be written again.\n"
      "With async_op=True a call returns a Future. Errors are of tutti.Error.");
  c.def_prop_ro(
      "array", [](Self self) { return self.array(); }, "This rank's array.");
  c.def(
      "put",
      [](Self self, int peer, nb::handle x, std::size_t offset, std::optional<int> signal,
         bool async_op) {
        WindowCall call;
        call.peer = peer;
        call.offset = offset;
        call.signals = signal.has_value();
        call.index = signal.value_or(0);
        return self.call(call, x, async_op);
      },
      "peer"_a, "x"_a, "offset"_a = 0, nb::kw_only(), "signal"_a = nb::none(), "async_op"_a = false,
      "Writes the array x to the array of rank `peer`, from element `offset` on, in elements of "
      "x.\n"
      "signal: the index of a signal that follows.");
  c.def(
      "signal",
      [](Self self, int peer, int index) {
        WindowCall call;
        call.kind = Kind::signal;
        call.peer = peer;
        call.index = index;
        self.call(call, std::nullopt, false);
      },
      "peer"_a, "index"_a = 0, "Gives rank `peer` a signal of this rank. Does not wait.");
  c.def(
      "wait_signal",
      [](Self self, int peer, std::uint64_t count, int index, std::optional<double> timeout,
         bool async_op) {
        WindowCall call;
        call.kind = Kind::wait_signal;
        call.peer = peer;
        call.count = count;
        call.index = index;
        if (timeout) call.timeout = to_nanoseconds(*timeout);
        return self.call(call, std::nullopt, async_op);
      },
      "peer"_a, "count"_a = 1, "index"_a = 0, nb::kw_only(), "timeout"_a = nb::none(),
      "async_op"_a = false,
      "Waits for `count` signals of rank `peer`, and takes them; others remain for later waits.\n"
      "timeout: seconds; after that, the communicator fails.");
  c.def(
      "map", [](Self self, int peer, nb::handle dtype) { return self.map(peer, dtype); }, "peer"_a,
      "dtype"_a = "uint8",
      nb::sig("def map(self, peer: int, dtype: object = 'uint8') -> object | None"),
      "The array of rank `peer`, flat, as a numpy array of `dtype`, where this process can "
      "address\n"
      "it: window memory (tutti.empty) of ranks of this host. Else None. It is the peer's as long\n"
      "as the peer's window is open.");
  c.def(
      "close", [](Self self) { self.close(); },
      "Waits until all ranks are here, then ends the window.");
  c.def(
      "__enter__", [](nb::object self) { return self; }, nb::sig("def __enter__(self) -> Window"));
  c.def(
      "__exit__",
      [](Self self, nb::handle type, nb::handle, nb::handle) {
        // The others may never come to close().
        if (!self.get()) return;
        type.is_none() ? self.close() : self.end();
      },
      "type"_a.none(), "value"_a.none(), "traceback"_a.none());
  c.def("__bool__", [](Self self) { return static_cast<bool>(self.get()); });
}

}  // namespace tutti::python

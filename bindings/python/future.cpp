// See future.h.
#include "bindings/python/future.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <nanobind/stl/optional.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "core/error.h"
#include "core/file_descriptor.h"

namespace tutti::python {

using namespace nb::literals;
using std::chrono::nanoseconds;

nanoseconds to_nanoseconds(double seconds) {
  if (std::isnan(seconds)) {
    PyErr_SetString(PyExc_ValueError, "the timeout is not a number");
    throw nb::python_error();
  }
  return std::chrono::duration_cast<nanoseconds>(
      std::chrono::duration<double>(std::clamp(seconds, -1e9, 1e9)));
}

nb::any PythonFuture::wait(std::optional<double> timeout) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::milliseconds kMoment(50);  // between looks whether Ctrl-C was pressed
  const auto begun = Clock::now();
  const nanoseconds most = timeout ? to_nanoseconds(*timeout) : nanoseconds::max();
  while (!future_.ready()) {
    const nanoseconds left = timeout ? most - (Clock::now() - begun) : nanoseconds(kMoment);
    if (left.count() <= 0) {
      PyErr_SetString(PyExc_TimeoutError,
                      fmt::format("the operation was not over after {} s", *timeout).c_str());
      throw nb::python_error();
    }
    {
      const nb::gil_scoped_release release;
      try {
        future_.wait_for(std::min<nanoseconds>(left, kMoment));
      } catch (const Error&) {
        if (!future_.ready()) throw;
        // Else it is thrown below.
      }
    }
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  }
  return result();
}

nb::any PythonFuture::result() {
  future_.wait();
  return any_of(operation_->result);
}

int PythonFuture::descriptor() {
  const int fd = above_standard(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (fd < 0) throw_system_error("eventfd");
  // Its own: it may be written after the caller has closed that one.
  const int own = fcntl(fd, F_DUPFD_CLOEXEC, fd);
  try {
    if (own < 0) throw_system_error("dup");
    future_.on_ready([own] {
      const std::uint64_t one = 1;
      [[maybe_unused]] const auto written = write(own, &one, sizeof one);
      close(own);
    });
  } catch (...) {
    if (own >= 0) close(own);
    close(fd);
    throw;
  }
  return fd;
}

void bind_future(nb::module_& module) {
  nb::class_<PythonFuture>(module, "Future", "The result of a call with async_op=True.")
      .def("done", &PythonFuture::done, "Whether it is over (or has failed). Never blocks.")
      .def("wait", &PythonFuture::wait, "timeout"_a = nb::none(),
           "Blocks until it is over; returns what the call would have returned, or raises its\n"
           "error. With `timeout` (seconds): raises TimeoutError if it takes longer; it goes on.")
      .def("_descriptor", &PythonFuture::descriptor)
      .def("_result", &PythonFuture::result);
}

}  // namespace tutti::python

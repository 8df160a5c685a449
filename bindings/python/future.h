// tutti.Future, as Python sees it.
#pragma once

#include <nanobind/nanobind.h>

#include <chrono>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "bindings/python/operation.h"
#include "comm/communicator.h"

namespace tutti::python {

std::chrono::nanoseconds to_nanoseconds(double seconds);

/// The result of a call, which type hints call Any.
inline nb::any any_of(nb::object o) { return nb::steal<nb::any>(o.release()); }

/// A started call. It holds its memory until it is over, even if Python lets go of the future
/// before.
class PythonFuture {
 public:
  PythonFuture(Future future, std::unique_ptr<Operation> operation)
      : future_(std::move(future)), operation_(std::move(operation)) {}
  PythonFuture(PythonFuture&&) = default;
  ~PythonFuture() {
    if (!operation_ || future_.ready()) return;
    abandoned().push_back({std::move(future_), std::move(operation_)});
  }

  bool done() const { return future_.ready(); }

  nb::any wait(std::optional<double> timeout);
  nb::any result();
  /// A descriptor that becomes readable when it is over, for event loops; the caller's to close.
  int descriptor();

  /// Frees the memory of abandoned operations that are over.
  static void tidy() {
    std::erase_if(abandoned(), [](const Abandoned& a) { return a.future.ready(); });
  }

 private:
  struct Abandoned {
    Future future;
    std::unique_ptr<Operation> operation;
  };
  /// Under the GIL. Never destroyed: operations may still write to this memory at the end.
  static std::vector<Abandoned>& abandoned() {
    static auto* const all = new std::vector<Abandoned>;
    return *all;
  }

  Future future_;
  std::unique_ptr<Operation> operation_;
};

void bind_future(nb::module_& module);

}  // namespace tutti::python

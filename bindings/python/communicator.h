// tutti.Communicator, as Python sees it: one thread at a time calls it, and a call runs without the
// GIL, or is kept until its group ends, or becomes a Future.
#pragma once

#include <nanobind/nanobind.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bindings/python/errors.h"
#include "bindings/python/future.h"
#include "bindings/python/operation.h"
#include "comm/communicator.h"
#include "core/error.h"
#include "core/fork.h"

namespace tutti::python {

/// The groups of a thread, and the operations that wait for the end of the outermost.
struct OpenGroups {
  int depth = 0;
  std::vector<std::unique_ptr<Operation>> operations;
};
inline OpenGroups& open_groups() {
  thread_local OpenGroups g;
  return g;
}

/// The thread that is in a call of a communicator; only one may be at a time. Under the GIL.
class Turn {
 public:
  explicit Turn(std::optional<std::thread::id>& whose) : whose_(whose) {
    if (whose_) {
      throw Error(ErrorCode::invalid_usage,
                  "this communicator is in another call, of another thread or of one that a "
                  "signal's handler has interrupted: one thread at a time calls it, except abort() "
                  "and check(). Let the threads start what they call, and wait for that "
                  "(async_op=True), or give each its own communicator: split(0), on all ranks in "
                  "the same order");
    }
    whose_ = std::this_thread::get_id();
  }
  ~Turn() { whose_.reset(); }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  std::optional<std::thread::id>& whose_;
};

class PythonCommunicator {
 public:
  explicit PythonCommunicator(Communicator comm) : comm_(std::move(comm)) {}
  PythonCommunicator(PythonCommunicator&&) = default;
  ~PythonCommunicator() {
    if (!comm_) return;
    const nb::error_scope before;  // an exception may be on its way
    leave();
    if (PyErr_Occurred() != nullptr) PyErr_WriteUnraisable(nullptr);
  }

  Communicator& get() { return comm_; }
  Turn turn() { return Turn(in_call()); }
  Ranks ranks() const { return {comm_.rank(), comm_.size()}; }

  void destroy() {
    // Another thread waits for one of this rank's operations.
    while (comm_ && in_call() && in_call() != std::this_thread::get_id()) {
      {
        const nb::gil_scoped_release release;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      if (PyErr_CheckSignals() != 0) throw nb::python_error();
    }
    const Turn turn(in_call());
    leave();
    if (PyErr_Occurred() != nullptr) throw nb::python_error();  // Ctrl-C
  }

  /// Lets `fill` make an operation, and runs or starts it.
  template <class Fill>
  nb::any call(bool async_op, std::uintptr_t stream, Fill&& fill) {
    (void)comm_.impl();  // before anything else: it may be destroyed
    const Turn turn(in_call());
    if (async_op || open_groups().depth > 0) return keep(async_op, stream, fill);
    Operation o;
    fill(o);
    if (o.on_gpu()) {
      const Waiting waiting;
      comm_.run(o.call, reinterpret_cast<void*>(stream));
    } else {
      const Waiting waiting;
      comm_.run(o.call);
    }
    return any_of(std::move(o.result));
  }

 private:
  /// The thread that is in a call. A child of fork() has no other thread than the one that forked.
  std::optional<std::thread::id>& in_call() {
    if (generation_ != process_generation()) {
      generation_ = process_generation();
      in_call_.reset();
    }
    return in_call_;
  }

  /// If Ctrl-C ends the wait, its exception is set afterwards.
  void leave() {
    if (!comm_) return;
    const Waiting waiting;
    comm_ = Communicator();
  }

  template <class Fill>
  nb::any keep(bool async_op, std::uintptr_t stream, Fill&& fill) {
    PythonFuture::tidy();
    auto o = std::make_unique<Operation>();
    fill(*o);
    if (async_op) {
      if (o->on_gpu()) {
        throw Error(ErrorCode::invalid_usage,
                    "async_op: a call on GPU memory is put on its stream anyway, and returns");
      }
      Future future = comm_.start(o->call);
      return any_of(nb::cast(PythonFuture(std::move(future), std::move(o))));
    }
    if (o->on_gpu()) {
      comm_.run(o->call, reinterpret_cast<void*>(stream));
    } else {
      comm_.run(o->call);
    }
    nb::any result = any_of(o->result);
    open_groups().operations.push_back(std::move(o));
    return result;
  }

  Communicator comm_;
  std::optional<std::thread::id> in_call_;
  std::uint32_t generation_ = process_generation();
};

/// `options`, but for the keyword arguments that are not None.
Options options_of(Options options, std::optional<double> timeout,
                   std::optional<double> rendezvous_timeout, std::optional<std::string> algorithm,
                   std::optional<bool> invariant = {});

/// Adds its collectives and messages to the class.
void bind_collectives(nb::class_<PythonCommunicator>& c);
/// tutti.ElasticJob.
void bind_elastic(nb::module_& module);
/// The class, groups, and make_unique_id().
void bind_communicator(nb::module_& module);

}  // namespace tutti::python

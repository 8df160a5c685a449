// tutti.Communicator, as Python sees it: a call runs without the GIL, or is kept until its group
// ends, or becomes a Future. A communicator lives as long as a thread is in a call of it.
#pragma once

#include <nanobind/nanobind.h>

#include <algorithm>
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

/// The threads that are in calls of a communicator. Under the GIL.
class Callers {
 public:
  /// Of this thread, as long as this lives.
  class Call {
   public:
    explicit Call(Callers& callers) : callers_(callers.here()) { callers_.push_back(own()); }
    ~Call() {
      const auto mine = std::ranges::find(callers_, own());
      if (mine != callers_.end()) callers_.erase(mine);
    }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

   private:
    std::vector<std::thread::id>& callers_;
  };
  bool has_others() {
    return std::ranges::any_of(here(), [](std::thread::id id) { return id != own(); });
  }
  /// Throws where this thread is in a call, which a signal's handler has interrupted.
  void refuse_in_call() {
    if (std::ranges::find(here(), own()) == here().end()) return;
    throw Error(ErrorCode::invalid_usage,
                "a signal's handler ends the communicator that its thread is calling");
  }

 private:
  static std::thread::id own() { return std::this_thread::get_id(); }
  /// A child of fork() has no other thread than the one that forked.
  std::vector<std::thread::id>& here() {
    if (generation_ != process_generation()) {
      generation_ = process_generation();
      callers_.clear();
    }
    return callers_;
  }

  std::vector<std::thread::id> callers_;
  std::uint32_t generation_ = process_generation();
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
  Callers& callers() { return *callers_; }
  Ranks ranks() const { return {comm_.rank(), comm_.size()}; }

  void destroy() {
    callers_->refuse_in_call();
    while (comm_ && callers_->has_others()) {  // they wait for operations of this rank
      {
        const nb::gil_scoped_release release;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      if (PyErr_CheckSignals() != 0) throw nb::python_error();
    }
    leave();
    if (PyErr_Occurred() != nullptr) throw nb::python_error();  // Ctrl-C
  }

  /// Lets `fill` make an operation, and runs or starts it.
  template <class Fill>
  nb::any call(bool async_op, std::uintptr_t stream, Fill&& fill) {
    (void)comm_.impl();  // before anything else: it may be destroyed
    const Callers::Call in_call(*callers_);
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
      Future future;
      {
        const Waiting waiting;
        future = comm_.start(o->call);
      }
      return any_of(nb::cast(PythonFuture(std::move(future), std::move(o))));
    }
    if (o->on_gpu()) {
      const Waiting waiting;
      comm_.run(o->call, reinterpret_cast<void*>(stream));
    } else {
      const Waiting waiting;
      comm_.run(o->call);
    }
    nb::any result = any_of(o->result);
    open_groups().operations.push_back(std::move(o));
    return result;
  }

  Communicator comm_;
  std::unique_ptr<Callers> callers_ = std::make_unique<Callers>();
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

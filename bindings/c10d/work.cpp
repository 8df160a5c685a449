#include "work.h"

#include <ATen/record_function.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <mutex>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <utility>

#include "elsewhere.h"
#include "errors.h"
#include "python.h"

namespace tutti::pytorch {

namespace {

::c10d::WorkResult result_of(const std::optional<Error>& error, const std::exception_ptr& thrown) {
  if (!thrown) return ::c10d::WorkResult::SUCCESS;
  return error && error->code() == ErrorCode::timed_out ? ::c10d::WorkResult::TIMEOUT
                                                        : ::c10d::WorkResult::COMM_ERROR;
}

/// The base class makes a record of each work that has a name, whether anybody reads it or not.
bool is_profiled() {
  return at::getStepCallbacksUnlessEmpty(at::RecordScope::USER_SCOPE).has_value();
}

}  // namespace

Work::Work(Operation operation, int rank, std::uint64_t sequence, int parts,
           std::chrono::milliseconds timeout, std::shared_ptr<Ledger> ledger)
    : ::c10d::Work(rank, operation.type, is_profiled() ? operation.name : nullptr,
                   is_profiled() ? std::make_optional(operation.results) : std::nullopt),
      operation_(std::move(operation)),
      sequence_(sequence),
      timeout_(timeout),
      ledger_(std::move(ledger)),
      says_duration_(ledger_->measures()),
      measured_(ledger_->measures_works()),
      left_(parts) {
  if (measured_) began_ = std::chrono::steady_clock::now();
  ledger_->begun();
}

Work::~Work() {
  if (!completed_) ledger_->over(number_);  // it could not be started
}

void Work::end(const std::optional<Error>& why) {
  if (why) {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = why;
  }
  if (left_.fetch_sub(1, std::memory_order_acq_rel) > 1) return;
  if (!error_) {
    std::exception_ptr thrown;
    try {
      operation_.finish();
    } catch (...) {
      thrown = std::current_exception();
    }
    return complete(thrown);
  }
  const std::exception_ptr thrown = std::make_exception_ptr(as_torch(*error_));
  if (!Ledger::is_failure(*error_, rank_)) return complete(thrown);
  ledger_->failed([self = c10::intrusive_ptr<Work>::reclaim_copy(this), thrown] {  //
    self->complete(thrown);
  });
}

void Work::complete(std::exception_ptr why) {
  FuturePointer future, result;
  std::vector<c10::intrusive_ptr<Work>> others;
  {
    const std::lock_guard lock(mutex_);
    if (recordFunctionEndCallback_) {  // before anybody can end the recording
      recordFunctionEndCallback_();
      recordFunctionEndCallback_ = nullptr;
    }
    exception_ = why;
    completed_ = true;
    if (measured_) ended_ = std::chrono::steady_clock::now();
    future = future_;
    result = result_future_;
    others.swap(others_);
  }
  if (measured_ && ledger_->has_work_hook()) {
    ledger_->tell_work_hook(std::make_shared<::c10d::WorkInfo>(operation_.type, sequence_, began_,
                                                               ended_, ended_ - began_));
  }
  ledger_->over(number_);
  const auto self = c10::intrusive_ptr<Work>::reclaim_copy(this);
  if (!why && !event_) {
    ledger_->succeeded(number_, took());
  } else if (!why && ledger_->is_watched()) {
    ledger_->after_stream([self] {
      self->event_->synchronize();
      self->ledger_->succeeded(self->number_, self->took());
    });
  }
  cv_.notify_all();
  for (const auto& other : others) other->end(error_);
  if (!future && !result) return;
  run_elsewhere([self, future, result] {
    if (future) self->fulfil(*future);
    if (result) self->fulfil_result(*result);
  });
}

void Work::then_end(const c10::intrusive_ptr<Work>& other) {
  {
    const std::lock_guard lock(mutex_);
    if (!completed_) {
      others_.push_back(other);
      return;
    }
  }
  other->end(error_);
}

void Work::fulfil(c10::ivalue::Future& future) const {
  if (exception_) return future.setError(exception_);
  if (!event_) return future.markCompleted(c10::IValue(operation_.results));
  // Those who wait for the future wait for what this thread's stream has then: a stream that has
  // only waited for the work.
  const c10::impl::VirtualGuardImpl guard(operation_.device.type());
  const c10::Stream after = guard.getStreamFromGlobalPool(operation_.device);
  event_->block(after);
  const c10::StreamGuard on_that(after);
  future.markCompleted(c10::IValue(operation_.results));
}

void Work::fulfil_result(c10::ivalue::Future& future) const {
  future.markCompleted(static_cast<std::int64_t>(result_of(error_, exception_)));
}

void Work::record_event() {
  operation_.finish();
  operation_.finishing.clear();
  event_.emplace(operation_.device.type());
  const c10::impl::VirtualGuardImpl guard(operation_.device.type());
  event_->record(guard.getStream(operation_.device));
}

bool Work::isCompleted() {
  {
    const std::lock_guard lock(mutex_);
    if (!completed_) return false;
  }
  return !event_ || event_->query();
}

bool Work::isSuccess() const {
  const std::lock_guard lock(mutex_);
  return completed_ && !exception_;
}

int Work::sourceRank() const {
  const int source = source_.load(std::memory_order_acquire);
  TORCH_CHECK(source >= 0, "sourceRank: this is no finished recv");
  return source;
}

void Work::synchronize() {
  if (!event_) return;
  const c10::impl::VirtualGuardImpl guard(operation_.device.type());
  event_->block(guard.getStream(operation_.device));
}

bool Work::wait(std::chrono::milliseconds timeout) {
  if (::c10d::allow_inflight_collective_as_graph_input()) {
    ::c10d::unregister_work(c10::intrusive_ptr<::c10d::Work>::reclaim_copy(this));
  }
  // A child of fork() may find the lock held, for ever.
  if (process_ != process_id() && !completed_) {
    C10_THROW_ERROR(DistBackendError, c10::str(operation_.name, ": ", kOfTheParent));
  }
  {
    using Clock = std::chrono::steady_clock;
    std::unique_lock lock(mutex_);
    const auto over = [&] { return completed_; };
    if (!over()) {
      constexpr std::chrono::milliseconds kEver = std::chrono::hours(24 * 365), kMoment(50);
      const auto end = Clock::now() + (timeout.count() > 0 ? std::min(timeout, kEver) : kEver);
      while (look_ && !over() && Clock::now() < end) {
        lock.unlock();
        look_();
        lock.lock();
        wait_until(lock, cv_, std::min(end, Clock::now() + kMoment), over);
      }
      const EndedByCtrlC interruptible;
      for (bool drives = awaited_.valid(); drives && !over() && Clock::now() < end;) {
        lock.unlock();
        try {
          const auto next = Interruptible::any() ? std::min(end, Clock::now() + kMoment) : end;
          drives = !awaited_.wait_until(next);
        } catch (const Error&) {  // end() has it, or a callback waits, which must not
          drives = false;
        }
        throw_if_interrupted();
        lock.lock();
      }
      if (!wait_until(lock, cv_, end, over)) {
        C10_THROW_ERROR(DistBackendError,
                        c10::str(operation_.name, ": Timed out waiting ", timeout.count(),
                                 "ms: it was not over then, and goes on"));
      }
    }
    if (exception_) std::rethrow_exception(exception_);
  }
  synchronize();
  return true;
}

Work::FuturePointer Work::future_in(FuturePointer& slot, const std::function<FuturePointer()>& make,
                                    void (Work::*fulfils)(c10::ivalue::Future&) const) {
  FuturePointer future;
  {
    const std::lock_guard lock(mutex_);
    if (slot) return slot;
    slot = future = make();
    if (!completed_) return future;  // complete() fulfils it
  }
  (this->*fulfils)(*future);
  return future;
}

Work::FuturePointer Work::getFuture() {
  const auto make = [&] {
    std::vector<c10::Device> devices;
    if (event_) devices.push_back(operation_.device);
    return c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()),
                                                    std::move(devices));
  };
  return future_in(future_, make, &Work::fulfil);
}

Work::FuturePointer Work::getFutureResult() {
  const auto make = [] { return c10::make_intrusive<c10::ivalue::Future>(c10::IntType::get()); };
  return future_in(result_future_, make, &Work::fulfil_result);
}

std::optional<float> Work::took() const {
  if (!measured_) return std::nullopt;
  return milliseconds(ended_ - began_);
}

float duration_of(const std::optional<float>& took) {
  TORCH_CHECK(took,
              "getDuration: this operation was not timed; _enable_collectives_timing() of the "
              "group has later ones timed");
  return *took;
}

float Work::getDuration() const {
  const std::lock_guard lock(mutex_);
  TORCH_CHECK(!says_duration_ || completed_, "getDuration: the operation is not over yet");
  return duration_of(says_duration_ ? took() : std::nullopt);
}

}  // namespace tutti::pytorch

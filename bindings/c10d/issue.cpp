// How operations run: on the caller's thread, started, or on the stream of a GPU.
#include <ATen/record_function.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <span>
#include <utility>

#include "backend.h"
#include "errors.h"

namespace tutti::pytorch {

using Clock = std::chrono::steady_clock;

Milliseconds Backend::effective(Milliseconds asked) const {
  const bool unset = asked == ::c10d::kUnsetTimeout || asked.count() <= 0;
  return (unset ? options_->timeout : asked) + ledger_->extension();
}

c10::intrusive_ptr<Work> Backend::make_work(Operation o, Milliseconds timeout, int parts) {
  return c10::make_intrusive<Work>(std::move(o), rank_, sequence_.load(), parts, timeout, ledger_);
}

c10::intrusive_ptr<Work> Backend::make_work(Operation o, Milliseconds timeout) {
  const int parts = std::max(1, static_cast<int>(o.steps.size()));
  return make_work(std::move(o), timeout, parts);
}

std::unique_lock<std::mutex> Backend::lock() const {
  // A child of fork() may find the lock held, for ever.
  if (process_ != process_id()) C10_THROW_ERROR(DistBackendError, kOfTheParent);
  std::unique_lock held(mutex_, std::try_to_lock);
  if (held) return held;
  const WithoutPython without;  // the thread that has the lock may need Python's first
  held.lock();
  return held;
}

std::shared_ptr<Communicator> Backend::comm() const {
  const std::lock_guard held(replacing_);
  return comm_;
}

const WorkPointer& Backend::noted(const WorkPointer& work) {
  if (coalesced_.empty()) return work;
  const auto mine = coalesced_.find(std::this_thread::get_id());
  if (mine != coalesced_.end()) mine->second.push_back(work);
  return work;
}

void Backend::hears(const Error& error) {
  if (!Ledger::is_failure(error, rank_)) return;
  const WithoutPython without;
  ledger_->run_abort_hooks();
}

WorkPointer Backend::issue(Operation&& o, Milliseconds asked, bool async, bool open) {
  const auto issued = [&]() -> WorkPointer {
    auto held = lock();
    check_usable();
    const Milliseconds timeout = effective(asked);
    if (!estimated_.empty() && estimates(o, timeout)) {
      Operation none(o.type, o.name, at::kCPU);
      none.results = std::move(o.results);
      return noted(start(std::move(none), timeout));
    }
    ++sequence_;
    if (!o.device.is_cpu()) return put_on_stream(std::move(o), timeout);
    const bool coalesces = coalesced_.contains(std::this_thread::get_id());
    if (async || coalesces) return noted(start(std::move(o), timeout));
    held.unlock();
    return run(std::move(o), timeout, open);
  };
  return translated(issued, [this](const Error& error) { hears(error); });
}

WorkPointer Backend::run(Operation&& o, Milliseconds timeout, bool open) {
  const auto calls = comm();
  const EndedByCtrlC interruptible;
  const bool watched = open && ledger_->wants_works();
  // Before the call, as an extension of timeouts is for works after it.
  const std::uint64_t number = watched ? Ledger::next_number() : 0;
  const auto began = watched ? Clock::now() : Clock::time_point();
  RECORD_FUNCTION(o.name, std::vector<c10::IValue>());
  for (Step& step : o.steps) calls->run(step.ready(timeout));
  if (!o.finishing.empty()) o.finish();
  if (!watched) return nullptr;
  return c10::make_intrusive<FinishedWork>(std::move(o), rank_, sequence_.load(), number, timeout,
                                           began, *ledger_);
}

WorkPointer Backend::start(Operation&& o, Milliseconds timeout) {
  const auto work = make_work(std::move(o), timeout);
  const auto& steps = work->operation().steps;
  if (steps.empty()) work->end(std::nullopt);
  const auto calls = comm();
  std::size_t in_hand = 0;
  try {
    for (const Step& step : steps) {
      const Future future = calls->start(step.ready(work->getTimeout()));
      ++in_hand;
      end_with(work, future);
    }
  } catch (const Error& error) {
    for (; in_hand < steps.size(); ++in_hand) work->end(error);
    throw;
  }
  return work;
}

bool Backend::estimates(const Operation& o, Milliseconds timeout) {
  const auto mine = estimated_.find(std::this_thread::get_id());
  if (mine == estimated_.end()) return false;
  if (!o.device.is_cpu()) refuse_estimate(o.name, "tensors of the CPU");
  for (const Step& step : o.steps) mine->second += comm()->predict(step.ready(timeout));
  return true;
}

void Backend::refuse_estimate(const char* name, const char* what) {
  if (!estimated_.extract(std::this_thread::get_id())) return;
  TORCH_CHECK(false, name, ": time is estimated for ", what, " alone; the estimate ends here");
}

void Backend::startTimeEstimate() {
  const auto held = lock();
  check_usable();
  estimated_[std::this_thread::get_id()] = std::chrono::nanoseconds(0);
}

float Backend::endTimeEstimate() {
  const auto held = lock();
  const auto ended = estimated_.extract(std::this_thread::get_id());
  TORCH_CHECK(ended, "endTimeEstimate without startTimeEstimate on this thread");
  return std::chrono::duration<float, std::micro>(ended.mapped()).count();
}

void Backend::end_with(const c10::intrusive_ptr<Work>& work, const Future& future) {
  work->awaits(future);
  Future(future).on_ready([work, future] { work->end(future.error()); });
}

WorkPointer Backend::put_on_stream(Operation&& o, Milliseconds timeout) {
  const WorkPointer work = make_work(std::move(o), timeout, 1);
  // Together with the others, when those are known: two kernels of a stream cannot exchange
  // messages.
  if (coalesced_.contains(std::this_thread::get_id())) return noted(work);
  put_on_stream({&work, 1});
  return work;
}

void Backend::put_on_stream(std::span<const WorkPointer> works) {
  const at::Device device = static_cast<Work&>(*works.front()).operation().device;
  const c10::impl::VirtualGuardImpl guard(device.type());
  void* const stream = guard.getStream(device).native_handle();
  const auto calls = comm();
  const auto put = [&] {
    for (const WorkPointer& work : works) {
      auto& its = static_cast<Work&>(*work);
      for (const Step& step : its.operation().steps) {
        calls->run(step.ready(its.getTimeout()), stream);
      }
    }
  };
  try {
    if (works.size() > 1) {
      group(put);
    } else {
      put();
    }
  } catch (const Error& error) {
    for (const WorkPointer& work : works) static_cast<Work&>(*work).end(error);
    throw;
  }
  for (const WorkPointer& work : works) {
    static_cast<Work&>(*work).record_event();
    static_cast<Work&>(*work).end(std::nullopt);
  }
}

}  // namespace tutti::pytorch

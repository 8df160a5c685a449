// How operations run: on the caller's thread, started, or on the stream of a GPU.
#include <ATen/record_function.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <span>
#include <utility>

#include "backend.h"
#include "errors.h"

namespace tutti::pytorch {

Milliseconds Backend::effective(Milliseconds timeout) const {
  return timeout == ::c10d::kUnsetTimeout || timeout.count() <= 0 ? options_->timeout : timeout;
}

c10::intrusive_ptr<Work> Backend::make_work(Operation o, int parts, Milliseconds timeout) {
  return c10::make_intrusive<Work>(std::move(o), rank_, sequence_.load(), parts,
                                   effective(timeout));
}

std::unique_lock<std::mutex> Backend::take_turn() {
  std::unique_lock turn(mutex_, std::try_to_lock);
  if (turn) return turn;
  const WithoutPython without;  // whose turn it is may need its lock first
  wanted_.fetch_add(1);
  if (comm_) comm_.wake();
  turn.lock();
  wanted_.fetch_sub(1);
  return turn;
}

const WorkPointer& Backend::noted(const WorkPointer& work) {
  if (coalesced_.empty()) return work;
  const auto mine = coalesced_.find(std::this_thread::get_id());
  if (mine != coalesced_.end()) mine->second.push_back(work);
  return work;
}

WorkPointer Backend::issue(Operation&& o, Milliseconds timeout, bool async) {
  const auto turn = take_turn();
  ++sequence_;
  return translated([&]() -> WorkPointer {
    if (!o.device.is_cpu()) return put_on_stream(std::move(o), timeout);
    const bool coalesces = coalesced_.contains(std::this_thread::get_id());
    if (!async && !coalesces) return run(std::move(o), timeout);
    return noted(start(std::move(o), timeout));
  });
}

WorkPointer Backend::run(Operation&& o, Milliseconds timeout) {
  // Where something is under way that others may wait for in another order, this must not wait for
  // it.
  if (started_.load(std::memory_order_acquire) > 0) return start(std::move(o), timeout);
  const EndedByCtrlC interruptible;
  RECORD_FUNCTION(o.name, std::vector<c10::IValue>());
  for (std::size_t s = 0; s < o.steps.size(); ++s) {
    Call call = o.steps[s].ready();
    call.timeout = effective(timeout);
    Future begun = comm_.run_or_start(call, wanted_);
    if (begun.valid()) return start(std::move(o), timeout, s, std::move(begun));
  }
  if (!o.finishing.empty()) {
    const at::NoGradGuard no_grad;
    o.finish();
  }
  return nullptr;
}

WorkPointer Backend::start(Operation&& o, Milliseconds timeout, std::size_t first, Future begun) {
  const int parts = static_cast<int>(o.steps.size() - first);
  if (parts == 0) {
    auto work = make_work(std::move(o), 1, timeout);
    work->end(std::nullopt);
    return work;
  }
  c10::intrusive_ptr<Work> work = make_work(std::move(o), parts, timeout);
  int in_hand = 0;
  try {
    for (const Step& step : std::span(work->operation().steps).subspan(first)) {
      Call call = step.ready();
      call.timeout = effective(timeout);
      Future future = begun.valid() ? std::exchange(begun, {}) : comm_.start(call);
      ++in_hand;
      started_.fetch_add(1, std::memory_order_relaxed);
      future.on_ready([this, work, future] {
        work->end(future.error());
        started_.fetch_sub(1, std::memory_order_release);
      });
    }
  } catch (const Error& error) {
    for (; in_hand < parts; ++in_hand) work->end(error);
    throw;
  }
  return work;
}

WorkPointer Backend::put_on_stream(Operation&& o, Milliseconds timeout) {
  const c10::impl::VirtualGuardImpl guard(o.device.type());
  void* const stream = guard.getStream(o.device).native_handle();
  for (const Step& step : o.steps) comm_.run(step.ready(), stream);
  auto work = make_work(std::move(o), 1, timeout);
  work->end(std::nullopt);
  work->record_event();
  return work;
}

}  // namespace tutti::pytorch

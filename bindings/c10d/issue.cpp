// How operations run: on the caller's thread, started, or on the stream of a GPU.
#include <ATen/record_function.h>
#include <c10/core/impl/VirtualGuardImpl.h>

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

WorkPointer Backend::issue(Operation&& o, Milliseconds timeout, bool async) {
  const std::lock_guard lock(mutex_);
  ++sequence_;
  return translated([&]() -> WorkPointer {
    if (!o.device.is_cpu()) return put_on_stream(std::move(o), timeout);
    // Where something is under way that others may wait for in another order, this must not wait
    // for it.
    const bool alone = started_.load(std::memory_order_acquire) == 0;
    if (!async && alone && !coalescing_) {
      run(o, timeout);
      return nullptr;
    }
    WorkPointer work = start(std::move(o), timeout);
    if (coalescing_) coalesced_.push_back(work);
    return work;
  });
}

void Backend::run(const Operation& o, Milliseconds timeout) {
  const EndedByCtrlC interruptible;
  RECORD_FUNCTION(o.name, std::vector<c10::IValue>());
  for (const Step& step : o.steps) {
    Call call = step.ready();
    call.timeout = effective(timeout);
    comm_.run(call);
  }
  if (!o.finishing.empty()) {
    const at::NoGradGuard no_grad;
    o.finish();
  }
}

WorkPointer Backend::start(Operation&& o, Milliseconds timeout) {
  const int parts = static_cast<int>(o.steps.size());
  if (parts == 0) {
    auto work = make_work(std::move(o), 1, timeout);
    work->end(std::nullopt);
    return work;
  }
  c10::intrusive_ptr<Work> work = make_work(std::move(o), parts, timeout);
  int begun = 0;
  try {
    for (const Step& step : work->operation().steps) {
      Call call = step.ready();
      call.timeout = effective(timeout);
      Future future = comm_.start(call);
      ++begun;
      started_.fetch_add(1, std::memory_order_relaxed);
      future.on_ready([this, work, future] {
        work->end(future.error());
        started_.fetch_sub(1, std::memory_order_release);
      });
    }
  } catch (const Error& error) {
    for (; begun < parts; ++begun) work->end(error);
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

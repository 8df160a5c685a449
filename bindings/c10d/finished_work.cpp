#include "finished_work.h"

#include <memory>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <utility>

#include "work.h"

namespace tutti::pytorch {

FinishedWork::FinishedWork(Operation&& operation, int rank, std::uint64_t sequence,
                           std::uint64_t number, std::chrono::milliseconds timeout,
                           Clock::time_point began, Ledger& ledger)
    : ::c10d::Work(rank, operation.type),
      results_(std::move(operation.results)),
      sequence_(sequence),
      number_(number),
      timeout_(timeout),
      took_(Clock::now() - began) {
  ledger.expire(number);
  ledger.succeeded(number, milliseconds(took_));
  if (!ledger.has_work_hook()) return;
  const auto end = began + took_;
  ledger.tell_work_hook(
      std::make_shared<::c10d::WorkInfo>(operation.type, sequence, began, end, took_));
}

bool FinishedWork::wait(std::chrono::milliseconds) {
  if (::c10d::allow_inflight_collective_as_graph_input()) {
    ::c10d::unregister_work(c10::intrusive_ptr<::c10d::Work>::reclaim_copy(this));
  }
  return true;
}

c10::intrusive_ptr<c10::ivalue::Future> FinishedWork::getFuture() {
  auto future =
      c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
  future->markCompleted(c10::IValue(results_));
  return future;
}

c10::intrusive_ptr<c10::ivalue::Future> FinishedWork::getFutureResult() {
  auto future = c10::make_intrusive<c10::ivalue::Future>(c10::IntType::get());
  future->markCompleted(static_cast<std::int64_t>(::c10d::WorkResult::SUCCESS));
  return future;
}

float FinishedWork::getDuration() const { return milliseconds(took_); }

}  // namespace tutti::pytorch

// FinishedWork: the work of a blocking call that ran to its end on the caller's thread, for code
// that watches works. It is small, because it is the whole extra cost of a call that is watched.
#pragma once

#include <chrono>
#include <vector>

#include "ledger.h"
#include "operation.h"

namespace tutti::pytorch {

class FinishedWork final : public ::c10d::Work {
 public:
  using Clock = std::chrono::steady_clock;
  /// `number`: Ledger::next_number(), before the call `began`. Tells `ledger`.
  FinishedWork(Operation&& operation, int rank, std::uint64_t sequence, std::uint64_t number,
               std::chrono::milliseconds timeout, Clock::time_point began, Ledger& ledger);

  bool isCompleted() override { return true; }
  bool isSuccess() const override { return true; }
  std::vector<at::Tensor> result() override { return results_; }
  void synchronize() override {}
  bool wait(std::chrono::milliseconds timeout) override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFutureResult() override;
  float getDuration() const override;
  std::uint64_t getSequencenumber() const override { return sequence_; }
  // Virtual since 2.15:
  std::chrono::milliseconds getTimeout() const { return timeout_; }
  std::uint64_t getCompletionKey() const { return number_; }

 private:
  std::vector<at::Tensor> results_;
  const std::uint64_t sequence_, number_;
  const std::chrono::milliseconds timeout_;
  const std::chrono::nanoseconds took_;
};

}  // namespace tutti::pytorch
